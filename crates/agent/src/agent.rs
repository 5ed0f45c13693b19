//! The agent's own thread: it hears of everything, decides, and has it done.

use crate::actions::Actions;
use crate::callers::{Call, Caller, Order, Way};
use crate::crew::{Crew, REPORT_LINGER, Remains};
use crate::event::Event;
use crate::home::{Home, Me, Notes, Process, unique};
use crate::journal::{Entry, Journal, is_last_word, key_of};
use crate::lease::Lease;
use crate::leaving::{End, Hurry, Leaving, Outcome, is_expected, next_hurry};
use crate::leftovers::{self, Legacy};
use crate::observe::{Observer, Progress};
use crate::options::{AgentOptions, Until};
use crate::sites::Sites;
use crate::talk::{Lane, Next, Talk, Wish};
use crate::{Error, backoff};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use windlass_api::job_token::{JobClaim, JobWork, secret_hash};
use windlass_client::{Client, Keyring};
use windlass_proc::identity::{Identity, boot_id, boot_time};
use windlass_proc::{Signal, machine};
use windlass_types::fleet::{
    ActionReport, Comeback, ExchangeAnswer, Introduction, StaleReport, StopOrder, Welcome,
};
use windlass_types::work::{
    AttemptKey, EndCause, Exit, FromWorker, Report, ReturnReason, StopReason, ToWorker, torc_api_url,
};
use windlass_types::{Attempt, WorkflowId};

/// A worker process that dies so often in a row without finishing a job is not replaced again. More often than it takes
/// until the server gives up jobs that kill it.
const WORKER_DEATHS: u32 = 12;
/// How often one that stays although there is nothing to do asks again, if the server would rather see it go.
const CALM: Duration = Duration::from_secs(5);
/// One that has more than it can run at once asks only after this: until then it will have something to report, and the
/// answer to that brings whatever there is.
const STOCKED: Duration = REPORT_LINGER.saturating_mul(2);
/// Longest pause between two tries to reach the server.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Nothing is due: look around all the same.
const AT_LEAST: Duration = Duration::from_mins(1);
/// Who wakes up so much later than it wanted was stopped, or the machine slept.
const LATE: Duration = Duration::from_secs(1);

pub struct Agent {
    pub(crate) options: AgentOptions,
    home: Home,
    notes: Notes,
    events: Receiver<Event>,
    post: Sender<Event>,
    callers: [Caller; 2],
    pub(crate) talk: Talk,
    pub(crate) lease: Lease,
    /// As last told to the worker process.
    told_lease: Duration,
    journal: Journal,
    /// What is in it.
    journaled: HashSet<AttemptKey>,
    journaled_actions: HashSet<(i64, Attempt)>,
    pub(crate) crew: Option<Crew>,
    crews: u32,
    deaths_in_a_row: u32,
    sites: Sites,
    /// What the server thinks is ours.
    held: BTreeSet<AttemptKey>,
    /// What the worker process has.
    pub(crate) busy: BTreeSet<AttemptKey>,
    pub(crate) actions: Actions,
    pub(crate) leaving: Option<Leaving>,
    pub(crate) idle_since: Instant,
    calm_until: Option<Instant>,
    first_contact_by: Instant,
    was_welcome: bool,
    pub(crate) is_frozen: bool,
    legacies: Vec<Legacy>,
    delivery: Option<JoinHandle<Vec<String>>>,
    shown: Progress,
    succeeded: u64,
    failed: u64,
    stopped: u64,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("home", &self.home).finish_non_exhaustive()
    }
}

/// Tells an agent to end, from another thread: first to drain, then to stop its jobs, then to kill them.
#[derive(Clone, Debug)]
pub struct Control(Sender<Event>);

impl Control {
    /// It takes nothing more. What runs may go on as long as there is time.
    pub fn drain(&self) {
        self.0.send(Event::Drain).ok();
    }

    /// The end of its time is near. If that is no news it goes on, for it takes nothing that would not be over in time; else it
    /// drains.
    pub fn warn(&self) {
        self.0.send(Event::Warn).ok();
    }

    /// What runs is stopped now, and goes back; told again, it is killed.
    pub fn stop(&self) {
        self.0.send(Event::Stop).ok();
    }

    pub fn interrupt(&self) {
        // One that is gone has nothing to end.
        self.0.send(Event::Interrupt).ok();
    }
}

