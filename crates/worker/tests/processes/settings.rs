//! The effects of workflow settings: how a job is asked to end, its environment, its file states, and which
//! samples are kept.

use crate::support::{AWAIT_GO_FILE, Fixture, eventually, job, one_at_a_time};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;
use windlass_types::resource_series::{self, ResourceRecording, SeriesSubject};
use windlass_types::worker_messages::{
    Assignment, AttemptEndCause, FileSnapshot, ProcessExit, TerminationSettings,
};
use windlass_types::{Attempt, Bytes, JobId, Resources, RunId, WorkflowId, digest_bytes};
use windlass_worker::ResourceSeriesOptions;

const USR1: i32 = 10;

/// A job that is warned, by SIGUSR1, at half of its time: no warning comes earlier.
fn warned(id: i64, command: &str) -> Assignment {
    let mut job = job(id, command);
    job.limits.runtime = Some(Duration::from_millis(1500));
    job.termination = Some(TerminationSettings { signal: USR1, lead: Some(Duration::from_secs(1)) });
    job
}

#[test]
fn a_job_is_warned_before_its_timeout_and_killed_at_it() {
    let mut fixture = Fixture::with(|options| options.timeout_grace = Duration::from_mins(10));
    let saves = warned(1, "trap 'echo saved; exit 0' USR1; while :; do sleep 0.02; done");
    let ended = fixture.run(saves);
    assert_eq!((ended.exit, ended.cause), (ProcessExit::Code(0), AttemptEndCause::Itself), "done in time");
    assert_eq!(fixture.log(1, "o").as_deref(), Some("saved\n"));

    let gives_up = warned(2, "trap 'exit 4' USR1; while :; do sleep 0.02; done");
    let ended = fixture.run(gives_up);
    assert_eq!((ended.exit, ended.cause), (ProcessExit::Code(4), AttemptEndCause::Timeout));

    let deaf = warned(3, "trap 'echo heard' USR1; while :; do sleep 0.02; done");
    let ended = fixture.run(deaf);
    assert_eq!((ended.exit, ended.cause), (ProcessExit::Signal(9), AttemptEndCause::Timeout));
    assert!(ended.wall >= Duration::from_millis(1500));
    assert_eq!(fixture.log(3, "o").as_deref(), Some("heard\n"));
    fixture.quit();
}

#[test]
fn the_configured_signal_is_also_used_for_stops() {
    let mut fixture = Fixture::new();
    let mut polite = job(1, "trap 'echo bye; exit 0' USR1; echo ready > ready; while :; do sleep 0.02; done");
    polite.termination = Some(TerminationSettings { signal: USR1, lead: None });
    fixture.assign([polite]);
    eventually("the job", || fixture.path("ready").exists().then_some(()));
    fixture.stop(Duration::from_mins(1));
    assert_eq!(fixture.ended().exit, ProcessExit::Code(0));
    assert_eq!(fixture.log(1, "o").as_deref(), Some("bye\n"));
    fixture.quit();
}

#[test]
fn a_job_gets_its_parameters_deadline_and_thread_count() {
    // If the variable is set where the tests run, it is kept.
    let mut clean = std::process::Command::new(crate::support::HOST);
    clean.env_remove("OMP_NUM_THREADS");
    let mut fixture = Fixture::launched_by(clean, |_| {});
    let mut full = job(
        1,
        "echo $WINDLASS_PARAM_ALPHA,$WINDLASS_PARAM_N_MAX; echo $OMP_NUM_THREADS; \
                           echo $(( WINDLASS_DEADLINE - $(date +%s) )); echo $WINDLASS_SUBMIT_DIR",
    );
    full.params = vec![("alpha".into(), "0.5".into()), ("n_max".into(), "a b".into())];
    full.resources = Resources { cpus: 2, ..Resources::DEFAULT };
    full.asked_for_resources = true;
    full.limits.runtime = Some(Duration::from_hours(1000));
    fixture.run(full.clone());
    let printed = fixture.log(1, "o").unwrap();
    let [params, threads, left, directory] = printed.lines().collect::<Vec<_>>()[..] else {
        panic!("{printed}")
    };
    assert_eq!((params, threads, directory), ("0.5,a b", "2", fixture.directory.path().to_str().unwrap()));
    let left: i64 = left.parse().unwrap();
    assert!((3_500_000..=3_600_001).contains(&left), "{left}");

    full.env = vec![("OMP_NUM_THREADS".into(), "7".into())];
    full.command = "echo $OMP_NUM_THREADS".into();
    full.key.job = JobId(2);
    fixture.run(full);
    fixture.run(job(3, "echo ${OMP_NUM_THREADS-unset} ${WINDLASS_DEADLINE-unset}"));
    assert_eq!(fixture.log(2, "o").as_deref(), Some("7\n"), "the value of the user is kept");
    assert_eq!(fixture.log(3, "o").as_deref(), Some("unset unset\n"));
    fixture.quit();
}

fn state_of(path: &Path, hash: Option<String>) -> FileSnapshot {
    let meta = fs::metadata(path).unwrap();
    FileSnapshot { mtime_ns: meta.mtime() * 1_000_000_000 + meta.mtime_nsec(), size: meta.len(), hash }
}

