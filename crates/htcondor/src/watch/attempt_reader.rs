//! Reads finished attempts from where they were last read: how many at each site, and which of them failed.

use super::growing_log::{GrowingLogItem, GrowingLogReader};
use crate::attempt_log::AttemptLogLine;
use crate::file_layout;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::Path;
use windlass_core::requests::failures::{RoleCounts, UNKNOWN_SITE};

/// The logs of this many failures are kept; of further ones only the fact that they failed.
const MAX_KEPT_LOGS: usize = 200;

/// This many of the last attempts of a unit are remembered. Duplicates come from scripts that ran when DAGMan of
/// the unit died, and it runs at most twenty at once (`DAGMAN_MAX_POST_SCRIPTS`).
const MAX_REMEMBERED: usize = 64;

/// A failed attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedNodeAttempt {
    /// Increases with each attempt, also across restarts and rescues: the position of its line.
    pub seq: i64,
    /// The line; its `failure` is set.
    pub line: AttemptLogLine,
}

#[derive(Debug)]
pub(super) struct AttemptReader {
    tail: GrowingLogReader,
    /// Counts and remembered attempts; the same for every reader of the file.
    index: AttemptIndex,
    /// Failures that were not returned yet.
    new_failures: Vec<FailedNodeAttempt>,
    /// The number of the last attempt that was handled before this reader started.
    last_reported: i64,
}

#[derive(Debug, Default)]
struct AttemptIndex {
    /// The last attempts of each unfinished unit, so that duplicates count once. A hash of each: there are
    /// thousands in a run, and hundreds of runs.
    recent_by_unit: HashMap<u32, VecDeque<u64>>,
    ended_by_site: BTreeMap<String, RoleCounts>,
    /// Added to positions, so that numbers keep increasing although the file was replaced.
    sequence_offset: i64,
}

impl AttemptReader {
    pub(super) fn new(run: &Path) -> Self {
        let tail = GrowingLogReader::new(run.join(file_layout::ATTEMPTS_FILE));
        Self { tail, index: AttemptIndex::default(), new_failures: Vec::new(), last_reported: 0 }
    }

    /// Only failures after this one are returned.
    pub(super) fn report_after(&mut self, last_reported: i64) {
        self.last_reported = last_reported;
        let length = std::fs::metadata(self.tail.path()).map_or(0, |metadata| metadata.len());
        if i64::try_from(length).is_ok_and(|length| length < last_reported) {
            // The last handled line lies beyond the end of the file: the file was replaced, and all of it is
            // new.
            self.index.sequence_offset = last_reported;
        }
    }

    pub(super) fn read_new_lines(&mut self) -> io::Result<()> {
        let Self { tail, index, new_failures: updates, last_reported: told } = self;
        tail.read_new(|piece| match piece {
            GrowingLogItem::Replaced => {
                let shift = updates.last().map_or(*told, |last: &FailedNodeAttempt| last.seq.max(*told));
                *index = AttemptIndex { sequence_offset: shift, ..AttemptIndex::default() };
            }
            GrowingLogItem::Line { end, text } => {
                let Some(mut failed) = index.add_line(end, text).filter(|failed| failed.seq > *told) else {
                    return;
                };
                if updates.len() >= MAX_KEPT_LOGS
                    && let Some(failure) = &mut failed.line.failure
                {
                    failure.log_tail = String::new();
                }
                updates.push(failed);
            }
        })
    }

    /// Finished units have no further attempts.
    pub(super) fn forget_units(&mut self, is_over: impl Fn(u32) -> bool) {
        let last = &mut self.index.recent_by_unit;
        last.retain(|unit, _| !is_over(*unit));
        if last.capacity() > 4 * last.len().max(16) {
            last.shrink_to_fit();
        }
    }

    /// Failures that were not returned before.
    pub(super) fn take_new_failures(&mut self) -> Vec<FailedNodeAttempt> {
        let updates = std::mem::take(&mut self.new_failures);
        self.last_reported = updates.last().map_or(self.last_reported, |last| last.seq);
        updates
    }

