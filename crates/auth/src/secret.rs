//! Generated secrets, and the hashes that are stored.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use std::fmt;
use subtle::ConstantTimeEq as _;

/// 256 random bits as text with the prefix `wl_`. Printed only by [`TokenSecret::reveal`].
#[derive(Clone, PartialEq, Eq)]
pub struct TokenSecret(String);

impl TokenSecret {
    /// Prefix of all Windlass tokens, so that leaked ones are recognized in logs and repositories.
    pub const PREFIX: &str = "wl_";

    /// Generates a secret from the system's random source.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(format!("{}{}", Self::PREFIX, URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// Wraps a stored secret.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub fn hash(&self) -> SecretHash {
        SecretHash::from_secret(&self.0)
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// SHA-256 of a secret. Sufficient for 256 random bits, which cannot be guessed; a slow hash would add nothing.
#[derive(Clone, Copy, Debug)]
pub struct SecretHash([u8; 32]);

impl SecretHash {
    pub fn from_secret(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }

    /// Returns the stored form: 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl PartialEq for SecretHash {
    /// Compares in constant time.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for SecretHash {}

impl std::hash::Hash for SecretHash {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_long_random_and_not_printed() {
        let (one, two) = (TokenSecret::random().unwrap(), TokenSecret::random().unwrap());
        assert_ne!(one.reveal(), two.reveal());
        assert_eq!(one.reveal().len(), 3 + 43, "32 bytes in base64");
        assert!(!format!("{one:?}").contains(one.reveal()));
    }

    #[test]
    fn hash_round_trips_as_text() {
        let hash = SecretHash::from_secret("abc");
        let text = hash.to_string();
        assert_eq!(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(SecretHash::parse(&text), Some(hash));
        assert_eq!(SecretHash::parse(&text[1..]), None);
        assert_eq!(SecretHash::parse(&text.replace('b', "é")), None);
    }
}