impl Agent {
    /// Buries what earlier agents left here, and starts the process that runs jobs.
    pub fn new(options: AgentOptions) -> Result<Self, Error> {
        let legacies = leftovers::bury_all(&options.state_dir)?;
        let home = Home::create(&options.state_dir)?;
        let (post, events) = channel();
        let way = Arc::new(Way::new(options.client.clone(), options.find_again.clone()));
        let caller = |name| Caller::start(name, Arc::clone(&way), post.clone()).map_err(Error::Start);
        let callers = [caller("waits")?, caller("reports")?];
        let own = Identity::own().map_err(Error::Start)?;
        let token = unique().map_err(Error::Start)?;
        let notes = Notes {
            url: options.client.url().to_owned(),
            host: machine::hostname(),
            boot_id: boot_id().map_err(Error::Start)?,
            agent: Some(Process {
                pid: own.pid,
                start_ticks: own.start_ticks,
                token: token.clone(),
                ledger: PathBuf::new(),
            }),
            crew: None,
            me: None,
        };
        let now = Instant::now();
        let first = if options.persistent { options.give_up_after } else { options.first_contact };
        // One that is not to be idle for long does not wait longer than that for somebody to work for. In an allocation it does:
        // its node was waited for, and another one would be waited for again.
        let patience = options.idle_timeout.filter(|_| !options.persistent && options.slurm.is_none());
        let first = patience.map_or(first, |idle| idle.min(first));
        let mut agent = Self {
            journal: Journal::at(home.journal()),
            actions: Actions::new(token, {
                let post = post.clone();
                move |report| post.send(Event::ActionDone(report)).unwrap_or_default()
            })
            .with_environment(options.environment.clone()),
            options,
            home,
            notes,
            events,
            post,
            callers,
            talk: Talk::default(),
            lease: Lease::default(),
            told_lease: Duration::ZERO,
            journaled: HashSet::new(),
            journaled_actions: HashSet::new(),
            crew: None,
            crews: 0,
            deaths_in_a_row: 0,
            sites: Sites::default(),
            held: BTreeSet::new(),
            busy: BTreeSet::new(),
            leaving: None,
            idle_since: now,
            calm_until: None,
            first_contact_by: now + first,
            was_welcome: false,
            is_frozen: false,
            legacies,
            delivery: None,
            shown: Progress::default(),
            succeeded: 0,
            failed: 0,
            stopped: 0,
        };
        agent.start_crew()?;
        Ok(agent)
    }

    pub fn control(&self) -> Control {
        Control(self.post.clone())
    }

    /// Works until there is a reason to leave.
    pub fn run(mut self, observer: &mut dyn Observer) -> Result<Outcome, Error> {
        let end = self.work(observer);
        for text in self.delivery.take().and_then(|thread| thread.join().ok()).into_iter().flatten() {
            observer.notice(&text);
        }
        // Whatever happened: nothing of ours runs on without us.
        self.actions.stop(Signal::KILL);
        if let Some(crew) = self.crew.take() {
            crew.dismiss()?;
        }
        let undelivered = self.results_owed();
        let has_words = end.is_err() && self.talk.undelivered().any(is_last_word);
        let kept = (undelivered > 0 || has_words).then(|| self.home.directory().to_owned());
        if kept.is_some() {
            // No job is left that needs it.
            Keyring::open(self.home.directory())?.remove(self.options.client.url())?;
            // Whoever delivers it has nobody to bury.
            self.home.note(&Notes { agent: None, crew: None, ..self.notes })?;
        } else {
            self.home.remove();
        }
        let end = end?;
        let (succeeded, failed, stopped) = (self.succeeded, self.failed, self.stopped);
        Ok(Outcome { end, succeeded, failed, stopped, undelivered, kept })
    }

    fn work(&mut self, observer: &mut dyn Observer) -> Result<End, Error> {
        loop {
            self.look_around(observer)?;
            self.speak();
            self.show(observer);
            if let Some(end) = self.is_done() {
                self.tell_if_unheard(observer);
                return Ok(end);
            }
            let due = self.due();
            let mut next = self.events.recv_timeout(due.saturating_duration_since(Instant::now()));
            self.note_if_late(due);
            // All that has come by now, before anything is judged by what has not.
            while let Ok(event) = next {
                self.hear(event, observer)?;
                next = self.events.try_recv().map_err(|_| RecvTimeoutError::Timeout);
            }
        }
    }

