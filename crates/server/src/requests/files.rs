//! State of the input files of a request.

use super::{load_request, page_length};
use crate::error::ApiResult;
use windlass_api::requests::{ExclusionReason, FileExclusions, RequestFiles};
use windlass_core::requests::input_files;
use windlass_store::StoreDatabase;
use windlass_types::requests::{RequestFileCounts, RequestFileState, RequestStatus};

/// Maximum number of excluded files that are read for the summary.
const MAX_EXCLUDED_READ: u64 = 100_000;
/// Maximum number of reasons in the summary.
const MAX_REASONS: usize = 20;

/// Lists the files in one of these states, or all.
pub fn list_request_files(
    db: &dyn StoreDatabase,
    name: &str,
    states: &[RequestFileState],
    offset: u64,
    limit: Option<u64>,
) -> ApiResult<RequestFiles> {
    let row = load_request(db, name)?;
    let Some(process) = db.process(name)? else { return Ok(RequestFiles::default()) };
    let counts = db.file_counts(&process.uuid)?;
    // In a completed request all other files are processed: a single round without failures stores no list.
    let open = row.request.input_dataset.as_deref().filter(|_| row.status != RequestStatus::Completed);
    let dataset = open.map(|dataset| db.dataset(dataset)).transpose()?;
    Ok(RequestFiles {
        items: db.list_file_rows(&process.uuid, states, offset, page_length(limit))?,
        total: count_in_states(counts, states),
        offset,
        counts,
        fresh: dataset.flatten().map(|dataset| dataset.files.saturating_sub(count_in_states(counts, &[]))),
        exclusions: summarize_exclusions(db, &process.uuid)?,
    })
}

fn count_in_states(counts: RequestFileCounts, states: &[RequestFileState]) -> u64 {
    let of = |state: &RequestFileState| match state {
        RequestFileState::Attempted => counts.attempted,
        RequestFileState::Processed => counts.processed,
        RequestFileState::Excluded => counts.excluded,
    };
    let wanted = |state: &&RequestFileState| states.is_empty() || states.contains(state);
    RequestFileState::ALL.iter().filter(wanted).map(of).sum()
}

fn summarize_exclusions(db: &dyn StoreDatabase, process: &str) -> ApiResult<FileExclusions> {
    let report = input_files::InputExclusions::from_rows(&db.list_file_rows(
        process,
        &[RequestFileState::Excluded],
        0,
        MAX_EXCLUDED_READ,
    )?);
    let reasons = report.reasons.into_iter().take(MAX_REASONS);
    Ok(FileExclusions {
        files: report.files,
        partly_processed: report.partly_processed,
        reasons: reasons.map(|(reason, files)| ExclusionReason { reason, files }).collect(),
    })
}
