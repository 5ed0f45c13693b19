//! How a server is to run, as plain values. The command line and the settings make them; tests make their own.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::adaptive::{AdaptiveSettings, Window};
use windlass_core::classify::Classifier;
use windlass_core::plan::Retries;
use windlass_core::requests::lifecycle::{self, Blame};
use windlass_core::requests::{outputs, rounds};
use windlass_engine::service::Bury;
use windlass_requests::{BackendKind, Bell, CondorOptions, Reqmgr2};
use windlass_types::fleet::JobsOf;
use windlass_types::requests::RequestStatus;

/// Where Torc's clients look when nobody tells them where.
pub const DEFAULT_PORT: u16 = 8080;

/// The RSE expression that outputs are archived with unless another is set.
pub const DEFAULT_TAPE: &str = "tier=1&type=TAPE";

#[derive(Clone)]
pub struct ServeOptions {
    /// Port 0: any that is free.
    pub listen: SocketAddr,
    /// The port is only a wish: if somebody has it, any other will do.
    pub any_port: bool,
    /// How long a worker may be silent before its jobs are given to others.
    pub lease: Duration,
    /// What jobs get to end by themselves when they are stopped.
    pub grace: Duration,
    /// Failures of any user's workers on a host are held against all workers there.
    pub share_node_blame: bool,
    pub limits: Limits,
    pub tls: Option<TlsOptions>,
    /// Everybody who can connect may do everything. Only on loopback.
    pub no_auth: bool,
    /// Who may do what: the auth file.
    pub auth_config: Option<PathBuf>,
    /// Instead of the one that the auth file names.
    pub password_file: Option<PathBuf>,
    /// Who runs the server: the owner of its token, and everybody with `no_auth`.
    pub owner: String,
    /// The directory, private to the owner, that holds his token and says where the server is. `None`: neither is kept.
    pub run_dir: Option<PathBuf>,
    /// So long a shutdown waits for requests that are under way.
    pub shutdown_grace: Duration,
    /// Makes sure that workers of an earlier `windlass run` on this machine are dead. Without it their jobs stay theirs
    /// until somebody retires them.
    pub bury: Option<Bury>,
    /// Says of what class failures are; `None`: the rules that are built in, and no others.
    pub classifier: Option<Arc<Classifier>>,
    /// So often whoever follows events is looked at again: a right that was taken away ends what it was good for.
    pub check_rights: Duration,
    /// What agents may do at `/mcp`, each with the rights of whoever sent it. `None`: they are not spoken to.
    pub mcp: Option<AgentRights>,
    /// Events that this server writes are told at once; how often to look for those that somebody else wrote.
    pub look_for_events: Duration,
    /// Requests are looked at when something happens to them; how often to look at all of them, in case that was missed.
    pub look_for_requests: Duration,
    pub requests: RequestsOptions,
    /// Allocations of Slurm are looked after. `None`: they are not, and stay as they are.
    pub slurm: Option<SlurmOptions>,
}

impl fmt::Debug for ServeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeOptions")
            .field("listen", &self.listen)
            .field("no_auth", &self.no_auth)
            .field("run_dir", &self.run_dir)
            .finish_non_exhaustive()
    }
}

/// How requests are carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestsOptions {
    /// Runs and, of sites that say nothing else, files are kept in here; workers must see it under the same path. `None`:
    /// beside the database.
    pub directory: Option<PathBuf>,
    /// Before a failed job is tried again, and before a round is rescued; longer each time.
    pub cool_off: Duration,
    /// What is done about sites and runs where too much fails.
    pub blame: Blame,
    /// When the failures of a round are a matter for a person.
    pub recovery: rounds::Policy,
    /// A request that is longer than that in a status is told of; one that is not here may last for ever.
    pub timeouts: BTreeMap<RequestStatus, Duration>,
    /// A backend that has not answered for so long about a run is told of.
    pub silence: Duration,
    /// How long recording outputs is tried.
    pub outputs: outputs::Patience,
    /// How often jobs are tried again.
    pub retries: Retries,
    /// What rounds learn from those before them, and how they grow.
    pub adaptive: AdaptiveSettings,
    /// The memory that jobs may ask for.
    pub memory: Window,
    /// Before something that had trouble is tried again: planning, submitting.
    pub retry_after: Duration,
    /// Where new runs go.
    pub backend: BackendKind,
    pub condor: CondorOptions,
    /// Who is told when a person should know something.
    pub bell: Bell,
    /// When a request for generated events has all that it asks for.
    pub mc_completion: rounds::McCompletion,
    /// How many nodes of a category run at once in each unit; `MergeGroup`: how many units of a run. A category that is not
    /// here keeps its default.
    pub throttles: BTreeMap<String, u64>,
    /// Where outputs go for good, as the catalog writes it.
    pub tape: String,
    /// Who is asked for requests that are submitted by their names alone.
    pub reqmgr2: Option<Reqmgr2>,
}