    /// When to look around again if nothing happens.
    fn due(&self) -> Instant {
        let now = Instant::now();
        let lease_over = self.lease.until().filter(|_| !self.is_frozen);
        let lease_over = lease_over.map(|until| now + until.saturating_sub(boot_time()));
        let silence = self.lease.silence(boot_time());
        let gives_up = self.was_welcome && self.leaving.is_none_or(|leaving| leaving.hurry < Hurry::Kill);
        let give_up = gives_up.then(|| now + self.options.give_up_after.saturating_sub(silence));
        let hang = self.crew.as_ref().and_then(|crew| crew.asked).map(|at| at + self.lease.worker_patience());
        let idle = self.idle_deadline();
        let goodbye =
            self.leaving.and_then(|leaving| leaving.ready_since.map(|since| since + self.patience(leaving)));
        let until = self.options.until.filter(|_| self.leaving.is_none_or(|l| l.hurry == Hurry::None));
        let stop = until.map(|until| until.stop());
        let all = [self.talk.retry_at(), self.calm_until, lease_over, give_up, hang, idle, goodbye, stop];
        all.into_iter().flatten().chain([now + AT_LEAST]).min().unwrap_or(now)
    }

    /// After a pause of our own, silence of the others proves nothing yet.
    fn note_if_late(&mut self, due: Instant) {
        let now = Instant::now();
        if now > due + LATE
            && let Some(crew) = &mut self.crew
        {
            crew.asked = crew.asked.map(|_| now);
        }
    }

    fn hear(&mut self, event: Event, observer: &mut dyn Observer) -> Result<(), Error> {
        match event {
            Event::Worker(number, message) if self.is_current(number) => self.on_worker(message, observer),
            Event::WorkerGone(number) if self.is_current(number) => {
                // Where all processes are ended at once it is nobody's fault.
                let is_ended = self.options.slurm.is_some() && self.is_being_ended();
                let why = if is_ended { ReturnReason::Recalled } else { ReturnReason::WorkerDied };
                self.replace_crew(&why, observer)?;
            }
            Event::Introduced { epoch, sent, result } if epoch == self.talk.epoch => match result {
                Ok(welcome) => self.on_welcome(&welcome, sent, observer)?,
                Err(error) => self.on_no_welcome(error, observer)?,
            },
            Event::Answered { epoch, number, sent, result } if epoch == self.talk.epoch => match result {
                Ok(answer) => self.on_answer(ExchangeAnswer { number, ..answer }, sent, observer),
                Err(error) => self.on_no_answer(number, &error, observer),
            },
            // Of a process that is buried, or of an earlier life at the server.
            Event::Worker(..) | Event::WorkerGone(_) | Event::Introduced { .. } | Event::Answered { .. } => {}
            Event::Moved(client) => self.on_moved(client, observer)?,
            Event::ActionDone(report) => {
                if self.actions.done(&report) {
                    self.talk.report_action(report);
                    self.keep_results(observer);
                }
            }
            Event::Interrupt => {
                let is_shutdown = self.crew.as_ref().is_some_and(|crew| crew.was_terminated);
                let hurry = next_hurry(self.leaving.as_ref());
                let hurry = if is_shutdown { hurry.max(Hurry::Stop) } else { hurry };
                let why = if hurry == Hurry::None { End::Drained } else { End::Stopped };
                observer.notice(match hurry {
                    Hurry::None => "finishing what runs; once more to stop it",
                    Hurry::Stop => "stopping what runs; once more to kill it",
                    Hurry::Kill => "killing what runs",
                });
                self.leave(why, hurry);
            }
            Event::Drain => self.drain(observer),
            Event::Warn => {
                let left =
                    self.options.until.map(|until| until.end.saturating_duration_since(Instant::now()));
                if !is_expected(left, self.options.warning) {
                    self.drain(observer);
                } else if self.leaving.is_none() {
                    observer.notice("the end is near: nothing is begun that would not be over in time");
                }
            }
            Event::Stop => {
                let hurry = next_hurry(self.leaving.as_ref()).max(Hurry::Stop);
                observer.notice("told to end: what runs is stopped, and goes back to be run again");
                self.leave(End::Stopped, hurry);
            }
        }
        Ok(())
    }

    fn drain(&mut self, observer: &mut dyn Observer) {
        if self.leaving.is_none() {
            observer.notice("the end is near: finishing what runs, as far as there is time");
        }
        self.leave(End::Drained, Hurry::None);
    }

    // ---- the worker process

    fn is_current(&self, number: u32) -> bool {
        self.crew.as_ref().is_some_and(|crew| crew.number == number)
    }

