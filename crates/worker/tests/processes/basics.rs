//! Ends, logs, the environment, outputs, measurements.

use crate::support::{AWAIT_GO_FILE, Fixture, job, key, one_at_a_time};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use windlass_types::worker_messages::{AttemptEndCause, ProcessExit, ReturnReason, StdioMode, StdioSettings};
use windlass_types::{Bytes, JobId, Resources};

#[test]
fn ends_are_reported_with_code_or_signal() {
    let mut fixture = Fixture::new();
    for (command, exit, code) in [
        ("true", ProcessExit::Code(0), 0),
        ("exit 7", ProcessExit::Code(7), 7),
        ("no-such-command-anywhere", ProcessExit::Code(127), 127),
        ("kill -TERM $$", ProcessExit::Signal(15), 143),
        ("kill -KILL $$", ProcessExit::Signal(9), 137),
    ] {
        let ended = fixture.run(job(1, command));
        assert_eq!((ended.exit, ended.cause), (exit, AttemptEndCause::Itself), "{command}");
        assert_eq!((ended.key, ended.exit.return_code()), (key(1), code));
        assert!(ended.ended_at >= ended.started_at);
    }
    fixture.quit();
}

#[test]
fn output_goes_to_the_files_of_its_mode() {
    let mut fixture = Fixture::with(one_at_a_time);
    let said = |text: &str| Some(format!("{text}\n"));
    for (id, mode, o, e, log) in [
        (1, StdioMode::Separate, said("out"), said("err"), None),
        (2, StdioMode::Combined, None, None, said("out\nerr")),
        (3, StdioMode::None, None, None, None),
        (4, StdioMode::NoStdout, None, said("err"), None),
        (5, StdioMode::NoStderr, said("out"), None, None),
    ] {
        let mut talker = job(id, "echo out; echo err >&2");
        talker.stdio.mode = mode;
        assert_eq!(fixture.run(talker).exit, ProcessExit::Code(0));
        assert_eq!(
            (fixture.log(id, "o"), fixture.log(id, "e"), fixture.log(id, "log")),
            (o, e, log),
            "{mode:?}"
        );
    }
    fixture.quit();
}

#[test]
fn logs_are_deleted_on_success_only_and_only_if_asked() {
    let mut fixture = Fixture::new();
    let talk = "echo out; echo err >&2";
    for (id, command, kept) in [(1, talk.to_owned(), false), (2, format!("{talk}; false"), true)] {
        let mut talker = job(id, &command);
        talker.stdio = StdioSettings { mode: StdioMode::Separate, delete_on_success: true };
        fixture.run(talker);
        assert_eq!(fixture.log(id, "o").is_some(), kept);
        assert_eq!(fixture.log(id, "e").is_some(), kept);
    }
    fixture.quit();
}

#[test]
fn silent_jobs_leave_no_files() {
    let kept = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::with(|options| options.output_dir = kept.path().to_owned());
    fixture.run(job(1, "true"));
    fixture.run(job(2, "echo out"));
    fixture.run(job(3, "false"));
    fixture.run(job(4, "echo err >&2"));
    fixture.run(job(5, "true"));
    // Spare empty logs are removed when there is no next attempt.
    fixture.quit();
    let directory = fs::read_dir(kept.path().join("job_stdio")).unwrap();
    let names = directory.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let expected = [(2, "o"), (4, "e")].map(|(id, end)| format!("{}.{end}", key(id).log_stem()));
    assert_eq!(names.collect::<BTreeSet<_>>(), BTreeSet::from(expected));
}

#[test]
fn old_logs_are_truncated_and_a_missing_directory_is_recreated() {
    let mut fixture = Fixture::new();
    fixture.run(job(1, "echo a long line of old text"));
    fixture.run(job(1, "echo new"));
    assert_eq!(fixture.log(1, "o").as_deref(), Some("new\n"));
    fs::remove_dir_all(&fixture.options.output_dir).unwrap();
    fixture.run(job(2, "echo here"));
    assert_eq!(fixture.log(2, "o").as_deref(), Some("here\n"));
    fixture.quit();
}

