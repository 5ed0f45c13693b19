//! The conversation with the server, as data: what is to be said next, what was said and not answered, and what was
//! answered. Nothing here calls anybody or reads a clock.
//!
//! Two exchanges at most are under way: one that waits for something to do, and one that reports. The one that waits
//! carries no reports, so it does not matter which of the two the server hears first; reports are sent one batch at a
//! time, so they arrive in order. What failed is repeated as it was, under its number.

use crate::home::Me;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use windlass_types::fleet::{ActionReport, Exchange, ExchangeAnswer};
use windlass_types::work::Report;

/// So many reports go in one exchange.
const BATCH: usize = Exchange::MOST_REPORTS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Wait = 0,
    Report = 1,
}

/// What is to be said.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    Introduce,
    Exchange(Lane, Box<Exchange>),
}

/// What the agent wants of the server in this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    /// How long an exchange may wait there.
    pub(crate) wait: Duration,
    pub(crate) time_left: Option<Duration>,
    pub(crate) draining: bool,
    /// It holds nothing any more and wants to go.
    pub(crate) leaving: bool,
    /// No need to ask for work just now.
    pub(crate) calm: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Talk {
    pub(crate) me: Option<Me>,
    /// Counts introductions: what was said in an earlier life is not answered in this one.
    pub(crate) epoch: u32,
    is_introducing: bool,
    last: u64,
    lanes: [Option<Said>; 2],
    applied: u64,
    answers: BTreeMap<u64, ExchangeAnswer>,
    reports: VecDeque<Report>,
    actions: Vec<ActionReport>,
    told_draining: bool,
    /// The server knows that we are gone.
    pub(crate) is_over: bool,
    failures: u32,
    retry_at: Option<Instant>,
}

#[derive(Debug)]
struct Said {
    exchange: Exchange,
    is_under_way: bool,
}

impl Talk {
    pub(crate) fn report(&mut self, reports: impl IntoIterator<Item = Report>) {
        self.reports.extend(reports);
    }

    pub(crate) fn report_action(&mut self, report: ActionReport) {
        self.actions.push(report);
    }

    /// All that the server has not confirmed, oldest first.
    pub(crate) fn undelivered(&self) -> impl Iterator<Item = &Report> {
        self.said().flat_map(|said| &said.exchange.reports).chain(&self.reports)
    }

    pub(crate) fn undelivered_actions(&self) -> impl Iterator<Item = &ActionReport> {
        self.said().flat_map(|said| &said.exchange.actions).chain(&self.actions)
    }

    fn said(&self) -> impl Iterator<Item = &Said> {
        self.lanes.iter().flatten()
    }

    pub(crate) const fn is_away(&self) -> bool {
        self.failures > 0
    }

    /// There is somebody else to talk to: what failed before says nothing about that one.
    pub(crate) const fn try_now(&mut self) {
        self.retry_at = None;
    }

    /// When there may be something to say again, if that depends on time alone.
    pub(crate) const fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    pub(crate) fn next(&mut self, now: Instant, wish: &Wish) -> Option<Next> {
        if self.is_over || self.retry_at.is_some_and(|at| now < at) {
            return None;
        }
        self.retry_at = None;
        let Some(me) = self.me.clone() else {
            let begin = !std::mem::replace(&mut self.is_introducing, true);
            return begin.then_some(Next::Introduce);
        };
        for lane in [Lane::Wait, Lane::Report] {
            if let Some(said) = self.lanes[lane as usize].as_mut().filter(|said| !said.is_under_way) {
                said.is_under_way = true;
                return Some(Next::Exchange(lane, Box::new(said.exchange.clone())));
            }
        }
        let (waits, reports) = (self.lanes[0].is_some(), self.lanes[1].is_some());
        let has_news = !self.reports.is_empty() || !self.actions.is_empty();
        let lane = if reports {
            return None;
        } else if has_news || wish.leaving || (wish.draining && !self.told_draining) {
            Lane::Report
        } else if waits || wish.calm {
            return None;
        } else {
            Lane::Wait
        };
        Some(Next::Exchange(lane, Box::new(self.compose(lane, me, wish))))
    }

