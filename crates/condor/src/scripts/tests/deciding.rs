//! A table of what may happen, and what follows.

use super::*;
use crate::read::events::Hold;

fn held(code: i32, subcode: i32, reason: &str) -> Attempt {
    let hold = Some(Hold { code, subcode, reason: reason.to_owned() });
    Attempt { ad: Ad { hold, removal: Some("by DAGMan".into()), ..Ad::default() }, ..attempt(-1002, "") }
}

fn decided(kind: &str, attempt: &Attempt) -> Decision {
    let terms = terms();
    decide(attempt, &Rules::of(&terms.kinds[kind], &terms).unwrap())
}

#[test]
fn what_follows_what() {
    let failed =
        |returned, code, said| Attempt { report: Some(reported(code, said, &[])), ..attempt(returned, "") };
    let said = |returned, tail| attempt(returned, tail);
    let at_end = |attempt: Attempt| Attempt { retry: 3, ..attempt };
    let cases = vec![
        ("success", attempt(0, ""), Verdict::Success, "success", Action::Done),
        (
            "no report",
            Attempt { missing: Some("proc_3.json".into()), ..attempt(0, "") },
            Verdict::Retry,
            "transient",
            Action::Retry,
        ),
        ("code in the report", failed(75, 9000, "caught SIGINT"), Verdict::Retry, "transient", Action::Retry),
        (
            "… though the process says 0",
            failed(0, 9000, "caught SIGINT"),
            Verdict::Retry,
            "transient",
            Action::Retry,
        ),
        (
            "permanent",
            failed(70, 8010, "LogicError"),
            Verdict::Permanent,
            "permanent",
            Action::PermanentFailure,
        ),
        ("data", failed(65, 8021, "FileReadError"), Verdict::Permanent, "data", Action::PermanentFailure),
        ("configuration", failed(70, 7002, "no such file"), Verdict::Abort, "permanent", Action::Abort),
        ("… also at the end", at_end(failed(70, 7002, "x")), Verdict::Abort, "permanent", Action::Abort),
        ("memory", failed(1, 50660, "PSS"), Verdict::Retry, "memory", Action::RetryWithMore),
        ("time", failed(124, 50664, "wall clock"), Verdict::Retry, "timeout", Action::RetryWithMore),
        ("site", failed(74, 60311, "stage out"), Verdict::Retry, "infrastructure", Action::Retry),
        (
            "general code, telling words",
            failed(1, 8001, "Valid site-local-config not found"),
            Verdict::Retry,
            "infrastructure",
            Action::Retry,
        ),
        ("nothing known", said(3, "bye"), Verdict::Retry, "unknown", Action::Retry),
        (
            "a line of stderr",
            said(1, "curl: (7) Connection refused"),
            Verdict::Retry,
            "transient",
            Action::Retry,
        ),
        (
            "the last line of our payload",
            said(70, "x\nwindlass payload: permanent failure 60302: step GEN: no output"),
            Verdict::Permanent,
            "permanent",
            Action::PermanentFailure,
        ),
        ("a crash", said(-11, ""), Verdict::Permanent, "permanent", Action::PermanentFailure),
        ("killed", said(-9, ""), Verdict::Retry, "infrastructure", Action::Retry),
        ("retries spent", at_end(said(3, "bye")), Verdict::Retry, "unknown", Action::RetriesSpent),
        ("not submitted", attempt(-1001, ""), Verdict::Retry, "transient", Action::Retry),
        ("removed", attempt(-1002, ""), Verdict::Retry, "transient", Action::Retry),
        ("lost", attempt(-1003, ""), Verdict::Retry, "transient", Action::Retry),
        (
            "held for memory by a policy",
            held(21, 102, "memory usage exceeded request_memory"),
            Verdict::Retry,
            "memory",
            Action::RetryWithMore,
        ),
        (
            "held for memory by a cgroup",
            held(34, 0, "Job has gone over cgroup memory limit"),
            Verdict::Retry,
            "memory",
            Action::RetryWithMore,
        ),
        (
            "held for memory in other words",
            held(26, 5, "Memory usage over limit"),
            Verdict::Retry,
            "memory",
            Action::RetryWithMore,
        ),
        (
            "held for time",
            held(47, 0, "job exceeded allowed execute duration"),
            Verdict::Retry,
            "timeout",
            Action::RetryWithMore,
        ),
        (
            "held by a person",
            held(1, 0, "via condor_hold (by user ann)"),
            Verdict::Retry,
            "transient",
            Action::Retry,
        ),
        (
            "held as the disk of the schedd is full",
            held(
                12,
                28,
                "Transfer output files failure at access point a.test while receiving files from the execution \
                 point. Details: (errno 28) No space left on device",
            ),
            Verdict::Retry,
            "transient",
            Action::Retry,
        ),
        (
            "held as the disk of the worker is full",
            held(
                13,
                28,
                "Transfer input files failure at execution point slot1@w.test while receiving files from access \
                 point a.test. Details: (errno 28) No space left on device",
            ),
            Verdict::Retry,
            "infrastructure",
            Action::Retry,
        ),
        (
            "held for something else",
            held(6, 2, "No such file or directory"),
            Verdict::Retry,
            "infrastructure",
            Action::Retry,
        ),
    ];
    for (what, attempt, verdict, category, action) in cases {
        let Decision { verdict: found, report } = decided("processing", &attempt);
        let about = &report.classification;
        assert_eq!(
            (found, about.category.as_str(), about.action),
            (verdict, category, action),
            "{what}: {}",
            about.why
        );
        let is_final = verdict != Verdict::Retry || attempt.retry == attempt.max_retries;
        assert_eq!(report.is_final, is_final, "{what}");
        assert_eq!(about.retryable, verdict == Verdict::Retry, "{what}");
        let grows = action == Action::RetryWithMore;
        assert_eq!(report.next.is_some(), grows, "{what}");
        let passes = matches!(category, "transient" | "infrastructure" | "unknown");
        assert_eq!(report.not_before.is_some(), passes && !is_final, "{what}");
    }
}

