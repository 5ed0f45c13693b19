//! Servers that take over: a PostgreSQL database from a killed server, and a database file from a killed run.

use crate::common::{Output, Sandbox, eventually, is_alive, kill};
use crate::postgres_server::database;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A process that is killed when the test ends, also by a panic.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have exited already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Sets the state directory that all processes of the test share.
fn at_home(sandbox: &Sandbox, mut command: Command) -> Command {
    command.env("XDG_STATE_HOME", sandbox.path("state"));
    command
}

/// Starts a server on a free port, and returns its URL. It may be a standby.
fn serve(sandbox: &Sandbox, args: &[&str]) -> (Process, String) {
    let args = [&["serve", "--format", "json", "--listen", "127.0.0.1:0", "--lease", "2s"], args].concat();
    let mut command = at_home(sandbox, sandbox.command(&args));
    let log = std::fs::File::options().append(true).create(true).open(sandbox.path("serve.log")).unwrap();
    let child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    let mut process = Process(child);
    let mut line = String::new();
    BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: Value =
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("it said: {}", sandbox.read("serve.log")));
    (process, told["url"].as_str().unwrap().to_owned())
}

/// The only directory in which servers of a PostgreSQL database publish their addresses.
fn run_dir(sandbox: &Sandbox) -> PathBuf {
    let mut found = std::fs::read_dir(sandbox.path("state/windlass/servers")).unwrap();
    let dir = found.next().unwrap().unwrap().path();
    assert!(found.next().is_none());
    dir
}

fn announced(sandbox: &Sandbox) -> Value {
    serde_json::from_slice(&std::fs::read(run_dir(sandbox).join("server.json")).unwrap()).unwrap()
}

#[test]
fn standby_server_continues_after_kill() {
    let sandbox = Sandbox::new();
    let database = database();
    let db = database.url();
    sandbox.write(
        "w.yaml",
        "name: w\njobs:\n  - {name: a, command: echo a}\n  - {name: b, command: 'touch b-runs; while [ ! -e go ]; do sleep 0.05; done', depends_on: [a]}\n  - {name: c, command: echo c, depends_on: [b]}\n",
    );
    let here = |args: &[&str]| Output::of(&mut at_home(&sandbox, sandbox.command(args)));
    here(&["serve", "--check", "--db", &db]).exits(0).prints("would serve a new postgres://");
    here(&["serve", "--print-systemd-unit", "--db", &db])
        .exits(0)
        .prints("StateDirectory=windlass")
        .prints("postgres://");

    let (first, first_url) = serve(&sandbox, &["--db", &db]);
    eventually("the first serves", || here(&["--db", &db, "ping"]).code == 0);
    assert_eq!(announced(&sandbox)["url"], first_url.as_str());
    // Commands find the serving one through the database.
    here(&["--db", &db, "submit", "w.yaml"]).exits(0);
    // Each server has a separate token.
    let token = || std::fs::read_to_string(run_dir(&sandbox).join("owner.token")).unwrap();
    let worker = |url: &str, state: &str| {
        let args = ["worker", "--url", url, "--state-dir", state, "-j", "2"];
        let mut command = at_home(&sandbox, sandbox.command(&args));
        command.env("WINDLASS_TOKEN", token().trim()).stdout(Stdio::null()).stderr(Stdio::null());
        Process(command.spawn().unwrap())
    };
    let _worker = worker(&first_url, "one");
    eventually("b runs", || sandbox.path("b-runs").exists());
    let (second, second_url) = serve(&sandbox, &["--db", &db]);
    let epoch = || database.sql("SELECT epoch FROM server_epoch").parse::<u64>().unwrap();
    let before = epoch();
    kill(first.0.id(), "KILL");
    eventually("the second serves", || {
        std::fs::exists(run_dir(&sandbox).join("server.json")).unwrap()
            && announced(&sandbox)["url"] == second_url.as_str()
    });
    assert_eq!(epoch(), before + 1, "what the first still wants to write is refused");
    sandbox.write("go", "");
    let _other = worker(&second_url, "two");
    eventually("all is done", || here(&["--db", &db, "status"]).stdout.contains("3 of 3 jobs completed"));
    kill(second.0.id(), "TERM");
    eventually("it says goodbye", || !run_dir(&sandbox).join("server.json").exists());
}

