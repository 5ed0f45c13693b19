//! The numbered exchanges of one worker: nothing is done twice, and no answer is lost.
//!
//! A worker repeats an exchange until it has the answer, and may have two under way: one that waits and one that reports.
//! So they may come in any order and more than once. What was answered is kept for a while and given again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use windlass_types::WorkerId;
use windlass_types::fleet::{ExchangeAnswer, StaleReport};

/// How much longer than it wanted an exchange waits for a commit that its answer rests on.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How many numbers are remembered. A worker has two exchanges under way at most.
const KEPT: u64 = 8;

/// A commit that the answer to an exchange rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) worker: WorkerId,
    number: u64,
    life: u64,
}

/// The exchanges of a worker that matter still. `R` is who waits for an answer.
#[derive(Debug)]
pub(super) struct Exchanges<R> {
    /// How often the worker has begun to count anew.
    life: u64,
    highest: u64,
    kept: BTreeMap<u64, Kept<R>>,
}

#[derive(Debug)]
enum Kept<R> {
    Open(Open<R>),
    Answered(Box<ExchangeAnswer>),
}

/// One that was not answered yet.
#[derive(Debug)]
struct Open<R> {
    /// `None`: whoever asked has hung up; the answer is kept for when he comes again.
    reply: Option<R>,
    /// Commits that the answer rests on and that are not done.
    owes: u32,
    deadline: Instant,
    /// It is answered as soon as its reports are on disk: the worker need not keep them any longer than that.
    is_report: bool,
    stale: Vec<StaleReport>,
}

impl<R> Open<R> {
    /// When it is to be answered at the latest, be it only to say that it is to come again.
    fn patience(&self) -> Instant {
        if self.owes > 0 { self.deadline + PATIENCE } else { self.deadline }
    }
}

/// What a number means.
#[derive(Debug)]
pub(super) enum Receipt<R> {
    /// Never seen: its reports are to be heard.
    New,
    /// It is being attended to; whoever asked before is gone or will be told nothing.
    Again {
        before: Option<R>,
    },
    Answered(R, Box<ExchangeAnswer>),
    /// Nobody knows any more what became of it.
    TooOld(R),
}

/// An exchange that can be answered now.
#[derive(Debug)]
pub(super) struct Due<R> {
    pub(super) number: u64,
    pub(super) reply: Option<R>,
    pub(super) stale: Vec<StaleReport>,
    /// A newer one is there, which gets all that is new.
    pub(super) is_superseded: bool,
}

impl<R> Default for Exchanges<R> {
    fn default() -> Self {
        Self { life: 0, highest: 0, kept: BTreeMap::new() }
    }
}

impl<R> Exchanges<R> {
    pub(super) fn receive(
        &mut self,
        number: u64,
        reply: R,
        deadline: Instant,
        is_report: bool,
    ) -> Receipt<R> {
        match self.kept.get_mut(&number) {
            Some(Kept::Answered(answer)) => return Receipt::Answered(reply, answer.clone()),
            Some(Kept::Open(open)) => {
                open.deadline = deadline;
                return Receipt::Again { before: open.reply.replace(reply) };
            }
            None if number + KEPT <= self.highest => return Receipt::TooOld(reply),
            None => {}
        }
        self.highest = self.highest.max(number);
        let open = Open { reply: Some(reply), owes: 0, deadline, is_report, stale: Vec::new() };
        self.kept.insert(number, Kept::Open(open));
        let floor = self.highest.saturating_sub(KEPT);
        self.kept.retain(|&number, kept| number > floor || matches!(kept, Kept::Open(_)));
        Receipt::New
    }

    /// Whoever asked is gone.
    pub(super) fn hang_up(&mut self, number: u64) -> Option<R> {
        self.open(number)?.reply.take()
    }

    /// What stands for a commit that the answer to this number rests on, now or later.
    pub(super) const fn ticket(&self, worker: WorkerId, number: u64) -> Ticket {
        Ticket { worker, number, life: self.life }
    }

    /// Its answer rests on one more commit.
    pub(super) fn owe(&mut self, ticket: Ticket) {
        if let Some(open) = self.open_of(ticket) {
            open.owes += 1;
        }
    }

