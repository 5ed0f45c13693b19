//! What a client certificate says about its bearer.

use windlass_auth::{PeerCertificate, SubjectAlternative};
use x509_parser::extensions::GeneralName;
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// From DER, which has been checked already. `None`: it cannot be read.
pub(crate) fn read(der: &[u8]) -> Option<PeerCertificate> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject().iter_attributes().filter_map(|attribute| {
        let kind = attribute.attr_type();
        let name = oid2abbrev(kind, oid_registry()).map_or_else(|_| kind.to_id_string(), str::to_owned);
        Some((name, attribute.as_str().ok()?.to_owned()))
    });
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
    Some(PeerCertificate {
        subject: subject.collect(),
        alternatives: names.iter().filter_map(alternative).collect(),
    })
}

fn alternative(name: &GeneralName<'_>) -> Option<SubjectAlternative> {
    match name {
        GeneralName::RFC822Name(address) => Some(SubjectAlternative::Email((*address).to_owned())),
        GeneralName::DNSName(name) => Some(SubjectAlternative::Dns((*name).to_owned())),
        GeneralName::URI(uri) => Some(SubjectAlternative::Uri((*uri).to_owned())),
        _ => None,
    }
}
