//! The usage of processes of a job that their parents did not wait for.
//!
//! The usage of a job's first process includes that of all descendants that were waited for. Others become
//! children of this worker when their parents end, for example when a whole tree is killed, and are counted
//! when this worker reaps them.

use std::collections::HashSet;
use std::time::Duration;
use windlass_process::Pid;
use windlass_process::child_wait::ReapedChild;
use windlass_process::procfs::ProcessStat;
use windlass_types::Bytes;

#[derive(Debug, Default)]
pub(crate) struct OrphanUsage {
    /// The first process of the running job, if any.
    leader: Option<Pid>,
    /// Its processes at the last scan: a process that left the group cannot be attributed after its end.
    processes: HashSet<Pid>,
    pub(crate) cpu_time: Duration,
    /// The memory peak of the largest of them.
    pub(crate) max_rss: Bytes,
}

impl OrphanUsage {
    pub(crate) fn start_job(&mut self, leader: Pid) {
        *self = Self { leader: Some(leader), ..Self::default() };
    }

    /// Ends the accounting of a job.
    pub(crate) fn take_totals(&mut self) -> Self {
        std::mem::take(self)
    }

    pub(crate) fn record_processes(&mut self, members: &[Pid]) {
        self.processes.clear();
        self.processes.extend(members);
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.leader.is_some()
    }

    /// Whether an ended process belonged to the job.
    pub(crate) fn is_of_job(&self, pid: Pid, stat: Option<&ProcessStat>) -> bool {
        let leader = self.leader.map(|leader| leader.as_raw_nonzero().get());
        let is_of =
            |stat: &ProcessStat| leader.is_some_and(|leader| [stat.group, stat.session].contains(&leader));
        self.processes.contains(&pid) || stat.is_some_and(is_of)
    }

    pub(crate) fn add_reaped(&mut self, reaped: &ReapedChild) {
        self.cpu_time = self.cpu_time.saturating_add(reaped.cpu_time);
        self.max_rss = self.max_rss.max(reaped.max_rss);
    }
}
