//! Connecting to PostgreSQL: URLs and TLS. Passwords never appear in anything displayed.

use super::passfile;
use super::pg_error::{PgError, convert_error};
use crate::StoreError;
use crate::error::SqlError;
use crate::sql::postgres as sql;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Timeout for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which unacknowledged data counts as lost.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(20);
/// Common locations of trusted certificates.
const SYSTEM_CA_FILES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];

/// Runs a future on the runtime of the process. Store methods are called from plain threads, which block here.
pub(super) fn block_on<F: Future>(future: F) -> Result<F::Output, SqlError> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("windlass-postgres")
            .enable_all()
            .build()
    });
    match runtime {
        Ok(runtime) => Ok(runtime.block_on(future)),
        Err(e) => Err(SqlError::damage(format!("cannot start the connection thread: {e}"))),
    }
}

/// Disables bitmap scans: they read all rows before they return one, while a page of a list needs only the
/// first hundred. PostgreSQL does not know better until it has statistics of a new workflow.
const PLANNER_OPTIONS: &str = "-c enable_bitmapscan=off";

/// The location of a database and how to connect to it.
pub(crate) struct PgTarget {
    config: Config,
    tls: TlsVerification,
    /// For display, without the password.
    pub(super) url: String,
    /// The unique application name of all connections of this store.
    pub(super) tag: String,
}

impl fmt::Debug for PgTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("url", &self.url).finish_non_exhaustive()
    }
}

enum TlsVerification {
    Never,
    /// Encrypted without verification: the usual meaning of `prefer` and `require`.
    Unchecked,
    /// The certificate must be valid; with the file of trusted certificates.
    Checked(Option<PathBuf>),
}

/// Removes parameters from the URL that only Windlass understands.
pub(super) fn strip_tls_options(url: &str) -> String {
    take_tls_options(url).0
}

impl PgTarget {
    pub(crate) fn parse(url: &str) -> Result<Self, StoreError> {
        let bad = |why: String| StoreError::BadLocation { why };
        let (url, options) = take_tls_options(url);
        let mut config: Config = url.parse().map_err(|e: tokio_postgres::Error| {
            bad(std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string))
        })?;
        let (mode, tls) = match options.mode.as_deref() {
            Some("disable") => (SslMode::Disable, TlsVerification::Never),
            None | Some("prefer" | "allow") => (SslMode::Prefer, TlsVerification::Unchecked),
            Some("require") => (SslMode::Require, TlsVerification::Unchecked),
            Some("verify-ca" | "verify-full") => (SslMode::Require, TlsVerification::Checked(options.roots)),
            Some(other) => {
                return Err(bad(format!(
                    "unknown sslmode `{other}`; known: disable, prefer, require, verify-full"
                )));
            }
        };
        if config.get_hosts().is_empty() {
            config.host("localhost");
        }
        if config.get_user().is_none() {
            config.user(std::env::var("USER").unwrap_or_else(|_| "postgres".to_owned()));
        }
        if config.get_password().is_none()
            && let Some(password) =
                std::env::var("PGPASSWORD").ok().or_else(|| passfile::find_password(&config))
        {
            config.password(password);
        }
        let tag = format!("windlass {}", uuid::Uuid::new_v4().simple());
        config.ssl_mode(mode).application_name(&tag).connect_timeout(CONNECT_TIMEOUT);
        config.keepalives_idle(TCP_USER_TIMEOUT).tcp_user_timeout(TCP_USER_TIMEOUT);
        let given = config.get_options().unwrap_or_default();
        config.options(format!("{given} {PLANNER_OPTIONS}").trim_start());
        let url = render_url(&config);
        Ok(Self { config, tls, url, tag })
    }

    pub(crate) fn connect(&self) -> Result<Client, SqlError> {
        let connected = block_on(async {
            let attempt = async {
                match self.tls_connector()? {
                    None => Ok(spawn_connection_task(
                        self.config.connect(NoTls).await.map_err(|e| connect_error(&e))?,
                    )),
                    Some(tls) => Ok(spawn_connection_task(
                        self.config.connect(tls).await.map_err(|e| connect_error(&e))?,
                    )),
                }
            };
            tokio::time::timeout(CONNECT_TIMEOUT, attempt).await
        })?;
        let client = connected.unwrap_or_else(|_| {
            let what = format!("no response within {} seconds", CONNECT_TIMEOUT.as_secs());
            Err(SqlError::Postgres(PgError::unreachable(what)))
        })?;
        block_on(client.batch_execute(sql::DISABLE_TIMEOUTS))??;
        if !self.is_local() {
            block_on(client.batch_execute(sql::SET_TCP_KEEPALIVE))??;
        }
        Ok(client)
    }

    /// Sockets of this machine need no encryption, and their end is always detected.
    fn is_local(&self) -> bool {
        self.config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)))
    }

    fn tls_connector(&self) -> Result<Option<MakeRustlsConnect>, SqlError> {
        let provider = || Arc::new(rustls::crypto::ring::default_provider());
        let builder = || {
            ClientConfig::builder_with_provider(provider())
                .with_safe_default_protocol_versions()
                .map_err(|e| SqlError::from(StoreError::BadLocation { why: e.to_string() }))
        };
        let config = match &self.tls {
            TlsVerification::Never => return Ok(None),
            _ if self.is_local() => return Ok(None),
            TlsVerification::Unchecked => builder()?
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider())))
                .with_no_client_auth(),
            TlsVerification::Checked(file) => builder()?
                .with_root_certificates(load_root_certificates(file.as_ref())?)
                .with_no_client_auth(),
        };
        Ok(Some(MakeRustlsConnect::new(config)))
    }
}

