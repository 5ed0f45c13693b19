//! How many nodes inside the units are done, running, waiting: from the heads of the units' status files.
//!
//! A run may have thousands of units, and only a few run at a time: those are read when their file has changed.
//! The file of a unit that has ended is read once more, and then no longer. After a restart, thousands may have
//! ended already: each poll reads only a few of them, so that no poll takes long.

use super::cached_files::{CachedFile, read_beginning, read_whole};
use super::nodes::{HeldDagNode, list_held_nodes};
use super::unit_states::UnitStates;
use crate::file_layout;
use crate::parsers::metrics;
use crate::parsers::node_status::{self, CondorNodeState, DagStatus};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use windlass_core::requests::rows::NodeCounts;
use windlass_types::requests::RequestUnitStatus;

/// The number of completed units that one poll reads.
const MAX_COMPLETED_PER_POLL: usize = 100;

#[derive(Debug)]
pub(super) struct UnitCounts {
    run: PathBuf,
    /// Units that have started and are not completed.
    open_units: BTreeMap<u32, OpenUnit>,
    /// Completed, and not counted yet.
    uncounted: Vec<u32>,
    /// Nodes of the completed ones.
    done_nodes: u64,
}

#[derive(Debug, Default)]
struct OpenUnit {
    status: CachedFile<DagStatus>,
    counts: NodeCounts,
    /// Jobs that run now, without the scripts of nodes.
    running_jobs: u64,
    /// Where they run; `None` before the unit has landed.
    site: Option<String>,
    held: Vec<HeldDagNode>,
    /// It failed, and its file was read since.
    is_final: bool,
}

impl UnitCounts {
    pub(super) fn new(run: &Path) -> Self {
        Self { run: run.to_owned(), open_units: BTreeMap::new(), uncounted: Vec::new(), done_nodes: 0 }
    }

    pub(super) fn on_unit_completed(&mut self, unit: u32) {
        self.open_units.remove(&unit);
        self.uncounted.push(unit);
    }

    /// Reads changed status files; those of all completed units if the DAG has ended, since there may be no other
    /// poll. Units that were stopped with it may still be writing their last status.
    pub(super) fn refresh(&mut self, ledger: &UnitStates, over: bool) -> io::Result<()> {
        self.open_units.retain(|unit, _| is_open(ledger.status(*unit)));
        for (unit, status) in ledger.units().filter(|(_, status)| is_open(*status)) {
            let directory = file_layout::unit_directory(&self.run, unit);
            let group = self.open_units.entry(unit).or_default();
            group.refresh(&directory, unit, status == RequestUnitStatus::Failed)?;
        }
        let most = if over { usize::MAX } else { MAX_COMPLETED_PER_POLL };
        for _ in 0..most.min(self.uncounted.len()) {
            let Some(unit) = self.uncounted.last() else { break };
            let path = file_layout::unit_directory(&self.run, *unit).join(file_layout::GROUP_STATUS);
            self.done_nodes += read_dag_status(&path)?.map_or(0, |head| head.done);
            self.uncounted.pop();
        }
        Ok(())
    }

    pub(super) fn counts(&self) -> NodeCounts {
        let mut sum = NodeCounts { done: self.done_nodes, ..NodeCounts::default() };
        for OpenUnit { counts, .. } in self.open_units.values() {
            sum.idle += counts.idle;
            sum.running += counts.running;
            sum.done += counts.done;
            sum.failed += counts.failed;
            sum.held += counts.held;
        }
        sum
    }

    pub(super) fn running_by_site(&self) -> BTreeMap<String, u64> {
        let mut sum = BTreeMap::new();
        for OpenUnit { running_jobs, site, .. } in self.open_units.values() {
            if let Some(site) = site.as_ref().filter(|_| *running_jobs > 0) {
                *sum.entry(site.clone()).or_default() += running_jobs;
            }
        }
        sum
    }

    pub(super) fn held(&self) -> impl Iterator<Item = &HeldDagNode> {
        self.open_units.values().flat_map(|group| &group.held)
    }
}

fn is_open(status: RequestUnitStatus) -> bool {
    matches!(status, RequestUnitStatus::Active | RequestUnitStatus::Failed)
}

