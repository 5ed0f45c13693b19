//! The auth file: passwords, roles, token issuers, certificates. This is its literal content;
//! [`crate::settings`] has the loaded settings.

use crate::principal::UserRole;
use serde::Deserialize;
use serde::de::Error as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum AuthConfigError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: {what}", path.display())]
    Syntax { path: PathBuf, what: String },
    #[error("{0}")]
    Meaning(String),
    #[error(transparent)]
    Passwords(#[from] crate::passwords::PasswordError),
}

/// The whole file. Relative paths are relative to its directory.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    pub password_file: Option<PathBuf>,
    /// Role of users who are not listed below.
    pub default_role: DefaultRole,
    /// Roles by user; `none`: the user is rejected with any credential.
    pub roles: BTreeMap<String, DefaultRole>,
    /// Roles by group, for groups asserted by an issuer. The highest applies.
    pub group_roles: BTreeMap<String, RoleName>,
    pub jwt: Vec<JwtConfig>,
    /// Users by subject or alternative name of their certificate.
    pub certificates: BTreeMap<String, CertificateUser>,
    pub secrets: SecretsConfig,
}

/// The user of a certificate: `"ana"`, or `{ user = "ana", ca = "ca.pem" }`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum CertificateUser {
    Name(String),
    Of {
        user: String,
        /// The CA that must have issued it, in PEM.
        ca: Option<PathBuf>,
    },
}

impl CertificateUser {
    pub(crate) fn user(&self) -> &str {
        match self {
            Self::Name(user) | Self::Of { user, .. } => user,
        }
    }

    pub(crate) fn ca(&self) -> Option<&Path> {
        match self {
            Self::Name(_) => None,
            Self::Of { ca, .. } => ca.as_deref(),
        }
    }
}

/// A trusted issuer of JSON Web Tokens.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JwtConfig {
    /// Issuer exactly as in the claim `iss`.
    pub issuer: String,
    /// Accepted audiences: `aud` must contain one of these.
    pub audience: StringOrList,
    /// URL or file of the keys. Default: the location in the issuer's `/.well-known/openid-configuration`.
    pub jwks: Option<String>,
    #[serde(default = "usual_algorithms")]
    pub algorithms: Vec<String>,
    #[serde(default = "usual_user_claim")]
    pub user_claim: String,
    /// Prefix of user names, to distinguish them from local users.
    #[serde(default)]
    pub user_prefix: String,
    /// Users by value of the user claim.
    #[serde(default)]
    pub users: BTreeMap<String, String>,
    /// Claim with the groups: `wlcg.groups`, `groups` …
    #[serde(default)]
    pub groups_claim: Option<String>,
    /// Required claims: each must be present and have this value, or contain it.
    #[serde(default)]
    pub require: BTreeMap<String, String>,
    /// Scopes of a token without a scope claim.
    #[serde(default)]
    pub scopes_without_claim: Vec<String>,
    /// Overrides the default role of the file.
    #[serde(default)]
    pub default_role: Option<DefaultRole>,
    /// Permitted clock skew in seconds.
    #[serde(default = "usual_leeway")]
    pub leeway_seconds: u32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecretsConfig {
    /// Additional names of variables that are masked.
    pub mask: Vec<String>,
    /// Names that look like secrets but are not.
    pub show: Vec<String>,
}

/// A role by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoleName(pub UserRole);

/// Role of unlisted users; `none`: they are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultRole(pub Option<UserRole>);

impl Default for DefaultRole {
    fn default() -> Self {
        Self(Some(UserRole::User))
    }
}

impl<'de> Deserialize<'de> for RoleName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for DefaultRole {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "none" => Ok(Self(None)),
            role => role.parse().map(|role| Self(Some(role))).map_err(D::Error::custom),
        }
    }
}

/// `"x"` or `["x", "y"]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StringOrList(pub Vec<String>);

