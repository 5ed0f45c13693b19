//! Allocations of Slurm: what a spec would ask for, and what became of those of a workflow.

use super::Answer;
use super::specs::{load, source};
use crate::desk::{Desk, Trouble};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use windlass_core::slurm::ends;
use windlass_core::slurm::generate::write_walltime;
use windlass_core::slurm::groups::Options;
use windlass_core::slurm::profile::{Profile, is_word};
use windlass_insight::packing::{self, Planned, Unpacked, Unwritten};
use windlass_spec::{Diagnostics, Workflow};
use windlass_store::model::{AllocationFilter, WorkflowRow};
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
    let mut answer = json!({
        "workflow_id": workflow.id, "count": rows.len(), "has_more": rows.len() > MOST, "allocations": items,
        "source": "what the server was told by Slurm's queue and accounting, as it noted it",
    });
    if let Value::Object(answer) = &mut answer {
        answer.extend(measured(desk, &workflow, rows.iter().any(|row| row.job_id.is_some())));
    }
    Ok(answer)
}

/// What accounting has beyond that. It may be late, or not there: then what the books have is told all the same.
fn measured(desk: &Desk, workflow: &WorkflowRow, was_submitted: bool) -> Map<String, Value> {
    let (accounts, trouble) = match was_submitted.then(|| desk.hands.accounts(workflow.id)) {
        None => (Vec::new(), None),
        Some(Ok(accounts)) => (accounts, None),
        Some(Err(why)) => (Vec::new(), Some(json!({ "error": why.message, "hint": why.hint }))),
    };
    let has_more = accounts.len() > MOST;
    let accounts: Vec<Value> = accounts.into_iter().take(MOST).collect();
    Map::from_iter([
        ("accounts".to_owned(), json!(accounts)),
        ("accounts_have_more".to_owned(), json!(has_more)),
        ("accounts_trouble".to_owned(), json!(trouble)),
    ])
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

/// What reaches Slurm is a word.
fn word(of: &str, text: &str) -> Result<String, Trouble> {
    if is_word(text) {
        return Ok(text.to_owned());
    }
    Err(Trouble::refused(format!("{of}: letters, digits and _ - . + @ are allowed")))
}

fn cluster(desk: &Desk, profile: Option<&str>) -> Result<Profile, Trouble> {
    let profile = profile.map(|name| word("hpc_profile", name)).transpose()?;
    if profile.as_ref().is_some_and(|name| name.contains('.')) {
        // A name with a dot would be a file's.
        return Err(Trouble::refused("hpc_profile is the name of a profile, not a file"));
    }
    desk.hands.cluster(profile.as_deref())
}

fn unfit(why: &Unpacked) -> Trouble {
    Trouble::refused(why.to_string()).with_hint(why.hint())
}

/// The text of a spec that can be read, with what is asked of Slurm for it; as it is if it says that itself.
pub(super) fn scheduled(
    desk: &Desk,
    text: &str,
    account: Option<&str>,
    profile: Option<&str>,
) -> Result<String, Trouble> {
    let workflow = load(text).map_err(|found| mistaken(&found))?;
    let account = account.map(|name| word("account", name)).transpose()?;
    let cluster = cluster(desk, profile)?;
    if packing::is_scheduled(&workflow) {
        packing::check(&workflow, &cluster).map_err(|why| unfit(&why))?;
        return Ok(text.to_owned());
    }
    let account = account.or_else(|| packing::default_account(&workflow).map(str::to_owned));
    let options = Options { account: account.unwrap_or_default(), ..Options::default() };
    let demands = packing::demands(&workflow);
    let proposals = packing::proposals(&workflow, &demands, &cluster, &options).map_err(|why| unfit(&why))?;
    if proposals.is_empty() {
        return Err(Trouble::refused("the spec has no job that Slurm could run")
            .with_hint("jobs with labels wait for workers that carry those"));
    }
    let waits_for = |text: &str| -> Result<Vec<Vec<u32>>, Trouble> {
        let new = load(text).map_err(|found| mistaken(&found))?;
        Ok(new.actions().iter().map(|action| action.jobs.clone()).collect())
    };
    packing::scheduled(source(text), &workflow, &demands, &proposals, true, waits_for)
}

fn mistaken(found: &Diagnostics) -> Trouble {
    Trouble::refused(format!("the spec has {} mistakes", found.count()))
        .with_hint("check_spec says which they are")
}

impl From<Unwritten> for Trouble {
    fn from(why: Unwritten) -> Self {
        let hint = match why {
            Unwritten::NoAccount => "say `account`, or put it into the spec's slurm_defaults",
            Unwritten::NoPattern(_) => "give jobs of one entry names that no others have",
            Unwritten::Patch(_) => {
                "write slurm_schedulers and actions into the spec, as plan_allocations tells"
            }
        };
        Self::refused(why.to_string()).with_hint(hint)
    }
}

pub(super) fn plan(desk: &Desk, args: &Plan) -> Answer {
    let partition = args.partition.as_deref().map(|name| word("partition", name)).transpose()?;
    let workflow = load(&args.spec_json).map_err(|found| mistaken(&found))?;
    let options = Options { account: word("account", &args.account)?, partition, ..Options::default() };
    let cluster = cluster(desk, args.hpc_profile.as_deref())?;
    let planned = packing::plan(&workflow, &cluster, &options).map_err(|why| unfit(&why))?;
    let share = |planned: &Planned| {
        let start = (!args.skip_test_only).then(|| start(desk, &workflow, planned)).transpose()?;
        Ok(group(planned, start.as_deref()))
    };
    let groups = planned.iter().map(share).collect::<Result<Vec<Value>, Trouble>>()?;
    Ok(json!({ "cluster": packing::title(&cluster), "groups": groups }))
}

/// When one of its allocations would start.
fn start(desk: &Desk, workflow: &Workflow<'_>, planned: &Planned) -> Result<String, Trouble> {
    if planned.is_deferred {
        return Ok("when jobs are ready".to_owned());
    }
    desk.hands.would_start(&planned.request(workflow).map_err(Trouble::refused)?)
}

fn group(planned: &Planned, start: Option<&str>) -> Value {
    let scheduler = &planned.scheduler;
    json!({
        "scheduler": scheduler.name, "partition": planned.partition, "jobs": planned.jobs,
        "allocations": planned.allocations, "nodes": scheduler.nodes,
        "walltime": planned.walltime.map(write_walltime), "mem": scheduler.mem, "gres": scheduler.gres,
        "extra": scheduler.extra, "core_hours": planned.core_hours, "is_deferred": planned.is_deferred,
        "start": start,
    })
}