    fn start_crew(&mut self) -> Result<(), Error> {
        self.crews += 1;
        let mut crew = Crew::start(&self.options, &self.home, self.crews, self.post.clone())?;
        self.notes.crew = Some(crew.process.clone());
        self.home.note(&self.notes)?;
        for site in self.sites.iter() {
            crew.tell(&ToWorker::Workflow(Box::new(site.clone())));
        }
        if let Some(until) = self.lease.until() {
            crew.tell(&ToWorker::Lease(until));
        }
        self.crew = Some(crew);
        Ok(())
    }

    /// What cannot be said to it will be noticed as its death.
    fn tell_crew(&mut self, message: &ToWorker) {
        if let Some(crew) = &mut self.crew
            && !crew.tell(message)
        {
            self.post.send(Event::WorkerGone(crew.number)).ok();
        }
    }

    /// It died or hangs: what it had is lost, or was never started.
    pub(crate) fn replace_crew(
        &mut self,
        why: &ReturnReason,
        observer: &mut dyn Observer,
    ) -> Result<(), Error> {
        let Some(crew) = self.crew.take() else { return Ok(()) };
        let Remains { started, mut ends } = crew.bury()?;
        // Jobs that ended, but whose reports did not arrive.
        let ended: Vec<Report> =
            self.busy.iter().filter_map(|key| ends.remove(key)).map(Report::Ended).collect();
        self.tell_server(ended, observer);
        let lost = std::mem::take(&mut self.busy);
        let may_have_started = |key: &AttemptKey| started.as_ref().is_none_or(|keys| keys.contains(key));
        let count = lost.iter().filter(|key| may_have_started(key)).count();
        let what = if *why == ReturnReason::WorkerHung { "does not answer, and was ended" } else { "died" };
        observer.notice(&format!(
            "the process that runs jobs {what} ({count} of them had started); a new one takes over"
        ));
        let reports = lost.into_iter().filter(|key| self.held.contains(key)).map(|key| {
            let why = if may_have_started(&key) { why.clone() } else { ReturnReason::Recalled };
            Report::Returned { key, why }
        });
        self.talk.report(reports.collect::<Vec<_>>());
        self.keep_results(observer);
        self.deaths_in_a_row += 1;
        if self.deaths_in_a_row >= WORKER_DEATHS {
            return Err(Error::WorkerKeepsDying(WORKER_DEATHS));
        }
        self.start_crew()
    }

    fn on_worker(&mut self, message: FromWorker, observer: &mut dyn Observer) {
        match message {
            FromWorker::Hello { .. } => {}
            FromWorker::Terminated => self.on_crew_terminated(),
            FromWorker::Alive { frozen, .. } => {
                if let Some(crew) = &mut self.crew {
                    crew.is_frozen = frozen;
                    if frozen || !self.is_frozen {
                        crew.asked = None;
                    }
                }
            }
            FromWorker::Reports(reports) => {
                self.tell_server(reports, observer);
            }
        }
    }

    /// It was sent SIGTERM, and so, probably, were its jobs. If this agent was told to end as well, everything here is
    /// being shut down: there is no time to let jobs end by themselves.
    fn on_crew_terminated(&mut self) {
        if let Some(crew) = &mut self.crew {
            crew.was_terminated = true;
        }
        if self.leaving.is_some() {
            self.leave(End::Stopped, Hurry::Stop);
        }
    }

    fn tell_server(&mut self, reports: Vec<Report>, observer: &mut dyn Observer) {
        let reports: Vec<Report> =
            reports.into_iter().filter(|report| self.is_worth_telling(report, observer)).collect();
        self.talk.report(reports);
        self.keep_results(observer);
    }

    /// What ends here now does so because this agent has to go.
    fn is_being_ended(&self) -> bool {
        self.leaving.is_some_and(|leaving| leaving.hurry >= Hurry::Stop)
    }

    fn is_worth_telling(&mut self, report: &Report, observer: &mut dyn Observer) -> bool {
        let key = key_of(report);
        if is_last_word(report) {
            self.busy.remove(&key);
            self.idle_since = Instant::now();
        }
        if let Report::Ended(ended) = report {
            self.deaths_in_a_row = 0;
            observer.ended(ended);
            let succeeded = ended.exit == Exit::Code(0) && ended.cause == EndCause::Itself;
            let count = match &ended.cause {
                // It goes back to be run again.
                EndCause::Stopped(StopReason::Interrupted) if self.leaving.is_some() => &mut self.stopped,
                _ if succeeded => &mut self.succeeded,
                _ => &mut self.failed,
            };
            *count += 1;
        }
        if let Report::Returned { why: ReturnReason::WorkerTrouble(trouble), .. } = report
            && self.sites.note_trouble(key.workflow, trouble)
        {
            observer.notice(&format!("jobs of workflow {} cannot be started here: {trouble}", key.workflow));
        }
        // Somebody else has the ones that we lost.
        self.held.contains(&key)
    }

