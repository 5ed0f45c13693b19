//! TLS configuration: the server's certificate, and verification of client certificates.

use crate::options::ServerTlsOptions;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use tokio_rustls::TlsAcceptor;
use windlass_auth::AuthorityId;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {what} from {}: {detail}", path.display())]
    File { what: &'static str, path: PathBuf, detail: String },
    #[error("{} contains no certificate", path.display())]
    Empty { path: PathBuf },
    #[error("{} contains no certificate revocation list", path.display())]
    NoRevocationList { path: PathBuf },
    #[error("the key in {} does not match the certificate, or has an unsupported type: {detail}", path.display())]
    Key { path: PathBuf, detail: String },
    #[error("the certificates in {} cannot be used to verify clients: {detail}", path.display())]
    ClientCa { path: PathBuf, detail: String },
}

/// The TLS configuration of connections. Reloadable; a reload applies to new connections.
#[derive(Debug)]
pub(crate) struct ServerTls {
    options: ServerTlsOptions,
    current: RwLock<LoadedTls>,
}

/// The configuration loaded last.
#[derive(Clone, Debug)]
struct LoadedTls {
    config: Arc<ServerConfig>,
    authorities: Arc<Vec<ClientAuthority>>,
}

/// A CA whose client certificates are accepted.
#[derive(Debug)]
struct ClientAuthority {
    id: AuthorityId,
    /// Accepts certificates issued by this CA only.
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ServerTls {
    pub(crate) fn load(options: ServerTlsOptions) -> Result<Self, TlsError> {
        let current = RwLock::new(load_tls_files(&options)?);
        Ok(Self { options, current })
    }

    /// If the files are invalid, the current configuration stays in use.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let fresh = load_tls_files(&self.options)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current().config)
    }

    /// Returns the number of accepted client CAs.
    pub(crate) fn authority_count(&self) -> usize {
        self.current().authorities.len()
    }

    /// Returns which CA issued a verified chain; the client's certificate comes first.
    pub(crate) fn accepted_issuers(&self, chain: &[CertificateDer<'_>]) -> Vec<AuthorityId> {
        let Some((leaf, between)) = chain.split_first() else { return Vec::new() };
        let current = self.current();
        let issued = current.authorities.iter().filter(|authority| {
            authority.verifier.verify_client_cert(leaf, between, UnixTime::now()).is_ok()
        });
        issued.map(|authority| authority.id).collect()
    }

    fn current(&self) -> LoadedTls {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns the first certificate of the chain, the server's own.
pub(crate) fn leaf_certificate(options: &ServerTlsOptions) -> Result<String, TlsError> {
    let wrong = |detail: String| TlsError::File { what: "a certificate", path: options.cert.clone(), detail };
    let text = std::fs::read_to_string(&options.cert).map_err(|e| wrong(e.to_string()))?;
    let empty = || TlsError::Empty { path: options.cert.clone() };
    let begin = text.find(PEM_BEGIN).ok_or_else(empty)?;
    let length = text[begin..].find(PEM_END).ok_or_else(empty)? + PEM_END.len();
    Ok(format!("{}\n", &text[begin..begin + length]))
}

const PEM_BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const PEM_END: &str = "-----END CERTIFICATE-----";

/// Checks whether a server could start with these files.
pub fn check(options: &ServerTlsOptions) -> Result<(), TlsError> {
    load_tls_files(options).map(drop)
}

fn load_tls_files(options: &ServerTlsOptions) -> Result<LoadedTls, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| TlsError::Key { path: options.key.clone(), detail: e.to_string() })?;
    let mut authorities = Vec::new();
    let builder = match &options.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = read_certificates(path)?;
            let lists = read_revocation_lists(options)?;
            let verifier = |roots: &[CertificateDer<'static>], is_optional| {
                client_verifier(path, roots, &lists, is_optional, &provider)
            };
            // Which of several CAs issued a certificate is found by trying each.
            for root in &roots {
                let id = AuthorityId::from_der(root);
                authorities
                    .push(ClientAuthority { id, verifier: verifier(std::slice::from_ref(root), false)? });
            }
            builder.with_client_cert_verifier(verifier(&roots, !options.require_client_cert)?)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&options.key).map_err(|e| TlsError::File {
        what: "a private key",
        path: options.key.clone(),
        detail: e.to_string(),
    })?;
    let mut config = builder
        .with_single_cert(read_certificates(&options.cert)?, key)
        .map_err(|e| TlsError::Key { path: options.key.clone(), detail: e.to_string() })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(LoadedTls { config: Arc::new(config), authorities: Arc::new(authorities) })
}

/// Accepts certificates of these CAs that are not revoked. If there are revocation lists, each CA of a chain
/// needs one that is not expired.
fn client_verifier(
    path: &Path,
    authorities: &[CertificateDer<'static>],
    lists: &[CertificateRevocationListDer<'static>],
    is_optional: bool,
    provider: &Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let wrong = |detail: String| TlsError::ClientCa { path: path.to_owned(), detail };
    let mut roots = RootCertStore::empty();
    for certificate in authorities {
        roots.add(certificate.clone()).map_err(|e| wrong(e.to_string()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let builder = if is_optional { builder.allow_unauthenticated() } else { builder };
    let builder = if lists.is_empty() {
        builder
    } else {
        builder.with_crls(lists.iter().cloned()).enforce_revocation_expiration()
    };
    builder.build().map_err(|e| wrong(e.to_string()))
}

fn read_revocation_lists(
    options: &ServerTlsOptions,
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let mut all = Vec::new();
    for path in &options.client_crl {
        let wrong = |e: rustls_pki_types::pem::Error| TlsError::File {
            what: "a certificate revocation list",
            path: path.clone(),
            detail: e.to_string(),
        };
        let lists: Vec<_> = CertificateRevocationListDer::pem_file_iter(path)
            .map_err(wrong)?
            .collect::<Result<_, _>>()
            .map_err(wrong)?;
        if lists.is_empty() {
            return Err(TlsError::NoRevocationList { path: path.clone() });
        }
        all.extend(lists);
    }
    Ok(all)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |e: rustls_pki_types::pem::Error| TlsError::File {
        what: "certificates",
        path: path.to_owned(),
        detail: e.to_string(),
    };
    let chain: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(wrong)?.collect::<Result<_, _>>().map_err(wrong)?;
    if chain.is_empty() { Err(TlsError::Empty { path: path.to_owned() }) } else { Ok(chain) }
}
