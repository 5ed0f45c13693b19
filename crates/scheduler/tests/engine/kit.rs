//! A test environment for a local run: a real database, and scripted workers instead of processes.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass_core::dependency_edges::DependencyEdgesBuilder;
use windlass_scheduler::run_observer::{AttemptEndNotice, RunObserver, RunProgress};
use windlass_scheduler::worker_host::{
    ActionDone, DeadWorkerReport, StartedWorker, WorkerHost, WorkerHostError,
};
use windlass_store::Store;
use windlass_store::model::{
    InMemoryJobSource, NewJob, NewRequirements, NewWorker, NewWorkflow, ResultFilter, WorkflowRow,
};
use windlass_store::sqlite::SqliteStore;
use windlass_types::worker_messages::{
    Assignment, AttemptEndCause, AttemptEndReport, AttemptKey, AttemptReport, AttemptUsage, FromWorker,
    ProcessExit, ReturnReason, StdioSettings, ToWorker,
};
use windlass_types::worker_protocol::{ActionCommand, ActionReport};
use windlass_types::{
    Bytes, Capacity, JobDefinition, JobStatus, Resources, SystemClock, Timestamp, WorkflowId,
};

pub(crate) const CAPACITY: Capacity =
    Capacity { cpus: 2, memory: Bytes(1 << 30), gpus: 0, nodes: 1, max_jobs: None };

/// The usage of the leftover processes of each attempt of a dead worker.
pub(crate) const LEFTOVER_CPU_TIME: Duration = Duration::from_secs(7);

/// The behavior of a scripted worker for an assignment.
#[derive(Clone, Debug)]
pub(crate) enum AttemptBehavior {
    Exit(i32),
    End(ProcessExit, AttemptEndCause),
    /// Runs until it is stopped.
    Hold,
    /// The worker neither sends nor reads any more.
    Hang,
    /// The worker dies after the start of the job.
    Die,
    /// The worker dies before it starts any job of this batch.
    DieBefore,
    /// The job ends with this code, which the worker records; then it dies before it reports.
    RecordAndDie(i32),
    /// The same, but the worker lives and does not report it; on a stop, it dies.
    Record(i32),
    /// Reports the end twice, and once for an attempt that does not exist.
    RepeatReports,
    /// Returns it because of a problem of the worker.
    WorkerProblem,
}

type WorkerScript = Arc<dyn Fn(&Assignment, usize) -> AttemptBehavior + Send + Sync>;

/// Starts scripted workers. `script(assignment, generation)` decides what happens to each job.
pub(crate) struct ScriptedHost {
    script: WorkerScript,
    pub(crate) generation: usize,
    pub(crate) started: Arc<Mutex<Vec<AttemptKey>>>,
    pub(crate) ended_workers: usize,
    /// The scheduler dies with the worker, as after `kill -9` of both.
    pub(crate) dies_too: Arc<AtomicBool>,
    /// The ends that its workers recorded.
    pub(crate) recorded: Arc<Mutex<HashMap<AttemptKey, AttemptEndReport>>>,
}

impl ScriptedHost {
    pub(crate) fn new(
        script: impl Fn(&Assignment, usize) -> AttemptBehavior + Send + Sync + 'static,
    ) -> Self {
        Self {
            script: Arc::new(script),
            generation: 0,
            started: Arc::default(),
            ended_workers: 0,
            dies_too: Arc::default(),
            recorded: Arc::default(),
        }
    }
}

impl WorkerHost for ScriptedHost {
    fn perform_action(&mut self, order: ActionCommand, _: &NewWorker, _: &str, done: ActionDone) {
        let (started_at, ended_at) = (SystemClock.now(), SystemClock.now());
        let ActionCommand { workflow, run, action, attempt, .. } = order;
        let report = ActionReport {
            workflow,
            run,
            action,
            attempt,
            started_at,
            ended_at,
            return_code: 0,
            message: None,
        };
        std::thread::spawn(move || done(report));
    }

    fn stop_actions(&mut self, _: bool) {}

    fn capacity(&self) -> Capacity {
        CAPACITY
    }

