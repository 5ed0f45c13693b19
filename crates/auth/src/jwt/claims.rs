//! Validation and interpretation of token claims. Pure.

use super::{JwtError, VerifiedClaims};
use crate::config::JwtConfig;
use crate::principal::{ParseScopeError, TokenScope, TokenScopes};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use windlass_types::Timestamp;

/// Rules for the tokens of one issuer.
#[derive(Clone, Debug)]
pub(super) struct ClaimRules {
    audience: Vec<String>,
    user_claim: String,
    user_prefix: String,
    users: BTreeMap<String, String>,
    groups_claim: Option<String>,
    require: BTreeMap<String, String>,
    scopes_without_claim: TokenScopes,
    leeway: Duration,
}

impl ClaimRules {
    pub(super) fn new(config: &JwtConfig) -> Result<Self, ParseScopeError> {
        Ok(Self {
            audience: config.audience.0.clone(),
            user_claim: config.user_claim.clone(),
            user_prefix: config.user_prefix.clone(),
            users: config.users.clone(),
            groups_claim: config.groups_claim.clone(),
            require: config.require.clone(),
            scopes_without_claim: TokenScopes::parse_names(
                config.scopes_without_claim.iter().map(String::as_str),
            )?,
            leeway: Duration::from_secs(config.leeway_seconds.into()),
        })
    }

    /// Claims with a verified signature.
    pub(super) fn check_claims(
        &self,
        claims: &Value,
        issuer: &str,
        now: Timestamp,
    ) -> Result<VerifiedClaims, JwtError> {
        let claims = claims.as_object().ok_or(JwtError::Malformed)?;
        if text_claim(claims, "iss") != Some(issuer) {
            return Err(JwtError::Issuer);
        }
        if !self.audience.iter().any(|ours| claim_contains(claims, "aud", ours)) {
            return Err(JwtError::Audience);
        }
        let expires = self.check_times(claims, now)?;
        if let Some((name, _)) =
            self.require.iter().find(|(name, value)| !claim_contains(claims, name, value))
        {
            return Err(JwtError::Claim(name.clone()));
        }
        Ok(VerifiedClaims {
            user: self.user_name(claims)?,
            groups: self.groups(claims),
            scopes: self.scopes(claims),
            expires,
        })
    }

    /// Expiration; tokens without it are rejected.
    fn check_times(&self, claims: &Map<String, Value>, now: Timestamp) -> Result<Timestamp, JwtError> {
        let expires = time_claim(claims, "exp")?.ok_or_else(|| JwtError::Claim("exp".to_owned()))?;
        let end = expires.plus(self.leeway);
        if end <= now {
            return Err(JwtError::Expired);
        }
        match time_claim(claims, "nbf")? {
            Some(begin) if begin > now.plus(self.leeway) => Err(JwtError::NotYetValid),
            _ => Ok(end),
        }
    }

    fn user_name(&self, claims: &Map<String, Value>) -> Result<Arc<str>, JwtError> {
        let unusable = || JwtError::Claim(self.user_claim.clone());
        let claimed = text_claim(claims, &self.user_claim).ok_or_else(unusable)?;
        if let Some(user) = self.users.get(claimed) {
            return Ok(user.as_str().into());
        }
        let is_fine = !claimed.is_empty()
            && claimed.len() <= 255
            && claimed.trim() == claimed
            && !claimed.contains(|c: char| c.is_control() || c == '/');
        if is_fine { Ok(format!("{}{claimed}", self.user_prefix).into()) } else { Err(unusable()) }
    }

    fn groups(&self, claims: &Map<String, Value>) -> Vec<Arc<str>> {
        let claim = self.groups_claim.as_deref().and_then(|name| claims.get(name));
        match claim {
            Some(Value::Array(groups)) => groups.iter().filter_map(Value::as_str).map(Arc::from).collect(),
            Some(Value::String(groups)) => groups.split_whitespace().map(Arc::from).collect(),
            _ => Vec::new(),
        }
    }

    /// `scope` is a string with blanks (RFC 8693, WLCG), `scp` a list or a string. Unknown scopes are ignored.
    fn scopes(&self, claims: &Map<String, Value>) -> TokenScopes {
        let words: Vec<&str> = match claims.get("scope").or_else(|| claims.get("scp")) {
            None => return self.scopes_without_claim,
            Some(Value::String(words)) => words.split_whitespace().collect(),
            Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect(),
            Some(_) => Vec::new(),
        };
        words.into_iter().fold(TokenScopes::NONE, |all, word| all.union(parse_scope(word)))
    }
}

/// Returns the scopes of a name: a compute scope of the WLCG profile, or a Windlass scope with the prefix
/// `windlass.`.
fn parse_scope(word: &str) -> TokenScopes {
    match word {
        "compute.read" => TokenScopes::READ,
        "compute.create" => TokenScopes::READ.with(TokenScope::Create),
        "compute.modify" => TokenScopes::READ.with(TokenScope::Modify),
        "compute.cancel" => TokenScopes::READ.with(TokenScope::Cancel),
        _ => word
            .strip_prefix("windlass.")
            .and_then(|word| TokenScopes::parse_name(word).ok())
            .unwrap_or(TokenScopes::NONE),
    }
}

fn text_claim<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    claims.get(name).and_then(Value::as_str)
}

