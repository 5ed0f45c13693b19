//! What a [`Config`] comes to: everything read, checked and ready to be asked. Replaced as a whole when it is reloaded.

use crate::certificates::CertificateMap;
use crate::config::{Config, ConfigError, Rank, Usual};
use crate::jwt::{Fetch, Issuer};
use crate::passwords::PasswordFile;
use crate::principal::Role;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::redact::Masking;

#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) passwords: PasswordFile,
    pub(crate) issuers: Vec<Issuer>,
    pub(crate) certificates: CertificateMap,
    pub(crate) masking: Masking,
    roles: BTreeMap<String, Usual>,
    group_roles: BTreeMap<String, Rank>,
    default_role: Usual,
}

impl Settings {
    /// `authorities`: how many clients may show certificates of.
    pub(crate) fn load(
        config: &Config,
        fetch: Option<&Arc<dyn Fetch>>,
        authorities: usize,
    ) -> Result<Self, ConfigError> {
        let passwords = config.password_file.as_deref().map(PasswordFile::read).transpose()?;
        let issuers = config.jwt.iter().map(|jwt| Issuer::new(jwt, fetch.map(Arc::clone)));
        Ok(Self {
            passwords: passwords.unwrap_or_default(),
            issuers: issuers.collect::<Result<_, _>>()?,
            certificates: CertificateMap::parse(&config.certificates, authorities)?,
            masking: Masking::new(&config.secrets.mask, &config.secrets.show),
            roles: config.roles.clone(),
            group_roles: config.group_roles.clone(),
            default_role: config.default_role,
        })
    }

    /// The role that the configuration gives a user by name; its value is `None` for a user who is not let in.
    pub(crate) fn named_role(&self, user: &str) -> Option<Usual> {
        self.roles.get(user).copied()
    }

    /// The role of somebody: by his name, else the highest of his groups, else the usual one. `None`: he has none.
    pub(crate) fn role(&self, user: &str, groups: &[Arc<str>], usual: Option<Usual>) -> Option<Role> {
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
        let config: Config = toml::from_str(
            "[roles]\nana = 'viewer'\neve = 'none'\n[group_roles]\nops = 'operator'\nall = 'user'\nroot = 'admin'",
        )
        .unwrap();
        let settings = Settings::load(&config, None, 0).unwrap();
        let role = |user: &str, groups: &[&str], usual| {
            let groups: Vec<Arc<str>> = groups.iter().map(|group| Arc::from(*group)).collect();
            settings.role(user, &groups, usual)
        };
        assert_eq!(role("ana", &["root"], None), Some(Role::Viewer), "a name can also mean less");
        assert_eq!(role("bob", &["all", "ops"], None), Some(Role::Operator));
        assert_eq!(role("eve", &["root"], None), None, "a name can also mean nothing at all");
        assert_eq!(role("bob", &[], None), Some(Role::User));
        assert_eq!(role("bob", &["other"], Some(Usual(None))), None);
    }
}
