//! A PostgreSQL server for tests: one server, shared by all concurrent tests, with a database for each of them.
//!
//! The first test starts it, in a directory of its own and with a socket there, without touching anything else
//! on the machine. A watcher stops it when no test has used it for a while. Other crates use this file by
//! `#[path]`.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A separate database, deleted when this is dropped.
pub(crate) struct Database {
    server: Server,
    name: String,
}

impl Database {
    pub(crate) fn url(&self) -> String {
        let Server { directory, user, .. } = &self.server;
        format!("postgres://{user}@/{}?host={}", self.name, directory.display())
    }

    /// Executes statements as the owner of the server.
    pub(crate) fn sql(&self, text: &str) -> String {
        self.server.sql(&self.name, text)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.server.sql("postgres", &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

/// Creates an empty database.
pub(crate) fn database() -> Database {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let server = Server::shared();
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("test_{}_{number}", std::process::id());
    server.sql("postgres", &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
    server.sql("postgres", &format!("CREATE DATABASE {name}"));
    Database { server, name }
}

pub(crate) struct Server {
    pub(crate) directory: PathBuf,
    pub(crate) user: String,
    programs: PathBuf,
    /// Locked while a test uses the server; the watcher checks it.
    _used: File,
}

impl Server {
    fn shared() -> Self {
        let directory = std::env::temp_dir().join(format!("windlass-test-postgres-{}", user()));
        std::fs::create_dir_all(&directory).unwrap();
        let lock = open(&directory.join("start.lock"));
        lock.lock().unwrap();
        let server = Self::at(&directory);
        if !server.answers() {
            server.start("listen_addresses = ''\n");
        }
        server
    }

    /// Starts a server, unless it already runs.
    pub(crate) fn at(directory: &Path) -> Self {
        let used = open(&directory.join("used.lock"));
        used.lock_shared().unwrap();
        Self { directory: directory.to_owned(), user: user(), programs: programs(), _used: used }
    }

    fn answers(&self) -> bool {
        let ready = self.program("pg_isready").arg("-q").arg("-h").arg(&self.directory).status();
        ready.is_ok_and(|status| status.success())
    }

    /// With additional settings.
    pub(crate) fn start(&self, settings: &str) {
        let data = self.directory.join("data");
        if data.exists() {
            std::fs::remove_dir_all(&data).unwrap();
        }
        std::fs::create_dir(&data).unwrap();
        if is_root() {
            let owner = format!("{0}:{0}", self.user);
            done(Command::new("chown").arg("-R").arg(&owner).arg(&self.directory));
        }
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
        done(
            self.as_owner("initdb").args(["-A", "trust", "-E", "UTF8", "--locale=C", "-N", "-D"]).arg(&data),
        );
        let mut file = OpenOptions::new().append(true).open(data.join("postgresql.conf")).unwrap();
        // No data has to survive a crash of the machine.
        let quick = "fsync = off\nfull_page_writes = off\nsynchronous_commit = off\nautovacuum = off\n";
        let place =
            format!("unix_socket_directories = '{}'\nmax_connections = 300\n", self.directory.display());
        file.write_all(format!("{quick}{place}{settings}").as_bytes()).unwrap();
        let log = self.directory.join("log");
        done(self.as_owner("pg_ctl").args(["-w", "-D"]).arg(&data).arg("-l").arg(&log).arg("start"));
        self.watch(&data);
    }

    /// Restarts the server as after a crash: clients are not notified, and committed data is recovered.
    pub(crate) fn restart(&self) {
        let (data, log) = (self.directory.join("data"), self.directory.join("log"));
        let mut restart = self.as_owner("pg_ctl");
        done(restart.args(["-w", "-m", "immediate", "-D"]).arg(&data).arg("-l").arg(&log).arg("restart"));
    }

    /// Stops the server when no test has used it for some rounds, and no test is starting it.
    #[expect(clippy::zombie_processes, reason = "keeps running for later tests")]
    fn watch(&self, data: &Path) {
        let script = "
            idle=0
            while sleep 5; do
                [ -e data/postmaster.pid ] || exit 0
                if flock -n -x used.lock true; then idle=$((idle + 1)); else idle=0; fi
                # Checked again under the lock, before another test can use it.
                [ $idle -lt 4 ] || flock start.lock flock -n -x used.lock \"$0\" -m immediate -D \"$1\" stop
            done";
        let mut watcher = self.as_owner("sh");
        watcher.args(["-c", script]).arg(self.programs.join("pg_ctl")).arg(data).current_dir(&self.directory);
        watcher.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        std::os::unix::process::CommandExt::process_group(&mut watcher, 0);
        watcher.spawn().unwrap();
    }

    fn sql(&self, database: &str, text: &str) -> String {
        let mut psql = self.program("psql");
        psql.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            &self.user,
            "-d",
            database,
            "-c",
            text,
        ]);
        let output = done(psql.arg("-h").arg(&self.directory));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn program(&self, name: &str) -> Command {
        Command::new(self.programs.join(name))
    }

    /// PostgreSQL does not run as root.
    pub(crate) fn as_owner(&self, name: &str) -> Command {
        let path = if name == "sh" { PathBuf::from("sh") } else { self.programs.join(name) };
        if !is_root() {
            return Command::new(path);
        }
        let mut command = Command::new("setpriv");
        let (user, group) = (format!("--reuid={}", self.user), format!("--regid={}", self.user));
        command.args([user, group]).args(["--clear-groups", "--"]).arg(path).current_dir("/");
        command
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

fn user() -> String {
    if is_root() { "postgres".to_owned() } else { std::env::var("USER").unwrap_or("unknown".into()) }
}

/// The newest version installed by Debian, or the one in the path.
fn programs() -> PathBuf {
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest =
        installed.map(|entry| entry.path().join("bin")).filter(|bin| bin.join("initdb").exists()).max();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = || std::env::split_paths(&path).find(|bin| bin.join("initdb").exists());
    newest
        .or_else(in_path)
        .expect("PostgreSQL is not installed: `cargo xtask test` does, or `apt-get install postgresql`")
}

fn open(path: &Path) -> File {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    // The watcher runs as another user. If the file belongs to that user already, it has been done.
    drop(file.set_permissions(std::fs::Permissions::from_mode(0o666)));
    file
}

fn done(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output
}
