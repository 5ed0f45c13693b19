//! A workflow as an outline is drawn from it: names, kinds, resources and edges, from a spec or from the books.

use crate::args::plan::CapacityArgs;
use crate::changes::{Books, Changes, Planned};
use crate::error::{CliError, Kind};
use std::collections::HashMap;
use std::time::Duration;
use windlass_core::edges::Edges;
use windlass_core::outline::{self, Facts, Grain, Outline, Request};
use windlass_proc::machine::Machine;
use windlass_store::Store;
use windlass_store::model::{DoneWork, JobFilter};
use windlass_types::{Capacity, Resources};

const PAGE: u64 = 2000;

/// The machine to plan for: this one, but for what was said.
pub(crate) fn capacity(args: CapacityArgs) -> Capacity {
    let machine = Machine::detect();
    Capacity {
        cpus: args.num_cpus.unwrap_or(machine.cpus),
        memory: args.memory.unwrap_or(machine.memory),
        gpus: args.num_gpus.unwrap_or(machine.gpus.len() as u32),
        nodes: 1,
        max_jobs: args.max_parallel_jobs,
    }
}

/// Outlines a spec. What an earlier version of it measured tells how long jobs take; what is reused takes no time.
pub(crate) fn of_spec(
    planned: &Planned<'_, '_>,
    earlier: Option<(&Books<'_>, &Changes)>,
    grain: Grain,
    capacity: Capacity,
) -> Result<Outline, CliError> {
    let workflow = planned.workflow();
    let kinds: Vec<&str> = workflow.kinds().iter().map(|kind| kind.name.as_str()).collect();
    let facts = |number: u32| {
        let job = workflow.job(number as usize);
        let measured = earlier
            .and_then(|(books, changes)| expected(changes, number, || books.record(books.number(job.name)?)));
        Facts {
            name: job.name,
            kind: job.kind,
            resources: job
                .requirements
                .map_or(Resources::DEFAULT, |set| workflow.requirements()[set as usize].resources),
            priority: job.priority,
            measured,
            is_reused: earlier.is_some_and(|(_, changes)| changes.is_reused(number)),
        }
    };
    draw(&Request {
        jobs: planned.count(),
        edges: planned.edges(),
        kinds: &kinds,
        facts: &facts,
        grain,
        capacity: Some(capacity),
    })
}

/// Outlines a workflow that is in the books.
pub(crate) fn of_books(
    store: &dyn Store,
    books: &Books<'_>,
    changes: Option<&Changes>,
    grain: Grain,
    capacity: Capacity,
) -> Result<Outline, CliError> {
    let names = Names::load(store, books)?;
    let kinds: Vec<&str> = names.kinds.iter().map(String::as_str).collect();
    let table = books.table();
    let facts = |number: u32| {
        let index = number as usize;
        Facts {
            name: &names.jobs[index],
            kind: names.kind_of[index],
            resources: table.requirements[table.class[index] as usize],
            priority: table.priority[index],
            measured: changes.and_then(|changes| expected(changes, number, || books.record(number))),
            is_reused: changes.is_some_and(|changes| changes.is_reused(number)),
        }
    };
    let edges: &Edges = &table.edges;
    draw(&Request {
        jobs: books.count(),
        edges,
        kinds: &kinds,
        facts: &facts,
        grain,
        capacity: Some(capacity),
    })
}

fn draw(request: &Request<'_>) -> Result<Outline, CliError> {
    outline::outline(request).map_err(|cycle| CliError::new(Kind::Spec, cycle.to_string()))
}

/// How long a job should take, from what it took before.
fn expected<'r>(
    changes: &Changes,
    number: u32,
    record: impl FnOnce() -> Option<&'r DoneWork>,
) -> Option<Duration> {
    if changes.is_reused(number) {
        return Some(Duration::ZERO);
    }
    let record = record()?;
    Some(record.ended_at.since(record.started_at?))
}

/// What all jobs are called, and of which kind they are.
struct Names {
    jobs: Vec<String>,
    kinds: Vec<String>,
    kind_of: Vec<Option<u32>>,
}

impl Names {
    fn load(store: &dyn Store, books: &Books<'_>) -> Result<Self, CliError> {
        let mut names = Self { jobs: Vec::new(), kinds: Vec::new(), kind_of: Vec::new() };
        let mut known: HashMap<String, u32> = HashMap::new();
        let mut after = None;
        loop {
            let filter = JobFilter { after, limit: Some(PAGE), ..JobFilter::default() };
            let page = store.jobs(books.row().id, &filter)?;
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
        if names.jobs.len() == books.count() as usize {
            return Ok(names);
        }
        // Jobs were added between two readings.
        Err(CliError::refused("the workflow is changing just now").with_hint("try again"))
    }
}
