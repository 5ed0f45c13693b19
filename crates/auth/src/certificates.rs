//! Maps client certificates to users. The server has verified the certificate; here it is only looked up.

use crate::config::{AuthConfigError, CertificateUser};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use windlass_types::Timestamp;

/// The identity in a client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// Attributes of the subject in the order of the certificate: `("O", "Example")`, `("CN", "ana")`. An error
    /// names the part of the certificate that cannot be read; such a certificate belongs to no user.
    pub subject: Result<Vec<(String, String)>, String>,
    pub alternatives: Vec<SubjectAltName>,
    /// SHA-256 of each trusted CA certificate that its chain ends at.
    pub authorities: Vec<AuthorityId>,
    pub expires: Timestamp,
}

/// SHA-256 of the certificate of a CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AuthorityId([u8; 32]);

impl AuthorityId {
    pub fn from_der(der: &[u8]) -> Self {
        Self(Sha256::digest(der).into())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectAltName {
    Email(String),
    Dns(String),
    Uri(String),
}

impl SubjectAltName {
    fn key(&self) -> String {
        match self {
            Self::Email(address) => format!("email:{}", address.to_lowercase()),
            Self::Dns(name) => format!("dns:{}", name.to_lowercase()),
            Self::Uri(uri) => format!("uri:{uri}"),
        }
    }
}

/// Attributes in their order.
type SubjectAttributes = Vec<(String, String)>;

/// The user of a certificate, and the CA that must have issued it.
#[derive(Clone, Debug)]
struct CertificateOwner {
    user: Arc<str>,
    /// `None`: any trusted CA; permitted only if there is exactly one.
    authority: Option<AuthorityId>,
}

impl CertificateOwner {
    fn accepts_issuer(&self, certificate: &PeerCertificate) -> bool {
        self.authority.is_none_or(|authority| certificate.authorities.contains(&authority))
    }
}

/// The users of certificates.
#[derive(Clone, Debug, Default)]
pub(crate) struct CertificateMap {
    subjects: Vec<(SubjectAttributes, CertificateOwner)>,
    alternatives: Vec<(String, CertificateOwner)>,
}

impl CertificateMap {
    /// Parses the entries of the auth file: `CN=ana,O=Example`, `/O=Example/CN=ana`, `email:…`, `dns:…` or
    /// `uri:…`. `trusted`: the number of accepted client CAs.
    pub(crate) fn parse(
        entries: &BTreeMap<String, CertificateUser>,
        trusted: usize,
    ) -> Result<Self, AuthConfigError> {
        let mut map = Self::default();
        for (key, entry) in entries {
            let authority = entry.ca().map(read_authority).transpose()?;
            if authority.is_none() && trusted > 1 {
                return Err(AuthConfigError::Meaning(format!(
                    "--client-ca has {trusted} CAs, and the entry `{key}` does not name one: each of them could \
                     issue the certificate; write `\"{key}\" = {{ user = \"{}\", ca = \"FILE\" }}`",
                    entry.user()
                )));
            }
            let owner = CertificateOwner { user: entry.user().into(), authority };
            match key.split_once(':') {
                Some((kind @ ("email" | "dns"), value)) => {
                    map.alternatives.push((format!("{kind}:{}", value.to_lowercase()), owner));
                }
                Some(("uri", _)) => map.alternatives.push((key.clone(), owner)),
                _ => map.subjects.push((parse_subject(key).map_err(AuthConfigError::Meaning)?, owner)),
            }
        }
        Ok(map)
    }

    /// Returns the user of this certificate. The whole subject counts, in its order.
    pub(crate) fn find_user(&self, certificate: &PeerCertificate) -> Option<&Arc<str>> {
        // The unreadable part could contain anything.
        let subject: SubjectAttributes =
            certificate.subject.as_ref().ok()?.iter().map(normalize_attribute).collect();
        let issued = |owner: &CertificateOwner| owner.accepts_issuer(certificate);
        let mut of_subject = self.subjects.iter().filter(|(known, owner)| *known == subject && issued(owner));
        if let Some((_, owner)) = of_subject.next() {
            return Some(&owner.user);
        }
        let shown: Vec<String> = certificate.alternatives.iter().map(SubjectAltName::key).collect();
        let mut of_names =
            self.alternatives.iter().filter(|(known, owner)| shown.contains(known) && issued(owner));
        of_names.next().map(|(_, owner)| &owner.user)
    }
}

fn normalize_attribute((name, value): &(String, String)) -> (String, String) {
    (name.to_uppercase(), value.clone())
}

/// Returns the first certificate of a PEM file.
fn read_authority(path: &Path) -> Result<AuthorityId, AuthConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| AuthConfigError::Read { path: path.to_owned(), source })?;
    let body = text.split_once("-----BEGIN CERTIFICATE-----").map(|(_, rest)| rest);
    let body = body.and_then(|rest| rest.split_once("-----END CERTIFICATE-----")).map(|(body, _)| body);
    let der = body.and_then(|body| STANDARD.decode(body.split_whitespace().collect::<String>()).ok());
    let der =
        der.ok_or_else(|| AuthConfigError::Meaning(format!("{} contains no certificate", path.display())))?;
    Ok(AuthorityId::from_der(&der))
}

