//! Settings of a workflow, its job groups and its jobs reach the worker, and only these.

use crate::kit::{AttemptBehavior, RecordedRun, ScriptedHost, attempts, database, shared};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass_scheduler::{LocalRun, LocalRunOptions};
use windlass_store::Store;
use windlass_store::model::{FirstIds, JobSource, NewFile, NewJob, NewRequirements, NewWorkflow};
use windlass_store::sqlite::SqliteStore;
use windlass_types::settings::{ChangeDetection, ExecutionConfig, WorkflowSettings};
use windlass_types::worker_messages::{
    Assignment, AttemptEndCause, AttemptLimits, ProcessExit, StdioMode, StdioSettings, TerminationSettings,
};
use windlass_types::{Bytes, JobDefinition, JobGroup, JobSettings, JobStatus, Resources, Timestamp};

const ASKED: Resources =
    Resources { cpus: 2, memory: Bytes(1 << 20), gpus: 0, nodes: 1, runtime: Some(Duration::from_mins(1)) };
const COMBINED: StdioSettings = StdioSettings { mode: StdioMode::Combined, delete_on_success: false };

/// Two files and two jobs: `full` uses all fields of a job, `plain` none.
struct TwoJobSource {
    files: std::vec::IntoIter<NewFile<'static>>,
    jobs: std::vec::IntoIter<NewJob<'static>>,
}

impl TwoJobSource {
    fn new(own_env: &'static [(String, String)]) -> Self {
        let file = |name, path| NewFile { name, path, identifier: None, mtime_ns: None };
        let full = NewJob {
            params: Some(r#"{"n": 3, "text": "a b", "x": 0.5}"#),
            job_group: Some(0),
            input_files: &[0],
            output_files: &[1],
            ..NewJob::from(JobDefinition {
                env: own_env.to_vec(),
                resource_requirements: Some(0),
                ..JobDefinition::new("full", "solve")
            })
        };
        let plain = NewJob::from(JobDefinition::new("plain", "true"));
        Self {
            files: vec![file("in", "data/in"), file("out", "/abs/out")].into_iter(),
            jobs: vec![full, plain].into_iter(),
        }
    }
}

impl TwoJobSource {
    fn only_plain(mut self) -> Self {
        self.files = Vec::new().into_iter();
        self.jobs = self.jobs.filter(|job| job.definition.name == "plain").collect::<Vec<_>>().into_iter();
        self
    }
}

impl JobSource for TwoJobSource {
    fn set_first_ids(&mut self, _first: FirstIds) {}

    fn next_file(&mut self) -> Option<NewFile<'_>> {
        self.files.next()
    }

    fn next_job(&mut self) -> Option<NewJob<'_>> {
        self.jobs.next()
    }
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// Runs both jobs with these settings; returns their assignments, `full` first.
fn assigned(store: &SqliteStore, settings: &WorkflowSettings) -> Vec<Assignment> {
    let own: &'static [(String, String)] = vec![pair("B", "job"), pair("C", "job")].leak();
    let workflow = NewWorkflow {
        name: "test",
        user: "me",
        submission_dir: "/",
        output_dir: "/tmp",
        env: &[pair("A", "workflow"), pair("B", "workflow")],
        settings: Some(settings),
        requirements: &[NewRequirements { name: "two", resources: ASKED }],
        job_groups: &[JobGroup {
            name: "solve".into(),
            env: vec![pair("C", "kind"), pair("D", "kind")],
            invocation_script: Some("nice -n 5\n".into()),
            settings: JobSettings { stdio: Some(COMBINED), ..JobSettings::default() },
            ..JobGroup::default()
        }],
        ..NewWorkflow::default()
    };
    let id = store.create_workflow(&workflow, &mut TwoJobSource::new(own), Timestamp(1)).unwrap();
    let told: Arc<Mutex<Vec<Assignment>>> = Arc::default();
    let notes = Arc::clone(&told);
    let mut host = ScriptedHost::new(move |assignment, _| {
        notes.lock().unwrap().push(assignment.clone());
        AttemptBehavior::Exit(0)
    });
    let (mut recorded_run, row) = (RecordedRun::default(), store.workflow(id).unwrap().unwrap());
    let options = LocalRunOptions { grace: Duration::from_secs(1), deadline: None, classifier: None };
    let local_run = LocalRun::new(shared(store), &mut host, &mut recorded_run, row, options).unwrap();
    let summary = local_run.run().unwrap();
    assert_eq!(summary.counts.get(JobStatus::Completed), 2);
    let mut told = told.lock().unwrap().clone();
    told.sort_by_key(|assignment| assignment.key);
    told
}

