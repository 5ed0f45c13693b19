//! Catalog calls for outputs.

use super::EffectRows;
use crate::catalog::{CatalogError, CatalogErrorKind};
use crate::context::RequestReconcilerContext;
use crate::derived_names;
use serde::Deserialize;
use windlass_core::requests::lifecycle::LifecycleEvent;
use windlass_core::requests::rows::{BlockRow, OutputStep, OutputStepKind};
use windlass_store::model::OutputStepFilter;
use windlass_types::catalog::{CatalogFile, FileLumi};
use windlass_types::payload::MergedFile;

/// The detail of a step about the files of a unit.
#[derive(Debug, Default, Deserialize)]
struct OutputStepDetail {
    #[serde(default)]
    site: String,
    #[serde(default)]
    files: Vec<MergedFile>,
    /// The name of the block in the catalog, where it belongs to another request.
    #[serde(default)]
    block: Option<String>,
    #[serde(default)]
    tape_rule: Option<String>,
}

pub(super) fn perform_output_step(
    context: &RequestReconcilerContext,
    step: &OutputStep,
    rows: &EffectRows,
) -> LifecycleEvent {
    let outcome = try_output_step(context, step, rows.block.as_ref());
    if let Err(error) = &outcome {
        let (request, block, kind) = (&rows.name, &step.block, step.kind.name());
        tracing::warn!(%request, %block, unit = step.unit, kind, error, "an output step failed");
    }
    LifecycleEvent::Step { block: step.block.clone(), unit: step.unit, kind: step.kind, outcome }
}

fn try_output_step(
    context: &RequestReconcilerContext,
    step: &OutputStep,
    block: Option<&BlockRow>,
) -> Result<Option<String>, String> {
    let detail: OutputStepDetail = match &step.detail {
        serde_json::Value::Null => OutputStepDetail::default(),
        detail => serde_json::from_value(detail.clone())
            .map_err(|error| format!("cannot parse the detail of the step: {error}"))?,
    };
    if step.kind == OutputStepKind::Invalidate {
        return invalidate_outputs(context, step, block, &detail).map(|()| None);
    }
    let block = block.ok_or("its block does not exist")?;
    // Known from the beginning, so that a block whose opening was lost is opened again as itself.
    let name =
        block.name.clone().unwrap_or_else(|| derived_names::catalog_block_name(&block.dataset, &block.uuid));
    let catalog = &context.catalog;
    let done = match step.kind {
        OutputStepKind::Open => catalog.open_block(&block.dataset, &name).map(|()| Some(name)),
        OutputStepKind::Register => {
            let files = catalog_files(context, &detail).map_err(|error| error.to_string())?;
            catalog.register_files(&name, &detail.site, &files).map(|()| None)
        }
        OutputStepKind::Protect => catalog.protect_block(&name, &detail.site).map(Some),
        OutputStepKind::Close => catalog.close_block(&name).map(|()| None),
        OutputStepKind::Archive => catalog.archive_block(&name).map(Some),
        OutputStepKind::Invalidate => Ok(None),
    };
    done.map_err(|error| error.detail)
}

/// The output of a merge, in the form of a catalog.
fn catalog_files(
    context: &RequestReconcilerContext,
    detail: &OutputStepDetail,
) -> Result<Vec<CatalogFile>, windlass_store::StoreError> {
    let storage = context.storage_path(&detail.site)?;
    let one = |file: &MergedFile| CatalogFile {
        lfn: file.lfn.clone(),
        size: file.size,
        events: file.events,
        checksums: [("adler32".to_owned(), file.adler32.clone())].into(),
        lumis: file_lumis(file),
        replicas: [(detail.site.clone(), format!("{storage}{}", file.lfn))].into(),
        parents: file.parents.clone(),
    };
    Ok(detail.files.iter().map(one).collect())
}

/// Runs and sections beyond 32 bits do not exist; one that did could not be found again.
fn file_lumis(file: &MergedFile) -> Vec<FileLumi> {
    let one = |run: u64, lumi: u64| {
        Some(FileLumi { run: u32::try_from(run).ok()?, lumi: u32::try_from(lumi).ok()?, events: None })
    };
    let ranges = file.lumis.iter().flat_map(|(&run, ranges)| ranges.iter().map(move |range| (run, *range)));
    ranges.flat_map(|(run, (first, last))| (first..=last).filter_map(move |lumi| one(run, lumi))).collect()
}

/// First the rules, then the files. A permanent failure is reported, and the rest is removed anyway; a
/// temporary one is retried with all of it.
fn invalidate_outputs(
    context: &RequestReconcilerContext,
    step: &OutputStep,
    block: Option<&BlockRow>,
    detail: &OutputStepDetail,
) -> Result<(), String> {
    let filter = OutputStepFilter { block: Some(step.block.clone()), ..OutputStepFilter::default() };
    let steps = context.database.output_steps(&filter).map_err(|error| error.to_string())?;
    let protecting = steps.iter().filter(|step| step.kind == OutputStepKind::Protect);
    let rules = protecting.filter_map(|step| step.result.as_ref()).chain(&detail.tape_rule);
    let mut later = Vec::new();
    let mut note = |outcome: Result<(), CatalogError>| match outcome {
        Ok(()) => {}
        Err(error) if error.fault == CatalogErrorKind::Transient => later.push(error.detail),
        Err(error) => tracing::warn!(block = step.block, error = error.detail, "not removed"),
    };
    for rule in rules {
        note(context.catalog.remove_rule(rule));
    }
    let derived = block.map(|block| derived_names::catalog_block_name(&block.dataset, &block.uuid));
    let known = block.and_then(|block| block.name.clone()).or_else(|| detail.block.clone());
    if let Some(name) = known.or(derived) {
        note(context.catalog.invalidate_block(&name));
    }
    if later.is_empty() { Ok(()) } else { Err(later.join("; ")) }
}
