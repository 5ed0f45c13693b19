//! Options of a server as plain values. The command line and the settings create them; tests create their own.

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
use windlass_scheduler::service::EarlierWorkerHost;
use windlass_types::requests::RequestStatus;
use windlass_types::worker_protocol::AcceptedJobOwners;

/// Default port of Torc's clients.
pub const DEFAULT_PORT: u16 = 8080;

/// Default RSE expression for archiving outputs.
pub const DEFAULT_TAPE_RSE: &str = "tier=1&type=TAPE";

#[derive(Clone)]
pub struct ServeOptions {
    /// Port 0: any free port.
    pub listen: SocketAddr,
    /// Use any free port if the given one is taken.
    pub any_port: bool,
    /// Time without contact after which a worker is considered lost and its jobs are reassigned.
    pub lease: Duration,
    /// Time that jobs have to end after they are asked to stop.
    pub stop_grace: Duration,
    /// Count failures of all users' workers on a host against all workers there.
    pub share_node_blame: bool,
    pub limits: HttpRequestLimits,
    pub tls: Option<ServerTlsOptions>,
    /// Disable authentication (loopback only): every client has full access.
    pub no_auth: bool,
    /// The auth file with authentication and permissions.
    pub auth_config: Option<PathBuf>,
    /// Password file that replaces the one named in the auth file.
    pub password_file: Option<PathBuf>,
    /// User who runs the server: owner of the owner token, and the user of all requests with `no_auth`.
    pub owner: String,
    /// Private directory for the owner token and the server's location. `None`: neither is written.
    pub run_dir: Option<PathBuf>,
    /// Time that a shutdown waits for active requests.
    pub shutdown_grace: Duration,
    /// Ensures that workers of earlier `windlass run` on this machine are dead. Without it their jobs stay
    /// assigned until the workers are retired by hand.
    pub earlier_workers: Option<EarlierWorkerHost>,
    /// Failure classifier; `None`: the built-in rules only.
    pub classifier: Option<Arc<FailureClassifier>>,
    /// How often the permission of event readers is checked again; a revoked permission ends the stream.
    pub permission_check_interval: Duration,
    /// What agents may do at `/mcp`, each with the permissions of its caller. `None`: no `/mcp` endpoint.
    pub mcp: Option<AgentPermission>,
    /// Polling interval for events written by other processes. Events of this server are published at once.
    pub event_poll_interval: Duration,
    /// Interval for checking all requests. Requests are also checked when they change; this is the fallback.
    pub request_poll_interval: Duration,
    pub requests: RequestServiceOptions,
    /// Management of Slurm allocations. `None`: allocations are not managed and keep their state.
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

/// Options of the request lifecycle.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestServiceOptions {
    /// Directory of runs and, for sites without their own storage, of files; workers must see it under the same
    /// path. `None`: next to the database.
    pub directory: Option<PathBuf>,
    /// Owner of the workflows of all requests, for a server that only this user can reach. `None`: each belongs
    /// to its requestor, so that the commands of a request run only on workers that accept jobs of that user.
    pub workflow_owner: Option<String>,
    /// Backoff before a failed job is retried and before a round is rescued.
    pub cool_off: Duration,
    /// Reactions to sites and runs with too many failures.
    pub failure_response: FailureResponseSettings,
    /// When failures of a round require an operator.
    pub recovery: rounds::RecoveryPolicy,
    /// Time in a status after which a request raises an alert; statuses not listed have no limit.
    pub timeouts: BTreeMap<RequestStatus, Duration>,
    /// Time without an answer about a run after which a backend raises an alert.
    pub backend_silence_limit: Duration,
    /// How long registering outputs is retried.
    pub output_retries: outputs::OutputRetryPolicy,
    /// Number of retries of jobs.
    pub retries: RetriesByRole,
    /// Adaptive planning: what rounds learn from earlier rounds, and how they grow.
    pub adaptive: AdaptiveSettings,
    /// Limits on the memory of jobs.
    pub memory_window: MemoryWindow,
    /// Backoff after errors of planning or submission.
    pub retry_after: Duration,
    /// Backend of new runs.
    pub backend: BackendKind,
    pub condor: CondorOptions,
    /// Receiver of alerts for operators.
    pub alert_command: AlertNotifier,
    /// When a request for generated events is complete.
    pub mc_completion: rounds::McCompletion,
    /// Maximum number of running nodes of a category per unit; `MergeGroup`: number of units per run.
    /// Categories not listed keep their default.
    pub throttles: BTreeMap<String, u64>,
    /// RSE expression for the final location of outputs.
    pub tape_rse: String,
    /// Source of requests that are submitted by name only.
    pub reqmgr2: Option<Reqmgr2Client>,
}