#[test]
fn a_time_that_the_system_took_is_a_timeout() {
    let reason =
        Some("The job attribute PeriodicRemove expression evaluated to TRUE: hard wall time".to_owned());
    let removed = Attempt { ad: Ad { removal: reason, ..Ad::default() }, ..attempt(-1002, "") };
    let report = decided("processing", &removed).report;
    assert_eq!(report.classification.category, "timeout");
    assert_eq!(report.next.unwrap().runtime, Some(Duration::from_hours(4)));
}

#[test]
fn only_nodes_that_stand_for_all_end_the_run() {
    let broken = Attempt { report: Some(reported(7001, "no configuration", &[])), ..attempt(70, "") };
    for (kind, verdict) in [
        ("processing", Verdict::Abort),
        ("merge", Verdict::Abort),
        ("landing", Verdict::Permanent),
        ("cleanup", Verdict::Permanent),
        ("plain", Verdict::Permanent),
    ] {
        assert_eq!(decided(kind, &broken).verdict, verdict, "{kind}");
    }
}

#[test]
fn bad_files_are_named_where_data_is_at_fault() {
    let said = "cannot read /store/data/b.root";
    let bad = Attempt { report: Some(reported(8021, said, &["/store/data/a.root"])), ..attempt(65, "") };
    assert_eq!(decided("processing", &bad).report.classification.bad_input_files, ["/store/data/a.root"]);
    let tail = "windlass payload: data failure 8028: 2 of the inputs cannot be opened at T2_X: /store/a.root, /store/b.root.";
    let landing = decided("landing", &attempt(66, tail));
    assert_eq!(landing.verdict, Verdict::Permanent);
    assert_eq!(landing.report.classification.bad_input_files, ["/store/a.root", "/store/b.root"]);
    let passing = Attempt { report: Some(reported(9000, said, &["/store/data/a.root"])), ..attempt(75, "") };
    assert!(decided("processing", &passing).report.classification.bad_input_files.is_empty());
}

/// 1 GiB → 1.5 → 2.25 → 3, which is the ceiling; then more memory cannot be had.
#[test]
fn memory_grows_to_its_ceiling_and_no_further() {
    let mut earlier = None;
    let mut sizes = Vec::new();
    for retry in 0..4 {
        let over = Attempt {
            retry,
            max_retries: 9,
            job_id: format!("{retry}.0"),
            earlier: earlier.take(),
            ..held(34, 0, "over")
        };
        let terms = Terms {
            kinds: [("processing".to_owned(), NodeKind { retries: 9, ..kind(NodeRole::Processing) })].into(),
            ..terms()
        };
        let decision = decide(&over, &Rules::of(&terms.kinds["processing"], &terms).unwrap());
        let expected = if retry < 3 { Verdict::Retry } else { Verdict::Permanent };
        assert_eq!(decision.verdict, expected, "{retry}");
        sizes.push(decision.report.asked.memory.0 / (1 << 20));
        earlier = Some(decision.report);
    }
    assert_eq!(sizes, [1024, 1536, 2304, CEILING_MB]);
    let last = earlier.unwrap();
    assert_eq!((last.is_final, last.classification.retryable), (true, false));
    assert!(last.classification.why.contains("cannot grow"), "{}", last.classification.why);
    assert_eq!(last.attempts.len(), 3);
}