    // ---- the server

    fn speak(&mut self) {
        let now = Instant::now();
        self.calm_until = self.calm_until.filter(|until| now < *until);
        let wish = self.wish(now);
        while let Some(next) = self.talk.next(now, &wish) {
            let (lane, call) = match next {
                Next::Introduce => (Lane::Report, Call::Introduce(Box::new(self.introduction()))),
                Next::Exchange(lane, exchange) => (lane, Call::Exchange(exchange)),
            };
            let order = Order { epoch: self.talk.epoch, call, within: self.lease.patience() };
            self.callers[lane as usize].call(order);
        }
    }

    fn wish(&self, now: Instant) -> Wish {
        let until = self.options.until.map(|until| until.stop());
        Wish {
            wait: self.lease.wait(),
            time_left: until.map(|end| end.saturating_duration_since(now)),
            draining: self.leaving.is_some(),
            leaving: self.leaving.is_some_and(|leaving| leaving.ready_since.is_some()),
            calm: self.calm_until.is_some(),
        }
    }

    fn introduction(&self) -> Introduction {
        let before = self.notes.me.as_ref().map(|me| Comeback {
            worker: me.worker,
            secret: me.secret.clone(),
            held: self.held.iter().copied().collect(),
            actions: self.own_actions(),
        });
        Introduction {
            host: self.notes.host.clone(),
            boot_id: self.notes.boot_id.clone(),
            pid: self.notes.agent.as_ref().map_or(0, |agent| agent.pid),
            pid_start_ticks: self.notes.agent.as_ref().map_or(0, |agent| agent.start_ticks),
            capacity: self.options.capacity,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            labels: self.options.labels.clone(),
            site: self.options.site.clone(),
            jobs_of: self.options.jobs_of.clone(),
            workflow: self.options.workflow,
            before,
            allocation: self.options.allocation,
            slurm: self.options.slurm.clone(),
        }
    }

    /// Those under way here, and those whose end the server has not heard of.
    fn own_actions(&self) -> Vec<(i64, Attempt)> {
        let ended = self.talk.undelivered_actions().map(|report| (report.action, report.attempt));
        self.actions.keys().chain(ended).collect()
    }

    fn on_welcome(
        &mut self,
        welcome: &Welcome,
        sent: Duration,
        observer: &mut dyn Observer,
    ) -> Result<(), Error> {
        let me = Me { worker: welcome.worker, secret: welcome.secret.clone() };
        self.notes.me = Some(me.clone());
        self.home.note(&self.notes)?;
        if self.was_welcome {
            observer.notice("the server has taken this worker back");
        } else {
            // Until now nobody could tell whether there is something to do.
            self.idle_since = Instant::now();
        }
        self.was_welcome = true;
        self.talk.introduced(me);
        // Before anything is woken: what is not ours any more must not go on for a moment.
        self.drop_lost(&welcome.lost, observer);
        self.actions.give_up(&welcome.lost_actions);
        self.forget_unused();
        self.renew_lease(welcome.lease, sent);
        self.deliver_legacies();
        Ok(())
    }

    fn drop_lost(&mut self, lost: &[AttemptKey], observer: &mut dyn Observer) {
        let mut orders: BTreeMap<WorkflowId, Vec<AttemptKey>> = BTreeMap::new();
        for key in lost {
            self.held.remove(key);
            if self.busy.contains(key) {
                orders.entry(key.workflow).or_default().push(*key);
            }
        }
        let count: usize = orders.values().map(Vec::len).sum();
        if count > 0 {
            observer.notice(&format!(
                "{count} of the jobs here have been given to others meanwhile, and are ended"
            ));
        }
        for (workflow, attempts) in orders {
            let why = StopReason::Interrupted;
            self.tell_crew(&ToWorker::StopSome(StopOrder { workflow, attempts, why, grace: Duration::ZERO }));
        }
    }

