//! From a client certificate to a user. The server has checked the certificate; here it is only looked up.

use std::collections::BTreeMap;
use std::sync::Arc;

/// What a client certificate says about its bearer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCertificate {
    /// Attributes of the subject as they stand in the certificate: `("O", "Example")`, `("CN", "ana")`.
    pub subject: Vec<(String, String)>,
    pub alternatives: Vec<SubjectAlternative>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectAlternative {
    Email(String),
    Dns(String),
    Uri(String),
}

impl SubjectAlternative {
    fn key(&self) -> String {
        match self {
            Self::Email(address) => format!("email:{}", address.to_lowercase()),
            Self::Dns(name) => format!("dns:{}", name.to_lowercase()),
            Self::Uri(uri) => format!("uri:{uri}"),
        }
    }
}

/// Attributes in their order.
type Subject = Vec<(String, String)>;

/// Which certificates are whose.
#[derive(Clone, Debug, Default)]
pub(crate) struct CertificateMap {
    subjects: Vec<(Subject, Arc<str>)>,
    alternatives: BTreeMap<String, Arc<str>>,
}

impl CertificateMap {
    /// From what an administrator wrote: `CN=ana,O=Example`, `/O=Example/CN=ana`, `email:…`, `dns:…` or `uri:…`.
    pub(crate) fn parse(entries: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut map = Self::default();
        for (key, user) in entries {
            let user: Arc<str> = user.as_str().into();
            match key.split_once(':') {
                Some((kind @ ("email" | "dns"), value)) => {
                    map.alternatives.insert(format!("{kind}:{}", value.to_lowercase()), user);
                }
                Some(("uri", _)) => drop(map.alternatives.insert(key.clone(), user)),
                _ => map.subjects.push((parse_subject(key)?, user)),
            }
        }
        Ok(map)
    }

    /// Whose certificate this is. The whole subject counts, not a part of it.
    pub(crate) fn user(&self, certificate: &PeerCertificate) -> Option<&Arc<str>> {
        let of_subject = || {
            let subject: Vec<_> = certificate.subject.iter().map(normal).collect();
            self.subjects.iter().find(|(known, _)| same(known, &subject)).map(|(_, user)| user)
        };
        let of_alternatives =
            || certificate.alternatives.iter().find_map(|name| self.alternatives.get(&name.key()));
        of_subject().or_else(of_alternatives)
    }
}

fn normal((name, value): &(String, String)) -> (String, String) {
    (name.to_uppercase(), value.clone())
}

/// RFC 4514 writes the last attribute first, OpenSSL and the grid the first one first: both orders are understood.
fn same(known: &[(String, String)], shown: &[(String, String)]) -> bool {
    !shown.is_empty() && (known == shown || (known.len() == shown.len() && known.iter().rev().eq(shown)))
}

/// `CN=ana,O=Example` with `\,` for a comma that belongs to a value, or `/O=Example/CN=ana`.
fn parse_subject(text: &str) -> Result<Subject, String> {
    let parts = match text.strip_prefix('/') {
        Some(rest) => slashed(rest),
        None => split_unescaped(text),
    };
    let pairs = parts.iter().map(|part| match part.trim().split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.trim().to_uppercase(), value.trim().to_owned()))
        }
        _ => Err(format!(
            "`{text}` is no subject of a certificate; write `CN=ana,O=Example` or `email:ana@example.org`"
        )),
    });
    pairs.collect()
}

/// A slash inside a value (`CN=host/example.org`) starts no new part.
fn slashed(text: &str) -> Vec<String> {
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

    fn subject(pairs: &[(&str, &str)]) -> PeerCertificate {
        let subject = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        PeerCertificate { subject, alternatives: Vec::new() }
    }

    fn map(entries: &[(&str, &str)]) -> CertificateMap {
        let entries = entries.iter().map(|(key, user)| ((*key).to_owned(), (*user).to_owned()));
        CertificateMap::parse(&entries.collect()).unwrap()
    }

    fn user(map: &CertificateMap, certificate: &PeerCertificate) -> Option<String> {
        map.user(certificate).map(ToString::to_string)
    }

    #[test]
    fn subjects_are_understood_in_both_manners() {
        let ana = subject(&[("DC", "org"), ("O", "Example, Inc"), ("CN", "ana")]);
        for written in [
            "/DC=org/O=Example, Inc/CN=ana",
            r"CN=ana,O=Example\, Inc,DC=org",
            r"dc=org, o=Example\, Inc, cn=ana",
        ] {
            assert_eq!(user(&map(&[(written, "ana")]), &ana).as_deref(), Some("ana"), "{written}");
        }
        let host = subject(&[("O", "Grid"), ("CN", "host/a.example.org")]);
        assert!(user(&map(&[("/O=Grid/CN=host/a.example.org", "svc")]), &host).is_some());
    }

    #[test]
    fn a_part_of_a_subject_is_nobody() {
        let known = map(&[("CN=ana,O=Example", "ana")]);
        assert_eq!(user(&known, &subject(&[("CN", "ana")])), None);
        assert_eq!(
            user(&known, &subject(&[("CN", "ana,O=Example")])),
            None,
            "a comma in a value makes no second part"
        );
        assert_eq!(user(&known, &subject(&[("C", "CH"), ("O", "Example"), ("CN", "ana")])), None);
        assert_eq!(user(&known, &subject(&[])), None);
    }

    #[test]
    fn alternative_names() {
        let known = map(&[("email:Ana@example.org", "ana"), ("uri:spiffe://x/ana", "ana2")]);
        let with = |name| PeerCertificate { subject: Vec::new(), alternatives: vec![name] };
        let email = SubjectAlternative::Email("ana@Example.org".into());
        assert_eq!(user(&known, &with(email)).as_deref(), Some("ana"));
        let uri = SubjectAlternative::Uri("spiffe://x/ana".into());
        assert_eq!(user(&known, &with(uri)).as_deref(), Some("ana2"));
        assert_eq!(user(&known, &with(SubjectAlternative::Dns("ana@example.org".into()))), None);
    }

    #[test]
    fn what_is_no_subject_is_refused() {
        let entries = [("ana".to_owned(), "ana".to_owned())].into();
        assert!(CertificateMap::parse(&entries).unwrap_err().contains("CN=ana"));
    }
}
