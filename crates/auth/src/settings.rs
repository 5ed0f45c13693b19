//! What a [`Config`] comes to: everything read, checked and ready to be asked. Replaced as a whole when it is reloaded.

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
    /// `authorities`: how many clients may show certificates of.
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

    /// The role that the configuration gives a user by name; its value is `None` for a user who is not let in.
    pub(crate) fn named_role(&self, user: &str) -> Option<DefaultRole> {
        self.roles.get(user).copied()
    }

    /// The role of somebody: by his name, else the highest of his groups, else the usual one. `None`: he has none.
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
    fn names_come_before_groups_and_groups_before_what_is_usual() {
        let config: AuthConfig = toml::from_str(
            "[roles]\nana = 'viewer'\neve = 'none'\n[group_roles]\nops = 'operator'\nall = 'user'\nroot = 'admin'",
        )
        .unwrap();
        let settings = AuthSettings::load(&config, None, 0).unwrap();
        let role = |user: &str, groups: &[&str], usual| {
            let groups: Vec<Arc<str>> = groups.iter().map(|group| Arc::from(*group)).collect();
            settings.resolve_role(user, &groups, usual)
        };
        assert_eq!(role("ana", &["root"], None), Some(UserRole::Viewer), "a name can also mean less");
        assert_eq!(role("bob", &["all", "ops"], None), Some(UserRole::Operator));
        assert_eq!(role("eve", &["root"], None), None, "a name can also mean nothing at all");
        assert_eq!(role("bob", &[], None), Some(UserRole::User));
        assert_eq!(role("bob", &["other"], Some(DefaultRole(None))), None);
    }
}
