//! TLS: with certificates that the `openssl` program makes, read again while the server runs.

use crate::bench::Bench;
use reqwest::blocking::Client;
use reqwest::{Certificate, Identity};
use std::path::{Path, PathBuf};
use std::process::Command;
use windlass_server::options::TlsOptions;

/// A directory of certificates.
struct Authority(PathBuf);

impl Authority {
    fn new(dir: &Path, name: &str) -> Self {
        let this = Self(dir.join(name));
        std::fs::create_dir_all(&this.0).unwrap();
        this.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
            "-days",
            "2",
            "-subj",
            &format!("/CN={name}"),
            "-addext",
            "basicConstraints=critical,CA:TRUE",
        ]);
        this
    }

    fn openssl(&self, words: &[&str]) {
        let output = Command::new("openssl").args(words).current_dir(&self.0).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Gives a certificate for the server on loopback, or for a client.
    fn certify(&self, name: &str) {
        let (key, request, cert) = (format!("{name}.key"), format!("{name}.csr"), format!("{name}.pem"));
        let subject = format!("/CN={name}");
        self.openssl(&[
            "req", "-newkey", "rsa:2048", "-nodes", "-keyout", &key, "-out", &request, "-subj", &subject,
        ]);
        std::fs::write(
            self.0.join("ext"),
            "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n",
        )
        .unwrap();
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-out",
            &cert,
            "-days",
            "2",
            "-extfile",
            "ext",
        ]);
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn root(&self) -> Certificate {
        Certificate::from_pem(&std::fs::read(self.file("ca.pem")).unwrap()).unwrap()
    }

    fn identity(&self, name: &str) -> Identity {
        let mut pem = std::fs::read(self.file(&format!("{name}.pem"))).unwrap();
        pem.extend(std::fs::read(self.file(&format!("{name}.key"))).unwrap());
        Identity::from_pem(&pem).unwrap()
    }
}

fn health(url: &str, client: reqwest::blocking::ClientBuilder) -> Result<u16, reqwest::Error> {
    let client: Client = client.build().unwrap();
    client.get(format!("{url}/health")).send().map(|answer| answer.status().as_u16())
}

fn trusting(authority: &Authority) -> reqwest::blocking::ClientBuilder {
    Client::builder().tls_certs_only([authority.root()])
}

#[test]
fn certificates_are_read_again_for_those_who_come_after() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (Authority::new(dir.path(), "first"), Authority::new(dir.path(), "second"));
    first.certify("server");
    second.certify("server");
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let install = |authority: &Authority| {
        std::fs::copy(authority.file("server.pem"), &cert).unwrap();
        std::fs::copy(authority.file("server.key"), &key).unwrap();
    };
    install(&first);
    let tls =
        TlsOptions { cert: cert.clone(), key: key.clone(), client_ca: None, require_client_cert: false };
    let bench = Bench::with(|options| options.tls = Some(tls));
    let url = &bench.server.url;
    assert!(url.starts_with("https://"));
    assert_eq!(health(url, trusting(&first)).unwrap(), 200);
    assert!(health(url, trusting(&second)).is_err());
    install(&second);
    bench.server.reload().unwrap();
    assert_eq!(health(url, trusting(&second)).unwrap(), 200);
    assert!(health(url, trusting(&first)).is_err());
    // What cannot be used changes nothing.
    std::fs::write(&cert, "rubbish").unwrap();
    bench.server.reload().unwrap_err();
    assert_eq!(health(url, trusting(&second)).unwrap(), 200);
}

#[test]
fn where_clients_must_show_certificates_only_those_of_the_right_authority_get_in() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (Authority::new(dir.path(), "ours"), Authority::new(dir.path(), "theirs"));
    ours.certify("server");
    ours.certify("ana");
    theirs.certify("ana");
    let tls = TlsOptions {
        cert: ours.file("server.pem"),
        key: ours.file("server.key"),
        client_ca: Some(ours.file("ca.pem")),
        require_client_cert: true,
    };
    let bench = Bench::with(|options| options.tls = Some(tls));
    let url = &bench.server.url;
    assert!(health(url, trusting(&ours)).is_err());
    assert!(health(url, trusting(&ours).identity(theirs.identity("ana"))).is_err());
    assert_eq!(health(url, trusting(&ours).identity(ours.identity("ana"))).unwrap(), 200);
}
