//! What operators do about requests: let them go on, give them up, begin them anew, take outputs back; and look at why.

use super::list_options::ConfirmArgs;
use super::request::RequestReasonArgs;
use super::run::parse_memory;
use clap::{Args, ValueEnum};
use std::time::Duration;
use windlass_types::requests::CleanupPolicy;
use windlass_types::{Bytes, parse_duration};

#[derive(Debug, Args)]
#[command(after_help = "\
A request is held when too much of a round failed, or when it was rescued too often. Released, what is done is credited, and
the next round does what is left; with --rescue the same round is tried once more. What is changed with it holds from then
on, all of it or nothing: what is wrong is told at once, and the request stays held.

Recording outputs that was given up after three days of failures is tried again, also of a request that is not held or over;
`request show` says when there is such a thing.

Examples:
  windlass request release reco                        nothing was wrong with it: a site was down
  windlass request release reco --ban T2_There         what is left goes elsewhere, for seven days
  windlass request release reco --ban T2_There --ban-for 1d
  windlass request release reco --memory 3g --retries 5
  windlass request release reco --time-per-event 20    its jobs ran out of time: an event takes 20 s
  windlass request release reco --exclude-bad          without the input files that could not be read
  windlass request release reco --threshold 0.5 --reason \"half of it is enough\"
  windlass request release reco --rescue               try what failed once more, in the same round")]
pub(crate) struct RequestReleaseArgs {
    #[command(flatten)]
    pub(crate) which: RequestReasonArgs,
    /// A site that gets nothing more of it for a while; give it again for more.
    #[arg(long = "ban", value_name = "SITE")]
    pub(crate) bans: Vec<String>,
    /// For how long: `12h`, `3d`. Without it as long as sites are banned by themselves: `serve --site-ban-duration`, seven
    /// days.
    #[arg(long, value_name = "DURATION", requires = "bans", value_parser = parse_duration)]
    pub(crate) ban_for: Option<Duration>,
    /// What a job of it gets, all cores together: `3g`, `2500m`; a number alone is GiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub(crate) memory: Option<Bytes>,
    /// How long an event of it takes, for the rounds that are planned from now on.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) time_per_event: Option<f64>,
    /// How often a processing job is tried again.
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<i64>,
    /// Hold it when this share of the work units of a round has failed: `0.3`.
    #[arg(long, value_name = "SHARE")]
    pub(crate) threshold: Option<f64>,
    /// How often a round is rescued after failures before it is held.
    #[arg(id = "rescues_of_round", long = "max-rescues", value_name = "N")]
    pub(crate) max_rescues: Option<i64>,
    /// An input file that is not to be read any more, by its logical name; give it again for more.
    #[arg(long = "exclude", value_name = "LFN")]
    pub(crate) excluded: Vec<String>,
    /// Leave out all input files that work units failed for good because of; `request errors` lists them.
    #[arg(long)]
    pub(crate) exclude_bad: bool,
    /// Try what failed once more within the same round.
    #[arg(long)]
    pub(crate) rescue: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
What runs is stopped first. What there is of its outputs, block by block with its rules and files, is then listed in
invalidation.json in the directory of the request, for whoever cleans up; `request invalidate` has them taken back.
Nothing but a person ever makes a request fail.

Examples:
  windlass request fail reco --reason \"the release is broken\"
  windlass request fail reco --lost                    its schedd is gone for good: do not wait for its run")]
pub(crate) struct RequestFailArgs {
    #[command(flatten)]
    pub(crate) which: RequestReasonArgs,
    /// The backend of its run is lost for good: if it does not answer, do not wait for it.
    #[arg(long)]
    pub(crate) lost: bool,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

/// What becomes of the old outputs when the new request is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CleanupPolicyArg {
    /// They are taken back.
    Immediate,
    /// They stay until somebody takes them back.
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
The request is given up, and the same wish is submitted under a new name with the next processing version, so that it
writes into datasets of its own. Old outputs stay readable until the new ones are complete. Called twice, it says which
request has taken its place.

Examples:
  windlass request restart reco_v1 --reason \"wrong global tag in round 1\"
  windlass request restart reco_v1 --cleanup immediate    old outputs go as soon as the new ones are complete
  windlass request restart reco_v1 --lost                 its schedd is gone for good: do not wait for its run")]
pub(crate) struct RequestRestartArgs {
    #[command(flatten)]
    pub(crate) which: RequestReasonArgs,
    /// What becomes of the old outputs when the new request is completed; as the old one has it without this.
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(crate) cleanup: Option<CleanupPolicyArg>,
    /// The backend of its run is lost for good: if it does not answer, do not wait for it.
    #[arg(long)]
    pub(crate) lost: bool,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
For requests that are over: failed ones, and those that another has taken the place of (`request versions` shows them).

Examples:
  windlass request invalidate reco_v1 --reason \"reco_v2 is complete\"
  windlass request show reco_v1                        says when its outputs are invalidated")]
pub(crate) struct RequestInvalidateArgs {
    #[command(flatten)]
    pub(crate) which: RequestReasonArgs,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Failed attempts of the present round and its rescues, by what went wrong and where, with what one of each kind said last;
then what might be done about it, with the command to type.

Examples:
  windlass request errors reco
  windlass request errors reco --all                   over all rounds
  windlass request errors reco --format json           all of it, for programs")]
pub(crate) struct RequestErrorListArgs {
    /// The name of the request.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Over all its rounds.
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass request alerts                              what there was of late
  windlass request alerts reco                         about this request
  windlass request alerts --kind site_banned")]
pub(crate) struct RequestAlertsArgs {
    /// Only those about this request.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Only those of this kind: `held`, `site_banned`, `failing_alike`, …
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// The newest so many.
    #[arg(short, long, value_name = "N", default_value_t = 100)]
    pub(crate) limit: u64,
}
