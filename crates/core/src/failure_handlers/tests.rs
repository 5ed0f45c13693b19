//! Tables of the meaning of rules, and properties that hold for all of them.

mod always;

use super::*;
use windlass_types::settings::FailureHandler;
use windlass_types::{Bytes, Signal};

const GIB: u64 = 1 << 30;

fn rule() -> FailureRule {
    FailureRule::default()
}

fn codes(codes: &[i32]) -> FailureRule {
    FailureRule { exit_codes: codes.to_vec(), ..rule() }
}

fn for_all() -> FailureRule {
    FailureRule { match_all_exit_codes: true, ..rule() }
}

fn signals(numbers: &[i32]) -> FailureRule {
    FailureRule { signals: numbers.iter().filter_map(|number| Signal::new(*number)).collect(), ..rule() }
}

fn on(cause: FailureCause) -> FailureRule {
    FailureRule { on: vec![cause], ..rule() }
}

fn class(class: FailureClass) -> FailureRule {
    FailureRule { classes: vec![class], ..rule() }
}

fn stderr(patterns: &[&str]) -> FailureRule {
    FailureRule { stderr: patterns.iter().map(|text| (*text).to_owned()).collect(), ..rule() }
}

fn handler(rules: &[FailureRule]) -> CompiledHandler {
    CompiledHandler::compile(&FailureHandler { name: "net".into(), rules: rules.to_vec() }).unwrap()
}

fn exited(code: i32) -> FailedAttemptFacts<'static> {
    FailedAttemptFacts {
        return_code: code,
        exit: Some(ProcessExit::Code(code)),
        cause: None,
        class: FailureClass::Unknown,
        stderr_tail: "",
    }
}

fn killed(signal: i32) -> FailedAttemptFacts<'static> {
    FailedAttemptFacts { return_code: 128 + signal, exit: Some(ProcessExit::Signal(signal)), ..exited(0) }
}

fn said(words: &str) -> FailedAttemptFacts<'_> {
    FailedAttemptFacts { stderr_tail: words, ..exited(1) }
}

fn out_of_memory() -> FailedAttemptFacts<'static> {
    FailedAttemptFacts { cause: Some(FailureCause::OutOfMemory), class: FailureClass::Memory, ..killed(9) }
}

fn timed_out() -> FailedAttemptFacts<'static> {
    let cause = Some(FailureCause::Timeout);
    FailedAttemptFacts { return_code: 152, cause, class: FailureClass::Timeout, ..killed(15) }
}

fn after(used: u32) -> RetryContext<'static> {
    RetryContext {
        attempt: Attempt(used),
        used_attempts: used,
        asked: Some(Resources {
            memory: Bytes(2 * GIB),
            runtime: Some(Duration::from_mins(10)),
            ..Resources::DEFAULT
        }),
        workers: &[],
        max_worker_lifetime: None,
        budget: RetryBudgetUsage { granted: 0, limit: 1000 },
        random: 1 << 63,
    }
}

/// The number of the matching rule.
fn speaker(rules: &[FailureRule], failure: &FailedAttemptFacts<'_>) -> Option<usize> {
    handler(rules).match_failure(failure).map(|matched| matched.number)
}

#[track_caller]
fn retry(rule: &FailureRule, failure: &FailedAttemptFacts<'_>, situation: &RetryContext<'_>) -> HandlerRetry {
    match decide_retry(Some(&handler(std::slice::from_ref(rule))), failure, situation) {
        HandlerDecision::Retry(retry) => *retry,
        HandlerDecision::Final(last) => panic!("{last:?}"),
    }
}

#[track_caller]
fn stop(
    rule: &FailureRule,
    failure: &FailedAttemptFacts<'_>,
    situation: &RetryContext<'_>,
) -> (NoRetryReason, String) {
    match decide_retry(Some(&handler(std::slice::from_ref(rule))), failure, situation) {
        HandlerDecision::Final(last) => (last.reason, last.message.unwrap_or_default()),
        HandlerDecision::Retry(retry) => panic!("{retry:?}"),
    }
}

