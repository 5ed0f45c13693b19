use super::*;
use crate::requests::failures::FailedAttemptReport;
use crate::requests::failures::samples::{attempt, ended};
use std::collections::BTreeMap;
use windlass_types::FailureClass::{self, Infrastructure, Permanent, Transient};
use windlass_types::requests::NodeRole;

/// Deterministic random numbers.
struct TestRandom(u64);

impl TestRandom {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, sides: u64) -> u64 {
        self.roll() % sides
    }

    fn happens(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A run at twenty sites, one attempt per second, checked after every few.
struct Simulation {
    random: TestRandom,
    tally: FailureTally,
    ended: BTreeMap<String, RoleCounts>,
    pending: Vec<FailedAttemptReport>,
    seq: i64,
    now: Timestamp,
}

const SITES: u64 = 20;
const BEGUN: Timestamp = Timestamp(1_000_000_000_000);

impl Simulation {
    fn new(seed: u64) -> Self {
        Self {
            random: TestRandom(seed),
            tally: FailureTally::default(),
            ended: BTreeMap::new(),
            pending: Vec::new(),
            seq: 0,
            now: BEGUN,
        }
    }

    /// An attempt ends; it failed if it has a class.
    fn end(&mut self, site: &str, failed: Option<(FailureClass, &str)>) {
        self.now = self.now.plus(Duration::from_secs(1));
        self.ended.entry(site.to_owned()).or_default().add_attempts(NodeRole::Processing, 1);
        if let Some((class, signature)) = failed {
            self.seq += 1;
            let mut news = attempt(self.seq, site, class);
            (news.signature, news.at) = (signature.to_owned(), self.now);
            self.pending.push(news);
        }
    }

    /// Runs the check of the lifecycle.
    fn look(&mut self, policy: &CorrelationPolicy) -> Vec<CorrelatedFinding> {
        self.tally.add_reports(&std::mem::take(&mut self.pending), &self.ended);
        let found = find_correlations(&self.tally, policy, self.now);
        if self.tally.is_snapshot_due(policy.window, BEGUN, self.now) {
            self.tally.take_snapshot(policy.window, self.now);
        }
        found
    }

    /// Runs up to this number of attempts until there is a finding; returns the number of attempts.
    fn run(
        &mut self,
        attempts: usize,
        policy: &CorrelationPolicy,
        mut attempt_failure: impl FnMut(u64, &mut TestRandom) -> Option<(FailureClass, &'static str)>,
    ) -> Option<(usize, Vec<CorrelatedFinding>)> {
        for n in 1..=attempts {
            let site = self.random.below(SITES);
            let failed = attempt_failure(site, &mut self.random);
            self.end(&format!("T2_{site:02}"), failed);
            if n % 10 == 0 {
                let found = self.look(policy);
                if !found.is_empty() {
                    return Some((n, found));
                }
            }
        }
        None
    }
}

/// Five percent fail for various reasons: normal noise.
fn noise(random: &mut TestRandom) -> Option<(FailureClass, &'static str)> {
    const KINDS: [(FailureClass, &str); 3] =
        [(Transient, "network"), (Infrastructure, "disk"), (Permanent, "crash")];
    random.happens(5).then(|| KINDS[random.below(3) as usize])
}

#[test]
fn random_failures_raise_no_alarm() {
    for seed in 0..30 {
        let found =
            Simulation::new(seed).run(10_000, &CorrelationPolicy::default(), |_, random| noise(random));
        assert_eq!(found, None, "seed {seed}");
    }
}

#[test]
fn only_the_bad_site_is_detected() {
    for seed in 0..50 {
        let attempt_failure = |site, random: &mut TestRandom| {
            if site == 7 { Some((Infrastructure, "no such disk")) } else { noise(random) }
        };
        let (after, found) =
            Simulation::new(seed).run(2_000, &CorrelationPolicy::default(), attempt_failure).expect("found");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].shared_cause, SharedCause::Site("T2_07".to_owned()));
        assert!(found[0].failed < 20 && after < 600, "seed {seed}: after {after}, {found:?}");
    }
}

