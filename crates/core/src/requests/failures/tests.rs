use super::samples::{attempt, ended};
use super::*;
use crate::requests::input_files::find_bad_files;
use proptest::prelude::*;
use std::time::Duration;
use windlass_types::FailureClass::{Data, Infrastructure, Memory, Permanent, Timeout, Transient, Unknown};

fn of(attempts: &[FailedAttemptReport], totals: &[(&str, u64)]) -> FailureTally {
    let mut tally = FailureTally::default();
    tally.add_reports(attempts, &ended(totals));
    tally
}

#[test]
fn repeated_reports_count_once() {
    let attempts = [attempt(1, "T2_A", Transient), attempt(5, "T2_A", Transient)];
    let totals = ended(&[("T2_A", 9)]);
    let mut tally = FailureTally::default();
    assert!(tally.add_reports(&attempts, &totals));
    let before = tally.clone();
    assert!(!tally.add_reports(&attempts, &totals), "nothing new");
    assert_eq!(tally, before);
    assert_eq!((tally.read, tally.failed, tally.ended_attempts()), (5, 2, 9));
    assert_eq!((tally.kinds.len(), tally.kinds[0].attempts), (1, 2));
}

/// Backends count over all runs of a round.
#[test]
fn next_run_starts_new_counts() {
    let first = of(&[attempt(3, "T2_A", Transient)], &[("T2_A", 10)]);
    let mut next = first.for_continuation();
    next.add_reports(&[attempt(3, "T2_A", Transient)], &ended(&[("T2_A", 14), ("T2_B", 2)]));
    assert_eq!((next.read, next.failed, next.ended_attempts()), (3, 0, 6));
    assert_eq!(next.for_continuation().before, ended(&[("T2_A", 14), ("T2_B", 2)]));
    let both = FailureTally::merge_all([&first, &next]);
    assert_eq!((both.failed, both.ended_attempts()), (1, 16));
}

#[test]
fn units_stopped_only_by_bad_files_are_found() {
    let bad = |seq, unit, file: &str| FailedAttemptReport {
        unit,
        bad_files: Vec::from_iter((!file.is_empty()).then(|| file.to_owned())),
        ..attempt(seq, "T2_A", Data)
    };
    let tally = of(&[bad(1, 7, "/store/a"), bad(2, 7, "/store/b"), bad(3, 9, "/store/a")], &[]);
    assert!(tally.has_only_bad_files(2));
    assert!(!tally.has_only_bad_files(3), "one failed for another reason, or never ran");
    assert!(!tally.has_only_bad_files(0));
    let files = tally.bad_files_by_unit();
    assert_eq!(files[&7].iter().copied().collect::<Vec<_>>(), ["/store/a", "/store/b"]);
    assert_eq!(files[&9].iter().copied().collect::<Vec<_>>(), ["/store/a"]);
    for other in [bad(4, 9, ""), FailedAttemptReport { unit: 9, ..attempt(4, "T2_A", Permanent) }] {
        let mut tally = tally.clone();
        tally.add_reports(std::slice::from_ref(&other), &ended(&[]));
        assert!(!tally.has_only_bad_files(2), "{other:?}");
        let again = FailedAttemptReport { is_final: false, seq: 5, ..other };
        let mut tally = of(&[bad(1, 7, "/store/a")], &[]);
        tally.add_reports(&[again], &ended(&[]));
        assert!(tally.has_only_bad_files(1), "a unit that is retried has not failed yet");
    }
}

/// A landing tries other sites first; when it fails finally, the failure class is data, and an operator can
/// exclude the files.
#[test]
fn failed_landing_names_unreadable_files() {
    let landing = |seq, unit, site: &str, is_final| FailedAttemptReport {
        unit,
        role: NodeRole::Landing,
        is_final,
        bad_files: vec!["/store/gone".to_owned()],
        ..attempt(seq, site, Infrastructure)
    };
    let tried = of(&[landing(1, 7, "T2_A", false), landing(2, 7, "T2_B", false)], &[]);
    assert!(build_error_report(&tried).bad_files.is_empty(), "another site may have it");
    let mut tally = tried;
    tally.add_reports(&[landing(3, 7, "T2_B", true)], &ended(&[]));
    let told = build_error_report(&tally);
    let [file] = told.bad_files.as_slice() else { panic!("{told:?}") };
    assert_eq!((file.lfn.as_str(), file.units.as_slice()), ("/store/gone", &[7][..]));
    let data = told.by_category.iter().find(|one| one.category == Data).unwrap();
    assert_eq!((data.attempts, data.for_good), (1, 1));
    let kind = told.kinds.iter().find(|kind| kind.category == Data).unwrap();
    assert_eq!(kind.remedy, Some(FailureRemedy::Exclude));
    assert!(kind.suggestion.contains("/store/gone"), "{}", kind.suggestion);
    assert!(
        !tally.has_only_bad_files(1) && find_bad_files(std::slice::from_ref(&tally)).is_empty(),
        "an operator decides"
    );
    assert_eq!(FailureTally::merge_all([&tally]).missing, tally.missing);
}