#[test]
fn rule_conditions_match() {
    use FailureCause::{CannotStart, MissingOutput, OutOfMemory, Timeout};
    let orphan = FailedAttemptFacts { exit: None, ..exited(-128) };
    let told_by_a_shell = exited(139);
    let told_by_a_client = FailedAttemptFacts { exit: None, ..exited(137) };
    for (rule, failure, speaks) in [
        (codes(&[1, 2]), exited(2), true),
        (codes(&[1, 2]), exited(3), false),
        (codes(&[137]), out_of_memory(), true),
        (codes(&[152]), timed_out(), true),
        (codes(&[-128]), orphan, true),
        (for_all(), exited(77), true),
        (for_all(), out_of_memory(), true),
        (rule(), exited(1), false),
        (signals(&[9, 11]), killed(11), true),
        (signals(&[9, 11]), told_by_a_shell, true),
        (signals(&[9, 11]), told_by_a_client, true),
        (signals(&[9, 11]), killed(6), false),
        (signals(&[9]), exited(9), false),
        // 152 is the exit code of a timeout, not the signal that ended the job.
        (signals(&[24]), timed_out(), false),
        (signals(&[15]), timed_out(), true),
        (on(OutOfMemory), out_of_memory(), true),
        (on(OutOfMemory), killed(9), false),
        (on(Timeout), timed_out(), true),
        (on(MissingOutput), FailedAttemptFacts { cause: Some(MissingOutput), ..exited(1) }, true),
        (on(CannotStart), FailedAttemptFacts { cause: Some(CannotStart), ..exited(126) }, true),
        (on(Timeout), exited(152), false),
        (
            class(FailureClass::Transient),
            FailedAttemptFacts { class: FailureClass::Transient, ..exited(1) },
            true,
        ),
        (class(FailureClass::Transient), exited(1), false),
        (class(FailureClass::Unknown), exited(1), true),
        (stderr(&["connection REFUSED"]), said("x\ncurl: Connection refused (111)\n"), true),
        (stderr(&["no", "Stale file"]), said("read: stale file handle"), true),
        (stderr(&["a.c (1)"]), said("abc 1"), false),
        (stderr(&["a.c (1)"]), said("A.C (1)"), true),
        (stderr(&["re:^NCCL .* timeout$"]), said("start\nNCCL op 7 timeout\nbye"), true),
        (stderr(&["re:^NCCL"]), said("nccl"), false),
        (stderr(&["re:^op"]), said("NCCL op"), false),
        (stderr(&["lost"]), said(""), false),
    ] {
        assert_eq!(speaker(std::slice::from_ref(&rule), &failure).is_some(), speaks, "{rule:?} {failure:?}");
    }
}

#[test]
fn all_conditions_of_a_rule_must_match() {
    let both = FailureRule { exit_codes: vec![1], classes: vec![FailureClass::Transient], ..rule() };
    let transient = |failure| FailedAttemptFacts { class: FailureClass::Transient, ..failure };
    assert!(speaker(std::slice::from_ref(&both), &transient(exited(1))).is_some());
    assert!(speaker(std::slice::from_ref(&both), &transient(exited(2))).is_none());
    assert!(speaker(std::slice::from_ref(&both), &exited(1)).is_none());
    let any_code = FailureRule { match_all_exit_codes: true, ..both };
    assert!(speaker(std::slice::from_ref(&any_code), &transient(exited(2))).is_some());
    assert!(speaker(std::slice::from_ref(&any_code), &exited(1)).is_none());
}

#[test]
fn most_specific_rule_matches_in_any_order() {
    let code_or_all = FailureRule { exit_codes: vec![5], ..for_all() };
    for (rules, failure, number) in [
        (vec![for_all(), codes(&[1])], exited(1), 2),
        (vec![codes(&[1]), for_all()], exited(1), 1),
        (vec![codes(&[1]), for_all()], exited(2), 2),
        (vec![codes(&[1]), codes(&[2, 1])], exited(1), 1),
        (vec![for_all(), for_all()], exited(1), 1),
        (vec![for_all(), stderr(&["lost"])], said("lost"), 2),
        (vec![stderr(&["lost"]), codes(&[1])], said("lost"), 2),
        (vec![on(FailureCause::OutOfMemory), codes(&[137])], out_of_memory(), 2),
        (vec![class(FailureClass::Memory), on(FailureCause::OutOfMemory)], out_of_memory(), 1),
        // For its exit code it is a specific rule, for others a general one.
        (vec![for_all(), code_or_all.clone()], exited(5), 2),
        (vec![for_all(), code_or_all.clone()], exited(6), 1),
        (vec![code_or_all, class(FailureClass::Unknown)], exited(6), 2),
    ] {
        assert_eq!(speaker(&rules, &failure), Some(number), "{rules:?}");
    }
}

