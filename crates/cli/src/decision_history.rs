//! Decisions about a job and changes to it, shown together with the job.

use crate::error::CliError;
use crate::ui::text;
use serde::Serialize;
use windlass_core::failure_commands::describe_patch;
use windlass_store::Store;
use windlass_store::model::{DecisionFilter, DecisionRow, DecisionState, JobRevisionRow, RevisionFilter};
use windlass_types::failure_commands::{FailureCommandKind, RequestedJobChanges};
use windlass_types::{JobId, WorkflowId, format_duration};

#[derive(Debug, Default, Serialize)]
pub(crate) struct DecisionHistory {
    pub(crate) decisions: Vec<DecisionRow>,
    pub(crate) revisions: Vec<JobRevisionRow>,
}

impl DecisionHistory {
    pub(crate) fn load(store: &dyn Store, workflow: WorkflowId, job: JobId) -> Result<Self, CliError> {
        let filter = DecisionFilter { jobs: vec![job], ..DecisionFilter::default() };
        let decisions = store.decisions(workflow, &filter)?;
        let revisions = store.revisions(workflow, RevisionFilter { batch: None, job: Some(job) })?;
        Ok(Self { decisions, revisions })
    }

    /// Oldest first, one line each.
    pub(crate) fn render_lines(&self) -> Vec<String> {
        let decisions = self.decisions.iter().map(|row| (row.made_at, render_decision(row)));
        let revisions = self.revisions.iter().map(|row| (row.made_at, render_revision(row)));
        let mut lines: Vec<_> = decisions.chain(revisions).collect();
        // A decision is listed before the changes made for it.
        lines.sort_by_key(|(at, _)| *at);
        lines.into_iter().map(|(at, line)| format!("{}  {line}", text::render_time(at))).collect()
    }
}

/// `decision 4 of agent claude about attempt 1: retry with memory 8 GiB (confidence 0.9): it grew; then
/// completed`
fn render_decision(row: &DecisionRow) -> String {
    let who = if row.is_agent { "agent " } else { "" };
    let settled = row.settled_by.as_deref().unwrap_or("a user");
    let state = match row.state {
        DecisionState::Proposed => "; waiting for approval".to_owned(),
        DecisionState::Declined => format!("; declined by {settled}"),
        DecisionState::Overtaken => "; superseded without an answer".to_owned(),
        DecisionState::Done if row.settled_by.is_some() => format!("; approved by {settled}"),
        DecisionState::Done => String::new(),
    };
    let then = row.next_status.map(|status| format!("; then {status}")).unwrap_or_default();
    text::one_line(&format!(
        "decision {} of {who}{} about attempt {}: {}{}{}{state}{then}",
        row.id,
        row.made_by,
        row.attempt_id,
        render_failure_command(row.kind, &row.changes),
        row.confidence.map(|sure| format!(" (confidence {sure})")).unwrap_or_default(),
        render_reason(&row.reason),
    ))
}

fn render_revision(row: &JobRevisionRow) -> String {
    let undone = row.undone_by.as_ref().map(|by| format!("; undone by {by}")).unwrap_or_default();
    let what = describe_patch(&row.before, &row.after);
    text::one_line(&format!(
        "revision {} of {}: {what}{}{undone}",
        row.batch,
        row.made_by,
        render_reason(&row.reason)
    ))
}

fn render_reason(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

/// `retry with memory 8 GiB, runtime 2h`
pub(crate) fn render_failure_command(command: FailureCommandKind, changes: &RequestedJobChanges) -> String {
    let parts = [
        changes.memory_bytes.map(|memory| format!("memory {memory}")),
        changes.runtime_seconds.map(|seconds| {
            let span = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
            format!("runtime {}", format_duration(span))
        }),
        changes.cpus.map(|cpus| format!("cpus {cpus}")),
        changes.command.as_ref().map(|command| format!("command `{command}`")),
        changes.priority.map(|priority| format!("priority {priority}")),
        changes.scheduler.as_ref().map(|name| format!("scheduler {name}")),
        changes.partition.as_ref().map(|name| format!("partition {name}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { command.to_string() } else { format!("{command} with {}", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::Bytes;

    #[test]
    fn decision_text_lists_requested_changes() {
        assert_eq!(render_failure_command(FailureCommandKind::Fail, &RequestedJobChanges::default()), "fail");
        let changes = RequestedJobChanges {
            memory_bytes: Some(Bytes(8 << 30)),
            runtime_seconds: Some(7200.0),
            command: Some("make clean".to_owned()),
            ..RequestedJobChanges::default()
        };
        assert_eq!(
            render_failure_command(FailureCommandKind::Retry, &changes),
            "retry with memory 8 GiB, runtime 2h, command `make clean`"
        );
    }
}
