//! A test environment for the service: a real database, and workers that are plain calls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use windlass_core::dependency_edges::DependencyEdgesBuilder;
use windlass_scheduler::service::{
    CallError, CallReply, ManualClock, OnUnreachableAllocationWorker, OnWorkflowChange, SchedulerClock,
    SchedulerHandle, SchedulerOptions, UnreachableAllocationWorker, WorkerCaller, WorkerOwner,
    WorkflowPredicate,
};
use windlass_store::Store;
use windlass_store::fault_injection::{self, DatabaseOperation, FaultInjector, InjectedOutcome};
use windlass_store::model::{
    InMemoryJobSource, JobFilter, NewJob, NewRequirements, NewWorkflow, ResultFilter, WorkflowRow,
};
use windlass_store::sqlite::SqliteStore;
use windlass_types::settings::{FailureHandler, FailureRule, WorkflowSettings};
use windlass_types::worker_messages::{
    Assignment, AttemptEndCause, AttemptEndReport, AttemptKey, AttemptReport, AttemptUsage, ProcessExit,
};
use windlass_types::worker_protocol::{
    AcceptedJobOwners, ExchangeReply, RegistrationReply, WorkerExchange, WorkerReconnect, WorkerRegistration,
};
use windlass_types::{
    Attempt, Bytes, Capacity, JobDefinition, JobGroup, JobSettings, JobStatus, Resources, Timestamp,
    WorkerId, WorkflowId,
};

pub(crate) const LEASE: Duration = Duration::from_mins(1);
/// With a manual clock, a reply comes at once or never.
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct Fixture {
    /// The database itself, without injected errors.
    pub(crate) store: Arc<dyn Store>,
    /// The database as the service sees it.
    job_store: Arc<dyn Store>,
    database_state: Arc<Mutex<DatabaseState>>,
    pub(crate) service: SchedulerHandle,
    pub(crate) hand: ManualClock,
    /// Workflows with a notified change.
    pub(crate) changed: ChangedWorkflows,
    /// Silent workers that were notified.
    pub(crate) silent: Arc<Mutex<Vec<UnreachableAllocationWorker>>>,
    _dir: tempfile::TempDir,
}

/// In the order of notification.
pub(crate) type ChangedWorkflows = Arc<Mutex<Vec<WorkflowId>>>;

/// Decides the result of operations of the database; without it all succeed.
pub(crate) type DatabaseState = Option<Box<dyn FnMut(DatabaseOperation) -> InjectedOutcome + Send>>;

/// A job to be created.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlannedJob {
    pub(crate) waits_for: Vec<u32>,
    pub(crate) priority: i32,
    /// 0: no request.
    pub(crate) cpus: u32,
    pub(crate) runtime: Option<Duration>,
    pub(crate) labels: Vec<String>,
    pub(crate) unit: Option<u32>,
    pub(crate) elects: bool,
    pub(crate) limit: Option<&'static str>,
    /// It uses the failure handler of the workflow.
    pub(crate) is_handled: bool,
}

/// The failure settings of a workflow.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailureSettings {
    pub(crate) rules: Vec<FailureRule>,
    pub(crate) settings: WorkflowSettings,
}

pub(crate) fn handled() -> PlannedJob {
    PlannedJob { is_handled: true, ..PlannedJob::default() }
}

pub(crate) fn plain() -> PlannedJob {
    PlannedJob::default()
}

