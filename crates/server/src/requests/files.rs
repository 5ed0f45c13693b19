//! What became of the input files of a request.

use super::{page, request};
use crate::error::Answer;
use windlass_api::requests::{ExclusionReason, Exclusions, RequestFiles};
use windlass_core::requests::files;
use windlass_store::Database;
use windlass_types::requests::{FileCounts, FileState, RequestStatus};

/// Excluded files are few; of more than this the first ones say enough.
const READ: u64 = 100_000;
/// More reasons than this nobody reads.
const REASONS: usize = 20;

/// Those in one of these states, or all.
pub fn list(
    db: &dyn Database,
    name: &str,
    states: &[FileState],
    offset: u64,
    limit: Option<u64>,
) -> Answer<RequestFiles> {
    let row = request(db, name)?;
    let Some(process) = db.process(name)? else { return Ok(RequestFiles::default()) };
    let counts = db.file_counts(&process.uuid)?;
    // Of a request that is completed all others are processed: a single round in which nothing failed leaves no list.
    let open = row.request.input_dataset.as_deref().filter(|_| row.status != RequestStatus::Completed);
    let dataset = open.map(|dataset| db.dataset(dataset)).transpose()?;
    Ok(RequestFiles {
        items: db.page_of_file_rows(&process.uuid, states, offset, page(limit))?,
        total: total(counts, states),
        offset,
        counts,
        fresh: dataset.flatten().map(|dataset| dataset.files.saturating_sub(total(counts, &[]))),
        exclusions: exclusions(db, &process.uuid)?,
    })
}

fn total(counts: FileCounts, states: &[FileState]) -> u64 {
    let of = |state: &FileState| match state {
        FileState::Attempted => counts.attempted,
        FileState::Processed => counts.processed,
        FileState::Excluded => counts.excluded,
    };
    let wanted = |state: &&FileState| states.is_empty() || states.contains(state);
    FileState::ALL.iter().filter(wanted).map(of).sum()
}

fn exclusions(db: &dyn Database, process: &str) -> Answer<Exclusions> {
    let report = files::Exclusions::of(&db.page_of_file_rows(process, &[FileState::Excluded], 0, READ)?);
    let reasons = report.reasons.into_iter().take(REASONS);
    Ok(Exclusions {
        files: report.files,
        partly_processed: report.partly_processed,
        reasons: reasons.map(|(reason, files)| ExclusionReason { reason, files }).collect(),
    })
}
