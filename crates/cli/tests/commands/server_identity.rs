//! A foreign process that listens at a server's old address, and tokens of servers that are gone.

use crate::common::{Output, Sandbox, eventually, kill};
use crate::free_port::free_port;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A process that is killed when the test ends, also by a panic.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have exited already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn serve(sandbox: &Sandbox, listen: &str) -> Process {
    let server = Process(sandbox.start(&["serve", "--listen", listen, "--lease", "2s"]));
    eventually("it serves", || sandbox.windlass(&["ping"]).code == 0);
    server
}

/// For a server that is started again, or replaced.
fn free_address() -> (String, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let url = format!("http://{address}");
    (address, url)
}

fn worker(sandbox: &Sandbox) -> Process {
    let log = std::fs::File::create(sandbox.path("worker.log")).unwrap();
    let mut command = sandbox.command(&["worker", "--persistent", "--state-dir", "state", "-j", "1"]);
    Process(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
}

/// Responds as a server does, and reports the headers of all requests.
fn listen_as_server(address: &str) -> Receiver<String> {
    let listener = TcpListener::bind(address).unwrap();
    let (heads, told) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut head = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while reader.read_line(&mut head).is_ok_and(|length| length > 2) {}
            if heads.send(head.to_lowercase()).is_err() {
                return;
            }
            let body = r#"{"status":"ok","version":"0.1.0","database":"ok","items":[],"total_count":0}"#;
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    told
}

#[test]
fn process_on_reused_server_port_gets_no_token() {
    let sandbox = Sandbox::new();
    let (address, url) = free_address();
    let server = serve(&sandbox, &address);
    let _worker = worker(&sandbox);
    eventually("the worker is there", || sandbox.read("worker.log").contains("worker"));
    kill(server.0.id(), "KILL");
    drop(server);
    let told = listen_as_server(&address);
    // By database, and by address.
    sandbox.windlass(&["list"]);
    Output::of(&mut sandbox.command(&["list", "--url", &url]));
    Output::of(&mut sandbox.command(&["ping", "--url", &url]));
    // An address given explicitly is contacted, but without the token.
    let mut heads = vec![told.recv_timeout(Duration::from_mins(1)).unwrap()];
    heads.extend(told.try_iter());
    assert!(heads.iter().all(|head| !head.contains("authorization")), "{heads:#?}");
}

#[test]
fn restarted_server_has_new_token_and_keeps_worker() {
    let sandbox = Sandbox::new();
    let (address, url) = free_address();
    let first = serve(&sandbox, &address);
    let token = || sandbox.read(".windlass/windlass.db.run/owner.token").trim().to_owned();
    let old = token();
    let _worker = worker(&sandbox);
    sandbox.write("a.yaml", "name: a\njobs: [{name: a, command: echo a}]\n");
    sandbox.windlass(&["submit", "a.yaml"]).exits(0);
    eventually("the worker works", || sandbox.windlass(&["status"]).stdout.contains("1 of 1 job"));
    kill(first.0.id(), "KILL");
    drop(first);
    let _second = serve(&sandbox, &address);
    assert_ne!(old, token());
    let elsewhere = Sandbox::new();
    let list = |token: &str| {
        Output::of(elsewhere.command(&["list", "--url", &url]).env("WINDLASS_TOKEN", token)).code
    };
    assert_eq!((list(&token()), list(&old) == 0), (0, false), "the old one is accepted no more");
    sandbox.write("b.yaml", "name: b\njobs: [{name: b, command: echo b}]\n");
    sandbox.windlass(&["submit", "b.yaml"]).exits(0);
    eventually("the worker goes on", || sandbox.windlass(&["status", "b"]).stdout.contains("1 of 1 job"));
}

#[test]
fn job_has_own_token_and_no_worker_secrets() {
    let sandbox = Sandbox::new();
    let _server = serve(&sandbox, "127.0.0.1:0");
    let mut command = sandbox.command(&["worker", "--state-dir", "state", "--pass-environment", "WANTED_*"]);
    command.env("AWS_SECRET_ACCESS_KEY", "hush").env("WANTED_THING", "here").env("UNWANTED", "x");
    let _worker = Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let job = "env > environment; W=$WINDLASS_EXE; \
               $W user-data list $WINDLASS_WORKFLOW_ID > listed 2>&1; echo $? > codes; \
               $W token create --name mine --role admin --scope admin > made 2>&1; echo $? >> codes; \
               $W list > all 2>&1; $W cancel $WINDLASS_WORKFLOW_ID > canceled 2>&1; echo $? >> codes; \
               cat $WINDLASS_KEYRING/tokens.toml > keyring";
    sandbox.write(
        "w.json",
        &serde_json::json!({"name": "w", "jobs": [{"name": "a", "command": job}]}).to_string(),
    );
    sandbox.windlass(&["submit", "w.json"]).exits(0);
    eventually("it is done", || sandbox.windlass(&["status"]).stdout.contains("1 of 1 job"));
    let environment = sandbox.read("environment");
    let value = |name: &str| {
        environment.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
    };
    assert!(value("PATH").is_some() && value("WANTED_THING").as_deref() == Some("here"), "{environment}");
    assert!(value("AWS_SECRET_ACCESS_KEY").is_none() && value("UNWANTED").is_none(), "{environment}");
    assert!(value("WINDLASS_TOKEN").unwrap().starts_with("wlj_"), "{environment}");
    let owner = sandbox.read(".windlass/windlass.db.run/owner.token");
    assert!(!environment.contains(owner.trim()) && !sandbox.read("keyring").contains("wl_"));
    let codes: Vec<String> = sandbox.read("codes").lines().map(str::to_owned).collect();
    assert_eq!(codes[0], "0", "{}", sandbox.read("listed"));
    assert!(codes[1] != "0" && codes[2] != "0", "{codes:?}: {}", sandbox.read("made"));
    assert!(sandbox.windlass(&["auth", "token", "list"]).exits(0).stdout.is_empty(), "no token was made");
}

#[test]
fn local_run_passes_environment_without_credentials() {
    let sandbox = Sandbox::new();
    sandbox.write("w.yaml", "name: w\njobs: [{name: a, command: env > environment}]\n");
    let mut command = sandbox.command(&["run", "w.yaml"]);
    command
        .env("CONDA_PREFIX", "/opt/conda")
        .env("WINDLASS_TOKEN", "wl_hush")
        .env("WINDLASS_KEYRING", "/keys");
    Output::of(command.env("WINDLASS_TOKEN_FILE", "/file")).exits(0);
    let environment = sandbox.read("environment");
    assert!(environment.contains("CONDA_PREFIX=/opt/conda\n"), "{environment}");
    for name in ["WINDLASS_TOKEN", "WINDLASS_KEYRING", "WINDLASS_TOKEN_FILE", "wl_hush"] {
        assert!(!environment.contains(name), "{name}: {environment}");
    }
}
