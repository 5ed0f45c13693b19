//! The order of the runs: which contestant runs when, in which directory, and how failures are handled.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::contestants::{Contestant, Creator, Entry, Specification, check_proof};
use super::measure::{self, Invocation, Native, Place, Sample};
use super::options::Options;
use super::report::{CreationOutcome, CreationSeries, RunOutcome};
use super::statistics::Series;
use super::workloads::{Graph, Shape, Workload, render_json, render_yaml};

/// The number of jobs of the proof: enough to fill the slots several times.
const PROOF_JOBS: usize = 12;

/// How often the status is queried on one database.
const STATUS_QUESTIONS: usize = 5;

/// The inputs for the rounds of a workload.
pub(super) struct Track<'a> {
    pub(super) native: &'a Native,
    pub(super) entries: &'a [Entry],
    pub(super) options: &'a Options,
    /// The directories of all runs, kept until the end.
    pub(super) ground: &'a Path,
}

impl Track<'_> {
    /// Runs the proof of all contestants, then times them round by round.
    pub(super) fn run_workload(&self, workload: &'static Workload) -> Result<RunOutcome> {
        let size = if workload.shape == Shape::Chain { self.options.hops } else { self.options.jobs };
        let mut series: Vec<Series> =
            self.entries.iter().map(|entry| self.new_series(entry, workload, size)).collect();
        for round in 0..self.options.runs {
            for index in turns(series.len(), round) {
                let Ok(contestant) = &self.entries[index].found else { continue };
                let series = &mut series[index];
                if series.trouble.is_some() && series.samples().count() == 0 {
                    continue; // It failed its proof or its first round, so it is not run again.
                }
                let place = self.place(workload.letter, &format!("{round}-{}", series.contestant))?;
                let graph = Graph::of_true(workload.shape, share(contestant.as_ref(), workload.shape, size));
                let outcome = self.run_once(contestant.as_ref(), &graph, &place);
                self.tell(
                    workload.letter,
                    round,
                    series.contestant,
                    outcome.as_ref().map(|sample| sample.wall),
                );
                series.rounds[round] = outcome.as_ref().ok().copied();
                series.trouble = series.trouble.take().or(outcome.err().map(|error| format!("{error:#}")));
            }
        }
        let jobs = Graph::of_true(workload.shape, size).jobs.len();
        Ok(RunOutcome { workload, jobs, series })
    }

    /// The empty series of a contestant, with the reason if it is missing or fails its proof.
    fn new_series(&self, entry: &Entry, workload: &Workload, size: usize) -> Series {
        let proven = match &entry.found {
            Err(missing) => Err(missing.clone()),
            Ok(contestant) => {
                let size = share(contestant.as_ref(), workload.shape, size);
                let proof = self.prove(entry.name, contestant.as_ref(), workload, size);
                proof.map(|()| size).map_err(|error| format!("{error:#}"))
            }
        };
        if let Err(trouble) = &proven {
            eprintln!("{} {}: {trouble}", workload.letter, entry.name);
        }
        let jobs = Graph::of_true(workload.shape, proven.clone().unwrap_or(size)).jobs.len();
        Series { contestant: entry.name, jobs, rounds: vec![None; self.options.runs], trouble: proven.err() }
    }

    fn prove(&self, name: &str, contestant: &dyn Contestant, workload: &Workload, size: usize) -> Result<()> {
        let graph = Graph::of_proofs(workload.shape, size.min(PROOF_JOBS));
        let place = self.place(workload.letter, &format!("proof-{name}"))?;
        self.run_once(contestant, &graph, &place)?;
        check_proof(&graph, &place)
    }

    fn run_once(&self, contestant: &dyn Contestant, graph: &Graph, place: &Place) -> Result<Sample> {
        let invocation = contestant.invocation(graph, self.options.slots, place)?;
        let sample = measure::run(self.native, &invocation, place)?;
        contestant.check(graph, place)?;
        Ok(sample)
    }

    /// Creates `jobs` jobs with each contestant that supports it, and queries their status.
    pub(super) fn run_creation(&self, jobs: usize) -> Result<CreationOutcome> {
        let input = self.ground.join(format!("D-{jobs}"));
        fs::create_dir_all(&input)?;
        let graph = Graph::of_true(Shape::Sprinkled, jobs);
        let (yaml, json) = (input.join("spec.yaml"), input.join("graph.json"));
        fs::write(&yaml, render_yaml(&graph))?;
        fs::write(&json, render_json(&graph, self.options.slots))?;
        drop(graph);

        let spec_bytes = fs::metadata(&yaml)?.len();
        let specification = Specification { yaml: &yaml, json: &json };
        let mut series = Vec::new();
        let creators: Vec<(&'static str, &dyn Creator)> = self.creators(jobs, &mut series);
        for round in 0..self.options.runs {
            for index in turns(creators.len(), round) {
                let (name, creator) = creators[index];
                let row = series.iter_mut().find(|row: &&mut CreationSeries| row.contestant == name);
                let Some(row) = row.filter(|row| row.trouble.is_none()) else { continue };
                let place = Place::create(input.join(format!("{round}-{name}")))?;
                let outcome = self.create_once(creator, &specification, jobs, &place, row);
                self.tell('D', round, name, outcome.as_ref().map(|wall| *wall));
                row.trouble = outcome.err().map(|error| format!("{error:#}"));
            }
        }
        Ok(CreationOutcome { jobs, spec_bytes, series })
    }

    /// The contestants that can create this many jobs. `series` gets a row for each of them and for each
    /// missing one.
    fn creators(&self, jobs: usize, series: &mut Vec<CreationSeries>) -> Vec<(&'static str, &dyn Creator)> {
        let mut creators = Vec::new();
        for entry in self.entries {
            let trouble = match &entry.found {
                Err(missing) if entry.name == "windlass" => Some(missing.clone()),
                Err(_) => continue,
                Ok(contestant) => match contestant.creator() {
                    None => continue,
                    Some(creator) if jobs > creator.at_most() => continue,
                    Some(creator) => {
                        creators.push((entry.name, creator));
                        None
                    }
                },
            };
            series.push(CreationSeries {
                contestant: entry.name,
                create: Vec::new(),
                status: Vec::new(),
                trouble,
            });
        }
        creators
    }

    fn create_once(
        &self,
        creator: &dyn Creator,
        specification: &Specification<'_>,
        jobs: usize,
        place: &Place,
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

    fn place(&self, letter: char, name: &str) -> Result<Place> {
        Place::create(self.ground.join(PathBuf::from(letter.to_string())).join(name))
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

/// The number of jobs for a contestant.
fn share(contestant: &dyn Contestant, shape: Shape, size: usize) -> usize {
    (size / contestant.share(shape)).max(2)
}

/// The order of a round: each round begins with a different contestant, so that none always runs after the same
/// one.
fn turns(count: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |step| (step + round) % count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_all_contestants_in_rotated_order() {
        let orders: Vec<Vec<usize>> = (0..4).map(|round| turns(3, round).collect()).collect();
        assert_eq!(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
        assert_eq!(turns(0, 1).count(), 0);
    }
}