impl Default for RequestServiceOptions {
    fn default() -> Self {
        let lifecycle::LifecycleSettings { timeouts, unresponsive_after: silence, outputs, .. } =
            lifecycle::LifecycleSettings::default();
        Self {
            directory: None,
            workflow_owner: None,
            timeouts,
            backend_silence_limit: silence,
            output_retries: outputs,
            retries: RetriesByRole::default(),
            cool_off: Duration::from_mins(1),
            failure_response: FailureResponseSettings::default(),
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

/// Options for managing Slurm allocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmServiceOptions {
    /// URL of this server for workers; `None`: the listen address.
    pub worker_url: Option<String>,
    /// Path of the worker program on the nodes; `None`: the path of this program.
    pub worker_program: Option<PathBuf>,
    /// Polling intervals for Slurm: while allocations change, and while idle.
    pub min_poll_interval: Duration,
    pub max_poll_interval: Duration,
    /// Limit on calls of Slurm commands in total.
    pub calls_per_minute: u32,
    /// Users whose workflows get allocations. Their jobs run with the account of the server.
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

/// Permissions of agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentPermission {
    Read,
    Write,
}

/// Limits per client and in total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequestLimits {
    /// Maximum size of a request in bytes; uploads of workflows have their own limit.
    pub max_body: usize,
    /// Maximum bytes of all requests being received, excluding small ones and workflow uploads.
    pub max_bodies: usize,
    /// Maximum size of a workflow upload in bytes.
    pub max_upload: usize,
    /// Time limit of a request; long polls and streams have none.
    pub timeout: Duration,
    /// Maximum number of concurrent requests (long polls and streams excluded); further requests get 503.
    pub max_in_flight: usize,
    /// Maximum number of open connections, long polls and streams included.
    pub max_connections: usize,
    /// Requests per second of one client; 0: unlimited.
    pub rate: u32,
    /// Number of requests that may exceed the rate in a burst.
    pub burst: u32,
    /// Longest wait for work that a worker may request.
    pub max_wait: Duration,
}

impl Default for HttpRequestLimits {
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

/// TLS settings. Certificates are files and are reloaded on SIGHUP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTlsOptions {
    /// Certificate chain, the server's certificate first; PEM.
    pub cert: PathBuf,
    pub key: PathBuf,
    /// CAs of client certificates: clients with a certificate of one of these are authenticated by it.
    pub client_ca: Option<PathBuf>,
    /// Certificate revocation lists of these CAs; PEM.
    pub client_crl: Vec<PathBuf>,
    /// Require a client certificate.
    pub require_client_cert: bool,
}

/// Options for tests: loopback, any free port, a token of its own.
impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            any_port: false,
            share_node_blame: false,
            lease: Duration::from_mins(1),
            stop_grace: Duration::from_secs(10),
            limits: HttpRequestLimits::default(),
            tls: None,
            no_auth: false,
            auth_config: None,
            password_file: None,
            owner: "owner".to_owned(),
            run_dir: None,
            shutdown_grace: Duration::from_secs(10),
            earlier_workers: None,
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
    /// Checks that the options are consistent.
    pub fn check(&self) -> Result<(), crate::ServeError> {
        let open = self.no_auth && !self.listen.ip().is_loopback();
        if open { Err(crate::ServeError::OpenToAll(self.listen)) } else { Ok(()) }
    }
}
