//! Reads the events of one job backwards from the end of a log.
//!
//! A POST script asks about a job that just ended, in a log that all nodes of its DAG write. The relevant events
//! are near the end, however long the log has grown; so the end is read first, and reading stops at the event
//! that says that the job was submitted.

use super::{
    CondorEvent, CondorEventKind, EVENT_END, EventHeader, JobExit, JobHold, JobUsage, parse_event,
    split_event,
};
use memchr::memmem;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Large enough for the last events of a job, and small enough that the buffer of one piece is reused for the
/// next: allocating more memory takes longer than reading.
const CHUNK_BYTES: u64 = 64 * 1024;
/// An event is a few hundred bytes. A longer text without an end is not an event.
const MAX_EVENT_BYTES: usize = 1024 * 1024;

/// The events of one job, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobEvents(pub Vec<CondorEvent>);

/// Reads the events of a cluster since it was last submitted. Empty if the log does not mention it.
pub fn read_job_events(log: &Path, cluster: u64) -> io::Result<JobEvents> {
    read_job_events_within(log, cluster, u64::MAX)
}

/// The same, but reads not much more than `reach` bytes before the latest event of the job: it may have started
/// long ago, and ten thousand other jobs have written since.
pub fn read_job_events_within(log: &Path, cluster: u64, reach: u64) -> io::Result<JobEvents> {
    let file = File::open(log)?;
    let length = file.metadata()?.len();
    search_backwards(cluster, length, reach, |bytes, begin| file.read_exact_at(bytes, begin))
}

/// Reads backwards from the end of a log of this length.
fn search_backwards(
    cluster: u64,
    length: u64,
    reach: u64,
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<JobEvents> {
    let mut search = BackwardSearch::new(cluster);
    let mut begin = length;
    let mut reached = 0;
    while begin > 0 && !search.found_submission() && reached < reach {
        let length = CHUNK_BYTES.min(begin);
        begin -= length;
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        read(&mut bytes, begin)?;
        search.prepend(bytes, begin == 0);
        if !search.found.is_empty() {
            reached += length;
        }
    }
    Ok(search.finish())
}

/// The same for a log in memory.
#[cfg(test)]
pub(in crate::parsers) fn find_job_events(log: &[u8], cluster: u64, reach: u64) -> JobEvents {
    let read = |bytes: &mut [u8], begin: u64| {
        let begin = usize::try_from(begin).unwrap();
        bytes.copy_from_slice(&log[begin..begin + bytes.len()]);
        Ok(())
    };
    search_backwards(cluster, log.len() as u64, reach, read).unwrap()
}

impl JobEvents {
    /// How the job ended; `None` if it was removed or has not ended.
    pub fn exit(&self) -> Option<JobExit> {
        self.find_latest(
            |what| if let CondorEventKind::Terminated { exit, .. } = what { Some(*exit) } else { None },
        )
    }

    /// Why it was last held, even if it was released or removed since.
    pub fn last_hold(&self) -> Option<&JobHold> {
        self.find_latest(|what| if let CondorEventKind::Held(hold) = what { Some(hold) } else { None })
    }

    /// Why it was removed.
    pub fn removal(&self) -> Option<&str> {
        self.find_latest(|what| {
            if let CondorEventKind::Aborted { reason } = what { reason.as_deref() } else { None }
        })
    }

    /// An attribute that `ulog_execute_attrs` put into the log at the last execution.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.find_latest(|what| match what {
            CondorEventKind::Executing { attributes, .. } => Some(attributes.get(name).map(String::as_str)),
            _ => None,
        })?
    }

    /// Whether it has ever run on a machine, as far as the log says.
    pub fn has_run(&self) -> bool {
        let was_there = |what: &CondorEventKind| {
            matches!(
                what,
                CondorEventKind::Executing { .. }
                    | CondorEventKind::Terminated { .. }
                    | CondorEventKind::Evicted { .. }
            )
        };
        self.0.iter().any(|event| was_there(&event.kind))
    }

    /// The slot of the last execution.
    pub fn slot(&self) -> Option<&str> {
        self.find_latest(|what| {
            if let CondorEventKind::Executing { slot, .. } = what { Some(slot.as_deref()) } else { None }
        })?
    }

    /// The resource usage of the last execution.
    pub fn usage(&self) -> Option<&JobUsage> {
        self.find_latest(|what| match what {
            CondorEventKind::Terminated { usage, .. } | CondorEventKind::Evicted { usage, .. } => Some(usage),
            _ => None,
        })
    }

    /// From the start of the last execution until it ended, was evicted or removed.
    pub fn wall_seconds(&self) -> Option<u64> {
        let begun =
            self.0.iter().rposition(|event| matches!(event.kind, CondorEventKind::Executing { .. }))?;
        let ended = self.0[begun..].iter().find(|event| {
            matches!(
                event.kind,
                CondorEventKind::Terminated { .. }
                    | CondorEventKind::Evicted { .. }
                    | CondorEventKind::Aborted { .. }
            )
        })?;
        u64::try_from(ended.at? - self.0[begun].at?).ok()
    }

    /// The number of executions.
    pub fn executions(&self) -> usize {
        self.0.iter().filter(|event| matches!(event.kind, CondorEventKind::Executing { .. })).count()
    }

    /// The latest event for which `of` returns a value.
    fn find_latest<'a, T>(&'a self, of: impl Fn(&'a CondorEventKind) -> Option<T>) -> Option<T> {
        self.0.iter().rev().find_map(|event| of(&event.kind))
    }
}