/// Parses `CN=ana,O=Example` (RFC 4514: last attribute first, `\,` for a comma in a value) or
/// `/O=Example/CN=ana` (OpenSSL and the grid: first attribute first). Returns the order of certificates.
fn parse_subject(text: &str) -> Result<SubjectAttributes, String> {
    let parts = match text.strip_prefix('/') {
        Some(rest) => split_slashes(rest),
        None => split_unescaped(text).into_iter().rev().collect(),
    };
    let pairs = parts.iter().map(|part| match part.trim().split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.trim().to_uppercase(), value.trim().to_owned()))
        }
        _ => Err(format!(
            "`{text}` is not a certificate subject; write `CN=ana,O=Example` or `email:ana@example.org`"
        )),
    });
    pairs.collect()
}

/// A slash inside a value (`CN=host/example.org`) does not start a new part.
fn split_slashes(text: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for piece in text.split('/') {
        match parts.last_mut() {
            Some(last) if !piece.contains('=') => {
                last.push('/');
                last.push_str(piece);
            }
            _ => parts.push(piece.to_owned()),
        }
    }
    parts
}

fn split_unescaped(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let next = match c {
            ',' => {
                parts.push(String::new());
                continue;
            }
            '\\' => chars.next().unwrap_or('\\'),
            other => other,
        };
        if let Some(last) = parts.last_mut() {
            last.push(next);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shows(subject: &[(&str, &str)], alternatives: Vec<SubjectAltName>) -> PeerCertificate {
        let subject = subject.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        PeerCertificate { subject: Ok(subject), alternatives, authorities: Vec::new(), expires: Timestamp(1) }
    }

    fn subject(pairs: &[(&str, &str)]) -> PeerCertificate {
        shows(pairs, Vec::new())
    }

    fn map(entries: &[(&str, &str)]) -> CertificateMap {
        let entries =
            entries.iter().map(|(key, user)| ((*key).to_owned(), CertificateUser::Name((*user).to_owned())));
        CertificateMap::parse(&entries.collect(), 1).unwrap()
    }

    fn user(map: &CertificateMap, certificate: &PeerCertificate) -> Option<String> {
        map.find_user(certificate).map(ToString::to_string)
    }

    #[test]
    fn subjects_are_parsed_in_both_formats() {
        let ana = subject(&[("DC", "org"), ("O", "Example, Inc"), ("CN", "ana")]);
        for written in [
            "/DC=org/O=Example, Inc/CN=ana",
            r"CN=ana,O=Example\, Inc,DC=org",
            r"cn=ana, o=Example\, Inc, dc=org",
        ] {
            assert_eq!(user(&map(&[(written, "ana")]), &ana).as_deref(), Some("ana"), "{written}");
        }
        let host = subject(&[("O", "Grid"), ("CN", "host/a.example.org")]);
        assert!(user(&map(&[("/O=Grid/CN=host/a.example.org", "svc")]), &host).is_some());
    }

    #[test]
    fn subject_order_matters() {
        let reversed = subject(&[("CN", "ana"), ("O", "Example")]);
        assert_eq!(user(&map(&[("CN=ana,O=Example", "ana")]), &reversed), None);
        assert_eq!(user(&map(&[("/O=Example/CN=ana", "ana")]), &reversed), None);
        assert!(user(&map(&[("/CN=ana/O=Example", "ana")]), &reversed).is_some());
    }

    #[test]
    fn partial_subject_matches_no_user() {
        let known = map(&[("CN=ana,O=Example", "ana")]);
        assert_eq!(user(&known, &subject(&[("CN", "ana")])), None);
        assert_eq!(
            user(&known, &subject(&[("CN", "ana,O=Example")])),
            None,
            "a comma in a value does not start a new part"
        );
        assert_eq!(user(&known, &subject(&[("C", "CH"), ("O", "Example"), ("CN", "ana")])), None);
        assert_eq!(user(&known, &subject(&[])), None);
    }

    #[test]
    fn partly_unreadable_certificate_matches_no_user() {
        let known = map(&[("CN=ana", "ana"), ("email:ana@example.org", "ana")]);
        let email = SubjectAltName::Email("ana@example.org".into());
        let unreadable =
            PeerCertificate { subject: Err("OU".into()), ..shows(&[("CN", "ana")], vec![email]) };
        assert_eq!(user(&known, &unreadable), None);
    }

    #[test]
    fn subject_is_bound_to_its_authority() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, der: &[u8]| {
            let path = dir.path().join(name);
            let body = STANDARD.encode(der);
            let pem = format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
            std::fs::write(&path, pem).unwrap();
            path
        };
        let (ours, theirs) = (write("ours.pem", b"ours"), write("theirs.pem", b"theirs"));
        let entry = |ca| CertificateUser::Of { user: "ana".into(), ca: Some(ca) };
        let known = CertificateMap::parse(&[("CN=ana".to_owned(), entry(ours))].into(), 2).unwrap();
        let issued = |der: &[u8]| PeerCertificate {
            authorities: vec![AuthorityId::from_der(der)],
            ..subject(&[("CN", "ana")])
        };
        assert_eq!(user(&known, &issued(b"ours")).as_deref(), Some("ana"));
        assert_eq!(user(&known, &issued(b"theirs")), None, "another CA issues the same subject");
        let known = CertificateMap::parse(&[("CN=ana".to_owned(), entry(theirs))].into(), 2).unwrap();
        assert_eq!(user(&known, &issued(b"ours")), None);
        let unbound = [("CN=ana".to_owned(), CertificateUser::Name("ana".into()))].into();
        let error = CertificateMap::parse(&unbound, 2).unwrap_err().to_string();
        assert!(error.contains("does not name one") && error.contains("ca = "), "{error}");
        assert!(CertificateMap::parse(&unbound, 1).is_ok());
    }

    #[test]
    fn alternative_names_are_matched() {
        let known = map(&[("email:Ana@example.org", "ana"), ("uri:spiffe://x/ana", "ana2")]);
        let with = |name| shows(&[], vec![name]);
        let email = SubjectAltName::Email("ana@Example.org".into());
        assert_eq!(user(&known, &with(email)).as_deref(), Some("ana"));
        let uri = SubjectAltName::Uri("spiffe://x/ana".into());
        assert_eq!(user(&known, &with(uri)).as_deref(), Some("ana2"));
        assert_eq!(user(&known, &with(SubjectAltName::Dns("ana@example.org".into()))), None);
    }

    #[test]
    fn invalid_subject_is_rejected() {
        let entries = [("ana".to_owned(), CertificateUser::Name("ana".to_owned()))].into();
        assert!(CertificateMap::parse(&entries, 1).unwrap_err().to_string().contains("CN=ana"));
    }
}
