//! The competitors: how each is found on the machine, given a graph, started and checked.
//!
//! A new competitor is a type that implements [`Competitor`] and a line in [`LIST`].

mod command_runners;
mod python_peers;
mod workload_managers;

pub(super) use self::python_peers::venv;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};

use super::measure::{Invocation, NativeTools, RunDirectory};
use super::workloads::{GraphShape, JobGraph};

pub(super) trait Competitor {
    /// The command line that runs `graph` with `slots` concurrent jobs. Writes input files to `place`.
    fn invocation(&self, graph: &JobGraph, slots: usize, place: &RunDirectory) -> Result<Invocation>;

    /// The divisor of its number of jobs. A slow peer runs fewer jobs and is compared per job.
    fn share(&self, _shape: GraphShape) -> usize {
        1
    }

    /// Checks after a timed run that the competitor reports all jobs as completed. For competitors that keep no
    /// record the exit code is enough, and the measurement has already checked it.
    fn check(&self, _graph: &JobGraph, _place: &RunDirectory) -> Result<()> {
        Ok(())
    }

    /// The interface for creating jobs without running them, if it has one.
    fn creator(&self) -> Option<&dyn WorkflowCreator> {
        None
    }
}

/// A competitor that can create jobs without running them.
pub(super) trait WorkflowCreator {
    /// Creates the workflow in `specification`, whose paths are relative to the work directory.
    fn create(&self, specification: &CreationSpecs<'_>, place: &RunDirectory) -> Result<Invocation>;

    /// Queries the state of the created jobs.
    fn status(&self, place: &RunDirectory) -> Option<Invocation>;

    /// Checks that all `jobs` were created.
    fn check_created(&self, jobs: usize, place: &RunDirectory) -> Result<()>;

    /// The largest number of jobs that does not exhaust the machine.
    fn at_most(&self) -> usize {
        usize::MAX
    }
}

/// The same jobs in the two formats that creators read.
#[derive(Debug)]
pub(super) struct CreationSpecs<'a> {
    pub(super) yaml: &'a Path,
    pub(super) json: &'a Path,
}

/// The inputs for finding competitors.
#[derive(Debug)]
pub(super) struct SearchEnvironment<'a> {
    pub(super) native: &'a NativeTools,
    /// The release binary, or the reason why there is none.
    pub(super) windlass: Result<PathBuf, String>,
    /// The binary of `--baseline`.
    pub(super) baseline: Option<PathBuf>,
    /// The directory of `--install-peers`.
    pub(super) peers: &'a Path,
}

/// The competitor ready to start, or what is missing.
type FoundCompetitor = Result<Box<dyn Competitor>, String>;

type FindCompetitor = fn(&SearchEnvironment<'_>) -> FoundCompetitor;

/// In the order of the table.
pub(super) const LIST: &[(&str, FindCompetitor)] = &[
    ("floor", command_runners::find_floor),
    ("xargs", command_runners::find_xargs),
    ("windlass", workload_managers::find_windlass),
    ("baseline", workload_managers::find_baseline),
    ("make", command_runners::find_make),
    ("parallel", command_runners::find_parallel),
    ("parsl", python_peers::find_parsl),
    ("hyperqueue", python_peers::find_hyperqueue),
    ("snakemake", python_peers::find_snakemake),
    ("torc", workload_managers::find_torc),
];

/// A competitor with its name, for the rounds.
pub(super) struct NamedCompetitor {
    pub(super) name: &'static str,
    pub(super) found: FoundCompetitor,
}

pub(super) fn find_all(
    search_environment: &SearchEnvironment<'_>,
    wants: impl Fn(&str) -> bool,
) -> Vec<NamedCompetitor> {
    let wanted = LIST.iter().filter(|(name, _)| wants(name));
    wanted.map(|(name, find)| NamedCompetitor { name, found: find(search_environment) }).collect()
}

/// Checks the proof that a competitor left against the graph.
pub(super) fn check_proof(graph: &JobGraph, place: &RunDirectory) -> Result<()> {
    let proof = fs::read_to_string(place.work().join("proof")).unwrap_or_default();
    graph.check_proof(&proof).map_err(|complaint| anyhow!("does not do the work: {complaint}"))
}