    fn on_no_welcome(
        &mut self,
        error: windlass_client::Error,
        observer: &mut dyn Observer,
    ) -> Result<(), Error> {
        let now = Instant::now();
        if !self.was_welcome
            && (!error.is_passing() || now >= self.first_contact_by || self.leaving.is_some())
        {
            return Err(error.into());
        }
        if error.problem().is_some_and(|problem| problem.status == 404) {
            observer.notice(&format!("the server has no more use for this worker: {error}"));
            self.leave(End::Dismissed, Hurry::Kill);
        }
        self.note_away(&error, observer);
        let pause = self.pause(&error);
        self.talk.introduction_failed(now + pause);
        self.keep_results(observer);
        Ok(())
    }

    fn on_no_answer(&mut self, number: u64, error: &windlass_client::Error, observer: &mut dyn Observer) {
        if matches!(error.code(), Some("unknown_worker" | "superseded")) {
            self.talk.begin_anew();
            return;
        }
        self.note_away(error, observer);
        let pause = self.pause(error);
        self.talk.exchange_failed(number, Instant::now() + pause);
        self.keep_results(observer);
    }

    /// Jobs find the token for the new place where they found the one for the old.
    fn on_moved(&mut self, client: Client, observer: &mut dyn Observer) -> Result<(), Error> {
        // Both lanes look for it.
        if client.is_same_way(&self.options.client) {
            return Ok(());
        }
        if client.url() != self.options.client.url() {
            observer.notice(&format!("the server of this database is now at {}", client.url()));
        }
        if let Some(kept) = client.to_keep_for_jobs() {
            let mut keyring = Keyring::open(self.home.directory())?;
            keyring.remove(self.options.client.url())?;
            keyring.keep(kept)?;
        }
        client.url().clone_into(&mut self.notes.url);
        self.home.note(&self.notes)?;
        self.options.client = client;
        self.talk.try_now();
        Ok(())
    }

    fn note_away(&self, error: &windlass_client::Error, observer: &mut dyn Observer) {
        if !self.talk.is_away() {
            observer.notice(&format!("{error}; trying again"));
        }
    }

    fn pause(&self, error: &windlass_client::Error) -> Duration {
        let longest = if self.lease.length().is_zero() { LONGEST_PAUSE } else { self.lease.length() / 6 };
        let longest = longest.min(LONGEST_PAUSE);
        let own = backoff::pause(self.talk.failures() + 1, longest, backoff::dice());
        own.max(error.retry_after().unwrap_or_default().min(longest))
    }

    fn on_answer(&mut self, answer: ExchangeAnswer, sent: Duration, observer: &mut dyn Observer) {
        if self.talk.is_away() {
            observer.notice("the server answers again");
        }
        let (said, ready) = self.talk.answered(answer);
        for report in said.iter().flat_map(|exchange| &exchange.reports) {
            if is_last_word(report) {
                self.held.remove(&key_of(report));
            }
        }
        let is_kept = !self.journaled.is_empty() || !self.journaled_actions.is_empty();
        let nothing_left =
            self.talk.undelivered().next().is_none() && self.talk.undelivered_actions().next().is_none();
        if is_kept && nothing_left {
            self.journaled.clear();
            self.journaled_actions.clear();
            // What stays there would only be delivered once more, and refused.
            self.journal.clear().ok();
        }
        self.renew_lease(self.lease.length(), sent);
        for answer in ready {
            self.obey(answer, observer);
        }
        let reported = said.is_some_and(|exchange| !exchange.reports.is_empty());
        if reported && self.busy.len() > self.options.capacity.slots() {
            self.calm_until = self.calm_until.max(Some(Instant::now() + STOCKED));
        }
    }

