//! The numbered exchanges of one worker: nothing is applied twice, and no reply is lost.
//!
//! A worker repeats an exchange until it gets the reply, and may have two under way: a long poll and one with
//! reports. They may arrive in any order and more than once. Replies are kept for a while and returned again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use windlass_types::WorkerId;
use windlass_types::worker_protocol::{ExchangeReply, StaleReport};

/// How much longer than its own wait an exchange waits for a commit that its reply depends on.
pub(super) const COMMIT_WAIT: Duration = Duration::from_secs(5);
/// The number of exchanges remembered. A worker has at most two under way.
const MAX_KEPT_EXCHANGES: u64 = 8;

/// A commit that the reply to an exchange depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommitTicket {
    pub(super) worker: WorkerId,
    number: u64,
    epoch: u64,
}

/// The recent exchanges of a worker. `R` is the reply channel of a caller.
#[derive(Debug)]
pub(super) struct ExchangeSequence<R> {
    /// Counts how often the worker restarted its numbers.
    epoch: u64,
    highest: u64,
    exchanges: BTreeMap<u64, ExchangeState<R>>,
}

#[derive(Debug)]
enum ExchangeState<R> {
    Open(OpenExchange<R>),
    Answered(Box<ExchangeReply>),
}

/// An exchange without a reply yet.
#[derive(Debug)]
struct OpenExchange<R> {
    /// `None`: the caller has hung up; the reply is kept for its next call.
    reply: Option<R>,
    /// The number of uncommitted changes that the reply depends on.
    pending_commits: u32,
    deadline: Instant,
    /// Replied to as soon as its reports are committed: the worker has to keep them only until then.
    is_report: bool,
    stale_reports: Vec<StaleReport>,
}

impl<R> OpenExchange<R> {
    /// The latest time for a reply, even if it only asks the worker to call again.
    fn reply_deadline(&self) -> Instant {
        if self.pending_commits > 0 { self.deadline + COMMIT_WAIT } else { self.deadline }
    }
}

/// The meaning of an exchange number.
#[derive(Debug)]
pub(super) enum ExchangeReceipt<R> {
    /// New: its reports have to be applied.
    New,
    /// Being handled; the earlier caller is gone or gets no reply.
    Repeated {
        earlier_caller: Option<R>,
    },
    Answered(R, Box<ExchangeReply>),
    /// Its result is not known any more.
    TooOld(R),
}

/// An exchange that can be replied to now.
#[derive(Debug)]
pub(super) struct DueExchange<R> {
    pub(super) number: u64,
    pub(super) reply: Option<R>,
    pub(super) stale_reports: Vec<StaleReport>,
    /// There is a newer exchange, which gets all news.
    pub(super) is_superseded: bool,
}

impl<R> Default for ExchangeSequence<R> {
    fn default() -> Self {
        Self { epoch: 0, highest: 0, exchanges: BTreeMap::new() }
    }
}

impl<R> ExchangeSequence<R> {
    pub(super) fn receive_exchange(
        &mut self,
        number: u64,
        reply: R,
        deadline: Instant,
        is_report: bool,
    ) -> ExchangeReceipt<R> {
        match self.exchanges.get_mut(&number) {
            Some(ExchangeState::Answered(answer)) => return ExchangeReceipt::Answered(reply, answer.clone()),
            Some(ExchangeState::Open(open)) => {
                open.deadline = deadline;
                return ExchangeReceipt::Repeated { earlier_caller: open.reply.replace(reply) };
            }
            None if number + MAX_KEPT_EXCHANGES <= self.highest => return ExchangeReceipt::TooOld(reply),
            None => {}
        }
        self.highest = self.highest.max(number);
        let open = OpenExchange {
            reply: Some(reply),
            pending_commits: 0,
            deadline,
            is_report,
            stale_reports: Vec::new(),
        };
        self.exchanges.insert(number, ExchangeState::Open(open));
        let floor = self.highest.saturating_sub(MAX_KEPT_EXCHANGES);
        self.exchanges.retain(|&number, kept| number > floor || matches!(kept, ExchangeState::Open(_)));
        ExchangeReceipt::New
    }

    /// The caller has hung up.
    pub(super) fn hang_up(&mut self, number: u64) -> Option<R> {
        self.find_open(number)?.reply.take()
    }

    /// Creates a ticket for a commit that the reply to this number depends on.
    pub(super) const fn commit_ticket(&self, worker: WorkerId, number: u64) -> CommitTicket {
        CommitTicket { worker, number, epoch: self.epoch }
    }

    /// The reply depends on one more commit.
    pub(super) fn add_pending_commit(&mut self, ticket: CommitTicket) {
        if let Some(open) = self.find_by_ticket(ticket) {
            open.pending_commits += 1;
        }
    }

