//! How `windlass serve` looks after allocations of Slurm.

use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use windlass_server::options::SlurmServiceOptions;
use windlass_types::parse_duration;
use windlass_types::worker_protocol::AcceptedJobOwners;

#[derive(Args, Debug)]
#[command(next_help_heading = "Slurm")]
pub(crate) struct AllocationReconcilerArgs {
    /// Look after allocations of Slurm: submit those that workflows ask for, follow them, cancel those that nobody needs.
    #[arg(id = "serve_slurm", long = "slurm")]
    pub(crate) slurm: bool,
    /// Where workers in allocations find this server. By default where it listens, which nodes must be able to reach.
    #[arg(long, value_name = "URL")]
    pub(crate) slurm_worker_url: Option<String>,
    /// The windlass that workers in allocations are, as nodes see it. By default this one.
    #[arg(long, value_name = "PATH")]
    pub(crate) slurm_windlass: Option<PathBuf>,
    /// Ask Slurm so often while something happens to allocations.
    #[arg(long, value_name = "DURATION", default_value = Self::POLL_INTERVAL, value_parser = parse_duration)]
    pub(crate) slurm_poll: Duration,
    /// Ask Slurm so often while nothing happens to them.
    #[arg(long, value_name = "DURATION", default_value = Self::MAX_POLL_INTERVAL, value_parser = parse_duration)]
    pub(crate) slurm_slowest_poll: Duration,
    /// Also submit allocations for the workflows of these users, or of `all`. Their jobs run with the account of this server and can
    /// do everything that it can, so use it only where you trust these users. Default: only for your own workflows.
    #[arg(long, value_name = "USER", value_delimiter = ',', value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) slurm_jobs_of: Vec<String>,
    /// Call commands of Slurm at most so often per minute, all together.
    #[arg(long, value_name = "N", default_value_t = Self::CALLS, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slurm_calls: u32,
}

impl AllocationReconcilerArgs {
    pub(crate) const POLL_INTERVAL: &str = "3s";
    pub(crate) const MAX_POLL_INTERVAL: &str = "60s";
    pub(crate) const CALLS: u32 = 60;

    /// `None`: allocations are not looked after.
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