    fn obey(&mut self, mut answer: ExchangeAnswer, observer: &mut dyn Observer) {
        if let Some(end) = answer.ends_in.and_then(|left| Instant::now().checked_add(left)) {
            let lead = self.options.until.map_or(self.options.grace, |until| until.lead);
            self.options.until = Some(Until { end, lead });
        }
        for StaleReport { key, found } in &answer.stale {
            observer.notice(&format!("the server did not take what was reported of {key}: {found}"));
        }
        self.forget(answer.over);
        for site in answer.workflows {
            self.tell_crew(&ToWorker::Workflow(Box::new(site.clone())));
            self.sites.insert(site);
        }
        let keys: Vec<AttemptKey> = answer.assignments.iter().map(|assignment| assignment.key).collect();
        self.held.extend(&keys);
        if self.leaving.is_some() {
            let back = keys.into_iter().map(|key| Report::Returned { key, why: ReturnReason::Recalled });
            self.talk.report(back);
        } else if !keys.is_empty() {
            for assignment in &mut answer.assignments {
                let token = self.job_token(JobWork::Job(assignment.key));
                // In front: what the job sets itself comes later, and wins.
                assignment.env.splice(0..0, token);
            }
            if let Some(launcher) = &self.options.launcher {
                for assignment in &mut answer.assignments {
                    let execution = self.sites.execution(assignment.key.workflow);
                    assignment.launcher = launcher(assignment, execution);
                }
            }
            let launches = answer.assignments.iter().any(|assignment| !assignment.launcher.is_empty());
            if let Some(crew) = &mut self.crew {
                crew.has_launched |= launches;
            }
            self.busy.extend(keys);
            self.tell_crew(&ToWorker::Assign(answer.assignments));
        }
        for order in answer.stops {
            if order.attempts.is_empty() {
                self.actions.stop_those_of(order.workflow, order.grace);
            }
            self.tell_crew(&ToWorker::StopSome(order));
        }
        for mut order in answer.actions {
            order.env.extend(self.way_to_server());
            let (workflow, action, attempt) = (order.workflow, order.action, order.attempt);
            order.env.extend(self.job_token(JobWork::Action { workflow, action, attempt }));
            if self.leaving.is_some_and(|leaving| leaving.hurry > Hurry::None) {
                self.actions.refuse(&order, "the worker was being stopped");
                continue;
            }
            let directory = self.sites.output_dir(order.workflow);
            self.actions.start(order, directory);
        }
        if answer.drain {
            self.leave(End::Drained, Hurry::None);
        }
        if answer.dismissed {
            self.on_dismissed();
        }
    }

    fn forget(&mut self, over: Vec<WorkflowId>) {
        for workflow in over {
            self.sites.forget(workflow);
            self.tell_crew(&ToWorker::Forget(workflow));
        }
    }

    /// A server that took this worker back tells of each workflow anew, and not which were over meanwhile.
    fn forget_unused(&mut self) {
        let of_jobs = self.busy.iter().map(|key| key.workflow);
        let in_use = of_jobs.chain(self.actions.workflows()).collect();
        self.forget(self.sites.unused(&in_use));
    }

    /// What a job or an action shows to the server: good for its workflow, as long as it runs here. Made here, so that the server
    /// need not make and keep one per job.
    fn job_token(&self, work: JobWork) -> Option<(String, String)> {
        self.options.client.token()?;
        let me = self.notes.me.as_ref()?;
        let token = JobClaim { worker: me.worker, work }.sign(&secret_hash(&me.secret));
        Some((crate::JOB_TOKEN.to_owned(), token))
    }

    /// What jobs find in their environment to act at the server, for the commands of actions.
    fn way_to_server(&self) -> Vec<(String, String)> {
        let url = self.options.client.url();
        let urls = [
            ("WINDLASS_URL", url.to_owned()),
            ("WINDLASS_API_URL", url.to_owned()),
            ("TORC_API_URL", torc_api_url(url)),
        ];
        let keyring = self.options.client.to_keep_for_jobs().and_then(|_| self.home.directory().to_str());
        let keyring = keyring.map(|directory| (crate::KEYRING.to_owned(), directory.to_owned()));
        urls.into_iter().map(|(name, url)| (name.to_owned(), url)).chain(keyring).collect()
    }

    /// One that is to stay, or to stay for a while, asks again later.
    fn on_dismissed(&mut self) {
        let may_stay = self.options.persistent || self.options.idle_timeout.is_some();
        if may_stay && !self.options.leaves_when_over {
            self.calm_until = Some(Instant::now() + CALM.min(self.lease.wait()));
        } else {
            self.leave(End::Dismissed, Hurry::None);
        }
    }

    pub(crate) fn renew_lease(&mut self, length: Duration, sent: Duration) {
        self.lease.renew(length, sent);
        let now = boot_time();
        let Some(until) = self.lease.until().filter(|until| now < *until) else { return };
        let was_frozen = std::mem::replace(&mut self.is_frozen, false);
        if was_frozen {
            self.actions.thaw();
        }
        if was_frozen || until >= self.told_lease + length / 10 {
            self.told_lease = until;
            self.ask_crew(&ToWorker::Lease(until));
        }
    }

    /// Says something that is to be answered with a sign of life.
    pub(crate) fn ask_crew(&mut self, message: &ToWorker) {
        if let Some(crew) = &mut self.crew {
            crew.asked.get_or_insert_with(Instant::now);
        }
        self.tell_crew(message);
    }

