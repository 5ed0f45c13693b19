//! What a round made of its input files, once nothing of it runs any more.
//!
//! What its units have read is in their manifests, which are as they were planned. Which of them count is in the books and
//! nowhere else: those whose outputs are registered or wait for it, over all runs of the round, on whatever backend. A unit
//! that comes to its end after its run was over is not among them and never will be: nobody takes news of a run that is
//! over. What it read is then left, and is processed once more by a unit that counts; its own outputs are files that no
//! catalog knows.

#[cfg(test)]
mod tests;

use super::{Rows, lasting, of_store, passing};
use crate::outline::manifest_path;
use crate::world::World;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use windlass_core::requests::book::{FileCounts, RunRow};
use windlass_core::requests::failures::Tally;
use windlass_core::requests::files::{self, Outcome, Part, Reading};
use windlass_core::requests::lifecycle::Trouble;
use windlass_store::Database;
use windlass_store::model::RunFilter;
use windlass_types::LumiMask;
use windlass_types::payload::EventWindow;

pub(super) fn perform(world: &World, rows: &Rows, round: u32) -> Result<FileCounts, Trouble> {
    let run = rows.run.as_ref().filter(|run| run.round == round);
    let run = run.ok_or_else(|| lasting(format!("round {round} has no run")))?;
    settle(&*world.books, run)
}

/// The round of this run, its last one. All rows are written at once, and the same ones when it is done again.
fn settle(books: &dyn Database, run: &RunRow) -> Result<FileCounts, Trouble> {
    let readings = readings(run)?;
    let of_store = |error: windlass_store::Error| of_store(&error);
    let completed = books.registered_units(&run.process, run.round).map_err(of_store)?;
    let bad = files::found_bad(&tallies(books, run).map_err(of_store)?);
    let outcome = Outcome { completed: completed.into_iter().collect(), bad };
    let earlier = books.file_rows(&run.process).map_err(of_store)?;
    let settled = files::settle(run.round, readings, &outcome, &earlier).map_err(lasting)?;
    books.put_file_rows(&run.process, &settled).map_err(of_store)?;
    books.file_counts(&run.process).map_err(of_store)
}

/// What is known of the failures of the round, its first run first.
fn tallies(books: &dyn Database, run: &RunRow) -> Result<Vec<Tally>, windlass_store::Error> {
    let filter = RunFilter { process: Some(run.process.clone()), ..RunFilter::default() };
    let rounds: BTreeMap<String, u32> =
        books.request_runs(&filter)?.into_iter().map(|run| (run.uuid, run.round)).collect();
    let tallies = books.failures_of(&run.process)?.into_iter();
    Ok(tallies.filter(|(uuid, _)| rounds.get(uuid) == Some(&run.round)).map(|(_, tally)| tally).collect())
}

/// Of a manifest, what is needed here; of a hundred thousand files the rest would take most of the time.
#[derive(Debug, Deserialize)]
struct Manifest {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    #[serde(default)]
    inputs: Vec<Input>,
}

#[derive(Debug, Deserialize)]
struct Input {
    lfn: String,
    events: Option<EventWindow>,
    lumis: Option<LumiMask>,
}

/// What all units of a round read.
fn readings(run: &RunRow) -> Result<Vec<Reading>, Trouble> {
    let mut readings = Vec::new();
    for unit in 0..run.totals.units {
        let manifest = manifest(&manifest_path(Path::new(&run.submit_dir), unit))?;
        let inputs = manifest.nodes.into_iter().flat_map(|node| node.inputs);
        readings.extend(inputs.map(|input| Reading {
            unit,
            part: part(input.events, input.lumis),
            lfn: input.lfn,
        }));
    }
    Ok(readings)
}

fn part(events: Option<EventWindow>, lumis: Option<LumiMask>) -> Part {
    match (events, lumis) {
        (Some(EventWindow { first, last }), _) => Part::Events(first, last),
        (None, Some(mask)) => Part::Lumis(mask),
        (None, None) => Part::Whole,
    }
}

/// One that is gone stays so; one that cannot be read may be read later.
fn manifest(path: &Path) -> Result<Manifest, Trouble> {
    let told = |error: &dyn std::fmt::Display| {
        format!("what a work unit has read is unknown: {}: {error}", path.display())
    };
    let text = std::fs::read(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => lasting(told(&error)),
        _ => passing(told(&error)),
    })?;
    serde_json::from_slice(&text).map_err(|error| lasting(told(&error)))
}
