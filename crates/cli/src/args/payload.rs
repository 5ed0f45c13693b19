//! What runs on a worker for a request.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use windlass_payload::simulate::parse_fault;
use windlass_types::payload::SimulatedFailureKind;

const AFTER_HELP: &str = "\
These are the jobs of a request, and nobody starts them by hand, except to see why one failed, or to try a command of his \
own. A manifest says what a work unit has to do; beside it the jobs leave what they did: mg_000012/proc_3.json, metrics.json \
and, last of all, merge_output.json. Running one again overwrites what it left, with the same bytes.

Exit codes: those of a step up to 255 as they are, 128 + n for a signal. Codes of CMS above 255 are in the report, and the \
process ends with 65 (data), 66 (an input is missing), 70 (happens each time), 71 (the site), 74 (its storage), 75 (may go \
away), 124 (time) or 1 (memory, or nothing that is known). The last line on stderr says which.

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
    /// Do the work of a node: its steps one after another, and its outputs into the storage of the site.
    #[command(after_help = RUN_HELP)]
    Run(PayloadRunArgs),
    /// Look whether a site will do for a work unit: its storage and the inputs.
    Land(PayloadLandArgs),
    /// Merge what the nodes of a work unit wrote.
    Merge(PayloadMergeArgs),
    /// Remove the unmerged files of a work unit.
    Cleanup(PayloadCleanupArgs),
    /// Stand in for a real program: uses CPU and memory as told, writes events and a job report, fails on demand.
    #[command(after_help = SIMULATE_HELP)]
    Simulate(Box<PayloadSimulateArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct PayloadUnitArgs {
    /// The manifest of the work unit.
    #[arg(value_name = "MANIFEST")]
    pub(crate) manifest: PathBuf,
    /// The site where this runs; otherwise $WINDLASS_SITE, or `local`.
    #[arg(long, value_name = "SITE")]
    pub(crate) site: Option<String>,
}

const RUN_HELP: &str = "\
A step is any command. It runs in an empty directory and is told by its environment:
  WINDLASS_INPUTS           file with the paths of its inputs, one on each line
  WINDLASS_INPUT_DETAILS    the same as JSON, with LFNs, windows of events and masks of luminosity sections
  WINDLASS_SKIP_EVENTS, WINDLASS_MAX_EVENTS
                            the window as one stream, if that can be said; -1 is all
  WINDLASS_EVENTS           how many events are expected
  WINDLASS_FIRST_EVENT, WINDLASS_LAST_EVENT, WINDLASS_RUN_NUMBER, WINDLASS_FIRST_LUMI, WINDLASS_EVENTS_PER_LUMI
                            what to generate, if there are no inputs
  WINDLASS_OUTPUT           where to write; several outputs are in the file WINDLASS_OUTPUTS, one on each line
  WINDLASS_JOB_REPORT       where a FrameworkJobReport is looked for, if it writes one
  WINDLASS_SEED             a random seed: the same for each attempt, another one for each node and step
  WINDLASS_THREADS, WINDLASS_MEMORY_MB, WINDLASS_STEP, WINDLASS_NODE, WINDLASS_UNIT, WINDLASS_REQUEST, WINDLASS_SITE,
  WINDLASS_ATTEMPT, WINDLASS_MANIFEST_DIR";

#[derive(Debug, Args)]
pub(crate) struct PayloadRunArgs {
    #[command(flatten)]
    pub(crate) unit: PayloadUnitArgs,
    #[command(flatten)]
    pub(crate) results: PayloadResultsArgs,
    /// Which node of the work unit.
    #[arg(long, value_name = "N")]
    pub(crate) node: u32,
    #[command(flatten)]
    pub(crate) work: PayloadWorkDirArgs,
    /// Leave the scratch directory, to look into it.
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PayloadWorkDirArgs {
    /// Work below this directory; otherwise $TMPDIR or /tmp.
    #[arg(long, value_name = "DIR")]
    pub(crate) work_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PayloadResultsArgs {
    /// Reports of the unit are in this directory; otherwise in the one of its name beside the manifest.
    #[arg(long, value_name = "DIR")]
    pub(crate) results: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PayloadLandArgs {
    #[command(flatten)]
    pub(crate) unit: PayloadUnitArgs,
    /// Name inputs that are missing in this file; otherwise in `landing.json` among the reports of the unit.
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
    /// Also if the work unit was not merged: what it did is lost then.
    #[arg(long)]
    pub(crate) force: bool,
}

const SIMULATE_HELP: &str = "\
As a step of a manifest it is told all by its environment (`windlass payload run --help`); options stand over that.

Of the work of an event a profile says what one thread has to do alone; the rest is shared by all (Amdahl's law). Events are \
lines of text: run, luminosity section, event, and something that depends on what was read.

Ways to fail: exit:CODE (above 255 in the job report), signal:NAME, memory:SIZE (takes that much, then says it has none \
left), hang, bad-input (8021), no-output, no-events.";

#[derive(Debug, Args)]
pub(crate) struct PayloadSimulateArgs {
    /// How demanding it is: GEN, DIGI, RECO, MINI or NANO; otherwise the one that the step's name begins with, or DIGI.
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<String>,
    /// That many times faster than the profile says, with as much less memory and output.
    #[arg(long, value_name = "FACTOR")]
    pub(crate) speed: Option<f64>,
    /// Keep this share of the events, from 0 to 1.
    #[arg(long, value_name = "SHARE")]
    pub(crate) filter: Option<f64>,
    /// Threads to use.
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<u32>,
    /// Generate this many events.
    #[arg(long, value_name = "N", conflicts_with = "input")]
    pub(crate) events: Option<u64>,
    /// The number of the first event to generate.
    #[arg(long, value_name = "N", default_value = "1", requires = "events")]
    pub(crate) first_event: u64,
    /// The random seed.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Read this event file. Give it again for more.
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Vec<PathBuf>,
    /// Write this event file. Give it again for more.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Vec<PathBuf>,
    /// Write the job report here.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Fail in this way.
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