    /// A commit is done that its answer rests on.
    pub(super) fn pay(&mut self, ticket: Ticket) {
        if let Some(open) = self.open_of(ticket) {
            open.owes = open.owes.saturating_sub(1);
        }
    }

    /// A number of an earlier life is another exchange.
    fn open_of(&mut self, ticket: Ticket) -> Option<&mut Open<R>> {
        if ticket.life == self.life { self.open(ticket.number) } else { None }
    }

    pub(super) fn note_stale(&mut self, number: u64, stale: StaleReport) {
        if let Some(open) = self.open(number) {
            open.stale.push(stale);
        }
    }

    pub(super) fn newest(&self) -> u64 {
        self.highest
    }

    /// Somebody waits who would hear of a new job at once.
    pub(super) fn has_wait(&self) -> bool {
        matches!(self.kept.get(&self.highest), Some(Kept::Open(Open { reply: Some(_), .. })))
    }

    pub(super) fn waits(&self) -> usize {
        self.kept.values().filter(|kept| matches!(kept, Kept::Open(Open { reply: Some(_), .. }))).count()
    }

    /// Those that can be answered, oldest first; only the newest can bring news. `at_once`: whether there are news, or
    /// nobody is to wait any longer.
    pub(super) fn due(&mut self, now: Instant, at_once: bool) -> Vec<Due<R>> {
        let highest = self.highest;
        let mut due = Vec::new();
        for (&number, kept) in &mut self.kept {
            let Kept::Open(open) = kept else { continue };
            let is_superseded = number < highest;
            let heard = open.is_report || !open.stale.is_empty() || open.deadline <= now;
            // What nobody waits for brings no news: those are for whoever comes next.
            let listens = open.reply.is_some();
            if open.owes == 0 && (is_superseded || (listens && (at_once || heard))) {
                let stale = std::mem::take(&mut open.stale);
                due.push(Due { number, reply: open.reply.take(), stale, is_superseded });
            }
        }
        due
    }

    /// Keeps the answer of one that was due.
    pub(super) fn answered(&mut self, answer: ExchangeAnswer) {
        self.kept.insert(answer.number, Kept::Answered(Box::new(answer)));
    }

