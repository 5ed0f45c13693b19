//! Properties of all handlers and all failures.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use windlass_types::{GrowableQuantity, Ratio, ResourceGrowth};

static WORKERS: [&[Capacity]; 3] = [&[], &[worker(8, 64)], &[worker(2, 512), worker(64, 4)]];
const WORDS: [&str; 3] = ["refused", "timeout", "segfault"];

fn some<T: std::fmt::Debug + Clone + 'static>(
    strategy: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Option<T>> {
    proptest::option::of(strategy).boxed()
}

fn growth<Q: GrowableQuantity + std::fmt::Debug + 'static>(
    most: u64,
) -> impl Strategy<Value = ResourceGrowth<Q>> {
    let ratio = |least: u64| (least..5_000_000).prop_map(Ratio::from_millionths);
    prop_oneof![
        ratio(1_000_001).prop_map(ResourceGrowth::Times),
        ratio(1).prop_map(ResourceGrowth::Percent),
        (1..most).prop_map(|units| ResourceGrowth::Plus(Q::from_units(units))),
    ]
}

fn duration(most: u64) -> impl Strategy<Value = Duration> {
    (1..most).prop_map(Duration::from_micros)
}

fn any_rule() -> impl Strategy<Value = FailureRule> {
    let conditions = (
        vec(0..4i32, 0..3),
        any::<bool>(),
        subsequence(vec![9, 11, 15], 0..=2),
        subsequence(FailureCause::ALL.to_vec(), 0..=2),
        subsequence(FailureClass::ALL.to_vec(), 0..=2),
        subsequence(WORDS.to_vec(), 0..=2),
    );
    let waits = (
        some(duration(1 << 40)),
        some((1_000_000..9_000_000u64).prop_map(Ratio::from_millionths)),
        some(duration(1 << 40)),
        some((0..=1_000_000u64).prop_map(Ratio::from_millionths)),
    );
    let grows = (
        some(growth::<Bytes>(1 << 40)),
        some((1..1u64 << 40).prop_map(Bytes)),
        some(growth::<Duration>(1 << 40)),
        some(duration(1 << 40)),
        some(growth::<u32>(100)),
        some(1..100u32),
    );
    (conditions, waits, grows, -1..6i32).prop_map(|(conditions, waits, grows, max_retries)| FailureRule {
        exit_codes: conditions.0,
        match_all_exit_codes: conditions.1,
        on: conditions.3,
        classes: conditions.4,
        stderr: conditions.5.into_iter().map(str::to_owned).collect(),
        delay: waits.0,
        backoff: waits.1,
        max_delay: waits.2,
        jitter: waits.3,
        memory: grows.0,
        max_memory: grows.1,
        runtime: grows.2,
        max_runtime: grows.3,
        cpus: grows.4,
        max_cpus: grows.5,
        max_retries,
        ..signals(&conditions.2)
    })
}

fn any_failure() -> impl Strategy<Value = FailedAttemptFacts<'static>> {
    let exit = prop_oneof![
        (1..4i32).prop_map(ProcessExit::Code),
        select(vec![9, 11, 15]).prop_map(ProcessExit::Signal)
    ];
    let cause = proptest::option::of(select(FailureCause::ALL.to_vec()));
    (exit, cause, select(FailureClass::ALL.to_vec()), select(WORDS.to_vec())).prop_map(
        |(exit, cause, class, last_words)| FailedAttemptFacts {
            return_code: exit.return_code(),
            exit: Some(exit),
            cause,
            class,
            stderr_tail: last_words,
        },
    )
}

fn any_situation() -> impl Strategy<Value = RetryContext<'static>> {
    let asked = (1..64u32, 1..1u64 << 40, some(duration(1 << 40))).prop_map(|(cpus, memory, runtime)| {
        Resources { cpus, memory: Bytes(memory), runtime, ..Resources::DEFAULT }
    });
    (1..7u32, some(asked), select(&WORKERS), some(duration(1 << 40)), 0..3u64, any::<u64>()).prop_map(
        |(used, asked, workers, longest, granted, random)| RetryContext {
            asked,
            workers,
            max_worker_lifetime: longest,
            budget: RetryBudgetUsage { granted, limit: 2 },
            random,
            ..after(used)
        },
    )
}

/// Specificity of a rule, implemented in another way than in the code.
fn rank(rule: &FailureRule, failure: &FailedAttemptFacts<'_>) -> u8 {
    match (rule.exit_codes.contains(&failure.return_code), rule.has_conditions_beyond_codes()) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => 2,
    }
}