pub(crate) fn after(waits_for: &[u32]) -> PlannedJob {
    PlannedJob { waits_for: waits_for.to_vec(), ..PlannedJob::default() }
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(false)
    }

    /// Failures on a host count against all workers there.
    pub(crate) fn sharing_node_blame() -> Self {
        Self::with(true)
    }

    fn with(shares_node_blame: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::create(dir.path().join("windlass.db")).unwrap().store;
        let database_state = Arc::new(Mutex::new(DatabaseState::None));
        let sky = Arc::clone(&database_state);
        let door: FaultInjector = Arc::new(move |asked| {
            locked(&sky).as_mut().map_or(InjectedOutcome::Done, |decide| decide(asked))
        });
        let job_store: Arc<dyn Store> = fault_injection::inject_faults(door, &store);
        let changed = ChangedWorkflows::default();
        let silent = Arc::default();
        let (service, hand) = start(&job_store, &changed, &silent, shares_node_blame);
        Self { store: Arc::new(store), job_store, database_state, service, hand, changed, silent, _dir: dir }
    }

    /// Sets the function that decides the results of database operations.
    pub(crate) fn database_state(
        &self,
        decide: impl FnMut(DatabaseOperation) -> InjectedOutcome + Send + 'static,
    ) {
        self.change_database_state(Some(Box::new(decide)));
    }

    /// Returns the previous one.
    pub(crate) fn change_database_state(&self, database_state: DatabaseState) -> DatabaseState {
        std::mem::replace(&mut *locked(&self.database_state), database_state)
    }

    /// This many of the next operations of this kind end like this; all others succeed.
    pub(crate) fn next_ones(
        &self,
        mut count: u32,
        kind: DatabaseOperation,
        outcome: fn() -> InjectedOutcome,
    ) {
        self.database_state(move |asked| {
            let meant = count > 0 && asked == kind;
            count -= u32::from(meant);
            if meant { outcome() } else { InjectedOutcome::Done }
        });
    }

    /// Nothing can be read or written.
    pub(crate) fn blackout(&self) {
        self.database_state(|_| InjectedOutcome::Failed);
    }

    pub(crate) fn database_available(&self) {
        drop(self.change_database_state(None));
    }

    /// The next batch waits until the returned sender is dropped. Returns when there is one, after `and_do`.
    pub(crate) fn hold_next_batch(&self, and_do: impl FnOnce()) -> mpsc::Sender<()> {
        let (release, word) = mpsc::channel();
        let (reached, is_there) = mpsc::channel();
        let mut word = Some(word);
        self.database_state(move |asked| match word.take_if(|_| asked == DatabaseOperation::Batch) {
            Some(word) => {
                reached.send(()).unwrap_or_default();
                InjectedOutcome::Delayed(word)
            }
            None => InjectedOutcome::Done,
        });
        and_do();
        is_there.recv_timeout(WAIT_TIMEOUT).expect("a batch");
        release
    }

    /// Waits for a reply that may take a while by the clock of the service.
    pub(crate) fn in_time<T>(&self, answer: &mpsc::Receiver<Result<T, CallError>>) -> Result<T, CallError> {
        for _ in 0..30 {
            self.service.check_time();
            match answer.try_recv() {
                Ok(answer) => return answer,
                Err(mpsc::TryRecvError::Empty) => self.hand.advance(Duration::from_secs(1)),
                Err(mpsc::TryRecvError::Disconnected) => panic!("the reply channel was dropped"),
            }
        }
        panic!("no reply in 30 seconds");
    }

    /// The server is killed and restarted on the same database: nothing of its memory is left.
    pub(crate) fn restart(&mut self) {
        let (service, hand) = start(&self.job_store, &self.changed, &self.silent, false);
        (self.service, self.hand) = (service, hand);
    }

    /// Time passes while the service checks the clock regularly.
    pub(crate) fn pass(&self, time: Duration) {
        let step = Duration::from_secs(1);
        for _ in 0..time.as_secs() {
            self.hand.advance(step);
            self.service.check_time();
        }
    }

    /// Creates a workflow; jobs are called `j` and their number.
    pub(crate) fn create(&self, jobs: &[PlannedJob]) -> WorkflowRow {
        self.create_failing(jobs, &FailureSettings::default())
    }

    /// The same with failure settings.
    pub(crate) fn create_failing(&self, jobs: &[PlannedJob], failing: &FailureSettings) -> WorkflowRow {
        let mut edges = DependencyEdgesBuilder::default();
        let names: Vec<String> = (0..jobs.len()).map(|number| format!("j{number}")).collect();
        let requirements: Vec<NewRequirements<'_>> = jobs
            .iter()
            .zip(&names)
            .map(|(job, name)| {
                let resources =
                    Resources { cpus: job.cpus.max(1), runtime: job.runtime, ..Resources::DEFAULT };
                NewRequirements { name, resources }
            })
            .collect();
        let kinds: Vec<JobGroup<u32>> = jobs
            .iter()
            .zip(&names)
            .map(|(job, name)| {
                let failure_handler = job.is_handled.then_some(0);
                let PlannedJob { labels, limit, elects, .. } = job;
                let (limit, elects) = (*limit, *elects);
                JobGroup {
                    name: name.clone(),
                    settings: JobSettings {
                        labels: labels.clone(),
                        limit: limit.map(str::to_owned),
                        failure_handler,
                        ..JobSettings::default()
                    },
                    elects_site: elects,
                    ..JobGroup::default()
                }
            })
            .collect();
        let handlers = [FailureHandler { name: "again".into(), rules: failing.rules.clone() }];
        for (job, planned) in (0..).zip(jobs) {
            edges.add_dependencies(job, &planned.waits_for);
        }
        let workflow = NewWorkflow {
            name: "test",
            user: "me",
            submission_dir: "/",
            output_dir: "/tmp",
            requirements: &requirements,
            job_groups: &kinds,
            failure_handlers: &handlers,
            settings: Some(&failing.settings),
            edges: &edges.finish(),
            ..NewWorkflow::default()
        };
        let mut rows = InMemoryJobSource::new((0..).zip(jobs).zip(&names).map(|((number, job), name)| {
            NewJob {
                job_group: (job.is_handled || !job.labels.is_empty() || job.limit.is_some() || job.elects)
                    .then_some(number),
                unit: job.unit,
                status: JobStatus::Uninitialized,
                ..NewJob::from(JobDefinition {
                    resource_requirements: (job.cpus > 0 || job.runtime.is_some()).then_some(number),
                    priority: job.priority,
                    ..JobDefinition::new(&**name, "true")
                })
            }
        }));
        let id = self.store.create_workflow(&workflow, &mut rows, Timestamp(1)).unwrap();
        self.store.workflow(id).unwrap().unwrap()
    }

    /// Creates a workflow and starts it.
    pub(crate) fn begin(&self, jobs: &[PlannedJob]) -> WorkflowId {
        self.begin_failing(jobs, &FailureSettings::default())
    }

    pub(crate) fn begin_failing(&self, jobs: &[PlannedJob], failing: &FailureSettings) -> WorkflowId {
        let row = self.create_failing(jobs, failing);
        ask(|reply| self.service.start_workflow(row.id, "me", reply)).unwrap();
        row.id
    }

    pub(crate) fn statuses(&self, workflow: WorkflowId) -> Vec<JobStatus> {
        self.service.check_time();
        self.store.jobs(workflow, &JobFilter::default()).unwrap().iter().map(|job| job.status).collect()
    }

    /// (job name, attempt, return code), oldest job first.
    pub(crate) fn results(&self, workflow: WorkflowId) -> Vec<(String, u32, i32)> {
        let filter = ResultFilter { all_runs: true, ..ResultFilter::default() };
        let rows = self.store.results(workflow, &filter).unwrap();
        rows.into_iter().map(|row| (row.job_name, row.key.attempt_id.0, row.return_code)).collect()
    }

    /// The state when everything under way is done.
    pub(crate) fn row(&self, workflow: WorkflowId) -> WorkflowRow {
        self.service.check_time();
        self.store.workflow(workflow).unwrap().unwrap()
    }
}

