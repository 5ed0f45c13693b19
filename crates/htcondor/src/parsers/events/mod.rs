//! Parser of event logs (`NAME.dag.nodes.log`, `NAME.dag.dagman.log`), which record the life of each job.
//!
//! ```text
//! 012 (108.000.000) 2026-11-15 06:22:29 Job was held.
//!     Error from slot1_1@host: memory usage exceeded request_memory
//!     Code 21 Subcode 102
//! ...
//! ```
//!
//! An event is complete when the line of three dots after it is complete. The lines after its head are indented,
//! so a head in the middle of an event means that the writer died there; the event before it is dropped.

mod event_body;
mod job_events;
mod usage;

#[cfg(test)]
pub(super) use job_events::find_job_events;
pub use job_events::{JobEvents, read_job_events, read_job_events_within};
pub use usage::{JobCpuTime, JobUsage, ResourceAmounts};

use super::parse_digits;
use std::collections::BTreeMap;

/// The line that ends an event, with the end of the line before it.
pub(super) const EVENT_END: &[u8] = b"\n...\n";

#[derive(Clone, Debug, PartialEq)]
pub struct CondorEvent {
    pub cluster: u64,
    pub process: u32,
    /// Seconds in the local time of the machine that wrote it, as if that were UTC: only the difference between
    /// two of them is meaningful. `None` if it is not a time.
    pub at: Option<i64>,
    pub kind: CondorEventKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CondorEventKind {
    /// 000
    Submitted { node: Option<String> },
    /// 001, with the attributes in `ulog_execute_attrs`.
    Executing { slot: Option<String>, attributes: BTreeMap<String, String> },
    /// 004: the job left its machine, to run again or to be held or removed.
    Evicted { reason: Option<String>, usage: JobUsage },
    /// 005
    Terminated { exit: JobExit, usage: JobUsage },
    /// 009: removed from the queue.
    Aborted { reason: Option<String> },
    /// 012
    Held(JobHold),
    /// 013
    Released { reason: Option<String> },
    /// 016
    PostScript { exit: JobExit, node: Option<String> },
    /// All others: the number and the line with the details.
    Other { number: u16, text: Option<String> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobExit {
    Code(i32),
    Signal(i32),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct JobHold {
    pub reason: String,
    pub code: i32,
    pub subcode: i32,
}

impl std::fmt::Display for JobHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (code {}, subcode {})", self.reason, self.code, self.subcode)
    }
}

/// Returns all complete events, in the order of the log.
pub fn parse_events(log: &[u8]) -> Vec<CondorEvent> {
    let mut events = Vec::new();
    let mut rest = log;
    while let Some((event, after)) = split_event(rest) {
        events.extend(parse_event(event));
        rest = after;
    }
    events
}

/// Splits at the next line of dots.
fn split_event(log: &[u8]) -> Option<(&[u8], &[u8])> {
    // Dots at the very beginning end an event whose other lines are missing.
    if let Some(rest) = log.strip_prefix(&EVENT_END[1..]) {
        return Some((&[], rest));
    }
    let end = memchr::memmem::find(log, EVENT_END)?;
    Some((&log[..end], &log[end + EVENT_END.len()..]))
}

/// Parses an event without its dots. If there are several heads, the last one counts: see the header of this
/// file.
fn parse_event(text: &[u8]) -> Option<CondorEvent> {
    let text = String::from_utf8_lossy(text);
    let mut head = None;
    let mut lines = Vec::new();
    for line in text.split('\n') {
        if let Some(found) = EventHeader::parse(line) {
            head = Some(found);
            lines.clear();
        } else {
            lines.push(line);
        }
    }
    let head = head?;
    Some(CondorEvent {
        cluster: head.cluster,
        process: head.process,
        at: head.at,
        kind: event_body::parse_body(head.number, &lines)?,
    })
}

/// `005 (1499.000.000) 2026-11-15 06:19:01 Job terminated.`
struct EventHeader {
    number: u16,
    cluster: u64,
    process: u32,
    at: Option<i64>,
}

impl EventHeader {
    fn parse(line: &str) -> Option<Self> {
        let (number, rest) = line.split_once(" (")?;
        if number.len() != 3 {
            return None;
        }
        let (id, rest) = rest.split_once(") ")?;
        let mut parts = id.split('.').map(parse_digits);
        let (cluster, process) = (parts.next()??, parts.next()??);
        parts.next()??;
        Some(Self {
            number: parse_digits(number)?.try_into().ok()?,
            cluster,
            process: process.try_into().ok()?,
            at: parse_time(rest),
        })
    }
}

/// Parses `2026-11-15 06:19:01`, perhaps with fractions of a second. Logs in the old style, `11/15 06:19:01`,
/// have no year.
fn parse_time(text: &str) -> Option<i64> {
    let date = text.get(..10)?;
    let clock = text.get(11..19)?;
    let mut date = date.splitn(3, '-').map(parse_digits);
    let mut clock = clock.splitn(3, ':').map(parse_digits);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (hours, minutes, seconds) = (clock.next()??, clock.next()??, clock.next()??);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    let days = days_since_1970(year.cast_signed(), month.cast_signed(), day.cast_signed());
    Some(days * 86_400 + (hours * 3_600 + minutes * 60 + seconds).cast_signed())
}

/// A calendar whose years begin in March, so that the leap day is the last one.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests;
