//! JSON Web Tokens: really signed, with keys that a fetcher returns and that change.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::hmac;
use ring::signature::Ed25519KeyPair;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use windlass_auth::{
    AuthMethod, AuthenticationError, Authenticator, AuthenticatorOptions, DocumentFetchError,
    DocumentFetcher, PresentedCredentials, Principal, TokenScopes, UserRole,
};
use windlass_types::Timestamp;

const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

/// Two keys made for this test: the private part for signing, and the public part.
struct Key {
    kid: &'static str,
    /// The seed.
    private: &'static str,
    public: &'static str,
}

const ONE: Key = Key {
    kid: "one",
    private: "x1mjTgvDlGRnO09qfMck_KeTGDHoLGwxGjNKKoHAD44",
    public: "MKmWFbFWco5bj0ZXx8jigPDKgATcYN4dlDnDYHqPTQg",
};
const TWO: Key = Key {
    kid: "two",
    private: "b-ymDNS1D2gK4z68hOCki-f4ciYcYcAiiCL2p_OCmxM",
    public: "LwTIqUQ5g3JFsfVZOx_YpttaKM27YVS20ocxlxLFqRI",
};

impl Key {
    fn document(&self) -> Value {
        json!({"kty": "OKP", "crv": "Ed25519", "kid": self.kid, "x": self.public, "use": "sig"})
    }
}

/// An issuer as seen over the network.
#[derive(Default)]
struct Issuer {
    documents: Mutex<Vec<(String, String)>>,
    asked: Mutex<u32>,
}

impl Issuer {
    fn publishes(&self, keys: &[&Key]) {
        self.publishes_documents(&keys.iter().map(|key| key.document()).collect::<Vec<_>>());
    }

    fn publishes_documents(&self, keys: &[Value]) {
        let about = json!({"issuer": "https://issuer.example", "jwks_uri": "https://issuer.example/keys"});
        *self.documents.lock().unwrap() = vec![
            ("https://issuer.example/.well-known/openid-configuration".to_owned(), about.to_string()),
            ("https://issuer.example/keys".to_owned(), json!({ "keys": keys }).to_string()),
        ];
    }
}

impl DocumentFetcher for Issuer {
    fn fetch(&self, url: &str) -> Result<String, DocumentFetchError> {
        *self.asked.lock().unwrap() += 1;
        let documents = self.documents.lock().unwrap();
        let found = documents.iter().find(|(address, _)| address == url);
        found.map(|(_, text)| text.clone()).ok_or_else(|| DocumentFetchError("unreachable".to_owned()))
    }
}

struct Fixture {
    _dir: tempfile::TempDir,
    issuer: Arc<Issuer>,
    authenticator: Authenticator,
    start: Instant,
}

impl Fixture {
    fn new(keys: &[&Key]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("auth.toml");
        std::fs::write(
            &config,
            "[group_roles]\n'/ops' = 'operator'\n[[jwt]]\nissuer = 'https://issuer.example'\naudience = 'windlass'\ngroups_claim = 'wlcg.groups'\n",
        )
        .unwrap();
        let issuer = Arc::new(Issuer::default());
        issuer.publishes(keys);
        let options = AuthenticatorOptions {
            config: Some(config),
            fetch: Some(Arc::clone(&issuer) as Arc<dyn DocumentFetcher>),
            ..AuthenticatorOptions::default()
        };
        Self {
            authenticator: Authenticator::open(options).unwrap(),
            _dir: dir,
            issuer,
            start: Instant::now(),
        }
    }

    fn admit_after(&self, token: &str, passed: Duration) -> Result<Principal, AuthenticationError> {
        self.authenticator.authenticate(&PresentedCredentials {
            authorization: Some(&format!("Bearer {token}")),
            certificate: None,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            now: NOW,
            clock: self.start + passed,
        })
    }

    fn admit(&self, token: &str) -> Result<Principal, AuthenticationError> {
        self.admit_after(token, Duration::ZERO)
    }
}

fn claims() -> Value {
    json!({
        "iss": "https://issuer.example", "aud": ["other", "windlass"], "sub": "ana", "exp": 1_800_000_600,
        "scope": "compute.read compute.modify compute.create compute.cancel", "wlcg.groups": ["/all", "/ops"],
    })
}

fn sign(claims: &Value, key: &Key) -> String {
    sign_with_header(&json!({"typ": "JWT", "alg": "EdDSA", "kid": key.kid}), claims, key)
}

fn sign_with_header(header: &Value, claims: &Value, key: &Key) -> String {
    let signed = format!("{}.{}", encode_part(header), encode_part(claims));
    let seed = BASE64.decode(key.private).unwrap();
    let signer =
        Ed25519KeyPair::from_seed_and_public_key(&seed, &BASE64.decode(key.public).unwrap()).unwrap();
    format!("{signed}.{}", BASE64.encode(signer.sign(signed.as_bytes())))
}

fn encode_part(value: &Value) -> String {
    BASE64.encode(value.to_string())
}

fn is_refused(result: &Result<Principal, AuthenticationError>) -> bool {
    matches!(result, Err(AuthenticationError::Jwt(_)))
}