    /// How many attempts have ended at each site, successful or not.
    pub(super) fn ended_by_site(&self) -> &BTreeMap<String, RoleCounts> {
        &self.index.ended_by_site
    }
}

impl AttemptIndex {
    /// Parses a line; returns it if it is new and a failure.
    fn add_line(&mut self, end: u64, text: &[u8]) -> Option<FailedNodeAttempt> {
        let line: AttemptLogLine = serde_json::from_slice(text).ok()?;
        if !self.record_attempt(&line) {
            return None;
        }
        let site = line.site.clone().filter(|site| !site.is_empty());
        let ended = self.ended_by_site.entry(site.unwrap_or_else(|| UNKNOWN_SITE.to_owned())).or_default();
        ended.add_attempts(file_layout::node_role(&line.node), 1);
        let seq = self.sequence_offset.saturating_add(i64::try_from(end).unwrap_or(i64::MAX));
        line.failure.is_some().then_some(FailedNodeAttempt { seq, line })
    }

    /// False if it is a duplicate.
    fn record_attempt(&mut self, line: &AttemptLogLine) -> bool {
        let mut hasher = DefaultHasher::new();
        (&line.node, &line.job, line.attempt).hash(&mut hasher);
        let attempt = hasher.finish();
        let last = self.recent_by_unit.entry(line.unit).or_default();
        if last.contains(&attempt) {
            return false;
        }
        if last.len() >= MAX_REMEMBERED {
            last.pop_front();
        }
        last.push_back(attempt);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt_log::FailureLine;
    use windlass_types::requests::NodeRole;
    use windlass_types::{FailureClass, Timestamp};

    fn line(unit: u32, job: &str, attempt: u32, site: Option<&str>, fails: bool) -> AttemptLogLine {
        let failure = FailureLine {
            role: NodeRole::Processing,
            class: FailureClass::Data,
            code: 8021,
            why: "cannot be read".into(),
            is_final: false,
            bad_files: vec!["/store/a".into()],
            log_tail: "x".repeat(10),
            memory_mb: None,
            at: Timestamp(7),
        };
        AttemptLogLine {
            unit,
            node: "proc_000000".into(),
            job: job.into(),
            attempt,
            site: site.map(str::to_owned),
            failure: fails.then_some(failure),
        }
    }

    fn look(attempts: &mut AttemptReader) -> Vec<(i64, String)> {
        attempts.read_new_lines().unwrap();
        attempts.take_new_failures().into_iter().map(|failed| (failed.seq, failed.line.job)).collect()
    }

    #[test]
    fn repeated_attempt_lines_count_once() {
        let run = tempfile::tempdir().unwrap();
        let mut attempts = AttemptReader::new(run.path());
        assert_eq!(look(&mut attempts), []);
        let append = |line: &AttemptLogLine| line.append(run.path()).unwrap();
        append(&line(1, "32.0", 1, Some("T2_A"), true));
        append(&line(1, "32.0", 1, Some("T2_A"), true));
        append(&line(2, "33.0", 1, Some("T2_A"), false));
        append(&line(1, "34.0", 2, None, true));
        let updates = look(&mut attempts);
        assert_eq!(updates.iter().map(|(_, job)| job.as_str()).collect::<Vec<_>>(), ["32.0", "34.0"]);
        assert!(updates[0].0 < updates[1].0);
        append(&AttemptLogLine { node: "landing".into(), ..line(3, "35.0", 1, Some("T2_A"), false) });
        assert_eq!(look(&mut attempts), []);
        let ended = |landing, processing| RoleCounts { landing, processing, ..RoleCounts::default() };
        let expected = BTreeMap::from([("T2_A".into(), ended(1, 2)), ("unknown".into(), ended(0, 1))]);
        assert_eq!(attempts.ended_by_site(), &expected);
        assert_eq!(look(&mut attempts), [], "nothing was appended since");
        // A reader that starts later knows how far the file was read.
        let mut later = AttemptReader::new(run.path());
        later.report_after(updates[0].0);
        assert_eq!(look(&mut later), updates[1..]);
        assert_eq!(later.ended_by_site(), attempts.ended_by_site());
    }

    #[test]
    fn remembered_attempts_are_limited() {
        let run = tempfile::tempdir().unwrap();
        let append = |line: &AttemptLogLine| line.append(run.path()).unwrap();
        let mut attempts = AttemptReader::new(run.path());
        for job in 0..10 * MAX_REMEMBERED {
            append(&line(1, &format!("{job}.0"), 1, Some("T2_A"), false));
        }
        for job in 10 * MAX_REMEMBERED - 20..10 * MAX_REMEMBERED {
            append(&line(1, &format!("{job}.0"), 1, Some("T2_A"), false));
        }
        for unit in 2..100 {
            append(&line(unit, "7.0", 1, Some("T2_A"), false));
        }
        attempts.read_new_lines().unwrap();
        let all = 10 * MAX_REMEMBERED as u64 + 98;
        assert_eq!(
            attempts.ended_by_site(),
            &BTreeMap::from([("T2_A".into(), RoleCounts::for_role(NodeRole::Processing, all))]),
            "duplicates of scripts that ran twice"
        );
        assert_eq!(attempts.index.recent_by_unit[&1].len(), MAX_REMEMBERED);
        attempts.forget_units(|unit| unit != 99);
        assert_eq!(attempts.index.recent_by_unit.keys().collect::<Vec<_>>(), [&99]);
        append(&line(99, "7.0", 1, Some("T2_A"), false));
        append(&line(1, "9000.0", 1, Some("T2_A"), false));
        attempts.read_new_lines().unwrap();
        assert_eq!(
            attempts.ended_by_site()["T2_A"].total(),
            all + 1,
            "one was read before, one is of a rescue"
        );
    }

    #[test]
    fn invalid_lines_are_skipped_and_a_new_file_is_read_anew() {
        let run = tempfile::tempdir().unwrap();
        let path = run.path().join(file_layout::ATTEMPTS_FILE);
        std::fs::write(&path, "{\"unit\":1,\"no\n\n[]\n").unwrap();
        line(1, "32.0", 1, Some("T2_A"), true).append(run.path()).unwrap();
        let mut attempts = AttemptReader::new(run.path());
        let first = look(&mut attempts);
        assert_eq!(first.len(), 1);
        std::fs::remove_file(&path).unwrap();
        line(1, "40.0", 1, Some("T2_B"), true).append(run.path()).unwrap();
        let second = look(&mut attempts);
        assert_eq!(second.len(), 1);
        assert!(second[0].0 > first[0].0, "{second:?} after {first:?}");
        assert_eq!(
            attempts.ended_by_site(),
            &BTreeMap::from([("T2_B".into(), RoleCounts::for_role(NodeRole::Processing, 1))])
        );
        let mut later = AttemptReader::new(run.path());
        later.report_after(1_000_000);
        assert_eq!(look(&mut later).len(), 1, "the last handled line is beyond its end");
    }

    #[test]
    fn number_of_kept_failure_logs_is_limited() {
        let run = tempfile::tempdir().unwrap();
        for unit in 0..=(MAX_KEPT_LOGS as u32) {
            line(unit, &format!("{unit}.0"), 1, Some("T2_A"), true).append(run.path()).unwrap();
        }
        let mut attempts = AttemptReader::new(run.path());
        attempts.read_new_lines().unwrap();
        let updates = attempts.take_new_failures();
        let has_log = |failed: &FailedNodeAttempt| !failed.line.failure.as_ref().unwrap().log_tail.is_empty();
        assert_eq!(updates.iter().filter(|failed| has_log(failed)).count(), MAX_KEPT_LOGS);
        assert_eq!(updates.len(), MAX_KEPT_LOGS + 1);
    }
}
