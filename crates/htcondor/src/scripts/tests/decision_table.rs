//! A table of attempts and the decisions about them.

use super::*;
use crate::parsers::events::JobHold;

fn held(code: i32, subcode: i32, reason: &str) -> NodeAttempt {
    let hold = Some(JobHold { code, subcode, reason: reason.to_owned() });
    NodeAttempt {
        job_log: JobLogSummary { hold, removal: Some("by DAGMan".into()), ..JobLogSummary::default() },
        ..attempt(-1002, "")
    }
}

fn decided(kind: &str, attempt: &NodeAttempt) -> ScriptDecision {
    let settings = settings();
    decide_attempt(attempt, &NodeRules::from_group(&settings.node_groups[kind], &settings).unwrap())
}

#[test]
fn failures_have_the_expected_decisions() {
    let failed = |returned, code, message| NodeAttempt {
        report: Some(reported(code, message, &[])),
        ..attempt(returned, "")
    };
    let message = |returned, tail| attempt(returned, tail);
    let at_end = |attempt: NodeAttempt| NodeAttempt { retry: 3, ..attempt };
    let cases = vec![
        ("success", attempt(0, ""), ScriptExitCode::Success, "success", FollowUpAction::Done),
        (
            "no report",
            NodeAttempt { missing_report: Some("proc_3.json".into()), ..attempt(0, "") },
            ScriptExitCode::Retry,
            "transient",
            FollowUpAction::Retry,
        ),
        (
            "code in the report",
            failed(75, 9000, "caught SIGINT"),
            ScriptExitCode::Retry,
            "transient",
            FollowUpAction::Retry,
        ),
        (
            "… though the process returned 0",
            failed(0, 9000, "caught SIGINT"),
            ScriptExitCode::Retry,
            "transient",
            FollowUpAction::Retry,
        ),
        (
            "permanent",
            failed(70, 8010, "LogicError"),
            ScriptExitCode::Permanent,
            "permanent",
            FollowUpAction::PermanentFailure,
        ),
        (
            "data",
            failed(65, 8021, "FileReadError"),
            ScriptExitCode::Permanent,
            "data",
            FollowUpAction::PermanentFailure,
        ),
        (
            "configuration",
            failed(70, 7002, "no such file"),
            ScriptExitCode::Abort,
            "permanent",
            FollowUpAction::Abort,
        ),
        (
            "… also at the end",
            at_end(failed(70, 7002, "x")),
            ScriptExitCode::Abort,
            "permanent",
            FollowUpAction::Abort,
        ),
        ("memory", failed(1, 50660, "PSS"), ScriptExitCode::Retry, "memory", FollowUpAction::RetryWithMore),
        (
            "time",
            failed(124, 50664, "wall clock"),
            ScriptExitCode::Retry,
            "timeout",
            FollowUpAction::RetryWithMore,
        ),
        (
            "site",
            failed(74, 60311, "stage out"),
            ScriptExitCode::Retry,
            "infrastructure",
            FollowUpAction::Retry,
        ),
        (
            "general code, specific message",
            failed(1, 8001, "Valid site-local-config not found"),
            ScriptExitCode::Retry,
            "infrastructure",
            FollowUpAction::Retry,
        ),
        ("nothing known", message(3, "bye"), ScriptExitCode::Retry, "unknown", FollowUpAction::Retry),
        (
            "a line of stderr",
            message(1, "curl: (7) Connection refused"),
            ScriptExitCode::Retry,
            "transient",
            FollowUpAction::Retry,
        ),
        (
            "the last line of our payload",
            message(70, "x\nwindlass payload: permanent failure 60302: step GEN: no output"),
            ScriptExitCode::Permanent,
            "permanent",
            FollowUpAction::PermanentFailure,
        ),
        (
            "a crash",
            message(-11, ""),
            ScriptExitCode::Permanent,
            "permanent",
            FollowUpAction::PermanentFailure,
        ),
        ("killed", message(-9, ""), ScriptExitCode::Retry, "infrastructure", FollowUpAction::Retry),
        (
            "retries spent",
            at_end(message(3, "bye")),
            ScriptExitCode::Retry,
            "unknown",
            FollowUpAction::RetriesSpent,
        ),
        ("not submitted", attempt(-1001, ""), ScriptExitCode::Retry, "transient", FollowUpAction::Retry),
        ("removed", attempt(-1002, ""), ScriptExitCode::Retry, "transient", FollowUpAction::Retry),
        ("lost", attempt(-1003, ""), ScriptExitCode::Retry, "transient", FollowUpAction::Retry),
        (
            "held for memory by a policy",
            held(21, 102, "memory usage exceeded request_memory"),
            ScriptExitCode::Retry,
            "memory",
            FollowUpAction::RetryWithMore,
        ),
        (
            "held for memory by a cgroup",
            held(34, 0, "Job has gone over cgroup memory limit"),
            ScriptExitCode::Retry,
            "memory",
            FollowUpAction::RetryWithMore,
        ),
        (
            "held for memory in other words",
            held(26, 5, "Memory usage over limit"),
            ScriptExitCode::Retry,
            "memory",
            FollowUpAction::RetryWithMore,
        ),
        (
            "held for time",
            held(47, 0, "job exceeded allowed execute duration"),
            ScriptExitCode::Retry,
            "timeout",
            FollowUpAction::RetryWithMore,
        ),
        (
            "held by a person",
            held(1, 0, "via condor_hold (by user ann)"),
            ScriptExitCode::Retry,
            "transient",
            FollowUpAction::Retry,
        ),
        (
            "held because the disk of the schedd is full",
            held(
                12,
                28,
                "Transfer output files failure at access point a.test while receiving files from the execution \
                 point. Details: (errno 28) No space left on device",
            ),
            ScriptExitCode::Retry,
            "transient",
            FollowUpAction::Retry,
        ),
        (
            "held because the disk of the worker is full",
            held(
                13,
                28,
                "Transfer input files failure at execution point slot1@w.test while receiving files from access \
                 point a.test. Details: (errno 28) No space left on device",
            ),
            ScriptExitCode::Retry,
            "infrastructure",
            FollowUpAction::Retry,
        ),
        (
            "held for something else",
            held(6, 2, "No such file or directory"),
            ScriptExitCode::Retry,
            "infrastructure",
            FollowUpAction::Retry,
        ),
    ];
    for (what, attempt, exit_code, category, action) in cases {
        let ScriptDecision { exit_code: found, report } = decided("processing", &attempt);
        let about = &report.classification;
        assert_eq!(
            (found, about.category.as_str(), about.action),
            (exit_code, category, action),
            "{what}: {}",
            about.why
        );
        let is_final = exit_code != ScriptExitCode::Retry || attempt.retry == attempt.max_retries;
        assert_eq!(report.is_final, is_final, "{what}");
        assert_eq!(about.retryable, exit_code == ScriptExitCode::Retry, "{what}");
        let grows = action == FollowUpAction::RetryWithMore;
        assert_eq!(report.next.is_some(), grows, "{what}");
        let passes = matches!(category, "transient" | "infrastructure" | "unknown");
        assert_eq!(report.not_before.is_some(), passes && !is_final, "{what}");
    }
}

