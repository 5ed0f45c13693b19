//! DAGs without a database: workflow specs that were submitted to HTCondor. The directory holds their complete
//! state.

use super::print_held_reasons;
use crate::args::dag::DagNodesArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit, with_sources};
use crate::local_requests::DagOperation;
use crate::ui::listing::{ListField, ListFields};
use serde_json::json;
use std::path::{Path, PathBuf};
use windlass_api::requests::{DagLogs, RequestDagNode};
use windlass_htcondor::commands::{CondorClient, CondorError};
use windlass_htcondor::submit::{DagSubmitError, SubmissionRecord, SubmitLock};
use windlass_htcondor::watch::{self, DagNodeView, DagOutcome, DagPoller, DagSnapshot, DagState};
use windlass_htcondor::{file_layout, rescue};
use windlass_server::requests::dags::{DagLogSelector, find_log_files};

pub(super) struct DagDirectory {
    path: PathBuf,
}

/// The state of one DAG.
struct DagDirectoryRow {
    directory: String,
    status: DagSnapshot,
}

const DAG_FIELDS: &[ListField<DagDirectoryRow>] = &[
    ListField::new("directory", |w: &DagDirectoryRow| (&w.directory).into()),
    ListField::new("state", |w: &DagDirectoryRow| render_state(&w.status.state).into()),
    ListField::new("dagman", |w: &DagDirectoryRow| w.status.cluster.into()),
    ListField::new("done", |w: &DagDirectoryRow| w.status.counts.done.into()),
    ListField::new("running", |w: &DagDirectoryRow| w.status.counts.running.into()),
    ListField::new("idle", |w: &DagDirectoryRow| w.status.counts.idle.into()),
    ListField::new("failed", |w: &DagDirectoryRow| w.status.counts.failed.into()),
    ListField::new("held", |w: &DagDirectoryRow| w.status.counts.held.into()),
    ListField::new("trouble", |w: &DagDirectoryRow| w.status.read_error.clone().into()),
];

fn render_state(state: &DagState) -> String {
    match state {
        DagState::NotYet => "submitted".to_owned(),
        DagState::Running => "running".to_owned(),
        DagState::Unknown => "unknown".to_owned(),
        DagState::Over(DagOutcome::Completed) => "completed".to_owned(),
        DagState::Over(DagOutcome::Failed) => "failed".to_owned(),
        DagState::Over(DagOutcome::Aborted) => "aborted".to_owned(),
        DagState::Over(DagOutcome::Removed) => "removed".to_owned(),
        DagState::Over(DagOutcome::Broken(why)) => format!("broken: {why}"),
    }
}

impl DagDirectory {
    /// `None`: there is no DAG in this directory.
    pub(super) fn open(path: &Path) -> Option<Self> {
        path.join(file_layout::OUTER_DAG).is_file().then(|| Self { path: path.to_owned() })
    }

    pub(super) fn show_dag(&self, ctx: &CliContext) -> Result<CliExit, CliError> {
        let look = DagPoller::new(&self.path).poll();
        let held = look.describe_held();
        let directory = self.path.display().to_string();
        if ctx.ui.wants_json() {
            let shown = json!({
                "directory": directory, "state": render_state(&look.state), "dagman": look.cluster,
                "nodes": look.counts, "held": held, "trouble": look.read_error,
            });
            ctx.ui.print_json(&shown)?;
            return Ok(CliExit::Success);
        }
        ctx.ui.print_record(&ListFields::new(DAG_FIELDS), DagDirectoryRow { directory, status: look })?;
        print_held_reasons(ctx, &held)?;
        Ok(CliExit::Success)
    }

    pub(super) fn list_nodes(&self, args: &DagNodesArgs) -> Result<Vec<RequestDagNode>, CliError> {
        let unreadable = |error| CliError::io(format!("{}: {error}", self.path.display()));
        let views = watch::list_nodes(&self.path, args.unit).map_err(unreadable)?;
        let is_wanted = |view: &DagNodeView| {
            args.status.is_empty() || args.status.iter().any(|word| view.state.name() == word)
        };
        let wanted = views.into_iter().filter(is_wanted).skip(args.offset as usize);
        Ok(wanted.take(args.limit as usize).map(to_dag_node).collect())
    }

    pub(super) fn list_logs(&self, which: &DagLogSelector) -> Result<DagLogs, CliError> {
        let directory = self.path.display().to_string();
        let found = find_log_files(&self.path, which)?;
        let message = match found.problem {
            Some(problem) => problem,
            None if found.files.is_empty() => "there are no logs yet".to_owned(),
            None => "the available logs".to_owned(),
        };
        Ok(DagLogs {
            dag_id: String::new(),
            submit_dir: directory.clone(),
            log_dir: Some(directory),
            engine_workflow_id: None,
            files: found.files,
            message,
        })
    }

