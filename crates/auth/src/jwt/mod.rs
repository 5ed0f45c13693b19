//! JSON Web Tokens of configured issuers: OpenID Connect, WLCG.
//!
//! [`signature`] verifies signatures, [`claims`] validates claims, with the time passed in. Keys are cached
//! ([`keys`]): an unknown key triggers a fetch, at most every half minute.

mod claims;
mod keys;
mod signature;

use crate::config::{AuthConfigError, DefaultRole, JwtConfig};
use crate::principal::TokenScopes;
pub use keys::{DocumentFetchError, DocumentFetcher};
use keys::{IssuerKeys, KeySource};
use signature::{SignatureAlgorithm, UnverifiedToken, uses_shared_secret};
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
    algorithms: Vec<SignatureAlgorithm>,
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
    let (issuer, token, algorithm) = match parse_token(issuers, token) {
        Ok(found) => found,
        Err(error) => return Some(Err(error)),
    };
    let key = match issuer.keys.find(token.kid.as_deref(), algorithm, clock, effort)? {
        Ok(key) => key,
        Err(error) => return Some(Err(error)),
    };
    let claims = token.verify(&key, algorithm);
    Some(claims.and_then(|claims| Ok((issuer, issuer.rules.check_claims(&claims, &issuer.name, now)?))))
}

/// Returns the token with the issuer that it claims and its algorithm; the signature is not verified yet.
fn parse_token<'a, 'b>(
    issuers: &'a [JwtIssuer],
    token: &'b str,
) -> Result<(&'a JwtIssuer, UnverifiedToken<'b>, SignatureAlgorithm), JwtError> {
    let token = UnverifiedToken::parse(token)?;
    if token.has_critical_extensions {
        // RFC 7515: what is critical must be understood.
        return Err(JwtError::CriticalExtension);
    }
    let claimed = token.claimed_issuer();
    let issuer = issuers.iter().find(|issuer| Some(&*issuer.name) == claimed).ok_or(JwtError::Issuer)?;
    match SignatureAlgorithm::from_name(&token.algorithm_name) {
        Some(algorithm) if issuer.algorithms.contains(&algorithm) => Ok((issuer, token, algorithm)),
        Some(algorithm) => Err(JwtError::Algorithm(algorithm.to_string())),
        None if uses_shared_secret(&token.algorithm_name) => Err(JwtError::Algorithm(token.algorithm_name)),
        None => Err(JwtError::Malformed),
    }
}

fn parse_algorithm(name: &str) -> Result<SignatureAlgorithm, String> {
    if uses_shared_secret(name) {
        return Err(format!("{name} uses a shared secret; only public-key algorithms are supported"));
    }
    SignatureAlgorithm::from_name(name).ok_or_else(|| format!("unknown algorithm `{name}`"))
}