    /// A commit that the reply depends on is done.
    pub(super) fn complete_commit(&mut self, ticket: CommitTicket) {
        if let Some(open) = self.find_by_ticket(ticket) {
            open.pending_commits = open.pending_commits.saturating_sub(1);
        }
    }

    /// Ignores tickets of an earlier epoch, where the number belonged to another exchange.
    fn find_by_ticket(&mut self, ticket: CommitTicket) -> Option<&mut OpenExchange<R>> {
        if ticket.epoch == self.epoch { self.find_open(ticket.number) } else { None }
    }

    pub(super) fn add_stale_report(&mut self, number: u64, stale: StaleReport) {
        if let Some(open) = self.find_open(number) {
            open.stale_reports.push(stale);
        }
    }

    pub(super) fn newest_number(&self) -> u64 {
        self.highest
    }

    /// Whether a caller waits and would get a new job at once.
    pub(super) fn has_waiting_caller(&self) -> bool {
        matches!(
            self.exchanges.get(&self.highest),
            Some(ExchangeState::Open(OpenExchange { reply: Some(_), .. }))
        )
    }

    pub(super) fn count_waiting_callers(&self) -> usize {
        self.exchanges
            .values()
            .filter(|kept| matches!(kept, ExchangeState::Open(OpenExchange { reply: Some(_), .. })))
            .count()
    }

    /// Takes the exchanges that can be replied to, oldest first; only the newest carries news. `at_once`: there
    /// is news, or no caller may wait any longer.
    pub(super) fn take_due(&mut self, now: Instant, at_once: bool) -> Vec<DueExchange<R>> {
        let highest = self.highest;
        let mut due = Vec::new();
        for (&number, kept) in &mut self.exchanges {
            let ExchangeState::Open(open) = kept else { continue };
            let is_superseded = number < highest;
            let heard = open.is_report || !open.stale_reports.is_empty() || open.deadline <= now;
            // Without a waiting caller the news is kept for the next call.
            let listens = open.reply.is_some();
            if open.pending_commits == 0 && (is_superseded || (listens && (at_once || heard))) {
                let stale = std::mem::take(&mut open.stale_reports);
                due.push(DueExchange {
                    number,
                    reply: open.reply.take(),
                    stale_reports: stale,
                    is_superseded,
                });
            }
        }
        due
    }

    /// Keeps the reply of a due exchange.
    pub(super) fn record_reply(&mut self, answer: ExchangeReply) {
        self.exchanges.insert(answer.number, ExchangeState::Answered(Box::new(answer)));
    }

