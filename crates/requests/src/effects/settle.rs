//! A round is settled: what its work units have read is credited, so that the next one is made of the rest.
//!
//! Completed is what is registered, and nothing else: both come from the same rows, so that no event is in the outputs twice
//! and none that is missing there is taken for done. All runs of the round are over when this is called.

use super::{lasting, of_store, passing};
use crate::effects::Rows;
use crate::outline::manifest_path;
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use windlass_core::requests::book::{FileCounts, RunRow};
use windlass_core::requests::files::{self, Outcome, Part, Reading};
use windlass_core::requests::lifecycle::Trouble;
use windlass_store::model::RunFilter;
use windlass_types::payload::{Input, UnitManifest};

/// May be done twice: the same files come to the same state.
pub(super) fn perform(world: &World, rows: &Rows, round: u32) -> Result<FileCounts, Trouble> {
    let run = rows.run.as_ref().filter(|run| run.round == round);
    let run = run.ok_or_else(|| lasting(format!("round {round} has no run")))?;
    let readings = readings(run)?;
    let outcome = outcome(world, run)?;
    let earlier = world.books.file_rows(&run.process).map_err(|error| of_store(&error))?;
    let settled = files::settle(round, readings, &outcome, &earlier).map_err(lasting)?;
    world.books.put_file_rows(&run.process, &settled).map_err(|error| of_store(&error))?;
    world.books.file_counts(&run.process).map_err(|error| of_store(&error))
}

/// Which units count, and which files are known to be bad, over all runs of the round.
fn outcome(world: &World, run: &RunRow) -> Result<Outcome, Trouble> {
    let books = &world.books;
    let completed = books.registered_units(&run.process, run.round).map_err(|error| of_store(&error))?;
    let filter = RunFilter { process: Some(run.process.clone()), ..RunFilter::default() };
    let runs = books.request_runs(&filter).map_err(|error| of_store(&error))?;
    let of_round: BTreeSet<&str> =
        runs.iter().filter(|other| other.round == run.round).map(|other| other.uuid.as_str()).collect();
    let mut bad: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    let failures = books.failures_of(&run.process).map_err(|error| of_store(&error))?;
    for (_, tally) in failures.iter().filter(|(of, _)| of_round.contains(of.as_str())) {
        for (lfn, file) in &tally.files {
            for unit in &file.units {
                bad.entry(*unit).or_default().insert(lfn.clone());
            }
        }
    }
    Ok(Outcome { completed: completed.into_iter().collect(), bad })
}

/// What each work unit of the round was given to read, as its manifest says.
fn readings(run: &RunRow) -> Result<Vec<Reading>, Trouble> {
    let mut readings = Vec::new();
    for unit in 0..run.totals.units {
        let path = manifest_path(Path::new(&run.submit_dir), unit);
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => lasting(told(&error)),
            _ => passing(told(&error)),
        })?;
        let manifest: UnitManifest = serde_json::from_slice(&text).map_err(|error| lasting(told(&error)))?;
        let inputs = manifest.nodes.into_iter().flat_map(|node| node.inputs);
        readings.extend(inputs.map(|input| Reading { unit, part: part(&input), lfn: input.lfn }));
    }
    Ok(readings)
}

fn part(input: &Input) -> Part {
    match (&input.events, &input.lumis) {
        (Some(window), _) => Part::Events(window.first, window.last),
        (None, Some(mask)) => Part::Lumis(mask.clone()),
        (None, None) => Part::Whole,
    }
}