/// Before a rescue, somebody may have given the nodes more; what one is known to need stands over that.
#[test]
fn memory_grows_from_what_it_is_by_now() {
    for (learnt, said, expected) in [(1024, 2048, 2048), (2048, 1024, 2048)] {
        let node = |mb: u64| NodeKind { asked: asked(mb << 20), ..kind(NodeRole::Processing) };
        let rules = |mb: u64| Rules::of(&node(mb), &terms()).unwrap();
        let first = decide(&attempt(1, "late"), &rules(learnt)).report;
        let next = Attempt { job_id: "33.0".into(), earlier: Some(first), ..attempt(1, "late") };
        let asked = decide(&next, &rules(said)).report.asked;
        assert_eq!(asked.memory, Bytes(expected << 20), "{learnt} {said}");
    }
}

#[test]
fn cool_offs_double_up_to_their_limit() {
    let terms = Terms {
        kinds: [("processing".to_owned(), NodeKind { retries: 9, ..kind(NodeRole::Processing) })].into(),
        ..terms()
    };
    let rules = Rules::of(&terms.kinds["processing"], &terms).unwrap();
    let wait = |retry| {
        let failed = Attempt { retry, max_retries: 9, ..attempt(75, "") };
        let due = decide(&failed, &rules).report.not_before.unwrap();
        due.since(failed.now).as_secs()
    };
    assert_eq!([0, 1, 2, 3, 4, 8].map(wait), [60, 120, 240, 480, 600, 600]);
}

#[test]
fn an_attempt_that_is_asked_about_twice_counts_once() {
    let first = decided("processing", &held(34, 0, "over")).report;
    let again =
        decided("processing", &Attempt { earlier: Some(first.clone()), ..held(34, 0, "over") }).report;
    assert_eq!(again, first);
    let next = Attempt { retry: 1, job_id: "33.0".into(), earlier: Some(first.clone()), ..attempt(3, "") };
    let next = decided("processing", &next).report;
    assert_eq!(next.asked, first.next.unwrap());
    assert_eq!((next.attempts.len(), next.attempts[0].job.as_str()), (1, "32.0"));
}

#[test]
fn jobs_of_a_spec_follow_their_handler() {
    let failed = attempt(10, "");
    let first = decided("handled", &failed);
    assert_eq!((first.verdict, first.report.is_final), (Verdict::Retry, false));
    let recovery = first.report.recovery.unwrap();
    assert_eq!((recovery.failed.0, recovery.return_code), (1, 10));
    assert_eq!(first.report.not_before, Some(failed.now.after(Duration::from_secs(5))));
    // The rule allows two attempts, though DAGMan would make more.
    let second = decided("handled", &Attempt { retry: 1, ..attempt(10, "") });
    assert_eq!(second.verdict, Verdict::Permanent);
    assert_eq!(second.report.classification.action, Action::RetriesSpent);
    assert_eq!(decided("handled", &attempt(11, "")).verdict, Verdict::Permanent, "no rule is for it");
    let passing = attempt(75, "Connection refused");
    assert_eq!(decided("plain", &passing).verdict, Verdict::Permanent, "a class is a label");
    assert_eq!(decided("plain", &passing).report.classification.category, "transient");
}

/// What nobody asked for is no limit that it came near to, and nothing that could grow.
#[test]
fn a_job_without_requirements_is_not_measured_by_them() {
    let mut terms = terms();
    let kind = NodeKind { role: None, retries: 3, asked: Resources::DEFAULT, handler: Some("more".into()) };
    let more = FailureRule {
        memory: Some(windlass_types::Growth::Times(terms.care.growth)),
        match_all_exit_codes: true,
        ..FailureRule::default()
    };
    terms.handlers.insert("more".into(), FailureHandler { name: "more".into(), rules: vec![more] });
    let killed = Attempt { ad: Ad { memory_mb: Some(500), ..Ad::default() }, ..attempt(-9, "") };
    let report = decide(&killed, &Rules::of(&kind, &terms).unwrap()).report;
    assert_eq!((report.classification.category.as_str(), report.next), ("infrastructure", None));
    let limited = NodeKind { asked: asked(500 << 20), ..kind };
    let report = decide(&killed, &Rules::of(&limited, &terms).unwrap()).report;
    assert_eq!(report.classification.category, "memory");
    assert_eq!(report.next.map(|next| next.memory), Some(Bytes(750 << 20)));
}

#[test]
fn attempts_that_were_never_submitted_are_told_apart_by_their_retry() {
    let unsubmitted =
        |retry, earlier| Attempt { retry, earlier, job_id: "-1.-1".into(), ..attempt(-1001, "") };
    let first = decided("processing", &unsubmitted(0, None)).report;
    let again = decided("processing", &unsubmitted(0, Some(first.clone()))).report;
    assert_eq!((again.attempt, again.attempts.len()), (1, 0), "asked twice about the same one");
    let second = decided("processing", &unsubmitted(1, Some(first))).report;
    let third = decided("processing", &unsubmitted(2, Some(second))).report;
    let earlier: Vec<u32> = third.attempts.iter().map(|earlier| earlier.attempt).collect();
    assert_eq!((third.attempt, earlier), (3, vec![1, 2]));
}