    /// Those whose time is over although the disk has not got what they brought: they are to come again.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<R> {
        let open = self.kept.values_mut().filter_map(|kept| match kept {
            Kept::Open(open) if open.owes > 0 && open.patience() <= now => open.reply.take(),
            _ => None,
        });
        open.collect()
    }

    /// When the next one has waited long enough.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let open = self.kept.values().filter_map(|kept| match kept {
            Kept::Open(open) if open.reply.is_some() => Some(open.patience()),
            _ => None,
        });
        open.min()
    }

    /// The worker is no more, or counts anew. Returns everybody who waits.
    pub(super) fn begin_anew(&mut self) -> Vec<R> {
        let kept = std::mem::take(&mut self.kept).into_values();
        (self.life, self.highest) = (self.life + 1, 0);
        kept.filter_map(|kept| if let Kept::Open(open) = kept { open.reply } else { None }).collect()
    }

    fn open(&mut self, number: u64) -> Option<&mut Open<R>> {
        match self.kept.get_mut(&number) {
            Some(Kept::Open(open)) => Some(open),
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

    /// Receives a number and says in a word what it means.
    fn word(exchanges: &mut Exchanges<u32>, number: u64, reply: u32) -> &'static str {
        match exchanges.receive(number, reply, soon(), false) {
            Receipt::New => "new",
            Receipt::Again { .. } => "again",
            Receipt::Answered(..) => "answered",
            Receipt::TooOld(_) => "too old",
        }
    }

    fn answer_all(exchanges: &mut Exchanges<u32>, at_once: bool) -> Vec<(u64, Option<u32>)> {
        let due = exchanges.due(Instant::now(), at_once);
        let answered = due.iter().map(|due| (due.number, due.reply)).collect();
        for due in due {
            exchanges.answered(ExchangeAnswer { number: due.number, ..ExchangeAnswer::default() });
        }
        answered
    }

    #[test]
    fn the_same_number_is_done_once_and_answered_as_often_as_it_comes() {
        let mut exchanges = Exchanges::default();
        assert_eq!(word(&mut exchanges, 1, 10), "new");
        assert_eq!(word(&mut exchanges, 1, 11), "again");
        assert_eq!(answer_all(&mut exchanges, true), [(1, Some(11))], "the newest caller hears it");
        assert_eq!(word(&mut exchanges, 1, 12), "answered");
        assert_eq!(word(&mut exchanges, 2, 13), "new");
        assert_eq!(word(&mut exchanges, 1, 14), "answered", "also after the next one came");
    }

    #[test]
    fn a_newer_one_ends_the_wait_of_the_older_but_not_before_its_commit() {
        let mut exchanges = Exchanges::default();
        word(&mut exchanges, 1, 10);
        let ticket = exchanges.ticket(WorkerId(1), 1);
        exchanges.owe(ticket);
        assert_eq!(word(&mut exchanges, 2, 20), "new");
        assert!(answer_all(&mut exchanges, false).is_empty(), "the reports of 1 are not on disk");
        exchanges.pay(ticket);
        assert_eq!(answer_all(&mut exchanges, false), [(1, Some(10))]);
        assert!(exchanges.has_wait(), "2 waits on");
    }

    #[test]
    fn they_may_overtake_each_other() {
        let mut exchanges = Exchanges::default();
        assert_eq!(word(&mut exchanges, 3, 30), "new");
        assert_eq!(word(&mut exchanges, 2, 20), "new", "late, but never seen");
        assert_eq!(answer_all(&mut exchanges, false), [(2, Some(20))]);
        assert_eq!(word(&mut exchanges, 11, 110), "new");
        assert_eq!(word(&mut exchanges, 3, 31), "again", "what was never answered is not forgotten");
        assert_eq!(word(&mut exchanges, 1, 10), "too old");
    }

    #[test]
    fn what_nobody_waits_for_is_kept_until_somebody_comes() {
        let mut exchanges = Exchanges::default();
        word(&mut exchanges, 1, 10);
        assert_eq!(exchanges.hang_up(1), Some(10));
        assert!(!exchanges.has_wait());
        assert!(answer_all(&mut exchanges, true).is_empty());
        assert_eq!(word(&mut exchanges, 1, 11), "again");
        assert_eq!(answer_all(&mut exchanges, true), [(1, Some(11))]);
    }

    #[test]
    fn reports_are_answered_when_they_are_on_disk_and_waits_when_there_is_news() {
        let mut exchanges: Exchanges<u32> = Exchanges::default();
        exchanges.receive(1, 10, soon(), true);
        assert_eq!(answer_all(&mut exchanges, false), [(1, Some(10))]);
        exchanges.receive(2, 20, soon(), false);
        assert!(answer_all(&mut exchanges, false).is_empty());
        exchanges.receive(3, 30, Instant::now(), false);
        assert_eq!(answer_all(&mut exchanges, false), [(2, Some(20)), (3, Some(30))], "its time is over");
    }

    #[test]
    fn who_waits_too_long_for_the_disk_is_told_to_come_again() {
        let mut exchanges = Exchanges::default();
        word(&mut exchanges, 1, 11);
        exchanges.owe(exchanges.ticket(WorkerId(1), 1));
        assert!(exchanges.overdue(soon()).is_empty(), "a commit may take a moment");
        assert_eq!(exchanges.overdue(soon() + PATIENCE), [11], "told to come again");
        assert_eq!(word(&mut exchanges, 1, 12), "again", "and what it brought is not forgotten");
    }

    #[test]
    fn a_commit_pays_for_no_exchange_of_a_later_life() {
        let mut exchanges = Exchanges::default();
        word(&mut exchanges, 1, 10);
        let before = exchanges.ticket(WorkerId(1), 1);
        exchanges.owe(before);
        assert_eq!(exchanges.begin_anew(), [10]);
        assert_eq!(word(&mut exchanges, 1, 11), "new");
        let after = exchanges.ticket(WorkerId(1), 1);
        exchanges.owe(after);
        exchanges.pay(before);
        assert!(answer_all(&mut exchanges, true).is_empty(), "its own reports are not on disk");
        exchanges.pay(after);
        assert_eq!(answer_all(&mut exchanges, true), [(1, Some(11))]);
    }
}