    pub(super) fn perform_operation(
        &self,
        ctx: &CliContext,
        verb: DagOperation,
        reason: &str,
    ) -> Result<CliExit, CliError> {
        let record = SubmissionRecord::load(&self.path).map_err(|error| self.submit_error(&error))?;
        let last = record.as_ref().and_then(|record| record.submissions.last());
        let (Some(record), Some(last)) = (&record, last) else {
            return Err(CliError::refused(format!("the DAG of {} was never submitted", self.path.display())));
        };
        let condor = CondorClient { schedd: last.schedd.clone(), ..CondorClient::default() };
        if verb == DagOperation::Rescue {
            return self.rescue_dag(ctx, &condor, &record.batch);
        }
        let cluster = last.cluster.ok_or_else(|| {
            CliError::refused(
                "it is unknown whether it was submitted: submit it again; an existing submission is found"
                    .to_owned(),
            )
        })?;
        let reason = if reason.is_empty() { "by windlass request dag" } else { reason };
        let done = match verb {
            DagOperation::Hold => condor.hold(cluster, reason),
            DagOperation::Release => condor.release(cluster, reason),
            DagOperation::Remove | DagOperation::Rescue => condor.remove(cluster, reason),
        };
        let done = done.map_err(|error| condor_error(&error))?;
        let answer = if done { "was asked to" } else { "is gone or already in this state: no" };
        self.print_result(ctx, verb, cluster, done, &format!("{answer} {}", verb.name()))
    }

    /// Holds the lock of the directory, so that a DAG submitted meanwhile is not changed.
    fn rescue_dag(&self, ctx: &CliContext, condor: &CondorClient, batch: &str) -> Result<CliExit, CliError> {
        let refused = |error: DagSubmitError| self.submit_error(&error);
        let mut requests = SubmitLock::open(condor, &self.path, batch).map_err(refused)?;
        requests.check_not_running().map_err(refused)?;
        if let DagState::Over(DagOutcome::Completed) = DagPoller::new(&self.path).poll().state {
            return Err(CliError::refused("the DAG is completed: nothing is left to run".to_owned()));
        }
        let number = requests.next_number();
        if requests.may_change_files(number).map_err(refused)? {
            rescue::prepare_rescue(&self.path, &[]).map_err(|error| CliError::io(error.to_string()))?;
        }
        let submitted = requests.submit(number).map_err(refused)?;
        self.print_result(ctx, DagOperation::Rescue, submitted.cluster, true, "runs the rescue")
    }

    /// Prints the result as text or JSON.
    fn print_result(
        &self,
        ctx: &CliContext,
        verb: DagOperation,
        cluster: u64,
        done: bool,
        answer: &str,
    ) -> Result<CliExit, CliError> {
        let message = format!("DAGMan {cluster} {answer}");
        if ctx.ui.wants_json() {
            ctx.ui.print_json(&json!({
                "directory": self.path.display().to_string(), "verb": verb.name(), "dagman": cluster,
                "done": done, "message": message,
            }))?;
        }
        ctx.ui.print_note(&message);
        Ok(CliExit::Success)
    }

    fn submit_error(&self, error: &DagSubmitError) -> CliError {
        let refused = CliError::refused(with_sources(error));
        match resubmit_hint(&self.path, error) {
            Some(hint) => refused.with_hint(hint),
            None => refused,
        }
    }
}

/// Hint for submitting a DAG again that DAGMan rejected.
pub(crate) fn resubmit_hint(directory: &Path, error: &DagSubmitError) -> Option<String> {
    let is_rejected = matches!(error, DagSubmitError::Rejected { .. });
    let place = directory.display();
    is_rejected.then(|| format!("once that is fixed, `windlass request dag rescue {place}` submits it again"))
}

fn to_dag_node(view: DagNodeView) -> RequestDagNode {
    let held = view.held.map(|hold| hold.to_string());
    RequestDagNode {
        name: view.name,
        role: String::new(),
        work_unit: None,
        status: view.state.name().to_owned(),
        attempt: view.attempts.into(),
        return_code: None,
        reason: held.or(Some(view.details).filter(|details| !details.is_empty())),
        job_id: None,
        cluster_id: view.cluster,
        site: view.site,
    }
}

fn condor_error(error: &CondorError) -> CliError {
    CliError::io(with_sources(error))
}
