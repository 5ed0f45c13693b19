//! The two sides: `windlass serve --slurm` and `windlass submit`, `torc-server run` and `torc submit`.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::cluster::ExclusiveCluster;
use crate::shell::{is_executable, output};

const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

pub(super) trait SlurmCompetitor {
    fn name(&self) -> String;
    /// The directory with its files.
    fn place(&self) -> &Path;
    /// Submits `spec.yaml` from this directory.
    fn submit(&self, directory: &Path) -> Result<()>;
}

/// A server process, killed when dropped.
pub(in crate::bench) struct Server(Child);

impl Server {
    pub(in crate::bench) fn start(
        command: &mut Command,
        log: &Path,
        is_up: impl Fn() -> bool,
    ) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot make {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let mut server = Self(command.spawn().context("cannot start the server")?);
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while !is_up() {
            if let Some(status) = server.0.try_wait()? {
                bail!("the server ended: {status}\n{}", fs::read_to_string(log)?);
            }
            ensure!(Instant::now() < deadline, "the server does not come up: see {}", log.display());
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have exited already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub(super) struct Windlass<'a> {
    program: PathBuf,
    cluster: &'a ExclusiveCluster,
    place: PathBuf,
    _server: Server,
}

impl<'a> Windlass<'a> {
    pub(super) fn serve(program: &Path, cluster: &'a ExclusiveCluster, place: &Path) -> Result<Self> {
        let mut command = ours(program, cluster, place, place);
        command.args(["serve", "--slurm", "--listen", "127.0.0.1:0"]);
        let announced = place.join(".windlass/windlass.db.run/server.json");
        let server = Server::start(&mut command, &place.join("server.log"), || announced.exists())?;
        Ok(Self { program: program.to_owned(), cluster, place: place.to_owned(), _server: server })
    }
}

/// A command without the caller's environment.
fn ours(program: &Path, cluster: &ExclusiveCluster, place: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    cluster.set_environment(&mut command).current_dir(directory);
    command.env("XDG_CONFIG_HOME", place.join("config")).env("XDG_STATE_HOME", place.join("state"));
    command.env_remove("WINDLASS_DB").env_remove("WINDLASS_URL").env_remove("WINDLASS_TOKEN");
    command
}

impl SlurmCompetitor for Windlass<'_> {
    fn name(&self) -> String {
        "windlass".to_owned()
    }

    fn place(&self) -> &Path {
        &self.place
    }

    fn submit(&self, directory: &Path) -> Result<()> {
        let mut command = ours(&self.program, self.cluster, &self.place, directory);
        output(command.args(["submit", "spec.yaml"])).map(drop)
    }
}

/// The poll interval of torc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TorcPolling {
    AsShipped,
    /// Once a second, the smallest interval that it accepts.
    All,
}

pub(super) struct Torc<'a> {
    programs: PathBuf,
    polling: TorcPolling,
    cluster: &'a ExclusiveCluster,
    place: PathBuf,
    url: String,
    _server: Server,
}

impl<'a> Torc<'a> {
    pub(super) fn serve(
        programs: &Path,
        polling: TorcPolling,
        cluster: &'a ExclusiveCluster,
        place: &Path,
    ) -> Result<Self> {
        for name in ["torc", "torc-server", "torc-slurm-job-runner"] {
            let file = programs.join(name);
            ensure!(is_executable(&file), "there is no program {}: see --torc-bin", file.display());
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let mut command = Command::new(programs.join("torc-server"));
        command.args(["run", "--host", "127.0.0.1", "--database", "torc.db", "--port", &port.to_string()]);
        if polling == TorcPolling::All {
            command.args(["-c", "1"]);
        }
        command.current_dir(place).env("RUST_LOG", "warn");
        let is_up = || TcpStream::connect(&address).is_ok();
        let server = Server::start(&mut command, &place.join("server.log"), is_up)?;
        let url = format!("http://{address}/torc-service/v1");
        Ok(Self {
            programs: programs.to_owned(),
            polling,
            cluster,
            place: place.to_owned(),
            url,
            _server: server,
        })
    }

    fn client(&self) -> Result<Command> {
        let mut command = Command::new(self.programs.join("torc"));
        self.cluster.set_environment(&mut command);
        // Its batch script expects the runner there.
        let others = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(self.programs.clone()).chain(std::env::split_paths(&others));
        command.env("PATH", std::env::join_paths(path)?).env("TORC_API_URL", &self.url);
        command.env("USER", "bench").env("RUST_LOG", "warn");
        Ok(command)
    }
}

impl SlurmCompetitor for Torc<'_> {
    fn name(&self) -> String {
        let version = output(Command::new(self.programs.join("torc")).arg("--version")).unwrap_or_default();
        let how = match self.polling {
            TorcPolling::AsShipped => "as it comes",
            TorcPolling::All => "looking every second",
        };
        format!("{}, {how}", version.trim())
    }

    fn place(&self) -> &Path {
        &self.place
    }

    fn submit(&self, directory: &Path) -> Result<()> {
        let mut command = self.client()?;
        command.current_dir(directory).args(["submit", "spec.yaml", "--no-prompts"]);
        if self.polling == TorcPolling::All {
            command.args(["-p", "1"]);
        }
        output(&mut command).map(drop)
    }
}
