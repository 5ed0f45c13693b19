//! The public keys of an issuer: their location, and when they are fetched again.

use super::signature::{JsonWebKey, PublicKey, SignatureAlgorithm};
use super::{JwtError, KeyFetchPolicy};
use crate::config::JwtConfig;
use serde_json::Value;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Minimum interval between fetches, also if tokens name unknown key ids.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum age of cached keys; a withdrawn key is rejected after this time.
const KEY_LIFETIME: Duration = Duration::from_hours(1);
/// How long cached keys are used if the issuer is unreachable.
const MAX_STALE_TIME: Duration = Duration::from_hours(24);

/// Fetches a document over the network. Implemented by the server; this crate does not use HTTP.
pub trait DocumentFetcher: Send + Sync {
    /// Returns the body of the response to a GET.
    fn fetch(&self, url: &str) -> Result<String, DocumentFetchError>;
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DocumentFetchError(pub String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeySource {
    File(PathBuf),
    Url(String),
    /// Discovered from the issuer.
    Discover(String),
}

impl KeySource {
    pub(super) fn new(config: &JwtConfig) -> Result<Self, String> {
        match config.jwks.as_deref() {
            Some(url) if url.contains("://") => check_secure_url(url).map(|()| Self::Url(url.to_owned())),
            Some(path) => Ok(Self::File(PathBuf::from(path))),
            None => check_secure_url(&config.issuer).map(|()| Self::Discover(config.issuer.clone())),
        }
    }

    fn load(&self, fetch: Option<&dyn DocumentFetcher>) -> Result<String, DocumentFetchError> {
        let get = |url: &str| match fetch {
            Some(fetch) => fetch.fetch(url),
            None => Err(DocumentFetchError("no way to fetch keys is configured".to_owned())),
        };
        match self {
            Self::File(path) => std::fs::read_to_string(path)
                .map_err(|error| DocumentFetchError(format!("{}: {error}", path.display()))),
            Self::Url(url) => get(url),
            Self::Discover(issuer) => {
                let about =
                    get(&format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/')))?;
                get(&parse_jwks_uri(&about, issuer).map_err(DocumentFetchError)?)
            }
        }
    }
}

/// Returns the location of the keys from the issuer's discovery document.
fn parse_jwks_uri(about: &str, issuer: &str) -> Result<String, String> {
    let about: Value =
        serde_json::from_str(about).map_err(|_| "its discovery document is not JSON".to_owned())?;
    if about["issuer"] != issuer {
        return Err("its discovery document is for another issuer".to_owned());
    }
    let uri =
        about["jwks_uri"].as_str().ok_or("its discovery document does not name the location of its keys")?;
    check_secure_url(uri).map(|()| uri.to_owned())
}

/// Keys fetched over an unprotected connection prove nothing.
fn check_secure_url(url: &str) -> Result<(), String> {
    let loopback = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
    let is_loopback = |rest: &str| rest.is_empty() || rest.starts_with([':', '/']);
    let is_fine = url.starts_with("https://")
        || loopback.iter().any(|start| url.strip_prefix(start).is_some_and(is_loopback));
    if is_fine { Ok(()) } else { Err(format!("`{url}` must start with https://")) }
}

/// The keys of one issuer.
pub(super) struct IssuerKeys {
    source: KeySource,
    fetch: Option<Arc<dyn DocumentFetcher>>,
    cached: Mutex<CachedKeys>,
    /// Held while fetching, so that concurrent requests fetch once.
    fetch_lock: Mutex<()>,
}

/// A public key, and what may be verified with it.
struct IssuerKey {
    name: Option<String>,
    /// The algorithms of its key type, or the single one that the issuer declares.
    algorithms: Vec<SignatureAlgorithm>,
    key: PublicKey,
}

#[derive(Default)]
struct CachedKeys {
    keys: Vec<IssuerKey>,
    fetched_at: Option<Instant>,
    tried_at: Option<Instant>,
}

impl fmt::Debug for IssuerKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuerKeys").field("source", &self.source).finish_non_exhaustive()
    }
}

impl IssuerKeys {
    pub(super) fn new(source: KeySource, fetch: Option<Arc<dyn DocumentFetcher>>) -> Self {
        Self { source, fetch, cached: Mutex::default(), fetch_lock: Mutex::default() }
    }

