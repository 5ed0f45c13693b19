//! `windlass slurm usage`: core-hours of the allocations of a workflow, used and unused.

use crate::args::OutputFormat;
use crate::args::slurm_reports::SlurmUsageArgs;
use crate::commands::results::ResultPages;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ui::listing::{FieldValue, ListField, ListFields, PAGE_SIZE};
use crate::ui::table::TableColumn;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use windlass_api::torc::ComputeNodeModel;
use windlass_client::Client;
use windlass_core::slurm::core_hours::{
    AllocationWorkerCores, AttemptCoreUse, AttemptTimeUse, CoreHourReport, CoreHourUsage, format_hours,
    report_core_hours,
};
use windlass_store::Store;
use windlass_store::model::{
    AllocationFilter, HeldJob, JobFilter, ResultFilter, ResultRow, WorkerFilter, WorkflowRow,
};
use windlass_types::slurm::Allocation;
use windlass_types::worker_messages::return_code;
use windlass_types::{AllocationId, JobId, JobStatus, Resources, Timestamp, WorkerId};

/// For larger workflows the usage line is left out, because the status screen must appear at once.
const MAX_JOBS: u64 = 20_000;

#[derive(Serialize)]
struct AllocationUsageRow {
    allocation_id: Option<i64>,
    slurm_job_id: Option<u64>,
    state: String,
    #[serde(flatten)]
    usage: CoreHourUsage,
}

#[derive(Serialize)]
struct AllocationUsageView {
    workflow_id: i64,
    allocations: Vec<AllocationUsageRow>,
    total: CoreHourUsage,
}

const FIELDS: &[ListField<AllocationUsageRow>] = &[
    ListField::new("allocation_id", |row: &AllocationUsageRow| row.allocation_id.into()),
    ListField::table_only(TableColumn::number("ID"), |row: &AllocationUsageRow| {
        row.allocation_id.map_or_else(|| "all".to_owned(), |id| id.to_string()).into()
    }),
    ListField::new("slurm_job_id", |row: &AllocationUsageRow| row.slurm_job_id.into())
        .column(TableColumn::number("SLURM")),
    ListField::new("state", |row: &AllocationUsageRow| (&row.state).into())
        .column(TableColumn::text("STATE")),
    ListField::new("cores", |row: &AllocationUsageRow| row.usage.cores.into())
        .column(TableColumn::number("CORES")),
    ListField::new("asked_core_hours", |row: &AllocationUsageRow| row.usage.asked.into()),
    ListField::new("given_core_hours", |row: &AllocationUsageRow| row.usage.given.into()),
    ListField::new("used_core_hours", |row: &AllocationUsageRow| row.usage.claimed.into()),
    ListField::new("cpu_core_hours", |row: &AllocationUsageRow| row.usage.cpu.into()),
    ListField::new("failed_core_hours", |row: &AllocationUsageRow| row.usage.failed.into()),
    ListField::new("lost_core_hours", |row: &AllocationUsageRow| row.usage.lost.into()),
    ListField::new("idle_core_hours", |row: &AllocationUsageRow| row.usage.idle.into()),
    ListField::new("utilisation_percent", |row: &AllocationUsageRow| row.usage.utilisation.into()),
    ListField::table_only(TableColumn::number("REQ"), |row: &AllocationUsageRow| {
        hours_value(row.usage.asked)
    }),
    ListField::table_only(TableColumn::number("ALLOC"), |row: &AllocationUsageRow| {
        hours_value(row.usage.given)
    }),
    ListField::table_only(TableColumn::number("USED"), |row: &AllocationUsageRow| {
        hours_value(row.usage.claimed)
    }),
    ListField::table_only(TableColumn::number("CPU"), |row: &AllocationUsageRow| hours_value(row.usage.cpu)),
    ListField::table_only(TableColumn::number("FAILED"), |row: &AllocationUsageRow| {
        hours_value(row.usage.failed)
    }),
    ListField::table_only(TableColumn::number("LOST"), |row: &AllocationUsageRow| {
        hours_value(row.usage.lost)
    }),
    ListField::table_only(TableColumn::number("IDLE"), |row: &AllocationUsageRow| {
        hours_value(row.usage.idle)
    }),
    ListField::table_only(TableColumn::number("USE"), |row: &AllocationUsageRow| {
        row.usage.utilisation.map(|percent| format!("{percent:.0} %")).into()
    }),
];

