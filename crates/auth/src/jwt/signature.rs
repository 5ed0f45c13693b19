//! Signatures of JSON Web Tokens, verified with `ring`: the compact form (RFC 7515), public keys (RFC 7517), and
//! the asymmetric algorithms (RFC 7518, RFC 8037).

use super::JwtError;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::signature::{self as ring_signature, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;
use std::fmt;

/// An algorithm with a public key. Algorithms with a shared secret and `none` are not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignatureAlgorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

use SignatureAlgorithm::{EdDsa, Es256, Es384, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};

const NAMES: [(&str, SignatureAlgorithm); 9] = [
    ("RS256", Rs256),
    ("RS384", Rs384),
    ("RS512", Rs512),
    ("PS256", Ps256),
    ("PS384", Ps384),
    ("PS512", Ps512),
    ("ES256", Es256),
    ("ES384", Es384),
    ("EdDSA", EdDsa),
];

impl SignatureAlgorithm {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
    }
}

impl fmt::Display for SignatureAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, algorithm)| algorithm == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// Whether this algorithm signs with a secret that the verifier has, too.
pub(super) fn uses_shared_secret(name: &str) -> bool {
    matches!(name, "HS256" | "HS384" | "HS512")
}

/// A key of a JSON Web Key Set, as published.
#[derive(Debug, Deserialize)]
pub(super) struct JsonWebKey {
    kty: String,
    pub(super) kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    key_use: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl JsonWebKey {
    /// The public key, unless its type is not supported or its numbers are missing or malformed.
    pub(super) fn public_key(&self) -> Option<PublicKey> {
        let number = |text: &Option<String>| BASE64.decode(text.as_ref()?).ok();
        let coordinate = |text, length: usize| number(text).filter(|bytes| bytes.len() == length);
        let point =
            |length| Some([vec![4], coordinate(&self.x, length)?, coordinate(&self.y, length)?].concat());
        match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => Some(PublicKey::Rsa { n: number(&self.n)?, e: number(&self.e)? }),
            ("EC", Some("P-256")) => Some(PublicKey::P256(point(32)?)),
            ("EC", Some("P-384")) => Some(PublicKey::P384(point(48)?)),
            ("OKP", Some("Ed25519")) => Some(PublicKey::Ed25519(coordinate(&self.x, 32)?)),
            _ => None,
        }
    }

    /// The algorithms of `key`, or the one of them that `alg` names. None if the key is not for signatures (`use`,
    /// `key_ops`).
    pub(super) fn algorithms(&self, key: &PublicKey) -> Vec<SignatureAlgorithm> {
        let is_for_signatures = self.key_use.as_ref().is_none_or(|used| used == "sig")
            && self.key_ops.as_ref().is_none_or(|all| all.iter().any(|one| one == "verify"));
        let is_named = |algorithm: SignatureAlgorithm| {
            self.alg.as_ref().is_none_or(|name| SignatureAlgorithm::from_name(name) == Some(algorithm))
        };
        let algorithms: &[SignatureAlgorithm] = match key {
            PublicKey::Rsa { .. } => &[Rs256, Rs384, Rs512, Ps256, Ps384, Ps512],
            PublicKey::P256(_) => &[Es256],
            PublicKey::P384(_) => &[Es384],
            PublicKey::Ed25519(_) => &[EdDsa],
        };
        algorithms.iter().copied().filter(|algorithm| is_for_signatures && is_named(*algorithm)).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PublicKey {
    /// Modulus and exponent.
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// An uncompressed point.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl PublicKey {
    /// Whether `signature` is one of `message` with this key. RSA keys have 2048 to 8192 bits.
    fn verifies(&self, algorithm: SignatureAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        let verified = match (self, algorithm) {
            (Self::Rsa { n, e }, _) => match rsa_parameters(algorithm) {
                Some(parameters) => RsaPublicKeyComponents { n, e }.verify(parameters, message, signature),
                None => return false,
            },
            (Self::P256(point), Es256) => {
                UnparsedPublicKey::new(&ring_signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, signature)
            }
            (Self::P384(point), Es384) => {
                UnparsedPublicKey::new(&ring_signature::ECDSA_P384_SHA384_FIXED, point)
                    .verify(message, signature)
            }
            (Self::Ed25519(point), EdDsa) => {
                UnparsedPublicKey::new(&ring_signature::ED25519, point).verify(message, signature)
            }
            _ => return false,
        };
        verified.is_ok()
    }
}

fn rsa_parameters(algorithm: SignatureAlgorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Rs256 => Some(&ring_signature::RSA_PKCS1_2048_8192_SHA256),
        Rs384 => Some(&ring_signature::RSA_PKCS1_2048_8192_SHA384),
        Rs512 => Some(&ring_signature::RSA_PKCS1_2048_8192_SHA512),
        Ps256 => Some(&ring_signature::RSA_PSS_2048_8192_SHA256),
        Ps384 => Some(&ring_signature::RSA_PSS_2048_8192_SHA384),
        Ps512 => Some(&ring_signature::RSA_PSS_2048_8192_SHA512),
        Es256 | Es384 | EdDsa => None,
    }
}

/// A token whose parts are decoded and whose signature is not verified yet.
pub(super) struct UnverifiedToken<'a> {
    pub(super) algorithm_name: String,
    pub(super) kid: Option<String>,
    pub(super) has_critical_extensions: bool,
    /// Trustworthy only after [`UnverifiedToken::verify`].
    claims: Value,
    signed: &'a str,
    signature: Vec<u8>,
}

