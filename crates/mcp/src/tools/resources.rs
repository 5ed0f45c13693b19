//! What jobs ask for and use, and changes of it.

use super::Answer;
use super::page::Page;
use crate::desk::{Desk, Trouble, change_for, requirements};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_core::orders::{fits, makes_no_sense};
use windlass_core::sizing::{Rules, Sizing};
use windlass_insight::classes::{self, Which};
use windlass_store::model::JobRow;
use windlass_types::orders::{Answer as Given, Changes, Order, Orders, Outcome, Verdict};
use windlass_types::{JobId, Resources, parse_duration};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Check {
    workflow_id: i64,
    /// Attempts that failed count as well.
    #[serde(default)]
    include_failed: bool,
    /// At most so many classes (50; never more than 500).
    limit: Option<u64>,
    offset: Option<u64>,
}

pub(super) fn check(desk: &Desk, args: &Check) -> Answer {
    let sizings = sizings(desk, args.workflow_id, args.include_failed)?;
    let of_note = |sizing: &Sizing| !sizing.changes.is_empty() || !sizing.excesses.is_empty();
    let shown = sizings.into_iter().filter(of_note).collect();
    Ok(Page::new(args.offset, args.limit).of_all(shown, |sizing| sizing))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Analyze {
    workflow_id: i64,
    /// Only attempts that completed.
    #[serde(default)]
    completed_only: bool,
    /// At most so many classes (50; never more than 500).
    limit: Option<u64>,
    offset: Option<u64>,
}

pub(super) fn analyze(desk: &Desk, args: &Analyze) -> Answer {
    let sizings = sizings(desk, args.workflow_id, !args.completed_only)?;
    Ok(Page::new(args.offset, args.limit).of_all(sizings, |sizing| sizing))
}

fn sizings(desk: &Desk, workflow: i64, failed: bool) -> Result<Vec<Sizing>, Trouble> {
    let row = desk.workflow(workflow)?;
    let which = Which { run: None, failed, jobs: &[] };
    let judged = classes::judge(classes::load(&*desk.books, &row, &which)?, &Rules::default());
    Ok(judged.into_iter().map(|(_, sizing)| sizing).collect())
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Update {
    job_id: i64,
    num_cpus: Option<u32>,
    /// For example `8g`.
    memory: Option<String>,
    /// For example `PT2H` or `90m`.
    runtime: Option<String>,
    /// Another Slurm scheduler of the workflow, by name. Only for jobs that wait or have failed.
    scheduler: Option<String>,
    /// Another Slurm partition; what else its scheduler says stays. Only for jobs that wait or have failed.
    partition: Option<String>,
    /// Why, in a sentence. It is kept, and so is how it was before.
    reason: Option<String>,
}

pub(super) fn update(desk: &Desk, args: &Update) -> Answer {
    let (_, job) = desk.job(args.job_id)?;
    let before = requirements(&*desk.books, &job)?;
    let changes = Changes {
        cpus: args.num_cpus,
        memory_bytes: args.memory.as_ref().map(|memory| parse("memory", memory.parse())).transpose()?,
        runtime_seconds: args
            .runtime
            .as_ref()
            .map(|runtime| parse("runtime", parse_duration(runtime)))
            .transpose()?
            .map(|time| time.as_secs_f64()),
        scheduler: args.scheduler.clone(),
        partition: args.partition.clone(),
        ..Changes::default()
    };
    let resources = changes.applied_to(before);
    let is_moved = changes.scheduler.is_some() || changes.partition.is_some();
    if resources == before && !is_moved {
        return Err(Trouble::refused(format!("nothing was to change for job {}", job.id))
            .with_hint("name num_cpus, memory, runtime, scheduler or partition"));
    }
    if fits(Verdict::Change, job.status) {
        revise(desk, &job, changes, args.reason.as_deref())?;
    } else if is_moved {
        return Err(Trouble::refused(format!("job {} is {}: it stays where it is", job.id, job.status)));
    } else {
        let order = change(desk, job.id, changes, args.reason.as_deref());
        if let Some(why) = makes_no_sense(&order) {
            return Err(Trouble::refused(format!("job {}: {why}", job.id)));
        }
        desk.check_room(job.workflow_id, &order.changes, &before)?;
        change_for(&*desk.books, &job, resources)?;
    }
    Ok(json!({ "job_id": job.id, "name": job.name, "before": view(&before), "now": view(&resources),
        "holds": "from its next attempt on" }))
}

/// What waits or has failed is changed by an order, which can be undone, also while somebody runs the workflow.
fn revise(desk: &Desk, job: &JobRow, changes: Changes, reason: Option<&str>) -> Result<(), Trouble> {
    let orders = vec![change(desk, job.id, changes, reason)];
    let outcomes = desk.give(job.workflow_id, Orders { orders, ..Orders::default() })?;
    match outcomes.into_iter().find(|outcome| outcome.answer == Given::Refused) {
        Some(refused) => Err(Trouble::refused(format!("job {}: {}", job.id, refused.words))),
        None => Ok(()),
    }
}

fn change(desk: &Desk, job: JobId, changes: Changes, reason: Option<&str>) -> Order {
    let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    Order {
        job,
        verdict: Verdict::Change,
        changes,
        reason: format!("asked for by agent {}{why}", desk.agent),
        confidence: None,
        evidence: Vec::new(),
    }
}

fn parse<T>(what: &str, parsed: Result<T, windlass_types::ParseAmountError>) -> Result<T, Trouble> {
    parsed.map_err(|why| Trouble::refused(format!("{what}: {why}")))
}

fn view(resources: &Resources) -> Value {
    json!({
        "num_cpus": resources.cpus, "memory": resources.memory.to_string(), "num_gpus": resources.gpus,
        "num_nodes": resources.nodes, "runtime_seconds": resources.runtime.map(|time| time.as_secs_f64()),
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Regroup {
    workflow_id: i64,
    groups: Vec<Group>,
    /// Says what would change, and changes nothing.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Group {
    memory: String,
    num_cpus: u32,
    runtime: String,
    num_gpus: Option<u32>,
    num_nodes: Option<u32>,
    /// What it is called in the reason of the change, which is kept.
    name: Option<String>,
    job_ids: Vec<i64>,
}

pub(super) fn regroup(desk: &Desk, args: &Regroup) -> Answer {
    let workflow = desk.workflow(args.workflow_id)?;
    let mut orders = Vec::new();
    for (number, group) in (1..).zip(&args.groups) {
        let changes = group.changes()?;
        let name = group.name.clone().unwrap_or_else(|| format!("group {number}"));
        for id in &group.job_ids {
            let job = desk.job_of(&workflow, *id)?;
            orders.push(change(desk, job.id, changes.clone(), Some(&name)));
        }
    }
    if orders.is_empty() {
        return Err(Trouble::refused("no job was named").with_hint("each group names its job_ids"));
    }
    let outcomes = desk.give(workflow.id, Orders { dry_run: args.dry_run, orders, ..Orders::default() })?;
    let mut outcomes = outcomes.into_iter();
    let mut groups = Vec::new();
    for (number, group) in (1..).zip(&args.groups) {
        let of_group: Vec<Outcome> = outcomes.by_ref().take(group.job_ids.len()).collect();
        let refused = |one: &&Outcome| one.answer == Given::Refused;
        let told = |one: &Outcome| json!({ "job_id": one.job, "why": one.words });
        let changed = of_group.iter().filter(|one| one.answer == Given::Done).count();
        groups.push(json!({
            "name": group.name.clone().unwrap_or_else(|| format!("group {number}")),
            "resources": view(&group.changes()?.applied_to(Resources::DEFAULT)),
            "jobs": of_group.len(), "changed": changed,
            "refused": of_group.iter().filter(refused).map(told).collect::<Vec<_>>(),
        }));
    }
    Ok(json!({
        "workflow_id": workflow.id, "dry_run": args.dry_run, "groups": groups,
        "holds": "from their next attempt on; `windlass revisions` lists it and can undo it",
    }))
}

impl Group {
    fn changes(&self) -> Result<Changes, Trouble> {
        let runtime = parse("runtime", parse_duration(&self.runtime))?;
        Ok(Changes {
            cpus: Some(self.num_cpus),
            memory_bytes: Some(parse("memory", self.memory.parse())?),
            runtime_seconds: Some(runtime.as_secs_f64()),
            gpus: Some(self.num_gpus.unwrap_or(0)),
            nodes: Some(self.num_nodes.unwrap_or(1)),
            ..Changes::default()
        })
    }
}
