//! What there is of the outputs of a request that is given up: written down for those who clean up (E 4.2).

use super::{Rows, lasting, of_store, passing};
use crate::names;
use crate::world::World;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use windlass_core::requests::book::{BlockRow, OutputStep, StepKind, StepState};
use windlass_core::requests::lifecycle::Trouble;
use windlass_store::model::StepFilter;
use windlass_types::requests::BlockStatus;
use windlass_types::{Clock, Timestamp};

/// In the directory of the request.
const FILE: &str = "invalidation.json";

/// Everything that was, or may have been, recorded of a request.
#[derive(Debug, PartialEq, Serialize)]
struct Manifest {
    request: String,
    written_at: Timestamp,
    blocks: Vec<Listed>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Listed {
    dataset: String,
    /// As DBS calls it.
    block: String,
    /// It is known to be there; otherwise it may be, if the answer to its opening was lost.
    is_opened: bool,
    is_closed: bool,
    status: BlockStatus,
    /// Those that keep its files where they are.
    source_rules: BTreeSet<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tape_rule: Option<String>,
    files: Vec<Entry>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Entry {
    lfn: String,
    site: String,
    /// Otherwise it is on the site's storage, and perhaps in the catalog.
    is_registered: bool,
}

/// Where it is listed; on disk when this returns. Done again it lists what there is then.
pub(super) fn perform(world: &World, rows: &Rows) -> Result<PathBuf, Trouble> {
    let process = rows.process.as_ref().ok_or_else(|| lasting("the request has no process"))?;
    let blocks = world.books.blocks(&process.uuid).map_err(|error| of_store(&error))?;
    let filter = StepFilter { process: Some(process.uuid.clone()), ..StepFilter::default() };
    let steps = world.books.steps(&filter).map_err(|error| of_store(&error))?;
    let manifest =
        Manifest { request: rows.name.clone(), written_at: Clock.now(), blocks: list(&blocks, &steps) };
    let root = std::path::absolute(&world.options.submit_root).map_err(passing)?;
    let directory = root.join(&rows.name);
    write(&directory, &manifest).map_err(|error| passing(format!("{}: {error}", directory.display())))?;
    Ok(directory.join(FILE))
}

/// Blocks that something was done about. What is invalidated already needs nobody.
fn list(blocks: &[BlockRow], steps: &[OutputStep]) -> Vec<Listed> {
    let mut by_block: BTreeMap<&str, Vec<&OutputStep>> = BTreeMap::new();
    for step in steps {
        by_block.entry(&step.block).or_default().push(step);
    }
    let of = |block: &BlockRow| by_block.get(block.uuid.as_str()).cloned().unwrap_or_default();
    let there = blocks.iter().filter(|block| block.status != BlockStatus::Invalidated);
    there.map(|block| (block, of(block))).filter(|(_, steps)| !steps.is_empty()).map(one_block).collect()
}

fn one_block((block, steps): (&BlockRow, Vec<&OutputStep>)) -> Listed {
    let of_kind = |kind| steps.iter().filter(move |step| step.kind == kind);
    Listed {
        dataset: block.dataset.clone(),
        block: block.name.clone().unwrap_or_else(|| names::block_in_catalog(&block.dataset, &block.uuid)),
        is_opened: block.name.is_some(),
        is_closed: block.is_closed,
        status: block.status,
        source_rules: of_kind(StepKind::Protect).filter_map(|step| step.result.clone()).collect(),
        tape_rule: block.tape_rule.clone(),
        files: of_kind(StepKind::Register).flat_map(|step| entries(step)).collect(),
    }
}

fn entries(step: &OutputStep) -> Vec<Entry> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let site = text(&step.detail["site"]);
    let files = step.detail["files"].as_array().map_or(&[][..], Vec::as_slice);
    let is_registered = step.state == StepState::Done;
    files.iter().map(|file| Entry { lfn: text(&file["lfn"]), site: site.clone(), is_registered }).collect()
}

/// Whole or not at all, whatever happens meanwhile.
fn write(directory: &Path, manifest: &Manifest) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let hidden = directory.join(format!(".{FILE}"));
    let mut file = File::create(&hidden)?;
    file.write_all(&serde_json::to_vec_pretty(manifest)?)?;
    file.sync_all()?;
    fs::rename(&hidden, directory.join(FILE))?;
    File::open(directory)?.sync_all()
}
