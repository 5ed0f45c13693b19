//! Paths from a waiting or canceled job back to the jobs that cause this.

use super::{JobGraphView, exit_meaning};
use crate::dependency_graph::DependencyCycle;
use crate::topological_order::TopologicalOrder;
use serde::Serialize;
use std::collections::VecDeque;
use windlass_types::{JobId, JobStatus};

/// Maximum number of causes listed; the others are counted.
const MAX_ROOTS: usize = 10;

/// How a job depends on its blockers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlockingChain {
    /// The shortest path from the job (excluded) to the first cause, which is its last link.
    pub links: Vec<ChainLink>,
    /// The causes, the nearest first, at most ten.
    pub roots: Vec<ChainLink>,
    pub root_count: u32,
    /// All jobs on any path to a cause, including the causes.
    pub waiting: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChainLink {
    pub job: JobId,
    pub name: String,
    pub status: JobStatus,
    /// How it ended, if it did.
    pub note: Option<String>,
}

/// Returns what blocks a job: jobs that have not ended and do not wait for others.
pub(super) fn find_blockers(jobs: &JobGraphView<'_>, job: u32) -> Result<BlockingChain, DependencyCycle> {
    let is_on_the_way = |status: JobStatus| !status.is_settled();
    let waits = |status: JobStatus| matches!(status, JobStatus::Blocked | JobStatus::Uninitialized);
    search_backwards(jobs, job, is_on_the_way, waits)
}

/// Returns the failures because of which a job was canceled: through canceled jobs back to the original
/// failures.
pub(super) fn find_cancel_causes(
    jobs: &JobGraphView<'_>,
    job: u32,
) -> Result<BlockingChain, DependencyCycle> {
    search_backwards(jobs, job, JobStatus::is_unsuccessful, |status| status == JobStatus::Canceled)
}

/// Searches backwards, nearest first, over jobs that are `on_the_way`. Jobs from which no path continues are
/// the causes; a job that `passes_on` is a cause only if no job before it is on the path.
fn search_backwards(
    jobs: &JobGraphView<'_>,
    start: u32,
    on_the_way: impl Fn(JobStatus) -> bool,
    passes_on: impl Fn(JobStatus) -> bool,
) -> Result<BlockingChain, DependencyCycle> {
    let order = TopologicalOrder::new(jobs.count, jobs.edges)?;
    // A dependency group is on the path if one of its members is.
    let leads = |node: u32| {
        let is_near = |job: u32| on_the_way((jobs.status)(job));
        if order.is_group(node) {
            order.predecessors(node).iter().any(|&member| is_near(member))
        } else {
            is_near(node)
        }
    };
    let mut came_from = vec![u32::MAX; order.len()];
    let mut queue = VecDeque::from([start]);
    let mut roots = Vec::new();
    let mut chain = BlockingChain::default();
    while let Some(node) = queue.pop_front() {
        let mut leads_on = false;
        if node == start || order.is_group(node) || passes_on((jobs.status)(node)) {
            for &before in order.predecessors(node) {
                let seen = came_from[before as usize] != u32::MAX;
                if !seen && !leads(before) {
                    continue;
                }
                leads_on = true;
                if !seen {
                    came_from[before as usize] = node;
                    queue.push_back(before);
                }
            }
        }
        if node == start || order.is_group(node) {
            continue;
        }
        chain.waiting += 1;
        if !leads_on {
            roots.push(node);
        }
    }
    chain.root_count = roots.len() as u32;
    chain.links = path_to_root(&order, &came_from, start, roots.first().copied())
        .map(|job| chain_link(jobs, job))
        .collect();
    chain.roots = roots.iter().take(MAX_ROOTS).map(|&job| chain_link(jobs, job)).collect();
    Ok(chain)
}

/// Returns the jobs between `start` and `root`, and `root` itself.
fn path_to_root<'o>(
    order: &'o TopologicalOrder,
    came_from: &[u32],
    start: u32,
    root: Option<u32>,
) -> impl Iterator<Item = u32> + use<'o> {
    let mut way = Vec::new();
    let mut at = root.unwrap_or(start);
    while at != start {
        way.push(at);
        at = came_from[at as usize];
    }
    way.into_iter().rev().filter(|&node| !order.is_group(node))
}

fn chain_link(jobs: &JobGraphView<'_>, job: u32) -> ChainLink {
    let status = (jobs.status)(job);
    let ended = status.is_unsuccessful() || status == JobStatus::PendingFailed;
    let note = if ended { (jobs.outcome)(job).map(|outcome| exit_meaning::end_note(&outcome)) } else { None };
    ChainLink { job: (jobs.id)(job), name: (jobs.name)(job), status, note }
}
