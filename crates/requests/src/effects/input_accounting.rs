//! Accounts for the input files of a round after all of its work has ended.
//!
//! The manifests tell what its units were planned to read. Only the database tells which units count: those whose
//! outputs are registered or about to be, over all runs of the round, on any backend. A unit that completes after
//! the end of its run is not among them and never will be, because changes of an ended run are ignored. Its input
//! counts as remaining, and is processed again by a unit that counts; its own outputs are in no catalog.

#[cfg(test)]
mod tests;

use super::{EffectRows, permanent_failure, store_failure, transient_failure};
use crate::context::RequestReconcilerContext;
use crate::planned_run_units::manifest_path;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use windlass_core::requests::failures::FailureTally;
use windlass_core::requests::input_files::{self, FilePart, RoundUnitOutcome, UnitInput};
use windlass_core::requests::lifecycle::EffectFailure;
use windlass_core::requests::rows::{RequestFileCounts, RunRow};
use windlass_store::StoreDatabase;
use windlass_store::model::RequestRunFilter;
use windlass_types::LumiMask;
use windlass_types::payload::EventWindow;

pub(super) fn perform_input_accounting(
    context: &RequestReconcilerContext,
    rows: &EffectRows,
    round: u32,
) -> Result<RequestFileCounts, EffectFailure> {
    let run = rows.run.as_ref().filter(|run| run.round == round);
    let run = run.ok_or_else(|| permanent_failure(format!("round {round} has no run")))?;
    account_inputs(&*context.database, run)
}

/// The round of this run, its last one. All rows are written at once, and a repetition writes the same ones.
fn account_inputs(store: &dyn StoreDatabase, run: &RunRow) -> Result<RequestFileCounts, EffectFailure> {
    let readings = unit_readings(run)?;
    let of_store = |error: windlass_store::StoreError| store_failure(&error);
    let completed = store.registered_work_units(&run.process, run.round).map_err(of_store)?;
    let bad = input_files::find_bad_files(&load_tallies(store, run).map_err(of_store)?);
    let outcome = RoundUnitOutcome { completed: completed.into_iter().collect(), bad_files: bad };
    let earlier = store.file_rows(&run.process).map_err(of_store)?;
    let settled =
        input_files::settle_files(run.round, readings, &outcome, &earlier).map_err(permanent_failure)?;
    store.put_file_rows(&run.process, &settled).map_err(of_store)?;
    store.file_counts(&run.process).map_err(of_store)
}

/// The known failures of the round, its first run first.
fn load_tallies(
    store: &dyn StoreDatabase,
    run: &RunRow,
) -> Result<Vec<FailureTally>, windlass_store::StoreError> {
    let filter = RequestRunFilter { process: Some(run.process.clone()), ..RequestRunFilter::default() };
    let rounds: BTreeMap<String, u32> =
        store.request_runs(&filter)?.into_iter().map(|run| (run.uuid, run.round)).collect();
    let tallies = store.list_failure_tallies(&run.process)?.into_iter();
    Ok(tallies.filter(|(uuid, _)| rounds.get(uuid) == Some(&run.round)).map(|(_, tally)| tally).collect())
}

/// The needed part of a manifest; for a hundred thousand files the rest would take most of the time.
#[derive(Debug, Deserialize)]
struct InputManifest {
    nodes: Vec<InputManifestNode>,
}

#[derive(Debug, Deserialize)]
struct InputManifestNode {
    #[serde(default)]
    inputs: Vec<InputManifestFile>,
}

#[derive(Debug, Deserialize)]
struct InputManifestFile {
    lfn: String,
    events: Option<EventWindow>,
    lumis: Option<LumiMask>,
}

/// The inputs of all units of a round.
fn unit_readings(run: &RunRow) -> Result<Vec<UnitInput>, EffectFailure> {
    let mut readings = Vec::new();
    for unit in 0..run.totals.units {
        let manifest = read_manifest(&manifest_path(Path::new(&run.submit_dir), unit))?;
        let inputs = manifest.nodes.into_iter().flat_map(|node| node.inputs);
        readings.extend(inputs.map(|input| UnitInput {
            unit,
            part: file_part(input.events, input.lumis),
            lfn: input.lfn,
        }));
    }
    Ok(readings)
}

fn file_part(events: Option<EventWindow>, lumis: Option<LumiMask>) -> FilePart {
    match (events, lumis) {
        (Some(EventWindow { first, last }), _) => FilePart::Events(first, last),
        (None, Some(mask)) => FilePart::Lumis(mask),
        (None, None) => FilePart::Whole,
    }
}

/// A missing manifest stays missing; an unreadable one may be readable later.
fn read_manifest(path: &Path) -> Result<InputManifest, EffectFailure> {
    let to_failure = |error: &dyn std::fmt::Display| {
        format!("the inputs of a work unit are unknown: {}: {error}", path.display())
    };
    let text = std::fs::read(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => permanent_failure(to_failure(&error)),
        _ => transient_failure(to_failure(&error)),
    })?;
    serde_json::from_slice(&text).map_err(|error| permanent_failure(to_failure(&error)))
}