    /// Returns the key with this id, if it is for this algorithm. `None`: it would have to be fetched.
    pub(super) fn find(
        &self,
        kid: Option<&str>,
        algorithm: SignatureAlgorithm,
        clock: Instant,
        effort: KeyFetchPolicy,
    ) -> Option<Result<PublicKey, JwtError>> {
        if self.should_fetch(kid, clock) {
            if effort == KeyFetchPolicy::Never {
                return None;
            }
            self.fetch_keys(kid, clock);
        }
        let known = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let is_good = known.fetched_at.is_some_and(|since| clock.duration_since(since) < MAX_STALE_TIME);
        if !is_good {
            return Some(Err(JwtError::KeysUnavailable));
        }
        let mut named = known.find_named(kid).peekable();
        if named.peek().is_none() {
            return Some(Err(JwtError::Signature));
        }
        let found = named.find(|key| key.algorithms.contains(&algorithm));
        Some(found.map(|key| key.key.clone()).ok_or(JwtError::KeyAlgorithm(algorithm.to_string())))
    }

    fn should_fetch(&self, kid: Option<&str>, clock: Instant) -> bool {
        let known = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = known.fetched_at.is_some_and(|since| clock.duration_since(since) < KEY_LIFETIME);
        let may_ask = known.tried_at.is_none_or(|tried| clock.duration_since(tried) >= MIN_FETCH_INTERVAL);
        may_ask && !(is_fresh && known.find_named(kid).next().is_some())
    }