fn hours_value(hours: f64) -> FieldValue {
    format_hours(hours).into()
}

pub(crate) fn run(ctx: &CliContext, args: &SlurmUsageArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let allocations = list_own_allocations(&*store, &workflow)?;
    let report = gather_usage(ctx, &*store, &workflow, &allocations)?;
    let mut rows: Vec<AllocationUsageRow> =
        allocations.iter().filter_map(|one| usage_row(one, &report)).collect();
    if ctx.ui.format() == OutputFormat::Json {
        let view = AllocationUsageView { workflow_id: workflow.id.0, allocations: rows, total: report.total };
        ctx.ui.print_json(&view)?;
        return Ok(CliExit::Success);
    }
    if rows.len() > 1 && ctx.ui.format() != OutputFormat::Csv {
        rows.push(AllocationUsageRow {
            allocation_id: None,
            slurm_job_id: None,
            state: String::new(),
            usage: report.total,
        });
    }
    if ctx.ui.print_list(&ListFields::new(FIELDS), rows)? == 0 {
        ctx.ui.print_note(&format!("workflow {} ({}) has no allocations", workflow.id, workflow.name));
    }
    if let Some(line) = report.summary_line() {
        ctx.ui.print_note(&line);
    }
    Ok(CliExit::Success)
}

fn usage_row(allocation: &Allocation, report: &CoreHourReport) -> Option<AllocationUsageRow> {
    let end = allocation.end.map(|end| end.name().to_owned());
    Some(AllocationUsageRow {
        allocation_id: Some(allocation.id.0),
        slurm_job_id: allocation.job_id,
        state: end.unwrap_or_else(|| allocation.state.name().to_owned()),
        usage: *report.allocations.get(&allocation.id)?,
    })
}

/// For the end of a status screen; empty if there are no allocations.
pub(crate) fn render_usage_line(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: &WorkflowRow,
) -> Result<Option<String>, CliError> {
    if workflow.counts.total() > MAX_JOBS {
        return Ok(None);
    }
    let allocations = list_own_allocations(store, workflow)?;
    if allocations.is_empty() {
        return Ok(None);
    }
    Ok(gather_usage(ctx, store, workflow, &allocations)?.summary_line())
}

/// All allocations in the database.
pub(super) fn list_own_allocations(
    store: &dyn Store,
    workflow: &WorkflowRow,
) -> Result<Vec<Allocation>, CliError> {
    let filter =
        AllocationFilter { workflow: Some(workflow.id), is_ours: Some(true), ..AllocationFilter::default() };
    Ok(store.allocations(&filter)?)
}

