//! Decides which jobs run and which are reused: collects the earlier state (database), the new state (a spec,
//! or the same database) and the state of the files for `windlass_core::reuse`. Shared by `plan`, `reinit`,
//! `reset-status` and `run`.

mod current_files;
mod job_command_pages;
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

/// A longer reason is truncated where only one line is available.
const MAX_REASON_LENGTH: usize = 100;

/// The decision for each job, by number, compared with an earlier workflow or an earlier run.
pub(crate) struct WorkflowChanges {
    pub(crate) decisions: Vec<ReuseDecision>,
    pub(crate) compared_with: WorkflowId,
    /// The state of the files when the decision was made.
    files: CurrentFiles,
}

impl WorkflowChanges {
    pub(crate) fn summary(&self) -> ReuseSummary {
        ReuseSummary::from_decisions(&self.decisions)
    }

    /// Jobs that an earlier run has completed.
    pub(crate) fn is_reused(&self, number: u32) -> bool {
        !self.decisions[number as usize].runs()
    }

    /// `(number, reason)` of each job that runs.
    pub(crate) fn jobs_to_run(&self) -> impl Iterator<Item = (u32, &RerunReason)> {
        (0u32..).zip(&self.decisions).filter_map(|(number, decision)| match decision {
            ReuseDecision::Run(reason) => Some((number, reason)),
            ReuseDecision::Reuse => None,
        })
    }
}

/// Options of the comparison.
#[derive(Clone, Copy, Default)]
pub(crate) struct ComparisonSettings<'a> {
    /// Compare files by content, even if the workflow does not ask for it.
    pub(crate) compare_contents: bool,
    /// Changes to ignore.
    pub(crate) accepted_changes: &'a [AcceptedChange],
    /// The workflow was created from exactly this text and continues: jobs that were added at run time still
    /// belong to it.
    pub(crate) same_text: bool,
}

fn check_accepted_names(
    accepted: &[AcceptedChange],
    is_known: impl Fn(&str) -> bool,
) -> Result<(), CliError> {
    let named = accepted.iter().filter_map(|accept| accept.job.as_deref());
    match named.into_iter().find(|name| !is_known(name)) {
        Some(name) => Err(CliError::user(format!("--accept names `{name}`, but no job has this name"))),
        None => Ok(()),
    }
}

/// Compares a spec with the workflow that an earlier version of the spec created.
pub(crate) fn compare_spec(
    store: &StoredJobs<'_>,
    planned: &PlannedJobs<'_, '_>,
    terms: ComparisonSettings<'_>,
) -> Result<WorkflowChanges, CliError> {
    check_accepted_names(terms.accepted_changes, |name| {
        planned.workflow().jobs().any(|job| job.name == name)
    })?;
    let files =
        CurrentFiles::new(store.workflow_row(), terms.compare_contents || planned.compares_contents());
    let before = |name: &str| {
        let number = store.number(name)?;
        let mut before = store.last_state(number);
        before.definition.depends_on = store.depends_on(number);
        before.has_added = !terms.same_text && store.has_spawned_jobs(number);
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
    let decisions = decide_reuse(&question, store)?;
    Ok(WorkflowChanges { decisions, compared_with: store.workflow_row().id, files })
}

/// Determines what the next run of a workflow would do.
pub(crate) fn compare_workflow(
    store: &StoredJobs<'_>,
    terms: ComparisonSettings<'_>,
) -> Result<WorkflowChanges, CliError> {
    check_accepted_names(terms.accepted_changes, |name| store.number(name).is_some())?;
    let files = CurrentFiles::new(
        store.workflow_row(),
        terms.compare_contents || compares_contents(store.workflow_row()),
    );
    let question = ReuseQuery {
        jobs: store.count(),
        edges: store.edges(),
        current: &|number| store.definition(number),
        previous: &|number, _| Some(store.last_state(number)),
        file: &|path| files.state(path),
        is_shared: &|path| files.is_shared_directory(path, || store.paths()),
        accepted: terms.accepted_changes,
    };
    let decisions = decide_reuse(&question, store)?;
    Ok(WorkflowChanges { decisions, compared_with: store.workflow_row().id, files })
}

fn decide_reuse(question: &ReuseQuery<'_>, store: &StoredJobs<'_>) -> Result<Vec<ReuseDecision>, CliError> {
    let decisions = reuse::decide_reuse(question)
        .map_err(|cycle| CliError::new(CliErrorKind::Spec, cycle.to_string()))?;
    // Files that could not be read were treated as missing, so the decision is invalid.
    store.check_read_error()?;
    Ok(decisions)
}

/// What the new workflow reuses from the earlier one. The record of each reused job is copied, so the new
/// workflow no longer needs the earlier one, which may run again or be deleted.
pub(crate) fn collect_reused(
    store: &StoredJobs<'_>,
    planned: &PlannedJobs<'_, '_>,
    changes: &WorkflowChanges,
) -> ReusedJobs {
    let workflow = planned.workflow();
    let earlier = |number: u32| {
        let old = store.number(workflow.job(number as usize).name)?;
        // Jobs excluded on purpose have no result to reuse.
        let old = (store.status(old) == JobStatus::Completed).then_some(old)?;
        let Some(work) = store.completed_work(old) else {
            return Some(ReusedJob { from: store.id(old), work: None });
        };
        let files = changes.files.files_seen(&planned.inputs(number), &planned.outputs(number));
        // A job that was itself reused points to the job that ran.
        Some(ReusedJob { from: work.done_by.job, work: Some(CompletedWork { files, ..work.clone() }) })
    };
    let jobs: Vec<Option<ReusedJob>> = (0u32..)
        .zip(&changes.decisions)
        .map(|(number, decision)| if decision.runs() { None } else { earlier(number) })
        .collect();
    let mut user_data = HashMap::new();
    if workflow.user_data_count() > 0 {
        let old: HashMap<&str, &serde_json::Value> = store
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

/// One-line summary: number of jobs reused, number of jobs to run, and the first change.
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

/// The ended jobs of a workflow that these decisions reset.
pub(crate) fn jobs_to_reset(store: &StoredJobs<'_>, changes: &WorkflowChanges) -> Vec<JobId> {
    let is_over = |number: u32| {
        let status = store.status(number);
        status.is_settled() || status == JobStatus::PendingFailed
    };
    changes.jobs_to_run().filter(|(number, _)| is_over(*number)).map(|(number, _)| store.id(number)).collect()
}

pub(crate) fn compares_contents(row: &WorkflowRow) -> bool {
    row.settings.change_detection == Some(ChangeDetection::Content)
}
