//! Requests: datasets to be made, planned into work units and carried through their life.

use super::list_options::ConfirmArgs;
use super::reqmgr2::Reqmgr2Args;
use super::request_operations::{
    RequestAlertsArgs, RequestErrorListArgs, RequestFailArgs, RequestInvalidateArgs, RequestReleaseArgs,
    RequestRestartArgs,
};
use super::worker::parse_site;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use windlass_types::parse_duration;
use windlass_types::requests::{RequestFileState, RequestStatus};

pub(crate) const EXAMPLES: &str = "\
A request says which dataset is to be made from which, or generated, and how; it is planned into work units that run at
sites. Its document is YAML, JSON, JSON5, TOML or KDL, of our own form or ReqMgr2's.

Examples:
  windlass catalog add data/ as /Muons/Run3-v1/RAW     what there is to read
  windlass request plan reco.yaml                      what would be done; nothing runs
  windlass request run reco.yaml                       do it on this machine, with nothing to install
  windlass request submit reco.yaml --watch            have the workers of a server do it
  windlass request list --status active,queued         how they stand
  windlass request show reco                           one of them, and its history
  windlass request stop reco --reason \"disk is full\"   stop it cleanly; it goes on when its turn comes
  windlass request errors reco                         what went wrong, and what to do about it
  windlass request release reco --ban T2_There         let one go on that is held, without that site
  windlass request restart reco --cleanup immediate    begin it anew; the old outputs go when the new ones are there";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct RequestArgs {
    #[command(flatten)]
    pub(crate) list: RequestListArgs,
    #[command(subcommand)]
    pub(crate) verb: Option<RequestSubcommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RequestSubcommand {
    /// Check the documents of requests and submit them.
    Submit(RequestSubmitArgs),
    /// Submit requests as ReqMgr2 has them: from its documents, or by name.
    Import(RequestImportArgs),
    /// Carry requests out on this machine: a server and workers for as long as it takes.
    Run(RequestRunArgs),
    /// List requests.
    List(RequestListArgs),
    /// Show all about a request: what is wished for, how far it is, its history.
    #[command(alias = "get")]
    Show(OneRequestArgs),
    /// Show what a request would do, unit by unit; nothing runs.
    Plan(RequestPlanArgs),
    /// Show how the rounds of a request learn: what each thought its jobs would use, and what they used.
    Metrics(RequestMetricsArgs),
    /// Follow a request until it is over.
    Watch(RequestWatchArgs),
    /// Stop a request cleanly; what is done stays done, and it goes on when its turn comes again.
    Stop(RequestStopArgs),
    /// Show what went wrong in a request, and what might be done about it.
    Errors(RequestErrorListArgs),
    /// Let a request go on that is held, perhaps without a site, with more memory, or without bad files.
    Release(RequestReleaseArgs),
    /// Give a request up for good: what runs is stopped, and what there is of its outputs is listed.
    Fail(RequestFailArgs),
    /// Give a request up and begin it anew, as its next version.
    Restart(RequestRestartArgs),
    /// Take back the outputs of a request that is over.
    Invalidate(RequestInvalidateArgs),
    /// Show what people were told of requests and sites.
    Alerts(RequestAlertsArgs),
    /// End a request for good: what runs is stopped, outputs that are not whole are taken back.
    #[command(alias = "abort")]
    Cancel(RequestCancelArgs),
    /// Give a request another priority.
    Priority(RequestPriorityArgs),
    /// Show the versions of a request.
    Versions(OneRequestArgs),
    /// Show which input files are processed, to be tried again, or excluded and why.
    Files(RequestFilesArgs),
    /// Runs of requests and workflows as DAGs: list, show, nodes, logs, hold, release …
    #[command(alias = "dags")]
    Dag(super::dag::DagArgs),
    /// Limit of concurrent requests, and the queue: show, set.
    Admission(super::site::AdmissionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RequestSubmitArgs {
    /// Documents of requests; `-` is standard input. A document may also be a list of requests.
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// When this share of the work units is done, the rest goes on with that priority; give it again for more steps.
    #[arg(long = "step", value_name = "FRACTION:PRIORITY")]
    pub(crate) steps: Vec<String>,
    /// Check only, and say what would be submitted.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Follow them until they are over; the exit code says how they ended.
    #[arg(short, long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Documents are what `createRequest` was given, or what ReqMgr2 answers when it is asked for requests, of which there may be
several in one. All are checked before the first is submitted: if one is wrong, what is wrong with any is told, and none is.

A name is asked for in ReqMgr2: by you, where you say where it is (--reqmgr2, or reqmgr2.url in the settings), with your
certificate; otherwise by the server, with its own. What the server asks for is submitted one by one, and what became of
each is told.

Examples:
  windlass request import pdmvserv_task_1
  windlass request import pdmvserv_task_1 --reqmgr2 https://cmsweb.cern.ch:8443/reqmgr2 --reqmgr2-cert proxy.pem
  windlass request import ReReco_LumiMask.json TC_ProdPsi.json
  curl -s --cert proxy.pem \"$REQMGR2/data/request?name=pdmvserv_task_1\" | windlass request import -")]
pub(crate) struct RequestImportArgs {
    /// Files with documents of ReqMgr2, `-` for standard input; or names of requests in ReqMgr2.
    #[arg(value_name = "FILE|NAME", required = true)]
    pub(crate) what: Vec<String>,
    /// When this share of the work units is done, the rest goes on with that priority; give it again for more steps.
    #[arg(long = "step", value_name = "FRACTION:PRIORITY")]
    pub(crate) steps: Vec<String>,
    #[command(flatten)]
    pub(crate) reqmgr2: Reqmgr2Args,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Starts a server on this machine that nobody else can talk to, and a worker for each site; when all requests are over both
end. Interrupted, it goes on when it is called again: the books are in .windlass/, as those of workflows are.

Examples:
  windlass request run reco.yaml
  windlass request run gen.yaml reco.yaml --site T1_Here --site T2_There --num-cpus 4")]
pub(crate) struct RequestRunArgs {
    /// Documents of requests. Without any: those in the books that are not over.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// A site that this machine pretends to be, with a worker of its own; give it again for more.
    #[arg(id = "run_site", long = "site", value_name = "NAME", default_value = "local", value_parser = parse_site)]
    pub(crate) sites: Vec<String>,
    /// CPUs that the worker of each site may use; all of the machine by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) num_cpus: Option<u32>,
    /// Jobs that the worker of each site runs at once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_jobs: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RequestOrderArg {
    Name,
    Status,
    Priority,
    Campaign,
    Created,
    Updated,
}

#[derive(Debug, Default, Args)]
pub(crate) struct RequestListArgs {
    /// Only those in this status; several with commas.
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = parse_status)]
    pub(crate) status: Vec<RequestStatus>,
    /// Only those that are not over.
    #[arg(long, conflicts_with = "status")]
    pub(crate) open: bool,
    /// Only those of this campaign.
    #[arg(long, value_name = "NAME")]
    pub(crate) campaign: Option<String>,
    /// Only those of this person.
    #[arg(long, value_name = "NAME")]
    pub(crate) requestor: Option<String>,
    /// Only those whose name is like this; `*` stands for anything.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) name: Option<String>,
    /// Sort by this instead of by name.
    #[arg(long, value_enum, value_name = "FIELD")]
    pub(crate) sort_by: Option<RequestOrderArg>,
    /// The other way round.
    #[arg(long, visible_alias = "reverse")]
    pub(crate) reverse_sort: bool,
    /// List at most this many.
    #[arg(short, long, value_name = "N", default_value_t = 1000)]
    pub(crate) limit: u64,
    /// Leave out this many at the start.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) offset: u64,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass request metrics reco                    memory, time, cores and events per job, round by round
  windlass request metrics reco --plot reco.svg    the same as a picture
  windlass request metrics reco --format json      with what is known of each step")]
pub(crate) struct RequestMetricsArgs {
    /// The name of the request.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Draw it as well, as an SVG.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct OneRequestArgs {
    /// The name of the request.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A file is processed when all work units that read it are completed. One in a unit that failed is tried again in a later
round, after all others; what is left of it is told where other units have done a part. One that was found bad, or that
somebody excluded, is not read any more. Files that no round has dealt with are not listed.

Examples:
  windlass request files reco --state excluded         what is not in the outputs, and why
  windlass request files reco --format json")]
pub(crate) struct RequestFilesArgs {
    /// The name of the request.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Only those in this state: `attempted`, `processed` or `excluded`; several with commas.
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = parse_state)]
    pub(crate) state: Vec<RequestFileState>,
    /// List at most this many.
    #[arg(short, long, value_name = "N", default_value_t = 1000)]
    pub(crate) limit: u64,
    /// Leave out this many at the start.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) offset: u64,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass request plan reco.yaml                 a table of the work units, and what they come to
  windlass request plan reco.yaml --format json   the whole plan
  windlass request plan reco --draw               a picture of a work unit and the blocks
  windlass request plan reco.yaml --site T2_A=500 --site T2_B
                                                  as if there were these sites, the first with 500 slots")]
pub(crate) struct RequestPlanArgs {
    /// The name of a request, or a file with its document.
    #[arg(value_name = "NAME|FILE")]
    pub(crate) request: String,
    /// Draw it instead.
    #[arg(long)]
    pub(crate) draw: bool,
    /// Plan as if these were the sites, perhaps with their slots; give it again for more. Without it: those that are known,
    /// or `local`.
    #[arg(id = "plan_site", long = "site", value_name = "NAME[=SLOTS]")]
    pub(crate) sites: Vec<String>,
    /// Show all work units, however many there are.
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 completed, 1 failed or aborted, 6 held: somebody has to decide, 3 interrupted (the request goes on).")]
pub(crate) struct RequestWatchArgs {
    /// Names of requests; without any, all that are not over.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Give up following after this time: `30m`, `2h`. The requests go on.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct RequestReasonArgs {
    /// The name of the request.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Why, for the history.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct RequestStopArgs {
    #[command(flatten)]
    pub(crate) which: RequestReasonArgs,
    /// Come back only when it has stopped.
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RequestCancelArgs {
    #[command(flatten)]
    pub(crate) which: RequestReasonArgs,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RequestPriorityArgs {
    /// The name of the request.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Higher goes first.
    #[arg(value_name = "PRIORITY", allow_negative_numbers = true)]
    pub(crate) priority: i64,
}

fn parse_state(text: &str) -> Result<RequestFileState, String> {
    text.parse().map_err(|error: windlass_types::requests::ParseNameError| error.to_string())
}

fn parse_status(text: &str) -> Result<RequestStatus, String> {
    text.parse().map_err(|error: windlass_types::requests::ParseNameError| error.to_string())
}