#[test]
fn removal_at_the_wall_time_limit_is_a_timeout() {
    let reason =
        Some("The job attribute PeriodicRemove expression evaluated to TRUE: hard wall time".to_owned());
    let removed = NodeAttempt {
        job_log: JobLogSummary { removal: reason, ..JobLogSummary::default() },
        ..attempt(-1002, "")
    };
    let report = decided("processing", &removed).report;
    assert_eq!(report.classification.category, "timeout");
    assert_eq!(report.next.unwrap().runtime, Some(Duration::from_hours(4)));
}

#[test]
fn only_processing_and_merge_failures_abort_the_run() {
    let broken = NodeAttempt { report: Some(reported(7001, "no configuration", &[])), ..attempt(70, "") };
    for (kind, exit_code) in [
        ("processing", ScriptExitCode::Abort),
        ("merge", ScriptExitCode::Abort),
        ("landing", ScriptExitCode::Permanent),
        ("cleanup", ScriptExitCode::Permanent),
        ("plain", ScriptExitCode::Permanent),
    ] {
        assert_eq!(decided(kind, &broken).exit_code, exit_code, "{kind}");
    }
}

#[test]
fn data_failures_name_the_bad_files() {
    let message = "cannot read /store/data/b.root";
    let bad =
        NodeAttempt { report: Some(reported(8021, message, &["/store/data/a.root"])), ..attempt(65, "") };
    assert_eq!(decided("processing", &bad).report.classification.bad_input_files, ["/store/data/a.root"]);
    let tail = "windlass payload: data failure 8028: 2 of the inputs cannot be opened at T2_X: /store/a.root, /store/b.root.";
    let landing = decided("landing", &attempt(66, tail));
    assert_eq!(landing.exit_code, ScriptExitCode::Permanent);
    assert_eq!(landing.report.classification.bad_input_files, ["/store/a.root", "/store/b.root"]);
    let passing =
        NodeAttempt { report: Some(reported(9000, message, &["/store/data/a.root"])), ..attempt(75, "") };
    assert!(decided("processing", &passing).report.classification.bad_input_files.is_empty());
}

