//! A PostgreSQL that is killed during the test, as when its machine loses power, and restarted.

use crate::postgres_server::Server;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

pub(crate) struct Database {
    server: Server,
    _directory: tempfile::TempDir,
}

impl Database {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::at(directory.path());
        // It must keep every acknowledged commit.
        server.start("listen_addresses = ''\nsynchronous_commit = on\n");
        Self { server, _directory: directory }
    }

    pub(crate) fn url(&self) -> String {
        let Server { directory, user, .. } = &self.server;
        format!("postgres://{user}@/postgres?host={}", directory.display())
    }

    pub(crate) fn stop_for(&self, time: Duration) {
        assert!(self.control(&["-m", "immediate", "stop"]));
        sleep(time);
        let log = self.server.directory.join("log").display().to_string();
        assert!(self.control(&["-w", "-l", &log, "start"]));
    }

    fn control(&self, words: &[&str]) -> bool {
        let mut command = self.server.as_owner("pg_ctl");
        command.arg("-D").arg(self.server.directory.join("data")).args(words);
        // The server inherits these.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().unwrap().success()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // If the test failed during a fault, it is stopped already.
        self.control(&["-m", "immediate", "stop"]);
    }
}