#[test]
fn first_attempt_counts_toward_the_limit() {
    let rule = FailureRule { max_retries: 3, ..codes(&[75]) };
    assert_eq!(
        retry(&rule, &exited(75), &after(1)).message,
        "attempt 2 of 3 by rule 1 of handler net (exit code 75)"
    );
    assert_eq!(
        retry(&rule, &exited(75), &after(2)).message,
        "attempt 3 of 3 by rule 1 of handler net (exit code 75)"
    );
    let (why, words) = stop(&rule, &exited(75), &after(3));
    assert_eq!(why, NoRetryReason::Exhausted);
    assert_eq!(words, "not retried after 3 of 3 attempts by rule 1 of handler net (exit code 75)");
    // Two attempts whose workers died do not count.
    let lost_two = RetryContext { attempt: Attempt(4), ..after(2) };
    assert_eq!(
        retry(&rule, &exited(75), &lost_two).message,
        "attempt 3 of 3 by rule 1 of handler net (exit code 75)"
    );
    for max_retries in [1, 0, -5] {
        let rule = FailureRule { max_retries, ..rule.clone() };
        let (why, words) = stop(&rule, &exited(75), &after(1));
        assert_eq!(
            (why, &*words),
            (NoRetryReason::Exhausted, "not retried by rule 1 of handler net (exit code 75)")
        );
    }
}

#[test]
fn unhandled_failures() {
    let HandlerDecision::Final(last) = decide_retry(None, &exited(1), &after(1)) else {
        panic!("there is no handler")
    };
    assert_eq!((last.reason, last.message), (NoRetryReason::NoHandler, None));
    let (why, words) = stop(&codes(&[2]), &exited(1), &after(1));
    assert_eq!((why, &*words), (NoRetryReason::NoMatchingRule, "no rule of handler net matches"));
    for (stop, is_unforeseen) in [
        (NoRetryReason::NoHandler, true),
        (NoRetryReason::NoMatchingRule, true),
        (NoRetryReason::Exhausted, false),
        (NoRetryReason::Pointless, false),
        (NoRetryReason::OverBudget, false),
    ] {
        assert_eq!(stop.is_unhandled(), is_unforeseen, "{stop:?}");
    }
}

#[test]
fn exhausted_budget_stops_retries() {
    let with = |granted, limit| RetryContext { budget: RetryBudgetUsage { granted, limit }, ..after(1) };
    retry(&for_all(), &exited(1), &with(9, 10));
    let (why, words) = stop(&for_all(), &exited(1), &with(10, 10));
    assert_eq!(why, NoRetryReason::OverBudget);
    assert_eq!(words, "not retried: the workflow's retry budget of 10 is used up");
    assert_eq!(stop(&for_all(), &exited(1), &with(0, 0)).0, NoRetryReason::OverBudget);
    // A failure that is final anyway is not attributed to the budget.
    assert_eq!(
        stop(&for_all(), &exited(1), &RetryContext { used_attempts: 3, ..with(10, 10) }).0,
        NoRetryReason::Exhausted
    );
}

#[test]
fn delays_grow_up_to_their_limit() {
    let seconds = Duration::from_secs;
    let failed_job = FailureRule {
        delay: Some(seconds(10)),
        backoff: Some("2".parse().unwrap()),
        max_delay: Some(seconds(60)),
        max_retries: 100,
        ..for_all()
    };
    let delay = |rule: &FailureRule, used| retry(rule, &exited(1), &after(used)).delay;
    for (used, wanted) in [(1, 10), (2, 20), (3, 40), (4, 60), (99, 60)] {
        assert_eq!(delay(&failed_job, used), seconds(wanted), "after {used}");
    }
    let steady = FailureRule { backoff: None, max_delay: None, ..failed_job.clone() };
    assert_eq!(delay(&steady, 7), seconds(10));
    let long = FailureRule { max_delay: None, ..failed_job.clone() };
    assert_eq!(delay(&long, 99), FailureRule::MAX_DELAY);
    let longer_still = FailureRule { delay: Some(Duration::from_hours(48)), ..long };
    assert_eq!(delay(&longer_still, 2), Duration::from_hours(48));
    assert_eq!(delay(&for_all(), 1), Duration::ZERO);
    let words = retry(&failed_job, &exited(1), &after(3)).message;
    assert_eq!(words, "attempt 4 of 100 in 40s by rule 1 of handler net (exit code 1)");
}

