//! Jobs of requests, which run on workers.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use windlass_payload::simulate::parse_fault;
use windlass_types::payload::SimulatedFailureKind;

const AFTER_HELP: &str = "\
Workers start these jobs of a request; call them by hand only to debug a failure or to test a command. A manifest describes \
a work unit; the jobs write their results beside it: mg_000012/proc_3.json, metrics.json and, last, merge_output.json. \
Running a job again overwrites its results with the same bytes.

Exit codes: the exit code of a step up to 255, 128 + n for a signal. CMS exit codes above 255 are in the report, and the \
process exits with 65 (data), 66 (missing input), 70 (permanent), 71 (site), 74 (storage), 75 (transient), 124 (timeout) \
or 1 (memory, or unknown). The last line on stderr describes the failure.

Examples:
  windlass payload run mg_000012.json --node 3 --site T2_CH_CERN
  windlass payload merge mg_000012.json
  windlass payload simulate --events 100 --profile GEN --speed 1000 --output events.txt";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct PayloadArgs {
    #[command(subcommand)]
    pub(crate) verb: PayloadSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PayloadSubcommand {
    /// Run the steps of a node, and copy its outputs to the storage of the site.
    #[command(after_help = RUN_HELP)]
    Run(PayloadRunArgs),
    /// Check whether a site is suitable for a work unit: its storage and the inputs.
    Land(PayloadLandArgs),
    /// Merge the outputs of the nodes of a work unit.
    Merge(PayloadMergeArgs),
    /// Remove the unmerged files of a work unit.
    Cleanup(PayloadCleanupArgs),
    /// Simulate a program: use CPU and memory, write events and a job report, fail on request.
    #[command(after_help = SIMULATE_HELP)]
    Simulate(Box<PayloadSimulateArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct PayloadUnitArgs {
    /// Manifest of the work unit.
    #[arg(value_name = "MANIFEST")]
    pub(crate) manifest: PathBuf,
    /// Site where this runs. Default: $WINDLASS_SITE, or `local`.
    #[arg(long, value_name = "SITE")]
    pub(crate) site: Option<String>,
}

const RUN_HELP: &str = "\
A step is any command. It runs in an empty directory with these environment variables:
  WINDLASS_INPUTS           file with the paths of its inputs, one per line
  WINDLASS_INPUT_DETAILS    the same as JSON, with LFNs, event ranges and luminosity section masks
  WINDLASS_SKIP_EVENTS, WINDLASS_MAX_EVENTS
                            events to skip and to read, -1 for all: of the only input, or 0 and -1 if all inputs are
                            read in full; otherwise not set, and WINDLASS_INPUT_DETAILS has the ranges
  WINDLASS_EVENTS           expected number of events
  WINDLASS_FIRST_EVENT, WINDLASS_LAST_EVENT, WINDLASS_RUN_NUMBER, WINDLASS_FIRST_LUMI, WINDLASS_EVENTS_PER_LUMI
                            what to generate, if there are no inputs
  WINDLASS_OUTPUT           path of the output; several outputs are in the file WINDLASS_OUTPUTS, one per line
  WINDLASS_JOB_REPORT       path for a FrameworkJobReport, if the step writes one
  WINDLASS_SEED             random seed: the same for each attempt, different for each node and step
  WINDLASS_THREADS, WINDLASS_MEMORY_MB, WINDLASS_STEP, WINDLASS_NODE, WINDLASS_UNIT, WINDLASS_REQUEST, WINDLASS_SITE,
  WINDLASS_ATTEMPT, WINDLASS_MANIFEST_DIR";

#[derive(Debug, Args)]
pub(crate) struct PayloadRunArgs {
    #[command(flatten)]
    pub(crate) unit: PayloadUnitArgs,
    #[command(flatten)]
    pub(crate) results: PayloadResultsArgs,
    /// Number of the node in the work unit.
    #[arg(long, value_name = "N")]
    pub(crate) node: u32,
    #[command(flatten)]
    pub(crate) work: PayloadWorkDirArgs,
    /// Keep the scratch directory for inspection.
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PayloadWorkDirArgs {
    /// Parent of the scratch directory. Default: $TMPDIR or /tmp.
    #[arg(long, value_name = "DIR")]
    pub(crate) work_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PayloadResultsArgs {
    /// Directory with the reports of the work unit. Default: the directory beside the
    /// manifest that has the name of the work unit.
    #[arg(long, value_name = "DIR")]
    pub(crate) results: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PayloadLandArgs {
    #[command(flatten)]
    pub(crate) unit: PayloadUnitArgs,
    /// File to write missing inputs to. Default: `landing.json` in the directory of --results.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PayloadMergeArgs {
    #[command(flatten)]
    pub(crate) unit: PayloadUnitArgs,
    #[command(flatten)]
    pub(crate) results: PayloadResultsArgs,
    #[command(flatten)]
    pub(crate) work: PayloadWorkDirArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PayloadCleanupArgs {
    #[command(flatten)]
    pub(crate) unit: PayloadUnitArgs,
    #[command(flatten)]
    pub(crate) results: PayloadResultsArgs,
    /// Also clean up a work unit that was not merged; its results are lost.
    #[arg(long)]
    pub(crate) force: bool,
}

const SIMULATE_HELP: &str = "\
As a step of a manifest it gets its parameters from the environment (`windlass payload run --help`); options override them.

A profile defines which part of the work of an event is sequential; the rest is shared by all threads (Amdahl's law). \
Events are lines of text: run, luminosity section, event, and a value derived from the input.

Failure modes: exit:CODE (above 255 in the job report), signal:NAME, memory:SIZE (allocates that much, then reports that \
memory is exhausted), hang, bad-input (8021), no-output, no-events.";

#[derive(Debug, Args)]
pub(crate) struct PayloadSimulateArgs {
    /// Resource profile: GEN, DIGI, RECO, MINI or NANO. Default: the profile that the step's name begins with,
    /// or DIGI.
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<String>,
    /// Speed relative to the profile; memory and output are reduced by the same factor.
    #[arg(long, value_name = "FACTOR")]
    pub(crate) speed: Option<f64>,
    /// Share of events to keep, from 0 to 1.
    #[arg(long, value_name = "SHARE")]
    pub(crate) filter: Option<f64>,
    /// Number of threads.
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<u32>,
    /// Number of events to generate.
    #[arg(long, value_name = "N", conflicts_with = "input")]
    pub(crate) events: Option<u64>,
    /// Number of the first event to generate.
    #[arg(long, value_name = "N", default_value = "1", requires = "events")]
    pub(crate) first_event: u64,
    /// Random seed.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Input event file; repeat for more.
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Vec<PathBuf>,
    /// Output event file; repeat for more.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Vec<PathBuf>,
    /// Path of the job report.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// How to fail; the modes are listed below.
    #[arg(long, value_name = "WAY", value_parser = parse_fault)]
    pub(crate) fail: Option<SimulatedFailureKind>,
    /// Fail only at this site.
    #[arg(long, value_name = "SITE", requires = "fail")]
    pub(crate) fail_site: Option<String>,
    /// Fail only for this node.
    #[arg(long, value_name = "N", requires = "fail")]
    pub(crate) fail_node: Option<u32>,
    /// Fail only up to this attempt, counted from 1.
    #[arg(long, value_name = "N", requires = "fail")]
    pub(crate) fail_attempts: Option<u32>,
}