    fn fetch_keys(&self, kid: Option<&str>, clock: Instant) {
        let _asking = self.fetch_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.should_fetch(kid, clock) {
            return; // Another thread fetched the keys meanwhile.
        }
        let loaded = self
            .source
            .load(self.fetch.as_deref())
            .and_then(|text| parse_jwks(&text).map_err(DocumentFetchError));
        let mut known = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        known.tried_at = Some(clock);
        if let Ok(keys) = loaded {
            known.keys = keys;
            known.fetched_at = Some(clock);
        }
    }
}

impl CachedKeys {
    /// Returns the keys with this id; keys of different types may share one.
    fn find_named<'a>(&'a self, kid: Option<&'a str>) -> impl Iterator<Item = &'a IssuerKey> {
        // A token without a key id is accepted if there is only one key.
        let is_only_key = self.keys.len() == 1;
        self.keys.iter().filter(move |key| match kid {
            Some(kid) => key.name.as_deref() == Some(kid),
            None => is_only_key,
        })
    }
}

/// Returns the signature keys of a JWKS. Other keys and unknown types are skipped.
fn parse_jwks(text: &str) -> Result<Vec<IssuerKey>, String> {
    let mut document: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let all = document["keys"].as_array_mut().ok_or("no `keys` in the document")?;
    let known = all.drain(..).filter_map(|key| {
        let jwk: JsonWebKey = serde_json::from_value(key).ok()?;
        let key = jwk.public_key()?;
        let algorithms = jwk.algorithms(&key);
        (!algorithms.is_empty()).then_some(IssuerKey { name: jwk.kid, algorithms, key })
    });
    Ok(known.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    const FIRST: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"one","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},{"kty":"oct","kid":"shared","k":"c2VjcmV0"},{"kty":"new-kind","kid":"x"}]}"#;

    /// Returns the key sets one after the other, the last one repeatedly.
    struct KeySetResponses(AtomicU32, Vec<Result<String, DocumentFetchError>>);

    impl DocumentFetcher for KeySetResponses {
        fn fetch(&self, _: &str) -> Result<String, DocumentFetchError> {
            let number = self.0.fetch_add(1, Ordering::Relaxed) as usize;
            self.1[number.min(self.1.len() - 1)].clone()
        }
    }

    fn keys(answers: &[Result<&str, &str>]) -> (IssuerKeys, Arc<KeySetResponses>) {
        let all = answers
            .iter()
            .map(|answer| answer.map(str::to_owned).map_err(|error| DocumentFetchError(error.to_owned())));
        let answers = Arc::new(KeySetResponses(AtomicU32::new(0), all.collect()));
        (IssuerKeys::new(KeySource::Url("https://i/keys".into()), Some(answers.clone())), answers)
    }

    fn asked(answers: &KeySetResponses) -> u32 {
        answers.0.load(Ordering::Relaxed)
    }

    fn found(keys: &IssuerKeys, kid: &str, clock: Instant) -> Result<(), JwtError> {
        keys.find(Some(kid), SignatureAlgorithm::EdDsa, clock, KeyFetchPolicy::IfNeeded).unwrap().map(drop)
    }

    #[test]
    fn fetches_for_unknown_keys_are_rate_limited() {
        let second = FIRST.replace("one", "two");
        let (keys, answers) = keys(&[Ok(FIRST), Ok(&second)]);
        let start = Instant::now();
        assert!(
            keys.find(Some("one"), SignatureAlgorithm::EdDsa, start, KeyFetchPolicy::Never).is_none(),
            "it has to be fetched first"
        );
        assert_eq!(found(&keys, "one", start), Ok(()));
        assert!(keys.find(Some("one"), SignatureAlgorithm::EdDsa, start, KeyFetchPolicy::Never).is_some());
        for _ in 0..10 {
            assert_eq!(found(&keys, "two", start), Err(JwtError::Signature));
        }
        assert_eq!(asked(&answers), 1);
        let later = start + MIN_FETCH_INTERVAL;
        assert_eq!(found(&keys, "two", later), Ok(()), "rotated");
        assert_eq!(found(&keys, "one", later), Err(JwtError::Signature), "the old key is gone");
        assert_eq!(asked(&answers), 2);
    }

    #[test]
    fn cached_keys_are_valid_for_a_day() {
        let (keys, _) = keys(&[Ok(FIRST), Err("away")]);
        let start = Instant::now();
        assert_eq!(found(&keys, "one", start), Ok(()));
        assert_eq!(found(&keys, "one", start + 2 * KEY_LIFETIME), Ok(()));
        assert_eq!(found(&keys, "one", start + MAX_STALE_TIME), Err(JwtError::KeysUnavailable));
    }

    #[test]
    fn shared_secrets_and_unknown_key_types_are_ignored() {
        let names: Vec<_> = parse_jwks(FIRST).unwrap().into_iter().map(|key| key.name.unwrap()).collect();
        assert_eq!(names, ["one"]);
        assert!(parse_jwks("{}").is_err());
        assert!(parse_jwks("<html>").is_err());
    }

    #[test]
    fn key_verifies_only_its_declared_use() {
        let algorithms = |fields: Value| {
            let mut key = serde_json::json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"});
            key.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let found = parse_jwks(&serde_json::json!({ "keys": [key] }).to_string()).unwrap();
            found.into_iter().next().map(|key| key.algorithms)
        };
        let of_ed25519 = Some(vec![SignatureAlgorithm::EdDsa]);
        for fits in [
            serde_json::json!({}),
            serde_json::json!({"alg": "EdDSA"}),
            serde_json::json!({"use": "sig", "key_ops": ["verify"]}),
        ] {
            assert_eq!(algorithms(fits.clone()), of_ed25519, "{fits}");
        }
        for other in [
            serde_json::json!({"alg": "RS256"}),
            serde_json::json!({"alg": "RSA-OAEP"}),
            serde_json::json!({"alg": "of tomorrow"}),
            serde_json::json!({"use": "enc"}),
            serde_json::json!({"key_ops": ["encrypt"]}),
            serde_json::json!({"kty": "EC"}),
            serde_json::json!({"kty": "RSA"}),
            serde_json::json!({"crv": "P-256"}),
        ] {
            assert_eq!(algorithms(other.clone()), None, "{other}");
        }
        let rsa = r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB","alg":"PS256"}]}"#;
        assert_eq!(parse_jwks(rsa).unwrap()[0].algorithms, [SignatureAlgorithm::Ps256], "and not RS256");
    }

    #[test]
    fn key_urls_must_be_https_or_loopback() {
        for url in ["https://i/keys", "http://127.0.0.1:8000/keys", "http://localhost/keys"] {
            assert!(check_secure_url(url).is_ok(), "{url}");
        }
        for url in ["http://i/keys", "ftp://i", "http://localhost.example.org/", "http://127.0.0.1.example/"]
        {
            assert!(check_secure_url(url).is_err(), "{url}");
        }
    }

    #[test]
    fn key_url_is_discovered_from_the_issuer() {
        let about = r#"{"issuer": "https://i", "jwks_uri": "https://i/k"}"#;
        assert_eq!(parse_jwks_uri(about, "https://i").unwrap(), "https://i/k");
        assert!(parse_jwks_uri(about, "https://j").is_err());
        assert!(parse_jwks_uri(&about.replace("https://i/k", "http://i/k"), "https://i").is_err());
    }
}
