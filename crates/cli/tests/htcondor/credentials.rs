//! Credentials of jobs for storage: a proxy and a token, as they reach a real job.

use crate::queries::{await_completion, directory, last};
use crate::step_commands::submit;
use crate::support::{Pool, Work};
use crate::test_server::{HOMES, TestServer, fails_with};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

/// A signed certificate, and a proxy made from it, as `voms-proxy-init` does.
fn make_proxy(work: &Work) {
    let openssl = |words: &str| {
        let made = Command::new("openssl").args(words.split(' ')).current_dir(work.path()).output().unwrap();
        assert!(made.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&made.stderr));
    };
    let new = "req -newkey rsa:2048 -nodes";
    openssl(&format!("{new} -x509 -keyout ca.key -out ca.pem -days 2 -subj /DC=test/CN=ca"));
    openssl(&format!("{new} -keyout ana.key -out ana.csr -subj /DC=test/CN=Ana"));
    openssl("x509 -req -in ana.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out ana.pem -days 2");
    openssl(&format!("{new} -keyout proxy.key -out proxy.csr -subj /DC=test/CN=Ana/CN=1234"));
    work.write("proxy.ext", "proxyCertInfo=critical,language:id-ppl-inheritAll\n");
    openssl(
        "x509 -req -in proxy.csr -CA ana.pem -CAkey ana.key -set_serial 1234 -out proxy.pem -days 1 -extfile proxy.ext",
    );
    let whole = ["proxy.pem", "proxy.key", "ana.pem"].map(|part| work.read(part)).concat();
    secret(work, "x509up", &whole);
}

fn secret(work: &Work, name: &str, text: &str) {
    let path = work.write(name, text);
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn condor_jobs_get_proxy_and_token() {
    // A new pool is configured to transfer proxies; the shared one may be older than that configuration.
    let pool = Pool::private();
    let keys = pool.work("keys");
    make_proxy(&keys);
    secret(&keys, "token", "token with write permission\n");
    let kept = |name: &str| keys.path().join(name).display().to_string();
    let (proxy, token) = (kept("x509up"), kept("token"));
    let test_server =
        TestServer::open_with(&pool, "carried", &["--cool-off", "1s", "--proxy", &proxy, "--token", &token]);
    test_server.add_files("one", 0..1, "/Muons/One-v1/RAW", &HOMES);
    let check = format!(
        "cmp $X509_USER_PROXY {proxy} && cmp $BEARER_TOKEN_FILE {token} && [ ! $X509_USER_PROXY -ef {proxy} ] || {{ {}; }}",
        fails_with(8501)
    );
    submit(&test_server, "carried", "/Muons/One-v1/RAW", 1, &check);
    await_completion(&test_server, "carried");
    test_server.check_files("carried", 0..1);
    let unit = directory(&last(&test_server, "carried")).join("mg_000000");
    assert!(!unit.join("x509up").exists() && !unit.join("token").exists(), "they are not transferred back");
}
