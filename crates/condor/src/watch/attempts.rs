//! Attempts that have ended, read from where they were read last: how many at each site, and which of them failed.

use super::tail::{Piece, Tail};
use crate::attempts::AttemptLine;
use crate::layout;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::Path;
use windlass_core::requests::failures::{ByRole, UNKNOWN_SITE};

/// Of so many that nobody has dealt with the logs are kept; of the others it is enough to know that they failed.
const MOST_LOGS: usize = 200;

/// So many of the last attempts of a unit are known again. Those that are told twice are of scripts that ran when DAGMan of
/// the unit died, and it lets twenty run at once (`DAGMAN_MAX_POST_SCRIPTS`).
const KNOWN_AGAIN: usize = 64;

/// A failed attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedAttempt {
    /// Grows from one to the next, also over restarts and rescues: the place of its line.
    pub seq: i64,
    /// With its failure.
    pub line: AttemptLine,
}

#[derive(Debug)]
pub(super) struct Attempts {
    tail: Tail,
    /// What was read, as far as it does not depend on who looks.
    book: Book,
    /// What nobody was told of yet.
    news: Vec<FailedAttempt>,
    /// The number of the last one that was dealt with before this began to look.
    told: i64,
}

#[derive(Debug, Default)]
struct Book {
    /// The last attempts of each unit that is not over, so that one that is told twice counts once. A number that stands
    /// for each: there are thousands in a run, and hundreds of runs.
    last: HashMap<u32, VecDeque<u64>>,
    ended: BTreeMap<String, ByRole>,
    /// Added to places, so that numbers go on growing although the file is another one.
    shift: i64,
}

impl Attempts {
    pub(super) fn new(run: &Path) -> Self {
        let tail = Tail::new(run.join(layout::ATTEMPTS));
        Self { tail, book: Book::default(), news: Vec::new(), told: 0 }
    }

    /// Only failures after this one are news.
    pub(super) fn after(&mut self, told: i64) {
        self.told = told;
        let length = std::fs::metadata(self.tail.path()).map_or(0, |metadata| metadata.len());
        if i64::try_from(length).is_ok_and(|length| length < told) {
            // What was told lies beyond the end of the file: it is another one, and all of it is news.
            self.book.shift = told;
        }
    }

    pub(super) fn read(&mut self) -> io::Result<()> {
        let Self { tail, book, news, told } = self;
        tail.read(|piece| match piece {
            Piece::Anew => {
                let shift = news.last().map_or(*told, |last: &FailedAttempt| last.seq.max(*told));
                *book = Book { shift, ..Book::default() };
            }
            Piece::Line { end, text } => {
                let Some(mut failed) = book.take(end, text).filter(|failed| failed.seq > *told) else {
                    return;
                };
                if news.len() >= MOST_LOGS
                    && let Some(failure) = &mut failed.line.failure
                {
                    failure.log_tail = String::new();
                }
                news.push(failed);
            }
        })
    }

    /// Nothing more comes from units that are over.
    pub(super) fn forget(&mut self, is_over: impl Fn(u32) -> bool) {
        let last = &mut self.book.last;
        last.retain(|unit, _| !is_over(*unit));
        if last.capacity() > 4 * last.len().max(16) {
            last.shrink_to_fit();
        }
    }

    /// Failures that nobody was told of.
    pub(super) fn take_news(&mut self) -> Vec<FailedAttempt> {
        let news = std::mem::take(&mut self.news);
        self.told = news.last().map_or(self.told, |last| last.seq);
        news
    }

    /// How many attempts have ended at each site, well or not.
    pub(super) fn ended(&self) -> &BTreeMap<String, ByRole> {
        &self.book.ended
    }
}

impl Book {
    /// What a line tells that no line before it told; if that is a failure.
    fn take(&mut self, end: u64, text: &[u8]) -> Option<FailedAttempt> {
        let line: AttemptLine = serde_json::from_slice(text).ok()?;
        if !self.note(&line) {
            return None;
        }
        let site = line.site.clone().filter(|site| !site.is_empty());
        let ended = self.ended.entry(site.unwrap_or_else(|| UNKNOWN_SITE.to_owned())).or_default();
        ended.count(layout::role(&line.node), 1);
        let seq = self.shift.saturating_add(i64::try_from(end).unwrap_or(i64::MAX));
        line.failure.is_some().then_some(FailedAttempt { seq, line })
    }

