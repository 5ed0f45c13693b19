//! TLS, with certificates made by the `openssl` program and reloaded while the server runs.

use crate::test_server::Fixture;
use reqwest::blocking::Client;
use reqwest::{Certificate, Identity};
use std::path::{Path, PathBuf};
use std::process::Command;
use windlass_server::options::ServerTlsOptions;

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

    /// Issues a certificate for the server on loopback, or for a client.
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

    /// Issues a certificate with this subject (a section of an OpenSSL configuration), in this string type.
    fn certify_as(&self, name: &str, subject: &str, mask: &str) {
        let config = format!(
            "[req]\nprompt=no\nutf8=yes\nstring_mask={mask}\ndistinguished_name=dn\n[dn]\n{subject}\n"
        );
        std::fs::write(self.0.join("subject.cnf"), config).unwrap();
        let (key, request, cert) = (format!("{name}.key"), format!("{name}.csr"), format!("{name}.pem"));
        self.openssl(&[
            "req",
            "-new",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-config",
            "subject.cnf",
            "-keyout",
            &key,
            "-out",
            &request,
        ]);
        std::fs::write(self.0.join("ext"), "extendedKeyUsage=clientAuth\n").unwrap();
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

    /// A revocation list with this certificate.
    fn revoke(&self, name: &str) {
        let config = "[ca]\ndefault_ca=own\n[own]\ndatabase=index.txt\ncrlnumber=crlnumber\ndefault_md=sha256\n\
                      default_crl_days=2\ncertificate=ca.pem\nprivate_key=ca.key\n";
        std::fs::write(self.0.join("ca.cnf"), config).unwrap();
        std::fs::write(self.0.join("index.txt"), "").unwrap();
        std::fs::write(self.0.join("crlnumber"), "01\n").unwrap();
        self.openssl(&["ca", "-config", "ca.cnf", "-revoke", &format!("{name}.pem")]);
        self.openssl(&["ca", "-config", "ca.cnf", "-gencrl", "-out", "crl.pem"]);
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
fn reloaded_certificates_apply_to_new_connections() {
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
    let tls = ServerTlsOptions {
        cert: cert.clone(),
        key: key.clone(),
        client_ca: None,
        client_crl: Vec::new(),
        require_client_cert: false,
    };
    let fixture = Fixture::with(|options| options.tls = Some(tls));
    let url = &fixture.server.url;
    assert!(url.starts_with("https://"));
    assert_eq!(health(url, trusting(&first)).unwrap(), 200);
    assert!(health(url, trusting(&second)).is_err());
    install(&second);
    fixture.server.reload().unwrap();
    assert_eq!(health(url, trusting(&second)).unwrap(), 200);
    assert!(health(url, trusting(&first)).is_err());
    // An invalid file changes nothing.
    std::fs::write(&cert, "rubbish").unwrap();
    fixture.server.reload().unwrap_err();
    assert_eq!(health(url, trusting(&second)).unwrap(), 200);
}

#[test]
fn required_client_certificates_must_be_of_the_authority() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (Authority::new(dir.path(), "ours"), Authority::new(dir.path(), "theirs"));
    ours.certify("server");
    ours.certify("ana");
    theirs.certify("ana");
    let tls = ServerTlsOptions {
        cert: ours.file("server.pem"),
        key: ours.file("server.key"),
        client_ca: Some(ours.file("ca.pem")),
        client_crl: Vec::new(),
        require_client_cert: true,
    };
    let fixture = Fixture::with(|options| options.tls = Some(tls));
    let url = &fixture.server.url;
    assert!(health(url, trusting(&ours)).is_err());
    assert!(health(url, trusting(&ours).identity(theirs.identity("ana"))).is_err());
    assert_eq!(health(url, trusting(&ours).identity(ours.identity("ana"))).unwrap(), 200);
}

/// A server with this auth file that accepts client certificates of these CAs.
fn known_by(ours: &Authority, authorities: &[&Authority], lists: Vec<PathBuf>, auth: &str) -> Fixture {
    let all: String =
        authorities.iter().map(|one| std::fs::read_to_string(one.file("ca.pem")).unwrap()).collect();
    std::fs::write(ours.file("all.pem"), all).unwrap();
    std::fs::write(ours.file("auth.toml"), auth).unwrap();
    let tls = ServerTlsOptions {
        cert: ours.file("server.pem"),
        key: ours.file("server.key"),
        client_ca: Some(ours.file("all.pem")),
        client_crl: lists,
        require_client_cert: false,
    };
    let auth = ours.file("auth.toml");
    Fixture::with(move |options| (options.tls, options.auth_config) = (Some(tls), Some(auth)))
}

/// The user of this certificate, or the error code.
fn me(fixture: &Fixture, server: &Authority, client: &Authority, name: &str) -> String {
    let client = trusting(server).identity(client.identity(name)).build().unwrap();
    let answer = client.get(format!("{}/api/v1/me", fixture.server.url)).send().unwrap();
    let body: serde_json::Value = answer.json().unwrap();
    body["user"].as_str().or(body["code"].as_str()).unwrap().to_owned()
}

#[test]
fn subject_with_unreadable_part_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new(dir.path(), "ours");
    ours.certify("server");
    ours.certify_as("ana", "CN=ana", "utf8only");
    ours.certify_as("bmp", "0.OU=\u{e9}t\u{e9}\nCN=ana", "pkix");
    ours.certify_as("t61", "0.OU=\u{e9}t\u{e9}\nCN=ana", "nombstr");
    ours.certify_as("both", "CN=ana\n+OU=x", "utf8only");
    let fixture = known_by(&ours, &[&ours], Vec::new(), "[certificates]\n'CN=ana' = 'ana'\n");
    assert_eq!(me(&fixture, &ours, &ours, "ana"), "ana");
    for name in ["bmp", "t61", "both"] {
        assert_eq!(me(&fixture, &ours, &ours, name), "bad_credentials", "{name}");
    }
}

