//! `windlass slurm usage`: what became of the core-hours of a workflow's allocations.

use crate::args::Format;
use crate::args::slurm_reports::UsageArgs;
use crate::commands::results::Pages;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::{Datum, Field, Listing, PAGE};
use crate::ui::table::Column;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use windlass_api::torc::ComputeNodeModel;
use windlass_client::Client;
use windlass_core::slurm::usage::{Fruit, Host, Report, Spell, Usage, figure, report};
use windlass_store::Store;
use windlass_store::model::{
    AllocationFilter, HeldJob, JobFilter, ResultFilter, ResultRow, WorkerFilter, WorkflowRow,
};
use windlass_types::slurm::Allocation;
use windlass_types::work::return_code;
use windlass_types::{AllocationId, JobId, JobStatus, Resources, Timestamp, WorkerId};

/// Of larger workflows a screen that is to be there at once says nothing about it.
const MOST_JOBS: u64 = 20_000;

#[derive(Serialize)]
struct Row {
    allocation_id: Option<i64>,
    slurm_job_id: Option<u64>,
    state: String,
    #[serde(flatten)]
    usage: Usage,
}

#[derive(Serialize)]
struct View {
    workflow_id: i64,
    allocations: Vec<Row>,
    total: Usage,
}

const FIELDS: &[Field<Row>] = &[
    Field::new("allocation_id", |row: &Row| row.allocation_id.into()),
    Field::shown(Column::number("ID"), |row: &Row| {
        row.allocation_id.map_or_else(|| "all".to_owned(), |id| id.to_string()).into()
    }),
    Field::new("slurm_job_id", |row: &Row| row.slurm_job_id.into()).column(Column::number("SLURM")),
    Field::new("state", |row: &Row| (&row.state).into()).column(Column::text("STATE")),
    Field::new("cores", |row: &Row| row.usage.cores.into()).column(Column::number("CORES")),
    Field::new("asked_core_hours", |row: &Row| row.usage.asked.into()),
    Field::new("given_core_hours", |row: &Row| row.usage.given.into()),
    Field::new("used_core_hours", |row: &Row| row.usage.claimed.into()),
    Field::new("cpu_core_hours", |row: &Row| row.usage.cpu.into()),
    Field::new("failed_core_hours", |row: &Row| row.usage.failed.into()),
    Field::new("lost_core_hours", |row: &Row| row.usage.lost.into()),
    Field::new("idle_core_hours", |row: &Row| row.usage.idle.into()),
    Field::new("utilisation_percent", |row: &Row| row.usage.utilisation.into()),
    Field::shown(Column::number("ASKED"), |row: &Row| hours(row.usage.asked)),
    Field::shown(Column::number("GIVEN"), |row: &Row| hours(row.usage.given)),
    Field::shown(Column::number("USED"), |row: &Row| hours(row.usage.claimed)),
    Field::shown(Column::number("CPU"), |row: &Row| hours(row.usage.cpu)),
    Field::shown(Column::number("FAILED"), |row: &Row| hours(row.usage.failed)),
    Field::shown(Column::number("LOST"), |row: &Row| hours(row.usage.lost)),
    Field::shown(Column::number("IDLE"), |row: &Row| hours(row.usage.idle)),
    Field::shown(Column::number("USE"), |row: &Row| {
        row.usage.utilisation.map(|percent| format!("{percent:.0} %")).into()
    }),
];

fn hours(hours: f64) -> Datum {
    figure(hours).into()
}

pub(crate) fn run(ctx: &Context, args: &UsageArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let allocations = of(&*store, &workflow)?;
    let report = gather(ctx, &*store, &workflow, &allocations)?;
    let mut rows: Vec<Row> = allocations.iter().filter_map(|one| row(one, &report)).collect();
    if ctx.ui.format() == Format::Json {
        let view = View { workflow_id: workflow.id.0, allocations: rows, total: report.total };
        ctx.ui.print_json(&view)?;
        return Ok(Exit::Success);
    }
    if rows.len() > 1 && ctx.ui.format() != Format::Csv {
        rows.push(Row { allocation_id: None, slurm_job_id: None, state: String::new(), usage: report.total });
    }
    if ctx.ui.print_list(&Listing::new(FIELDS), rows)? == 0 {
        ctx.ui.note(&format!("workflow {} ({}) has no allocations", workflow.id, workflow.name));
    }
    if let Some(line) = report.in_words() {
        ctx.ui.note(&line);
    }
    Ok(Exit::Success)
}

fn row(allocation: &Allocation, report: &Report) -> Option<Row> {
    let end = allocation.end.map(|end| end.name().to_owned());
    Some(Row {
        allocation_id: Some(allocation.id.0),
        slurm_job_id: allocation.job_id,
        state: end.unwrap_or_else(|| allocation.state.name().to_owned()),
        usage: *report.allocations.get(&allocation.id)?,
    })
}

/// For the end of a screen about the workflow; nothing where it has no allocations.
pub(crate) fn line(
    ctx: &Context,
    store: &dyn Store,
    workflow: &WorkflowRow,
) -> Result<Option<String>, CliError> {
    if workflow.counts.total() > MOST_JOBS {
        return Ok(None);
    }
    let allocations = of(store, workflow)?;
    if allocations.is_empty() {
        return Ok(None);
    }
    Ok(gather(ctx, store, workflow, &allocations)?.in_words())
}

/// All that we look after.
pub(super) fn of(store: &dyn Store, workflow: &WorkflowRow) -> Result<Vec<Allocation>, CliError> {
    let filter =
        AllocationFilter { workflow: Some(workflow.id), is_ours: Some(true), ..AllocationFilter::default() };
    Ok(store.allocations(&filter)?)
}

