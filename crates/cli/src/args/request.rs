//! Requests: datasets to produce, which are planned into work units and run at sites.

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
A request defines which dataset to produce, from which input or generator, and how; it is planned into work units that run \
at sites. Its document is YAML, JSON, JSON5, TOML or KDL, in the format of Windlass or ReqMgr2.

Examples:
  windlass catalog add data/ as /Muons/Run3-v1/RAW     register input files
  windlass request plan reco.yaml                      show the work units; nothing runs
  windlass request run reco.yaml                       run it on this machine, without a server
  windlass request submit reco.yaml --watch            run it on the workers of a server
  windlass request list --status active,queued         list requests and their progress
  windlass request show reco                           show a request and its history
  windlass request stop reco --reason \"disk is full\"   stop it; completed work is kept
  windlass request errors reco                         show failures and possible fixes
  windlass request release reco --ban T2_There         release a held request, without that site
  windlass request restart reco --cleanup immediate    start over; invalidate old outputs when new ones are complete";

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
    /// Validate the documents of requests and submit them.
    Submit(RequestSubmitArgs),
    /// Submit requests of ReqMgr2: from its documents, or by name.
    Import(RequestImportArgs),
    /// Run requests on this machine, with a temporary server and workers.
    Run(RequestRunArgs),
    /// List requests.
    List(RequestListArgs),
    /// Show the details of a request: document, progress, history.
    #[command(alias = "get")]
    Show(OneRequestArgs),
    /// Show the work units of a request; nothing runs.
    Plan(RequestPlanArgs),
    /// Show predicted and measured resources of the rounds of a request.
    Metrics(RequestMetricsArgs),
    /// Follow a request until it ends.
    Watch(RequestWatchArgs),
    /// Stop the run of a request. Completed work is kept, and the request returns to the queue.
    Stop(RequestStopArgs),
    /// Show the failures of a request, and possible fixes.
    Errors(RequestErrorListArgs),
    /// Release a held request, optionally without a site, with more memory, or without bad files.
    Release(RequestReleaseArgs),
    /// Fail a request: stop its jobs, and list its outputs for cleanup.
    Fail(RequestFailArgs),
    /// Abandon a request and submit it again as its next version.
    Restart(RequestRestartArgs),
    /// Invalidate the outputs of a request that has ended.
    Invalidate(RequestInvalidateArgs),
    /// Show alerts about requests and sites.
    Alerts(RequestAlertsArgs),
    /// Cancel a request: stop its jobs, and invalidate incomplete outputs.
    #[command(alias = "abort")]
    Cancel(RequestCancelArgs),
    /// Change the priority of a request.
    Priority(RequestPriorityArgs),
    /// Show the versions of a request.
    Versions(OneRequestArgs),
    /// List the input files of a request with their states: processed, to be retried, excluded.
    Files(RequestFilesArgs),
    /// Runs of requests, and of workflows on HTCondor: list, show, nodes, logs, hold, release …
    #[command(alias = "dags")]
    Dag(super::dag::DagArgs),
    /// Limit of concurrent requests, and the queue: show, set.
    Admission(super::site::AdmissionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RequestSubmitArgs {
    /// Documents of requests; `-` reads standard input. A document may contain a list of requests.
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Later priority: `0.5:80000` returns the request to the queue with priority 80000 when half of its work units
    /// are completed; repeat for more steps.
    #[arg(long = "step", value_name = "FRACTION:PRIORITY")]
    pub(crate) steps: Vec<String>,
    /// Validate the documents and show what would be submitted, without submitting it.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Follow the requests until they end; the exit code reports the result.
    #[arg(short, long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Documents are arguments of `createRequest`, or responses of ReqMgr2, which may contain several requests. All are validated \
before the first is submitted: if one is invalid, all errors are reported and none is submitted.

A name is looked up in ReqMgr2. If --reqmgr2 or the setting reqmgr2.url is given, this command does that, with your \
certificate; otherwise the server does it, with its own certificate. The requests are submitted one by one, and the result of \
each is shown.

Examples:
  windlass request import pdmvserv_task_1
  windlass request import pdmvserv_task_1 --reqmgr2 https://cmsweb.cern.ch:8443/reqmgr2 --reqmgr2-cert proxy.pem
  windlass request import ReReco_LumiMask.json TC_ProdPsi.json
  curl -s --cert proxy.pem \"$REQMGR2/data/request?name=pdmvserv_task_1\" | windlass request import -")]
