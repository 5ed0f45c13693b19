//! TLS, with a separate server and certificates made by the `openssl` program.

use crate::free_port::free_port;
use crate::kit::create;
use crate::postgres_server::Server;
use std::path::{Path, PathBuf};
use std::process::Command;
use windlass_store::postgres::PgStore;
use windlass_store::sqlite::OpenMode;
use windlass_store::{Store as _, StoreError};

/// A PostgreSQL that requires TLS. It stops some seconds after its last use.
struct TlsServer {
    server: Server,
    port: u16,
}

impl TlsServer {
    /// Its certificate is for 127.0.0.1.
    fn start(directory: &Path) -> Self {
        make_authority(directory, "ca");
        make_authority(directory, "stranger");
        certify(directory);
        let server = Server::at(directory);
        let port = free_port();
        let file = |name: &str| directory.join(name).display().to_string();
        server.start(&format!(
            "listen_addresses = '127.0.0.1'\nport = {port}\nssl = on\nssl_cert_file = '{}'\nssl_key_file = '{}'\n\
             hba_file = '{}'\n",
            file("server.pem"),
            file("server.key"),
            file("hba"),
        ));
        Self { server, port }
    }

    fn open(&self, host: &str, options: &str) -> Result<PgStore, StoreError> {
        let Self { server, port } = self;
        let url = format!("postgres://{}:hush@{host}:{port}/postgres?{options}", server.user);
        PgStore::open(&url, OpenMode::ReadWrite)
    }
}

fn openssl(directory: &Path, words: &str) {
    let output = Command::new("openssl").args(words.split(' ')).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn make_authority(directory: &Path, name: &str) {
    let words = "req -x509 -newkey rsa:2048 -nodes -days 2 -addext basicConstraints=critical,CA:TRUE";
    openssl(directory, &format!("{words} -keyout {name}.key -out {name}.pem -subj /CN={name}"));
}

fn certify(directory: &Path) {
    let words = "req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=server";
    openssl(directory, words);
    std::fs::write(directory.join("ext"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    let signed = "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext";
    openssl(directory, &format!("{signed} -out server.pem"));
    std::fs::write(directory.join("hba"), "local all all trust\nhostssl all all 127.0.0.1/32 trust\n")
        .unwrap();
}

fn roots(directory: &Path, name: &str) -> String {
    let path: PathBuf = directory.join(format!("{name}.pem"));
    format!("sslmode=verify-full&sslrootcert={}", path.display())
}

#[test]
fn sslmode_is_enforced() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let secured = TlsServer::start(directory);

    let (workflow, _) = create(&secured.open("127.0.0.1", &roots(directory, "ca")).unwrap(), 1);
    for options in ["sslmode=require", "sslmode=prefer", ""] {
        let store = secured.open("127.0.0.1", options).unwrap();
        assert!(store.workflow(workflow).unwrap().is_some(), "{options}");
    }

    let refused = secured.open("127.0.0.1", "sslmode=disable").unwrap_err();
    assert!(matches!(refused, StoreError::AccessDenied { .. }), "{refused}");
    let stranger = secured.open("127.0.0.1", &roots(directory, "stranger")).unwrap_err();
    let misnamed = secured.open("localhost", &roots(directory, "ca")).unwrap_err();
    for (error, word) in [(&stranger, "UnknownIssuer"), (&misnamed, "localhost")] {
        assert!(matches!(error, StoreError::Untrusted { .. }), "{error:?}");
        assert!(!error.is_transient() && error.hint().unwrap().contains("sslrootcert"));
        let said = format!("{error} {error:?}");
        assert!(said.contains(word) && !said.contains("hush"), "{said}");
    }
    let missing = secured.open("127.0.0.1", &roots(directory, "nowhere")).unwrap_err();
    assert!(matches!(&missing, StoreError::BadLocation { why } if why.contains("nowhere.pem")), "{missing}");
}
