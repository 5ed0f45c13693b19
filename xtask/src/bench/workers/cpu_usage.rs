//! CPU time of processes, as the kernel counts it in `/proc`.

use std::fmt;
use std::fs;

use anyhow::{Context, Result};

/// Ticks per second of the counters in `/proc/PID/stat`, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// In ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::bench) struct CpuUse {
    pub(in crate::bench) server: u64,
    pub(in crate::bench) database: u64,
    pub(in crate::bench) workers: u64,
    pub(in crate::bench) jobs: u64,
}

/// Milliseconds per job.
pub(in crate::bench) struct CpuPerJob(CpuUse, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    own: u64,
    /// CPU time of ended children that the process waited for.
    ended: u64,
}

impl CpuUse {
    /// `database` is a process whose children serve; the ended children of workers are jobs.
    pub(in crate::bench) fn look(server: u32, database: Option<u32>, workers: &[u32]) -> Result<Self> {
        let all = processes()?;
        let own = |tree: Vec<Process>| tree.iter().map(|process| process.own).sum::<u64>();
        let ended = |tree: &[Process]| tree.iter().map(|process| process.ended).sum::<u64>();
        let workers: Vec<Process> = workers.iter().flat_map(|pid| tree(&all, *pid)).collect();
        let database = database.map(|pid| tree(&all, pid)).unwrap_or_default();
        Ok(Self {
            server: own(tree(&all, server)),
            database: ended(&database) + own(database),
            jobs: ended(&workers),
            workers: own(workers),
        })
    }

    pub(in crate::bench) fn since(self, before: Self) -> Self {
        Self {
            server: self.server - before.server,
            database: self.database.saturating_sub(before.database),
            workers: self.workers - before.workers,
            jobs: self.jobs - before.jobs,
        }
    }

    pub(in crate::bench) fn per_job(self, jobs: usize) -> CpuPerJob {
        CpuPerJob(self, jobs)
    }
}

impl fmt::Display for CpuPerJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(CpuUse { server, database, workers, jobs }, count) = *self;
        let part = |ticks: u64| ticks as f64 / TICKS_PER_SECOND * 1e3 / count as f64;
        write!(f, "server {:.3}", part(server))?;
        if database > 0 {
            write!(f, "   database {:.3}", part(database))?;
        }
        write!(f, "   workers {:.3}   jobs {:.3}", part(workers), part(jobs))
    }
}

/// The process and its descendants that still exist.
fn tree(all: &[Process], root: u32) -> Vec<Process> {
    let mut found: Vec<Process> = all.iter().copied().filter(|process| process.pid == root).collect();
    let mut next = 0;
    while let Some(parent) = found.get(next).map(|process| process.pid) {
        found.extend(all.iter().filter(|process| process.parent == parent));
        next += 1;
    }
    found
}

fn processes() -> Result<Vec<Process>> {
    let entries = fs::read_dir("/proc").context("cannot read /proc")?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // Processes that end meanwhile are skipped.
    Ok(pids.filter_map(|pid| parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)).collect())
}

/// The name of a program may contain spaces and parentheses; the fields after it do not.
fn parse(stat: &str) -> Option<Process> {
    let pid = stat.split(' ').next()?.parse().ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        own: number(11)? + number(12)?,
        ended: number(13)? + number(14)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_counters_are_parsed_after_any_process_name() {
        let line = "17 (a b) c) S 4 17 17 0 -1 4194304 9 8 7 6 11 12 13 14 20 0 1 0 5";
        assert_eq!(parse(line), Some(Process { pid: 17, parent: 4, own: 23, ended: 27 }));
        assert_eq!(parse("17 (a"), None);
    }

    #[test]
    fn process_tree_has_all_descendants() {
        let process = |pid, parent| Process { pid, parent, own: 1, ended: 0 };
        let all = [process(1, 0), process(2, 1), process(3, 2), process(4, 1)];
        let pids = |root| tree(&all, root).iter().map(|process| process.pid).collect::<Vec<_>>();
        assert_eq!((pids(2), pids(1)), (vec![2, 3], vec![1, 2, 4, 3]));
    }
}