#[test]
fn file_states_are_recorded_before_and_after_the_attempt() {
    let mut fixture = Fixture::new();
    fs::write(fixture.path("in"), "input").unwrap();
    let before = state_of(&fixture.path("in"), None);
    let mut changes = job(1, "echo more >> in; echo x > made");
    changes.input_files = vec!["in".into(), "not-there".into()];
    changes.output_files = vec!["made".into()];
    let files = fixture.run(changes.clone()).files.unwrap();
    assert_eq!(files.inputs, [Some(before), None], "as they were when it started");
    assert_eq!(files.outputs, [Some(state_of(&fixture.path("made"), None))]);

    changes.hash_files = true;
    let files = fixture.run(changes.clone()).files.unwrap();
    assert_eq!(files.inputs[0].as_ref().unwrap().hash, Some(digest_bytes(b"inputmore\n")));
    assert_eq!(files.outputs, [Some(state_of(&fixture.path("made"), Some(digest_bytes(b"x\n"))))]);

    changes.command = "exit 3".into();
    let files = fixture.run(changes.clone()).files.unwrap();
    assert_eq!((files.inputs.len(), files.outputs.len()), (2, 0), "a failed attempt records no outputs");

    changes.output_files.push("missing".into());
    changes.command = "true".into();
    let ended = fixture.run(changes);
    assert_eq!(ended.cause, AttemptEndCause::MissingOutputs(vec!["missing".into()]));
    assert_eq!(ended.files.unwrap().outputs[1], None);
    assert_eq!(fixture.run(job(2, "true")).files, None);
    fixture.quit();
}

fn recordings(output: &Path) -> Vec<ResourceRecording> {
    let entries = fs::read_dir(output.join(resource_series::SERIES_DIR)).into_iter().flatten().flatten();
    let ours = entries
        .filter(|e| resource_series::is_series_file_of(WorkflowId(3), e.file_name().to_str().unwrap()));
    ours.map(|entry| ResourceRecording::read(&fs::read(entry.path()).unwrap()).unwrap()).collect()
}

const SERIES: ResourceSeriesOptions = ResourceSeriesOptions {
    workflow: WorkflowId(3),
    run: RunId(2),
    jobs: true,
    node: true,
    flush_interval: Duration::from_millis(50),
};

#[test]
fn time_series_are_kept_on_request_while_jobs_run() {
    let kept = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::with(|options| {
        options.output_dir = kept.path().to_owned();
        options.series = Some(SERIES);
        options.sample_interval = Duration::from_millis(30);
    });
    let holds = format!(
        "python3 -c 'x = bytearray(60 << 20)\nimport os, time\nwhile not os.path.exists(\"gate\"): time.sleep(0.01)'\n{AWAIT_GO_FILE}"
    );
    fixture.assign([job(1, &holds)]);
    let subject = SeriesSubject::Job(JobId(1), Attempt(4));
    // While the worker runs, so also if it never ends normally.
    eventually("samples of the job and of the machine", || {
        let all = recordings(kept.path());
        let series = &all.first()?.series;
        let large = series.get(&subject)?.iter().any(|point| point.memory > Bytes(60 << 20));
        (large && series.get(&SeriesSubject::Node)?.len() >= 3).then_some(())
    });
    fixture.write_go_file();
    fixture.ended();
    fixture.quit();
    let all = recordings(kept.path());
    let [recording] = &all[..] else { panic!("{} files", all.len()) };
    assert_eq!((recording.head.workflow_id, recording.head.run_id), (WorkflowId(3), RunId(2)));
    assert!(!recording.is_damaged);
    for points in recording.series.values() {
        assert!(points.windows(2).all(|pair| pair[0].at <= pair[1].at), "in order of time");
        assert!(points.iter().all(|point| point.cpu_percent >= 0.0 && point.memory > Bytes(0)));
    }
}

#[test]
fn buffered_samples_are_written_at_the_end() {
    let kept = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::with(|options| {
        options.output_dir = kept.path().to_owned();
        options.series =
            Some(ResourceSeriesOptions { node: false, flush_interval: Duration::from_hours(1), ..SERIES });
    });
    // The start of the second job is reported only after the first was measured.
    fixture.assign([job(1, AWAIT_GO_FILE)]);
    fixture.started();
    fixture.assign([job(2, AWAIT_GO_FILE)]);
    fixture.started();
    fixture.write_go_file();
    fixture.ended();
    fixture.ended();
    assert!(recordings(kept.path())[0].series.is_empty());
    fixture.quit();
    let series = &recordings(kept.path())[0].series;
    assert!(series.contains_key(&SeriesSubject::Job(JobId(1), Attempt(4))), "{series:?}");
    assert!(!series.contains_key(&SeriesSubject::Node));
}

#[test]
fn without_measurement_limits_are_still_enforced() {
    let mut fixture = Fixture::with(|options| {
        options.measure_jobs = false;
        one_at_a_time(options);
    });
    fixture.assign([job(1, AWAIT_GO_FILE)]);
    fixture.started();
    fixture.write_go_file();
    let usage = fixture.ended().usage;
    assert_eq!((usage.avg_memory, usage.peak_cpu_percent), (None, None));
    assert!(!fixture.options.output_dir.join(resource_series::SERIES_DIR).exists());

    let mut hog = job(2, "python3 -c 'x = bytearray(400 << 20)\nimport time\ntime.sleep(600)'");
    hog.limits.memory = Some(Bytes(64 << 20));
    assert_eq!(fixture.run(hog).cause, AttemptEndCause::OutOfMemory);
    fixture.quit();
}
