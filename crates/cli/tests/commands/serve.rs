//! `windlass serve` with the real binary: how it is found, its notifications to systemd, and how it stops.

use crate::common::{Output, Sandbox, eventually, kill};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Stdio};
use std::time::Duration;

const SERVER_FILE: &str = ".windlass/windlass.db.run/server.json";

/// A server that is stopped when the test ends, also by a panic.
pub(crate) struct StoppedOnDrop(Child);

impl Drop for StoppedOnDrop {
    fn drop(&mut self) {
        // The process may have exited already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl StoppedOnDrop {
    pub(crate) fn start(sandbox: &Sandbox, args: &[&str]) -> Self {
        let mut command = sandbox.command(&[&["serve"], args].concat());
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut this = Self(child);
        eventually("it says where it is", || {
            assert!(this.0.try_wait().unwrap().is_none(), "it ended: {}", this.said());
            sandbox.path(SERVER_FILE).exists()
        });
        this
    }

    /// Starts a server in place of one that was killed.
    pub(crate) fn again(killed: Self, sandbox: &Sandbox, args: &[&str]) -> Self {
        drop(killed);
        std::fs::remove_file(sandbox.path(SERVER_FILE)).unwrap();
        Self::start(sandbox, args)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    fn said(&mut self) -> String {
        let mut text = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    pub(crate) fn stop(mut self) -> String {
        kill(self.0.id(), "TERM");
        assert_eq!(self.0.wait().unwrap().code(), Some(0));
        self.said()
    }
}

/// The server file beside its database.
pub(crate) fn found(sandbox: &Sandbox) -> Value {
    serde_json::from_str(&sandbox.read(SERVER_FILE)).unwrap()
}

/// The status line and the body of a GET.
fn get(server: &Value, path: &str, token: &str) -> String {
    call(server, "GET", path, token, "")
}

/// The response to a call of the Torc API, made by the owner.
pub(crate) fn said_by_torc(sandbox: &Sandbox, method: &str, path: &str, body: &Value) -> Value {
    let server = found(sandbox);
    let path = format!("/torc-service/v1{path}");
    let answer = call(&server, method, &path, server["token"].as_str().unwrap(), &body.to_string());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    serde_json::from_str(body).unwrap()
}

fn call(server: &Value, method: &str, path: &str, token: &str, body: &str) -> String {
    let address = server["url"].as_str().unwrap().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn server_is_discovered_admits_owner_and_stops_cleanly() {
    let sandbox = Sandbox::new();
    let served = StoppedOnDrop::start(&sandbox, &[]);
    let server = found(&sandbox);
    assert!(get(&server, "/health", "").starts_with("HTTP/1.1 200"));
    assert!(get(&server, "/metrics", "").starts_with("HTTP/1.1 401"));
    assert!(get(&server, "/metrics", server["token"].as_str().unwrap()).starts_with("HTTP/1.1 200"));
    let said = served.stop();
    assert!(said.contains("serving") && said.contains("all changes are on disk"), "{said}");
    assert!(!said.contains(server["token"].as_str().unwrap()), "{said}");
    assert!(!sandbox.path(SERVER_FILE).exists());
    let again = StoppedOnDrop::start(&sandbox, &[]);
    assert_ne!(found(&sandbox)["token"], server["token"], "each server has its own");
    again.stop();
}

/// As for a worker in an allocation: outside of the server's directory, with only the name of the token file.
#[test]
fn token_is_read_from_file() {
    let sandbox = Sandbox::new();
    let served = StoppedOnDrop::start(&sandbox, &[]);
    let server = found(&sandbox);
    let url = server["url"].as_str().unwrap();
    let elsewhere = Sandbox::new();
    elsewhere.write("right", &format!("{}\n", server["token"].as_str().unwrap()));
    elsewhere.write("wrong", "no-such-token");
    elsewhere.write("empty", "\n");
    let list = |file: Option<&str>, said: Option<&str>| {
        let mut command = elsewhere.command(&["list", "--url", url]);
        command.envs(file.map(|file| ("WINDLASS_TOKEN_FILE", elsewhere.path(file))));
        command.envs(said.map(|token| ("WINDLASS_TOKEN", token)));
        Output::of(&mut command)
    };
    list(Some("right"), None).exits(0);
    for file in [Some("wrong"), Some("empty"), Some("missing"), None] {
        assert_ne!(list(file, None).code, 0, "{file:?}");
    }
    // A token in the environment overrides the file.
    assert_ne!(list(Some("right"), Some("no-such-token")).code, 0);
    served.stop();
}

/// The address alone is enough for the owner, in any directory; a login takes precedence over the owner's token.
#[test]
fn server_is_found_by_its_address_from_any_directory() {
    let sandbox = Sandbox::new();
    let served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    let url = found(&sandbox)["url"].as_str().unwrap().to_owned();
    std::fs::create_dir(sandbox.path("elsewhere")).unwrap();
    let user = || {
        let mut command = sandbox.command(&["auth", "whoami", "--format", "json"]);
        let output =
            Output::of(command.current_dir(sandbox.path("elsewhere")).env("WINDLASS_URL", &url)).exits(0);
        serde_json::from_str::<Value>(&output.stdout).unwrap()["user"].clone()
    };
    assert_eq!(user(), "tester");
    let made = sandbox.json(&[
        "auth", "token", "create", "--name", "t", "--user", "ana", "--role", "user", "--scope", "read",
    ]);
    let mut login = sandbox.command(&["auth", "login", &url]);
    let mut login = login.stdin(Stdio::piped()).spawn().unwrap();
    login.stdin.take().unwrap().write_all(made["token"].as_str().unwrap().as_bytes()).unwrap();
    assert!(login.wait().unwrap().success());
    assert_eq!(user(), "ana");
    served.stop();
}

#[test]
fn database_file_has_one_server() {
    let sandbox = Sandbox::new();
    let served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    let second = sandbox.windlass(&["serve", "--listen", "127.0.0.1:0"]).exits(4);
    assert!(second.stderr.contains("the database is in use by process"), "{}", second.stderr);
    assert!(!second.stderr.contains("serving"), "{}", second.stderr);
    served.stop();
}

#[test]
fn busy_default_port_falls_back_to_another() {
    let taken = TcpListener::bind("127.0.0.1:8080");
    let sandbox = Sandbox::new();
    let served = StoppedOnDrop::start(&sandbox, &[]);
    assert!(get(&found(&sandbox), "/health", "").starts_with("HTTP/1.1 200"));
    served.stop();
    drop(taken);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    sandbox.windlass(&["serve", "--listen", &port]).exits(5).says("cannot listen").says("--listen");
}

#[test]
fn systemd_is_notified_of_state() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let hear = || {
        let mut text = [0; 200];
        let length = systemd.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let mut command = sandbox.command(&["serve", "--listen", "127.0.0.1:0", "--log-format", "json"]);
    let child =
        command.env("NOTIFY_SOCKET", &path).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let served = StoppedOnDrop(child);
    assert_eq!(hear(), "READY=1\nSTATUS=active");
    kill(served.0.id(), "HUP");
    assert_eq!((hear(), hear()), ("RELOADING=1".to_owned(), "READY=1".to_owned()));
    let said = served.stop();
    assert_eq!(hear(), "STOPPING=1");
    let logged = said.lines().filter(|line| line.starts_with('{'));
    let messages: Vec<Value> = logged.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(messages.iter().any(|line| line["message"] == "serving"), "{said}");
}

#[test]
fn serve_settings_and_files_are_checked_before_start() {
    let sandbox = Sandbox::new();
    sandbox.write("windlass.toml", "[serve]\nlisten = \"127.0.0.1:8443\"\nlease = \"30s\"\n");
    let view = sandbox.json(&["serve", "--check"]);
    assert_eq!(view["listen"], "127.0.0.1:8443");
    sandbox.write("windlass.toml", "[serve]\nlease = \"1s\"\n");
    sandbox.windlass(&["serve", "--check"]).exits(2).says("at least 2s");
    sandbox.write("windlass.toml", "");
    sandbox.write("c.pem", "no certificate");
    sandbox
        .windlass(&["serve", "--check", "--tls-cert", "c.pem", "--tls-key", "c.pem"])
        .exits(2)
        .says("c.pem")
        .says("PEM");
    sandbox.windlass(&["serve", "--check", "--tls-cert", "c.pem"]).exits(2).says("--tls-key");
    assert!(!sandbox.path(".windlass").exists());
}

/// What requests need besides the server: named files, programs, schedds.
#[test]
fn serve_check_covers_request_files_and_schedds() {
    let sandbox = Sandbox::new();
    sandbox.write("empty.pem", "");
    sandbox.write("bell", "#!/bin/sh\n");
    let condor = ["serve", "--check", "--listen", "127.0.0.1:0", "--backend", "htcondor"];
    let with = |more: &[&'static str]| [&condor[..], more].concat();
    sandbox.windlass(&with(&["--proxy", "/nope"])).exits(2).says("--proxy").says("/nope");
    sandbox.windlass(&with(&["--token", "empty.pem"])).exits(2).says("--token").says("is empty");
    sandbox.windlass(&with(&["--schedd", "nowhere.example"])).exits(2).says("run on HTCondor");
    sandbox.windlass(&["serve", "--check", "--alert-program", "bell"]).exits(2).says("chmod +x");
    for directory in ["bell", "bell/requests", "/proc/requests"] {
        sandbox.windlass(&["serve", "--check", "--requests-dir", directory]).exits(2).says("--requests-dir");
    }
    let new = ["serve", "--check", "--listen", "127.0.0.1:0", "--requests-dir", "new/requests"];
    sandbox.windlass(&new).exits(0);
    sandbox.windlass(&["serve", "--check", "--throttle", "Procesing=5"]).exits(2).says("Processing");
    sandbox.windlass(&["serve", "--check", "--throttle", "Merge=5", "--mc-completion", "offset"]).exits(0);
    assert!(!sandbox.path(".windlass").exists());
}

#[test]
fn serve_check_queries_slurm() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "bin/sinfo",
        "#!/bin/sh\necho 'slurm_load_partitions: Unable to contact slurm controller' >&2\nexit 1\n",
    );
    std::fs::set_permissions(sandbox.path("bin/sinfo"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut check = sandbox.command(&["serve", "--check", "--listen", "127.0.0.1:0", "--slurm"]);
    check.env("PATH", format!("{}:/usr/bin:/bin", sandbox.path("bin").display()));
    let checked = Output::of(&mut check).says("sinfo").says("Unable to contact slurm controller");
    assert_ne!(checked.code, 0);
}

#[test]
fn incomplete_tls_settings_never_serve_plain_http() {
    let sandbox = Sandbox::new();
    for (said, missing) in [
        ("tls_cert = \"c.pem\"", "--tls-key"),
        ("tls_key = \"k.pem\"", "--tls-cert"),
        ("client_ca = \"ca.pem\"", "--tls-cert and --tls-key"),
    ] {
        sandbox.write("windlass.toml", &format!("[serve]\n{said}\n"));
        for check in [&["serve", "--check"][..], &["serve", "--listen", "0"][..]] {
            sandbox.windlass(check).exits(2).says(missing).says("incomplete TLS");
        }
    }
    sandbox.windlass(&["serve", "--check", "--require-client-cert"]).exits(2).says("--client-ca");
    // One part from the settings, the other as an option: both are combined, and read.
    sandbox.write("windlass.toml", "[serve]\ntls_cert = \"c.pem\"\n");
    sandbox.write("c.pem", "no certificate");
    sandbox.windlass(&["serve", "--check", "--tls-key", "c.pem"]).exits(2).says("c.pem").says("PEM");
    assert!(!sandbox.path(".windlass").exists());
}

#[test]
fn serve_check_reads_all_files_and_tries_port() {
    let sandbox = Sandbox::new();
    sandbox.write("auth.toml", "[roles]\nbob = \"usr\"\n");
    sandbox.write("users", "rubbish\n");
    sandbox.windlass(&["serve", "--check", "--auth-config", "no.toml"]).exits(2).says("no.toml");
    sandbox.windlass(&["serve", "--check", "--auth-config", "auth.toml"]).exits(2).says("usr");
    sandbox.windlass(&["serve", "--check", "--password-file", "no.pw"]).exits(2).says("no.pw");
    sandbox.windlass(&["serve", "--check", "--password-file", "users"]).exits(2).says("line 1");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    sandbox.windlass(&["serve", "--check", "--listen", &listen]).exits(0).says("is in use");
    sandbox
        .windlass(&["serve", "--check", "--listen", "192.0.2.1:9443"])
        .says("cannot listen at 192.0.2.1:9443");
    sandbox.windlass(&["serve", "--check", "--listen", "0.0.0.0:0"]).exits(0).says("in clear text");
}

#[test]
fn systemd_unit_names_the_program_as_it_was_called() {
    let sandbox = Sandbox::new();
    let link = sandbox.path("windlass-link");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_windlass"), &link).unwrap();
    let mut command = std::process::Command::new(&link);
    let output =
        command.args(["serve", "--print-systemd-unit"]).current_dir(sandbox.path("")).output().unwrap();
    let unit = String::from_utf8(output.stdout).unwrap();
    assert!(unit.contains(&format!("ExecStart={} serve", link.display())), "{unit}");
}

#[test]
fn systemd_unit_has_given_options() {
    let sandbox = Sandbox::new();
    sandbox
        .windlass(&[
            "serve",
            "--print-systemd-unit",
            "--listen",
            "0.0.0.0:8443",
            "--tls-cert",
            "c",
            "--tls-key",
            "k",
            "--max-requests",
            "9",
            "--mcp",
            "--on-similar-failures=hold",
            "--tape-rse",
            "tape a",
        ])
        .exits(0)
        .prints("Type=notify")
        .prints("User=tester")
        .prints("--listen=0.0.0.0:8443 \"--tape-rse=tape a\" --tls-cert=/")
        .prints("/k --max-requests=9 --mcp=read --on-similar-failures=hold\n")
        .prints("ProtectSystem=strict")
        .prints("ReadWritePaths=/");
    let slurm = ["serve", "--print-systemd-unit", "--slurm", "--slurm-windlass", "/shared/windlass"];
    sandbox
        .windlass(&[&slurm[..], &["--slurm-poll", "10s", "--slurm-calls", "30"]].concat())
        .exits(0)
        .prints("--slurm --slurm-windlass=/shared/windlass --slurm-poll=10s --slurm-calls=30\n")
        // Allocations write into the directories of workflows.
        .prints("ProtectSystem=full");
}
