//! One worker, several workflows.

use crate::support::{AWAIT_GO_FILE, Fixture, job};
use std::fs;
use std::path::Path;
use std::time::Duration;
use windlass_types::settings::{JobMonitorScope, MonitoringGranularity, ResourceMonitor};
use windlass_types::worker_messages::{
    Assignment, AttemptEndCause, ProcessExit, ReturnReason, StopReason, ToWorker,
};
use windlass_types::worker_protocol::{StopCommand, WorkflowSetup};
use windlass_types::{RunId, WorkflowId, resource_series};

fn any_workflow() -> Fixture {
    Fixture::with(|options| options.one_workflow = false)
}

fn site(workflow: i64, directory: &Path) -> WorkflowSetup {
    WorkflowSetup {
        workflow: WorkflowId(workflow),
        run: RunId(2),
        name: format!("workflow {workflow}"),
        submission_dir: directory.to_str().unwrap().to_owned(),
        output_dir: directory.join("out").to_str().unwrap().to_owned(),
        resource_monitor: None,
        execution: None,
    }
}

fn of(workflow: i64, mut assignment: Assignment) -> Assignment {
    assignment.key.workflow = WorkflowId(workflow);
    assignment
}

#[test]
fn jobs_run_in_the_directory_of_their_workflow() {
    let mut fixture = any_workflow();
    let homes = [fixture.path("a"), fixture.path("b")];
    for (number, home) in [1, 2].into_iter().zip(&homes) {
        fs::create_dir(home).unwrap();
        fixture.send(&ToWorker::Workflow(Box::new(site(number, home))));
        let command = "pwd; echo $WINDLASS_WORKFLOW_ID $WINDLASS_OUTPUT_DIR $TORC_WORKFLOW_SUBMISSION_DIR";
        let assignment = of(number, job(number, command));
        let stem = assignment.key.log_stem();
        assert_eq!(fixture.run(assignment).exit, ProcessExit::Code(0));
        let home = home.display();
        let log = fs::read_to_string(format!("{home}/out/job_stdio/{stem}.o")).unwrap();
        assert_eq!(log, format!("{home}\n{number} {home}/out {home}\n"));
    }
    assert!(!fixture.path("out").exists(), "no file is created in the worker's directory");
    fixture.quit();
}

#[test]
fn a_workflow_without_a_directory_does_not_affect_others() {
    let mut fixture = any_workflow();
    fs::create_dir(fixture.path("a")).unwrap();
    fixture.send(&ToWorker::Workflow(Box::new(site(1, &fixture.path("a")))));
    fixture.send(&ToWorker::Workflow(Box::new(site(2, &fixture.path("gone")))));
    fixture.assign([of(2, job(1, "true")), of(3, job(2, "true")), of(1, job(3, "true"))]);
    let (mut troubles, mut ended) = (Vec::new(), 0);
    while troubles.len() + ended < 3 {
        match fixture.report() {
            windlass_types::worker_messages::AttemptReport::Returned {
                why: ReturnReason::WorkerTrouble(text),
                ..
            } => {
                troubles.push(text);
            }
            windlass_types::worker_messages::AttemptReport::Ended(end) => {
                assert_eq!((end.exit, end.key.job.0), (ProcessExit::Code(0), 3));
                ended += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(troubles[0].contains("gone is not a directory on this machine"), "{troubles:?}");
    assert!(troubles[1].contains("was not introduced to this worker"), "{troubles:?}");
    fixture.quit();
}

#[test]
fn one_workflow_is_stopped_and_the_other_continues() {
    let mut fixture = any_workflow();
    for number in [1, 2] {
        fixture.send(&ToWorker::Workflow(Box::new(site(number, fixture.directory.path()))));
    }
    let waits = |n: i64| of(n, job(n, &format!("echo $$ > leader{n}; {AWAIT_GO_FILE}")));
    fixture.assign([waits(1), waits(2), of(1, job(3, "true")), of(2, job(4, "true"))]);
    fixture.noted("leader1");
    fixture.noted("leader2");
    let all_of_it = StopCommand {
        workflow: WorkflowId(1),
        attempts: Vec::new(),
        why: StopReason::Canceled,
        grace: Duration::ZERO,
    };
    fixture.send(&ToWorker::StopSome(all_of_it));
    let (mut stopped, mut returned, mut done) = (0, 0, Vec::new());
    while stopped + returned + done.len() < 3 {
        match fixture.report() {
            windlass_types::worker_messages::AttemptReport::Started { .. }
            | windlass_types::worker_messages::AttemptReport::LeftBehind { .. } => {}
            windlass_types::worker_messages::AttemptReport::Returned { key, .. } => {
                assert_eq!((key.workflow.0, key.job.0), (1, 3));
                returned += 1;
            }
            windlass_types::worker_messages::AttemptReport::Ended(end) => match end.cause {
                AttemptEndCause::Stopped(StopReason::Canceled) => {
                    assert_eq!(end.key.job.0, 1);
                    stopped += 1;
                }
                _ => done.push(end.key.job.0),
            },
        }
    }
    // The freed place went to the job of the other workflow.
    assert_eq!((stopped, returned, &done[..]), (1, 1, &[4][..]));
    fixture.write_go_file();
    assert_eq!(fixture.ended().key.job.0, 2);
    fixture.quit();
}

#[test]
fn each_workflow_has_the_series_it_requests() {
    let mut fixture = any_workflow();
    let jobs = Some(JobMonitorScope { enabled: true, granularity: MonitoringGranularity::TimeSeries });
    let monitor = ResourceMonitor { jobs, sample_interval_seconds: Some(0.02), ..ResourceMonitor::default() };
    for (number, resource_monitor) in [(1, None), (2, Some(monitor))] {
        let home = fixture.path(&number.to_string());
        fs::create_dir(&home).unwrap();
        fixture
            .send(&ToWorker::Workflow(Box::new(WorkflowSetup { resource_monitor, ..site(number, &home) })));
    }
    fixture.assign([of(1, job(1, "sleep 0.4")), of(2, job(2, "sleep 0.4"))]);
    let directory = fixture.path(".");
    fixture.ended();
    fixture.ended();
    let kept = fixture.keep();
    let series = |n: i64| directory.join(format!("{n}/out")).join(resource_series::SERIES_DIR);
    assert!(!series(1).exists());
    let files: Vec<_> = fs::read_dir(series(2)).unwrap().collect();
    let bytes = fs::read(files[0].as_ref().unwrap().path()).unwrap();
    let recording = resource_series::ResourceRecording::read(&bytes).unwrap();
    assert_eq!((files.len(), recording.head.workflow_id), (1, WorkflowId(2)));
    drop(kept);
}