/// Injected functions may panic if a test wants that.
fn locked(database_state: &Mutex<DatabaseState>) -> MutexGuard<'_, DatabaseState> {
    database_state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(
    store: &Arc<dyn Store>,
    changed: &ChangedWorkflows,
    silent: &Arc<Mutex<Vec<UnreachableAllocationWorker>>>,
    shares_node_blame: bool,
) -> (SchedulerHandle, ManualClock) {
    let (clock, hand) = SchedulerClock::manual();
    let changed = Arc::clone(changed);
    let on_change: OnWorkflowChange = Arc::new(move |workflow| changed.lock().unwrap().push(workflow));
    let on_change = Some(on_change);
    let silent = Arc::clone(silent);
    let on_silent: OnUnreachableAllocationWorker = Arc::new(move |one| silent.lock().unwrap().push(one));
    let on_silent = Some(on_silent);
    let options = SchedulerOptions {
        lease: LEASE,
        shares_node_blame,
        clock,
        on_change,
        on_silent_worker: on_silent,
        ..SchedulerOptions::default()
    };
    (SchedulerHandle::start(Arc::clone(store), options).unwrap(), hand)
}

/// Calls the service and waits for the reply.
pub(crate) fn ask<T: Send + 'static>(call: impl FnOnce(CallReply<T>)) -> Result<T, CallError> {
    later(call).recv_timeout(WAIT_TIMEOUT).expect("an answer")
}

