//! Cache of recently verified passwords, so that not every request costs a slow hash.
//!
//! Stores a hash keyed with a key of this process: not the password, and nothing that another process could
//! use.

use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const CACHE_LIFETIME: Duration = Duration::from_mins(1);
const CACHE_CAPACITY: usize = 4096;

#[derive(Debug)]
pub(crate) struct PasswordCache {
    key: [u8; 32],
    expiry: HashMap<[u8; 32], Instant>,
}

impl PasswordCache {
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self { key, expiry: HashMap::new() })
    }

    pub(crate) fn contains(&self, user: &str, password: &str, now: Instant) -> bool {
        self.expiry.get(&self.digest(user, password)).is_some_and(|until| now < *until)
    }

    pub(crate) fn insert(&mut self, user: &str, password: &str, now: Instant) {
        if self.expiry.len() >= CACHE_CAPACITY {
            self.expiry.retain(|_, until| now < *until);
        }
        if self.expiry.len() < CACHE_CAPACITY {
            self.expiry.insert(self.digest(user, password), now + CACHE_LIFETIME);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.expiry.clear();
    }

    /// SHA-256 over key, length of the name, name and password; hashed once more, so that no digest is the
    /// inner state of a longer one.
    fn digest(&self, user: &str, password: &str) -> [u8; 32] {
        let inner = Sha256::new()
            .chain_update(self.key)
            .chain_update(user.len().to_le_bytes())
            .chain_update(user)
            .chain_update(password)
            .finalize();
        Sha256::new().chain_update(self.key).chain_update(inner).finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_correct_passwords_are_cached_for_a_short_time() {
        let mut verified = PasswordCache::new().unwrap();
        let now = Instant::now();
        verified.insert("ana", "secret", now);
        assert!(verified.contains("ana", "secret", now));
        assert!(!verified.contains("ana", "secre", now));
        assert!(!verified.contains("anas", "ecret", now), "name and password are separated");
        assert!(!verified.contains("ana", "secret", now + CACHE_LIFETIME));
        verified.clear();
        assert!(!verified.contains("ana", "secret", now));
    }

    #[test]
    fn memory_is_bounded() {
        let mut verified = PasswordCache::new().unwrap();
        let now = Instant::now();
        for number in 0..=CACHE_CAPACITY {
            verified.insert(&number.to_string(), "x", now);
        }
        assert_eq!(verified.expiry.len(), CACHE_CAPACITY);
    }
}