impl OpenUnit {
    fn refresh(&mut self, directory: &Path, unit: u32, ended: bool) -> io::Result<()> {
        if self.is_final && ended {
            return Ok(());
        }
        if self.status.refresh(&directory.join(file_layout::GROUP_STATUS), read_dag_status)? {
            self.counts = match self.status.get() {
                Some(head) => node_counts(head, count_failed(directory, file_layout::GROUP_DAG, head)?),
                None => NodeCounts::default(),
            };
            self.running_jobs = self.status.get().map_or(0, running_jobs);
            self.site = file_layout::read_elected_site(directory);
            self.held = match self.counts.held {
                0 => Vec::new(),
                _ => list_held_nodes(directory, Some(unit))?,
            };
        }
        self.is_final = ended;
        Ok(())
    }
}

pub(super) fn read_dag_status(path: &Path) -> io::Result<Option<DagStatus>> {
    Ok(node_status::parse_dag_status(&read_beginning(path, node_status::HEAD_BYTES)?))
}

/// When a DAG was removed or aborted, its active nodes are among its failed nodes: its metrics are exact.
pub(super) fn count_failed(directory: &Path, dag: &str, head: &DagStatus) -> io::Result<u64> {
    if head.state != CondorNodeState::Error || head.reason == "failed" || head.failed == 0 {
        return Ok(head.failed);
    }
    let metrics = metrics::parse_metrics(&read_whole(
        &directory.join(format!("{dag}{}", file_layout::METRICS_SUFFIX)),
    )?);
    Ok(metrics.map_or(0, |metrics| (metrics.jobs.failed + metrics.dags.failed).min(head.failed)))
}

fn running_jobs(head: &DagStatus) -> u64 {
    let held = head.held_jobs.min(head.queued);
    head.queued - held - head.idle_jobs.min(head.queued - held)
}

/// A node is in one of five states; nodes in scripts are running, and nodes that will not run for now are idle.
pub(super) fn node_counts(head: &DagStatus, failed: u64) -> NodeCounts {
    let (held, running) = (head.held_jobs.min(head.queued), running_jobs(head));
    let idle_jobs = head.queued - held - running;
    NodeCounts {
        idle: head.ready + head.unready + head.futile + idle_jobs + (head.failed - failed),
        running: head.pre + head.post + running,
        done: head.done,
        failed,
        held,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_is_counted_once() {
        let head = DagStatus {
            total: 20,
            done: 3,
            pre: 1,
            queued: 7,
            post: 1,
            ready: 1,
            unready: 2,
            futile: 2,
            failed: 3,
            held_jobs: 1,
            idle_jobs: 2,
            ..DagStatus::default()
        };
        let counted = node_counts(&head, 1);
        assert_eq!(counted, NodeCounts { idle: 9, running: 6, done: 3, failed: 1, held: 1 });
        let sum = counted.idle + counted.running + counted.done + counted.failed + counted.held;
        assert_eq!(sum, head.total);
    }

    #[test]
    fn more_held_than_queued_does_not_underflow() {
        let head = DagStatus { queued: 1, held_jobs: 2, idle_jobs: 3, ..DagStatus::default() };
        assert_eq!(node_counts(&head, 0), NodeCounts { held: 1, ..NodeCounts::default() });
    }

    #[test]
    fn failures_of_an_aborted_unit_come_from_its_metrics() {
        let directory = tempfile::tempdir().unwrap();
        let head = node_status::parse_dag_status(include_bytes!("../../tests/data/group.dag.status.aborted"))
            .unwrap();
        let failed = || count_failed(directory.path(), file_layout::GROUP_DAG, &head).unwrap();
        assert_eq!(failed(), 0, "nothing is known of failures");
        let metrics = include_bytes!("../../tests/data/group.dag.metrics.aborted");
        std::fs::write(directory.path().join("group.dag.metrics"), metrics).unwrap();
        assert_eq!((failed(), head.failed), (1, 3));
        let plain = node_status::parse_dag_status(include_bytes!("../../tests/data/group.dag.status.failed"))
            .unwrap();
        assert_eq!(count_failed(directory.path(), file_layout::GROUP_DAG, &plain).unwrap(), plain.failed);
    }
}
