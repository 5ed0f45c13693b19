//! Workers over ssh, with a real sshd that the test starts: an ordinary process on a high port of the loopback
//! interface, with generated keys.

use crate::common::{Output, Sandbox, eventually, is_alive};
use crate::free_port::free_port;
use crate::serve::StoppedOnDrop;
use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

struct Sshd {
    child: Child,
    port: u16,
    directory: PathBuf,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Sshd {
    /// `None` if sshd is not installed; `cargo xtask test` installs it.
    fn start(sandbox: &Sandbox) -> Option<Self> {
        let program =
            ["/usr/sbin/sshd", "/usr/bin/sshd"].into_iter().find(|path| fs::exists(path).unwrap_or(false));
        let Some(program) = program else {
            eprintln!("LEFT OUT: there is no sshd here; install openssh-server");
            return None;
        };
        let directory = sandbox.path("ssh");
        fs::create_dir_all(directory.join("home")).unwrap();
        for key in ["host", "id"] {
            let path = directory.join(key);
            let made =
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status();
            assert!(made.unwrap().success());
        }
        // sshd requires this empty directory at its start.
        fs::create_dir_all("/run/sshd").ok();
        let port = free_port();
        let at = directory.display();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {at}/host\nAuthorizedKeysFile {at}/id.pub\nPidFile none\n\
             UsePAM no\nStrictModes no\nPasswordAuthentication no\nSetEnv HOME={at}/home\n"
        );
        fs::write(directory.join("config"), config).unwrap();
        let child = Command::new(program)
            .args(["-D", "-e", "-f"])
            .arg(directory.join("config"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let sshd = Self { child, port, directory };
        eventually("sshd", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(sshd)
    }

    /// Adds the host key to the known hosts of our ssh.
    fn make_known(&self) {
        let key = fs::read_to_string(self.directory.join("host.pub")).unwrap();
        fs::write(self.directory.join("known"), format!("[127.0.0.1]:{} {key}", self.port)).unwrap();
    }

    fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn remote(&self, sandbox: &Sandbox, words: &[&str]) -> Output {
        let at = self.directory.display();
        let options = [
            format!("UserKnownHostsFile={at}/known"),
            "GlobalKnownHostsFile=/dev/null".to_owned(),
            format!("IdentityFile={at}/id"),
            "IdentitiesOnly=yes".to_owned(),
        ];
        let mut line = vec!["remote".to_owned()];
        line.extend(words.iter().map(|word| (*word).to_owned()));
        if !matches!(words[0], "list" | "remove") {
            line.extend(options.into_iter().flat_map(|option| ["--ssh-option".to_owned(), option]));
        }
        let mut command = sandbox.command(&line);
        command.env("XDG_STATE_HOME", sandbox.path("state"));
        Output::of(&mut command)
    }
}

#[test]
fn remote_workers_are_started_monitored_and_stopped_over_ssh() {
    let sandbox = Sandbox::new();
    let Some(sshd) = Sshd::start(&sandbox) else { return };
    let served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    sandbox.write("a.yaml", "name: far\njobs:\n  - {name: a, command: echo hello; exec sleep 600}\n");
    sandbox.windlass(&["submit", "a.yaml"]).exits(0);
    let host = sshd.host();
    sshd.remote(&sandbox, &["add", "far", "-oProxyCommand=touch x"]).exits(2);
    // A host with an unknown key is not trusted.
    sshd.remote(&sandbox, &["add", "far", &host]).exits(5).prints("unreachable");
    sshd.make_known();
    sshd.remote(&sandbox, &["add", "far", &host]).exits(0).prints(&host);
    sshd.remote(&sandbox, &["list", "far"]).exits(0).prints(&host);
    sshd.remote(&sandbox, &["status", "far"]).exits(0).prints("never started");

    let program = env!("CARGO_BIN_EXE_windlass");
    sshd.remote(&sandbox, &["run", "far", "-j", "2", "--program", program]).exits(0).prints("started");
    let homes = sshd.directory.join("home/.windlass-remote");
    let home = fs::read_dir(homes).unwrap().next().unwrap().unwrap().path();
    let note = fs::read_to_string(home.join("worker.pid")).unwrap();
    let pid: u32 = note.split(' ').next().unwrap().parse().unwrap();
    assert!(is_alive(pid));
    eventually("it runs the job", || sandbox.json(&["jobs", "running"]).as_array().unwrap().len() == 1);
    sshd.remote(&sandbox, &["run", "far", "--program", program]).exits(0).prints("as before");
    sshd.remote(&sandbox, &["status", "far"]).exits(0).prints("running");
    sshd.remote(&sandbox, &["stop", "far", "--force"]).exits(0).prints("killed");
    eventually("its end", || !is_alive(pid));
    sshd.remote(&sandbox, &["status", "far"]).exits(0).prints("ended");

    let fetched = sandbox.path("fetched");
    sshd.remote(&sandbox, &["collect-logs", "far", "-l", fetched.to_str().unwrap()])
        .exits(0)
        .prints("fetched");
    let logs = fetched.join(&host);
    assert!(logs.join("worker.log").exists());
    let names = fs::read_dir(logs.join("job_stdio")).unwrap().map(|entry| entry.unwrap().file_name());
    let job_logs = names.filter(|name| name.to_string_lossy().starts_with("job_"));
    assert_eq!(job_logs.count(), 1);
    sshd.remote(&sandbox, &["remove", "far", &host]).exits(0);
    sshd.remote(&sandbox, &["status", "far"]).exits(2).says("no hosts yet");
    served.stop();
}