#[test]
fn broken_configuration_is_detected_early() {
    for seed in 0..50 {
        let attempt_failure = |_, _: &mut TestRandom| Some((Permanent, "no such parameter"));
        let (after, found) =
            Simulation::new(seed).run(2_000, &CorrelationPolicy::default(), attempt_failure).expect("found");
        assert!(after <= 15, "seed {seed}: after {after}");
        assert!(
            matches!(&found[..], [CorrelatedFinding { shared_cause: SharedCause::Kind(_), .. }]),
            "{found:?}"
        );
    }
}

/// A problem that begins later is found although many attempts had completed.
#[test]
fn later_problem_is_detected_within_the_window() {
    let policy = CorrelationPolicy::default();
    for seed in 0..5 {
        let mut run = Simulation::new(seed);
        assert_eq!(run.run(10_000, &policy, |_, random| noise(random)), None);
        let broken = |_, _: &mut TestRandom| Some((Infrastructure, "storage is gone"));
        let (after, found) = run.run(10_000, &policy, broken).expect("found");
        assert!(after < 5_000, "seed {seed}: after {after}");
        assert!(
            matches!(&found[..], [CorrelatedFinding { shared_cause: SharedCause::Kind(_), .. }]),
            "{found:?}"
        );
    }
}

#[test]
fn black_hole_site_is_attributed_to_the_site() {
    // It fails at once, so that nothing else has ended yet.
    let mut run = Simulation::new(1);
    for _ in 0..10 {
        run.end("T2_HOLE", Some((Infrastructure, "no such file")));
    }
    let found = run.look(&CorrelationPolicy::default());
    assert_eq!(
        found.iter().map(|one| &one.shared_cause).collect::<Vec<_>>(),
        [&SharedCause::Site("T2_HOLE".to_owned())]
    );
    let told = "10 of 10 attempts at T2_HOLE failed because of the site or its data";
    assert_eq!(found[0].text, told);
}

/// E 6.1: infrastructure and data. Other failures would happen elsewhere too, or are solved by the next
/// attempt.
#[test]
fn only_site_related_classes_count_against_a_site() {
    let bad_file = |file: &str| vec![file.to_owned()];
    // class, bad files, is final, ended elsewhere → findings
    let table = [
        (Infrastructure, vec![], false, 0, Some("site")),
        (Infrastructure, vec![], false, 30, Some("site")),
        (FailureClass::Data, vec![], true, 0, Some("site")),
        (FailureClass::Data, bad_file("/store/a"), true, 0, Some("site")),
        (FailureClass::Memory, vec![], false, 0, None),
        (FailureClass::Memory, vec![], false, 30, None),
        (FailureClass::Memory, vec![], true, 0, Some("kind")),
        (FailureClass::Timeout, vec![], false, 0, None),
        (Permanent, vec![], true, 0, Some("kind")),
        (Permanent, vec![], true, 30, None),
        (FailureClass::Unknown, vec![], true, 0, Some("kind")),
        (Transient, vec![], false, 0, Some("kind")),
    ];
    for (class, bad_files, is_final, elsewhere, expected) in table {
        let case = format!("{class} {bad_files:?} {is_final} {elsewhere}");
        let one = |seq| FailedAttemptReport {
            at: BEGUN,
            is_final,
            bad_files: bad_files.clone(),
            ..attempt(seq, "T2_A", class)
        };
        let mut tally = FailureTally::default();
        tally.add_reports(
            &(1..=12).map(one).collect::<Vec<_>>(),
            &ended(&[("T2_A", 13), ("T2_B", elsewhere)]),
        );
        let found = find_correlations(&tally, &CorrelationPolicy::default(), BEGUN);
        let words: Vec<_> = found
            .iter()
            .map(|one| if matches!(one.shared_cause, SharedCause::Site(_)) { "site" } else { "kind" })
            .collect();
        assert_eq!(words, Vec::from_iter(expected), "{case}");
    }
}