    fn start_worker(&mut self, workflow: &WorkflowRow) -> Result<StartedWorker, WorkerHostError> {
        self.generation += 1;
        let (ours, theirs) = UnixStream::pair()?;
        let (script, generation, started) =
            (Arc::clone(&self.script), self.generation, Arc::clone(&self.started));
        let recorded = Arc::clone(&self.recorded);
        std::thread::spawn(move || {
            let holding = Vec::new();
            PretendWorker { script, generation, started, recorded, holding, dies_when_stopped: false }
                .serve(&theirs);
        });
        let worker = NewWorker {
            workflow: Some(workflow.id),
            run: Some(workflow.run_id),
            host: "here".into(),
            boot_id: "now".into(),
            pid: generation as u32,
            pid_start_ticks: 1,
            token: format!("worker {generation}"),
            ledger_path: "none".into(),
            capacity: CAPACITY,
            ..NewWorker::default()
        };
        Ok(StartedWorker { worker, stream: ours })
    }

    fn ensure_dead(&mut self, _worker: &NewWorker) -> Result<DeadWorkerReport, WorkerHostError> {
        assert!(!self.dies_too.load(Ordering::Acquire), "killed with its worker");
        self.ended_workers += 1;
        let recorded_ends = self.recorded.lock().unwrap().clone();
        let started = self.started.lock().unwrap().clone();
        let used = AttemptUsage { cpu_time: LEFTOVER_CPU_TIME, ..AttemptUsage::default() };
        let leftover_usage = started.iter().map(|key| (*key, used)).collect();
        let started = Some(started);
        Ok(DeadWorkerReport {
            started_attempts: started,
            killed_processes: 0,
            is_same_boot: true,
            recorded_ends,
            leftover_usage,
        })
    }

    fn forget_worker(&mut self, _worker: &NewWorker) {}
}

struct PretendWorker {
    script: WorkerScript,
    generation: usize,
    started: Arc<Mutex<Vec<AttemptKey>>>,
    recorded: Arc<Mutex<HashMap<AttemptKey, AttemptEndReport>>>,
    holding: Vec<AttemptKey>,
    dies_when_stopped: bool,
}

impl PretendWorker {
    fn serve(mut self, link: &UnixStream) {
        say(link, &FromWorker::Hello { capacity: CAPACITY });
        let mut reader = BufReader::new(link.try_clone().unwrap());
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|n| n > 0) {
            let reports = match serde_json::from_str(&line).unwrap() {
                ToWorker::Assign(assignments) => match self.execute(&assignments) {
                    Some(reports) => reports,
                    None => return,
                },
                ToWorker::Stop { .. } if self.dies_when_stopped => return,
                ToWorker::Stop { why, .. } => {
                    let stopped = |key| {
                        AttemptReport::Ended(ended(
                            key,
                            ProcessExit::Signal(15),
                            AttemptEndCause::Stopped(why),
                        ))
                    };
                    self.holding.drain(..).map(stopped).collect()
                }
                ToWorker::Quit => return,
                other => panic!("not for the worker of one workflow: {other:?}"),
            };
            if !reports.is_empty() {
                say(link, &FromWorker::Reports(reports));
            }
            line.clear();
        }
    }

    /// `None`: died.
    fn execute(&mut self, assignments: &[Assignment]) -> Option<Vec<AttemptReport>> {
        let mut reports = Vec::new();
        for assignment in assignments {
            let key = assignment.key;
            let act = (self.script)(assignment, self.generation);
            if !matches!(act, AttemptBehavior::DieBefore | AttemptBehavior::WorkerProblem) {
                self.started.lock().unwrap().push(key);
            }
            match act {
                AttemptBehavior::Exit(code) => {
                    reports.push(AttemptReport::Ended(ended(
                        key,
                        ProcessExit::Code(code),
                        AttemptEndCause::Itself,
                    )));
                }
                AttemptBehavior::End(exit, cause) => {
                    reports.push(AttemptReport::Ended(ended(key, exit, cause)));
                }
                AttemptBehavior::Hold => {
                    reports.push(AttemptReport::Started { key, at: Timestamp(1), pid: 77 });
                    self.holding.push(key);
                }
                AttemptBehavior::Hang => loop {
                    std::thread::park();
                },
                AttemptBehavior::Die | AttemptBehavior::DieBefore => return None,
                AttemptBehavior::RecordAndDie(code) | AttemptBehavior::Record(code) => {
                    let end = ended(key, ProcessExit::Code(code), AttemptEndCause::Itself);
                    self.recorded.lock().unwrap().insert(key, end);
                    if matches!(act, AttemptBehavior::RecordAndDie(_)) {
                        return None;
                    }
                    self.dies_when_stopped = true;
                }
                AttemptBehavior::RepeatReports => {
                    let end = ended(key, ProcessExit::Code(0), AttemptEndCause::Itself);
                    let unknown = AttemptKey { attempt: key.attempt.next(), ..key };
                    reports.push(AttemptReport::Ended(ended(
                        unknown,
                        ProcessExit::Code(9),
                        AttemptEndCause::Itself,
                    )));
                    reports.extend([AttemptReport::Ended(end.clone()), AttemptReport::Ended(end)]);
                }
                AttemptBehavior::WorkerProblem => {
                    reports.push(AttemptReport::Returned {
                        key,
                        why: ReturnReason::WorkerTrouble("no room".into()),
                    });
                }
            }
        }
        Some(reports)
    }
}