#[test]
fn jitter_spreads_delays_within_the_limit() {
    let seconds = Duration::from_secs;
    let jittery = |max: u64| FailureRule {
        delay: Some(seconds(10)),
        max_delay: Some(seconds(max)),
        jitter: Some("0.2".parse().unwrap()),
        ..for_all()
    };
    let delay =
        |rule: &FailureRule, random| retry(rule, &exited(1), &RetryContext { random, ..after(1) }).delay;
    let (wide, narrow) = (jittery(60), jittery(10));
    assert_eq!((delay(&wide, 0), delay(&wide, u64::MAX)), (seconds(8), seconds(12)));
    assert_eq!(delay(&wide, 1 << 63), seconds(10));
    assert_eq!((delay(&narrow, 0), delay(&narrow, u64::MAX)), (seconds(8), seconds(10)));
    assert_eq!(delay(&narrow, 1 << 63), seconds(9));
}

fn more_memory(growth: &str, max: Option<u64>) -> FailureRule {
    FailureRule {
        memory: growth.parse().ok(),
        max_memory: max.map(|gib| Bytes(gib * GIB)),
        ..on(FailureCause::OutOfMemory)
    }
}

const fn worker(cpus: u32, gib: u64) -> Capacity {
    Capacity { cpus, memory: Bytes(gib * GIB), gpus: 0, nodes: 1, max_jobs: None }
}

#[test]
fn exhausted_resource_grows() {
    let given = |retry: HandlerRetry| retry.resources.map(|resources| resources.memory.0 / GIB);
    let next = retry(&more_memory("x1.5", None), &out_of_memory(), &after(1));
    assert_eq!(next.message, "attempt 2 of 3 by rule 1 of handler net (out of memory): memory 2 GiB → 3 GiB");
    assert_eq!(given(next), Some(3));
    let next = retry(&more_memory("x8", Some(4)), &out_of_memory(), &after(1));
    assert!(next.message.ends_with(": memory 2 GiB → 4 GiB (max_memory)"), "{}", next.message);
    let small = [worker(8, 3), worker(1, 2)];
    let situation = RetryContext { workers: &small, ..after(1) };
    let next = retry(&more_memory("x8", Some(4)), &out_of_memory(), &situation);
    assert!(next.message.ends_with(": memory 2 GiB → 3 GiB (largest worker)"), "{}", next.message);
    assert_eq!(given(next), Some(3));

    let longer =
        FailureRule { runtime: "+30%".parse().ok(), cpus: "x2".parse().ok(), ..on(FailureCause::Timeout) };
    let next = retry(&longer, &timed_out(), &after(1));
    assert!(next.message.ends_with("(timeout): runtime 10m → 13m, cpus 1 → 2"), "{}", next.message);
    let resources = next.resources.unwrap();
    assert_eq!((resources.runtime, resources.cpus), (Some(Duration::from_mins(13)), 2));
    assert_eq!(resources.memory, Bytes(2 * GIB), "the rest does not change");
}

/// Memory of one worker and CPUs of another cannot be combined.
#[test]
fn growth_is_capped_by_one_suitable_worker() {
    let rule = FailureRule { cpus: "x100".parse().ok(), ..more_memory("x100", None) };
    let asked = Resources { cpus: 4, memory: Bytes(2 * GIB), ..Resources::DEFAULT };
    let workers = [worker(2, 64), worker(8, 16), worker(64, 8)];
    let situation = RetryContext { asked: Some(asked), workers: &workers, ..after(1) };
    let resources = retry(&rule, &out_of_memory(), &situation).resources.unwrap();
    assert_eq!((resources.cpus, resources.memory), (8, Bytes(16 * GIB)));
    let with_gpus = RetryContext { asked: Some(Resources { gpus: 1, ..asked }), ..situation };
    let resources = retry(&rule, &out_of_memory(), &with_gpus).resources.unwrap();
    assert_eq!(resources.memory, Bytes(200 * GIB), "no worker could take the job, so they set no limit");
}

