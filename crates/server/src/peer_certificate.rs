//! Reading of client certificates.

use windlass_auth::{AuthorityId, PeerCertificate, SubjectAltName};
use windlass_types::Timestamp;
use x509_parser::extensions::GeneralName;
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::x509::X509Name;

/// Reads a certificate in DER, already verified by `authorities`. One that cannot be read in full is marked as
/// such and maps to no user: the readable part of its subject could equal the whole subject of another
/// certificate.
pub(crate) fn parse_peer_certificate(der: &[u8], authorities: Vec<AuthorityId>) -> PeerCertificate {
    let unreadable = |why: &str| PeerCertificate {
        subject: Err(why.to_owned()),
        alternatives: Vec::new(),
        authorities: authorities.clone(),
        expires: Timestamp(i64::MAX),
    };
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return unreadable("not a certificate in DER");
    };
    let Ok(names) = certificate.subject_alternative_name() else {
        return unreadable("its alternative names");
    };
    let names = names.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
    PeerCertificate {
        subject: parse_subject_attributes(certificate.subject()),
        alternatives: names.iter().filter_map(parse_subject_alternative).collect(),
        authorities,
        expires: Timestamp(certificate.validity().not_after.timestamp().saturating_mul(1_000_000)),
    }
}

/// All attributes in their order, or the one that cannot be read.
fn parse_subject_attributes(name: &X509Name<'_>) -> Result<Vec<(String, String)>, String> {
    let parts = name.iter_rdn().map(|part| {
        let mut attributes = part.iter();
        let (Some(attribute), None) = (attributes.next(), attributes.next()) else {
            return Err("a part of its subject does not have exactly one value".to_owned());
        };
        let kind = attribute.attr_type();
        let name = oid2abbrev(kind, oid_registry()).map_or_else(|_| kind.to_id_string(), str::to_owned);
        match attribute.as_str() {
            Ok(value) => Ok((name, value.to_owned())),
            Err(_) => Err(format!("{name} of its subject is not a supported text type")),
        }
    });
    parts.collect()
}

fn parse_subject_alternative(name: &GeneralName<'_>) -> Option<SubjectAltName> {
    match name {
        GeneralName::RFC822Name(address) => Some(SubjectAltName::Email((*address).to_owned())),
        GeneralName::DNSName(name) => Some(SubjectAltName::Dns((*name).to_owned())),
        GeneralName::URI(uri) => Some(SubjectAltName::Uri((*uri).to_owned())),
        _ => None,
    }
}