impl Default for RequestsOptions {
    fn default() -> Self {
        let lifecycle::Settings { timeouts, silence, outputs, .. } = lifecycle::Settings::default();
        Self {
            directory: None,
            timeouts,
            silence,
            outputs,
            retries: Retries::default(),
            cool_off: Duration::from_mins(1),
            blame: Blame::default(),
            recovery: rounds::Policy::default(),
            adaptive: AdaptiveSettings::default(),
            memory: Window::default(),
            retry_after: Duration::from_mins(1),
            backend: BackendKind::default(),
            condor: CondorOptions::default(),
            bell: Bell::default(),
            mc_completion: rounds::McCompletion::default(),
            throttles: BTreeMap::new(),
            tape: DEFAULT_TAPE.to_owned(),
            reqmgr2: None,
        }
    }
}

/// How allocations of Slurm are looked after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmOptions {
    /// Where workers find this server; `None`: where it listens.
    pub worker_url: Option<String>,
    /// The program of workers as nodes see it; `None`: this one.
    pub windlass: Option<PathBuf>,
    /// How often Slurm is asked while something happens, and while nothing does.
    pub poll: Duration,
    pub slowest_poll: Duration,
    /// Calls of Slurm's commands, all together.
    pub calls_per_minute: u32,
    /// Whose workflows get allocations. Their jobs run with the account of the server.
    pub jobs_of: JobsOf,
}

impl Default for SlurmOptions {
    fn default() -> Self {
        Self {
            worker_url: None,
            windlass: None,
            poll: Duration::from_secs(3),
            slowest_poll: Duration::from_mins(1),
            calls_per_minute: 60,
            jobs_of: JobsOf::Own,
        }
    }
}

/// What agents may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentRights {
    Read,
    Write,
}

/// What one caller, or all of them, may ask of the server at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request; what creates workflows may be larger.
    pub max_body: usize,
    /// Bytes of all requests that are being read, but for small ones and workflows that are created.
    pub max_bodies: usize,
    /// Bytes of a workflow that is created.
    pub max_upload: usize,
    /// A request that is neither a wait nor a stream takes at most so long.
    pub timeout: Duration,
    /// Requests at once, waits and streams not counted. More are told to come again.
    pub max_in_flight: usize,
    /// Connections at once, waits and streams included.
    pub max_connections: usize,
    /// Requests per second of one client; 0: as many as it likes.
    pub rate: u32,
    /// So many may come at once before the rate counts.
    pub burst: u32,
    /// Longest wait for work that a worker may ask for.
    pub max_wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body: 16 << 20,
            max_bodies: 256 << 20,
            max_upload: 1 << 30,
            timeout: Duration::from_mins(1),
            max_in_flight: 256,
            max_connections: 4096,
            rate: 500,
            burst: 2000,
            max_wait: Duration::from_mins(1),
        }
    }
}

/// Certificates are files, read again on SIGHUP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// The chain, ours first; PEM.
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Whoever shows a certificate of one of these is known by it.
    pub client_ca: Option<PathBuf>,
    /// Lists of certificates that these have revoked; PEM.
    pub client_crl: Vec<PathBuf>,
    /// Whoever shows none is not let in.
    pub require_client_cert: bool,
}

/// On loopback, on any free port, secured by a token of its own: what a test wants.
impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            any_port: false,
            share_node_blame: false,
            lease: Duration::from_mins(1),
            grace: Duration::from_secs(10),
            limits: Limits::default(),
            tls: None,
            no_auth: false,
            auth_config: None,
            password_file: None,
            owner: "owner".to_owned(),
            run_dir: None,
            shutdown_grace: Duration::from_secs(10),
            bury: None,
            classifier: None,
            check_rights: Duration::from_secs(10),
            mcp: None,
            look_for_events: Duration::from_secs(1),
            look_for_requests: Duration::from_mins(1),
            requests: RequestsOptions::default(),
            slurm: None,
        }
    }
}

impl ServeOptions {
    /// Whether they fit together.
    pub fn check(&self) -> Result<(), crate::ServeError> {
        let open = self.no_auth && !self.listen.ip().is_loopback();
        if open { Err(crate::ServeError::OpenToAll(self.listen)) } else { Ok(()) }
    }
}