#[test]
fn an_assignment_combines_job_group_and_workflow_settings() {
    let (_dir, store) = database();
    let settings =
        WorkflowSettings { change_detection: Some(ChangeDetection::Content), ..WorkflowSettings::default() };
    let [full, plain] = &assigned(&store, &settings)[..] else { panic!("two jobs") };
    assert_eq!(full.command, "nice -n 5 solve");
    let mut env = full.env.clone();
    env.sort();
    assert_eq!(env, [pair("A", "workflow"), pair("B", "job"), pair("C", "job"), pair("D", "kind")]);
    assert_eq!(full.params, [pair("n", "3"), pair("text", "a b"), pair("x", "0.5")]);
    assert_eq!(full.limits, AttemptLimits { memory: Some(ASKED.memory), runtime: ASKED.runtime });
    assert!(full.asked_for_resources && full.hash_files);
    assert_eq!(
        (full.input_files.as_slice(), full.output_files.as_slice()),
        (&["data/in".to_owned()][..], &["/abs/out".to_owned()][..])
    );
    assert_eq!((full.stdio, full.termination), (COMBINED, None));

    let bare = Assignment::from_command(plain.key, "plain".into(), "true".into(), Resources::DEFAULT);
    assert_eq!(*plain, Assignment { env: vec![pair("A", "workflow"), pair("B", "workflow")], ..bare });
}

#[test]
fn the_execution_config_changes_how_jobs_are_ended() {
    let (_dir, store) = database();
    let config = ExecutionConfig {
        limit_resources: Some(false),
        termination_signal: Some("SIGINT".into()),
        sigterm_lead_seconds: Some(7),
        stdio: Some(StdioSettings { mode: StdioMode::None, delete_on_success: true }),
        ..ExecutionConfig::default()
    };
    let settings = WorkflowSettings { execution_config: Some(config), ..WorkflowSettings::default() };
    let [full, plain] = &assigned(&store, &settings)[..] else { panic!("two jobs") };
    assert_eq!(full.limits, AttemptLimits::default());
    assert!(full.asked_for_resources, "its request still counts");
    let termination = Some(TerminationSettings { signal: 2, lead: Some(Duration::from_secs(7)) });
    assert_eq!((full.termination, plain.termination), (termination, termination));
    assert_eq!((full.stdio.mode, plain.stdio.mode), (StdioMode::Combined, StdioMode::None));
}

#[test]
fn a_workflow_chooses_the_return_codes_of_ended_attempts() {
    let (_dir, store) = database();
    let config = ExecutionConfig {
        timeout_exit_code: Some(24),
        oom_exit_code: Some(42),
        ..ExecutionConfig::default()
    };
    let settings = WorkflowSettings { execution_config: Some(config), ..WorkflowSettings::default() };
    let workflow = NewWorkflow { name: "t", user: "me", settings: Some(&settings), ..NewWorkflow::default() };
    let id =
        store.create_workflow(&workflow, &mut TwoJobSource::new(&[]).only_plain(), Timestamp(1)).unwrap();
    for (cause, expected) in [(AttemptEndCause::Timeout, (1, 24)), (AttemptEndCause::OutOfMemory, (1, 42))] {
        let (mut recorded_run, row) = (RecordedRun::default(), store.workflow(id).unwrap().unwrap());
        let mut host =
            ScriptedHost::new(move |_, _| AttemptBehavior::End(ProcessExit::Signal(9), cause.clone()));
        let options = LocalRunOptions { grace: Duration::from_secs(1), deadline: None, classifier: None };
        LocalRun::new(shared(&store), &mut host, &mut recorded_run, row, options).unwrap().run().unwrap();
        assert_eq!(attempts(&store, id, "plain").last(), Some(&expected));
        let row = store.workflow(id).unwrap().unwrap();
        windlass_scheduler::begin_next_run(&store, &row, Timestamp(2)).unwrap();
    }
}
