//! Verification of the server, and the client certificate.

use crate::ClientError;
use reqwest::blocking::ClientBuilder;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The PEM texts of a certificate with its chain, and of its key.
type ChainAndKey = (Vec<u8>, Vec<u8>);

/// Files, read when a client is created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ServerTrust {
    /// CA certificates (PEM) that are trusted in addition to those of the system.
    pub ca_file: Option<PathBuf>,
    /// The exact certificate of the server (PEM): it is trusted with any names, and no other is.
    pub pin_file: Option<PathBuf>,
    /// The socket of the user's own server on this machine: calls use it instead of the port, where any user
    /// could listen.
    pub socket: Option<PathBuf>,
    /// Client certificate and chain (PEM).
    pub cert: Option<PathBuf>,
    /// Its private key; `None`: it is in the same file.
    pub key: Option<PathBuf>,
}

impl ServerTrust {
    pub(crate) fn apply(&self, builder: ClientBuilder) -> Result<ClientBuilder, ClientError> {
        if let Some(socket) = &self.socket {
            return Ok(builder.unix_socket(private_path(socket)?));
        }
        if let Some(pin) = &self.pin_file {
            return Ok(builder.tls_backend_preconfigured(self.pinned_config(pin)?));
        }
        let mut builder = builder;
        if let Some(path) = &self.ca_file {
            let pem = read_file(path)?;
            parse_certificates(&pem, path)?;
            let bundle = reqwest::Certificate::from_pem_bundle(&pem);
            let bundle =
                bundle.map_err(|e| ClientError::Pem { path: path.clone(), why: innermost_source(&e) })?;
            builder = builder.tls_certs_merge(bundle);
        }
        if let Some((chain, key)) = self.read_identity()? {
            let mut pem = Vec::new();
            pem.extend(chain);
            pem.push(b'\n');
            pem.extend(key);
            let path = self.cert.clone().unwrap_or_default();
            let identity = reqwest::Identity::from_pem(&pem);
            builder =
                builder.identity(identity.map_err(|e| ClientError::Pem { path, why: innermost_source(&e) })?);
        }
        Ok(builder)
    }

    /// Returns the client certificate and its key.
    fn read_identity(&self) -> Result<Option<ChainAndKey>, ClientError> {
        let Some(cert) = &self.cert else { return Ok(None) };
        let key = self.key.as_ref().unwrap_or(cert);
        let (chain, secret) = (read_file(cert)?, read_file(key)?);
        parse_certificates(&chain, cert)?;
        PrivateKeyDer::from_pem_slice(&secret).map_err(|_| missing_pem_error(key, "private key"))?;
        Ok(Some((chain, secret)))
    }

    fn pinned_config(&self, pin: &Path) -> Result<ClientConfig, ClientError> {
        let wrong =
            |path: &Path, e: rustls::Error| ClientError::Pem { path: path.to_owned(), why: e.to_string() };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let known = parse_certificates(&read_file(pin)?, pin)?.swap_remove(0);
        let verifier = PinnedCertVerifier { certificate: known, algorithms: algorithms(&provider) };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong(pin, e))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let Some((chain, secret)) = self.read_identity()? else { return Ok(builder.with_no_client_auth()) };
        let cert = self.cert.as_deref().unwrap_or(pin);
        let key =
            PrivateKeyDer::from_pem_slice(&secret).map_err(|_| missing_pem_error(cert, "private key"))?;
        builder.with_client_auth_cert(parse_certificates(&chain, cert)?, key).map_err(|e| wrong(cert, e))
    }
}

/// Returns the path of a socket in a directory that no other user can change, short enough to connect to.
fn private_path(socket: &Path) -> Result<PathBuf, ClientError> {
    let dir = socket.parent().unwrap_or(Path::new("/"));
    let failed = |source| ClientError::File { path: dir.to_owned(), source };
    let open = File::open(dir).map_err(failed)?;
    let about = open.metadata().map_err(failed)?;
    if about.uid() != rustix::process::geteuid().as_raw() || about.mode() & 0o022 != 0 {
        return Err(ClientError::NotPrivate { path: dir.to_owned() });
    }
    if socket.as_os_str().len() < MAX_SOCKET_PATH {
        return Ok(socket.to_owned());
    }
    let mut kept = OPEN_SOCKET_DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner);
    let open = kept.entry((about.dev(), about.ino())).or_insert(open);
    let short = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    Ok(short.join(socket.file_name().unwrap_or_default()))
}

/// Maximum length of a socket path; the kernel accepts 107 bytes.
const MAX_SOCKET_PATH: usize = 100;

/// Open socket directories, by device and inode. They stay open for the life of the process, since connections
/// may be made at any time.
static OPEN_SOCKET_DIRECTORIES: Mutex<BTreeMap<(u64, u64), File>> = Mutex::new(BTreeMap::new());

fn algorithms(provider: &CryptoProvider) -> WebPkiSupportedAlgorithms {
    provider.signature_verification_algorithms
}

/// Trusts exactly one certificate. The handshake proves that the server has its key.
#[derive(Debug)]
struct PinnedCertVerifier {
    certificate: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for PinnedCertVerifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if *shown == self.certificate {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Reads at least one item.
fn parse_certificates(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, ClientError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| missing_pem_error(path, "certificate"))
}

fn missing_pem_error(path: &Path, what: &str) -> ClientError {
    ClientError::Pem { path: path.to_owned(), why: format!("it contains no {what} in PEM") }
}

fn read_file(path: &Path) -> Result<Vec<u8>, ClientError> {
    std::fs::read(path).map_err(|source| ClientError::File { path: path.to_owned(), source })
}

pub(crate) fn innermost_source(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_files_without_expected_content_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.pem");
        std::fs::write(&path, "-----BEGIN X-----\n").unwrap();
        for trust in [
            ServerTrust { ca_file: Some(path.clone()), ..ServerTrust::default() },
            ServerTrust { pin_file: Some(path.clone()), ..ServerTrust::default() },
            ServerTrust { cert: Some(path.clone()), ..ServerTrust::default() },
        ] {
            let error = trust.apply(reqwest::blocking::Client::builder()).unwrap_err();
            assert!(error.to_string().contains("contains no certificate"), "{error}");
        }
        let gone = ServerTrust { cert: Some(dir.path().join("gone")), ..ServerTrust::default() };
        assert!(matches!(gone.apply(reqwest::blocking::Client::builder()), Err(ClientError::File { .. })));
    }
}