/// Whether a claim equals this text, or is a list that contains it.
fn claim_contains(claims: &Map<String, Value>, name: &str, expected: &str) -> bool {
    match claims.get(name) {
        Some(Value::String(claimed)) => claimed == expected,
        Some(Value::Array(all)) => all.iter().any(|claimed| claimed == expected),
        Some(Value::Bool(claimed)) => claimed.to_string() == expected,
        Some(Value::Number(claimed)) => claimed.to_string() == expected,
        _ => false,
    }
}

fn time_claim(claims: &Map<String, Value>, name: &str) -> Result<Option<Timestamp>, JwtError> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let seconds = value.as_f64().filter(|seconds| (0.0..1e12).contains(seconds));
    let seconds = seconds.ok_or_else(|| JwtError::Claim(name.to_owned()))?;
    Ok(Some(Timestamp((seconds * 1e6) as i64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);
    const SOON: u64 = 1_800_000_600;

    fn terms(extra: &str) -> ClaimRules {
        let text = format!("issuer = 'https://i'\naudience = ['windlass', 'https://w']\n{extra}");
        ClaimRules::new(&toml::from_str(&text).unwrap()).unwrap()
    }

    fn good() -> Value {
        json!({"iss": "https://i", "aud": "windlass", "sub": "ana", "exp": SOON, "scope": "openid compute.read"})
    }

    fn with(name: &str, value: Value) -> Value {
        let mut claims = good();
        claims[name] = value;
        claims
    }

    fn without(name: &str) -> Value {
        let mut claims = good();
        claims.as_object_mut().unwrap().remove(name);
        claims
    }

    fn check(claims: &Value) -> Result<VerifiedClaims, JwtError> {
        terms("").check_claims(claims, "https://i", NOW)
    }

    #[test]
    fn invalid_claims_are_rejected() {
        let claim = |name: &str| JwtError::Claim(name.to_owned());
        for (claims, error) in [
            (with("iss", json!("https://j")), JwtError::Issuer),
            (with("aud", json!("other")), JwtError::Audience),
            (with("aud", json!([])), JwtError::Audience),
            (without("aud"), JwtError::Audience),
            (with("exp", json!(1_799_999_000)), JwtError::Expired),
            (without("exp"), claim("exp")),
            (with("exp", json!("never")), claim("exp")),
            (with("exp", json!(-1)), claim("exp")),
            (with("nbf", json!(SOON)), JwtError::NotYetValid),
            (without("sub"), claim("sub")),
            (with("sub", json!("")), claim("sub")),
            (with("sub", json!("a/../b")), claim("sub")),
            (with("sub", json!("a\nb")), claim("sub")),
            (json!([]), JwtError::Malformed),
        ] {
            assert_eq!(check(&claims), Err(error), "{claims}");
        }
    }

    #[test]
    fn valid_claims_are_accepted() {
        let believed = check(&with("aud", json!(["x", "https://w"]))).unwrap();
        assert_eq!(&*believed.user, "ana");
        assert_eq!(believed.scopes, TokenScopes::READ);
        assert!(check(&with("exp", json!(1_799_999_990))).is_ok(), "small clock skew is accepted");
    }

    #[test]
    fn scopes_are_read_from_claims() {
        let scopes = |value| check(&with("scope", value)).unwrap().scopes;
        assert_eq!(scopes(json!("storage.read:/ openid")), TokenScopes::NONE);
        assert_eq!(scopes(json!("compute.read compute.cancel")), TokenScopes::READ.with(TokenScope::Cancel));
        assert_eq!(scopes(json!("compute.create compute.modify compute.cancel")), TokenScopes::WRITE);
        assert_eq!(scopes(json!("windlass.worker")), TokenScopes::WORKER);
        assert_eq!(scopes(json!("admin write")), TokenScopes::NONE, "only with the prefix");
        assert_eq!(scopes(json!(7)), TokenScopes::NONE);
        assert_eq!(check(&without("scope")).unwrap().scopes, TokenScopes::NONE);
        let lenient = terms("scopes_without_claim = ['read']");
        assert_eq!(
            lenient.check_claims(&without("scope"), "https://i", NOW).unwrap().scopes,
            TokenScopes::READ
        );
    }

    #[test]
    fn user_mapping_groups_and_required_claims_apply() {
        let terms = terms(
            "user_prefix = 'cern:'\ngroups_claim = 'wlcg.groups'\nusers = {'abc' = 'carla'}\nrequire = {'wlcg.ver' = '1.0'}",
        );
        let mut claims = with("wlcg.ver", json!("1.0"));
        claims["wlcg.groups"] = json!(["/cms", "/cms/ops"]);
        let believed = terms.check_claims(&claims, "https://i", NOW).unwrap();
        assert_eq!(&*believed.user, "cern:ana");
        assert_eq!(believed.groups, ["/cms".into(), "/cms/ops".into()]);
        claims["sub"] = json!("abc");
        assert_eq!(&*terms.check_claims(&claims, "https://i", NOW).unwrap().user, "carla");
        claims["wlcg.ver"] = json!("2.0");
        assert_eq!(
            terms.check_claims(&claims, "https://i", NOW),
            Err(JwtError::Claim("wlcg.ver".to_owned()))
        );
    }
}
