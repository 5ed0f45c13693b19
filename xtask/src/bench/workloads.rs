//! The workloads: graphs of jobs, and those graphs in the formats that competitors read.
//!
//! A new workload that runs jobs is a line in [`RUNS`] and, if it has a shape of its own, an arm in
//! [`JobGraph::new`].

use std::fmt::Write as _;
use std::ops::Range;

use serde_json::json;

/// A workload that runs all its jobs.
#[derive(Debug, PartialEq)]
pub(super) struct Workload {
    pub(super) letter: char,
    /// Printed after the number of jobs.
    pub(super) title: &'static str,
    pub(super) shape: GraphShape,
}

pub(super) const RUNS: &[Workload] = &[
    Workload { letter: 'A', title: "independent jobs", shape: GraphShape::Flood },
    Workload { letter: 'B', title: "jobs: one, then many, then one", shape: GraphShape::Fan },
    Workload { letter: 'C', title: "jobs in a chain", shape: GraphShape::Chain },
];

/// The letter of the workload that only creates jobs and queries them.
pub(super) const CREATION: char = 'D';

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GraphShape {
    Flood,
    Fan,
    Chain,
    /// Every tenth job depends on two earlier ones; only for creating.
    SparseDependencies,
}

#[derive(Debug)]
pub(super) struct GraphJob {
    pub(super) command: String,
    /// Indices of the jobs that it depends on.
    pub(super) needs: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct JobGraph {
    pub(super) jobs: Vec<GraphJob>,
    shape: GraphShape,
}

/// Jobs that a program without dependencies may run together, and how many of them at once.
#[derive(Debug, PartialEq)]
pub(super) struct GraphPhase {
    pub(super) jobs: Range<usize>,
    pub(super) at_once: usize,
}

impl JobGraph {
    /// A graph of about `size` jobs, plus the two ends of a fan.
    pub(super) fn new(shape: GraphShape, size: usize, command: impl Fn(usize) -> String) -> JobGraph {
        let total = if shape == GraphShape::Fan { size + 2 } else { size };
        let needs = |index: usize| match shape {
            GraphShape::Fan if index == total - 1 => (1..index).collect(),
            GraphShape::Fan if index > 0 => vec![0],
            GraphShape::Chain if index > 0 => vec![index - 1],
            GraphShape::SparseDependencies if index % 10 == 9 => vec![index - 7, index - 3],
            _ => Vec::new(),
        };
        let job = |index| GraphJob { command: command(index), needs: needs(index) };
        JobGraph { jobs: (0..total).map(job).collect(), shape }
    }

    /// The timed commands do nothing.
    pub(super) fn of_true(shape: GraphShape, size: usize) -> JobGraph {
        JobGraph::new(shape, size, |_| "true".to_owned())
    }

    /// Commands that append their number to the file `proof`, which shows that each ran once and in a valid
    /// order.
    pub(super) fn of_proofs(shape: GraphShape, size: usize) -> JobGraph {
        JobGraph::new(shape, size, |index| format!("echo {index} >> proof"))
    }

    /// The graph as steps for a program without dependencies.
    pub(super) fn phases(&self, slots: usize) -> Vec<GraphPhase> {
        let end = self.jobs.len();
        let cuts = match self.shape {
            GraphShape::Flood | GraphShape::SparseDependencies => vec![(0..end, slots)],
            GraphShape::Chain => vec![(0..end, 1)],
            GraphShape::Fan => vec![(0..1, 1), (1..end - 1, slots), (end - 1..end, 1)],
        };
        cuts.into_iter().map(|(jobs, at_once)| GraphPhase { jobs, at_once }).collect()
    }