    /// Takes the callers whose time has expired while their reports are uncommitted: they have to call again.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Vec<R> {
        let open = self.exchanges.values_mut().filter_map(|kept| match kept {
            ExchangeState::Open(open) if open.pending_commits > 0 && open.reply_deadline() <= now => {
                open.reply.take()
            }
            _ => None,
        });
        open.collect()
    }

    /// The next deadline of an exchange.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let open = self.exchanges.values().filter_map(|kept| match kept {
            ExchangeState::Open(open) if open.reply.is_some() => Some(open.reply_deadline()),
            _ => None,
        });
        open.min()
    }

    /// Forgets all exchanges when the worker is gone or restarts its numbers. Returns all waiting callers.
    pub(super) fn reset(&mut self) -> Vec<R> {
        let kept = std::mem::take(&mut self.exchanges).into_values();
        (self.epoch, self.highest) = (self.epoch + 1, 0);
        kept.filter_map(|kept| if let ExchangeState::Open(open) = kept { open.reply } else { None }).collect()
    }

    fn find_open(&mut self, number: u64) -> Option<&mut OpenExchange<R>> {
        match self.exchanges.get_mut(&number) {
            Some(ExchangeState::Open(open)) => Some(open),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_mins(1)
    }

    /// Receives a number and returns a word for its meaning.
    fn word(exchanges: &mut ExchangeSequence<u32>, number: u64, reply: u32) -> &'static str {
        match exchanges.receive_exchange(number, reply, soon(), false) {
            ExchangeReceipt::New => "new",
            ExchangeReceipt::Repeated { .. } => "again",
            ExchangeReceipt::Answered(..) => "answered",
            ExchangeReceipt::TooOld(_) => "too old",
        }
    }

    fn answer_all(exchanges: &mut ExchangeSequence<u32>, at_once: bool) -> Vec<(u64, Option<u32>)> {
        let due = exchanges.take_due(Instant::now(), at_once);
        let answered = due.iter().map(|due| (due.number, due.reply)).collect();
        for due in due {
            exchanges.record_reply(ExchangeReply { number: due.number, ..ExchangeReply::default() });
        }
        answered
    }

    #[test]
    fn an_exchange_is_applied_once_and_replied_to_each_time() {
        let mut exchanges = ExchangeSequence::default();
        assert_eq!(word(&mut exchanges, 1, 10), "new");
        assert_eq!(word(&mut exchanges, 1, 11), "again");
        assert_eq!(answer_all(&mut exchanges, true), [(1, Some(11))], "the newest caller gets the reply");
        assert_eq!(word(&mut exchanges, 1, 12), "answered");
        assert_eq!(word(&mut exchanges, 2, 13), "new");
        assert_eq!(word(&mut exchanges, 1, 14), "answered", "also after the next one arrived");
    }

    #[test]
    fn a_newer_exchange_ends_an_older_wait_after_its_commit() {
        let mut exchanges = ExchangeSequence::default();
        word(&mut exchanges, 1, 10);
        let ticket = exchanges.commit_ticket(WorkerId(1), 1);
        exchanges.add_pending_commit(ticket);
        assert_eq!(word(&mut exchanges, 2, 20), "new");
        assert!(answer_all(&mut exchanges, false).is_empty(), "the reports of 1 are not committed");
        exchanges.complete_commit(ticket);
        assert_eq!(answer_all(&mut exchanges, false), [(1, Some(10))]);
        assert!(exchanges.has_waiting_caller(), "2 keeps waiting");
    }

    #[test]
    fn exchanges_may_overtake_each_other() {
        let mut exchanges = ExchangeSequence::default();
        assert_eq!(word(&mut exchanges, 3, 30), "new");
        assert_eq!(word(&mut exchanges, 2, 20), "new", "late, but never seen");
        assert_eq!(answer_all(&mut exchanges, false), [(2, Some(20))]);
        assert_eq!(word(&mut exchanges, 11, 110), "new");
        assert_eq!(word(&mut exchanges, 3, 31), "again", "an exchange without a reply is not forgotten");
        assert_eq!(word(&mut exchanges, 1, 10), "too old");
    }

    #[test]
    fn news_is_kept_until_a_caller_waits() {
        let mut exchanges = ExchangeSequence::default();
        word(&mut exchanges, 1, 10);
        assert_eq!(exchanges.hang_up(1), Some(10));
        assert!(!exchanges.has_waiting_caller());
        assert!(answer_all(&mut exchanges, true).is_empty());
        assert_eq!(word(&mut exchanges, 1, 11), "again");
        assert_eq!(answer_all(&mut exchanges, true), [(1, Some(11))]);
    }

    #[test]
    fn reports_are_replied_to_after_commit_and_polls_on_news() {
        let mut exchanges: ExchangeSequence<u32> = ExchangeSequence::default();
        exchanges.receive_exchange(1, 10, soon(), true);
        assert_eq!(answer_all(&mut exchanges, false), [(1, Some(10))]);
        exchanges.receive_exchange(2, 20, soon(), false);
        assert!(answer_all(&mut exchanges, false).is_empty());
        exchanges.receive_exchange(3, 30, Instant::now(), false);
        assert_eq!(answer_all(&mut exchanges, false), [(2, Some(20)), (3, Some(30))], "its time has expired");
    }

    #[test]
    fn callers_that_wait_too_long_for_a_commit_have_to_retry() {
        let mut exchanges = ExchangeSequence::default();
        word(&mut exchanges, 1, 11);
        exchanges.add_pending_commit(exchanges.commit_ticket(WorkerId(1), 1));
        assert!(exchanges.take_overdue(soon()).is_empty(), "a commit may take a moment");
        assert_eq!(exchanges.take_overdue(soon() + COMMIT_WAIT), [11], "asked to call again");
        assert_eq!(word(&mut exchanges, 1, 12), "again", "and its reports are not forgotten");
    }

    #[test]
    fn tickets_of_an_earlier_epoch_are_ignored() {
        let mut exchanges = ExchangeSequence::default();
        word(&mut exchanges, 1, 10);
        let before = exchanges.commit_ticket(WorkerId(1), 1);
        exchanges.add_pending_commit(before);
        assert_eq!(exchanges.reset(), [10]);
        assert_eq!(word(&mut exchanges, 1, 11), "new");
        let after = exchanges.commit_ticket(WorkerId(1), 1);
        exchanges.add_pending_commit(after);
        exchanges.complete_commit(before);
        assert!(answer_all(&mut exchanges, true).is_empty(), "its own reports are not committed");
        exchanges.complete_commit(after);
        assert_eq!(answer_all(&mut exchanges, true), [(1, Some(11))]);
    }
}
