//! The exchanges with the server as pure state: what to send next, what was sent and not answered, and what was
//! answered. No calls and no clocks here.
//!
//! At most two exchanges are under way: a long poll for work, and one with reports. The long poll carries no
//! reports, so the order in which the server receives the two does not matter; reports are sent one batch at a
//! time, so they arrive in order. A failed exchange is repeated unchanged, with the same number.

use crate::state_directory::WorkerCredentials;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use windlass_types::worker_messages::AttemptReport;
use windlass_types::worker_protocol::{ActionReport, ExchangeReply, WorkerExchange};

/// The largest number of reports in one exchange.
const REPORTS_PER_EXCHANGE: usize = WorkerExchange::MAX_REPORTS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExchangeLane {
    Wait = 0,
    Report = 1,
}

/// The next call to the server.
#[derive(Debug, PartialEq)]
pub(crate) enum NextCall {
    Register,
    Exchange(ExchangeLane, Box<WorkerExchange>),
}

/// The current parameters of an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExchangeParameters {
    /// How long an exchange may wait at the server.
    pub(crate) wait: Duration,
    pub(crate) time_left: Option<Duration>,
    pub(crate) is_draining: bool,
    /// It holds no jobs any more and wants to leave.
    pub(crate) is_leaving: bool,
    /// Do not poll for work now.
    pub(crate) skips_polling: bool,
}

#[derive(Debug, Default)]
pub(crate) struct ExchangeClient {
    pub(crate) credentials: Option<WorkerCredentials>,
    /// Counts registrations: replies to calls of an earlier registration are ignored.
    pub(crate) epoch: u32,
    is_registering: bool,
    last_number: u64,
    lanes: [Option<SentExchange>; 2],
    last_applied: u64,
    pending_replies: BTreeMap<u64, ExchangeReply>,
    reports: VecDeque<AttemptReport>,
    actions: Vec<ActionReport>,
    is_drain_reported: bool,
    /// The server has confirmed that this worker left.
    pub(crate) is_over: bool,
    failures: u32,
    retry_at: Option<Instant>,
}

#[derive(Debug)]
struct SentExchange {
    exchange: WorkerExchange,
    is_under_way: bool,
}

impl ExchangeClient {
    pub(crate) fn enqueue_reports(&mut self, reports: impl IntoIterator<Item = AttemptReport>) {
        self.reports.extend(reports);
    }

    pub(crate) fn enqueue_action_report(&mut self, report: ActionReport) {
        self.actions.push(report);
    }

    /// All reports that the server has not confirmed, oldest first.
    pub(crate) fn undelivered(&self) -> impl Iterator<Item = &AttemptReport> {
        self.sent_exchanges().flat_map(|sent| &sent.exchange.reports).chain(&self.reports)
    }

    pub(crate) fn undelivered_actions(&self) -> impl Iterator<Item = &ActionReport> {
        self.sent_exchanges().flat_map(|sent| &sent.exchange.actions).chain(&self.actions)
    }

    fn sent_exchanges(&self) -> impl Iterator<Item = &SentExchange> {
        self.lanes.iter().flatten()
    }

    pub(crate) const fn is_away(&self) -> bool {
        self.failures > 0
    }

    /// Clears the delay when there is another server to call.
    pub(crate) const fn clear_backoff(&mut self) {
        self.retry_at = None;
    }

    /// When the next call may be made, if only the delay prevents it.
    pub(crate) const fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    pub(crate) fn next_call(&mut self, now: Instant, parameters: &ExchangeParameters) -> Option<NextCall> {
        if self.is_over || self.retry_at.is_some_and(|at| now < at) {
            return None;
        }
        self.retry_at = None;
        let Some(me) = self.credentials.clone() else {
            let begin = !std::mem::replace(&mut self.is_registering, true);
            return begin.then_some(NextCall::Register);
        };
        for lane in [ExchangeLane::Wait, ExchangeLane::Report] {
            if let Some(sent) = self.lanes[lane as usize].as_mut().filter(|sent| !sent.is_under_way) {
                sent.is_under_way = true;
                return Some(NextCall::Exchange(lane, Box::new(sent.exchange.clone())));
            }
        }
        let (waits, reports) = (self.lanes[0].is_some(), self.lanes[1].is_some());
        let has_news = !self.reports.is_empty() || !self.actions.is_empty();
        let lane = if reports {
            return None;
        } else if has_news || parameters.is_leaving || (parameters.is_draining && !self.is_drain_reported) {
            ExchangeLane::Report
        } else if waits || parameters.skips_polling {
            return None;
        } else {
            ExchangeLane::Wait
        };
        Some(NextCall::Exchange(lane, Box::new(self.compose_exchange(lane, me, parameters))))
    }