    /// Checks the output of the jobs of [`JobGraph::of_proofs`].
    pub(super) fn check_proof(&self, proof: &str) -> Result<(), String> {
        let mut done = vec![false; self.jobs.len()];
        for line in proof.lines() {
            let index: usize = line.trim().parse().map_err(|_| format!("the proof holds `{line}`"))?;
            let job = self.jobs.get(index).ok_or_else(|| format!("job {index} does not exist"))?;
            if done[index] {
                return Err(format!("job {index} ran twice"));
            }
            if let Some(need) = job.needs.iter().find(|need| !done[**need]) {
                return Err(format!("job {index} ran before job {need}, which it needs"));
            }
            done[index] = true;
        }
        match done.iter().position(|done| !done) {
            Some(index) => Err(format!("job {index} did not run")),
            None => Ok(()),
        }
    }
}

/// One command per line.
pub(super) fn render_commands(jobs: &[GraphJob]) -> String {
    let mut text = String::with_capacity(jobs.len() * 8);
    for job in jobs {
        text.push_str(&job.command);
        text.push('\n');
    }
    text
}

/// A Windlass spec, which Torc reads as well.
pub(super) fn render_yaml(graph: &JobGraph) -> String {
    let mut text = String::with_capacity(graph.jobs.len() * 48);
    text.push_str("name: bench\njobs:\n");
    for (index, job) in graph.jobs.iter().enumerate() {
        write!(text, "  - name: j{index}\n    command: \"{}\"\n", job.command)
            .expect("a String takes everything");
        if !job.needs.is_empty() {
            let needs = names(job.needs.iter().copied(), ", ");
            writeln!(text, "    depends_on: [{needs}]").expect("a String takes everything");
        }
    }
    text
}

/// A Makefile. The semicolon after each command keeps make from executing it without a shell: all competitors start
/// `sh -c`.
pub(super) fn render_makefile(graph: &JobGraph) -> String {
    let all = names(0..graph.jobs.len(), " ");
    let mut text = format!("SHELL = /bin/sh\n.PHONY: all {all}\nall: {all}\n");
    for (index, job) in graph.jobs.iter().enumerate() {
        let needs = names(job.needs.iter().copied(), " ");
        let command = job.command.replace('$', "$$");
        writeln!(text, "j{index}: {needs}\n\t@{command};").expect("a String takes everything");
    }
    text
}

/// For the scripts under `peers/`.
pub(super) fn render_json(graph: &JobGraph, slots: usize) -> String {
    let jobs: Vec<_> =
        graph.jobs.iter().map(|job| json!({"command": job.command, "needs": job.needs})).collect();
    json!({"slots": slots, "jobs": jobs}).to_string()
}

fn names(indices: impl IntoIterator<Item = usize>, between: &str) -> String {
    let names: Vec<String> = indices.into_iter().map(|index| format!("j{index}")).collect();
    names.join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(shape: GraphShape, size: usize) -> Vec<Vec<usize>> {
        JobGraph::of_true(shape, size).jobs.into_iter().map(|job| job.needs).collect()
    }

    #[test]
    fn shapes_have_expected_edges() {
        assert_eq!(needs(GraphShape::Flood, 3), [vec![], vec![], vec![]] as [Vec<usize>; 3]);
        assert_eq!(needs(GraphShape::Chain, 3), [vec![], vec![0], vec![1]]);
        assert_eq!(needs(GraphShape::Fan, 2), [vec![], vec![0], vec![0], vec![1, 2]]);
        let sparse = needs(GraphShape::SparseDependencies, 20);
        assert_eq!((&sparse[9], &sparse[19]), (&vec![2, 6], &vec![12, 16]));
        assert_eq!(sparse.iter().filter(|needs| !needs.is_empty()).count(), 2);
    }

    #[test]
    fn phases_cover_each_job_once_in_order() {
        let phase = |jobs, at_once| GraphPhase { jobs, at_once };
        assert_eq!(JobGraph::of_true(GraphShape::Flood, 5).phases(2), [phase(0..5, 2)]);
        assert_eq!(JobGraph::of_true(GraphShape::Chain, 5).phases(2), [phase(0..5, 1)]);
        assert_eq!(
            JobGraph::of_true(GraphShape::Fan, 5).phases(2),
            [phase(0..1, 1), phase(1..6, 2), phase(6..7, 1)]
        );
    }

    #[test]
    fn proof_must_be_complete_unique_and_ordered() {
        let graph = JobGraph::of_proofs(GraphShape::Fan, 2);
        assert_eq!(graph.check_proof("0\n2\n1\n3\n"), Ok(()));
        for (proof, complaint) in [
            ("0\n1\n3\n2\n", "job 3 ran before job 2"),
            ("0\n1\n1\n2\n3\n", "job 1 ran twice"),
            ("0\n1\n2\n", "job 3 did not run"),
            ("", "job 0 did not run"),
            ("0\n9\n", "job 9 does not exist"),
            ("zero\n", "`zero`"),
        ] {
            let error = graph.check_proof(proof).unwrap_err();
            assert!(error.contains(complaint), "{error}");
        }
    }

    #[test]
    fn yaml_spec_has_names_commands_and_dependencies() {
        let expected = "name: bench\njobs:\n  - name: j0\n    command: \"true\"\n  - name: j1\n    command: \"true\"\n    \
                        depends_on: [j0]\n";
        assert_eq!(render_yaml(&JobGraph::of_true(GraphShape::Chain, 2)), expected);
    }

    #[test]
    fn makefile_uses_shell_and_escapes_dollars() {
        let text = render_makefile(&JobGraph::new(GraphShape::Chain, 2, |_| "echo $HOME".to_owned()));
        assert!(text.contains("all: j0 j1\n"), "{text}");
        assert!(text.contains("j1: j0\n\t@echo $$HOME;\n"), "{text}");
    }

    #[test]
    fn other_formats_contain_every_job() {
        let graph = JobGraph::of_proofs(GraphShape::Chain, 2);
        assert_eq!(render_commands(&graph.jobs), "echo 0 >> proof\necho 1 >> proof\n");
        let read: serde_json::Value = serde_json::from_str(&render_json(&graph, 2)).unwrap();
        assert_eq!(read["slots"], 2);
        assert_eq!(read["jobs"][1], json!({"command": "echo 1 >> proof", "needs": [0]}));
    }

    #[test]
    fn workload_letters_are_unique() {
        let mut letters: Vec<char> = RUNS.iter().map(|workload| workload.letter).chain([CREATION]).collect();
        letters.dedup();
        assert_eq!(letters.len(), RUNS.len() + 1);
    }
}
