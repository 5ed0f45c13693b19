//! How a server is to run, as plain values. The command line and the settings make them; tests make their own.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::adaptive::{AdaptiveSettings, MemoryWindow};
use windlass_core::classify::FailureClassifier;
use windlass_core::requests::lifecycle::{self, FailureResponseSettings};
use windlass_core::requests::{outputs, rounds};
use windlass_core::round_plan::RetriesByRole;
use windlass_requests::{AlertNotifier, BackendKind, CondorOptions, Reqmgr2Client};
use windlass_scheduler::service::EnsureWorkerDead;
use windlass_types::requests::RequestStatus;
use windlass_types::worker_protocol::AcceptedJobOwners;

/// Where Torc's clients look when nobody tells them where.
pub const DEFAULT_PORT: u16 = 8080;

/// The RSE expression that outputs are archived with unless another is set.
pub const DEFAULT_TAPE_RSE: &str = "tier=1&type=TAPE";

#[derive(Clone)]
pub struct ServeOptions {
    /// Port 0: any that is free.
    pub listen: SocketAddr,
    /// The port is only a wish: if somebody has it, any other will do.
    pub any_port: bool,
    /// How long a worker may be silent before its jobs are given to others.
    pub lease: Duration,
    /// What jobs get to end by themselves when they are stopped.
    pub stop_grace: Duration,
    /// Failures of any user's workers on a host are held against all workers there.
    pub share_node_blame: bool,
    pub limits: RequestLimits,
    pub tls: Option<ServerTlsOptions>,
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
    pub ensure_dead: Option<EnsureWorkerDead>,
    /// Says of what class failures are; `None`: the rules that are built in, and no others.
    pub classifier: Option<Arc<FailureClassifier>>,
    /// So often whoever follows events is looked at again: a right that was taken away ends what it was good for.
    pub permission_check_interval: Duration,
    /// What agents may do at `/mcp`, each with the rights of whoever sent it. `None`: they are not spoken to.
    pub mcp: Option<AgentPermission>,
    /// Events that this server writes are told at once; how often to look for those that somebody else wrote.
    pub event_poll_interval: Duration,
    /// Requests are looked at when something happens to them; how often to look at all of them, in case that was missed.
    pub request_poll_interval: Duration,
    pub requests: RequestServiceOptions,
    /// Allocations of Slurm are looked after. `None`: they are not, and stay as they are.
    pub slurm: Option<SlurmServiceOptions>,
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
pub struct RequestServiceOptions {
    /// Runs and, of sites that say nothing else, files are kept in here; workers must see it under the same path. `None`:
    /// beside the database.
    pub directory: Option<PathBuf>,
    /// Before a failed job is tried again, and before a round is rescued; longer each time.
    pub cool_off: Duration,
    /// What is done about sites and runs where too much fails.
    pub blame: FailureResponseSettings,
    /// When the failures of a round are a matter for a person.
    pub recovery: rounds::RecoveryPolicy,
    /// A request that is longer than that in a status is told of; one that is not here may last for ever.
    pub timeouts: BTreeMap<RequestStatus, Duration>,
    /// A backend that has not answered for so long about a run is told of.
    pub backend_silence_limit: Duration,
    /// How long recording outputs is tried.
    pub output_patience: outputs::OutputRetryPolicy,
    /// How often jobs are tried again.
    pub retries: RetriesByRole,
    /// What rounds learn from those before them, and how they grow.
    pub adaptive: AdaptiveSettings,
    /// The memory that jobs may ask for.
    pub memory_window: MemoryWindow,
    /// Before something that had trouble is tried again: planning, submitting.
    pub retry_after: Duration,
    /// Where new runs go.
    pub backend: BackendKind,
    pub condor: CondorOptions,
    /// Who is told when a person should know something.
    pub alert_command: AlertNotifier,
    /// When a request for generated events has all that it asks for.
    pub mc_completion: rounds::McCompletion,
    /// How many nodes of a category run at once in each unit; `MergeGroup`: how many units of a run. A category that is not
    /// here keeps its default.
    pub throttles: BTreeMap<String, u64>,
    /// Where outputs go for good, as the catalog writes it.
    pub tape_rse: String,
    /// Who is asked for requests that are submitted by their names alone.
    pub reqmgr2: Option<Reqmgr2Client>,
}

impl Default for RequestServiceOptions {
    fn default() -> Self {
        let lifecycle::LifecycleSettings { timeouts, unresponsive_after: silence, outputs, .. } =
            lifecycle::LifecycleSettings::default();
        Self {
            directory: None,
            timeouts,
            backend_silence_limit: silence,
            output_patience: outputs,
            retries: RetriesByRole::default(),
            cool_off: Duration::from_mins(1),
            blame: FailureResponseSettings::default(),
            recovery: rounds::RecoveryPolicy::default(),
            adaptive: AdaptiveSettings::default(),
            memory_window: MemoryWindow::default(),
            retry_after: Duration::from_mins(1),
            backend: BackendKind::default(),
            condor: CondorOptions::default(),
            alert_command: AlertNotifier::default(),
            mc_completion: rounds::McCompletion::default(),
            throttles: BTreeMap::new(),
            tape_rse: DEFAULT_TAPE_RSE.to_owned(),
            reqmgr2: None,
        }
    }
}

/// How allocations of Slurm are looked after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmServiceOptions {
    /// Where workers find this server; `None`: where it listens.
    pub worker_url: Option<String>,
    /// The program of workers as nodes see it; `None`: this one.
    pub worker_program: Option<PathBuf>,
    /// How often Slurm is asked while something happens, and while nothing does.
    pub min_poll_interval: Duration,
    pub max_poll_interval: Duration,
    /// Calls of Slurm's commands, all together.
    pub calls_per_minute: u32,
    /// Whose workflows get allocations. Their jobs run with the account of the server.
    pub jobs_of: AcceptedJobOwners,
}

impl Default for SlurmServiceOptions {
    fn default() -> Self {
        Self {
            worker_url: None,
            worker_program: None,
            min_poll_interval: Duration::from_secs(3),
            max_poll_interval: Duration::from_mins(1),
            calls_per_minute: 60,
            jobs_of: AcceptedJobOwners::Own,
        }
    }
}

/// What agents may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentPermission {
    Read,
    Write,
}

/// What one caller, or all of them, may ask of the server at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLimits {
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

impl Default for RequestLimits {
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
pub struct ServerTlsOptions {
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
            stop_grace: Duration::from_secs(10),
            limits: RequestLimits::default(),
            tls: None,
            no_auth: false,
            auth_config: None,
            password_file: None,
            owner: "owner".to_owned(),
            run_dir: None,
            shutdown_grace: Duration::from_secs(10),
            ensure_dead: None,
            classifier: None,
            permission_check_interval: Duration::from_secs(10),
            mcp: None,
            event_poll_interval: Duration::from_secs(1),
            request_poll_interval: Duration::from_mins(1),
            requests: RequestServiceOptions::default(),
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
