//! For any input, a script exits with one of four codes and requests no more than the ceiling.

use super::*;
use crate::parsers::events::JobHold;
use proptest::prelude::*;

fn hold() -> impl Strategy<Value = JobHold> {
    let code = prop_oneof![Just(21), Just(34), Just(47), any::<i32>()];
    (code, prop_oneof![Just(102), any::<i32>()], ".*").prop_map(|(code, subcode, reason)| JobHold {
        reason,
        code,
        subcode,
    })
}

fn report() -> impl Strategy<Value = JobReportSummary> {
    let code = prop_oneof![Just(0), Just(8021), Just(50660), Just(7002), any::<i32>()];
    (code, ".*", prop::collection::vec(".*", 0..3)).prop_map(|(code, message, bad_inputs)| JobReportSummary {
        cmssw: CmsswReport { exit_code: code, error_message: Some(message), ..CmsswReport::default() },
        bad_inputs,
    })
}

fn anything() -> impl Strategy<Value = NodeAttempt> {
    let returned = prop_oneof![0..256_i32, -64..0_i32, Just(-1001), Just(-1002), any::<i32>()];
    let ad = (
        prop::option::of(hold()),
        prop::option::of(".*"),
        prop::option::of(any::<u64>()),
        prop::option::of(any::<u64>()),
    );
    let tail = prop_oneof![".*", "windlass payload: (data|memory|odd) failure [0-9]{1,12}: .*"];
    let counts = (any::<u32>(), any::<u32>());
    (returned, ad, prop::option::of(report()), tail, counts, any::<u64>(), prop::option::of(1..64 * GIB))
        .prop_map(
            |(
                returned,
                (hold, removal, wall_sec, memory_mb),
                report,
                tail,
                (retry, max_retries),
                random,
                before,
            )| NodeAttempt {
                retry,
                max_retries,
                job_log: JobLogSummary { hold, removal, wall_sec, memory_mb, ..JobLogSummary::default() },
                report,
                previous_report: before
                    .map(|memory| PostReport { next: Some(requested_memory(memory)), ..earlier() }),
                random,
                ..attempt(returned, &tail)
            },
        )
}

fn earlier() -> PostReport {
    let settings = settings();
    let first = NodeAttempt { job_id: "31.0".into(), ..attempt(3, "") };
    decide_attempt(&first, &NodeRules::from_group(&settings.node_groups["processing"], &settings).unwrap())
        .report
}

proptest! {
    #[test]
    fn decision_has_a_valid_exit_code_and_keeps_the_limits(attempt in anything(), kind in "landing|processing|merge|cleanup|handled|plain") {
        let settings = settings();
        let decision = decide_attempt(&attempt, &NodeRules::from_group(&settings.node_groups[&kind], &settings).unwrap());
        prop_assert!([0, 1, 42, 43].contains(&decision.exit_code.code()));
        let report = &decision.report;
        if let Some(next) = report.next {
            prop_assert!(next.memory.0 <= (CEILING_MB << 20).max(report.asked.memory.0));
            prop_assert!(next.memory >= report.asked.memory);
            prop_assert!(next.runtime <= Some(Duration::from_secs(settings.retry_settings.longest_runtime_sec)));
        }
        prop_assert_eq!(report.is_final, decision.exit_code != ScriptExitCode::Retry || attempt.retry >= attempt.max_retries);
        if let Some(due) = report.not_before {
            prop_assert!(due.since(attempt.now).as_secs() <= settings.retry_settings.longest_cool_off_sec);
        }
        let text = serde_json::to_string(report).unwrap();
        prop_assert_eq!(&serde_json::from_str::<PostReport>(&text).unwrap(), report);
    }

    #[test]
    fn attempt_history_is_limited(attempts in 1..200_u32) {
        let settings = settings();
        let rules = NodeRules::from_group(&settings.node_groups["processing"], &settings).unwrap();
        let mut last = None;
        for number in 0..attempts {
            let failed = NodeAttempt { job_id: format!("{number}.0"), retry: number % 4, previous_report: last.take(), ..attempt(9, "") };
            last = Some(decide_attempt(&failed, &rules).report);
        }
        prop_assert!(last.unwrap().attempts.len() <= 50);
    }
}