/// Output, logs, responses, the environment of jobs and files, where the URL of the database has a password.
#[test]
fn database_password_is_never_shown() {
    let sandbox = Sandbox::new();
    let database = database();
    let db = database.url().replacen("@/", ":hush@/", 1);
    let here = |args: &[&str]| {
        let output = Output::of(&mut at_home(&sandbox, sandbox.command(args)));
        assert!(!output.stdout.contains("hush") && !output.stderr.contains("hush"), "{args:?}: {output:?}");
        output
    };
    here(&["serve", "--print-systemd-unit", "--db", &db])
        .exits(0)
        .prints("EnvironmentFile=-/etc/windlass/server.env")
        .says("PGPASSWORD");
    here(&["status", "--db", &db.replacen("/test_", "/no_test_", 1)]).exits(5).says("denied access");
    sandbox.write("windlass.toml", &format!("db = \"{db}\"\n"));
    sandbox.write(
        "w.yaml",
        "name: w\njobs:\n  - {name: a, command: 'env; cat /proc/$$/cmdline /proc/$PPID/cmdline'}\n",
    );
    here(&["config", "show"]).exits(0).prints("postgres://");
    here(&["config", "show", "--format", "toml"]).exits(0).prints("db = \"postgres://");
    here(&["run", "w.yaml"]).exits(0);

    let log = std::fs::File::create(sandbox.path("server.log")).unwrap();
    let words = ["serve", "--listen", "127.0.0.1:0", "--log-level", "debug"];
    let mut command = at_home(&sandbox, sandbox.command(&words));
    let server = Process(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
    eventually("it serves", || here(&["ping"]).code == 0);
    here(&["ping", "--format", "json"]).exits(0);
    database.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()");
    let written = files_below(&sandbox.path(""));
    assert!(written.iter().any(|path| path.ends_with("server.json")), "{written:?}");
    for path in written.iter().filter(|path| !path.ends_with("windlass.toml")) {
        let text = std::fs::read(path).unwrap();
        assert!(!String::from_utf8_lossy(&text).contains("hush"), "{}", path.display());
        assert!(!path.display().to_string().contains("hush"));
    }
    drop(server);
}

fn files_below(directory: &std::path::Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let below = entries.flat_map(|entry| {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        match () {
            () if path.is_dir() => files_below(&path),
            // A socket has no content, and cannot be opened.
            () if kind.is_socket() => Vec::new(),
            () => vec![path],
        }
    });
    below.collect()
}

#[test]
fn server_ends_worker_of_killed_run() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "w.yaml",
        "name: w\njobs:\n  - {name: a, command: 'echo $$ >> pids; [ -e go ] || sleep 1000'}\n",
    );
    let run = Process(sandbox.start(&["run", "w.yaml"]));
    let pids = || -> Vec<u32> {
        let text = std::fs::read_to_string(sandbox.path("pids")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    eventually("the job runs", || pids().len() == 1);
    kill(run.0.id(), "KILL");
    drop(run);
    sandbox.write("go", "");
    let (server, url) = serve(&sandbox, &[]);
    let token = || std::fs::read_to_string(sandbox.path(".windlass/windlass.db.run/owner.token"));
    eventually("it serves", || sandbox.windlass(&["ping"]).code == 0);
    assert!(!is_alive(pids()[0]), "what the dead worker had started is dead");
    let args = ["worker", "--url", &url, "--state-dir", "state"];
    let mut command = sandbox.command(&args);
    command.env("WINDLASS_TOKEN", token().unwrap().trim()).stdout(Stdio::null()).stderr(Stdio::null());
    let _worker = Process(command.spawn().unwrap());
    eventually("the job ran again", || sandbox.windlass(&["status"]).stdout.contains("1 of 1 job"));
    assert_eq!(pids().len(), 2);
    drop(server);
}

#[test]
fn refused_process_learns_no_database_password() {
    let sandbox = Sandbox::new();
    let database = database();
    let (start, place) = database.url().split_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let url = format!("{start}:s3cretpw@{place}");
    sandbox.write(
        "w.yaml",
        "name: w\njobs:\n  - {name: a, command: 'touch runs; while [ ! -e go ]; do sleep 0.05; done'}\n",
    );
    let run = Process(sandbox.start(&["run", "w.yaml", "--db", &url]));
    eventually("the job runs", || sandbox.path("runs").exists());
    let kept_out = Output::of(&mut sandbox.command(&["resume", "1", "--db", &database.url()])).exits(4);
    assert!(kept_out.stderr.contains("is being run by process") && kept_out.stderr.contains("w.yaml"));
    let noted = database.sql("SELECT holder FROM lock_holder");
    sandbox.write("go", "");
    drop(run);

    let (_server, _) = serve(&sandbox, &["--db", &url]);
    eventually("it serves", || database.sql("SELECT holder FROM server_epoch").contains("serve"));
    let serving = database.sql("SELECT holder FROM server_epoch");
    for text in [kept_out.stderr, noted, serving] {
        assert!(text.contains("postgres://") && !text.contains("s3cretpw"), "{text}");
    }
}

/// Jobs get the URL of the database without its password, and can still use it.
#[test]
fn jobs_spawn_into_database_with_password() {
    let sandbox = Sandbox::new();
    let database = database();
    let db = database.url().replacen("@/", ":hush@/", 1);
    sandbox.write(
        "w.yaml",
        "name: w\njobs:\n  - {name: a, command: 'cat \"$WINDLASS_PGPASSFILE\" > pass.txt; stat -c %a \"$WINDLASS_PGPASSFILE\" >> pass.txt; windlass jobs spawn next.yaml'}\n",
    );
    sandbox.write("next.yaml", "jobs:\n  - {name: b, command: touch b-ran}\n");
    Output::of(&mut at_home(&sandbox, sandbox.command(&["run", "w.yaml", "--db", &db]))).exits(0);
    assert!(sandbox.path("b-ran").exists());
    let (line, mode) = (sandbox.read("pass.txt"), "600");
    assert!(line.contains(":hush\n") && line.trim_end().ends_with(mode), "{line}");
    let left = std::fs::read_dir(sandbox.path("state/windlass/workers")).unwrap().flatten();
    let files = left.flat_map(|host| std::fs::read_dir(host.path()).unwrap().flatten());
    assert!(files.into_iter().all(|file| !file.file_name().to_string_lossy().starts_with("pass-")));
}

/// A worker that found its server through the database also finds the server that takes over. Its jobs reach the
/// next server through the same socket immediately, and learn its address when their worker has reconnected.
#[test]
fn worker_with_database_url_finds_next_server() {
    let sandbox = Sandbox::new();
    let database = database();
    let db = database.url();
    sandbox.write(
        "w.yaml",
        "name: w\njobs:\n  - {name: a, command: 'touch runs; while [ ! -e go ]; do sleep 0.05; done; until windlass auth whoami > who.txt && ! grep -qF \"$WINDLASS_URL \" who.txt; do sleep 0.1; done'}\n",
    );
    let here = |args: &[&str]| Output::of(&mut at_home(&sandbox, sandbox.command(args)));
    let (first, first_url) = serve(&sandbox, &["--db", &db]);
    eventually("the first serves", || here(&["--db", &db, "ping"]).code == 0);
    here(&["--db", &db, "submit", "w.yaml"]).exits(0);
    let said = || std::fs::File::create(sandbox.path("said")).unwrap();
    let mut command = at_home(&sandbox, sandbox.command(&["worker", "--db", &db, "-w", "last"]));
    let mut worker = Process(command.stdout(Stdio::null()).stderr(said()).spawn().unwrap());
    eventually("it runs", || {
        let ended = worker.0.try_wait().unwrap();
        assert!(ended.is_none(), "{ended:?}: {}", sandbox.read("said"));
        sandbox.path("runs").exists()
    });
    let mut follow = at_home(&sandbox, sandbox.command(&["events", "follow", "--db", &db]));
    let told = std::fs::File::create(sandbox.path("told")).unwrap();
    let mut follower = Process(follow.stdout(told).stderr(Stdio::null()).spawn().unwrap());
    eventually("it follows", || {
        here(&["--db", &db, "events", "create", "-d", "before"]);
        sandbox.read("told").contains("before")
    });
    // Started only now: on a busy machine, a first server without contact for too long would be replaced
    // early.
    let (second, second_url) = serve(&sandbox, &["--db", &db]);
    kill(first.0.id(), "KILL");
    eventually("the second serves", || {
        run_dir(&sandbox).join("server.json").exists() && announced(&sandbox)["url"] == second_url.as_str()
    });
    sandbox.write("go", "");
    assert_eq!(worker.0.wait().unwrap().code(), Some(0));
    let said = sandbox.read("said");
    assert!(said.contains(&format!("is now at {second_url}")) && said.contains("1 job completed"), "{said}");
    assert!(sandbox.read("who.txt").contains(&second_url), "{first_url}: {}", sandbox.read("who.txt"));
    assert_eq!(follower.0.wait().unwrap().code(), Some(0));
    let told = sandbox.read("told");
    assert!(told.contains("job_completed"), "{told}");
    kill(second.0.id(), "TERM");
}
