//! Tool for results that workers on this machine could not deliver.

use super::ToolResult;
use crate::agent_session::{AgentSession, UndeliveredAttempt};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_types::RunId;

/// Maximum number of attempts listed per worker.
const MAX_ATTEMPTS: usize = 200;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OfflineJournalsInput {
    /// Id of the workflow.
    workflow_id: i64,
    /// Only results of this run.
    run_id: Option<i64>,
    /// Ignored; accepted for compatibility with Torc. Journals are read from the workers' directory.
    #[expect(dead_code, reason = "the caller must not choose which files are read")]
    base_dir: Option<String>,
}

pub(super) fn check_offline_journals(session: &AgentSession, args: &OfflineJournalsInput) -> ToolResult {
    let workflow = session.load_workflow(args.workflow_id)?;
    let wanted = |attempt: &UndeliveredAttempt| args.run_id.is_none_or(|run| attempt.run_id == RunId(run));
    let mut total = 0;
    let mut workers: Vec<Value> = Vec::new();
    for mut found in session.actions.undelivered_results(workflow.id)? {
        found.attempts.retain(wanted);
        let count = found.attempts.len();
        if count == 0 {
            continue;
        }
        total += count;
        found.attempts.truncate(MAX_ATTEMPTS);
        workers.push(json!({
            "worker_id": found.worker_id, "host": found.host, "is_alive": found.is_alive, "count": count,
            "first": found.attempts,
        }));
    }
    Ok(json!({
        "workflow_id": workflow.id, "undelivered": total, "workers": workers,
        "looked_at": "the workers of this user on this machine",
    }))
}
