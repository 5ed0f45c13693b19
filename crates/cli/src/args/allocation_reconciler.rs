//! Options of `windlass serve` for Slurm allocations.

use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use windlass_server::options::SlurmServiceOptions;
use windlass_types::parse_duration;
use windlass_types::worker_protocol::AcceptedJobOwners;

#[derive(Args, Debug)]
#[command(next_help_heading = "Slurm")]
pub(crate) struct AllocationReconcilerArgs {
    /// Manage Slurm allocations: submit those that workflows request, track them, and cancel those no longer
    /// needed.
    #[arg(id = "serve_slurm", long = "slurm")]
    pub(crate) slurm: bool,
    /// URL at which workers in allocations reach this server. Default: the address it listens on, which must be
    /// reachable from the nodes.
    #[arg(long, value_name = "URL")]
    pub(crate) slurm_worker_url: Option<String>,
    /// Path of the windlass program on the nodes. Default: the path of this program.
    #[arg(long, value_name = "PATH")]
    pub(crate) slurm_windlass: Option<PathBuf>,
    /// Interval between queries to Slurm while allocations change.
    #[arg(long, value_name = "DURATION", default_value = Self::POLL_INTERVAL, value_parser = parse_duration)]
    pub(crate) slurm_poll: Duration,
    /// Interval between queries to Slurm while no allocation changes.
    #[arg(long, value_name = "DURATION", default_value = Self::MAX_POLL_INTERVAL, value_parser = parse_duration)]
    pub(crate) slurm_slowest_poll: Duration,
    /// Also submit allocations for the workflows of these users, or of `all`. Their jobs run under the account of
    /// this server with all its permissions, so use it only if you trust these users. Default: only your own
    /// workflows.
    #[arg(long, value_name = "USER", value_delimiter = ',', value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) slurm_jobs_of: Vec<String>,
    /// Maximum number of calls of Slurm commands per minute.
    #[arg(long, value_name = "N", default_value_t = Self::CALLS, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slurm_calls: u32,
}

impl AllocationReconcilerArgs {
    pub(crate) const POLL_INTERVAL: &str = "3s";
    pub(crate) const MAX_POLL_INTERVAL: &str = "60s";
    pub(crate) const CALLS: u32 = 60;

    /// `None`: this server does not manage allocations.
    pub(crate) fn options(&self, absolute: impl Fn(&PathBuf) -> PathBuf) -> Option<SlurmServiceOptions> {
        self.slurm.then(|| SlurmServiceOptions {
            worker_url: self.slurm_worker_url.clone(),
            worker_program: self.slurm_windlass.as_ref().map(absolute),
            min_poll_interval: self.slurm_poll.max(Duration::from_secs(1)),
            max_poll_interval: self.slurm_slowest_poll,
            calls_per_minute: self.slurm_calls,
            jobs_of: AcceptedJobOwners::from_users(&self.slurm_jobs_of),
        })
    }
}
