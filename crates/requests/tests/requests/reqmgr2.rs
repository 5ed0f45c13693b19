//! Fetches a request from ReqMgr2 by its name: over HTTP as it answers, and over TLS as `openssl` speaks it.

use crate::reqmgr2_stub::{Reqmgr2Stub, StubResponse};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use windlass_requests::{Reqmgr2Client, Reqmgr2Error};

fn document(name: &str) -> Value {
    json!({"RequestName": name, "RequestType": "ReReco", "Memory": 2000})
}

#[test]
fn request_is_fetched_by_name() {
    let stub = Reqmgr2Stub::start();
    stub.has("user_r_1", &document("user_r_1"));
    assert_eq!(Reqmgr2Client::from_url(&stub.url).fetch_request("user_r_1").unwrap(), document("user_r_1"));
    let heard = stub.heard().concat().to_lowercase();
    assert!(heard.contains("accept: application/json") && !heard.contains("authorization"), "{heard}");
    let error = Reqmgr2Client::from_url(&stub.url).fetch_request("user_r_2").unwrap_err();
    assert!(error.to_string().ends_with("has no request of that name: `user_r_2`"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "abc\n").unwrap();
    Reqmgr2Client { token: Some(token), ..Reqmgr2Client::from_url(&stub.url) }
        .fetch_request("user_r_1")
        .unwrap();
    assert!(stub.heard()[2].contains("authorization: Bearer abc\r\n"), "{:?}", stub.heard());
}

#[test]
fn only_transient_reqmgr2_errors_are_retried() {
    let stub = Reqmgr2Stub::start();
    stub.has("a", &document("a"));
    let page = || "<html>".to_owned();
    stub.says_first([
        StubResponse(503, "", page()),
        StubResponse(500, "x-error-detail: database\r\n", page()),
    ]);
    assert_eq!(Reqmgr2Client::from_url(&stub.url).fetch_request("a").unwrap(), document("a"));
    assert_eq!(stub.heard().len(), 3);
    for (said, words) in [
        (StubResponse(403, "x-error-detail: no role\r\n", page()), "denies access: 403: no role"),
        (StubResponse(302, "location: https://login\r\n", page()), "redirecting to https://login"),
        (StubResponse(400, "", page()), "rejects the query: it answers 400"),
        (StubResponse(404, "", page()), "answers 404"),
        (StubResponse(200, "", page()), "it is an HTML page"),
    ] {
        let before = stub.heard().len();
        stub.says_first([said]);
        let error = Reqmgr2Client::from_url(&stub.url).fetch_request("a").unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(stub.heard().len(), before + 1, "{error}");
    }
}

#[test]
fn unreachable_reqmgr2_times_out() {
    let away = Reqmgr2Client {
        timeout: Duration::from_millis(700),
        ..Reqmgr2Client::from_url("http://127.0.0.1:1/reqmgr2".to_owned())
    };
    let error = away.fetch_request("a").unwrap_err();
    assert!(matches!(error, Reqmgr2Error::Unreachable { .. }), "{error}");
    // It listens, and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/reqmgr2", silent.local_addr().unwrap());
    let error = Reqmgr2Client { url, ..away }.fetch_request("a").unwrap_err();
    assert!(matches!(error, Reqmgr2Error::Unreachable { .. }), "{error}");
}

/// Certificates, and a server that requires one.
struct TlsServer {
    dir: tempfile::TempDir,
    server: Child,
    url: String,
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        drop(self.server.kill());
        drop(self.server.wait());
    }
}

fn openssl(dir: &Path, line: &str) {
    let output = Command::new("openssl").args(line.split(' ')).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "openssl {line}: {}", String::from_utf8_lossy(&output.stderr));
}

fn certify(dir: &Path, name: &str, issuer: &str, extensions: &str, subject: &str) {
    std::fs::write(dir.join("ext"), extensions).unwrap();
    openssl(dir, &format!("req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj {subject}"));
    openssl(
        dir,
        &format!(
            "x509 -req -in {name}.csr -CA {issuer}.pem -CAkey {issuer}.key -CAcreateserial -out {name}.pem -days 2 -extfile ext"
        ),
    );
}

