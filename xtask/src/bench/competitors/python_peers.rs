//! Peers from PyPI, driven by the scripts under `peers/` or by their own command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{Competitor, CreationSpecs, FoundCompetitor, SearchEnvironment, WorkflowCreator};
use crate::bench::measure::{Invocation, RunDirectory};
use crate::bench::workloads::{GraphShape, JobGraph, render_json};
use crate::shell::{find_program, is_executable, succeeds};

/// A Python script that reads a graph.
struct PythonScript {
    python: PathBuf,
    name: &'static str,
    text: &'static str,
    /// The divisor of the length of its chains.
    chain_share: usize,
}

impl Competitor for PythonScript {
    fn invocation(&self, graph: &JobGraph, slots: usize, place: &RunDirectory) -> Result<Invocation> {
        let script = place.write_input(self.name, self.text)?;
        let graph = place.write_input("graph.json", &render_json(graph, slots))?;
        let words: [OsString; 3] = [self.python.clone().into(), script.into(), graph.into()];
        Ok(Invocation::new(words))
    }

    fn share(&self, shape: GraphShape) -> usize {
        if shape == GraphShape::Chain { self.chain_share } else { 1 }
    }
}

pub(super) fn find_parsl(search_environment: &SearchEnvironment<'_>) -> FoundCompetitor {
    let python = find_python(search_environment.peers, "parsl")?;
    let text = include_str!("../peers/parsl_peer.py");
    Ok(Box::new(PythonScript { python, name: "parsl_peer.py", text, chain_share: 1 }))
}

/// HyperQueue in one Python process; it can also create tasks without running them.
struct HyperQueue(PythonScript);

impl Competitor for HyperQueue {
    fn invocation(&self, graph: &JobGraph, slots: usize, place: &RunDirectory) -> Result<Invocation> {
        self.0.invocation(graph, slots, place)
    }

    fn share(&self, shape: GraphShape) -> usize {
        self.0.share(shape)
    }

    fn creator(&self) -> Option<&dyn WorkflowCreator> {
        Some(self)
    }
}

impl WorkflowCreator for HyperQueue {
    fn create(&self, specification: &CreationSpecs<'_>, place: &RunDirectory) -> Result<Invocation> {
        let script = place.write_input(self.0.name, self.0.text)?;
        let words: [OsString; 4] =
            [self.0.python.clone().into(), script.into(), specification.json.into(), "--submit-only".into()];
        Ok(Invocation::new(words))
    }

    /// The server ends with the script, so it cannot be queried afterwards.
    fn status(&self, _place: &RunDirectory) -> Option<Invocation> {
        None
    }

    fn check_created(&self, _jobs: usize, _place: &RunDirectory) -> Result<()> {
        Ok(())
    }

    fn at_most(&self) -> usize {
        100_000
    }
}

pub(super) fn find_hyperqueue(search_environment: &SearchEnvironment<'_>) -> FoundCompetitor {
    let python = find_python(search_environment.peers, "hyperqueue")?;
    let text = include_str!("../peers/hyperqueue_peer.py");
    Ok(Box::new(HyperQueue(PythonScript { python, name: "hyperqueue_peer.py", text, chain_share: 5 })))
}

struct Snakemake(PathBuf);

impl Competitor for Snakemake {
    fn invocation(&self, graph: &JobGraph, slots: usize, place: &RunDirectory) -> Result<Invocation> {
        let file = place.write_input("Snakefile", include_str!("../peers/Snakefile"))?;
        let graph = place.write_input("graph.json", &render_json(graph, slots))?;
        let words: [OsString; 9] = [
            self.0.clone().into(),
            "--snakefile".into(),
            file.into(),
            "--cores".into(),
            slots.to_string().into(),
            "--quiet".into(),
            "all".into(),
            "--config".into(),
            format!("graph={graph}").into(),
        ];
        Ok(Invocation::new(words))
    }

    fn share(&self, shape: GraphShape) -> usize {
        if shape == GraphShape::Chain { 10 } else { 50 }
    }
}

pub(super) fn find_snakemake(search_environment: &SearchEnvironment<'_>) -> FoundCompetitor {
    let ours = venv(search_environment.peers).join("bin/snakemake");
    let found = if is_executable(&ours) { Some(ours) } else { find_program("snakemake") };
    match found {
        Some(program) => Ok(Box::new(Snakemake(program))),
        None => Err(missing("snakemake")),
    }
}

/// The directory where `--install-peers` installs Python packages.
pub(in crate::bench) fn venv(peers: &Path) -> PathBuf {
    peers.join("venv")
}

/// A Python that has the module: our own environment first, then the one on PATH.
fn find_python(peers: &Path, module: &str) -> Result<PathBuf, String> {
    let candidates = [Some(venv(peers).join("bin/python")), find_program("python3")];
    let knows = |python: &PathBuf| succeeds(Command::new(python).args(["-c", &format!("import {module}")]));
    candidates.into_iter().flatten().find(knows).ok_or_else(|| missing(module))
}

fn missing(package: &str) -> String {
    format!("not found; --install-peers or `pip install {package}`")
}
