//! Recovery scripts after a failed attempt, and the last words of a failed job.

use crate::support::{Fixture, job, key};
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;
use windlass_types::Attempt;
use windlass_types::worker_messages::{
    Assignment, AttemptEndCause, AttemptKey, AttemptReport, ProcessExit, RecoveryScript,
    RecoveryScriptResult, ReturnReason, StdioMode,
};

const LONG: Duration = Duration::from_secs(1000);

/// The third attempt had failed with 10; the bench's jobs are in their fourth.
fn after(script: &str, limit: Duration, command: &str) -> Assignment {
    let recovery = RecoveryScript { script: script.into(), failed: Attempt(3), return_code: 10, limit };
    Assignment { recovery: Some(Box::new(recovery)), ..job(1, command) }
}

fn recovery_log(fixture: &Fixture) -> Option<String> {
    let stem = AttemptKey { attempt: Attempt(3), ..key(1) }.log_stem();
    fs::read_to_string(fixture.options.output_dir.join(format!("job_stdio/{stem}.recovery.log"))).ok()
}

#[test]
fn a_recovery_script_runs_before_the_job() {
    let mut fixture = Fixture::new();
    let script = r#"set -u
echo "$TORC_JOB_NAME failed with $TORC_RETURN_CODE in attempt $TORC_ATTEMPT_ID"
echo "$WINDLASS_JOB_NAME $WINDLASS_RETURN_CODE $WINDLASS_FAILED_ATTEMPT_ID" >&2
echo "it's mended" > input"#;
    let command =
        r#"cat input; echo "${TORC_RETURN_CODE-unset} $TORC_ATTEMPT_ID ${WINDLASS_RECOVERY_SCRIPT-unset}""#;
    let ended = fixture.run(after(script, LONG, command));
    assert_eq!((ended.exit, ended.cause), (ProcessExit::Code(0), AttemptEndCause::Itself));
    let recovered = ended.recovered.unwrap();
    assert!(
        recovered.succeeded()
            && matches!(*recovered, RecoveryScriptResult::Ended { exit: ProcessExit::Code(0), .. })
    );
    assert_eq!(recovery_log(&fixture).unwrap(), "job 1 failed with 10 in attempt 3\njob 1 10 3\n");
    assert_eq!(fixture.log(1, "o").unwrap(), "it's mended\nunset 4 unset\n");
    fixture.quit();
}

#[test]
fn a_failing_recovery_script_does_not_stop_the_retry() {
    let mut fixture = Fixture::new();
    let ended = fixture.run(after("exit 3", LONG, "echo tried"));
    assert_eq!(ended.exit, ProcessExit::Code(0));
    assert!(matches!(
        *ended.recovered.unwrap(),
        RecoveryScriptResult::Ended { exit: ProcessExit::Code(3), .. }
    ));
    assert_eq!(fixture.log(1, "o").unwrap(), "tried\n");
    assert_eq!(recovery_log(&fixture), None, "it printed nothing");

    let unreadable = after("echo \0", LONG, "echo tried");
    let ended = fixture.run(unreadable);
    assert_eq!(ended.exit, ProcessExit::Code(0));
    assert!(matches!(*ended.recovered.unwrap(), RecoveryScriptResult::CannotStart(_)));
    fixture.quit();
}

#[test]
fn a_hanging_recovery_script_is_ended_with_its_processes() {
    let mut fixture = Fixture::with(|options| options.timeout_grace = Duration::from_millis(200));
    let script = "(setsid sh -c 'trap \"\" TERM; echo $$ > daemon; while :; do sleep 0.02; done' &); \
                  trap '' TERM; while :; do sleep 0.02; done";
    let limit = Duration::from_secs(1);
    fixture.assign([after(script, limit, "echo tried")]);
    let daemon = fixture.noted("daemon");
    let ended = fixture.ended();
    assert_eq!((ended.exit, ended.cause), (ProcessExit::Code(0), AttemptEndCause::Itself));
    assert_eq!(*ended.recovered.unwrap(), RecoveryScriptResult::TimedOut { limit });
    assert!(!daemon.is_alive());
    fixture.quit();
}

#[test]
fn a_stop_during_the_recovery_script_returns_the_job() {
    let mut fixture = Fixture::new();
    fixture.assign([after("echo $$ > script; exec sleep 1000", LONG, "echo ran > ran")]);
    let script = fixture.noted("script");
    fixture.stop(LONG);
    let report =
        std::iter::from_fn(|| Some(fixture.report())).find(|r| !matches!(r, AttemptReport::Started { .. }));
    assert_eq!(report, Some(AttemptReport::Returned { key: key(1), why: ReturnReason::Recalled }));
    assert!(!script.is_alive() && !fixture.path("ran").exists());
    assert_eq!(fixture.run(job(2, "true")).exit, ProcessExit::Code(0), "it accepts more jobs");
    fixture.quit();
}

#[test]
fn failed_attempt_reports_the_end_of_its_log() {
    let mut fixture = Fixture::new();
    let said = |ended: windlass_types::worker_messages::AttemptEndReport| ended.last_words;
    assert_eq!(said(fixture.run(job(1, "echo fine >&2"))), None, "it did not fail");
    assert_eq!(said(fixture.run(job(2, "exit 1"))), None, "it printed nothing");
    assert_eq!(said(fixture.run(job(3, "echo out; echo oh no >&2; exit 1"))).as_deref(), Some("oh no"));

    let long = fixture.run(job(4, "seq 100000 >&2; exit 1"));
    let mut last_forty = String::new();
    (99_961..=100_000).for_each(|n| writeln!(last_forty, "{n}").unwrap());
    assert_eq!(said(long).as_deref(), Some(last_forty.trim_end()));

    let mut combined = job(5, "echo out; echo oh no >&2; exit 1");
    combined.stdio.mode = StdioMode::Combined;
    assert_eq!(said(fixture.run(combined)).as_deref(), Some("out\noh no"));
    let mut unheard = job(6, "echo oh no >&2; exit 1");
    unheard.stdio.mode = StdioMode::NoStderr;
    assert_eq!(said(fixture.run(unheard)), None);

    // Secrets of the job are masked.
    let mut careless = job(8, "echo \"login as $DB_USER with $DB_PASSWORD\" >&2; exit 1");
    careless.env = vec![("DB_USER".into(), "ada".into()), ("DB_PASSWORD".into(), "hush-hush".into())];
    assert_eq!(said(fixture.run(careless)).as_deref(), Some("login as ada with ********"));

    // One line without an end and without a known encoding.
    let endless = fixture.run(job(7, "head -c 100000 /dev/zero | tr '\\0' '\\377' >&2; exit 1"));
    assert!(said(endless).is_some_and(|words| words.len() <= 3 * 8 * 1024));
    fixture.quit();
}
