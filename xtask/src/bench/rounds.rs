//! The order of the runs: which competitor runs when, in which directory, and how failures are handled.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::competitors::{Competitor, CreationSpecs, NamedCompetitor, WorkflowCreator, check_proof};
use super::measure::{self, Invocation, NativeTools, RunDirectory, RunSample};
use super::options::Options;
use super::report::{CreationOutcome, CreationSeries, RunOutcome};
use super::statistics::SampleSeries;
use super::workloads::{GraphShape, JobGraph, Workload, render_json, render_yaml};

/// The number of jobs of the proof: enough to fill the slots several times.
const PROOF_JOBS: usize = 12;

/// How often the status is queried on one database.
const STATUS_QUESTIONS: usize = 5;

/// The inputs for the rounds of a workload.
pub(super) struct WorkloadRuns<'a> {
    pub(super) native: &'a NativeTools,
    pub(super) entries: &'a [NamedCompetitor],
    pub(super) options: &'a Options,
    /// The directories of all runs, kept until the end.
    pub(super) run_directory: &'a Path,
}

impl WorkloadRuns<'_> {
    /// Runs the proof of all competitors, then times them round by round.
    pub(super) fn run_workload(&self, workload: &'static Workload) -> Result<RunOutcome> {
        let size = if workload.shape == GraphShape::Chain { self.options.hops } else { self.options.jobs };
        let mut series: Vec<SampleSeries> =
            self.entries.iter().map(|entry| self.new_series(entry, workload, size)).collect();
        for round in 0..self.options.runs {
            for index in rotated_order(series.len(), round) {
                let Ok(competitor) = &self.entries[index].found else { continue };
                let series = &mut series[index];
                if series.trouble.is_some() && series.samples().count() == 0 {
                    continue; // It failed its proof or its first round, so it is not run again.
                }
                let place = self.place(workload.letter, &format!("{round}-{}", series.competitor))?;
                let graph =
                    JobGraph::of_true(workload.shape, share(competitor.as_ref(), workload.shape, size));
                let outcome = self.run_once(competitor.as_ref(), &graph, &place);
                self.tell(
                    workload.letter,
                    round,
                    series.competitor,
                    outcome.as_ref().map(|sample| sample.wall),
                );
                series.rounds[round] = outcome.as_ref().ok().copied();
                series.trouble = series.trouble.take().or(outcome.err().map(|error| format!("{error:#}")));
            }
        }
        let jobs = JobGraph::of_true(workload.shape, size).jobs.len();
        Ok(RunOutcome { workload, jobs, series })
    }

    /// The empty series of a competitor, with the reason if it is missing or fails its proof.
    fn new_series(&self, entry: &NamedCompetitor, workload: &Workload, size: usize) -> SampleSeries {
        let proven = match &entry.found {
            Err(missing) => Err(missing.clone()),
            Ok(competitor) => {
                let size = share(competitor.as_ref(), workload.shape, size);
                let proof = self.prove(entry.name, competitor.as_ref(), workload, size);
                proof.map(|()| size).map_err(|error| format!("{error:#}"))
            }
        };
        if let Err(trouble) = &proven {
            eprintln!("{} {}: {trouble}", workload.letter, entry.name);
        }
        let jobs = JobGraph::of_true(workload.shape, proven.clone().unwrap_or(size)).jobs.len();
        SampleSeries {
            competitor: entry.name,
            jobs,
            rounds: vec![None; self.options.runs],
            trouble: proven.err(),
        }
    }

    fn prove(&self, name: &str, competitor: &dyn Competitor, workload: &Workload, size: usize) -> Result<()> {
        let graph = JobGraph::of_proofs(workload.shape, size.min(PROOF_JOBS));
        let place = self.place(workload.letter, &format!("proof-{name}"))?;
        self.run_once(competitor, &graph, &place)?;
        check_proof(&graph, &place)
    }

    fn run_once(
        &self,
        competitor: &dyn Competitor,
        graph: &JobGraph,
        place: &RunDirectory,
    ) -> Result<RunSample> {
        let invocation = competitor.invocation(graph, self.options.slots, place)?;
        let sample = measure::run(self.native, &invocation, place)?;
        competitor.check(graph, place)?;
        Ok(sample)
    }

    /// Creates `jobs` jobs with each competitor that supports it, and queries their status.
    pub(super) fn run_creation(&self, jobs: usize) -> Result<CreationOutcome> {
        let input = self.run_directory.join(format!("D-{jobs}"));
        fs::create_dir_all(&input)?;
        let graph = JobGraph::of_true(GraphShape::SparseDependencies, jobs);
        let (yaml, json) = (input.join("spec.yaml"), input.join("graph.json"));
        fs::write(&yaml, render_yaml(&graph))?;
        fs::write(&json, render_json(&graph, self.options.slots))?;
        drop(graph);

        let spec_bytes = fs::metadata(&yaml)?.len();
        let specification = CreationSpecs { yaml: &yaml, json: &json };
        let mut series = Vec::new();
        let creators: Vec<(&'static str, &dyn WorkflowCreator)> = self.creators(jobs, &mut series);
        for round in 0..self.options.runs {
            for index in rotated_order(creators.len(), round) {
                let (name, creator) = creators[index];
                let row = series.iter_mut().find(|row: &&mut CreationSeries| row.competitor == name);
                let Some(row) = row.filter(|row| row.trouble.is_none()) else { continue };
                let place = RunDirectory::create(input.join(format!("{round}-{name}")))?;
                let outcome = self.create_once(creator, &specification, jobs, &place, row);
                self.tell('D', round, name, outcome.as_ref().map(|wall| *wall));
                row.trouble = outcome.err().map(|error| format!("{error:#}"));
            }
        }
        Ok(CreationOutcome { jobs, spec_bytes, series })
    }

    /// The competitors that can create this many jobs. `series` gets a row for each of them and for each
    /// missing one.
    fn creators(
        &self,
        jobs: usize,
        series: &mut Vec<CreationSeries>,
    ) -> Vec<(&'static str, &dyn WorkflowCreator)> {
        let mut creators = Vec::new();
        for entry in self.entries {
            let trouble = match &entry.found {
                Err(missing) if entry.name == "windlass" => Some(missing.clone()),
                Err(_) => continue,
                Ok(competitor) => match competitor.creator() {
                    None => continue,
                    Some(creator) if jobs > creator.at_most() => continue,
                    Some(creator) => {
                        creators.push((entry.name, creator));
                        None
                    }
                },
            };
            series.push(CreationSeries {
                competitor: entry.name,
                create: Vec::new(),
                status: Vec::new(),
                trouble,
            });
        }
        creators
    }

    fn create_once(
        &self,
        creator: &dyn WorkflowCreator,
        specification: &CreationSpecs<'_>,
        jobs: usize,
        place: &RunDirectory,
        row: &mut CreationSeries,
    ) -> Result<Duration> {
        let invocation = creator.create(specification, place)?;
        let created = measure::run(self.native, &invocation, place)?;
        creator.check_created(jobs, place)?;
        let questions: Vec<Invocation> =
            std::iter::repeat_with(|| creator.status(place)).take(STATUS_QUESTIONS).flatten().collect();
        for question in questions {
            row.status.push(measure::run(self.native, &question, place)?);
        }
        row.create.push(created);
        Ok(created.wall)
    }

    fn place(&self, letter: char, name: &str) -> Result<RunDirectory> {
        RunDirectory::create(self.run_directory.join(PathBuf::from(letter.to_string())).join(name))
    }

    fn tell(
        &self,
        letter: char,
        round: usize,
        name: &str,
        outcome: std::result::Result<Duration, &anyhow::Error>,
    ) {
        let rounds = self.options.runs;
        match outcome {
            Ok(wall) => eprintln!("{letter} {}/{rounds} {name:<10} {:>8.2} s", round + 1, wall.as_secs_f64()),
            Err(error) => eprintln!("{letter} {}/{rounds} {name:<10} failed: {error:#}", round + 1),
        }
    }
}

/// The number of jobs for a competitor.
fn share(competitor: &dyn Competitor, shape: GraphShape, size: usize) -> usize {
    (size / competitor.share(shape)).max(2)
}

/// The order of a round: each round begins with a different competitor, so that none always runs after the same
/// one.
fn rotated_order(count: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |step| (step + round) % count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_all_competitors_in_rotated_order() {
        let orders: Vec<Vec<usize>> = (0..4).map(|round| rotated_order(3, round).collect()).collect();
        assert_eq!(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
        assert_eq!(rotated_order(0, 1).count(), 0);
    }
}
