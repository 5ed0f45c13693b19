//! Operations on requests: release, fail, restart, invalidate; and errors and alerts.

use super::list_options::ConfirmArgs;
use super::request::RequestReasonArgs;
use super::run::parse_memory;
use clap::{Args, ValueEnum};
use std::time::Duration;
use windlass_types::requests::CleanupPolicy;
use windlass_types::{Bytes, parse_duration};

#[derive(Debug, Args)]
#[command(after_help = "\
A request is held if too many work units of a round failed, or if it was rescued too often. After the release, finished \
work is kept and the rest is queued as the next round; with --rescue the same round is retried. Either all given changes \
apply or none: if one is invalid, the command reports the error, and the request stays held.

If recording an output fails for three days, the server gives up, and `request show` reports it. A release retries the \
recording; for this, the request need not be held and may have ended.

Examples:
  windlass request release reco                        release without changes: a site was down
  windlass request release reco --ban T2_There         run the rest elsewhere, for seven days
  windlass request release reco --ban T2_There --ban-for 1d
  windlass request release reco --memory 3g --retries 5
  windlass request release reco --time-per-event 20    its jobs ran out of time: an event takes 20 s
  windlass request release reco --exclude-bad          without unreadable input files
  windlass request release reco --threshold 0.5 --reason \"half of it is enough\"
  windlass request release reco --rescue               retry the failed units in the same round")]
pub(crate) struct RequestReleaseArgs {
    #[command(flatten)]
    pub(crate) request: RequestReasonArgs,
    /// Site to ban for this request; repeat for more.
    #[arg(long = "ban", value_name = "SITE")]
    pub(crate) bans: Vec<String>,
    /// Duration of the bans: `12h`, `3d`. Default: `--site-ban-duration` of the server (7d).
    #[arg(long, value_name = "DURATION", requires = "bans", value_parser = parse_duration)]
    pub(crate) ban_for: Option<Duration>,
    /// Memory of a processing job in total, not per core: `3g`, `2500m`; a number without unit is GiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub(crate) memory: Option<Bytes>,
    /// Time per event in seconds, for rounds planned from now on.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) time_per_event: Option<f64>,
    /// Number of retries of a processing job.
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<i64>,
    /// Fraction of failed work units of a round at which the request is held: `0.3`.
    #[arg(long, value_name = "SHARE")]
    pub(crate) threshold: Option<f64>,
    /// Maximum number of rescues of a round before the request is held.
    #[arg(id = "rescues_of_round", long = "max-rescues", value_name = "N")]
    pub(crate) max_rescues: Option<i64>,
    /// Input file to exclude, by its logical name; repeat for more.
    #[arg(long = "exclude", value_name = "LFN")]
    pub(crate) excluded: Vec<String>,
    /// Exclude all input files that caused permanent failures; `request errors` lists them.
    #[arg(long)]
    pub(crate) exclude_bad: bool,
    /// Retry the failed work units within the same round.
    #[arg(long)]
    pub(crate) rescue: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
First, the jobs of the request are stopped. Then its outputs are listed in invalidation.json in the directory of the \
request, by block with rules and files; `request invalidate` invalidates them. Windlass never fails a request without this \
command.

Examples:
  windlass request fail reco --reason \"the release is broken\"
  windlass request fail reco --lost                    its schedd no longer exists: do not wait for its run")]
pub(crate) struct RequestFailArgs {
    #[command(flatten)]
    pub(crate) request: RequestReasonArgs,
    /// Declare the backend of the run permanently lost: do not wait for the run if the backend does not
    /// respond.
    #[arg(long)]
    pub(crate) lost: bool,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

/// Cleanup of the old outputs when the new request is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CleanupPolicyArg {
    /// Invalidate the old outputs.
    Immediate,
    /// Keep the old outputs until they are invalidated by hand.
    Keep,
}

impl CleanupPolicyArg {
    pub(crate) const fn policy(self) -> CleanupPolicy {
        match self {
            Self::Immediate => CleanupPolicy::ImmediateCleanup,
            Self::Keep => CleanupPolicy::KeepUntilReplaced,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
The request is abandoned and submitted again under a new name with the next processing version, so that it writes into its \
own datasets. Old outputs stay readable until the new ones are complete. A request is restarted only once: repeating the \
command reports the new request.

Examples:
  windlass request restart reco_v1 --reason \"wrong global tag in round 1\"
  windlass request restart reco_v1 --cleanup immediate    invalidate old outputs when new ones are complete
  windlass request restart reco_v1 --lost                 its schedd no longer exists: do not wait for its run")]
pub(crate) struct RequestRestartArgs {
    #[command(flatten)]
    pub(crate) request: RequestReasonArgs,
    /// What happens to the old outputs when the new request is completed. Default: the policy of the old
    /// request.
    #[arg(long, value_enum, value_name = "POLICY")]
    pub(crate) cleanup: Option<CleanupPolicyArg>,
    /// Declare the backend of the run permanently lost: do not wait for the run if the backend does not
    /// respond.
    #[arg(long)]
    pub(crate) lost: bool,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
For requests that have failed or were restarted; `request versions` shows the versions of a request.

Examples:
  windlass request invalidate reco_v1 --reason \"reco_v2 is complete\"
  windlass request show reco_v1                        shows when its outputs were invalidated")]
pub(crate) struct RequestInvalidateArgs {
    #[command(flatten)]
    pub(crate) request: RequestReasonArgs,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Shows the failed attempts of the current round and its rescues, grouped by error and site, with the last output of one \
attempt of each group; then possible fixes with the commands to type.

Examples:
  windlass request errors reco
  windlass request errors reco --all                   all rounds
  windlass request errors reco --format json           all data, for programs")]
pub(crate) struct RequestErrorListArgs {
    /// Name of the request.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Include all rounds.
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass request alerts                              recent alerts
  windlass request alerts reco                         alerts about this request
  windlass request alerts --kind site_banned")]
pub(crate) struct RequestAlertsArgs {
    /// Only alerts about this request.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Only alerts of this kind: `held`, `site_banned`, `failing_alike`, …
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// Maximum number of alerts, newest first.
    #[arg(short, long, value_name = "N", default_value_t = 100)]
    pub(crate) limit: u64,
}