    fn compose_exchange(
        &mut self,
        lane: ExchangeLane,
        me: WorkerCredentials,
        parameters: &ExchangeParameters,
    ) -> WorkerExchange {
        self.last_number += 1;
        let mut exchange = WorkerExchange {
            worker: me.worker,
            secret: me.secret,
            number: self.last_number,
            reports: Vec::new(),
            actions: Vec::new(),
            wait: parameters.wait,
            time_left: parameters.time_left,
            draining: parameters.is_draining,
            leaving: false,
        };
        if lane == ExchangeLane::Report {
            let batch = self.reports.len().min(REPORTS_PER_EXCHANGE);
            exchange.reports = self.reports.drain(..batch).collect();
            exchange.actions = std::mem::take(&mut self.actions);
            exchange.wait = Duration::ZERO;
            exchange.leaving = parameters.is_leaving && self.reports.is_empty();
        }
        self.is_drain_reported = parameters.is_draining;
        self.lanes[lane as usize] = Some(SentExchange { exchange: exchange.clone(), is_under_way: true });
        exchange
    }

    /// The server has registered this worker, or accepted it again.
    pub(crate) fn on_registered(&mut self, me: WorkerCredentials) {
        self.credentials = Some(me);
        self.is_registering = false;
        self.record_success();
    }

    pub(crate) fn on_registration_failed(&mut self, retry_at: Instant) {
        self.is_registering = false;
        self.record_failure(retry_at);
    }

    /// Prepares a new registration with a server that does not know this worker: unconfirmed reports will be
    /// sent again after it.
    pub(crate) fn reset(&mut self) {
        let unanswered = std::mem::take(&mut self.lanes).into_iter().flatten().map(|sent| sent.exchange);
        let (mut reports, mut actions) = (VecDeque::new(), Vec::new());
        for exchange in unanswered {
            reports.extend(exchange.reports);
            actions.extend(exchange.actions);
        }
        reports.append(&mut self.reports);
        actions.append(&mut self.actions);
        *self = Self { epoch: self.epoch + 1, failures: self.failures, reports, actions, ..Self::default() };
    }

    /// Handles a reply: the reports of its exchange are delivered. Returns that exchange, and the replies that
    /// can be applied now, in the order of their numbers.
    pub(crate) fn on_reply(&mut self, answer: ExchangeReply) -> (Option<WorkerExchange>, Vec<ExchangeReply>) {
        self.record_success();
        let is_it = |sent: &SentExchange| sent.exchange.number == answer.number;
        let lane = self.lanes.iter_mut().find(|lane| lane.as_ref().is_some_and(is_it));
        let sent = lane.and_then(Option::take).map(|sent| sent.exchange);
        if sent.is_none() {
            return (None, Vec::new());
        }
        // An action has to run before the worker leaves.
        let stays = !answer.actions.is_empty();
        self.is_over |= !stays && sent.as_ref().is_some_and(|exchange| exchange.leaving);
        self.pending_replies.insert(answer.number, answer);
        let mut ready = Vec::new();
        while let Some(answer) = self.pending_replies.remove(&(self.last_applied + 1)) {
            self.last_applied += 1;
            ready.push(answer);
        }
        (sent, ready)
    }

    /// Schedules the exchange to be sent again.
    pub(crate) fn on_exchange_failed(&mut self, number: u64, retry_at: Instant) {
        for sent in self.lanes.iter_mut().flatten().filter(|sent| sent.exchange.number == number) {
            sent.is_under_way = false;
        }
        self.record_failure(retry_at);
    }

    fn record_failure(&mut self, retry_at: Instant) {
        self.failures += 1;
        self.retry_at = Some(retry_at);
    }

