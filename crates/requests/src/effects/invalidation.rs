//! Lists the outputs of a failed request for their cleanup (E 4.2).

use super::{EffectRows, permanent_failure, store_failure, transient_failure};
use crate::context::RequestReconcilerContext;
use crate::derived_names;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use windlass_core::requests::lifecycle::EffectFailure;
use windlass_core::requests::rows::{BlockRow, OutputStep, OutputStepKind, OutputStepState};
use windlass_store::model::OutputStepFilter;
use windlass_types::requests::ProcessingBlockStatus;
use windlass_types::{SystemClock, Timestamp};

/// In the directory of the request.
const MANIFEST_FILE: &str = "invalidation.json";

/// All outputs that were recorded, or may have been.
#[derive(Debug, PartialEq, Serialize)]
struct InvalidationManifest {
    request: String,
    written_at: Timestamp,
    blocks: Vec<InvalidationBlock>,
}

#[derive(Debug, PartialEq, Serialize)]
struct InvalidationBlock {
    dataset: String,
    /// The name in DBS.
    block: String,
    /// It is known to exist; otherwise it may exist, if the answer to its opening was lost.
    is_opened: bool,
    is_closed: bool,
    status: ProcessingBlockStatus,
    /// The rules that protect its files.
    source_rules: BTreeSet<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tape_rule: Option<String>,
    files: Vec<InvalidationFile>,
}

#[derive(Debug, PartialEq, Serialize)]
struct InvalidationFile {
    lfn: String,
    site: String,
    /// Otherwise it is on the storage of the site, and perhaps in the catalog.
    is_registered: bool,
}

/// The path of the list; on disk when this returns. A repetition lists the current outputs.
pub(super) fn write_invalidation_manifest(
    context: &RequestReconcilerContext,
    rows: &EffectRows,
) -> Result<PathBuf, EffectFailure> {
    let process = rows.process.as_ref().ok_or_else(|| permanent_failure("the request has no process"))?;
    let blocks = context.database.processing_blocks(&process.uuid).map_err(|error| store_failure(&error))?;
    let filter = OutputStepFilter { process: Some(process.uuid.clone()), ..OutputStepFilter::default() };
    let steps = context.database.output_steps(&filter).map_err(|error| store_failure(&error))?;
    let manifest = InvalidationManifest {
        request: rows.name.clone(),
        written_at: SystemClock.now(),
        blocks: list_blocks(&blocks, &steps),
    };
    let root = std::path::absolute(&context.options.submit_root).map_err(transient_failure)?;
    let directory = root.join(&rows.name);
    write_manifest(&directory, &manifest)
        .map_err(|error| transient_failure(format!("{}: {error}", directory.display())))?;
    Ok(directory.join(MANIFEST_FILE))
}

/// Blocks with outputs. An invalidated block needs no cleanup.
fn list_blocks(blocks: &[BlockRow], steps: &[OutputStep]) -> Vec<InvalidationBlock> {
    let mut by_block: BTreeMap<&str, Vec<&OutputStep>> = BTreeMap::new();
    for step in steps {
        by_block.entry(&step.block).or_default().push(step);
    }
    let of = |block: &BlockRow| by_block.get(block.uuid.as_str()).cloned().unwrap_or_default();
    let there = blocks.iter().filter(|block| block.status != ProcessingBlockStatus::Invalidated);
    there.map(|block| (block, of(block))).filter(|(_, steps)| !steps.is_empty()).map(describe_block).collect()
}

fn describe_block((block, steps): (&BlockRow, Vec<&OutputStep>)) -> InvalidationBlock {
    let of_kind = |kind| steps.iter().filter(move |step| step.kind == kind);
    InvalidationBlock {
        dataset: block.dataset.clone(),
        block: block
            .name
            .clone()
            .unwrap_or_else(|| derived_names::catalog_block_name(&block.dataset, &block.uuid)),
        is_opened: block.name.is_some(),
        is_closed: block.is_closed,
        status: block.status,
        source_rules: of_kind(OutputStepKind::Protect).filter_map(|step| step.result.clone()).collect(),
        tape_rule: block.tape_rule.clone(),
        files: of_kind(OutputStepKind::Register).flat_map(|step| list_files(step)).collect(),
    }
}

fn list_files(step: &OutputStep) -> Vec<InvalidationFile> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let site = text(&step.detail["site"]);
    let files = step.detail["files"].as_array().map_or(&[][..], Vec::as_slice);
    let is_registered = step.state == OutputStepState::Done;
    files
        .iter()
        .map(|file| InvalidationFile { lfn: text(&file["lfn"]), site: site.clone(), is_registered })
        .collect()
}

/// Written completely or not at all.
fn write_manifest(directory: &Path, manifest: &InvalidationManifest) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let hidden = directory.join(format!(".{MANIFEST_FILE}"));
    let mut file = File::create(&hidden)?;
    file.write_all(&serde_json::to_vec_pretty(manifest)?)?;
    file.sync_all()?;
    fs::rename(&hidden, directory.join(MANIFEST_FILE))?;
    File::open(directory)?.sync_all()
}