/// A log that is read piece by piece, the last piece first.
pub(super) struct BackwardSearch {
    cluster: u64,
    /// The text after the number in the head of an event of this job. Ids have at least three digits.
    id_finder: memmem::Finder<'static>,
    /// Latest first.
    found: Vec<CondorEvent>,
    /// The beginning of the last piece: its event starts in the piece that is read next.
    partial_event: Vec<u8>,
}

impl BackwardSearch {
    pub(super) fn new(cluster: u64) -> Self {
        let id_finder = memmem::Finder::new(&format!(" ({cluster:03}.")).into_owned();
        Self { cluster, id_finder, found: Vec::new(), partial_event: Vec::new() }
    }

    pub(super) fn found_submission(&self) -> bool {
        self.found.last().is_some_and(|event| matches!(event.kind, CondorEventKind::Submitted { .. }))
    }

    pub(super) fn prepend(&mut self, mut piece: Vec<u8>, first: bool) {
        piece.append(&mut self.partial_event);
        // The text before the first dots may start in the next piece.
        let whole = if first {
            0
        } else {
            memmem::find(&piece, EVENT_END).map_or(piece.len(), |dots| dots + EVENT_END.len())
        };
        self.scan_events(&piece[whole..]);
        // Dots may be cut in two: keep them with the open event.
        piece.truncate(whole);
        if piece.len() <= MAX_EVENT_BYTES {
            self.partial_event = piece;
        }
    }

    /// Complete events, and perhaps an incomplete one at the end. Most belong to other jobs and are not even
    /// split.
    fn scan_events(&mut self, events: &[u8]) {
        // Searching forwards is several times as fast as searching backwards.
        let heads: Vec<usize> = self.id_finder.find_iter(events).collect();
        let mut end = events.len();
        for id in heads.into_iter().rev() {
            if self.found_submission() {
                return;
            }
            let begin = memchr::memrchr(b'\n', &events[..id]).map_or(0, |newline| newline + 1);
            // This line was already checked: it contains the id twice.
            if begin == end {
                continue;
            }
            let event = split_event(&events[begin..]).and_then(|(text, _)| parse_job_event(text));
            self.found.extend(event.filter(|event| event.cluster == self.cluster));
            end = begin;
        }
    }

    pub(super) fn finish(mut self) -> JobEvents {
        self.found.reverse();
        JobEvents(self.found)
    }
}

/// Parses an event whose first line is the head that was searched for. If its writer died, the lines after it
/// belong to another event.
fn parse_job_event(text: &[u8]) -> Option<CondorEvent> {
    let second_head = text
        .split(|byte| *byte == b'\n')
        .skip(1)
        .any(|line| EventHeader::parse(&String::from_utf8_lossy(line)).is_some());
    if second_head { None } else { parse_event(text) }
}