/// 1 GiB → 1.5 → 2.25 → 3, which is the ceiling; then memory cannot be raised any more.
#[test]
fn memory_grows_up_to_its_ceiling() {
    let mut earlier = None;
    let mut sizes = Vec::new();
    for retry in 0..4 {
        let over = NodeAttempt {
            retry,
            max_retries: 9,
            job_id: format!("{retry}.0"),
            previous_report: earlier.take(),
            ..held(34, 0, "over")
        };
        let settings = ScriptSettings {
            node_groups: [(
                "processing".to_owned(),
                NodeGroupSettings { retries: 9, ..group_settings(NodeRole::Processing) },
            )]
            .into(),
            ..settings()
        };
        let decision = decide_attempt(
            &over,
            &NodeRules::from_group(&settings.node_groups["processing"], &settings).unwrap(),
        );
        let expected = if retry < 3 { ScriptExitCode::Retry } else { ScriptExitCode::Permanent };
        assert_eq!(decision.exit_code, expected, "{retry}");
        sizes.push(decision.report.asked.memory.0 / (1 << 20));
        earlier = Some(decision.report);
    }
    assert_eq!(sizes, [1024, 1536, 2304, CEILING_MB]);
    let last = earlier.unwrap();
    assert_eq!((last.is_final, last.classification.retryable), (true, false));
    assert!(last.classification.why.contains("cannot grow"), "{}", last.classification.why);
    assert_eq!(last.attempts.len(), 3);
}

/// An operator may raise the memory of nodes before a rescue; the need learned from an attempt is kept if it is
/// larger.
#[test]
fn memory_grows_from_its_current_value() {
    for (learnt, message, expected) in [(1024, 2048, 2048), (2048, 1024, 2048)] {
        let node = |mb: u64| NodeGroupSettings {
            asked: requested_memory(mb << 20),
            ..group_settings(NodeRole::Processing)
        };
        let rules = |mb: u64| NodeRules::from_group(&node(mb), &settings()).unwrap();
        let first = decide_attempt(&attempt(1, "late"), &rules(learnt)).report;
        let next = NodeAttempt { job_id: "33.0".into(), previous_report: Some(first), ..attempt(1, "late") };
        let asked = decide_attempt(&next, &rules(message)).report.asked;
        assert_eq!(asked.memory, Bytes(expected << 20), "{learnt} {message}");
    }
}

#[test]
fn cool_offs_double_up_to_the_limit() {
    let settings = ScriptSettings {
        node_groups: [(
            "processing".to_owned(),
            NodeGroupSettings { retries: 9, ..group_settings(NodeRole::Processing) },
        )]
        .into(),
        ..settings()
    };
    let rules = NodeRules::from_group(&settings.node_groups["processing"], &settings).unwrap();
    let wait = |retry| {
        let failed = NodeAttempt { retry, max_retries: 9, ..attempt(75, "") };
        let due = decide_attempt(&failed, &rules).report.not_before.unwrap();
        due.since(failed.now).as_secs()
    };
    assert_eq!([0, 1, 2, 3, 4, 8].map(wait), [60, 120, 240, 480, 600, 600]);
}