#[test]
fn jobs_get_both_sets_of_variables_and_cannot_override_them() {
    let mut fixture = Fixture::with(|options| options.api_url = Some("http://localhost:1".into()));
    let mut asks = job(5, "env; pwd");
    asks.resources = Resources { cpus: 2, memory: Bytes(1 << 30), ..Resources::DEFAULT };
    asks.limits.memory = Some(asks.resources.memory);
    asks.env = [
        ("MINE", "a=b c"),
        ("TORC_JOB_NAME", "mine too"),
        ("TORC_EXAMPLE_DATA_ROOT", "/data"),
        ("WINDLASS_JOB_ID", "6"),
        ("WINDLASS_WORKER", "another"),
        ("WINDLASS_OUTPUT_DIR", "elsewhere"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    assert_eq!(fixture.run(asks).exit, ProcessExit::Code(0));
    let text = fixture.log(5, "o").unwrap();
    let seen: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once('=')).collect();
    let (directory, output) =
        (fixture.path("").display().to_string(), fixture.path("out").display().to_string());
    let directory = directory.trim_end_matches('/');
    for (name, value) in [
        ("WORKFLOW_ID", "3"),
        ("RUN_ID", "2"),
        ("JOB_ID", "5"),
        ("ATTEMPT_ID", "4"),
        ("OUTPUT_DIR", output.as_str()),
        ("WORKFLOW_SUBMISSION_DIR", directory),
    ] {
        for prefix in ["WINDLASS_", "TORC_"] {
            assert_eq!(seen.get(format!("{prefix}{name}").as_str()), Some(&value), "{prefix}{name}");
        }
    }
    for (name, value) in [
        ("TORC_API_URL", "http://localhost:1/torc-service/v1"),
        ("WINDLASS_API_URL", "http://localhost:1"),
        ("WINDLASS_URL", "http://localhost:1"),
        ("WINDLASS_JOB_NAME", "job 5"),
        ("TORC_EXAMPLE_DATA_ROOT", "/data"),
        ("TORC_JOB_NAME", "job 5"),
        ("MINE", "a=b c"),
        ("WINDLASS_ATTEMPT", "4"),
        ("WINDLASS_CPUS", "2"),
        ("WINDLASS_MEMORY_BYTES", "1073741824"),
        ("WINDLASS_WORKER", fixture.options.token.as_str()),
    ] {
        assert_eq!(seen.get(name), Some(&value), "{name}");
    }
    assert_eq!(text.lines().last(), Some(directory));
    fixture.quit();
}

#[test]
fn concurrent_jobs_get_different_gpus() {
    let mut fixture = Fixture::with(|options| {
        options.capacity.gpus = 3;
        options.gpu_devices = vec!["GPU-a".into(), "GPU-b".into()];
    });
    let mut two = job(1, &format!("echo $CUDA_VISIBLE_DEVICES $TORC_GPU_VISIBLE_DEVICES; {AWAIT_GO_FILE}"));
    two.resources.gpus = 2;
    let mut one = job(2, "echo $HIP_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES $WINDLASS_GPU_VISIBLE_DEVICES");
    one.resources.gpus = 1;
    fixture.assign([two, one, job(3, "echo none:$WINDLASS_GPU_VISIBLE_DEVICES")]);
    let first = fixture.ended().key.job;
    fixture.write_go_file();
    assert_ne!(first, JobId(1));
    fixture.ended();
    fixture.ended();
    assert_eq!(fixture.log(1, "o").as_deref(), Some("GPU-a,GPU-b GPU-a,GPU-b\n"));
    assert_eq!(fixture.log(2, "o").as_deref(), Some("2 2 2\n"));
    assert_eq!(fixture.log(3, "o").as_deref(), Some("none:\n"));
    fixture.quit();
}

#[test]
fn success_without_declared_outputs_is_a_failure() {
    let mut fixture = Fixture::new();
    let mut maker = job(1, "echo x > here; mkdir -p sub; echo x > sub/there");
    maker.output_files = vec!["here".into(), "sub/there".into(), fixture.path("here").display().to_string()];
    assert_eq!(fixture.run(maker.clone()).cause, AttemptEndCause::Itself);
    maker.output_files.push("nowhere".into());
    assert_eq!(fixture.run(maker.clone()).cause, AttemptEndCause::MissingOutputs(vec!["nowhere".into()]));
    maker.command = "exit 3".into();
    assert_eq!(fixture.run(maker).cause, AttemptEndCause::Itself);
    fixture.quit();
}

#[test]
fn a_job_that_cannot_start_reports_and_logs_the_reason() {
    let mut fixture = Fixture::new();
    let ended = fixture.run(job(1, &format!("true {}", "x".repeat(1 << 20))));
    let AttemptEndCause::CannotStart(why) = &ended.cause else { panic!("{:?}", ended.cause) };
    assert!(why.contains("longer than the system permits"), "{why}");
    assert_eq!(ended.exit.return_code(), 126);
    assert_eq!(fixture.log(1, "e").unwrap(), format!("windlass: {why}\n"));

    let mut bad = job(2, "true");
    bad.env.push(("A\0B".into(), "x".into()));
    assert!(matches!(fixture.run(bad).cause, AttemptEndCause::CannotStart(_)));
    assert_eq!(fixture.run(job(3, "true")).cause, AttemptEndCause::Itself);
    fixture.quit();
}

#[test]
fn a_problem_of_the_worker_returns_the_job() {
    let mut fixture = Fixture::new();
    let logs = fixture.options.output_dir.join("job_stdio");
    fs::remove_dir(&logs).unwrap();
    fs::write(&logs, "in the way").unwrap();
    fixture.assign([job(1, "true")]);
    let (id, why) = fixture.returned();
    let ReturnReason::WorkerTrouble(text) = why else { panic!("{why:?}") };
    assert!(id == JobId(1) && text.contains("job_stdio"), "{text}");
    fs::remove_file(&logs).unwrap();
    assert_eq!(fixture.run(job(1, "true")).cause, AttemptEndCause::Itself);
    fixture.quit();
}

#[test]
fn longer_job_reports_its_start_and_is_measured() {
    let mut fixture = Fixture::new();
    let hold = "python3 -c 'import os, time\nx = bytearray(80 << 20)\nwhile not os.path.exists(\"gate\"): time.sleep(0.02)'\n\
                echo $$";
    fixture.assign([job(1, hold)]);
    let (id, pid) = fixture.started();
    assert_eq!(id, JobId(1));
    // The start of the second job is reported only after the first was measured.
    fixture.assign([job(2, AWAIT_GO_FILE)]);
    assert_eq!(fixture.started().0, JobId(2));
    fixture.write_go_file();
    let mut ends = [fixture.ended(), fixture.ended()];
    ends.sort_by_key(|end| end.key);
    let usage = ends[0].usage;
    assert_eq!(fixture.log(1, "o"), Some(format!("{pid}\n")));
    assert!(
        usage.peak_memory > Some(Bytes(80 << 20)) && usage.peak_memory < Some(Bytes(800 << 20)),
        "{usage:?}"
    );
    assert!(usage.avg_memory.is_some() && usage.peak_cpu_percent.is_some(), "{usage:?}");
    assert!(usage.avg_cpu_percent > Some(0.0) && !usage.cpu_time.is_zero(), "{usage:?}");
    fixture.quit();
}
