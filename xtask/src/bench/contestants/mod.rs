//! Who takes part: how each contestant is found on the machine, given a graph, started and checked.
//!
//! A new contestant is a type that implements [`Contestant`] and a line in [`LIST`].

mod command_runners;
mod python_peers;
mod workload_managers;

pub(super) use self::python_peers::venv;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};

use super::measure::{Invocation, Native, Place};
use super::workloads::{Graph, Shape};

pub(super) trait Contestant {
    /// The command line that runs `graph` with `slots` jobs at once; input files are written to `place` on the way.
    fn invocation(&self, graph: &Graph, slots: usize, place: &Place) -> Result<Invocation>;

    /// One of how many of the jobs it is given. A slow peer does fewer, and is compared per job.
    fn share(&self, _shape: Shape) -> usize {
        1
    }

    /// After a timed run: does the contestant itself say that all jobs completed? Those that keep no record are
    /// believed by their exit code, which the measuring has checked already.
    fn check(&self, _graph: &Graph, _place: &Place) -> Result<()> {
        Ok(())
    }

    /// How it creates jobs without running them, if it can.
    fn creator(&self) -> Option<&dyn Creator> {
        None
    }
}

/// A contestant that can take jobs in without running them.
pub(super) trait Creator {
    /// Creates what `specification` describes: a path seen from the work directory.
    fn create(&self, specification: &Specification<'_>, place: &Place) -> Result<Invocation>;

    /// Asks for the state of what was created.
    fn status(&self, place: &Place) -> Option<Invocation>;

    /// Says whether all `jobs` were created.
    fn check_created(&self, jobs: usize, place: &Place) -> Result<()>;

    /// More than this would take the machine down.
    fn at_most(&self) -> usize {
        usize::MAX
    }
}

/// The same jobs in the two formats that creators read.
#[derive(Debug)]
pub(super) struct Specification<'a> {
    pub(super) yaml: &'a Path,
    pub(super) json: &'a Path,
}

/// What finding needs to know.
#[derive(Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) native: &'a Native,
    /// The release binary, or why there is none.
    pub(super) windlass: Result<PathBuf, String>,
    /// Where `--install-peers` puts things.
    pub(super) peers: &'a Path,
}

/// The contestant ready to start, or what is missing.
type Found = Result<Box<dyn Contestant>, String>;

type Find = fn(&Surroundings<'_>) -> Found;

/// In the order of the table.
pub(super) const LIST: &[(&str, Find)] = &[
    ("floor", command_runners::find_floor),
    ("xargs", command_runners::find_xargs),
    ("windlass", workload_managers::find_windlass),
    ("make", command_runners::find_make),
    ("parallel", command_runners::find_parallel),
    ("parsl", python_peers::find_parsl),
    ("hyperqueue", python_peers::find_hyperqueue),
    ("snakemake", python_peers::find_snakemake),
    ("torc", workload_managers::find_torc),
];

/// A contestant with its name, for the rounds.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) found: Found,
}

pub(super) fn find_all(surroundings: &Surroundings<'_>, wants: impl Fn(&str) -> bool) -> Vec<Entry> {
    let wanted = LIST.iter().filter(|(name, _)| wants(name));
    wanted.map(|(name, find)| Entry { name, found: find(surroundings) }).collect()
}

/// The proof that a contestant left, checked against the graph.
pub(super) fn check_proof(graph: &Graph, place: &Place) -> Result<()> {
    let proof = fs::read_to_string(place.work().join("proof")).unwrap_or_default();
    graph.check_proof(&proof).map_err(|complaint| anyhow!("does not do the work: {complaint}"))
}