#[test]
fn repeated_decision_counts_the_attempt_once() {
    let first = decided("processing", &held(34, 0, "over")).report;
    let again =
        decided("processing", &NodeAttempt { previous_report: Some(first.clone()), ..held(34, 0, "over") })
            .report;
    assert_eq!(again, first);
    let next = NodeAttempt {
        retry: 1,
        job_id: "33.0".into(),
        previous_report: Some(first.clone()),
        ..attempt(3, "")
    };
    let next = decided("processing", &next).report;
    assert_eq!(next.asked, first.next.unwrap());
    assert_eq!((next.attempts.len(), next.attempts[0].job.as_str()), (1, "32.0"));
}

#[test]
fn jobs_of_a_spec_follow_their_failure_handler() {
    let failed = attempt(10, "");
    let first = decided("handled", &failed);
    assert_eq!((first.exit_code, first.report.is_final), (ScriptExitCode::Retry, false));
    let recovery = first.report.recovery.unwrap();
    assert_eq!((recovery.failed.0, recovery.return_code), (1, 10));
    assert_eq!(first.report.not_before, Some(failed.now.plus(Duration::from_secs(5))));
    // The rule allows two attempts, though DAGMan would make more.
    let second = decided("handled", &NodeAttempt { retry: 1, ..attempt(10, "") });
    assert_eq!(second.exit_code, ScriptExitCode::Permanent);
    assert_eq!(second.report.classification.action, FollowUpAction::RetriesSpent);
    assert_eq!(decided("handled", &attempt(11, "")).exit_code, ScriptExitCode::Permanent, "no rule matches");
    let passing = attempt(75, "Connection refused");
    assert_eq!(decided("plain", &passing).exit_code, ScriptExitCode::Permanent, "a class is a label");
    assert_eq!(decided("plain", &passing).report.classification.category, "transient");
}

/// A job without requirements has no limit to approach and nothing to raise.
#[test]
fn job_without_requirements_has_no_resource_limits() {
    let mut settings = settings();
    let kind =
        NodeGroupSettings { role: None, retries: 3, asked: Resources::DEFAULT, handler: Some("more".into()) };
    let more = FailureRule {
        memory: Some(windlass_types::ResourceGrowth::Times(settings.retry_settings.growth)),
        match_all_exit_codes: true,
        ..FailureRule::default()
    };
    settings.handlers.insert("more".into(), FailureHandler { name: "more".into(), rules: vec![more] });
    let killed = NodeAttempt {
        job_log: JobLogSummary { memory_mb: Some(500), ..JobLogSummary::default() },
        ..attempt(-9, "")
    };
    let report = decide_attempt(&killed, &NodeRules::from_group(&kind, &settings).unwrap()).report;
    assert_eq!((report.classification.category.as_str(), report.next), ("infrastructure", None));
    let limited = NodeGroupSettings { asked: requested_memory(500 << 20), ..kind };
    let report = decide_attempt(&killed, &NodeRules::from_group(&limited, &settings).unwrap()).report;
    assert_eq!(report.classification.category, "memory");
    assert_eq!(report.next.map(|next| next.memory), Some(Bytes(750 << 20)));
}

#[test]
fn unsubmitted_attempts_are_distinguished_by_retry_number() {
    let unsubmitted = |retry, earlier| NodeAttempt {
        retry,
        previous_report: earlier,
        job_id: "-1.-1".into(),
        ..attempt(-1001, "")
    };
    let first = decided("processing", &unsubmitted(0, None)).report;
    let again = decided("processing", &unsubmitted(0, Some(first.clone()))).report;
    assert_eq!((again.attempt, again.attempts.len()), (1, 0), "called twice for the same attempt");
    let second = decided("processing", &unsubmitted(1, Some(first))).report;
    let third = decided("processing", &unsubmitted(2, Some(second))).report;
    let earlier: Vec<u32> = third.attempts.iter().map(|earlier| earlier.attempt).collect();
    assert_eq!((third.attempt, earlier), (3, vec![1, 2]));
}