    fn compose(&mut self, lane: Lane, me: Me, wish: &Wish) -> Exchange {
        self.last += 1;
        let mut exchange = Exchange {
            worker: me.worker,
            secret: me.secret,
            number: self.last,
            reports: Vec::new(),
            actions: Vec::new(),
            wait: wish.wait,
            time_left: wish.time_left,
            draining: wish.draining,
            leaving: false,
        };
        if lane == Lane::Report {
            let batch = self.reports.len().min(BATCH);
            exchange.reports = self.reports.drain(..batch).collect();
            exchange.actions = std::mem::take(&mut self.actions);
            exchange.wait = Duration::ZERO;
            exchange.leaving = wish.leaving && self.reports.is_empty();
        }
        self.told_draining = wish.draining;
        self.lanes[lane as usize] = Some(Said { exchange: exchange.clone(), is_under_way: true });
        exchange
    }

    /// The server has taken us in, or taken us back.
    pub(crate) fn introduced(&mut self, me: Me) {
        self.me = Some(me);
        self.is_introducing = false;
        self.reached();
    }

    pub(crate) fn introduction_failed(&mut self, retry_at: Instant) {
        self.is_introducing = false;
        self.failed(retry_at);
    }

    /// The server does not know us: what it has not confirmed will be said again, after the next introduction.
    pub(crate) fn begin_anew(&mut self) {
        let unanswered = std::mem::take(&mut self.lanes).into_iter().flatten().map(|said| said.exchange);
        let (mut reports, mut actions) = (VecDeque::new(), Vec::new());
        for exchange in unanswered {
            reports.extend(exchange.reports);
            actions.extend(exchange.actions);
        }
        reports.append(&mut self.reports);
        actions.append(&mut self.actions);
        *self = Self { epoch: self.epoch + 1, failures: self.failures, reports, actions, ..Self::default() };
    }

    /// Answered: what it carried is delivered. Returns that exchange, and the answers that can be acted on now: they are
    /// acted on in the order of their numbers.
    pub(crate) fn answered(&mut self, answer: ExchangeAnswer) -> (Option<Exchange>, Vec<ExchangeAnswer>) {
        self.reached();
        let is_it = |said: &Said| said.exchange.number == answer.number;
        let lane = self.lanes.iter_mut().find(|lane| lane.as_ref().is_some_and(is_it));
        let said = lane.and_then(Option::take).map(|said| said.exchange);
        if said.is_none() {
            return (None, Vec::new());
        }
        // Something is to be done before it goes.
        let stays = !answer.actions.is_empty();
        self.is_over |= !stays && said.as_ref().is_some_and(|exchange| exchange.leaving);
        self.answers.insert(answer.number, answer);
        let mut ready = Vec::new();
        while let Some(answer) = self.answers.remove(&(self.applied + 1)) {
            self.applied += 1;
            ready.push(answer);
        }
        (said, ready)
    }

    /// It will be said again.
    pub(crate) fn exchange_failed(&mut self, number: u64, retry_at: Instant) {
        for said in self.lanes.iter_mut().flatten().filter(|said| said.exchange.number == number) {
            said.is_under_way = false;
        }
        self.failed(retry_at);
    }

    fn failed(&mut self, retry_at: Instant) {
        self.failures += 1;
        self.retry_at = Some(retry_at);
    }

    fn reached(&mut self) {
        self.failures = 0;
        self.retry_at = None;
    }

    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::fleet::ActionOrder;
    use windlass_types::work::{AttemptKey, ReturnReason};
    use windlass_types::{Attempt, JobId, RunId, WorkerId, WorkflowId};

    const WISH: Wish =
        Wish { wait: Duration::from_secs(20), time_left: None, draining: false, leaving: false, calm: false };

    fn report(job: i64) -> Report {
        let key = AttemptKey { workflow: WorkflowId(1), job: JobId(job), run: RunId(1), attempt: Attempt(1) };
        Report::Returned { key, why: ReturnReason::Recalled }
    }

    fn known() -> Talk {
        let mut talk = Talk::default();
        assert_eq!(talk.next(Instant::now(), &WISH), Some(Next::Introduce));
        assert_eq!(talk.next(Instant::now(), &WISH), None, "once is enough");
        talk.introduced(Me { worker: WorkerId(7), secret: "s".into() });
        talk
    }

    /// Which lane speaks, under which number, with how many reports.
    fn speak(talk: &mut Talk, wish: &Wish) -> Option<(Lane, u64, usize)> {
        match talk.next(Instant::now(), wish)? {
            Next::Introduce => panic!("introduced already"),
            Next::Exchange(lane, exchange) => Some((lane, exchange.number, exchange.reports.len())),
        }
    }

    fn answer(number: u64) -> ExchangeAnswer {
        ExchangeAnswer { number, ..ExchangeAnswer::default() }
    }

