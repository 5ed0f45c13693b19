//! Passwords that were found right a short while ago, so that a slow hash does not cost every request.
//!
//! What is kept is a hash with a key of this process: not the password, and nothing that another process could use.

use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const KEPT_FOR: Duration = Duration::from_mins(1);
const KEPT_AT_MOST: usize = 4096;

#[derive(Debug)]
pub(crate) struct Verified {
    key: [u8; 32],
    until: HashMap<[u8; 32], Instant>,
}

impl Verified {
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self { key, until: HashMap::new() })
    }

    pub(crate) fn knows(&self, user: &str, password: &str, now: Instant) -> bool {
        self.until.get(&self.digest(user, password)).is_some_and(|until| now < *until)
    }

    pub(crate) fn remember(&mut self, user: &str, password: &str, now: Instant) {
        if self.until.len() >= KEPT_AT_MOST {
            self.until.retain(|_, until| now < *until);
        }
        if self.until.len() < KEPT_AT_MOST {
            self.until.insert(self.digest(user, password), now + KEPT_FOR);
        }
    }

    pub(crate) fn flush(&mut self) {
        self.until.clear();
    }

    /// SHA-256 over key, length of the name, name and password; hashed once more, so that no digest is the inner state
    /// of a longer one.
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
    fn remembers_for_a_short_while_and_only_what_was_right() {
        let mut verified = Verified::new().unwrap();
        let now = Instant::now();
        verified.remember("ana", "secret", now);
        assert!(verified.knows("ana", "secret", now));
        assert!(!verified.knows("ana", "secre", now));
        assert!(!verified.knows("anas", "ecret", now), "name and password are kept apart");
        assert!(!verified.knows("ana", "secret", now + KEPT_FOR));
        verified.flush();
        assert!(!verified.knows("ana", "secret", now));
    }

    #[test]
    fn memory_is_bounded() {
        let mut verified = Verified::new().unwrap();
        let now = Instant::now();
        for number in 0..=KEPT_AT_MOST {
            verified.remember(&number.to_string(), "x", now);
        }
        assert_eq!(verified.until.len(), KEPT_AT_MOST);
    }
}
