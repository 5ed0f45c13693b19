//! What would run and what is reused: gathers how things were (the books), how they are to be (a spec, or the same
//! books) and how the files are, and has `windlass_core::reuse` decide. Shared by `plan`, `reinit`, `reset-status`
//! and `run`.

mod command_pages;
mod current_files;
mod planned_jobs;
mod reason_view;
mod stored_jobs;
mod user_data;

pub(crate) use planned_jobs::PlannedJobs;
pub(crate) use reason_view::RerunReasonView;
pub(crate) use stored_jobs::StoredJobs;

use crate::error::{CliError, CliErrorKind};
use crate::ui::text;
use current_files::CurrentFiles;
use std::collections::HashMap;
use windlass_core::reuse::{self, AcceptedChange, RerunReason, ReuseDecision, ReuseQuery, ReuseSummary};
use windlass_insight::workflow_creation::{ReusedJob, ReusedJobs};
use windlass_store::model::{CompletedWork, WorkflowRow};
use windlass_types::settings::ChangeDetection;
use windlass_types::{JobId, JobStatus, WorkflowId};

/// A reason longer than this is cut where there is one line for it.
const MAX_REASON_LENGTH: usize = 100;

/// What becomes of each job, by number, compared with an earlier workflow or with an earlier run.
pub(crate) struct WorkflowChanges {
    pub(crate) decisions: Vec<ReuseDecision>,
    pub(crate) compared_with: WorkflowId,
    /// The files as they were when that was decided.
    files: CurrentFiles,
}

impl WorkflowChanges {
    pub(crate) fn summary(&self) -> ReuseSummary {
        ReuseSummary::from_decisions(&self.decisions)
    }

    /// What an earlier run has done already.
    pub(crate) fn is_reused(&self, number: u32) -> bool {
        !self.decisions[number as usize].runs()
    }

    /// `(number, why)` of each job that runs.
    pub(crate) fn jobs_to_run(&self) -> impl Iterator<Item = (u32, &RerunReason)> {
        (0u32..).zip(&self.decisions).filter_map(|(number, decision)| match decision {
            ReuseDecision::Run(reason) => Some((number, reason)),
            ReuseDecision::Reuse => None,
        })
    }
}

/// How the comparison is to be made.
#[derive(Clone, Copy, Default)]
pub(crate) struct ComparisonSettings<'a> {
    /// Files are told apart by what is in them, also where the workflow does not ask for it.
    pub(crate) compare_contents: bool,
    /// Changes that mean nothing.
    pub(crate) accepted_changes: &'a [AcceptedChange],
    /// The workflow was made from this very text and goes on: what its jobs have added is still part of it.
    pub(crate) same_text: bool,
}

fn check_accepted_names(
    accepted: &[AcceptedChange],
    is_known: impl Fn(&str) -> bool,
) -> Result<(), CliError> {
    let named = accepted.iter().filter_map(|accept| accept.job.as_deref());
    match named.into_iter().find(|name| !is_known(name)) {
        Some(name) => Err(CliError::user(format!("--accept names `{name}`, and there is no such job"))),
        None => Ok(()),
    }
}

/// Compares a spec with the workflow that an earlier version of it made.
pub(crate) fn compare_spec(
    books: &StoredJobs<'_>,
    planned: &PlannedJobs<'_, '_>,
    terms: ComparisonSettings<'_>,
) -> Result<WorkflowChanges, CliError> {
    check_accepted_names(terms.accepted_changes, |name| {
        planned.workflow().jobs().any(|job| job.name == name)
    })?;
    let files =
        CurrentFiles::new(books.workflow_row(), terms.compare_contents || planned.compares_contents());
    let before = |name: &str| {
        let number = books.number(name)?;
        let mut before = books.last_state(number);
        before.definition.depends_on = books.depends_on(number);
        before.has_added = !terms.same_text && books.has_spawned_jobs(number);
        Some(before)
    };
    let question = ReuseQuery {
        jobs: planned.count(),
        edges: planned.edges(),
        current: &|number| planned.definition(number),
        previous: &|_, name| before(name),
        file: &|path| files.state(path),
        is_shared: &|path| files.is_shared_directory(path, || planned.all_paths()),
        accepted: terms.accepted_changes,
    };
    let decisions = decide_reuse(&question, books)?;
    Ok(WorkflowChanges { decisions, compared_with: books.workflow_row().id, files })
}