    #[test]
    fn a_report_overtakes_the_wait_and_reports_go_one_batch_at_a_time() {
        let mut talk = known();
        assert_eq!(speak(&mut talk, &WISH), Some((Lane::Wait, 1, 0)));
        assert_eq!(speak(&mut talk, &WISH), None);
        talk.report([report(1), report(2)]);
        assert_eq!(speak(&mut talk, &WISH), Some((Lane::Report, 2, 2)));
        talk.report([report(3)]);
        assert_eq!(speak(&mut talk, &WISH), None, "the second batch waits for the answer to the first");
        assert_eq!(talk.undelivered().count(), 3);
        let (said, ready) = talk.answered(answer(2));
        assert_eq!((said.unwrap().reports.len(), ready.len()), (2, 0), "the older answer is acted on first");
        assert_eq!(talk.answered(answer(1)).1.iter().map(|answer| answer.number).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(speak(&mut talk, &WISH), Some((Lane::Report, 3, 1)));
        assert_eq!(speak(&mut talk, &WISH), None, "nobody waits while a report is under way");
        talk.answered(answer(3));
        assert_eq!(speak(&mut talk, &WISH), Some((Lane::Wait, 4, 0)));
        assert_eq!(talk.answered(answer(4)).1.len(), 1);
        assert_eq!(talk.answered(answer(4)), (None, Vec::new()), "an answer that comes twice is one");
    }

    #[test]
    fn what_failed_is_said_again_as_it_was() {
        let mut talk = known();
        talk.report([report(1)]);
        assert_eq!(speak(&mut talk, &WISH), Some((Lane::Report, 1, 1)));
        let now = Instant::now();
        talk.exchange_failed(1, now + Duration::from_mins(1));
        talk.report([report(2)]);
        assert_eq!((speak(&mut talk, &WISH), talk.is_away()), (None, true));
        talk.exchange_failed(1, now);
        assert_eq!(speak(&mut talk, &WISH), Some((Lane::Report, 1, 1)), "the same, without what came later");
        talk.answered(answer(1));
        assert_eq!((speak(&mut talk, &WISH), talk.is_away()), (Some((Lane::Report, 2, 1)), false));
    }

    #[test]
    fn in_a_new_life_all_that_was_not_confirmed_is_said_again() {
        let mut talk = known();
        speak(&mut talk, &WISH);
        talk.report([report(1)]);
        speak(&mut talk, &WISH);
        talk.report([report(2)]);
        talk.begin_anew();
        assert_eq!(talk.next(Instant::now(), &WISH), Some(Next::Introduce));
        assert_eq!(talk.undelivered().cloned().collect::<Vec<_>>(), [report(1), report(2)]);
        talk.introduced(Me { worker: WorkerId(8), secret: "t".into() });
        assert_eq!(speak(&mut talk, &WISH), Some((Lane::Report, 1, 2)), "numbers begin anew");
    }

    #[test]
    fn the_last_words_come_with_the_last_reports() {
        let mut talk = known();
        let draining = Wish { draining: true, ..WISH };
        speak(&mut talk, &WISH);
        assert_eq!(speak(&mut talk, &draining), Some((Lane::Report, 2, 0)), "the server is told at once");
        talk.answered(answer(2));
        talk.answered(answer(1));
        assert_eq!(speak(&mut talk, &draining), Some((Lane::Wait, 3, 0)), "stops may still come");
        talk.report((0..1001).map(report));
        let leaving = Wish { leaving: true, ..draining };
        assert_eq!(speak(&mut talk, &leaving), Some((Lane::Report, 4, 1000)));
        talk.answered(answer(4));
        assert!(!talk.is_over, "there was more to say");
        assert_eq!(speak(&mut talk, &leaving), Some((Lane::Report, 5, 1)));
        let order = ActionOrder {
            workflow: WorkflowId(1),
            run: RunId(1),
            action: 1,
            attempt: Attempt(1),
            trigger: "on_worker_complete".into(),
            commands: Vec::new(),
            env: Vec::new(),
        };
        talk.answered(ExchangeAnswer { actions: vec![order], ..answer(5) });
        assert!(!talk.is_over, "something is to be done first");
        assert_eq!(speak(&mut talk, &leaving), Some((Lane::Report, 6, 0)));
        talk.answered(answer(6));
        assert!(talk.is_over);
        assert_eq!(speak(&mut talk, &leaving), None);
    }
}