pub(crate) struct RequestImportArgs {
    /// Files with documents of ReqMgr2 (`-` reads standard input), or names of requests in ReqMgr2.
    #[arg(value_name = "FILE|NAME", required = true)]
    pub(crate) what: Vec<String>,
    /// Later priority: `0.5:80000` returns the request to the queue with priority 80000 when half of its work units
    /// are completed; repeat for more steps.
    #[arg(long = "step", value_name = "FRACTION:PRIORITY")]
    pub(crate) steps: Vec<String>,
    #[command(flatten)]
    pub(crate) reqmgr2: Reqmgr2Args,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Starts a private server, and one worker per site, on this machine. All of them exit when the requests have ended. After an \
interruption, repeat the command: it continues from the database in .windlass/.

Examples:
  windlass request run reco.yaml
  windlass request run gen.yaml reco.yaml --site T1_Here --site T2_There --num-cpus 4")]
pub(crate) struct RequestRunArgs {
    /// Documents of requests. Default: the requests in the database that have not ended.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Site to simulate on this machine, with its own worker; repeat for more.
    #[arg(id = "run_site", long = "site", value_name = "NAME", default_value = "local", value_parser = parse_site)]
    pub(crate) sites: Vec<String>,
    /// CPUs that the worker of each site may use. Default: all of the machine.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) num_cpus: Option<u32>,
    /// Maximum number of concurrent jobs of the worker of each site.
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
    /// Only requests in this status; separate several by commas.
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = parse_status)]
    pub(crate) status: Vec<RequestStatus>,
    /// Only requests that have not ended.
    #[arg(long, conflicts_with = "status")]
    pub(crate) open: bool,
    /// Only requests of this campaign.
    #[arg(long, value_name = "NAME")]
    pub(crate) campaign: Option<String>,
    /// Only requests of this requestor.
    #[arg(long, value_name = "NAME")]
    pub(crate) requestor: Option<String>,
    /// Only requests whose name matches this pattern; `*` matches anything.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) name: Option<String>,
    /// Sort by this field. Default: name.
    #[arg(long, value_enum, value_name = "FIELD")]
    pub(crate) sort_by: Option<RequestOrderArg>,
    /// Reverse the order.
    #[arg(long, visible_alias = "reverse")]
    pub(crate) reverse_sort: bool,
    /// Maximum number of entries.
    #[arg(short, long, value_name = "N", default_value_t = 1000)]
    pub(crate) limit: u64,
    /// Number of entries to skip.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) offset: u64,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass request metrics reco                    memory, time, cores and events per job of each round
  windlass request metrics reco --plot reco.svg    the same as a plot
  windlass request metrics reco --format json      with the data of each step")]
pub(crate) struct RequestMetricsArgs {
    /// Name of the request.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Also plot the metrics into this SVG file.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct OneRequestArgs {
    /// Name of the request.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
States: `processed` means that all work units that read the file are completed. `attempted` means that a work unit failed: \
a later round reads the file again, or the parts in the column LEFT, after all other files. `excluded` means that the file \
is bad, or that an operator excluded it: it is not read again. Files that no round has read yet are not listed.

Examples:
  windlass request files reco --state excluded         list files missing from the outputs, with reasons
  windlass request files reco --format json")]
pub(crate) struct RequestFilesArgs {
    /// Name of the request.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Only files in this state: `attempted`, `processed` or `excluded`; separate several by commas.
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = parse_state)]
    pub(crate) state: Vec<RequestFileState>,
    /// Maximum number of entries.
    #[arg(short, long, value_name = "N", default_value_t = 1000)]
    pub(crate) limit: u64,
    /// Number of entries to skip.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) offset: u64,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass request plan reco.yaml                 a table of the work units, with totals
  windlass request plan reco.yaml --format json   the complete plan
  windlass request plan reco --draw               a drawing of a work unit and the blocks
  windlass request plan reco.yaml --site T2_A=500 --site T2_B
                                                  plan for these sites, the first with 500 slots")]
pub(crate) struct RequestPlanArgs {
    /// Name of a request, or a file with its document.
    #[arg(value_name = "NAME|FILE")]
    pub(crate) request: String,
    /// Draw the plan instead of listing the work units.
    #[arg(long)]
    pub(crate) draw: bool,
    /// Site to plan for, optionally with its number of slots; repeat for more. Default: the known sites, or
    /// `local`.
    #[arg(id = "plan_site", long = "site", value_name = "NAME[=SLOTS]")]
    pub(crate) sites: Vec<String>,
    /// Show all work units instead of the first few.
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 completed, 1 failed or aborted, 6 held and waiting for an operator, 3 interrupted (the request continues).")]
pub(crate) struct RequestWatchArgs {
    /// Names of requests. Default: all that have not ended.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Stop following after this time: `30m`, `2h`. The requests continue. Default: no limit.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct RequestReasonArgs {
    /// Name of the request.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Reason, recorded in the history.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct RequestStopArgs {
    #[command(flatten)]
    pub(crate) request: RequestReasonArgs,
    /// Wait until the request has stopped.
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RequestCancelArgs {
    #[command(flatten)]
    pub(crate) request: RequestReasonArgs,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RequestPriorityArgs {
    /// Name of the request.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Priority; requests with larger values run first.
    #[arg(value_name = "PRIORITY", allow_negative_numbers = true)]
    pub(crate) priority: i64,
}

fn parse_state(text: &str) -> Result<RequestFileState, String> {
    text.parse().map_err(|error: windlass_types::requests::ParseEnumNameError| error.to_string())
}

fn parse_status(text: &str) -> Result<RequestStatus, String> {
    text.parse().map_err(|error: windlass_types::requests::ParseEnumNameError| error.to_string())
}
