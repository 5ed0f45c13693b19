//! Allocations of Slurm: what a spec would ask for, and what became of those of a workflow.

use super::Answer;
use crate::desk::{AllocationWish, Desk, SpecText, Trouble};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_core::slurm::ends;
use windlass_core::slurm::profile::is_word;
use windlass_store::model::AllocationFilter;
use windlass_types::slurm::{Allocation, SlurmState};

/// So many allocations are told of one by one, the newest.
const MOST: usize = 200;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Sacct {
    workflow_id: i64,
}

pub(super) fn sacct(desk: &Desk, args: &Sacct) -> Answer {
    let workflow = desk.workflow(args.workflow_id)?;
    let filter = AllocationFilter { workflow: Some(workflow.id), ..AllocationFilter::default() };
    let rows = desk.books.allocations(&filter)?;
    let items: Vec<Value> = rows.iter().rev().take(MOST).map(told).collect();
    Ok(json!({
        "workflow_id": workflow.id, "count": rows.len(), "has_more": rows.len() > MOST, "allocations": items,
        "source": "what the server was told by Slurm's queue and accounting, as it noted it",
    }))
}

fn told(row: &Allocation) -> Value {
    json!({
        "allocation_id": row.id, "slurm_job_id": row.job_id, "scheduler": row.request.scheduler,
        "account": row.request.account, "partition": row.request.partition, "nodes": row.nodes,
        "state": row.state, "slurm_state": row.end.map(SlurmState::name), "exit_code": row.exit_code,
        "reason": row.reason, "submitted_at": row.submitted_at, "started_at": row.started_at,
        "ended_at": row.ended_at, "restarts": row.restarts, "in_words": ends::in_words(row),
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// The spec, as JSON or in another format that specs have.
    spec_json: String,
    /// Who pays.
    account: String,
    /// This partition and no other.
    partition: Option<String>,
    /// The name of a profile that is kept here; without it the cluster itself is asked.
    hpc_profile: Option<String>,
    /// Does not ask Slurm when allocations would start.
    #[serde(default)]
    skip_test_only: bool,
}

pub(super) fn plan(desk: &Desk, args: &Plan) -> Answer {
    let word = |of: &str, text: &str| {
        if is_word(text) {
            return Ok(text.to_owned());
        }
        Err(Trouble::refused(format!("{of}: letters, digits and _ - . + @ are allowed")))
    };
    let partition = args.partition.as_deref().map(|name| word("partition", name)).transpose()?;
    let profile = args.hpc_profile.as_deref().map(|name| word("hpc_profile", name)).transpose()?;
    if profile.as_ref().is_some_and(|name| name.contains('.')) {
        // A name with a dot would be a file's.
        return Err(Trouble::refused("hpc_profile is the name of a profile, not a file"));
    }
    let wish = AllocationWish {
        account: word("account", &args.account)?,
        partition,
        profile,
        is_offline: args.skip_test_only,
    };
    let groups = desk.hands.plan_allocations(&SpecText(args.spec_json.clone()), &wish)?;
    Ok(json!({ "groups": groups }))
}
