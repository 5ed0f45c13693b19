//! Tests of the rules against their examples, and of the order of evaluation against a table.

use super::*;
use FailureClass::{Data, Infrastructure, Memory, Permanent, Timeout, Transient, Unknown};
use std::time::Duration;
use windlass_types::{Bytes, Resources};

fn classify(evidence: &FailureEvidence<'_>) -> FailureClassification {
    FailureClassifier::standard().classify(evidence)
}

fn rule(name: &str, class: FailureClass) -> ClassificationRule {
    ClassificationRule {
        name: name.to_owned(),
        class,
        means: String::new(),
        on: Vec::new(),
        signals: Vec::new(),
        exit_codes: Vec::new(),
        stderr: Vec::new(),
        near: None,
        of_node: false,
        examples: Vec::new(),
    }
}

fn words(name: &str, class: FailureClass, stderr: &str) -> ClassificationRule {
    ClassificationRule { stderr: vec![stderr.to_owned()], ..rule(name, class) }
}

/// The default rules are compiled unchecked.
#[test]
fn default_rules_pass_the_checks_for_user_rules() {
    RuleSet::new(default_rules()).unwrap();
}

#[test]
fn every_default_rule_matches_its_examples() {
    let mut complaints = Vec::new();
    for (rule, _) in FailureClassifier::standard().rules() {
        assert!(!rule.examples.is_empty(), "{} has no example", rule.name);
        assert!(!rule.means.is_empty() && !rule.means.ends_with('.'), "{} means `{}`", rule.name, rule.means);
        complaints.extend(
            check_rule_examples(FailureClassifier::standard(), rule).err().map(|error| error.to_string()),
        );
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// The words that Torc's design of AI recovery lists, each alone in a line.
#[test]
fn messages_of_the_torc_design_are_classified() {
    for (words, class) in [
        ("Connection refused", Transient),
        ("Connection timed out", Transient),
        ("Network is unreachable", Infrastructure),
        ("DNS resolution failed", Transient),
        ("Service Unavailable", Transient),
        ("NCCL timeout", Infrastructure),
        ("GPU communication error", Infrastructure),
        ("CUDA out of memory", Transient),
        ("EIO", Infrastructure),
        ("Input/output error", Infrastructure),
        ("PREEMPTED", Infrastructure),
        ("NODE_FAIL", Infrastructure),
        ("TIMEOUT", Timeout),
        ("SyntaxError", Permanent),
        ("ModuleNotFoundError", Permanent),
        ("PermissionDenied", Permanent),
        ("AssertionError", Permanent),
    ] {
        let found = classify(&FailureEvidence::from_exit(1, words));
        assert_eq!(found.class, class, "{words}: {:?}", found.rule);
    }
}

/// The words of a rule match that rule, unless an earlier rule of the same class matches them.
#[test]
fn rules_of_different_classes_do_not_overlap() {
    let mut complaints = Vec::new();
    for (rule, _) in FailureClassifier::standard().rules() {
        for words in rule.stderr.iter().filter(|words| !words.starts_with("re:")) {
            let found = classify(&rule.example_evidence(words));
            if found.class != rule.class {
                complaints
                    .push(format!("`{words}` of {} is {:?} by {:?}", rule.name, found.class, found.rule));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn rule_names_are_short_words_with_hyphens() {
    for (rule, origin) in FailureClassifier::standard().rules() {
        let is_plain = |c: char| c.is_ascii_lowercase() || c == '-';
        assert!(rule.name.chars().all(is_plain) && origin == RuleOrigin::Default, "{}", rule.name);
        assert_ne!(rule.name, BAD_NODE);
    }
}

#[test]
fn observed_termination_cause_precedes_log_rules() {
    let tail = "curl: (7) Connection refused";
    for (cause, class, name) in [
        (TerminationCause::OutOfMemory, Memory, "out-of-memory"),
        (TerminationCause::Timeout, Timeout, "time-over"),
        (TerminationCause::CannotStart, Permanent, "cannot-start"),
        (TerminationCause::Orphaned, Infrastructure, "worker-died"),
        (TerminationCause::Interrupted, Unknown, "stopped"),
        (TerminationCause::Itself, Transient, "connection-lost"),
        (TerminationCause::MissingOutput, Transient, "connection-lost"),
    ] {
        let found = classify(&FailureEvidence { cause, ..FailureEvidence::from_exit(75, tail) });
        assert_eq!((found.class, found.rule.as_deref()), (class, Some(name)), "{cause:?}");
        assert_eq!(found.line.is_some(), !cause.is_certain(), "{cause:?}");
    }
}

#[test]
fn evidence_is_weighed_in_order() {
    for (code, signal, tail, class, name) in [
        // An unambiguous signal comes before the output.
        (152, Some(24), "Connection refused", Timeout, "cpu-time-over"),
        (132, None, "Connection refused", Infrastructure, "wrong-processor"),
        // An ambiguous one comes after it.
        (
            134,
            Some(6),
            "terminate called after throwing an instance of 'std::bad_alloc'",
            Memory,
            "no-memory",
        ),
        (134, Some(6), "bye", Permanent, "aborted"),
        (137, Some(9), "starting", Infrastructure, "killed"),
        (
            143,
            Some(15),
            "slurmstepd: error: *** STEP 1 CANCELLED DUE TO TIME LIMIT ***",
            Timeout,
            "batch-time-limit",
        ),
        (143, Some(15), "Terminated", Infrastructure, "asked-to-end"),
        (139, None, "", Permanent, "crashed"),
        // The output of a killed job is not the cause; but a launcher passes on what happened to one of many.
        (137, Some(9), "cp: cannot stat 'x': No such file or directory", Infrastructure, "killed"),
        (143, Some(15), "Connection refused", Infrastructure, "asked-to-end"),
        (137, Some(9), "Out of memory: Killed process 4711 (solve)", Memory, "kernel-oom"),
        (143, None, "cp: cannot stat 'x': No such file or directory", Data, "file-missing"),
        // Lines come before exit codes.
        (75, None, "ModuleNotFoundError: No module named 'numpy'", Permanent, "python-module"),
        (75, None, "giving up", Transient, "ex-tempfail"),
        (127, None, "sh: 1: solvr: not found", Permanent, "program-missing"),
        (127, None, "", Permanent, "not-found"),
        (124, None, "", Timeout, "timeout-command"),
        // The last relevant line, not the first.
        (1, None, "Connection refused\nNo space left on device\nleaving", Infrastructure, "disk-full"),
        (1, None, "No space left on device\nConnection refused\nleaving", Transient, "connection-lost"),
        // Survived errors and warnings do not count if anything else matches.
        (
            1,
            None,
            "cp: cannot stat 'x': No such file or directory\nConnection refused, retrying",
            Data,
            "file-missing",
        ),
        (
            1,
            None,
            "cp: cannot stat 'x': No such file or directory\nWARNING: connection reset",
            Data,
            "file-missing",
        ),
        (
            1,
            None,
            "Warning message: cannot open file 'x': No such file or directory\nError in file(con) : cannot open the connection",
            Data,
            "file-missing",
        ),
    ] {
        let found = classify(&FailureEvidence { signal, ..FailureEvidence::from_exit(code, tail) });
        assert_eq!((found.class, found.rule.as_deref()), (class, Some(name)), "{code} {tail}");
    }
}

#[test]
fn vague_words_do_not_classify() {
    for tail in [
        "",
        "error",
        "ERROR: something failed",
        "fatal error",
        "Execution halted",
        "Traceback (most recent call last):\n  File \"a.py\", line 1\nmy.Boom: it went off",
        "make: *** [Makefile:3: all] Error 1",
        "error: 500 events could not be fitted",
        "processed 404 of 1000, status: 3 bad",
        "srun: error: node17: task 3: Exited with exit code 1",
        "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD with errorcode 1.",
        "Connection refused\nTraceback (most recent call last):\n  File \"a.py\", line 1\nmy.Boom: it went off",
        "timeout = 30\nmemory = 8g",
    ] {
        let found = classify(&FailureEvidence::from_exit(1, tail));
        assert_eq!((found.class, found.rule), (Unknown, None), "{tail}");
        assert!(found.why.contains("exit code 1"), "{}", found.why);
    }
}

#[test]
fn unclassified_failure_quotes_the_likely_line() {
    let line = |tail| classify(&FailureEvidence::from_exit(1, tail)).line;
    assert_eq!(line("a\nmy error 7\nb").as_deref(), Some("my error 7"));
    assert_eq!(line("step 1\r\x1b[1mstep 2\x1b[0m\n\n").as_deref(), Some("step 2"));
    assert_eq!(line(""), None);
}

#[test]
fn job_killed_at_its_limit_is_memory_or_timeout() {
    let asked =
        Resources { memory: Bytes(1 << 30), runtime: Some(Duration::from_secs(100)), ..Resources::DEFAULT };
    let of = |peak: u64, wall| FailureEvidence {
        signal: Some(9),
        peak_memory: Some(Bytes(peak)),
        wall: Duration::from_secs(wall),
        asked: Some(asked),
        ..FailureEvidence::from_exit(137, "")
    };
    assert_eq!(classify(&of(1 << 30, 1)).class, Memory);
    assert_eq!(classify(&of(1 << 20, 99)).class, Timeout);
    assert_eq!(classify(&of(1 << 20, 1)).class, Infrastructure);
    // This one was not killed.
    let failed = FailureEvidence { signal: None, return_code: 1, ..of(1 << 30, 99) };
    assert_eq!(classify(&failed).class, Unknown);
}

#[test]
fn bad_node_explains_machine_related_failures() {
    let bad = NodeFailureCounts { failed: 9, ended: 9, peers_failed: 1, peers_ended: 90 };
    let of = |node, code, tail| {
        classify(&FailureEvidence { node: Some(node), ..FailureEvidence::from_exit(code, tail) })
    };
    let found = of(bad, 1, "oops");
    assert_eq!((found.class, found.rule.as_deref()), (Infrastructure, Some(BAD_NODE)));
    assert!(
        found.why.ends_with("this node failed 9 of its last 9 attempts, the others 1 of 90"),
        "{}",
        found.why
    );
    assert_eq!(of(bad, 127, "sh: 1: solvr: not found").class, Infrastructure);
    assert_eq!(of(bad, 1, "SyntaxError: invalid syntax").class, Permanent);
    let good = NodeFailureCounts { failed: 1, ended: 9, ..bad };
    assert_eq!((of(good, 1, "oops").class, of(good, 127, "").class), (Unknown, Permanent));
    let known = classify(&FailureEvidence {
        node: Some(bad),
        cause: TerminationCause::Timeout,
        ..FailureEvidence::from_exit(152, "")
    });
    assert_eq!(known.class, Timeout);
}

#[test]
fn user_rules_precede_and_replace_defaults() {
    let own = vec![
        ClassificationRule {
            exit_codes: vec![3],
            means: "the solver did not converge".to_owned(),
            ..rule("diverged", Data)
        },
        words("licence-of-ours", Transient, "no seat left"),
        words("quota", Infrastructure, "re:^quota of group [a-z]+ is used up$"),
        // Only the class changes.
        rule("disk-full", Permanent),
    ];
    let classifier = FailureClassifier::new(own).unwrap();
    let of = |code, tail| classifier.classify(&FailureEvidence::from_exit(code, tail));
    assert_eq!(of(3, "No such file or directory").why, "the solver did not converge");
    assert_eq!(of(1, "No Seat Left").class, Transient);
    assert_eq!(of(1, "quota of group bio is used up").class, Infrastructure);
    assert_eq!(of(1, "x: Disk quota exceeded").class, Unknown);
    let full = of(1, "x: No space left on device");
    assert_eq!((full.class, full.why.as_str()), (Permanent, "a disk is full"));
    // An observed cause takes precedence over the output of a program.
    let out = FailureEvidence {
        cause: TerminationCause::OutOfMemory,
        ..FailureEvidence::from_exit(3, "no seat left")
    };
    assert_eq!(classifier.classify(&out).class, Memory);
    let names: Vec<&str> = classifier
        .rules()
        .filter(|(_, origin)| *origin == RuleOrigin::Own)
        .map(|(rule, _)| &*rule.name)
        .collect();
    assert_eq!(names, ["diverged", "licence-of-ours", "quota", "disk-full"]);
    assert_eq!(classifier.rules().filter(|(rule, _)| rule.name == "quota").count(), 1);
}

#[test]
fn invalid_rules_are_rejected_with_a_reason() {
    let said = |own| FailureClassifier::new(own).unwrap_err().to_string();
    assert!(said(vec![rule("", Data)]).contains("no name"));
    assert!(said(vec![rule("x", Data)]).contains("`x` has no condition"));
    assert!(said(vec![words("x", Data, "a"), words("x", Data, "b")]).contains("two rules `x`"));
    assert!(said(vec![words("x", Data, "re:(")]).contains("not a valid regular expression"));
    assert!(said(vec![words("x", Data, " ")]).contains("empty"));
    assert!(said(vec![words("x", Data, "re:a*")]).contains("empty"));
    let unfit = ClassificationRule { examples: vec!["b".into()], ..words("x", Data, "a ") };
    assert!(said(vec![unfit]).ends_with("its own example `b`; no rule matches it"));
    let signal: Result<ClassificationRule, _> =
        serde_json::from_str(r#"{"name": "x", "class": "data", "signals": ["KIL"]}"#);
    assert!(signal.unwrap_err().to_string().contains("unknown signal `KIL`"));
    let unknown: Result<ClassificationRule, _> =
        serde_json::from_str(r#"{"name": "x", "class": "data", "pattern": "a"}"#);
    assert!(unknown.unwrap_err().to_string().contains("unknown field `pattern`"));
}

#[test]
fn end_causes_map_to_termination_causes() {
    use windlass_types::worker_messages::{AttemptEndCause, StopReason};
    assert_eq!(
        TerminationCause::from(&AttemptEndCause::MissingOutputs(vec!["a".into()])),
        TerminationCause::MissingOutput
    );
    assert_eq!(
        TerminationCause::from(&AttemptEndCause::Stopped(StopReason::Interrupted)),
        TerminationCause::Interrupted
    );
    for cause in [TerminationCause::Itself, TerminationCause::OutOfMemory, TerminationCause::MissingOutput] {
        assert_eq!(serde_json::to_value(cause).unwrap(), cause.as_str());
    }
}
