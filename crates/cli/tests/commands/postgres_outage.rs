//! Processes that lose their PostgreSQL database while they run jobs, and others that replace them: no job runs
//! twice at the same time.

use crate::common::{Output, Sandbox, eventually, kill};
use crate::postgres_server::{Server, database};
use std::io::{self, BufRead as _, BufReader};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

/// A process that is killed when the test ends, also by a panic.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have exited already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A proxy to PostgreSQL whose connections can be cut.
#[derive(Clone, Default)]
struct CuttableProxy(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    is_cut: bool,
    /// The two ends of each connection: client and database.
    open: Vec<(UnixStream, UnixStream)>,
    /// Database sides of connections that were not closed.
    kept: Vec<UnixStream>,
}

#[derive(Clone, Copy)]
enum ConnectionCut {
    /// Both sides see closed connections.
    Noticed,
    /// The database side stays open.
    Unnoticed,
}

fn socket(directory: &Path) -> PathBuf {
    directory.join(".s.PGSQL.5432")
}

impl CuttableProxy {
    /// Starts a proxy with its socket in `directory`. Returns the URL of the same database through it.
    fn to(url: &str, directory: &Path) -> (Self, String) {
        let (start, real) = url.split_once("?host=").unwrap();
        let way = Self::default();
        let (shared, real) = (way.clone(), socket(Path::new(real)));
        std::fs::create_dir(directory).unwrap();
        let listener = UnixListener::bind(socket(directory)).unwrap();
        // The thread ends with the test.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                shared.join(client, &real);
            }
        });
        (way, format!("{start}?host={}", directory.display()))
    }

    fn join(&self, client: UnixStream, real: &Path) {
        let mut state = self.0.lock().unwrap();
        if state.is_cut {
            return;
        }
        let server = UnixStream::connect(real).unwrap();
        state.open.push((client.try_clone().unwrap(), server.try_clone().unwrap()));
        drop(state);
        let (mut answers, mut home) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let this = self.clone();
        std::thread::spawn(move || {
            drop(io::copy(&mut &client, &mut &server));
            // When one side closes, the other side is closed too, unless the proxy is cut.
            if !this.0.lock().unwrap().is_cut {
                drop(server.shutdown(Shutdown::Both));
            }
        });
        std::thread::spawn(move || {
            drop(io::copy(&mut answers, &mut home));
            drop(home.shutdown(Shutdown::Both));
        });
    }

    fn cut(&self, how: ConnectionCut) {
        let mut state = self.0.lock().unwrap();
        state.is_cut = true;
        for (client, server) in std::mem::take(&mut state.open) {
            drop(client.shutdown(Shutdown::Both));
            match how {
                ConnectionCut::Noticed => drop(server.shutdown(Shutdown::Both)),
                ConnectionCut::Unnoticed => state.kept.push(server),
            }
        }
    }

    fn repair(&self) {
        self.0.lock().unwrap().is_cut = false;
    }
}

/// A job that writes its pid repeatedly until the file `stop` exists.
const BEATS: &str =
    "name: w\njobs:\n  - {name: a, command: 'while [ ! -e stop ]; do echo $$ >> beats; sleep 0.05; done'}\n";