#[test]
fn token_expires_with_its_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new(dir.path(), "ours");
    ours.certify("server");
    ours.certify_as("ana", "CN=ana", "utf8only");
    let fixture = known_by(&ours, &[&ours], Vec::new(), "[certificates]\n'CN=ana' = 'ana'\n");
    let client = trusting(&ours).identity(ours.identity("ana")).build().unwrap();
    let make = |new: serde_json::Value| -> serde_json::Value {
        client
            .post(format!("{}/api/v1/tokens", fixture.server.url))
            .json(&new)
            .send()
            .unwrap()
            .json()
            .unwrap()
    };
    make(serde_json::json!({"name": "lasting", "scopes": ["read"]}));
    let kept = fixture.store.tokens(Some("ana")).unwrap();
    let days =
        kept[0].expires_at.expect("it ends").since(windlass_types::SystemClock.now()).as_secs() / 86_400;
    assert_eq!(days, 1, "within the two days of the certificate");
    let refused = make(serde_json::json!({"name": "longer", "scopes": ["read"], "expires_in": 864_000}));
    assert!(refused["detail"].as_str().unwrap().contains("outlive"), "{refused}");
}

#[test]
fn revoked_certificate_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new(dir.path(), "ours");
    ours.certify("server");
    ours.certify_as("ana", "CN=ana", "utf8only");
    ours.certify_as("bob", "CN=bob", "utf8only");
    ours.revoke("ana");
    let auth = "[certificates]\n'CN=ana' = 'ana'\n'CN=bob' = 'bob'\n";
    let fixture = known_by(&ours, &[&ours], vec![ours.file("crl.pem")], auth);
    assert_eq!(me(&fixture, &ours, &ours, "bob"), "bob");
    assert!(health(&fixture.server.url, trusting(&ours).identity(ours.identity("ana"))).is_err());
    assert_eq!(health(&fixture.server.url, trusting(&ours)).unwrap(), 200, "without a certificate");
}

#[test]
fn subjects_are_bound_to_their_authority() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (Authority::new(dir.path(), "ours"), Authority::new(dir.path(), "theirs"));
    ours.certify("server");
    ours.certify_as("ana", "CN=ana", "utf8only");
    theirs.certify_as("ana", "CN=ana", "utf8only");
    let auth = "[certificates]\n'CN=ana' = { user = 'ana', ca = 'ca.pem' }\n";
    let fixture = known_by(&ours, &[&ours, &theirs], Vec::new(), auth);
    assert_eq!(me(&fixture, &ours, &ours, "ana"), "ana");
    assert_eq!(me(&fixture, &ours, &theirs, "ana"), "bad_credentials");
}