impl<'de> Deserialize<'de> for StringOrList {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StringOrListVisitor;
        impl<'de> serde::de::Visitor<'de> for StringOrListVisitor {
            type Value = StringOrList;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string or a list of strings")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<StringOrList, E> {
                Ok(StringOrList(vec![text.to_owned()]))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<StringOrList, A::Error> {
                let mut all = Vec::new();
                while let Some(text) = list.next_element()? {
                    all.push(text);
                }
                Ok(StringOrList(all))
            }
        }
        deserializer.deserialize_any(StringOrListVisitor)
    }
}

/// Public-key signatures only: with a shared secret, every verifier could also sign.
fn usual_algorithms() -> Vec<String> {
    ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"].map(str::to_owned).to_vec()
}

fn usual_user_claim() -> String {
    "sub".to_owned()
}

const fn usual_leeway() -> u32 {
    30
}

impl AuthConfig {
    pub fn load(path: &Path) -> Result<Self, AuthConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| AuthConfigError::Read { path: path.to_owned(), source })?;
        let mut config: Self = toml::from_str(&text)
            .map_err(|error| AuthConfigError::Syntax { path: path.to_owned(), what: error.to_string() })?;
        config.resolve_paths(path.parent().unwrap_or(Path::new(".")));
        Ok(config)
    }

    /// Makes relative paths relative to `dir`.
    fn resolve_paths(&mut self, dir: &Path) {
        if let Some(file) = &mut self.password_file {
            *file = dir.join(&*file);
        }
        for entry in self.certificates.values_mut() {
            if let CertificateUser::Of { ca: Some(file), .. } = entry {
                *file = dir.join(&*file);
            }
        }
        for jwt in &mut self.jwt {
            if let Some(jwks) = &mut jwt.jwks
                && !jwks.contains("://")
            {
                *jwks = dir.join(&*jwks).to_string_lossy().into_owned();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<AuthConfig, AuthConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("auth.toml");
        std::fs::write(&path, text).unwrap();
        AuthConfig::load(&path)
    }

    #[test]
    fn complete_config_is_read() {
        let config = read(
            r#"
            password_file = "people"
            default_role = "viewer"
            [roles]
            ana = "admin"
            [group_roles]
            "/cms/ops" = "operator"
            [[jwt]]
            issuer = "https://issuer.example"
            audience = "windlass"
            jwks = "keys.json"
            default_role = "none"
            [certificates]
            "CN=bob" = "bob"
            "CN=eve" = { user = "eve", ca = "ca.pem" }
            [secrets]
            mask = ["PIN"]
            "#,
        )
        .unwrap();
        assert!(config.password_file.as_ref().unwrap().is_absolute(), "relative to the file");
        assert!(config.jwt[0].jwks.as_ref().unwrap().starts_with('/'));
        assert!(config.certificates["CN=eve"].ca().unwrap().is_absolute(), "relative to the file");
        assert_eq!(config.roles["ana"], DefaultRole(Some(UserRole::Admin)));
        assert_eq!(config.default_role, DefaultRole(Some(UserRole::Viewer)));
        assert_eq!(config.jwt[0].default_role, Some(DefaultRole(None)));
        assert!(config.jwt[0].algorithms.iter().all(|name| !name.starts_with("HS")));
    }

    #[test]
    fn config_of_the_guide_is_valid() {
        let guide = include_str!("../../../docs/guide/security.md");
        let blocks = guide.split("\n```text\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        let files: Vec<&str> = blocks.filter(|block| block.contains(" = ")).collect();
        assert_eq!(files.len(), 4, "{files:#?}");
        for file in files {
            read(file).unwrap();
        }
    }

    #[test]
    fn error_names_line_and_value() {
        for (text, said) in [
            ("passwordfile = 'x'", "password_file"),
            ("[roles]\nana = 'root'", "viewer, user, operator and admin"),
            ("[[jwt]]\nissuer = 'x'", "audience"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("line"), "{error}");
        }
    }
}