/// The pids that the executions of the job wrote, in order.
fn beats(sandbox: &Sandbox) -> Vec<u32> {
    let text = std::fs::read_to_string(sandbox.path("beats")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Checks that a second execution runs for a while, and that the first wrote nothing after the second started.
fn takes_the_place_of_the_first(sandbox: &Sandbox) {
    let first = beats(sandbox)[0];
    let of_others = || beats(sandbox).iter().filter(|pid| **pid != first).count();
    eventually("the job runs elsewhere", || of_others() > 60);
    let beats = beats(sandbox);
    let handover = beats.iter().position(|pid| *pid != first).unwrap();
    let twice = beats[handover..].iter().filter(|pid| **pid == first).count();
    assert_eq!(twice, 0, "the first attempt went on beside the second");
}

/// Starts a server on a free port, and returns its URL. It may be a standby.
fn serve(sandbox: &Sandbox, db: &str, state: &str) -> (Process, String) {
    let args = ["serve", "--format", "json", "--listen", "127.0.0.1:0", "--lease", "2s", "--db", db];
    let mut command = sandbox.command(&args);
    command.env("XDG_STATE_HOME", sandbox.path(state)).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = Process(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: serde_json::Value = serde_json::from_str(&line).unwrap();
    (process, told["url"].as_str().unwrap().to_owned())
}

/// The token of the server with this state directory, once it serves.
fn token(sandbox: &Sandbox, state: &str) -> Option<String> {
    let servers = std::fs::read_dir(sandbox.path(state).join("windlass/servers")).ok()?;
    let dir = servers.flatten().next()?.path();
    dir.join("server.json").exists().then(|| std::fs::read_to_string(dir.join("owner.token")).unwrap())
}

fn worker(sandbox: &Sandbox, url: &str, token: &str, state: &str) -> Process {
    let mut command = sandbox.command(&["worker", "--url", url, "--state-dir", state, "-j", "1"]);
    command.env("WINDLASS_TOKEN", token.trim()).stdout(Stdio::null()).stderr(Stdio::null());
    Process(command.spawn().unwrap())
}

fn cut_off_server_releases_workers(how: ConnectionCut) {
    let sandbox = Sandbox::new();
    let database = database();
    let (way, around) = CuttableProxy::to(&database.url(), &sandbox.path("way"));
    sandbox.write("w.yaml", BEATS);
    let (first, first_url) = serve(&sandbox, &around, "one");
    eventually("the first serves", || token(&sandbox, "one").is_some());
    let first_token = token(&sandbox, "one").unwrap();
    let (_second, second_url) = serve(&sandbox, &database.url(), "two");
    let mut submit = sandbox.command(&["submit", "w.yaml", "--url", &first_url]);
    Output::of(submit.env("WINDLASS_TOKEN", first_token.trim())).exits(0);
    let _one = worker(&sandbox, &first_url, &first_token, "worker-one");
    eventually("the job runs", || beats(&sandbox).len() > 5);

    way.cut(how);
    eventually("the second serves", || token(&sandbox, "two").is_some());
    let second_token = token(&sandbox, "two").unwrap();
    let _two = worker(&sandbox, &second_url, &second_token, "worker-two");
    takes_the_place_of_the_first(&sandbox);

    // It detects that it lost the lock, and exits.
    way.repair();
    let mut first = first;
    eventually("the first ends", || {
        first.0.try_wait().unwrap().is_some_and(|status| status.code() == Some(4))
    });
    sandbox.write("stop", "");
    eventually("it is done", || {
        let mut status = sandbox.command(&["status", "--url", &second_url]);
        Output::of(status.env("WINDLASS_TOKEN", second_token.trim())).stdout.contains("1 of 1 job")
    });
}

#[test]
fn cut_off_server_releases_workers_if_database_noticed() {
    cut_off_server_releases_workers(ConnectionCut::Noticed);
}

#[test]
fn cut_off_server_releases_workers_if_database_did_not_notice() {
    cut_off_server_releases_workers(ConnectionCut::Unnoticed);
}

#[test]
fn cut_off_run_stops_when_other_process_has_its_workflow() {
    let sandbox = Sandbox::new();
    let database = database();
    let (way, around) = CuttableProxy::to(&database.url(), &sandbox.path("way"));
    sandbox.write("w.yaml", BEATS);
    let mut command = sandbox.command(&["run", "w.yaml", "--db", &around]);
    let first = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let first = std::thread::spawn(move || first.wait_with_output().unwrap());
    eventually("the job runs", || beats(&sandbox).len() > 5);

    way.cut(ConnectionCut::Noticed);
    let mut command = sandbox.command(&["resume", "1", "--db", &database.url()]);
    let mut second = None;
    // PostgreSQL ends the connection that held the lock a moment later.
    eventually("it is resumed", || {
        let child = second.get_or_insert_with(|| {
            Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
        });
        if child.0.try_wait().unwrap().is_some() {
            second = None;
        }
        beats(&sandbox).iter().any(|pid| *pid != beats(&sandbox)[0])
    });
    takes_the_place_of_the_first(&sandbox);

    way.repair();
    let ended = first.join().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(4), "{said}");
    assert!(
        said.contains("this run lost the lock of the workflow") && said.contains("being run by process"),
        "{said}"
    );
    assert!(second.as_mut().unwrap().0.try_wait().unwrap().is_none(), "the second goes on");
    sandbox.write("stop", "");
    let ended = second.as_mut().unwrap().0.wait().unwrap();
    assert_eq!(ended.code(), Some(0));
}

/// The run loses every connection and its lock, takes the lock again, and continues; no job runs twice.
#[test]
fn run_continues_after_postgresql_restart() {
    let sandbox = Sandbox::new();
    let directory = tempfile::tempdir().unwrap();
    let server = Server::at(directory.path());
    server.start("listen_addresses = ''\nsynchronous_commit = on\n");
    let db = format!("postgres://{}@/postgres?host={}", server.user, directory.path().display());
    let job = |n| format!("  - {{name: j{n}, command: 'echo {n} >> ran; sleep 0.1'}}\n");
    let jobs: Vec<String> = (0..40).map(job).collect();
    sandbox.write("w.yaml", &format!("name: w\njobs:\n{}", jobs.concat()));
    let mut command = sandbox.command(&["run", "w.yaml", "--db", &db, "-j", "2"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let run = std::thread::spawn(move || child.wait_with_output().unwrap());
    let ran = || std::fs::read_to_string(sandbox.path("ran")).unwrap_or_default().lines().count();
    for far in [8, 20] {
        eventually("it gets on", || ran() >= far || run.is_finished());
        server.restart();
    }
    eventually("it ends", || run.is_finished());
    let ended = run.join().unwrap();
    kill(pid, "KILL");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert_eq!(ran(), 40, "{said}");
}

/// A server and its database may start with the machine, in any order.
#[test]
fn server_waits_for_postgresql_at_its_start() {
    let sandbox = Sandbox::new();
    let directory = tempfile::tempdir().unwrap();
    let server = Server::at(directory.path());
    server.start("listen_addresses = ''\n");
    let db = format!("postgres://{}@/postgres?host={}", server.user, directory.path().display());
    let mut stop = server.as_owner("pg_ctl");
    stop.args(["-m", "immediate", "-D"]).arg(directory.path().join("data")).arg("stop").stdout(Stdio::null());
    assert!(stop.status().unwrap().success());
    let log = std::fs::File::create(sandbox.path("server.log")).unwrap();
    let mut command = sandbox.command(&["serve", "--db", &db]);
    let mut waiting = Process(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    let said = || std::fs::read_to_string(sandbox.path("server.log")).unwrap();
    eventually("the server says what it waits for", || said().contains("cannot connect to the database"));
    server.restart();
    eventually("the server serves", || said().contains("; your token is in "));
    assert!(waiting.0.try_wait().unwrap().is_none(), "{}", said());
}