    /// While the server is away, what it has not got is on disk before anything else happens.
    fn keep_results(&mut self, observer: &mut dyn Observer) {
        if !self.talk.is_away() {
            return;
        }
        let new = |report: &&Report| is_last_word(report) && !self.journaled.contains(&key_of(report));
        let reports = self.talk.undelivered().filter(new).cloned().map(Entry::Report);
        let new = |report: &&ActionReport| !self.journaled_actions.contains(&(report.action, report.attempt));
        let actions = self.talk.undelivered_actions().filter(new).cloned().map(Entry::Action);
        let entries: Vec<Entry> = reports.chain(actions).collect();
        if let Err(error) = self.journal.append(&entries) {
            let path = self.home.journal();
            observer.notice(&format!("results cannot be kept in {}: {error}", path.display()));
            return;
        }
        for entry in &entries {
            match entry {
                Entry::Report(report) => _ = self.journaled.insert(key_of(report)),
                Entry::Action(report) => _ = self.journaled_actions.insert((report.action, report.attempt)),
            }
        }
    }

    /// What earlier agents here could not deliver, now that the server can be reached.
    fn deliver_legacies(&mut self) {
        let legacies = std::mem::take(&mut self.legacies);
        if legacies.is_empty() {
            return;
        }
        let (client, who) = (self.options.client.clone(), self.introduction());
        let deliver = move || {
            let results = legacies.into_iter().map(|legacy| legacy.deliver(&client, &who));
            let told = results.filter_map(|result| match result {
                Ok(0) => None,
                Ok(1) => Some("delivered a result of an earlier worker on this machine".to_owned()),
                Ok(count) => Some(format!("delivered {count} results of an earlier worker on this machine")),
                Err(error) => {
                    Some(format!("results of an earlier worker here are not delivered yet: {error}"))
                }
            });
            told.collect()
        };
        // Without a thread the next agent does it.
        self.delivery = thread::Builder::new().name("legacies".to_owned()).spawn(deliver).ok();
    }

    // ---- leaving

    /// A later reason to leave can only add to the hurry.
    pub(crate) fn leave(&mut self, why: End, hurry: Hurry) {
        let before = self.leaving.map(|leaving| leaving.hurry);
        if before.is_some_and(|before| before >= hurry) {
            return;
        }
        self.leaving = Some(Leaving { why, hurry, ready_since: None });
        let interrupted = StopReason::Interrupted;
        match hurry {
            Hurry::None => self.tell_crew(&ToWorker::Recall),
            Hurry::Stop => {
                self.actions.stop(Signal::TERM);
                self.tell_crew(&ToWorker::Stop { why: interrupted, grace: self.options.grace });
            }
            Hurry::Kill => {
                self.actions.stop(Signal::KILL);
                self.tell_crew(&ToWorker::Stop { why: interrupted, grace: Duration::ZERO });
            }
        }
    }

    fn is_done(&self) -> Option<End> {
        let leaving = self.leaving?;
        let waited = leaving.ready_since.is_some_and(|since| since.elapsed() >= self.patience(leaving));
        let never_began = !self.was_welcome && leaving.ready_since.is_some();
        (self.talk.is_over || waited || never_began).then_some(leaving.why)
    }

    fn patience(&self, leaving: Leaving) -> Duration {
        leaving.patience(self.results_owed() > 0, self.options.give_up_after)
    }

    /// Results that the server has not got. That a job was given back it also learns when our lease is over.
    fn results_owed(&self) -> usize {
        let results = self.talk.undelivered().filter(|report| matches!(report, Report::Ended(_)));
        results.count() + self.talk.undelivered_actions().count()
    }

    fn tell_if_unheard(&self, observer: &mut dyn Observer) {
        if self.was_welcome && !self.talk.is_over {
            observer.notice("the server does not answer; leaving without a goodbye");
        }
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.home.directory().to_owned()
    }

    pub(crate) const fn was_welcome(&self) -> bool {
        self.was_welcome
    }

    fn show(&mut self, observer: &mut dyn Observer) {
        let progress = Progress {
            worker: self.notes.me.as_ref().map(|me| me.worker.0),
            held: self.busy.len(),
            succeeded: self.succeeded,
            failed: self.failed,
            undelivered: if self.talk.is_away() { self.talk.undelivered().count() } else { 0 },
            is_away: self.talk.is_away(),
            is_frozen: self.is_frozen,
            is_leaving: self.leaving.is_some(),
        };
        if progress != self.shown {
            observer.progress(&progress);
            self.shown = progress;
        }
    }
}
