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
A request is held if too many work units of a round failed, or if it was rescued too often. After the release, finished work \
is kept and the rest is queued as the next round; with --rescue the same round is retried. Changes apply from then on, all or \
none: errors are reported at once, and the request stays held.

If the server gave up recording outputs after three days of failures, the release retries it, also for requests that are not \
held or have ended; `request show` reports such a failure.

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
    /// Duration of the ban: `12h`, `3d`. Default: that of automatic bans, `serve --site-ban-duration` (seven
    /// days).
    #[arg(long, value_name = "DURATION", requires = "bans", value_parser = parse_duration)]
    pub(crate) ban_for: Option<Duration>,
    /// Memory of a job for all its cores: `3g`, `2500m`; a number without unit is GiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub(crate) memory: Option<Bytes>,
    /// Time per event in seconds, for rounds planned from now on.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) time_per_event: Option<f64>,
    /// Number of retries of a processing job.
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<i64>,
    /// Share of failed work units of a round at which the request is held: `0.3`.
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
The jobs of the request are stopped first. Its outputs, by block with rules and files, are then listed in invalidation.json \
in the directory of the request for cleanup; `request invalidate` invalidates them. Windlass never fails a request by itself.

Examples:
  windlass request fail reco --reason \"the release is broken\"
  windlass request fail reco --lost                    its schedd is gone: do not wait for its run")]
pub(crate) struct RequestFailArgs {
    #[command(flatten)]
    pub(crate) request: RequestReasonArgs,
    /// Do not wait for the run if its backend does not respond, because the backend is permanently lost.
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
own datasets. Old outputs stay readable until the new ones are complete. If it was restarted before, the command reports the \
new request.

Examples:
  windlass request restart reco_v1 --reason \"wrong global tag in round 1\"
  windlass request restart reco_v1 --cleanup immediate    delete old outputs when the new ones are complete
  windlass request restart reco_v1 --lost                 its schedd is gone: do not wait for its run")]
pub(crate) struct RequestRestartArgs {
    #[command(flatten)]
    pub(crate) request: RequestReasonArgs,
    /// Cleanup of the old outputs when the new request is completed. Default: the policy of the old request.
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(crate) cleanup: Option<CleanupPolicyArg>,
    /// Do not wait for the run if its backend does not respond, because the backend is permanently lost.
    #[arg(long)]
    pub(crate) lost: bool,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
For requests that have ended: failed ones, and those that were restarted (`request versions` shows them).

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
attempt of each group; then possible remedies with the commands to type.

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