#[test]
fn suggestions_have_commands() {
    type Row = (Vec<FailedAttemptReport>, &'static [(&'static str, u64)], &'static str);
    let many = |n: i64, from: i64, site: &'static str, class| {
        (0..n).map(move |number| attempt(from + number, site, class))
    };
    let mut memory = attempt(1, "T2_A", Memory);
    memory.memory_mb = Some(3700);
    let mut data = attempt(1, "T2_A", Data);
    data.bad_files = vec!["/store/bad.root".to_owned()];
    let at_one_site: Vec<_> = many(12, 1, "T2_X", Infrastructure).collect();
    let everywhere: Vec<_> = many(9, 1, "T2_A", Permanent).chain(many(9, 20, "T2_B", Permanent)).collect();
    let shared = FailedAttemptReport { code: 7002, ..attempt(1, "T2_A", Permanent) };
    let odd = attempt(1, "T2_A", Unknown);
    let table: [Row; 8] = [
        (vec![attempt(1, "T2_A", Timeout)], &[("T2_A", 10)], "`--time-per-event`"),
        (vec![memory], &[("T2_A", 10)], "request 4500 MB"),
        (vec![data], &[("T2_A", 10)], "exclude these files, or have them restored: /store/bad.root"),
        (at_one_site, &[("T2_X", 14), ("T2_A", 30)], "ban T2_X: 12 of 14 attempts failed there"),
        (everywhere, &[("T2_A", 9), ("T2_B", 9)], "check the configuration"),
        (vec![shared], &[("T2_A", 10), ("T2_B", 10)], "check the configuration"),
        (vec![attempt(1, "T2_A", Transient)], &[("T2_A", 10), ("T2_B", 10)], "retry later"),
        (vec![odd], &[("T2_A", 10), ("T2_B", 10)], "read the log of mg_000001/proc_000000"),
    ];
    for (attempts, totals, expected) in table {
        let report = build_error_report(&of(&attempts, totals));
        let said = &report.kinds[0].suggestion;
        assert!(said.contains(expected), "{said} instead of {expected}");
    }
}

#[test]
fn report_counts_by_every_dimension() {
    let mut coded = attempt(4, "T2_B", Data);
    (coded.code, coded.bad_files, coded.is_final) = (8021, vec!["/store/a".into()], false);
    let attempts =
        [attempt(1, "T2_A", Transient), attempt(2, "T2_A", Transient), attempt(3, "", Transient), coded];
    let report = build_error_report(&of(&attempts, &[("T2_A", 5), ("T2_B", 7)]));
    assert_eq!((report.attempts_failed, report.attempts_ended), (4, 13));
    let categories: Vec<_> =
        report.by_category.iter().map(|one| (one.category, one.attempts, one.for_good)).collect();
    assert_eq!(categories, [(Transient, 3, 3), (Data, 1, 0)]);
    let sites: Vec<_> = report.by_site.iter().map(|one| (one.site.as_str(), one.ended, one.failed)).collect();
    assert_eq!(sites, [("T2_A", 5, 2), ("T2_B", 7, 1), ("unknown", 1, 1)]);
    let codes: Vec<_> = report.by_exit_code.iter().map(|one| (one.exit_code, one.attempts)).collect();
    assert_eq!(codes, [(1, 3), (8021, 1)]);
    assert_eq!((report.bad_files[0].lfn.as_str(), report.bad_files[0].attempts), ("/store/a", 1));
    assert_eq!(report.bad_files[0].units, [0u32; 0], "it is retried");
    assert_eq!(report.kinds[0].log_tail, "said this last");
}

