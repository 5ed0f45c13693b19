//! The outline of a workflow for drawings: names, job groups, resources and edges, from a spec or from the
//! database.

use crate::args::plan_and_reset::CapacityArgs;
use crate::changes::{PlannedJobs, StoredJobs, WorkflowChanges};
use crate::error::{CliError, CliErrorKind};
use std::collections::HashMap;
use std::time::Duration;
use windlass_core::dependency_edges::DependencyEdges;
use windlass_core::workflow_outline::{
    self, OutlineGranularity, OutlineJob, OutlineRequest, WorkflowOutline,
};
use windlass_process::machine::MachineInfo;
use windlass_store::Store;
use windlass_store::model::{CompletedWork, JobFilter};
use windlass_types::{Capacity, Resources};

const PAGE_SIZE: u64 = 2000;

/// The machine to plan for: this one, with the given overrides.
pub(crate) fn planning_capacity(args: CapacityArgs) -> Capacity {
    let machine = MachineInfo::detect();
    Capacity {
        cpus: args.num_cpus.unwrap_or(machine.cpus),
        memory: args.memory.unwrap_or(machine.memory),
        gpus: args.num_gpus.unwrap_or(machine.gpus.len() as u32),
        nodes: 1,
        max_jobs: args.max_parallel_jobs,
    }
}

/// Outlines a spec. Measurements of an earlier version estimate job durations; reused jobs take no time.
pub(crate) fn outline_spec(
    planned: &PlannedJobs<'_, '_>,
    earlier: Option<(&StoredJobs<'_>, &WorkflowChanges)>,
    grain: OutlineGranularity,
    capacity: Capacity,
) -> Result<WorkflowOutline, CliError> {
    let workflow = planned.workflow();
    let kinds: Vec<&str> = workflow.job_groups().iter().map(|kind| kind.name.as_str()).collect();
    let facts = |number: u32| {
        let job = workflow.job(number as usize);
        let measured = earlier.and_then(|(jobs_store, changes)| {
            expected_duration(changes, number, || jobs_store.completed_work(jobs_store.number(job.name)?))
        });
        OutlineJob {
            name: job.name,
            entry: job.group,
            resources: job
                .requirements
                .map_or(Resources::DEFAULT, |set| workflow.requirements()[set as usize].resources),
            priority: job.priority,
            measured_runtime: measured,
            is_reused: earlier.is_some_and(|(_, changes)| changes.is_reused(number)),
        }
    };
    build_outline(&OutlineRequest {
        jobs: planned.count(),
        edges: planned.edges(),
        entries: &kinds,
        facts: &facts,
        grain,
        capacity: Some(capacity),
    })
}

/// Outlines a stored workflow.
pub(crate) fn outline_workflow(
    store: &dyn Store,
    jobs_store: &StoredJobs<'_>,
    changes: Option<&WorkflowChanges>,
    grain: OutlineGranularity,
    capacity: Capacity,
) -> Result<WorkflowOutline, CliError> {
    let names = OutlineNames::load(store, jobs_store)?;
    let kinds: Vec<&str> = names.kinds.iter().map(String::as_str).collect();
    let table = jobs_store.loaded_jobs();
    let facts = |number: u32| {
        let index = number as usize;
        OutlineJob {
            name: &names.jobs[index],
            entry: names.kind_of[index],
            resources: table.requirements[table.class[index] as usize],
            priority: table.priority[index],
            measured_runtime: changes
                .and_then(|changes| expected_duration(changes, number, || jobs_store.completed_work(number))),
            is_reused: changes.is_some_and(|changes| changes.is_reused(number)),
        }
    };
    let edges: &DependencyEdges = &table.edges;
    build_outline(&OutlineRequest {
        jobs: jobs_store.count(),
        edges,
        entries: &kinds,
        facts: &facts,
        grain,
        capacity: Some(capacity),
    })
}

fn build_outline(request: &OutlineRequest<'_>) -> Result<WorkflowOutline, CliError> {
    workflow_outline::outline_workflow(request)
        .map_err(|cycle| CliError::new(CliErrorKind::Spec, cycle.to_string()))
}

/// The expected duration of a job, from earlier ones.
fn expected_duration<'r>(
    changes: &WorkflowChanges,
    number: u32,
    record: impl FnOnce() -> Option<&'r CompletedWork>,
) -> Option<Duration> {
    if changes.is_reused(number) {
        return Some(Duration::ZERO);
    }
    let record = record()?;
    Some(record.ended_at.since(record.started_at?))
}

/// The names of all jobs, and their job groups.
struct OutlineNames {
    jobs: Vec<String>,
    kinds: Vec<String>,
    kind_of: Vec<Option<u32>>,
}

impl OutlineNames {
    fn load(store: &dyn Store, jobs_store: &StoredJobs<'_>) -> Result<Self, CliError> {
        let mut names = Self { jobs: Vec::new(), kinds: Vec::new(), kind_of: Vec::new() };
        let mut known: HashMap<String, u32> = HashMap::new();
        let mut after = None;
        loop {
            let filter = JobFilter { after, limit: Some(PAGE_SIZE), ..JobFilter::default() };
            let page = store.jobs(jobs_store.workflow_row().id, &filter)?;
            let Some(last) = page.last().map(|job| job.id) else { break };
            for job in page {
                names.jobs.push(job.name);
                names.kind_of.push(job.kind.map(|kind| {
                    *known.entry(kind).or_insert_with_key(|kind| {
                        names.kinds.push(kind.clone());
                        names.kinds.len() as u32 - 1
                    })
                }));
            }
            after = Some(last);
        }
        if names.jobs.len() == jobs_store.count() as usize {
            return Ok(names);
        }
        // Jobs were added between two reads.
        Err(CliError::refused("the workflow has just changed").with_hint("try again"))
    }
}
