//! Loaded and validated settings of an [`AuthConfig`]. Replaced as a whole by a reload.

use crate::certificates::CertificateMap;
use crate::config::{AuthConfig, AuthConfigError, DefaultRole, RoleName};
use crate::jwt::{DocumentFetcher, JwtIssuer};
use crate::passwords::PasswordFile;
use crate::principal::UserRole;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::redact::SecretNames;

#[derive(Debug, Default)]
pub(crate) struct AuthSettings {
    pub(crate) passwords: PasswordFile,
    pub(crate) issuers: Vec<JwtIssuer>,
    pub(crate) certificates: CertificateMap,
    pub(crate) masking: SecretNames,
    roles: BTreeMap<String, DefaultRole>,
    group_roles: BTreeMap<String, RoleName>,
    default_role: DefaultRole,
}

impl AuthSettings {
    /// `authorities`: the number of accepted client CAs.
    pub(crate) fn load(
        config: &AuthConfig,
        fetch: Option<&Arc<dyn DocumentFetcher>>,
        authorities: usize,
    ) -> Result<Self, AuthConfigError> {
        let passwords = config.password_file.as_deref().map(PasswordFile::read).transpose()?;
        let issuers = config.jwt.iter().map(|jwt| JwtIssuer::new(jwt, fetch.map(Arc::clone)));
        Ok(Self {
            passwords: passwords.unwrap_or_default(),
            issuers: issuers.collect::<Result<_, _>>()?,
            certificates: CertificateMap::parse(&config.certificates, authorities)?,
            masking: SecretNames::new(&config.secrets.mask, &config.secrets.show),
            roles: config.roles.clone(),
            group_roles: config.group_roles.clone(),
            default_role: config.default_role,
        })
    }

    /// Returns the configured role of a user; its value is `None` for a rejected user.
    pub(crate) fn named_role(&self, user: &str) -> Option<DefaultRole> {
        self.roles.get(user).copied()
    }

    /// Returns the configured role of the user of a token, which limits that of the token. `None`: no limit. A
    /// token says nothing about groups, so with the default `none` its user needs a role by name.
    pub(crate) fn token_role(&self, user: &str) -> Option<DefaultRole> {
        let default = Some(self.default_role).filter(|role| role.0.is_none());
        self.named_role(user).or(default)
    }

    /// Returns the role of a user: by name, else the highest of the groups, else the default. `None`: no role.
    pub(crate) fn resolve_role(
        &self,
        user: &str,
        groups: &[Arc<str>],
        usual: Option<DefaultRole>,
    ) -> Option<UserRole> {
        let by_group = || groups.iter().filter_map(|group| self.group_roles.get(&**group)).max();
        match self.named_role(user) {
            Some(named) => named.0,
            None => by_group().map(|rank| rank.0).or(usual.unwrap_or(self.default_role).0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_role_precedes_group_role_and_default() {
        let config: AuthConfig = toml::from_str(
            "[roles]\nana = 'viewer'\neve = 'none'\n[group_roles]\nops = 'operator'\nall = 'user'\nroot = 'admin'",
        )
        .unwrap();
        let settings = AuthSettings::load(&config, None, 0).unwrap();
        let role = |user: &str, groups: &[&str], usual| {
            let groups: Vec<Arc<str>> = groups.iter().map(|group| Arc::from(*group)).collect();
            settings.resolve_role(user, &groups, usual)
        };
        assert_eq!(role("ana", &["root"], None), Some(UserRole::Viewer), "a name can also lower the role");
        assert_eq!(role("bob", &["all", "ops"], None), Some(UserRole::Operator));
        assert_eq!(role("eve", &["root"], None), None, "a name can also remove the role");
        assert_eq!(role("bob", &[], None), Some(UserRole::User));
        assert_eq!(role("bob", &["other"], Some(DefaultRole(None))), None);
    }
}
