//! PURE: the states of the units according to the job state log of the outer DAG.

use super::dag_state::RESTART_EXIT_CODE;
use crate::file_layout;
use crate::parsers::jobstate::{JobstateEntry, JobstateLine, JobstateNodeLine, JobstateStep};
use std::collections::BTreeMap;
use windlass_types::requests::RequestUnitStatus;

#[derive(Debug, Default)]
pub(super) struct UnitStates {
    units: BTreeMap<u32, RequestUnitStatus>,
    completed: u32,
    failed: u32,
    /// The DAGMan that wrote the lines read last.
    dagman: Option<u64>,
    /// It ended by itself and will not continue.
    is_finished: bool,
}

impl UnitStates {
    pub(super) fn completed(&self) -> u32 {
        self.completed
    }

    pub(super) fn failed(&self) -> u32 {
        self.failed
    }

    pub(super) fn dagman(&self) -> Option<u64> {
        self.dagman
    }

    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }

    pub(super) fn status(&self, unit: u32) -> RequestUnitStatus {
        self.units.get(&unit).copied().unwrap_or(RequestUnitStatus::Waiting)
    }

    pub(super) fn units(&self) -> impl Iterator<Item = (u32, RequestUnitStatus)> {
        self.units.iter().map(|(unit, status)| (*unit, *status))
    }

    /// The unit that ends with this line, and its outcome.
    pub(super) fn apply_line(&mut self, line: &JobstateLine<'_>) -> Option<(u32, RequestUnitStatus)> {
        match &line.entry {
            JobstateEntry::Started { cluster } => self.on_dagman_started(*cluster),
            // Whether the run has ended is decided elsewhere.
            JobstateEntry::Finished { exit_code: exit } => self.is_finished = *exit != RESTART_EXIT_CODE,
            // After a recovery it continues.
            JobstateEntry::RecoveryStarted | JobstateEntry::RecoveryFinished => {}
            JobstateEntry::Node(line) => return self.on_node_line(line),
        }
        None
    }

    /// True if it was not known to be completed.
    pub(super) fn mark_completed(&mut self, unit: u32) -> bool {
        self.set_status(unit, RequestUnitStatus::Completed)
    }

    /// A DAGMan with another id is a rescue: units that were not completed are tried again. With the same id it
    /// continues.
    fn on_dagman_started(&mut self, cluster: u64) {
        self.is_finished = false;
        if self.dagman.replace(cluster) != Some(cluster) {
            self.units.retain(|_, status| *status == RequestUnitStatus::Completed);
            self.failed = 0;
        }
    }

    fn on_node_line(&mut self, line: &JobstateNodeLine<'_>) -> Option<(u32, RequestUnitStatus)> {
        let unit = file_layout::unit_number(line.node)?;
        let status = match line.step {
            JobstateStep::PreStarted | JobstateStep::Submitted | JobstateStep::Executing => {
                RequestUnitStatus::Active
            }
            JobstateStep::PostSucceeded => RequestUnitStatus::Completed,
            // After a failed PRE script there is no job and no POST script.
            JobstateStep::PostFailed | JobstateStep::PreFailed => RequestUnitStatus::Failed,
            // The POST script decides about the exit of its job.
            _ => return None,
        };
        (self.set_status(unit, status) && status != RequestUnitStatus::Active).then_some((unit, status))
    }

    /// True if it is new. A completed unit stays completed: no rescue runs it again.
    fn set_status(&mut self, unit: u32, status: RequestUnitStatus) -> bool {
        let before = self.units.get(&unit).copied();
        if before == Some(RequestUnitStatus::Completed) || before == Some(status) {
            return false;
        }
        self.failed -= u32::from(before == Some(RequestUnitStatus::Failed));
        self.failed += u32::from(status == RequestUnitStatus::Failed);
        self.completed += u32::from(status == RequestUnitStatus::Completed);
        self.units.insert(unit, status);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsers::jobstate;

    const RESCUED: &[u8] = include_bytes!("../../tests/data/rescued.workflow.jobstate");

    fn read(log: &[u8]) -> (UnitStates, Vec<(u32, RequestUnitStatus)>) {
        let mut ledger = UnitStates::default();
        let updates = jobstate::parse_lines(log).filter_map(|line| ledger.apply_line(&line)).collect();
        (ledger, updates)
    }

    #[test]
    fn failed_unit_is_completed_by_a_rescue() {
        let (ledger, updates) = read(RESCUED);
        assert_eq!(
            updates,
            [
                (1, RequestUnitStatus::Failed),
                (0, RequestUnitStatus::Completed),
                (1, RequestUnitStatus::Completed)
            ]
        );
        assert_eq!((ledger.completed(), ledger.failed()), (2, 0));
        assert_eq!((ledger.dagman(), ledger.is_finished()), (Some(58), true));
    }

    #[test]
    fn rescue_starts_without_failed_units() {
        let text = str::from_utf8(RESCUED).unwrap();
        let begun = text.find("58.0 ***\n").unwrap();
        let (before, _) = read(&RESCUED[..begun]);
        assert_eq!((before.completed(), before.failed()), (1, 1));
        let (after, _) = read(&RESCUED[..begun + 9]);
        assert_eq!((after.completed(), after.failed()), (1, 0));
        assert_eq!(after.status(1), RequestUnitStatus::Waiting);
    }

    #[test]
    fn release_keeps_the_unit_states() {
        let log = b"1 INTERNAL *** DAGMAN_STARTED 7.0 ***\n1 mg_000003 SUBMIT 8.0 - - 1\n\
            2 mg_000004 POST_SCRIPT_FAILURE 9.0 - - 2\n2 INTERNAL *** DAGMAN_FINISHED 3 ***\n\
            3 INTERNAL *** DAGMAN_STARTED 7.0 ***\n3 INTERNAL *** RECOVERY_STARTED ***\n";
        let (ledger, _) = read(log);
        assert_eq!(
            (ledger.status(3), ledger.status(4)),
            (RequestUnitStatus::Active, RequestUnitStatus::Failed)
        );
        assert_eq!((ledger.failed(), ledger.is_finished()), (1, false));
    }

    #[test]
    fn repeated_unit_ends_give_one_update() {
        let mut log = RESCUED.to_vec();
        log.extend_from_slice(
            b"9 mg_000001 POST_SCRIPT_SUCCESS 59.0 - - 3\n9 mg_000001 POST_SCRIPT_FAILURE 59.0 - - 3\n",
        );
        assert_eq!(read(&log).1, read(RESCUED).1);
        let (mut ledger, _) = read(RESCUED);
        assert!(!ledger.mark_completed(1));
        assert!(ledger.mark_completed(2));
        assert_eq!(ledger.completed(), 3);
    }

    #[test]
    fn nodes_of_a_spec_are_not_units() {
        let (ledger, updates) = read(b"1 train POST_SCRIPT_SUCCESS 59.0 - - 3\n");
        assert_eq!((ledger.units().count(), updates.len()), (0, 0));
    }
}