/// Finds what the next run of a workflow would do.
pub(crate) fn compare_workflow(
    books: &StoredJobs<'_>,
    terms: ComparisonSettings<'_>,
) -> Result<WorkflowChanges, CliError> {
    check_accepted_names(terms.accepted_changes, |name| books.number(name).is_some())?;
    let files = CurrentFiles::new(
        books.workflow_row(),
        terms.compare_contents || compares_contents(books.workflow_row()),
    );
    let question = ReuseQuery {
        jobs: books.count(),
        edges: books.edges(),
        current: &|number| books.definition(number),
        previous: &|number, _| Some(books.last_state(number)),
        file: &|path| files.state(path),
        is_shared: &|path| files.is_shared_directory(path, || books.paths()),
        accepted: terms.accepted_changes,
    };
    let decisions = decide_reuse(&question, books)?;
    Ok(WorkflowChanges { decisions, compared_with: books.workflow_row().id, files })
}

fn decide_reuse(question: &ReuseQuery<'_>, books: &StoredJobs<'_>) -> Result<Vec<ReuseDecision>, CliError> {
    let decisions = reuse::decide_reuse(question)
        .map_err(|cycle| CliError::new(CliErrorKind::Spec, cycle.to_string()))?;
    // What could not be read was taken for missing; the decision is worth nothing then.
    books.check_read_error()?;
    Ok(decisions)
}

/// What the new workflow takes over from the earlier one. With each job goes what is known of its work, so that the new
/// workflow needs the earlier one no more: that may run again or be deleted.
pub(crate) fn collect_reused(
    books: &StoredJobs<'_>,
    planned: &PlannedJobs<'_, '_>,
    changes: &WorkflowChanges,
) -> ReusedJobs {
    let workflow = planned.workflow();
    let earlier = |number: u32| {
        let old = books.number(workflow.job(number as usize).name)?;
        // What was left out on purpose has done nothing that could be taken over.
        let old = (books.status(old) == JobStatus::Completed).then_some(old)?;
        let Some(work) = books.completed_work(old) else {
            return Some(ReusedJob { from: books.id(old), work: None });
        };
        let files = changes.files.files_seen(&planned.inputs(number), &planned.outputs(number));
        // A job that was itself reused points to the one that ran.
        Some(ReusedJob { from: work.done_by.job, work: Some(CompletedWork { files, ..work.clone() }) })
    };
    let jobs: Vec<Option<ReusedJob>> = (0u32..)
        .zip(&changes.decisions)
        .map(|(number, decision)| if decision.runs() { None } else { earlier(number) })
        .collect();
    let mut user_data = HashMap::new();
    if workflow.user_data_count() > 0 {
        let old: HashMap<&str, &serde_json::Value> = books
            .user_data()
            .iter()
            .filter_map(|piece| Some((piece.name.as_str(), piece.data.as_ref()?)))
            .collect();
        for (job, _) in workflow.jobs().zip(&jobs).filter(|(_, reused)| reused.is_some()) {
            for &number in job.output_user_data().flatten() {
                if let Some(data) = old.get(workflow.user_data(number as usize).name) {
                    user_data.insert(number, (*data).clone());
                }
            }
        }
    }
    ReusedJobs { jobs, user_data }
}

/// In a line: how much is reused, how much runs, and the first thing that changed.
pub(crate) fn render_headline(changes: &WorkflowChanges, name: impl Fn(u32) -> String) -> String {
    let summary = changes.summary();
    let jobs = text::render_count(summary.reused.into(), "job");
    let own = |(_, reason): &(u32, &RerunReason)| !matches!(reason, RerunReason::Upstream { .. });
    let Some((first, reason)) = changes.jobs_to_run().find(own) else {
        return format!("{jobs} reused, nothing to run");
    };
    let first = text::truncate(
        &text::one_line(&format!("{}: {}", name(first), reason.describe(&name))),
        MAX_REASON_LENGTH,
    );
    let more = match summary.rerun_count() {
        1 => String::new(),
        n => format!(", and {} more", n - 1),
    };
    format!("{jobs} reused, {} to run; {first}{more}", summary.rerun_count())
}

/// The jobs of a workflow that go back to the start for these decisions: those that are over.
pub(crate) fn jobs_to_reset(books: &StoredJobs<'_>, changes: &WorkflowChanges) -> Vec<JobId> {
    let is_over = |number: u32| {
        let status = books.status(number);
        status.is_settled() || status == JobStatus::PendingFailed
    };
    changes.jobs_to_run().filter(|(number, _)| is_over(*number)).map(|(number, _)| books.id(number)).collect()
}

pub(crate) fn compares_contents(row: &WorkflowRow) -> bool {
    row.settings.change_detection == Some(ChangeDetection::Content)
}