    fn record_success(&mut self) {
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
    use windlass_types::worker_messages::{AttemptKey, ReturnReason};
    use windlass_types::worker_protocol::ActionCommand;
    use windlass_types::{Attempt, JobId, RunId, WorkerId, WorkflowId};

    const PARAMETERS: ExchangeParameters = ExchangeParameters {
        wait: Duration::from_secs(20),
        time_left: None,
        is_draining: false,
        is_leaving: false,
        skips_polling: false,
    };

    fn report(job: i64) -> AttemptReport {
        let key = AttemptKey { workflow: WorkflowId(1), job: JobId(job), run: RunId(1), attempt: Attempt(1) };
        AttemptReport::Returned { key, why: ReturnReason::Recalled }
    }

    fn known() -> ExchangeClient {
        let mut client = ExchangeClient::default();
        assert_eq!(client.next_call(Instant::now(), &PARAMETERS), Some(NextCall::Register));
        assert_eq!(client.next_call(Instant::now(), &PARAMETERS), None, "once is enough");
        client.on_registered(WorkerCredentials { worker: WorkerId(7), secret: "s".into() });
        client
    }

    /// The lane, number and count of reports of a call.
    fn speak(
        client: &mut ExchangeClient,
        parameters: &ExchangeParameters,
    ) -> Option<(ExchangeLane, u64, usize)> {
        match client.next_call(Instant::now(), parameters)? {
            NextCall::Register => panic!("already registered"),
            NextCall::Exchange(lane, exchange) => Some((lane, exchange.number, exchange.reports.len())),
        }
    }

    fn answer(number: u64) -> ExchangeReply {
        ExchangeReply { number, ..ExchangeReply::default() }
    }

    #[test]
    fn reports_overtake_the_long_poll_one_batch_at_a_time() {
        let mut client = known();
        assert_eq!(speak(&mut client, &PARAMETERS), Some((ExchangeLane::Wait, 1, 0)));
        assert_eq!(speak(&mut client, &PARAMETERS), None);
        client.enqueue_reports([report(1), report(2)]);
        assert_eq!(speak(&mut client, &PARAMETERS), Some((ExchangeLane::Report, 2, 2)));
        client.enqueue_reports([report(3)]);
        assert_eq!(
            speak(&mut client, &PARAMETERS),
            None,
            "the second batch waits for the reply to the first"
        );
        assert_eq!(client.undelivered().count(), 3);
        let (sent, ready) = client.on_reply(answer(2));
        assert_eq!((sent.unwrap().reports.len(), ready.len()), (2, 0), "the older reply is applied first");
        assert_eq!(
            client.on_reply(answer(1)).1.iter().map(|answer| answer.number).collect::<Vec<_>>(),
            [1, 2]
        );
        assert_eq!(speak(&mut client, &PARAMETERS), Some((ExchangeLane::Report, 3, 1)));
        assert_eq!(speak(&mut client, &PARAMETERS), None, "no long poll while a report is under way");
        client.on_reply(answer(3));
        assert_eq!(speak(&mut client, &PARAMETERS), Some((ExchangeLane::Wait, 4, 0)));
        assert_eq!(client.on_reply(answer(4)).1.len(), 1);
        assert_eq!(client.on_reply(answer(4)), (None, Vec::new()), "a duplicate reply is ignored");
    }

    #[test]
    fn a_failed_exchange_is_repeated_unchanged() {
        let mut client = known();
        client.enqueue_reports([report(1)]);
        assert_eq!(speak(&mut client, &PARAMETERS), Some((ExchangeLane::Report, 1, 1)));
        let now = Instant::now();
        client.on_exchange_failed(1, now + Duration::from_mins(1));
        client.enqueue_reports([report(2)]);
        assert_eq!((speak(&mut client, &PARAMETERS), client.is_away()), (None, true));
        client.on_exchange_failed(1, now);
        assert_eq!(
            speak(&mut client, &PARAMETERS),
            Some((ExchangeLane::Report, 1, 1)),
            "the same, without later reports"
        );
        client.on_reply(answer(1));
        assert_eq!(
            (speak(&mut client, &PARAMETERS), client.is_away()),
            (Some((ExchangeLane::Report, 2, 1)), false)
        );
    }

    #[test]
    fn unconfirmed_reports_are_sent_again_after_registration() {
        let mut client = known();
        speak(&mut client, &PARAMETERS);
        client.enqueue_reports([report(1)]);
        speak(&mut client, &PARAMETERS);
        client.enqueue_reports([report(2)]);
        client.reset();
        assert_eq!(client.next_call(Instant::now(), &PARAMETERS), Some(NextCall::Register));
        assert_eq!(client.undelivered().cloned().collect::<Vec<_>>(), [report(1), report(2)]);
        client.on_registered(WorkerCredentials { worker: WorkerId(8), secret: "t".into() });
        assert_eq!(
            speak(&mut client, &PARAMETERS),
            Some((ExchangeLane::Report, 1, 2)),
            "numbers start again"
        );
    }

    #[test]
    fn the_last_exchange_carries_the_last_reports() {
        let mut client = known();
        let draining = ExchangeParameters { is_draining: true, ..PARAMETERS };
        speak(&mut client, &PARAMETERS);
        assert_eq!(
            speak(&mut client, &draining),
            Some((ExchangeLane::Report, 2, 0)),
            "draining is reported at once"
        );
        client.on_reply(answer(2));
        client.on_reply(answer(1));
        assert_eq!(speak(&mut client, &draining), Some((ExchangeLane::Wait, 3, 0)), "stops may still arrive");
        client.enqueue_reports((0..1001).map(report));
        let leaving = ExchangeParameters { is_leaving: true, ..draining };
        assert_eq!(speak(&mut client, &leaving), Some((ExchangeLane::Report, 4, 1000)));
        client.on_reply(answer(4));
        assert!(!client.is_over, "there was more to report");
        assert_eq!(speak(&mut client, &leaving), Some((ExchangeLane::Report, 5, 1)));
        let order = ActionCommand {
            workflow: WorkflowId(1),
            run: RunId(1),
            action: 1,
            attempt: Attempt(1),
            trigger: "on_worker_complete".into(),
            commands: Vec::new(),
            env: Vec::new(),
        };
        client.on_reply(ExchangeReply { actions: vec![order], ..answer(5) });
        assert!(!client.is_over, "an action has to run first");
        assert_eq!(speak(&mut client, &leaving), Some((ExchangeLane::Report, 6, 0)));
        client.on_reply(answer(6));
        assert!(client.is_over);
        assert_eq!(speak(&mut client, &leaving), None);
    }
}
