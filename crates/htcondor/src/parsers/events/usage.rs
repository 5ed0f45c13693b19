//! Parser of the resource usage of a job in its events 004 and 005.
//!
//! ```text
//!         Usr 0 00:01:10, Sys 0 00:00:02  -  Run Remote Usage
//!     Partitionable Resources :    Usage  Request Allocated
//!        Cpus                 :                 1         1
//!        Memory (MB)          :   194          50       128
//! ```
//!
//! A cell may be empty, so a number belongs to the column whose title ends where the number ends, or after it.

use super::parse_digits;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobUsage {
    /// On the machine where it ran, in this execution.
    pub cpu: Option<JobCpuTime>,
    /// By the name in the table without its unit: `Cpus`, `Disk`, `Memory`, `TimeExecute`.
    pub resources: BTreeMap<String, ResourceAmounts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCpuTime {
    pub user_seconds: u64,
    pub system_seconds: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResourceAmounts {
    pub used: Option<f64>,
    pub requested: Option<f64>,
    pub allocated: Option<f64>,
}

impl JobUsage {
    pub(super) fn from_lines(lines: &[&str]) -> Self {
        let mut usage = Self::default();
        let mut columns = None;
        for line in lines {
            if let Some(found) = UsageColumns::from_header(line) {
                columns = Some(found);
            } else if let Some(columns) = &columns {
                usage.resources.extend(columns.parse_row(line));
            } else if let Some(cpu) = parse_remote_cpu(line) {
                usage.cpu = Some(cpu);
            }
        }
        usage
    }

    /// Memory in MB: used, requested and allocated.
    pub fn memory(&self) -> ResourceAmounts {
        self.resources.get("Memory").copied().unwrap_or_default()
    }
}

/// Where the column titles of the table end.
struct UsageColumns {
    used: usize,
    requested: usize,
    allocated: usize,
}

impl UsageColumns {
    fn from_header(line: &str) -> Option<Self> {
        if !line.trim_start().starts_with("Partitionable Resources") {
            return None;
        }
        let end = |title: &str| line.find(title).map(|start| start + title.len());
        Some(Self { used: end("Usage")?, requested: end("Request")?, allocated: end("Allocated")? })
    }

    fn parse_row(&self, line: &str) -> Option<(String, ResourceAmounts)> {
        let colon = line.find(" : ")?;
        let name = line[..colon].trim().split(" (").next().filter(|name| !name.is_empty())?;
        let mut amounts = ResourceAmounts::default();
        for (end, cell) in split_cells(line, colon + 3) {
            let column = if end <= self.used {
                &mut amounts.used
            } else if end <= self.requested {
                &mut amounts.requested
            } else if end <= self.allocated {
                &mut amounts.allocated
            } else {
                // Names of assigned devices.
                break;
            };
            *column = cell.parse().ok().filter(|amount: &f64| amount.is_finite());
        }
        Some((name.to_owned(), amounts))
    }
}

/// The words of a line from `start`, each with its end position in the line.
fn split_cells(line: &str, start: usize) -> impl Iterator<Item = (usize, &str)> {
    let mut end = start;
    line[start..].split(' ').filter_map(move |cell| {
        let here = end + cell.len();
        end = here + 1;
        (!cell.is_empty()).then_some((here, cell))
    })
}

/// `Usr 0 00:01:10, Sys 0 00:00:02  -  Run Remote Usage`
fn parse_remote_cpu(line: &str) -> Option<JobCpuTime> {
    let (user, system) = line.trim().strip_suffix("  -  Run Remote Usage")?.split_once(", ")?;
    Some(JobCpuTime {
        user_seconds: parse_seconds(user.strip_prefix("Usr ")?)?,
        system_seconds: parse_seconds(system.strip_prefix("Sys ")?)?,
    })
}

/// Parses `1 02:03:04`: days and time of day.
fn parse_seconds(text: &str) -> Option<u64> {
    let (days, clock) = text.split_once(' ')?;
    let mut parts = clock.splitn(3, ':').map(parse_digits);
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    let minutes =
        parse_digits(days)?.checked_mul(24)?.checked_add(hours)?.checked_mul(60)?.checked_add(minutes)?;
    minutes.checked_mul(60)?.checked_add(seconds)
}
