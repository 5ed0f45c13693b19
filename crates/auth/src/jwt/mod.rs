//! JSON Web Tokens of configured issuers: OpenID Connect, WLCG.
//!
//! The library verifies signatures; claims are validated in [`claims`], with the time passed in. Keys are
//! cached ([`keys`]): an unknown key triggers a fetch, at most every half minute.

mod claims;
mod keys;

use crate::config::{AuthConfigError, DefaultRole, JwtConfig};
use crate::principal::TokenScopes;
use jsonwebtoken::Algorithm;
pub use keys::{DocumentFetchError, DocumentFetcher};
use keys::{IssuerKeys, KeySource};
use std::sync::Arc;
use std::time::Instant;
use windlass_types::Timestamp;

/// Why a token is rejected. Shown to its sender; contains no secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JwtError {
    #[error("it is not a valid token")]
    Malformed,
    #[error("its issuer is not configured on this server")]
    Issuer,
    #[error("its signature algorithm {0} is not permitted")]
    Algorithm(String),
    #[error("the key that it names is not for {0}")]
    KeyAlgorithm(String),
    #[error("its header demands extensions that this server does not know (crit)")]
    CriticalExtension,
    #[error("its signature does not match a key of its issuer")]
    Signature,
    #[error("it is not intended for this server (audience)")]
    Audience,
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    NotYetValid,
    #[error("it has no usable `{0}`")]
    Claim(String),
    #[error("the keys of its issuer are not available at the moment")]
    KeysUnavailable,
}

/// The verified content of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VerifiedClaims {
    pub(crate) user: Arc<str>,
    pub(crate) groups: Vec<Arc<str>>,
    pub(crate) scopes: TokenScopes,
    pub(crate) expires: Timestamp,
}

#[derive(Debug)]
pub(crate) struct JwtIssuer {
    pub(crate) name: Arc<str>,
    pub(crate) default_role: Option<DefaultRole>,
    algorithms: Vec<Algorithm>,
    rules: claims::ClaimRules,
    keys: IssuerKeys,
}

impl JwtIssuer {
    pub(crate) fn new(
        config: &JwtConfig,
        fetch: Option<Arc<dyn DocumentFetcher>>,
    ) -> Result<Self, AuthConfigError> {
        let wrong = |what: String| AuthConfigError::Meaning(format!("issuer {}: {what}", config.issuer));
        let algorithms = config.algorithms.iter().map(|name| parse_algorithm(name)).collect::<Result<_, _>>();
        if config.audience.0.is_empty() {
            return Err(wrong("`audience` must name at least one".to_owned()));
        }
        Ok(Self {
            name: config.issuer.as_str().into(),
            default_role: config.default_role,
            algorithms: algorithms.map_err(wrong)?,
            rules: claims::ClaimRules::new(config).map_err(|error| wrong(error.to_string()))?,
            keys: IssuerKeys::new(KeySource::new(config).map_err(wrong)?, fetch),
        })
    }
}

/// Whether this looks like a JSON Web Token rather than a Windlass token.
pub(crate) fn looks_like_jwt(token: &str) -> bool {
    token.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// Whether keys may be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyFetchPolicy {
    /// Never; the result is `None` instead.
    Never,
    IfNeeded,
}

/// Verifies a token and returns its claims and issuer. `None`: keys would have to be fetched first.
pub(crate) fn verify_token<'a>(
    issuers: &'a [JwtIssuer],
    token: &str,
    now: Timestamp,
    clock: Instant,
    effort: KeyFetchPolicy,
) -> Option<Result<(&'a JwtIssuer, VerifiedClaims), JwtError>> {
    let (issuer, header) = match claimed_issuer(issuers, token) {
        Ok(found) => found,
        Err(error) => return Some(Err(error)),
    };
    let key = match issuer.keys.find(header.kid.as_deref(), header.alg, clock, effort)? {
        Ok(key) => key,
        Err(error) => return Some(Err(error)),
    };
    let claims = verify_signature(token, &key, header.alg);
    Some(claims.and_then(|claims| Ok((issuer, issuer.rules.check_claims(&claims, &issuer.name, now)?))))
}

/// Returns the issuer that the token claims; not verified yet.
fn claimed_issuer<'a>(
    issuers: &'a [JwtIssuer],
    token: &str,
) -> Result<(&'a JwtIssuer, jsonwebtoken::Header), JwtError> {
    // `none` and other algorithms unknown to the library fail here.
    let header = jsonwebtoken::decode_header(token).map_err(|_| JwtError::Malformed)?;
    if header.crit.is_some() {
        // RFC 7515: what is critical must be understood, and the library ignores it.
        return Err(JwtError::CriticalExtension);
    }
    let claims: serde_json::Value =
        jsonwebtoken::dangerous::insecure_decode_claims(token).map_err(|_| JwtError::Malformed)?;
    let claim = claims.get("iss").and_then(serde_json::Value::as_str);
    let issuer = issuers.iter().find(|issuer| Some(&*issuer.name) == claim).ok_or(JwtError::Issuer)?;
    if issuer.algorithms.contains(&header.alg) {
        Ok((issuer, header))
    } else {
        Err(JwtError::Algorithm(format!("{:?}", header.alg)))
    }
}

/// Returns the claims if the signature is valid. Times and audience are checked by [`claims::ClaimRules`].
fn verify_signature(
    token: &str,
    key: &jsonwebtoken::DecodingKey,
    algorithm: Algorithm,
) -> Result<serde_json::Value, JwtError> {
    let mut validation = jsonwebtoken::Validation::new(algorithm);
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation.required_spec_claims.clear();
    let decoded = jsonwebtoken::decode(token, key, &validation).map_err(|_| JwtError::Signature)?;
    Ok(decoded.claims)
}

fn parse_algorithm(name: &str) -> Result<Algorithm, String> {
    match name.parse() {
        Ok(Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512) => {
            Err(format!("{name} uses a shared secret; only public-key algorithms are supported"))
        }
        Ok(algorithm) => Ok(algorithm),
        Err(_) => Err(format!("unknown algorithm `{name}`")),
    }
}