impl<'a> UnverifiedToken<'a> {
    pub(super) fn parse(token: &'a str) -> Result<Self, JwtError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(JwtError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(JwtError::Malformed)?;
        let header = parse_part(header)?;
        let text = |name: &str| header.get(name).and_then(Value::as_str).map(str::to_owned);
        if header.get("kid").is_some_and(|kid| !kid.is_string()) {
            return Err(JwtError::Malformed);
        }
        Ok(Self {
            algorithm_name: text("alg").ok_or(JwtError::Malformed)?,
            kid: text("kid"),
            has_critical_extensions: header.get("crit").is_some(),
            claims: parse_part(claims)?,
            signed,
            signature: BASE64.decode(signature).map_err(|_| JwtError::Malformed)?,
        })
    }

    /// The issuer that the token claims.
    pub(super) fn claimed_issuer(&self) -> Option<&str> {
        self.claims.get("iss")?.as_str()
    }

    /// The claims, if the signature is one of `key`.
    pub(super) fn verify(self, key: &PublicKey, algorithm: SignatureAlgorithm) -> Result<Value, JwtError> {
        if key.verifies(algorithm, self.signed.as_bytes(), &self.signature) {
            Ok(self.claims)
        } else {
            Err(JwtError::Signature)
        }
    }
}

/// A part of a token: an object of JSON.
fn parse_part(part: &str) -> Result<Value, JwtError> {
    let bytes = BASE64.decode(part).map_err(|_| JwtError::Malformed)?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| JwtError::Malformed)?;
    if value.is_object() { Ok(value) } else { Err(JwtError::Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct SignedToken {
        algorithm: SignatureAlgorithm,
        key: PublicKey,
        token: String,
    }

    /// A token of each algorithm, signed by OpenSSL.
    fn openssl_tokens() -> Vec<SignedToken> {
        let entries: Vec<Value> = serde_json::from_str(include_str!("openssl_tokens.json")).unwrap();
        let parse = |entry: &Value| SignedToken {
            algorithm: SignatureAlgorithm::from_name(entry["alg"].as_str().unwrap()).unwrap(),
            key: serde_json::from_value::<JsonWebKey>(entry["key"].clone()).unwrap().public_key().unwrap(),
            token: entry["token"].as_str().unwrap().to_owned(),
        };
        entries.iter().map(parse).collect()
    }

    fn verify(token: &str, key: &PublicKey, algorithm: SignatureAlgorithm) -> Result<Value, JwtError> {
        UnverifiedToken::parse(token)?.verify(key, algorithm)
    }

    #[test]
    fn tokens_signed_by_openssl_are_verified() {
        let tokens = openssl_tokens();
        assert_eq!(tokens.len(), NAMES.len());
        for SignedToken { algorithm, key, token } in tokens {
            let claims = verify(&token, &key, algorithm).unwrap();
            assert_eq!(claims["alg_used"], algorithm.to_string());
        }
    }

    #[test]
    fn each_algorithm_accepts_its_own_signatures_only() {
        let tokens = openssl_tokens();
        for signed in &tokens {
            for other in &tokens {
                let result = verify(&signed.token, &other.key, other.algorithm);
                assert_eq!(
                    result.is_ok(),
                    signed.algorithm == other.algorithm,
                    "{} with {}",
                    signed.algorithm,
                    other.algorithm
                );
            }
        }
    }

    #[test]
    fn any_changed_character_invalidates_a_token() {
        for SignedToken { algorithm, key, token } in openssl_tokens() {
            for index in (0..token.len()).step_by(7) {
                let mut changed = token.clone().into_bytes();
                changed[index] = if changed[index] == b'A' { b'B' } else { b'A' };
                let changed = String::from_utf8(changed).unwrap();
                assert!(verify(&changed, &key, algorithm).is_err(), "{algorithm}, character {index}");
            }
            for truncated in [&token[..token.len() - 4], &token[1..], &format!("{token}AAAA")] {
                assert!(verify(truncated, &key, algorithm).is_err());
            }
        }
    }

    #[test]
    fn keys_with_malformed_numbers_are_ignored() {
        for key in [
            r#"{"kty": "EC", "crv": "P-256", "x": "AQAB", "y": "AQAB"}"#,
            r#"{"kty": "EC", "crv": "secp256k1", "x": "AQAB", "y": "AQAB"}"#,
            r#"{"kty": "OKP", "crv": "Ed25519", "x": "AQAB"}"#,
            r#"{"kty": "RSA", "n": "not base64!", "e": "AQAB"}"#,
            r#"{"kty": "oct", "k": "c2VjcmV0"}"#,
        ] {
            assert_eq!(serde_json::from_str::<JsonWebKey>(key).unwrap().public_key(), None, "{key}");
        }
    }
}
