//! Schedds that do not answer do not delay others.

use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;
use tempfile::TempDir;

/// Commands of which those for the schedd `silent` never end. They write their pid.
const HANGING: &str = r#"#!/bin/sh
case "$*" in
*silent*)
    echo $$ > "$(dirname "$0")/pid.new"
    mv "$(dirname "$0")/pid.new" "$(dirname "$0")/pid"
    exec sleep 1000 ;;
*) echo '[]' ;;
esac
"#;

struct FakeCondorTools(TempDir);

impl FakeCondorTools {
    fn new() -> Self {
        let tools = tempfile::tempdir().unwrap();
        for tool in ["condor_q", "condor_history", "condor_rm"] {
            let path = tools.path().join(tool);
            fs::write(&path, HANGING).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(tools)
    }

    fn options(&self, schedds: &[&str]) -> CondorOptions {
        let schedds = schedds.iter().map(|schedd| (*schedd).to_owned()).collect();
        CondorOptions { schedds, tools_directory: Some(self.0.path().to_owned()), ..CondorOptions::default() }
    }

    /// The hanging process, once it exists.
    fn hanging(&self) -> String {
        loop {
            if let Ok(pid) = fs::read_to_string(self.0.path().join("pid")) {
                return pid.trim().to_owned();
            }
            std::thread::yield_now();
        }
    }
}

fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

fn in_directory(run: RunRow, directory: &TempDir) -> RunRow {
    RunRow { submit_dir: directory.path().to_string_lossy().into_owned(), ..run }
}

/// Waits for a notice about `run`.
fn await_news(waker: &RequestReconcilerWaker, run: &str) {
    let until = Instant::now() + Duration::from_mins(10);
    while Instant::now() < until {
        if waker.0.wait_for_events(until).is_some_and(|events| events.runs.contains(run)) {
            return;
        }
    }
    panic!("no notice about {run}");
}

#[test]
fn silent_schedd_delays_neither_watching_nor_stopping() {
    let (tools, waker) = (FakeCondorTools::new(), RequestReconcilerWaker::default());
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let condor = CondorBackend::new(tools.options(&["well", "silent"]), waker.clone());
    let well = in_directory(run("a", Some("well"), Some("7")), &directories[0]);
    let silent = in_directory(run("b", Some("silent"), Some("8")), &directories[1]);
    condor.inspect_run(&well, 0).unwrap();
    condor.inspect_run(&silent, 0).unwrap();
    let hanging = tools.hanging();
    // The notices about both from the start of watching have been read.
    drop(waker.0.wait_for_events(Instant::now()));
    pause::pause_run(directories[0].path()).unwrap();
    loop {
        await_news(&waker, "a");
        if condor.inspect_run(&well, 0).unwrap().state == RunState::Halted {
            break;
        }
    }
    assert!(is_running(&hanging), "it was noticed only after the silent one timed out");
    drop(condor);
    assert!(!is_running(&hanging), "it was killed");
}

#[test]
fn stopping_ends_hanging_call_to_silent_schedd() {
    let tools = FakeCondorTools::new();
    let condor = CondorBackend::new(tools.options(&["silent"]), RequestReconcilerWaker::default());
    let removed = std::thread::scope(|scope| {
        let telling = scope.spawn(|| condor.schedd_queue.client_for(Some("silent")).remove(7, "because"));
        let hanging = tools.hanging();
        condor.schedd_queue.cancel_token.cancel(Duration::ZERO);
        let removed = telling.join().unwrap();
        assert!(!is_running(&hanging));
        removed
    });
    let error = removed.unwrap_err();
    assert!(matches!(error, CondorError::Canceled { .. }) && error.is_transient(), "{error}");
    let more = condor.schedd_queue.client_for(Some("well")).remove(7, "because").unwrap_err();
    assert!(matches!(more, CondorError::Canceled { .. }), "there are no more notices: {more}");
}

#[test]
fn silent_schedd_is_skipped_for_a_while() {
    let tools = FakeCondorTools::new();
    let condor = CondorBackend::new(tools.options(&["silent", "well"]), RequestReconcilerWaker::default());
    let at = |schedd: &str| rows::BackendRunRef::Htcondor { schedd: Some(schedd.into()), cluster: None };
    let silence = std::thread::scope(|scope| {
        let placing = scope.spawn(|| condor.choose_schedd(&[]));
        let hanging = tools.hanging();
        let status = std::process::Command::new("kill").args(["-KILL", &hanging]).status().unwrap();
        assert!(status.success());
        placing.join().unwrap()
    });
    assert_eq!(silence, at("well"));
    fs::remove_file(tools.0.path().join("pid")).unwrap();
    assert_eq!(condor.choose_schedd(&[]), at("well"));
    assert!(!tools.0.path().join("pid").exists(), "it was not queried");
}

#[test]
fn only_schedd_effects_wait_in_its_lane() {
    use crate::backend::{BackendKind, work_lane};
    use windlass_core::requests::lifecycle::LifecycleEffect;
    let at = run("a", Some("s1"), Some("7"));
    let here = RunRow { backend: rows::BackendRunRef::Engine { workflow: None, run: None }, ..at.clone() };
    let (run, kind) = (|| "a".to_owned(), BackendKind::Htcondor);
    let stop = LifecycleEffect::Stop { run: run(), reason: String::new() };
    let table = [
        (LifecycleEffect::Submit { run: run() }, Some("at s1")),
        (LifecycleEffect::Resume { run: run() }, Some("at s1")),
        (stop.clone(), Some("at s1")),
        (LifecycleEffect::Unpause { run: run() }, Some("at s1")),
        (LifecycleEffect::Pause { run: run() }, None),
        (LifecycleEffect::AvoidSites { run: run() }, None),
        (LifecycleEffect::Settle { round: 0, run: run() }, None),
        (LifecycleEffect::Plan { round: 1 }, Some("any")),
        (LifecycleEffect::WriteManifest, None),
    ];
    for (effect, expected) in table {
        assert_eq!(work_lane(kind, Some(&at), &effect).as_deref(), expected, "{effect:?}");
    }
    let engine = BackendKind::Engine;
    assert_eq!(work_lane(engine, Some(&here), &stop), None);
    assert_eq!(work_lane(engine, None, &LifecycleEffect::Plan { round: 1 }), None);
}