/// Who worked in which allocation. A server tells of them one allocation at a time, which are few.
pub(super) fn workers(
    ctx: &Context,
    store: &dyn Store,
    allocations: &[Allocation],
) -> Result<Vec<(WorkerId, Host)>, CliError> {
    let client = ctx.server()?;
    let mut found = Vec::new();
    for one in allocations.iter().filter(|one| one.started_at.is_some()) {
        let host = |name: String, cpus: u32, nodes: u32| Host {
            allocation: one.id,
            name,
            cores: cpus.saturating_mul(nodes.max(1)),
        };
        if let Some(client) = &client {
            found.extend(nodes(client, one)?.into_iter().filter_map(|node| {
                let number = |n: i64| u32::try_from(n).unwrap_or(0);
                let host = host(node.hostname, number(node.num_cpus), number(node.num_nodes));
                Some((WorkerId(node.id?), host))
            }));
            continue;
        }
        let filter = WorkerFilter { allocation: Some(one.id.0), ..WorkerFilter::default() };
        found.extend(store.workers(&filter)?.into_iter().map(|row| {
            let capacity = row.worker.capacity;
            (row.id, host(row.worker.host, capacity.cpus, capacity.nodes))
        }));
    }
    Ok(found)
}

#[derive(Deserialize)]
struct Nodes {
    items: Vec<ComputeNodeModel>,
    has_more: bool,
}

/// All that the server has of an allocation, page by page.
fn nodes(client: &Client, allocation: &Allocation) -> Result<Vec<ComputeNodeModel>, CliError> {
    let mut all = Vec::new();
    loop {
        let path = format!(
            "/torc-service/v1/compute_nodes?workflow_id={}&scheduled_compute_node_id={}&offset={}&limit={PAGE}",
            allocation.workflow,
            allocation.id,
            all.len()
        );
        let page: Nodes = client.get(&path)?;
        let is_last = !page.has_more || page.items.is_empty();
        all.extend(page.items);
        if is_last {
            return Ok(all);
        }
    }
}

/// Reads each list once, page by page.
fn gather(
    ctx: &Context,
    store: &dyn Store,
    workflow: &WorkflowRow,
    allocations: &[Allocation],
) -> Result<Report, CliError> {
    let now = ctx.clock.now();
    let workers = workers(ctx, store, allocations)?;
    let places: BTreeMap<WorkerId, AllocationId> =
        workers.iter().map(|(id, host)| (*id, host.allocation)).collect();
    let hosts: Vec<Host> = workers.into_iter().map(|(_, host)| host).collect();
    let cores = cores(store, workflow)?;
    let of_job = |job: JobId| cores.get(&job).copied().unwrap_or(Resources::DEFAULT.cpus);
    let config = workflow.settings.execution_config.as_ref();
    let timeout = config.and_then(|config| config.timeout_exit_code).unwrap_or(return_code::TIMEOUT);
    let mut spells = Vec::new();
    let everything = ResultFilter { all_runs: true, ..ResultFilter::default() };
    let mut pages = Pages::new(store, workflow, everything, 0, None);
    loop {
        let page = pages.next()?;
        if page.is_empty() {
            break;
        }
        let ended = page.iter().filter_map(|row| {
            Some(spell(row, *places.get(&row.worker_id)?, of_job(row.key.job_id), timeout))
        });
        spells.extend(ended);
    }
    let held = store.held_jobs(workflow.id)?;
    let now_held =
        held.iter().filter_map(|job| Some(running(job, *places.get(&job.worker)?, of_job(job.id), now)));
    spells.extend(now_held);
    Ok(report(allocations, &hosts, &spells, now))
}

/// What each job asks for, on all its nodes.
fn cores(store: &dyn Store, workflow: &WorkflowRow) -> Result<BTreeMap<JobId, u32>, CliError> {
    let named: BTreeMap<String, u32> = store
        .requirements(workflow.id)?
        .into_iter()
        .map(|row| (row.name, row.resources.cpus.saturating_mul(row.resources.nodes.max(1))))
        .collect();
    let mut cores = BTreeMap::new();
    let mut filter = JobFilter { limit: Some(PAGE), ..JobFilter::default() };
    loop {
        let page = store.jobs(workflow.id, &filter)?;
        let Some(last) = page.last() else { return Ok(cores) };
        filter.after = Some(last.id);
        cores.extend(page.iter().filter_map(|job| {
            let number = named.get(job.resource_requirements.as_ref()?)?;
            Some((job.id, *number))
        }));
    }
}

fn spell(row: &ResultRow, allocation: AllocationId, cores: u32, timeout: i32) -> Spell {
    let is_orphan = row.return_code == return_code::ORPHANED;
    let fruit = match row.status {
        JobStatus::Completed => Fruit::Useful,
        _ if is_orphan => Fruit::Lost,
        // Its own time was not over, so the allocation's was.
        JobStatus::Terminated if row.return_code != timeout => Fruit::Lost,
        _ => Fruit::Failed,
    };
    Spell {
        allocation,
        cores,
        started_at: row.started_at,
        ended_at: row.ended_at,
        wall: (!is_orphan).then_some(row.wall),
        cpu_time: row.cpu_time,
        fruit,
    }
}

fn running(job: &HeldJob, allocation: AllocationId, cores: u32, now: Timestamp) -> Spell {
    Spell {
        allocation,
        cores,
        started_at: job.started_at,
        ended_at: now,
        wall: None,
        cpu_time: std::time::Duration::ZERO,
        fruit: Fruit::Useful,
    }
}