proptest! {
    #[test]
    fn specific_rules_precede_catch_all_in_any_order(
        (written, shuffled) in vec(any_rule(), 1..6).prop_flat_map(|rules| (Just(rules.clone()), Just(rules).prop_shuffle())),
        failure in any_failure(),
    ) {
        let speaks = |rule: &FailureRule| speaker(std::slice::from_ref(rule), &failure).is_some();
        let best = written.iter().filter(|rule| speaks(rule)).map(|rule| rank(rule, &failure)).min();
        for rules in [&written, &shuffled] {
            let first = rules.iter().position(|rule| speaks(rule) && Some(rank(rule, &failure)) == best);
            prop_assert_eq!(speaker(rules, &failure), first.map(|at| at + 1));
        }
    }

    #[test]
    fn attempts_never_exceed_the_limit(rule in any_rule(), failure in any_failure(), situation in any_situation()) {
        let handler = handler(std::slice::from_ref(&rule));
        let mut situation = RetryContext { used_attempts: 1, attempt: Attempt::FIRST, budget: RetryBudgetUsage { granted: 0, limit: 100 }, ..situation };
        while let HandlerDecision::Retry(retry) = decide_retry(Some(&handler), &failure, &situation) {
            situation.used_attempts += 1;
            situation.asked = retry.resources.or(situation.asked);
            prop_assert!(i64::from(situation.used_attempts) <= i64::from(rule.max_retries));
        }
    }

    #[test]
    fn delays_stay_within_their_bounds(rule in any_rule(), used in 1..200u32, random in any::<u64>()) {
        let steady = FailureRule { jitter: None, ..rule.clone() };
        let without_jitter = |used| retry_delay::retry_delay(&steady, used, random);
        prop_assert!(without_jitter(used) >= rule.delay.unwrap_or_default().min(rule.max_delay()));
        prop_assert!(without_jitter(used + 1) >= without_jitter(used));
        let by = rule.jitter.unwrap_or(Ratio::ZERO).scale(without_jitter(used).units());
        let by = Duration::from_micros(by);
        let delay = retry_delay::retry_delay(&rule, used, random);
        prop_assert!(delay >= without_jitter(used).saturating_sub(by));
        prop_assert!(delay <= (without_jitter(used) + by).min(rule.max_delay()));
    }

    #[test]
    fn resources_never_shrink_and_never_pass_their_caps(
        rule in any_rule(),
        failure in any_failure(),
        situation in any_situation(),
    ) {
        let HandlerDecision::Retry(retry) = decide_retry(Some(&handler(std::slice::from_ref(&rule))), &failure, &situation) else { return Ok(()) };
        let (Some(next), Some(asked)) = (retry.resources, situation.asked) else {
            prop_assert_eq!(retry.resources, None);
            return Ok(());
        };
        prop_assert_ne!(next, asked);
        prop_assert!(next.memory >= asked.memory && next.cpus >= asked.cpus && next.runtime >= asked.runtime);
        prop_assert_eq!((next.gpus, next.nodes, next.runtime.is_some()), (asked.gpus, asked.nodes, asked.runtime.is_some()));
        if next.memory > asked.memory {
            prop_assert!(rule.memory.is_some() && rule.max_memory.is_none_or(|most| next.memory <= most));
        }
        if next.cpus > asked.cpus {
            prop_assert!(rule.cpus.is_some() && rule.max_cpus.is_none_or(|most| next.cpus <= most));
        }
        if next.runtime > asked.runtime {
            let most = [rule.max_runtime, situation.max_worker_lifetime].into_iter().flatten().min();
            prop_assert!(rule.runtime.is_some() && most.is_none_or(|most| next.runtime <= Some(most)));
        }
        // Workers that could take the job before can take it now.
        let holds = |resources: Resources| {
            situation.workers.iter().any(|worker| worker.cpus >= resources.cpus && worker.memory >= resources.memory)
        };
        prop_assert!(holds(next) || !holds(asked));
    }

    #[test]
    fn equal_random_numbers_give_equal_decisions(rules in vec(any_rule(), 0..4), failure in any_failure(), situation in any_situation()) {
        let answer = || decide_retry(Some(&handler(&rules)), &failure, &situation);
        prop_assert_eq!(answer(), answer());
    }
}