impl TlsServer {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        openssl(
            path,
            "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca -addext basicConstraints=critical,CA:TRUE",
        );
        certify(
            path,
            "server",
            "ca",
            "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n",
            "/CN=server",
        );
        certify(path, "ana", "ca", "keyUsage=digitalSignature\n", "/CN=ana");
        let proxy = "proxyCertInfo=critical,language:id-ppl-inheritAll,pathlen:0\nkeyUsage=critical,digitalSignature\n";
        certify(path, "proxy", "ana", proxy, "/CN=ana/CN=1");
        let part = |name: &str| std::fs::read_to_string(path.join(name)).unwrap();
        // As the grid writes them: the proxy, its key, and its issuer.
        let whole = [part("proxy.pem"), part("proxy.key"), part("ana.pem")].concat();
        std::fs::write(path.join("x509up"), whole).unwrap();
        let answer = json!({"result": [{"a": document("a")}]}).to_string();
        std::fs::create_dir_all(path.join("reqmgr2/data")).unwrap();
        std::fs::write(path.join("reqmgr2/data/request?name=a"), answer).unwrap();
        let words = "s_server -accept 127.0.0.1:0 -cert server.pem -key server.key -CAfile ca.pem -Verify 3 \
                     -verify_return_error -allow_proxy_certs -WWW";
        let mut server = Command::new("openssl")
            .args(words.split_whitespace())
            .current_dir(path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // `ACCEPT 127.0.0.1:34567`
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let address =
            lines.find_map(|line| line.unwrap().strip_prefix("ACCEPT ").map(str::to_owned)).unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Self { dir, server, url: format!("https://{address}/reqmgr2") }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn reqmgr2(&self, cert: Option<&str>, key: Option<&str>, authorities: Option<&str>) -> Reqmgr2Client {
        let path = |name: Option<&str>| name.map(|name| self.file(name));
        let (cert, key, authorities) = (path(cert), path(key), path(authorities));
        Reqmgr2Client { cert, key, authorities, ..Reqmgr2Client::from_url(&self.url) }
    }
}

#[test]
fn reqmgr2_uses_client_certificate_or_proxy_and_ca() {
    let secured = TlsServer::start();
    // A directory of certificate authorities as on the grid, with many other files in it.
    let authorities = secured.file("certificates");
    std::fs::create_dir(&authorities).unwrap();
    std::fs::copy(secured.file("ca.pem"), authorities.join("0a1b2c3d.0")).unwrap();
    std::fs::write(authorities.join("broken.pem"), "-----BEGIN CERTIFICATE-----\nxx\n").unwrap();
    std::fs::write(authorities.join("0a1b2c3d.signing_policy"), "access_id_CA").unwrap();
    for (cert, key, ca) in
        [("ana.pem", Some("ana.key"), "ca.pem"), ("x509up", None, "ca.pem"), ("x509up", None, "certificates")]
    {
        let reqmgr2 = secured.reqmgr2(Some(cert), key, Some(ca));
        reqmgr2.check().unwrap();
        assert_eq!(reqmgr2.fetch_request("a").unwrap(), document("a"), "{cert} {ca}");
    }
    let (known, no_certificate) = (Some("ca.pem"), None);
    for (reqmgr2, words) in [
        (secured.reqmgr2(Some("x509up"), None, None), "UnknownIssuer"),
        (secured.reqmgr2(no_certificate, None, known), "TLS with ReqMgr2"),
    ] {
        let error = reqmgr2.fetch_request("a").unwrap_err();
        assert!(
            matches!(error, Reqmgr2Error::UntrustedServer { .. }) && error.to_string().contains(words),
            "{error}"
        );
    }
    for (reqmgr2, words) in [
        (secured.reqmgr2(Some("gone"), None, known), "gone: cannot be read"),
        (secured.reqmgr2(Some("ana.pem"), None, known), "ana.pem: it contains no private key in PEM"),
        (secured.reqmgr2(Some("ana.key"), None, known), "ana.key: it contains no certificate in PEM"),
        (secured.reqmgr2(None, None, Some("reqmgr2")), "it contains no certificate of an authority in PEM"),
    ] {
        let error = reqmgr2.check().unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}
