//! Certificates: ours, and those that clients show.

use crate::options::TlsOptions;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use tokio_rustls::TlsAcceptor;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {what} from {}: {detail}", path.display())]
    File { what: &'static str, path: PathBuf, detail: String },
    #[error("{} holds no certificate", path.display())]
    Empty { path: PathBuf },
    #[error("the key in {} does not fit the certificate, or is of an unknown kind: {detail}", path.display())]
    Key { path: PathBuf, detail: String },
    #[error("the certificates in {} cannot be used to check clients: {detail}", path.display())]
    ClientCa { path: PathBuf, detail: String },
}

/// What connections are secured with. Read again while the server runs, for those that come after.
#[derive(Debug)]
pub(crate) struct Tls {
    options: TlsOptions,
    current: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    pub(crate) fn load(options: TlsOptions) -> Result<Self, TlsError> {
        let current = RwLock::new(Arc::new(read(&options)?));
        Ok(Self { options, current })
    }

    /// If the files are no good, all stays as it was.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let fresh = Arc::new(read(&self.options)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// The first certificate of the chain, by itself: the one that says who we are.
pub(crate) fn leaf(options: &TlsOptions) -> Result<String, TlsError> {
    let wrong = |detail: String| TlsError::File { what: "a certificate", path: options.cert.clone(), detail };
    let text = std::fs::read_to_string(&options.cert).map_err(|e| wrong(e.to_string()))?;
    let empty = || TlsError::Empty { path: options.cert.clone() };
    let begin = text.find(BEGIN).ok_or_else(empty)?;
    let length = text[begin..].find(END).ok_or_else(empty)? + END.len();
    Ok(format!("{}\n", &text[begin..begin + length]))
}

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Whether a server could be started with these.
pub fn check(options: &TlsOptions) -> Result<(), TlsError> {
    read(options).map(drop)
}

fn read(options: &TlsOptions) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| TlsError::Key { path: options.key.clone(), detail: e.to_string() })?;
    let builder = match &options.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let wrong = |detail: String| TlsError::ClientCa { path: path.clone(), detail };
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|e| wrong(e.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier =
                if options.require_client_cert { verifier } else { verifier.allow_unauthenticated() };
            builder.with_client_cert_verifier(verifier.build().map_err(|e| wrong(e.to_string()))?)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&options.key).map_err(|e| TlsError::File {
        what: "a private key",
        path: options.key.clone(),
        detail: e.to_string(),
    })?;
    let mut config = builder
        .with_single_cert(certificates(&options.cert)?, key)
        .map_err(|e| TlsError::Key { path: options.key.clone(), detail: e.to_string() })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |e: rustls_pki_types::pem::Error| TlsError::File {
        what: "certificates",
        path: path.to_owned(),
        detail: e.to_string(),
    };
    let chain: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(wrong)?.collect::<Result<_, _>>().map_err(wrong)?;
    if chain.is_empty() { Err(TlsError::Empty { path: path.to_owned() }) } else { Ok(chain) }
}
