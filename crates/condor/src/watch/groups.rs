//! How many nodes inside the units are done, running, waiting: from the heads of the groups' status files.
//!
//! A run may have thousands of groups, and only a few run at a time: those are looked at when their file has changed.
//! One that is over is looked at once more, and then no longer. After a restart of ours thousands may be over already:
//! a look reads so many of them and leaves the others to the next ones, so that no look takes long.

use super::files::{Remembered, beginning, whole};
use super::ledger::Ledger;
use super::nodes::{HeldNode, held_nodes};
use crate::layout;
use crate::read::metrics;
use crate::read::status::{self, Head, NodeState};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use windlass_core::requests::book::NodeCounts;
use windlass_types::requests::UnitStatus;

/// So many completed groups are read by one look.
const MOST_COMPLETED: usize = 100;

#[derive(Debug)]
pub(super) struct Groups {
    run: PathBuf,
    /// Those that have begun and are not completed.
    open: BTreeMap<u32, Group>,
    /// Completed, and not counted yet.
    uncounted: Vec<u32>,
    /// Nodes of the completed ones.
    done: u64,
}

#[derive(Debug, Default)]
struct Group {
    head: Remembered<Head>,
    counts: NodeCounts,
    held: Vec<HeldNode>,
    /// It failed, and was read since.
    settled: bool,
}

impl Groups {
    pub(super) fn new(run: &Path) -> Self {
        Self { run: run.to_owned(), open: BTreeMap::new(), uncounted: Vec::new(), done: 0 }
    }

    pub(super) fn completed(&mut self, unit: u32) {
        self.open.remove(&unit);
        self.uncounted.push(unit);
    }

    /// All that are completed if the DAG is over, since nobody may look again. Those that were stopped with it may still
    /// be writing their last words.
    pub(super) fn look(&mut self, ledger: &Ledger, over: bool) -> io::Result<()> {
        self.open.retain(|unit, _| is_open(ledger.status(*unit)));
        for (unit, status) in ledger.units().filter(|(_, status)| is_open(*status)) {
            let directory = layout::unit_directory(&self.run, unit);
            let group = self.open.entry(unit).or_default();
            group.look(&directory, unit, status == UnitStatus::Failed)?;
        }
        let most = if over { usize::MAX } else { MOST_COMPLETED };
        for _ in 0..most.min(self.uncounted.len()) {
            let Some(unit) = self.uncounted.last() else { break };
            let path = layout::unit_directory(&self.run, *unit).join(layout::GROUP_STATUS);
            self.done += read_head(&path)?.map_or(0, |head| head.done);
            self.uncounted.pop();
        }
        Ok(())
    }

    pub(super) fn counts(&self) -> NodeCounts {
        let mut sum = NodeCounts { done: self.done, ..NodeCounts::default() };
        for Group { counts, .. } in self.open.values() {
            sum.idle += counts.idle;
            sum.running += counts.running;
            sum.done += counts.done;
            sum.failed += counts.failed;
            sum.held += counts.held;
        }
        sum
    }

    pub(super) fn held(&self) -> impl Iterator<Item = &HeldNode> {
        self.open.values().flat_map(|group| &group.held)
    }
}

fn is_open(status: UnitStatus) -> bool {
    matches!(status, UnitStatus::Active | UnitStatus::Failed)
}

impl Group {
    fn look(&mut self, directory: &Path, unit: u32, ended: bool) -> io::Result<()> {
        if self.settled && ended {
            return Ok(());
        }
        if self.head.refresh(&directory.join(layout::GROUP_STATUS), read_head)? {
            self.counts = match self.head.get() {
                Some(head) => counts(head, really_failed(directory, layout::GROUP_DAG, head)?),
                None => NodeCounts::default(),
            };
            self.held = match self.counts.held {
                0 => Vec::new(),
                _ => held_nodes(directory, Some(unit))?,
            };
        }
        self.settled = ended;
        Ok(())
    }
}

pub(super) fn read_head(path: &Path) -> io::Result<Option<Head>> {
    Ok(status::head(&beginning(path, status::HEAD_BYTES)?))
}

/// What was under way when a DAG was removed or aborted is among its failed nodes: its metrics know better.
pub(super) fn really_failed(directory: &Path, dag: &str, head: &Head) -> io::Result<u64> {
    if head.state != NodeState::Error || head.reason == "failed" || head.failed == 0 {
        return Ok(head.failed);
    }
    let metrics = metrics::parse(&whole(&directory.join(format!("{dag}{}", layout::METRICS)))?);
    Ok(metrics.map_or(0, |metrics| (metrics.jobs.failed + metrics.dags.failed).min(head.failed)))
}

/// A node is in one of five states; those in scripts are running, and what will not run for now is idle.
pub(super) fn counts(head: &Head, failed: u64) -> NodeCounts {
    let held = head.held_jobs.min(head.queued);
    let idle_jobs = head.idle_jobs.min(head.queued - held);
    NodeCounts {
        idle: head.ready + head.unready + head.futile + idle_jobs + (head.failed - failed),
        running: head.pre + head.post + (head.queued - held - idle_jobs),
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
        let head = Head {
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
            ..Head::default()
        };
        let counted = counts(&head, 1);
        assert_eq!(counted, NodeCounts { idle: 9, running: 6, done: 3, failed: 1, held: 1 });
        let sum = counted.idle + counted.running + counted.done + counted.failed + counted.held;
        assert_eq!(sum, head.total);
    }

    #[test]
    fn more_held_than_queued_is_no_underflow() {
        let head = Head { queued: 1, held_jobs: 2, idle_jobs: 3, ..Head::default() };
        assert_eq!(counts(&head, 0), NodeCounts { held: 1, ..NodeCounts::default() });
    }

    #[test]
    fn failures_of_an_aborted_group_come_from_its_metrics() {
        let directory = tempfile::tempdir().unwrap();
        let head = status::head(include_bytes!("../../tests/data/group.dag.status.aborted")).unwrap();
        let failed = || really_failed(directory.path(), layout::GROUP_DAG, &head).unwrap();
        assert_eq!(failed(), 0, "nothing is known of failures");
        let metrics = include_bytes!("../../tests/data/group.dag.metrics.aborted");
        std::fs::write(directory.path().join("group.dag.metrics"), metrics).unwrap();
        assert_eq!((failed(), head.failed), (1, 3));
        let plain = status::head(include_bytes!("../../tests/data/group.dag.status.failed")).unwrap();
        assert_eq!(really_failed(directory.path(), layout::GROUP_DAG, &plain).unwrap(), plain.failed);
    }
}
