use super::*;
use crate::edges::EdgesBuilder;
use JobStatus as S;
use windlass_types::Bytes;
use windlass_types::orders::Changes;

const GIB: u64 = 1 << 30;

fn asked(memory: u64) -> Asked {
    let resources = Resources { memory: Bytes(memory), ..Resources::DEFAULT };
    Asked { resources, by: AskedBy::Row(RequirementsId(5)) }
}

fn case(status: S) -> Case<'static> {
    let said = Some("reading part 7\nfatal: out of cheese\n");
    Case { status, asked: asked(GIB), command: "work", priority: 0, scheduler: None, agent_retries: 0, said }
}

fn order(verdict: Verdict) -> Order {
    Order {
        job: JobId(1),
        verdict,
        changes: Changes::default(),
        reason: "because".into(),
        confidence: None,
        evidence: vec![],
    }
}

const HOUSE: House<'_> = House {
    asks: true,
    policy: TriagePolicy { min_confidence: None, max_agent_retries: None, require_evidence: false },
    schedulers: &[],
};

fn refusal(order: &Order, is_agent: bool, house: &House<'_>, case: &Case<'_>) -> String {
    match judge(order, is_agent, house, case) {
        Judgement::Refused(words) => words,
        other => panic!("{other:?}"),
    }
}

#[test]
fn where_a_job_stands_says_what_can_be_done() {
    let possible = |verdict| -> Vec<S> {
        let mut order = order(verdict);
        if verdict == Verdict::Change {
            order.changes.priority = Some(3);
        }
        let done = |status| matches!(judge(&order, false, &HOUSE, &case(status)), Judgement::Done { .. });
        S::ALL.into_iter().filter(|status| done(*status)).collect()
    };
    assert_eq!(possible(Verdict::Retry), [S::Failed, S::Terminated, S::PendingFailed]);
    assert_eq!(possible(Verdict::Ignore), [S::Failed, S::Terminated, S::PendingFailed]);
    assert_eq!(possible(Verdict::Fail), [S::PendingFailed]);
    let waiting =
        [S::Uninitialized, S::Blocked, S::Ready, S::Failed, S::Canceled, S::Terminated, S::PendingFailed];
    assert_eq!(possible(Verdict::Change), waiting);
}

#[test]
fn only_what_differs_is_a_revision() {
    let mut order = order(Verdict::Retry);
    order.changes.memory_bytes = Some(Bytes(2 * GIB));
    order.changes.priority = Some(0);
    order.changes.command = Some("work".into());
    let Judgement::Done { words, revision } = judge(&order, false, &HOUSE, &case(S::Failed)) else {
        panic!()
    };
    assert_eq!(words, "retry with memory 1 GiB → 2 GiB");
    let (before, after) = *revision.unwrap();
    assert_eq!(before, Edition { asked: Some(asked(GIB)), ..Edition::default() });
    assert_eq!(after.asked.unwrap().by, AskedBy::Itself);
    assert_eq!((after.command, after.priority), (None, None));

    order.changes.memory_bytes = None;
    let Judgement::Done { revision: None, words } = judge(&order, false, &HOUSE, &case(S::Failed)) else {
        panic!()
    };
    assert_eq!(words, "retry");
    order.verdict = Verdict::Change;
    assert_eq!(refusal(&order, false, &HOUSE, &case(S::Failed)), "nothing would change");
}

#[test]
fn nonsense_is_refused() {
    let refused = |change: fn(&mut Order)| {
        let mut order = order(Verdict::Retry);
        change(&mut order);
        refusal(&order, false, &HOUSE, &case(S::Failed))
    };
    assert!(refused(|order| order.confidence = Some(1.5)).contains("0 to 1"));
    assert!(refused(|order| order.confidence = Some(f64::NAN)).contains("0 to 1"));
    assert!(refused(|order| order.changes.runtime_seconds = Some(-1.0)).contains("runtime"));
    assert!(refused(|order| order.changes.runtime_seconds = Some(f64::INFINITY)).contains("runtime"));
    assert!(refused(|order| order.changes.memory_bytes = Some(Bytes(0))).contains("memory"));
    assert!(refused(|order| order.changes.command = Some(" ".into())).contains("empty"));
    assert!(refused(|order| order.changes.nodes = Some(0)).contains("node"));
    let mut fail = order(Verdict::Fail);
    fail.changes.cpus = Some(2);
    assert!(refusal(&fail, false, &HOUSE, &case(S::PendingFailed)).contains("cannot be changed"));
}