/// Calls the service without waiting for the reply.
pub(crate) fn later<T: Send + 'static>(
    call: impl FnOnce(CallReply<T>),
) -> mpsc::Receiver<Result<T, CallError>> {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |answer| sender.send(answer).unwrap_or_default()));
    receiver
}

pub(crate) const fn capacity(cpus: u32) -> Capacity {
    Capacity { cpus, memory: Bytes(1 << 40), gpus: 0, nodes: 1, max_jobs: None }
}

/// A worker that does nothing by itself.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) secret: String,
    pub(crate) number: u64,
    pub(crate) held: Vec<Assignment>,
    user: String,
    who: WorkerRegistration,
}

/// The registration of a worker.
pub(crate) fn someone(cpus: u32) -> WorkerRegistration {
    WorkerRegistration {
        host: "elsewhere".into(),
        boot_id: "b".into(),
        pid: 1,
        pid_start_ticks: 1,
        capacity: capacity(cpus),
        version: "test".into(),
        jobs_of: AcceptedJobOwners::Own,
        labels: Vec::new(),
        site: "local".into(),
        workflow: None,
        before: None,
        allocation: None,
        slurm: None,
    }
}

/// The user who registers all workers here, and acts for them.
pub(crate) fn me() -> WorkerCaller {
    WorkerCaller::User("me".into())
}

/// A user whose workers accept the workflows that `may` permits.
pub(crate) fn token_owner(user: &str, may: WorkflowPredicate) -> WorkerOwner {
    WorkerOwner { user: user.into(), sees_all: false, may_work_for: may }
}

pub(crate) fn introduce(fixture: &Fixture, who: &WorkerRegistration) -> Result<RegistrationReply, CallError> {
    let may: WorkflowPredicate = Arc::new(|_| true);
    ask(|reply| fixture.service.register_worker(who.clone(), token_owner("me", may), reply))
}

impl Worker {
    pub(crate) fn join(fixture: &Fixture, who: WorkerRegistration) -> Self {
        Self::join_as(fixture, who, "me")
    }

    pub(crate) fn join_as(fixture: &Fixture, who: WorkerRegistration, user: &str) -> Self {
        let may: WorkflowPredicate = Arc::new(|_| true);
        let introduced =
            ask(|reply| fixture.service.register_worker(who.clone(), token_owner(user, may), reply));
        let RegistrationReply { worker, secret, .. } = introduced.unwrap();
        Self { id: worker, secret, number: 0, held: Vec::new(), user: user.to_owned(), who }
    }

    pub(crate) fn new(fixture: &Fixture, cpus: u32) -> Self {
        Self::join(fixture, someone(cpus))
    }

    /// Another caller acts for it from now on.
    pub(crate) fn introduced_as(&mut self, who: WorkerRegistration) {
        self.who = who;
    }

    /// Its next exchange.
    pub(crate) fn next(&mut self, reports: Vec<AttemptReport>, wait: Duration) -> WorkerExchange {
        self.number += 1;
        self.same(reports, wait)
    }

    pub(crate) fn same(&self, reports: Vec<AttemptReport>, wait: Duration) -> WorkerExchange {
        WorkerExchange {
            worker: self.id,
            secret: self.secret.clone(),
            number: self.number,
            reports,
            actions: Vec::new(),
            wait,
            time_left: None,
            draining: false,
            leaving: false,
        }
    }

    /// Sends an exchange and takes the reply.
    pub(crate) fn say(
        &mut self,
        fixture: &Fixture,
        reports: Vec<AttemptReport>,
    ) -> Result<ExchangeReply, CallError> {
        let exchange = self.next(reports, Duration::ZERO);
        self.send(fixture, exchange)
    }

    pub(crate) fn send(
        &mut self,
        fixture: &Fixture,
        exchange: WorkerExchange,
    ) -> Result<ExchangeReply, CallError> {
        let reports = exchange.reports.clone();
        let speaker = WorkerCaller::User(self.user.as_str().into());
        let answer = ask(|reply| fixture.service.exchange(exchange, speaker, reply))?;
        self.takes(&reports, &answer);
        Ok(answer)
    }