/// A file that is unreadable at another site too is bad itself, also within the window.
#[test]
fn files_bad_everywhere_do_not_count_against_a_site() {
    let policy = CorrelationPolicy::default();
    let at = |site: &'static str, from: i64| {
        (0..10).map(move |n| FailedAttemptReport {
            at: BEGUN,
            bad_files: vec![format!("/store/{n}")],
            ..attempt(from + n, site, FailureClass::Data)
        })
    };
    let mut tally = FailureTally::default();
    tally.add_reports(&at("T2_A", 1).collect::<Vec<_>>(), &ended(&[("T2_A", 10), ("T2_B", 30)]));
    let site = |tally: &FailureTally, now| {
        find_correlations(tally, &policy, now)
            .iter()
            .any(|one| matches!(one.shared_cause, SharedCause::Site(_)))
    };
    assert!(site(&tally, BEGUN));
    tally.take_snapshot(policy.window, BEGUN);
    assert!(!site(&tally, BEGUN.plus(policy.window)), "that is long ago");
    tally.add_reports(&at("T2_B", 11).collect::<Vec<_>>(), &ended(&[("T2_A", 10), ("T2_B", 40)]));
    assert!(!site(&tally, BEGUN));
}

#[test]
fn unknown_site_is_never_blamed() {
    let mut run = Simulation::new(1);
    for _ in 0..12 {
        run.end("unknown", Some((Permanent, "no such file")));
    }
    let found = run.look(&CorrelationPolicy::default());
    assert!(
        matches!(&found[..], [CorrelatedFinding { shared_cause: SharedCause::Kind(_), .. }]),
        "{found:?}"
    );
}

#[test]
fn detection_can_be_disabled() {
    let policy = CorrelationPolicy { enabled: false, ..CorrelationPolicy::default() };
    let found = Simulation::new(1).run(100, &policy, |_, _| Some((Permanent, "broken")));
    assert_eq!(found, None);
}

/// If all jobs need more memory than estimated, retries help, and a pause does not.
#[test]
fn failures_cured_by_more_resources_raise_no_alarm() {
    let failing = |class, is_final| {
        let mut tally = FailureTally::default();
        let attempts: Vec<_> = (1..=20)
            .map(|seq| FailedAttemptReport {
                at: BEGUN,
                is_final,
                ..attempt(seq, ["T2_A", "T2_B"][seq as usize % 2], class)
            })
            .collect();
        tally.add_reports(&attempts, &BTreeMap::new());
        find_correlations(&tally, &CorrelationPolicy::default(), BEGUN).len()
    };
    for class in [FailureClass::Memory, FailureClass::Timeout] {
        assert_eq!((failing(class, false), failing(class, true)), (0, 1), "{class}");
    }
    assert_eq!(failing(Permanent, false), 1);
}

/// Landings and merges of other units complete at the same time.
#[test]
fn failing_run_is_detected_despite_completed_landings() {
    let landed = |landing, processing| RoleCounts { landing, processing, ..RoleCounts::default() };
    // role, class, number of failures, ended at each of two sites → number of findings
    let table = [
        (NodeRole::Processing, Permanent, 12, landed(6, 6), 1),
        (NodeRole::Processing, Permanent, 12, landed(50, 6), 1),
        (NodeRole::Processing, Permanent, 12, landed(50, 12), 0),
        (NodeRole::Processing, Infrastructure, 12, landed(50, 6), 1),
        (NodeRole::Landing, Infrastructure, 12, landed(500, 0), 0),
        (NodeRole::Landing, Permanent, 12, landed(500, 0), 0),
        (NodeRole::Landing, Infrastructure, 12, landed(8, 400), 1),
        (NodeRole::Merge, Permanent, 12, RoleCounts { merge: 6, ..landed(100, 800) }, 1),
    ];
    for (role, class, failed, ended, found) in table {
        let sites = ["T2_A", "T2_B"];
        let one = |seq: i64| FailedAttemptReport {
            role,
            at: BEGUN,
            ..attempt(seq, sites[seq as usize % 2], class)
        };
        let mut tally = FailureTally::default();
        let ended_at = sites.map(|site| (site.to_owned(), ended)).into();
        tally.add_reports(&(1..=failed).map(one).collect::<Vec<_>>(), &ended_at);
        let findings = find_correlations(&tally, &CorrelationPolicy::default(), BEGUN);
        assert_eq!(findings.len(), found, "{role} {class} {ended:?}: {findings:?}");
    }
}