#[test]
fn job_that_cannot_grow_is_not_retried() {
    let full = [worker(8, 2)];
    let situation = RetryContext { workers: &full, ..after(1) };
    let (why, words) = stop(&more_memory("x1.5", None), &out_of_memory(), &situation);
    assert_eq!(why, NoRetryReason::Pointless);
    assert_eq!(
        words,
        "not retried by rule 1 of handler net (out of memory): its memory of 2 GiB cannot grow (largest worker)"
    );
    let (why, words) = stop(&more_memory("+1g", Some(1)), &out_of_memory(), &after(1));
    assert_eq!(why, NoRetryReason::Pointless, "a limit below the request reduces nothing");
    assert!(words.ends_with("(max_memory)"), "{words}");
    let capped = FailureRule {
        runtime: "x2".parse().ok(),
        max_runtime: Some(Duration::from_mins(10)),
        ..on(FailureCause::Timeout)
    };
    let (why, words) = stop(&capped, &timed_out(), &after(1));
    assert_eq!(why, NoRetryReason::Pointless);
    assert!(words.ends_with("its runtime of 10m cannot grow (max_runtime)"), "{words}");
    let leaving = RetryContext { max_worker_lifetime: Some(Duration::from_mins(5)), ..after(1) };
    let (why, _) = stop(&FailureRule { max_runtime: None, ..capped.clone() }, &timed_out(), &leaving);
    assert_eq!(why, NoRetryReason::Pointless);

    // It failed for another reason, or a script may solve it: then a retry is useful.
    let for_everything =
        FailureRule { on: Vec::new(), ..FailureRule { match_all_exit_codes: true, ..capped.clone() } };
    assert_eq!(retry(&for_everything, &exited(1), &after(1)).resources, None);
    let with_script = FailureRule { recovery_script: Some("tidy".into()), ..capped };
    assert!(retry(&with_script, &timed_out(), &after(1)).recovery.is_some());
}

#[test]
fn job_without_requirements_does_not_grow() {
    let asks_nothing = RetryContext { asked: None, ..after(1) };
    assert_eq!(retry(&more_memory("x2", None), &out_of_memory(), &asks_nothing).resources, None);
    let no_runtime = RetryContext { asked: Some(Resources::DEFAULT), ..after(1) };
    let longer = FailureRule { runtime: "x2".parse().ok(), ..for_all() };
    assert_eq!(retry(&longer, &exited(1), &no_runtime).resources, None);
}

#[test]
fn recovery_script_gets_the_failed_attempt() {
    let rule = FailureRule { recovery_script: Some("rm -f lock".into()), ..codes(&[10]) };
    let next = retry(&rule, &exited(10), &RetryContext { attempt: Attempt(4), ..after(2) });
    let wanted = RecoveryScript {
        script: "rm -f lock".into(),
        failed: Attempt(4),
        return_code: 10,
        limit: Duration::from_mins(10),
    };
    assert_eq!(next.recovery, Some(wanted));
    assert_eq!(
        next.message,
        "attempt 3 of 3 by rule 1 of handler net (exit code 10): after its recovery script"
    );
    let hasty = FailureRule { recovery_timeout: Some(Duration::from_secs(5)), ..rule };
    assert_eq!(retry(&hasty, &exited(10), &after(1)).recovery.unwrap().limit, Duration::from_secs(5));
}

#[test]
fn message_names_every_condition() {
    let rule = FailureRule {
        exit_codes: vec![137],
        on: vec![FailureCause::OutOfMemory],
        classes: vec![FailureClass::Memory],
        stderr: vec!["killed".into()],
        ..signals(&[9])
    };
    let failure = FailedAttemptFacts { stderr_tail: "Killed", ..out_of_memory() };
    let words = retry(&rule, &failure, &after(1)).message;
    let because = "exit code 137, SIGKILL, out of memory, class memory, `killed` in its stderr";
    assert_eq!(words, format!("attempt 2 of 3 by rule 1 of handler net ({because})"));
}

#[test]
fn invalid_pattern_is_rejected_with_its_place() {
    let rules = vec![codes(&[1]), stderr(&["fine (", "re:a(b"])];
    let error = CompiledHandler::compile(&FailureHandler { name: "net".into(), rules }).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rule 2 of failure handler `net`: `re:a(b` is not a regular expression: unclosed group"
    );
    let huge = CompiledHandler::compile(&FailureHandler {
        name: "h".into(),
        rules: vec![stderr(&[r"re:\w{5000}{500}"])],
    });
    assert!(huge.is_err());
}