    /// Applies a reply to these reports.
    pub(crate) fn takes(&mut self, reports: &[AttemptReport], answer: &ExchangeReply) {
        let is_gone = |key: &AttemptKey| {
            reports.iter().any(|report| {
                report.key() == key
                    && !matches!(report, AttemptReport::Started { .. } | AttemptReport::LeftBehind { .. })
            })
        };
        self.held.retain(|assignment| !is_gone(&assignment.key));
        self.held.extend(answer.assignments.iter().cloned());
    }

    /// Its last exchange.
    pub(crate) fn leaves(&mut self, fixture: &Fixture, reports: Vec<AttemptReport>) {
        let mut exchange = self.next(reports, Duration::ZERO);
        (exchange.draining, exchange.leaving) = (true, true);
        self.send(fixture, exchange).unwrap();
    }

    /// Completes all its jobs, until there are no more.
    pub(crate) fn work_off(&mut self, fixture: &Fixture) {
        loop {
            let ends = self.held.iter().map(|assignment| ended(assignment.key, 0)).collect::<Vec<_>>();
            let nothing = ends.is_empty();
            self.say(fixture, ends).unwrap();
            if nothing && self.held.is_empty() {
                return;
            }
        }
    }

    pub(crate) fn keys(&self) -> Vec<AttemptKey> {
        self.held.iter().map(|assignment| assignment.key).collect()
    }

    /// Registers again with the attempts that it claims to hold.
    pub(crate) fn comes_back(
        &self,
        fixture: &Fixture,
        held: &[AttemptKey],
        actions: &[(i64, Attempt)],
    ) -> mpsc::Receiver<Result<RegistrationReply, CallError>> {
        let (held, actions) = (held.to_vec(), actions.to_vec());
        let before = WorkerReconnect { worker: self.id, secret: self.secret.clone(), held, actions };
        let who = WorkerRegistration { before: Some(before), ..self.who.clone() };
        let may: WorkflowPredicate = Arc::new(|_| true);
        later(|reply| fixture.service.register_worker(who, token_owner("me", may), reply))
    }

    /// Returns with the attempts that it claims to hold. The result: those that it has lost.
    pub(crate) fn come_back(&mut self, fixture: &Fixture, held: &[AttemptKey]) -> Vec<AttemptKey> {
        self.return_with(fixture, held, &[]).lost
    }

    /// The same with actions that it claims to run. The result: those that it has lost.
    pub(crate) fn come_back_at(
        &mut self,
        fixture: &Fixture,
        held: &[AttemptKey],
        actions: &[(i64, Attempt)],
    ) -> Vec<(i64, Attempt)> {
        self.return_with(fixture, held, actions).lost_actions
    }

    fn return_with(
        &mut self,
        fixture: &Fixture,
        held: &[AttemptKey],
        actions: &[(i64, Attempt)],
    ) -> RegistrationReply {
        let welcome =
            self.comes_back(fixture, held, actions).recv_timeout(WAIT_TIMEOUT).expect("an answer").unwrap();
        (self.id, self.secret, self.number) = (welcome.worker, welcome.secret.clone(), 0);
        self.held
            .retain(|assignment| held.contains(&assignment.key) && !welcome.lost.contains(&assignment.key));
        welcome
    }
}

/// A report that an attempt ended with this code.
pub(crate) fn ended(key: AttemptKey, code: i32) -> AttemptReport {
    let at = Timestamp(1_000_000);
    AttemptReport::Ended(AttemptEndReport {
        key,
        started_at: at,
        ended_at: at,
        wall: Duration::from_secs(10),
        exit: ProcessExit::Code(code),
        cause: AttemptEndCause::Itself,
        usage: AttemptUsage::default(),
        files: None,
        last_words: None,
        recovered: None,
    })
}

pub(crate) fn started(key: AttemptKey) -> AttemptReport {
    AttemptReport::Started { key, at: Timestamp(1_000_000), pid: 7 }
}

pub(crate) fn code(refused: &CallError) -> &'static str {
    match refused {
        CallError::Conflict { code, .. } | CallError::Invalid { code, .. } => code,
        CallError::NotFound(_) => "not_found",
        CallError::Unavailable { .. } => "unavailable",
        CallError::Internal(_) => "internal",
    }
}
