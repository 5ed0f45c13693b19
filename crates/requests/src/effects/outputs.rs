//! What is done in the catalog about outputs.

use super::Rows;
use crate::catalog::{CatalogError, Fault};
use crate::names;
use crate::world::World;
use serde::Deserialize;
use windlass_core::requests::book::{BlockRow, OutputStep, StepKind};
use windlass_core::requests::lifecycle::News;
use windlass_store::model::StepFilter;
use windlass_types::catalog::{CatalogFile, FileLumi};
use windlass_types::payload::MergedFile;

/// What a step says about the files of a unit.
#[derive(Debug, Default, Deserialize)]
struct Detail {
    #[serde(default)]
    site: String,
    #[serde(default)]
    files: Vec<MergedFile>,
    /// What the block is called in the catalog, where it is of another request.
    #[serde(default)]
    block: Option<String>,
    #[serde(default)]
    tape_rule: Option<String>,
}

pub(super) fn perform(world: &World, step: &OutputStep, rows: &Rows) -> News {
    let outcome = carry_out(world, step, rows.block.as_ref());
    if let Err(error) = &outcome {
        let (request, block, kind) = (&rows.name, &step.block, step.kind.name());
        tracing::warn!(%request, %block, unit = step.unit, kind, error, "an output step failed");
    }
    News::Step { block: step.block.clone(), unit: step.unit, kind: step.kind, outcome }
}

fn carry_out(world: &World, step: &OutputStep, block: Option<&BlockRow>) -> Result<Option<String>, String> {
    let detail: Detail = match &step.detail {
        serde_json::Value::Null => Detail::default(),
        detail => serde_json::from_value(detail.clone())
            .map_err(|error| format!("the step's detail cannot be read: {error}"))?,
    };
    if step.kind == StepKind::Invalidate {
        return invalidate(world, step, block, &detail).map(|()| None);
    }
    let block = block.ok_or("its block is gone")?;
    // Known from the beginning, so that a block whose opening was forgotten is opened again as itself.
    let name = block.name.clone().unwrap_or_else(|| names::block_in_catalog(&block.dataset, &block.uuid));
    let catalog = &world.catalog;
    let done = match step.kind {
        StepKind::Open => catalog.open_block(&block.dataset, &name).map(|()| Some(name)),
        StepKind::Register => {
            let files = files(world, &detail).map_err(|error| error.to_string())?;
            catalog.register(&name, &detail.site, &files).map(|()| None)
        }
        StepKind::Protect => catalog.protect(&name, &detail.site).map(Some),
        StepKind::Close => catalog.close_block(&name).map(|()| None),
        StepKind::Archive => catalog.archive(&name).map(Some),
        StepKind::Invalidate => Ok(None),
    };
    done.map_err(|error| error.detail)
}

/// What a merge wrote, as a catalog has it.
fn files(world: &World, detail: &Detail) -> Result<Vec<CatalogFile>, windlass_store::Error> {
    let storage = world.storage_of(&detail.site)?;
    let one = |file: &MergedFile| CatalogFile {
        lfn: file.lfn.clone(),
        size: file.size,
        events: file.events,
        checksums: [("adler32".to_owned(), file.adler32.clone())].into(),
        lumis: lumis(file),
        replicas: [(detail.site.clone(), format!("{storage}{}", file.lfn))].into(),
        parents: file.parents.clone(),
    };
    Ok(detail.files.iter().map(one).collect())
}

/// Runs and sections beyond 32 bits do not exist; one that does would not be found again.
fn lumis(file: &MergedFile) -> Vec<FileLumi> {
    let one = |run: u64, lumi: u64| {
        Some(FileLumi { run: u32::try_from(run).ok()?, lumi: u32::try_from(lumi).ok()?, events: None })
    };
    let ranges = file.lumis.iter().flat_map(|(&run, ranges)| ranges.iter().map(move |range| (run, *range)));
    ranges.flat_map(|(run, (first, last))| (first..=last).filter_map(move |lumi| one(run, lumi))).collect()
}

/// Rules go first, then the files. What cannot be removed for good reason is told, and the rest is removed all the same
/// what may be removed later is tried again, with all of it.
fn invalidate(
    world: &World,
    step: &OutputStep,
    block: Option<&BlockRow>,
    detail: &Detail,
) -> Result<(), String> {
    let filter = StepFilter { block: Some(step.block.clone()), ..StepFilter::default() };
    let steps = world.books.steps(&filter).map_err(|error| error.to_string())?;
    let protecting = steps.iter().filter(|step| step.kind == StepKind::Protect);
    let rules = protecting.filter_map(|step| step.result.as_ref()).chain(&detail.tape_rule);
    let mut later = Vec::new();
    let mut note = |outcome: Result<(), CatalogError>| match outcome {
        Ok(()) => {}
        Err(error) if error.fault == Fault::Later => later.push(error.detail),
        Err(error) => tracing::warn!(block = step.block, error = error.detail, "left as it is"),
    };
    for rule in rules {
        note(world.catalog.remove_rule(rule));
    }
    let derived = block.map(|block| names::block_in_catalog(&block.dataset, &block.uuid));
    let known = block.and_then(|block| block.name.clone()).or_else(|| detail.block.clone());
    if let Some(name) = known.or(derived) {
        note(world.catalog.invalidate(&name));
    }
    if later.is_empty() { Ok(()) } else { Err(later.join("; ")) }
}
