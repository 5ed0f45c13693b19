//! TLS to ReqMgr2: the trusted authorities, and the client certificate or proxy.

use super::{Reqmgr2Client, Reqmgr2Error, file_error, read_file};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) fn build_tls_config(wanted: &Reqmgr2Client) -> Result<ClientConfig, Reqmgr2Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let shown = load_identity(wanted, &provider)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Reqmgr2Error::Address { url: wanted.url.clone(), why: error.to_string() })?
        .with_root_certificates(load_roots(wanted.authorities.as_deref())?);
    Ok(match shown {
        Some(shown) => builder.with_client_cert_resolver(shown),
        None => builder.with_no_client_auth(),
    })
}

/// The client certificate and its key. They are used unparsed: rustls would parse the certificate, and does not
/// know the critical extension of a proxy (RFC 3820).
fn load_identity(
    wanted: &Reqmgr2Client,
    provider: &CryptoProvider,
) -> Result<Option<Arc<SingleCertAndKey>>, Reqmgr2Error> {
    let Some(cert) = &wanted.cert else { return Ok(None) };
    let path = wanted.key.as_ref().unwrap_or(cert);
    let chain = parse_certificates(&read_file(cert)?).unwrap_or_default();
    if chain.is_empty() {
        return Err(missing_item_error(cert, "certificate"));
    }
    let key = PrivateKeyDer::from_pem_slice(&read_file(path)?)
        .map_err(|_| missing_item_error(path, "private key"))?;
    let key = provider.key_provider.load_private_key(key);
    let key = key.map_err(|error| Reqmgr2Error::File {
        path: path.clone(),
        why: format!("its key is invalid: {error}"),
    })?;
    Ok(Some(Arc::new(CertifiedKey::new(chain, key).into())))
}

/// Those of the system, and the configured ones.
fn load_roots(authorities: Option<&Path>) -> Result<RootCertStore, Reqmgr2Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let Some(path) = authorities else { return Ok(roots) };
    let mut found = 0;
    for file in list_certificate_files(path)? {
        // Grid directories contain many other files, and some authorities in obsolete formats.
        let (added, _) =
            roots.add_parsable_certificates(parse_certificates(&read_file(&file)?).unwrap_or_default());
        found += added;
    }
    if found == 0 { Err(missing_item_error(path, "certificate of an authority")) } else { Ok(roots) }
}

/// The file, or the certificate files of a directory by their names: `*.pem`, `*.crt`, `HASH.0`.
fn list_certificate_files(path: &Path) -> Result<Vec<PathBuf>, Reqmgr2Error> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.map_err(|error| file_error(path, &error))?;
    let is_certificate = |path: &PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let is_number = !ending.is_empty() && ending.bytes().all(|byte| byte.is_ascii_digit());
        path.is_file() && (is_number || matches!(ending, "pem" | "crt"))
    };
    Ok(entries.into_iter().map(|entry| entry.path()).filter(is_certificate).collect())
}

fn parse_certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()
}

fn missing_item_error(path: &Path, what: &str) -> Reqmgr2Error {
    Reqmgr2Error::File { path: path.to_owned(), why: format!("it contains no {what} in PEM") }
}

/// Whether the TLS handshake failed because of certificates.
pub(super) fn is_trust_error(error: &(dyn Error + 'static)) -> bool {
    error_causes(error).any(<dyn Error>::is::<rustls::Error>)
}

/// The error with its causes, also where a system error wraps another one, which `source` skips.
pub(super) fn error_causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        match wrapped {
            Some(inner) => Some(inner as &(dyn Error + 'static)),
            None => error.source(),
        }
    })
}