#[test]
fn old_failures_do_not_count() {
    const MINUTE: Duration = Duration::from_mins(1);
    let window = MINUTE * 60;
    let mut tally = FailureTally::default();
    let mut ended_by_now = 0;
    let start = Timestamp(0);
    let mut at = start;
    // Six hours without failures, then everything fails.
    for step in 0..36 {
        at = start.plus(MINUTE * 10 * step);
        ended_by_now += 100;
        tally.add_reports(&[], &ended(&[("T2_A", ended_by_now)]));
        if tally.is_snapshot_due(window, start, at) {
            tally.take_snapshot(window, at);
        }
    }
    assert!(tally.marks.len() <= 8, "{} marks", tally.marks.len());
    assert!(!tally.is_snapshot_due(window, start, at));
    let failed: Vec<_> = (1..=50).map(|seq| attempt(seq, "T2_A", Permanent)).collect();
    tally.add_reports(&failed, &ended(&[("T2_A", ended_by_now + 50)]));
    let recent = tally.recent_failures(window, at.plus(MINUTE));
    assert_eq!((recent.ended.total(), recent.kinds[0].1, recent.sites["T2_A"].failed.total()), (650, 50, 50));
    let later = tally.recent_failures(window, at.plus(window));
    assert_eq!((later.ended.total(), later.kinds[0].1), (50, 50));
}

fn any_attempt() -> impl Strategy<Value = FailedAttemptReport> {
    let class = prop::sample::select(FailureClass::ALL.to_vec());
    let site = prop::sample::select(vec!["T2_A", "T2_B", "T2_C", "unknown", ""]);
    (
        class,
        site,
        0..200u32,
        0..60i32,
        any::<bool>(),
        prop::collection::vec("/store/[a-f]{2}", 0..3),
        "\\PC{0,3000}",
    )
        .prop_map(|(class, site, unit, code, is_final, bad_files, said)| FailedAttemptReport {
            unit,
            code,
            is_final,
            bad_files,
            message: said.clone(),
            log_tail: said.repeat(3),
            ..attempt(0, site, class)
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// However reports arrive, together or in pieces, some of them twice, the tally is the same, and bounded.
    #[test]
    fn tally_is_independent_of_report_grouping(
        attempts in prop::collection::vec(any_attempt(), 0..120),
        cuts in prop::collection::vec(0..120usize, 0..6),
    ) {
        let mut attempts = attempts;
        for (attempt, seq) in attempts.iter_mut().zip(1..) {
            attempt.seq = seq;
        }
        let whole = of(&attempts, &[]);
        let mut pieces = FailureTally::default();
        for cut in cuts {
            // A backend that does not know what was read reports everything from the beginning.
            pieces.add_reports(&attempts[..cut.min(attempts.len())], &BTreeMap::new());
        }
        pieces.add_reports(&attempts, &BTreeMap::new());
        prop_assert_eq!(&pieces, &whole);
        prop_assert_eq!(whole.failed, attempts.len() as u64);
        let of_kinds: u64 = whole.kinds.iter().map(|kind| kind.attempts).sum();
        prop_assert_eq!(of_kinds + whole.of_other_kinds, whole.failed);
        prop_assert!(whole.kinds.len() <= MAX_KINDS);
        prop_assert!(whole.kinds.iter().all(|kind| kind.log_tail.len() <= MAX_LOG_TAIL));
        let text = serde_json::to_string(&whole).unwrap();
        prop_assert_eq!(serde_json::from_str::<FailureTally>(&text).unwrap(), whole);
    }

    /// Tallies of runs add up to the tally of all runs together.
    #[test]
    fn tallies_of_runs_add_up(attempts in prop::collection::vec(any_attempt(), 0..80), cut in 0..80usize) {
        let mut attempts = attempts;
        for (attempt, seq) in attempts.iter_mut().zip(1..) {
            attempt.seq = seq;
        }
        let (first, second) = attempts.split_at(cut.min(attempts.len()));
        let (first, second) = (of(first, &[]), of(second, &[]));
        let both = FailureTally::merge_all([&first, &second]);
        let whole = of(&attempts, &[]);
        prop_assert_eq!(both.failed, whole.failed);
        prop_assert_eq!(&both.sites, &whole.sites);
        prop_assert_eq!(&both.files, &whole.files);
        prop_assert_eq!(&both.units, &whole.units);
        prop_assert_eq!(both.bad_files_by_unit(), whole.bad_files_by_unit());
    }
}