#[test]
fn an_agent_may_less_than_a_person() {
    let retry = order(Verdict::Retry);
    assert!(refusal(&retry, true, &HOUSE, &case(S::Failed)).contains("pending_failed"));
    let closed = House { asks: false, ..HOUSE };
    assert!(refusal(&retry, true, &closed, &case(S::PendingFailed)).contains("use_pending_failed"));
    assert!(matches!(judge(&retry, true, &HOUSE, &case(S::PendingFailed)), Judgement::Done { .. }));

    let policy =
        TriagePolicy { min_confidence: Some(0.8), max_agent_retries: Some(2), require_evidence: true };
    let strict = House { policy, ..HOUSE };
    assert!(refusal(&retry, true, &strict, &case(S::PendingFailed)).contains("evidence"));
    let mut quoting = order(Verdict::Retry);
    quoting.evidence = vec!["fatal: out of cheese".into()];
    let unsure = |order: &Order| {
        matches!(judge(order, true, &strict, &case(S::PendingFailed)), Judgement::Proposed(_))
    };
    assert!(unsure(&quoting), "it did not say how sure it is");
    quoting.confidence = Some(0.7);
    assert!(unsure(&quoting));
    quoting.confidence = Some(0.8);
    assert!(!unsure(&quoting));
    let tired = Case { agent_retries: 2, ..case(S::PendingFailed) };
    assert!(refusal(&quoting, true, &strict, &tired).contains("2 times"));
    quoting.evidence.push("invented".into());
    assert!(refusal(&quoting, true, &strict, &case(S::PendingFailed)).contains("did not say `invented`"));
    quoting.evidence = vec!["e".into()];
    assert!(refusal(&quoting, true, &strict, &case(S::PendingFailed)).contains("did not say `e`"));
    let looked_up = Case { said: None, ..case(S::PendingFailed) };
    assert!(matches!(judge(&quoting, true, &strict, &looked_up), Judgement::Done { .. }));
    assert!(
        matches!(judge(&retry, false, &strict, &case(S::Failed)), Judgement::Done { .. }),
        "a person may"
    );
}

/// Jobs 0 and 1, then 2 that waits for both, then 3 that waits for 2.
fn table(status: [S; 4]) -> JobTable {
    let mut edges = EdgesBuilder::default();
    edges.depend(2, &[0, 1]);
    edges.depend(3, &[2]);
    JobTable {
        ids: (101..105).map(JobId).collect(),
        status: status.into(),
        attempt: vec![Attempt::FIRST; 4],
        priority: vec![0; 4],
        cancel_on_blocking_job_failure: vec![true; 4],
        class: vec![0; 4],
        requirements: vec![Resources::DEFAULT],
        edges: edges.finish(),
        ..JobTable::default()
    }
}

/// Where the jobs stand after the orders, as a store that applies the changes one after the other would have it.
fn carried_out(status: [S; 4], chosen: &[(u32, Verdict)]) -> [S; 4] {
    let table = table(status);
    let done = (0..4)
        .filter(|job| matches!(status[*job], S::Completed | S::Failed | S::Terminated | S::PendingFailed))
        .map(|job| (table.ids[job], Attempt::FIRST))
        .collect();
    let changes = plan(WorkflowId(1), RunId(1), &table, chosen, &done).unwrap();
    let mut found = status;
    for change in &changes {
        let (job, from, to) = match *change {
            Change::Status { job, from, to } => (job, from, to),
            Change::Retry { job, from, attempt } => {
                assert_eq!(attempt, Attempt::FIRST);
                (job, from, S::Ready)
            }
            Change::Reset { job, from, .. } => (job, from, S::Uninitialized),
            Change::Ignore { .. } => continue,
            ref other => panic!("{other:?}"),
        };
        let index = (job.0 - 101) as usize;
        assert_eq!(found[index], from, "{changes:?}");
        found[index] = to;
    }
    found
}

#[test]
fn what_follows_from_a_verdict() {
    use S::{Blocked, Canceled, Completed, Failed, PendingFailed, Ready};
    let asked = [PendingFailed, Completed, Blocked, Blocked];
    assert_eq!(carried_out(asked, &[(0, Verdict::Retry)]), [Ready, Completed, Blocked, Blocked]);
    assert_eq!(carried_out(asked, &[(0, Verdict::Fail)]), [Failed, Completed, Canceled, Canceled]);
    assert_eq!(carried_out(asked, &[(0, Verdict::Ignore)]), [Failed, Completed, Ready, Blocked]);
    assert_eq!(carried_out(asked, &[(0, Verdict::Change)]), asked);

    let failed = [Failed, Failed, Canceled, Canceled];
    assert_eq!(carried_out(failed, &[(0, Verdict::Retry)]), [Ready, Failed, Blocked, Blocked]);
    assert_eq!(
        carried_out(failed, &[(0, Verdict::Ignore)]),
        [Failed, Failed, Canceled, Canceled],
        "the other counts"
    );
    let both = [(0, Verdict::Ignore), (1, Verdict::Ignore)];
    assert_eq!(carried_out(failed, &both), [Failed, Failed, Ready, Blocked]);
    let mixed = [(0, Verdict::Retry), (1, Verdict::Ignore)];
    assert_eq!(carried_out(failed, &mixed), [Ready, Failed, Blocked, Blocked]);

    let undecided = [PendingFailed, PendingFailed, Blocked, Blocked];
    let one_of_each = [(0, Verdict::Fail), (1, Verdict::Retry)];
    assert_eq!(carried_out(undecided, &one_of_each), [Failed, Ready, Blocked, Blocked]);

    // It ran although the first had failed.
    let later = [Failed, Completed, PendingFailed, Blocked];
    let on_both = [(0, Verdict::Retry), (2, Verdict::Ignore)];
    assert_eq!(carried_out(later, &on_both), [Ready, Completed, Blocked, Blocked], "it runs again anyway");
}
