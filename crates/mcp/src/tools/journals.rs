//! What workers on this machine could not deliver.

use super::ToolResult;
use crate::agent_session::{AgentSession, UndeliveredAttempt};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_types::RunId;

/// So many attempts are told of one by one, of each worker.
const MAX_ATTEMPTS: usize = 200;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OfflineJournalsInput {
    workflow_id: i64,
    /// Only of this run.
    run_id: Option<i64>,
    /// For agents that know Torc: journals are looked for where workers keep them, whatever this says.
    #[expect(dead_code, reason = "whoever asks does not choose what is read")]
    base_dir: Option<String>,
}

pub(super) fn check_offline_journals(desk: &AgentSession, args: &OfflineJournalsInput) -> ToolResult {
    let workflow = desk.load_workflow(args.workflow_id)?;
    let wanted = |attempt: &UndeliveredAttempt| args.run_id.is_none_or(|run| attempt.run_id == RunId(run));
    let mut total = 0;
    let mut workers: Vec<Value> = Vec::new();
    for mut found in desk.actions.undelivered_results(workflow.id)? {
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
