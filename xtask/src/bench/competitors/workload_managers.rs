//! Workload managers with a database: windlass itself, and torc.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Competitor, CreationSpecs, FoundCompetitor, SearchEnvironment, WorkflowCreator};
use crate::bench::measure::{Invocation, PATH, RunDirectory};
use crate::bench::workloads::{GraphShape, JobGraph, render_yaml};
use crate::shell::{find_program, is_executable, output};

/// As shipped: durable commits and logs of every job, not tuned for the benchmark.
struct Windlass(PathBuf);

impl Windlass {
    fn invocation<W: Into<OsString>>(&self, words: impl IntoIterator<Item = W>) -> Invocation {
        let start: [OsString; 3] = [self.0.clone().into(), "--db".into(), "windlass.db".into()];
        Invocation::new(start.into_iter().chain(words.into_iter().map(Into::into)))
    }

    /// The number of jobs of the newest workflow in the state `state`; `total` counts all.
    fn count(&self, state: &str, place: &RunDirectory) -> Result<u64> {
        let answer = output(&mut self.invocation(["status", "--format", "json"]).command(place))?;
        let status =
            serde_json::from_str(&answer).context("`windlass status --format json` printed no JSON")?;
        count_of(state, &status)
    }
}

impl Competitor for Windlass {
    fn invocation(&self, graph: &JobGraph, slots: usize, place: &RunDirectory) -> Result<Invocation> {
        let specification = place.write_input("spec.yaml", &render_yaml(graph))?;
        let slots = slots.to_string();
        let words = ["run", &specification, "--quiet", "-o", "output", "--num-cpus", &slots];
        Ok(Windlass::invocation(self, words.into_iter().chain(["--max-parallel-jobs", &slots])))
    }

    fn check(&self, graph: &JobGraph, place: &RunDirectory) -> Result<()> {
        let completed = self.count("completed", place)?;
        let jobs = graph.jobs.len() as u64;
        ensure!(completed == jobs, "status says that {completed} of {jobs} jobs completed");
        Ok(())
    }

    fn creator(&self) -> Option<&dyn WorkflowCreator> {
        Some(self)
    }
}

impl WorkflowCreator for Windlass {
    fn create(&self, specification: &CreationSpecs<'_>, _place: &RunDirectory) -> Result<Invocation> {
        Ok(self.invocation([
            OsString::from("create"),
            specification.yaml.into(),
            "--format".into(),
            "json".into(),
        ]))
    }

    fn status(&self, _place: &RunDirectory) -> Option<Invocation> {
        Some(self.invocation(["status", "--format", "json"]))
    }

    fn check_created(&self, jobs: usize, place: &RunDirectory) -> Result<()> {
        let total = self.count("total", place)?;
        ensure!(total == jobs as u64, "status says that there are {total} jobs, not {jobs}");
        Ok(())
    }
}

pub(super) fn find_windlass(search_environment: &SearchEnvironment<'_>) -> FoundCompetitor {
    search_environment.windlass.clone().map(|program| Box::new(Windlass(program)) as Box<dyn Competitor>)
}

/// The binary of `--baseline`. Its path is made absolute, because runs have working directories of their own.
pub(super) fn find_baseline(search_environment: &SearchEnvironment<'_>) -> FoundCompetitor {
    let program = search_environment.baseline.as_ref().ok_or("no --baseline given")?;
    let program =
        program.canonicalize().map_err(|error| format!("cannot find {}: {error}", program.display()))?;
    Ok(Box::new(Windlass(program)))
}

fn count_of(state: &str, status: &Value) -> Result<u64> {
    let count = status["jobs"][state].as_u64();
    count.with_context(|| format!("`windlass status --format json` has no number at jobs.{state}: {status}"))
}

/// Torc as shipped, with its own server for the length of one command. Its exit code does not depend on the jobs,
/// so only the proof shows their results.
struct Torc(PathBuf);

impl Torc {
    fn invocation<W: Into<OsString>>(&self, words: impl IntoIterator<Item = W>) -> Invocation {
        let start: [OsString; 4] = [self.0.clone().into(), "-s".into(), "--db".into(), "torc.db".into()];
        let folder = self.0.parent().unwrap_or(Path::new("/usr/bin")).display();
        let path = format!("{folder}:{PATH}");
        Invocation::new(start.into_iter().chain(words.into_iter().map(Into::into))).with("PATH", path)
    }
}

impl Competitor for Torc {
    fn invocation(&self, graph: &JobGraph, slots: usize, place: &RunDirectory) -> Result<Invocation> {
        let specification = place.write_input("spec.yaml", &render_yaml(graph))?;
        let slots = slots.to_string();
        let words =
            ["run", &specification, "-o", "output", "--num-cpus", &slots, "--max-parallel-jobs", &slots];
        Ok(Torc::invocation(self, words))
    }

    /// Torc takes a hundred milliseconds per job, and half a minute until a dependent starts.
    fn share(&self, shape: GraphShape) -> usize {
        if shape == GraphShape::Chain { 250 } else { 100 }
    }

    fn creator(&self) -> Option<&dyn WorkflowCreator> {
        Some(self)
    }
}

impl WorkflowCreator for Torc {
    fn create(&self, specification: &CreationSpecs<'_>, _place: &RunDirectory) -> Result<Invocation> {
        Ok(self.invocation([OsString::from("create"), specification.yaml.into()]))
    }

    fn status(&self, _place: &RunDirectory) -> Option<Invocation> {
        Some(self.invocation(["status", "1"]))
    }

    fn check_created(&self, _jobs: usize, _place: &RunDirectory) -> Result<()> {
        Ok(())
    }

    fn at_most(&self) -> usize {
        100_000
    }
}

/// `torc` alone is only a client: `torc-server` must be in the same directory.
pub(super) fn find_torc(search_environment: &SearchEnvironment<'_>) -> FoundCompetitor {
    let candidates = [Some(search_environment.peers.join("bin/torc")), find_program("torc")];
    let is_whole = |torc: &PathBuf| is_executable(torc) && is_executable(&torc.with_file_name("torc-server"));
    match candidates.into_iter().flatten().find(is_whole) {
        Some(program) => Ok(Box::new(Torc(program))),
        None => Err("torc and torc-server not found; --install-peers=all".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts_are_read_from_status_json() {
        let status = json!({"id": 1, "jobs": {"total": 9, "completed": 7}});
        assert_eq!(count_of("completed", &status).unwrap(), 7);
        assert_eq!(count_of("total", &status).unwrap(), 9);
        let error = count_of("completed", &json!({"completed": 7})).unwrap_err().to_string();
        assert!(error.contains("jobs.completed"), "{error}");
    }
}
