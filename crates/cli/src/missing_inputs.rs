//! Checks before a run that all input files exist which no job of the workflow writes.

use crate::error::CliError;
use crate::ui::text;
use std::collections::HashSet;
use std::path::Path;
use windlass_store::Store;
use windlass_store::model::{DataFilter, JobFileRow, WorkflowFileRow, WorkflowRow};
use windlass_types::{FileId, JobId};

/// Maximum number of missing files named.
const MAX_NAMED: usize = 10;

/// Refuses to start if an input is missing that no job writes: the jobs that read it would only fail, perhaps
/// hours later.
pub(crate) fn require_inputs(store: &dyn Store, workflow: &WorkflowRow) -> Result<(), CliError> {
    refuse_missing(&find_missing(store, workflow, &[])?)
}

pub(crate) fn refuse_missing(missing: &[WorkflowFileRow]) -> Result<(), CliError> {
    if missing.is_empty() {
        return Ok(());
    }
    Err(CliError::refused(render_missing(missing)).with_hint("create them at these paths, or use --force"))
}

/// Missing inputs of the jobs that have not run yet and of those that run `again`.
pub(crate) fn find_missing(
    store: &dyn Store,
    workflow: &WorkflowRow,
    again: &[JobId],
) -> Result<Vec<WorkflowFileRow>, CliError> {
    if workflow.file_count == 0 {
        return Ok(Vec::new());
    }
    let jobs = store.load_jobs(workflow.id)?;
    let unsettled = jobs.ids.iter().zip(&jobs.status).filter(|(_, status)| !status.is_settled());
    let waiting: HashSet<JobId> = unsettled.map(|(id, _)| *id).chain(again.iter().copied()).collect();
    let required = required_files(&store.job_files(workflow.id)?, &waiting);
    let mut files = store.files(workflow.id, &DataFilter::default())?;
    let directory = Path::new(&workflow.submission_dir);
    files.retain(|file| required.contains(&file.id) && !directory.join(&file.path).exists());
    Ok(files)
}

/// Files read by jobs that have not run yet and written by no job.
fn required_files(relations: &[JobFileRow], waiting: &HashSet<JobId>) -> HashSet<FileId> {
    let made: HashSet<FileId> = relations.iter().filter(|r| r.is_output).map(|r| r.file_id).collect();
    relations
        .iter()
        .filter(|r| !r.is_output && waiting.contains(&r.job_id) && !made.contains(&r.file_id))
        .map(|r| r.file_id)
        .collect()
}

/// The number, and the names.
pub(crate) fn render_missing(missing: &[WorkflowFileRow]) -> String {
    let mut lines = vec![format!(
        "{} missing that no job writes:",
        text::render_count(missing.len() as u64, "input file")
    )];
    lines.extend(missing.iter().take(MAX_NAMED).map(|file| {
        let name = if file.name == file.path { String::new() } else { format!(" ({})", file.name) };
        format!("  {}{name}", file.path)
    }));
    if missing.len() > MAX_NAMED {
        lines.push(format!("  and {} more", missing.len() - MAX_NAMED));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::WorkflowId;

    fn relation(job: i64, is_output: bool, file: i64) -> JobFileRow {
        JobFileRow { job_id: JobId(job), is_output, file_id: FileId(file) }
    }

    #[test]
    fn required_inputs_are_read_by_waiting_jobs_and_unproduced() {
        let relations = [
            relation(1, false, 10),
            relation(1, true, 11),
            relation(2, false, 11),
            relation(3, false, 12),
            relation(2, true, 13),
        ];
        let waiting = HashSet::from([JobId(1), JobId(2)]);
        assert_eq!(required_files(&relations, &waiting), HashSet::from([FileId(10)]));
    }

    #[test]
    fn missing_input_error_names_first_ten_files() {
        let files: Vec<WorkflowFileRow> = (0..12)
            .map(|n| WorkflowFileRow {
                id: FileId(n),
                workflow_id: WorkflowId(1),
                name: if n == 0 { "mesh".into() } else { format!("{n}.dat") },
                path: format!("{n}.dat"),
                identifier: None,
                mtime_ns: None,
                size: None,
            })
            .collect();
        let text = render_missing(&files);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "12 input files missing that no job writes:");
        assert_eq!((lines[1], lines[2]), ("  0.dat (mesh)", "  1.dat"));
        assert_eq!((lines.len(), lines[11]), (12, "  and 2 more"));
    }
}