fn connect_error(error: &tokio_postgres::Error) -> SqlError {
    match convert_error(error) {
        SqlError::Postgres(failure) => SqlError::Postgres(failure.while_connecting()),
        other => other,
    }
}

/// Drives the connection in the background until its client is dropped.
fn spawn_connection_task<S, T>(connected: (Client, tokio_postgres::Connection<S, T>)) -> Client
where
    tokio_postgres::Connection<S, T>: Future + Send + 'static,
    <tokio_postgres::Connection<S, T> as Future>::Output: Send,
{
    let (client, connection) = connected;
    tokio::spawn(async move {
        // Errors are returned to the callers that wait for a response.
        drop(connection.await);
    });
    client
}

fn load_root_certificates(file: Option<&PathBuf>) -> Result<RootCertStore, SqlError> {
    let system = || SYSTEM_CA_FILES.iter().map(PathBuf::from).find(|path| path.exists());
    let bad = |why: String| SqlError::from(StoreError::BadLocation { why });
    let path = file.cloned().or_else(system);
    let path =
        path.ok_or_else(|| bad("no trusted certificates found; name a file with sslrootcert".into()))?;
    let wrong = |e: &dyn fmt::Display| bad(format!("cannot read certificates from {}: {e}", path.display()));
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&path).map_err(|e| wrong(&e))? {
        let certificate = certificate.map_err(|e| wrong(&e))?;
        // System files contain a few certificates that rustls cannot read.
        store.add_parsable_certificates([certificate]);
    }
    if store.is_empty() { Err(wrong(&"the file contains no certificates")) } else { Ok(store) }
}

/// TLS parameters of a URL.
#[derive(Default)]
struct TlsOptions {
    mode: Option<String>,
    roots: Option<PathBuf>,
}

/// Splits a URL into one that the library understands, and the TLS parameters.
fn take_tls_options(url: &str) -> (String, TlsOptions) {
    let mut options = TlsOptions::default();
    let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), options) };
    let kept: Vec<&str> = query
        .split('&')
        .filter(|pair| match pair.split_once('=') {
            Some(("sslmode", mode)) => {
                options.mode = Some(mode.to_owned());
                false
            }
            Some(("sslrootcert", path)) => {
                options.roots = Some(percent_decode(path).into());
                false
            }
            _ => true,
        })
        .collect();
    (format!("{base}?{}", kept.join("&")).trim_end_matches('?').to_owned(), options)
}

/// Decodes percent escapes: `%2F` is a slash.
fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        let escaped = (*first == b'%').then(|| others.get(..2)).flatten();
        let code = escaped.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &others[2..] } else { others };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Everything that identifies the database, without secrets.
fn render_url(config: &Config) -> String {
    let user = config.get_user().map_or_else(String::new, |user| format!("{user}@"));
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    let ports = config.get_ports();
    let mut hosts = Vec::new();
    let mut socket = None;
    for (n, host) in config.get_hosts().iter().enumerate() {
        let port = ports.get(n).or(ports.first()).copied().filter(|port| *port != 5432);
        match host {
            Host::Tcp(name) => hosts.push(port.map_or(name.clone(), |port| format!("{name}:{port}"))),
            Host::Unix(path) => socket = Some((path.display().to_string(), port)),
        }
    }
    let socket = socket.map_or_else(String::new, |(path, port)| {
        let port = port.map_or_else(String::new, |port| format!("&port={port}"));
        format!("?host={path}{port}")
    });
    format!("postgres://{user}{}/{database}{socket}", hosts.join(","))
}

/// Accepts any certificate: `require` protects only against passive listeners.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_url_and_errors_hide_the_password() {
        for (url, shown) in [
            ("postgres://ann:secret@db.example/windlass", "postgres://ann@db.example/windlass"),
            ("postgresql://ann:secret@db:5433/b?sslmode=verify-full", "postgres://ann@db:5433/b"),
            ("postgres://ann:p%40ss@/b?host=/run/pg&port=7", "postgres://ann@/b?host=/run/pg&port=7"),
        ] {
            let place = PgTarget::parse(url).unwrap();
            assert_eq!(place.url, shown);
            assert!(!format!("{place:?}").contains("secret"));
        }
        let error = PgTarget::parse("postgres://ann:secret@db/b?sslmode=never").unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
        let error = PgTarget::parse("postgres://ann:secret@db:port/b").unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn percent_escapes_are_decoded() {
        assert_eq!(percent_decode("%2Fetc%2fa%20b%"), "/etc/a b%");
    }
}