#[test]
fn token_of_a_trusted_issuer_is_accepted() {
    let fixture = Fixture::new(&[&ONE]);
    let ana = fixture.admit(&sign(&claims(), &ONE)).unwrap();
    assert_eq!((&*ana.user, ana.role, ana.scopes), ("ana", UserRole::Operator, TokenScopes::WRITE));
    assert_eq!(ana.method, AuthMethod::Jwt { issuer: "https://issuer.example".into() });
    assert!(ana.expires.is_some(), "a token created with it expires no later");
}

#[test]
fn wrong_issuer_audience_expiry_and_key_are_rejected() {
    let fixture = Fixture::new(&[&ONE]);
    let with = |name: &str, value: Value| {
        let mut claims = claims();
        claims[name] = value;
        sign(&claims, &ONE)
    };
    assert!(is_refused(&fixture.admit(&with("iss", json!("https://evil.example")))));
    assert!(is_refused(&fixture.admit(&with("aud", json!("another audience")))));
    assert_eq!(fixture.admit(&with("exp", json!(1_700_000_000))), Err(AuthenticationError::Expired));
    let as_if_it_were_one = sign(&claims(), &Key { kid: "one", ..TWO });
    assert!(is_refused(&fixture.admit(&as_if_it_were_one)), "another key with the same id");
}

#[test]
fn missing_and_forged_signatures_are_rejected() {
    let fixture = Fixture::new(&[&ONE]);
    let good = sign(&claims(), &ONE);
    let parts: Vec<&str> = good.split('.').collect();

    for alg in ["none", "None", "NONE"] {
        let header = encode_part(&json!({"alg": alg, "kid": "one"}));
        assert!(is_refused(&fixture.admit(&format!("{header}.{}.", parts[1]))), "{alg}");
        assert!(is_refused(&fixture.admit(&format!("{header}.{}.{}", parts[1], parts[2]))), "{alg}");
    }
    // The public key used as a shared secret.
    let signed = format!("{}.{}", encode_part(&json!({"alg": "HS256", "kid": "one"})), parts[1]);
    for secret in [ONE.public.as_bytes().to_vec(), BASE64.decode(ONE.public).unwrap()] {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        let forged = format!("{signed}.{}", BASE64.encode(hmac::sign(&secret, signed.as_bytes())));
        assert!(is_refused(&fixture.admit(&forged)));
    }
    let mut admin = claims();
    admin["sub"] = json!("root");
    let forged = format!("{}.{}.{}", parts[0], encode_part(&admin), parts[2]);
    assert!(is_refused(&fixture.admit(&forged)), "claims that were not signed");
    for garbled in [&good[1..], &good[..good.len() - 4], &format!("{good}AAAA")] {
        assert!(fixture.admit(garbled).is_err());
    }
}

#[test]
fn token_with_critical_extensions_is_rejected() {
    let fixture = Fixture::new(&[&ONE]);
    let admit = |crit: Value| {
        let mut header = json!({"alg": "EdDSA", "kid": "one"});
        header.as_object_mut().unwrap().extend(crit.as_object().unwrap().clone());
        fixture.admit(&sign_with_header(&header, &claims(), &ONE))
    };
    assert!(admit(json!({})).is_ok());
    for crit in [json!(["b64"]), json!(["exp"]), json!([])] {
        assert!(is_refused(&admit(json!({ "crit": crit }))));
    }
}

#[test]
fn key_for_another_algorithm_or_use_is_rejected() {
    let fixture = Fixture::new(&[&ONE]);
    let token = sign(&claims(), &ONE);
    let mut passed = Duration::ZERO;
    for (field, value, is_good) in [
        ("alg", "EdDSA", true),
        ("alg", "ES256", false),
        ("alg", "RS256", false),
        ("use", "enc", false),
        ("use", "sig", true),
    ] {
        let mut key = ONE.document();
        key[field] = json!(value);
        fixture.issuer.publishes_documents(&[key]);
        // Withdrawn keys are looked up again after an hour.
        passed += Duration::from_hours(2);
        assert_eq!(fixture.admit_after(&token, passed).is_ok(), is_good, "{field} {value}");
    }
}

#[test]
fn rotated_keys_are_fetched() {
    let fixture = Fixture::new(&[&ONE]);
    let (old, new) = (sign(&claims(), &ONE), sign(&claims(), &TWO));
    assert!(fixture.admit(&old).is_ok());
    fixture.issuer.publishes(&[&ONE, &TWO]);
    let asked = *fixture.issuer.asked.lock().unwrap();
    for _ in 0..20 {
        assert!(is_refused(&fixture.admit(&new)), "fetched a moment ago");
    }
    assert_eq!(*fixture.issuer.asked.lock().unwrap(), asked, "fetches are rate limited");
    assert!(fixture.admit_after(&new, Duration::from_secs(31)).is_ok());
    assert!(fixture.admit_after(&old, Duration::from_secs(31)).is_ok());
    fixture.issuer.publishes(&[&TWO]);
    assert!(is_refused(&fixture.admit_after(&old, Duration::from_hours(2))), "withdrawn");
}

#[test]
fn unreachable_issuer_authenticates_no_token() {
    let fixture = Fixture::new(&[&ONE]);
    fixture.issuer.documents.lock().unwrap().clear();
    assert_eq!(fixture.admit(&sign(&claims(), &ONE)), Err(AuthenticationError::Unavailable));
}