    /// False if it was told before.
    fn note(&mut self, line: &AttemptLine) -> bool {
        let mut hasher = DefaultHasher::new();
        (&line.node, &line.job, line.attempt).hash(&mut hasher);
        let attempt = hasher.finish();
        let last = self.last.entry(line.unit).or_default();
        if last.contains(&attempt) {
            return false;
        }
        if last.len() >= KNOWN_AGAIN {
            last.pop_front();
        }
        last.push_back(attempt);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempts::FailureLine;
    use windlass_types::requests::NodeRole;
    use windlass_types::{FailureClass, Timestamp};

    fn line(unit: u32, job: &str, attempt: u32, site: Option<&str>, fails: bool) -> AttemptLine {
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
        AttemptLine {
            unit,
            node: "proc_000000".into(),
            job: job.into(),
            attempt,
            site: site.map(str::to_owned),
            failure: fails.then_some(failure),
        }
    }

    fn look(attempts: &mut Attempts) -> Vec<(i64, String)> {
        attempts.read().unwrap();
        attempts.take_news().into_iter().map(|failed| (failed.seq, failed.line.job)).collect()
    }

    #[test]
    fn what_is_told_twice_counts_once() {
        let run = tempfile::tempdir().unwrap();
        let mut attempts = Attempts::new(run.path());
        assert_eq!(look(&mut attempts), []);
        let append = |line: &AttemptLine| line.append(run.path()).unwrap();
        append(&line(1, "32.0", 1, Some("T2_A"), true));
        append(&line(1, "32.0", 1, Some("T2_A"), true));
        append(&line(2, "33.0", 1, Some("T2_A"), false));
        append(&line(1, "34.0", 2, None, true));
        let news = look(&mut attempts);
        assert_eq!(news.iter().map(|(_, job)| job.as_str()).collect::<Vec<_>>(), ["32.0", "34.0"]);
        assert!(news[0].0 < news[1].0);
        append(&AttemptLine { node: "landing".into(), ..line(3, "35.0", 1, Some("T2_A"), false) });
        assert_eq!(look(&mut attempts), []);
        let ended = |landing, processing| ByRole { landing, processing, ..ByRole::default() };
        let expected = BTreeMap::from([("T2_A".into(), ended(1, 2)), ("unknown".into(), ended(0, 1))]);
        assert_eq!(attempts.ended(), &expected);
        assert_eq!(look(&mut attempts), [], "nothing has come since");
        // Somebody who begins to look later knows how far it was read.
        let mut later = Attempts::new(run.path());
        later.after(news[0].0);
        assert_eq!(look(&mut later), news[1..]);
        assert_eq!(later.ended(), attempts.ended());
    }

    #[test]
    fn what_is_remembered_does_not_grow_with_the_run() {
        let run = tempfile::tempdir().unwrap();
        let append = |line: &AttemptLine| line.append(run.path()).unwrap();
        let mut attempts = Attempts::new(run.path());
        for job in 0..10 * KNOWN_AGAIN {
            append(&line(1, &format!("{job}.0"), 1, Some("T2_A"), false));
        }
        for job in 10 * KNOWN_AGAIN - 20..10 * KNOWN_AGAIN {
            append(&line(1, &format!("{job}.0"), 1, Some("T2_A"), false));
        }
        for unit in 2..100 {
            append(&line(unit, "7.0", 1, Some("T2_A"), false));
        }
        attempts.read().unwrap();
        let all = 10 * KNOWN_AGAIN as u64 + 98;
        assert_eq!(
            attempts.ended(),
            &BTreeMap::from([("T2_A".into(), ByRole::of(NodeRole::Processing, all))]),
            "those of scripts that ran twice"
        );
        assert_eq!(attempts.book.last[&1].len(), KNOWN_AGAIN);
        attempts.forget(|unit| unit != 99);
        assert_eq!(attempts.book.last.keys().collect::<Vec<_>>(), [&99]);
        append(&line(99, "7.0", 1, Some("T2_A"), false));
        append(&line(1, "9000.0", 1, Some("T2_A"), false));
        attempts.read().unwrap();
        assert_eq!(attempts.ended()["T2_A"].total(), all + 1, "one was told before, one is of a rescue");
    }

    #[test]
    fn what_makes_no_sense_is_passed_over_and_another_file_is_all_news() {
        let run = tempfile::tempdir().unwrap();
        let path = run.path().join(layout::ATTEMPTS);
        std::fs::write(&path, "{\"unit\":1,\"no\n\n[]\n").unwrap();
        line(1, "32.0", 1, Some("T2_A"), true).append(run.path()).unwrap();
        let mut attempts = Attempts::new(run.path());
        let first = look(&mut attempts);
        assert_eq!(first.len(), 1);
        std::fs::remove_file(&path).unwrap();
        line(1, "40.0", 1, Some("T2_B"), true).append(run.path()).unwrap();
        let second = look(&mut attempts);
        assert_eq!(second.len(), 1);
        assert!(second[0].0 > first[0].0, "{second:?} after {first:?}");
        assert_eq!(attempts.ended(), &BTreeMap::from([("T2_B".into(), ByRole::of(NodeRole::Processing, 1))]));
        let mut later = Attempts::new(run.path());
        later.after(1_000_000);
        assert_eq!(look(&mut later).len(), 1, "what was told is beyond its end");
    }

    #[test]
    fn many_failures_are_known_without_their_logs() {
        let run = tempfile::tempdir().unwrap();
        for unit in 0..=(MOST_LOGS as u32) {
            line(unit, &format!("{unit}.0"), 1, Some("T2_A"), true).append(run.path()).unwrap();
        }
        let mut attempts = Attempts::new(run.path());
        attempts.read().unwrap();
        let news = attempts.take_news();
        let has_log = |failed: &FailedAttempt| !failed.line.failure.as_ref().unwrap().log_tail.is_empty();
        assert_eq!(news.iter().filter(|failed| has_log(failed)).count(), MOST_LOGS);
        assert_eq!(news.len(), MOST_LOGS + 1);
    }
}