/// The workers of each allocation. A server is asked per allocation; there are few.
pub(super) fn list_allocation_workers(
    ctx: &CliContext,
    store: &dyn Store,
    allocations: &[Allocation],
) -> Result<Vec<(WorkerId, AllocationWorkerCores)>, CliError> {
    let client = ctx.server()?;
    let mut found = Vec::new();
    for one in allocations.iter().filter(|one| one.started_at.is_some()) {
        let host = |name: String, cpus: u32, nodes: u32| AllocationWorkerCores {
            allocation: one.id,
            name,
            cores: cpus.saturating_mul(nodes.max(1)),
        };
        if let Some(client) = &client {
            found.extend(fetch_compute_nodes(client, one)?.into_iter().filter_map(|node| {
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
struct ComputeNodePage {
    items: Vec<ComputeNodeModel>,
    has_more: bool,
}

/// All workers of an allocation on the server, page by page.
fn fetch_compute_nodes(client: &Client, allocation: &Allocation) -> Result<Vec<ComputeNodeModel>, CliError> {
    let mut all = Vec::new();
    loop {
        let path = format!(
            "/torc-service/v1/compute_nodes?workflow_id={}&scheduled_compute_node_id={}&offset={}&limit={PAGE_SIZE}",
            allocation.workflow,
            allocation.id,
            all.len()
        );
        let page: ComputeNodePage = client.get(&path)?;
        let is_last = !page.has_more || page.items.is_empty();
        all.extend(page.items);
        if is_last {
            return Ok(all);
        }
    }
}

/// Reads each list once, page by page.
fn gather_usage(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: &WorkflowRow,
    allocations: &[Allocation],
) -> Result<CoreHourReport, CliError> {
    let now = ctx.clock.now();
    let workers = list_allocation_workers(ctx, store, allocations)?;
    let places: BTreeMap<WorkerId, AllocationId> =
        workers.iter().map(|(id, host)| (*id, host.allocation)).collect();
    let hosts: Vec<AllocationWorkerCores> = workers.into_iter().map(|(_, host)| host).collect();
    let cores = load_job_cores(store, workflow)?;
    let of_job = |job: JobId| cores.get(&job).copied().unwrap_or(Resources::DEFAULT.cpus);
    let config = workflow.settings.execution_config.as_ref();
    let timeout = config.and_then(|config| config.timeout_exit_code).unwrap_or(return_code::TIMEOUT);
    let mut used_intervals = Vec::new();
    let everything = ResultFilter { all_runs: true, ..ResultFilter::default() };
    let mut pages = ResultPages::new(store, workflow, everything, 0, None);
    loop {
        let page = pages.next_page()?;
        if page.is_empty() {
            break;
        }
        let ended = page.iter().filter_map(|row| {
            Some(result_interval(row, *places.get(&row.worker_id)?, of_job(row.key.job_id), timeout))
        });
        used_intervals.extend(ended);
    }
    let held = store.held_jobs(workflow.id)?;
    let now_held = held
        .iter()
        .filter_map(|job| Some(held_job_interval(job, *places.get(&job.worker)?, of_job(job.id), now)));
    used_intervals.extend(now_held);
    Ok(report_core_hours(allocations, &hosts, &used_intervals, now))
}

/// The requirements of each job, over all its nodes.
fn load_job_cores(store: &dyn Store, workflow: &WorkflowRow) -> Result<BTreeMap<JobId, u32>, CliError> {
    let named: BTreeMap<String, u32> = store
        .requirements(workflow.id)?
        .into_iter()
        .map(|row| (row.name, row.resources.cpus.saturating_mul(row.resources.nodes.max(1))))
        .collect();
    let mut cores = BTreeMap::new();
    let mut filter = JobFilter { limit: Some(PAGE_SIZE), ..JobFilter::default() };
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

fn result_interval(row: &ResultRow, allocation: AllocationId, cores: u32, timeout: i32) -> AttemptCoreUse {
    let is_orphan = row.return_code == return_code::ORPHANED;
    let attempt_outcome = match row.status {
        JobStatus::Completed => AttemptTimeUse::Useful,
        _ if is_orphan => AttemptTimeUse::Lost,
        // The time limit of the job itself was not reached, so that of the allocation was.
        JobStatus::Terminated if row.return_code != timeout => AttemptTimeUse::Lost,
        _ => AttemptTimeUse::Failed,
    };
    AttemptCoreUse {
        allocation,
        cores,
        started_at: row.started_at,
        ended_at: row.ended_at,
        wall: (!is_orphan).then_some(row.wall),
        cpu_time: row.cpu_time,
        outcome: attempt_outcome,
    }
}

fn held_job_interval(job: &HeldJob, allocation: AllocationId, cores: u32, now: Timestamp) -> AttemptCoreUse {
    AttemptCoreUse {
        allocation,
        cores,
        started_at: job.started_at,
        ended_at: now,
        wall: None,
        cpu_time: std::time::Duration::ZERO,
        outcome: AttemptTimeUse::Useful,
    }
}
