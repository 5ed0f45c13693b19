//! Servers with TLS: incomplete options are refused, the owner finds the server with any certificate name, and
//! clients connect with client certificates.

use crate::common::{Output, Sandbox, eventually, kill};
use crate::serve::{StoppedOnDrop, found};
use std::net::TcpListener;
use std::process::Command;

/// Runs the `openssl` program in the directory of the test.
fn openssl(sandbox: &Sandbox, words: &str) {
    let output =
        Command::new("openssl").args(words.split(' ')).current_dir(sandbox.path("")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn authority(sandbox: &Sandbox) {
    openssl(sandbox, "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca");
}

/// Creates `NAME.pem` and `NAME.key`, for a host name other than that of this machine.
fn certify(sandbox: &Sandbox, name: &str) {
    openssl(
        sandbox,
        &format!("req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"),
    );
    sandbox.write("ext", &format!("subjectAltName=DNS:{name}\nextendedKeyUsage=serverAuth,clientAuth\n"));
    let by = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext";
    openssl(sandbox, &format!("x509 -req -in {name}.csr {by} -out {name}.pem"));
}

const HOST: &str = "windlass.example.org";

fn with_certificates() -> Sandbox {
    let sandbox = Sandbox::new();
    authority(&sandbox);
    certify(&sandbox, HOST);
    sandbox.write("w.yaml", "name: w\njobs: [{name: a, command: windlass auth whoami > who.txt}]\n");
    sandbox
}

fn tls(sandbox: &Sandbox) -> [String; 4] {
    let file = |end: &str| sandbox.path(format!("{HOST}.{end}")).display().to_string();
    ["--tls-cert".to_owned(), file("pem"), "--tls-key".to_owned(), file("key")]
}

fn start(sandbox: &Sandbox, more: &[&str]) -> StoppedOnDrop {
    let tls = tls(sandbox);
    let tls: Vec<&str> = tls.iter().map(String::as_str).collect();
    StoppedOnDrop::start(sandbox, &[&["--listen", "0.0.0.0:0"], &tls[..], more].concat())
}

#[test]
fn incomplete_tls_options_are_refused_from_any_source() {
    let sandbox = with_certificates();
    for (setting, missing) in [
        (format!("tls_cert = \"{HOST}.pem\""), "--tls-key"),
        (format!("tls_key = \"{HOST}.key\""), "--tls-cert"),
        ("client_ca = \"ca.pem\"".to_owned(), "--tls-cert"),
    ] {
        sandbox.write("windlass.toml", &format!("[serve]\n{setting}\n"));
        sandbox.windlass(&["serve", "--check"]).exits(2).says(missing).says("incomplete TLS");
        sandbox.windlass(&["serve"]).exits(2).says(missing);
        sandbox.windlass(&["config", "validate"]).exits(2).prints("has no effect without");
    }
    sandbox.write("windlass.toml", "");
    Output::of(sandbox.command(&["serve", "--check"]).env("WINDLASS_SERVE__TLS_KEY", "k"))
        .exits(2)
        .says("--tls-cert");

    // One part on the command line, the other in the settings.
    sandbox
        .write("windlass.toml", &format!("[serve]\ntls_cert = \"{HOST}.pem\"\nrequire_client_cert = true\n"));
    let key = format!("{HOST}.key");
    sandbox.windlass(&["serve", "--check", "--tls-key", &key]).exits(2).says("--client-ca");
    let check = ["serve", "--check", "--listen", "127.0.0.1:0", "--tls-key", &key, "--client-ca", "ca.pem"];
    sandbox.windlass(&check).exits(0).prints("with TLS");
}

#[test]
fn serve_check_reads_every_file_and_binds_port() {
    let sandbox = Sandbox::new();
    sandbox.windlass(&["serve", "--check", "--auth-config", "no.toml"]).exits(2).says("no.toml");
    sandbox.write("auth.toml", "[roles]\nbob = \"usr\"\n");
    sandbox.windlass(&["serve", "--check", "--auth-config", "auth.toml"]).exits(2).says("auth.toml");
    sandbox.windlass(&["serve", "--check", "--password-file", "no.pw"]).exits(2).says("no.pw");
    sandbox.write("bad.pw", "nonsense\n");
    sandbox.windlass(&["serve", "--check", "--password-file", "bad.pw"]).exits(2).says("bad.pw");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    sandbox.windlass(&["serve", "--check", "--listen", &port]).exits(0).says("is in use");
    sandbox.windlass(&["serve", "--check", "--listen", "8.8.8.8:9443"]).exits(5).says("cannot listen");
    sandbox.windlass(&["serve", "--check", "--listen", "0.0.0.0:0"]).exits(0).says("in clear text");
    for level in ["verbose", "info,loud"] {
        sandbox.windlass(&["serve", "--check", "--log-level", level]).exits(2).says("log level");
    }
    sandbox.write("windlass.toml", "[serve]\nlog_level = \"verbose\"\n");
    sandbox.windlass(&["config", "validate"]).exits(2).prints("log level");
}

#[test]
fn owner_finds_server_with_any_certificate_name() {
    let sandbox = with_certificates();
    let served = start(&sandbox, &[]);
    let server = found(&sandbox);
    assert!(server["url"].as_str().unwrap().starts_with("https://127.0.0.1:"), "{server}");
    sandbox.windlass(&["auth", "whoami"]).exits(0).prints("tester, admin");
    sandbox
        .windlass(&[
            "auth", "token", "create", "--name", "t", "--user", "bob", "--role", "user", "--scope", "write",
        ])
        .exits(0);
    // Jobs find the server too.
    sandbox.windlass(&["run", "w.yaml"]).exits(0);
    let who = sandbox.read("who.txt");
    assert!(who.starts_with("tester, user") && who.contains("by job"), "{who}");

    // After a reload the server shows another certificate: the new one is trusted, the old one no longer.
    let old = sandbox.read(".windlass/windlass.db.run/server.pem");
    certify(&sandbox, HOST);
    kill(served.pid(), "HUP");
    eventually("the new certificate is kept", || sandbox.read(".windlass/windlass.db.run/server.pem") != old);
    sandbox.windlass(&["auth", "whoami"]).exits(0);
    sandbox.write(".windlass/windlass.db.run/server.pem", &old);
    sandbox.windlass(&["auth", "whoami"]).exits(5).says("is unreachable").says(&served.pid().to_string());
    served.stop();
}

#[test]
fn client_without_certificate_is_refused_and_stores_nothing() {
    let sandbox = with_certificates();
    certify(&sandbox, "tester");
    let served = start(&sandbox, &["--client-ca", "ca.pem", "--require-client-cert"]);
    sandbox.windlass(&["auth", "whoami"]).exits(5).says("is unreachable").says("--cert");
    sandbox.windlass(&["run", "w.yaml"]).exits(5).says("--cert");
    sandbox.windlass(&["auth", "whoami", "--key", "tester.key"]).exits(2).says("--cert");

    let shown = ["--cert", "tester.pem", "--key", "tester.key"];
    sandbox.windlass(&[&["whoami"], &shown[..]].concat()).exits(0).prints("tester");
    assert_eq!(sandbox.json(&[&["list"], &shown[..]].concat()), serde_json::json!([]));
    let with_variables = |args: &[&str]| {
        let mut command = sandbox.command(args);
        command.env("WINDLASS_CERT", "tester.pem").env("WINDLASS_KEY", "tester.key");
        Output::of(&mut command)
    };
    with_variables(&["submit", "w.yaml"]).exits(0);
    with_variables(&["worker", "-w", "last"]).exits(0).says("1 job completed");
    assert!(sandbox.read("who.txt").contains("tester"), "{}", sandbox.read("who.txt"));
    sandbox.write("windlass.toml", "cert = \"tester.pem\"\nkey = \"tester.key\"\n");
    sandbox.windlass(&["status"]).exits(0).prints("1 of 1 job completed");
    served.stop();
}

#[test]
fn connection_errors_have_hints() {
    let sandbox = with_certificates();
    let served = start(&sandbox, &[]);
    let url = found(&sandbox)["url"].as_str().unwrap().replace("127.0.0.1", "127.0.0.2");
    let elsewhere = Sandbox::new();
    let ask = |url: &str| elsewhere.windlass(&["--url", url, "list"]).exits(5);
    ask(&url).says("--ca-file");
    ask(&url.replace("https", "http")).says("https://");
    let ca = sandbox.path("ca.key").display().to_string();
    elsewhere.windlass(&["--url", &url, "--ca-file", &ca, "list"]).exits(5).says("contains no certificate");
    served.stop();
    let plain = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    let url = found(&sandbox)["url"].as_str().unwrap().to_owned();
    ask(&url.replace("http", "https")).says("use an address with http://");
    // The form of the URL that Torc's clients use.
    let token = sandbox.read(".windlass/windlass.db.run/owner.token");
    let named = format!("{url}/torc-service/v1");
    Output::of(elsewhere.command(&["--url", &named, "list"]).env("WINDLASS_TOKEN", token.trim())).exits(0);
    plain.stop();
}