fn say(mut link: &UnixStream, message: &FromWorker) {
    let mut line = serde_json::to_vec(message).unwrap();
    line.push(b'\n');
    // The engine may be gone already; then the next read ends this worker.
    link.write_all(&line).unwrap_or_default();
}

fn ended(key: AttemptKey, exit: ProcessExit, cause: AttemptEndCause) -> AttemptEndReport {
    let at = Timestamp(1_000_000);
    AttemptEndReport {
        key,
        started_at: at,
        ended_at: at,
        wall: Duration::from_millis(1),
        exit,
        cause,
        usage: AttemptUsage::default(),
        files: None,
        last_words: None,
        recovered: None,
    }
}

/// Records all notifications.
#[derive(Default)]
pub(crate) struct RecordedRun {
    pub(crate) ends: Vec<(String, JobStatus, JobStatus, i32)>,
    pub(crate) notices: Vec<String>,
}

impl RunObserver for RecordedRun {
    fn on_progress(&mut self, _progress: &RunProgress) {}

    fn on_attempt_ended(&mut self, end: &AttemptEndNotice<'_>) {
        self.ends.push((end.name.to_owned(), end.attempt_status, end.job_status, end.return_code));
    }

    fn on_notice(&mut self, text: &str) {
        self.notices.push(text.to_owned());
    }
}

/// A job: its name, dependencies, and requested CPUs (0: no request).
pub(crate) struct PlannedJob(pub(crate) &'static str, pub(crate) &'static [u32], pub(crate) u32);

pub(crate) fn database() -> (tempfile::TempDir, SqliteStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::create(dir.path().join("windlass.db")).unwrap().store;
    (dir, store)
}

/// The same database for a run.
pub(crate) fn shared(store: &dyn Store) -> Arc<dyn Store> {
    store.acting_as("me")
}

pub(crate) fn create(store: &dyn Store, jobs: &[PlannedJob]) -> WorkflowRow {
    let mut edges = DependencyEdgesBuilder::default();
    for (job, planned) in (0..).zip(jobs) {
        edges.add_dependencies(job, planned.1);
    }
    let names: Vec<String> = jobs.iter().map(|job| format!("rr_{}", job.0)).collect();
    let requirements: Vec<NewRequirements<'_>> = jobs
        .iter()
        .zip(&names)
        .map(|(job, name)| NewRequirements {
            name,
            resources: Resources { cpus: job.2.max(1), ..Resources::DEFAULT },
        })
        .collect();
    let workflow = NewWorkflow {
        name: "test",
        user: "me",
        description: None,
        submission_dir: "/",
        output_dir: "/tmp",
        spec_path: None,
        spec_digest: None,
        env: &[],
        stdio: StdioSettings::default(),
        requirements: &requirements,
        edges: &edges.finish(),
        ..NewWorkflow::default()
    };
    let mut rows = InMemoryJobSource::new((0..).zip(jobs).map(|(number, job)| NewJob {
        status: if job.1.is_empty() { JobStatus::Ready } else { JobStatus::Blocked },
        ..NewJob::from(JobDefinition {
            resource_requirements: (job.2 > 0).then_some(number),
            ..JobDefinition::new(job.0, "true")
        })
    }));
    let id = store.create_workflow(&workflow, &mut rows, Timestamp(1)).unwrap();
    store.workflow(id).unwrap().unwrap()
}

/// (attempt, return code) of every attempt of a job with a result.
pub(crate) fn attempts(store: &dyn Store, workflow: WorkflowId, job: &str) -> Vec<(u32, i32)> {
    let all = store.results(workflow, &ResultFilter::default()).unwrap();
    all.iter().filter(|row| row.job_name == job).map(|row| (row.key.attempt_id.0, row.return_code)).collect()
}
