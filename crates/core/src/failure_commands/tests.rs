use super::*;
use crate::dependency_edges::DependencyEdgesBuilder;
use JobStatus as S;
use windlass_types::Bytes;
use windlass_types::failure_commands::RequestedJobChanges;

const GIB: u64 = 1 << 30;

fn asked(memory: u64) -> RequestedResources {
    let resources = Resources { memory: Bytes(memory), ..Resources::DEFAULT };
    RequestedResources { resources, by: ResourceSource::Row(RequirementsId(5)) }
}

fn case(status: S) -> CommandTarget<'static> {
    let said = Some("reading part 7\nfatal: out of cheese\n");
    CommandTarget {
        status,
        asked: asked(GIB),
        command: "work",
        priority: 0,
        scheduler: None,
        agent_retries: 0,
        log_tail: said,
    }
}

fn order(kind: FailureCommandKind) -> FailureCommand {
    FailureCommand {
        job: JobId(1),
        kind,
        changes: RequestedJobChanges::default(),
        reason: "because".into(),
        confidence: None,
        evidence: vec![],
    }
}

const COMMAND_SETTINGS: CommandSettings<'_> = CommandSettings {
    uses_pending_failed: true,
    policy: TriagePolicy { min_confidence: None, max_agent_retries: None, require_evidence: false },
    schedulers: &[],
};

fn refusal(
    order: &FailureCommand,
    is_agent: bool,
    settings: &CommandSettings<'_>,
    case: &CommandTarget<'_>,
) -> String {
    match decide_command(order, is_agent, settings, case) {
        CommandDecision::Refused(words) => words,
        other => panic!("{other:?}"),
    }
}

#[test]
fn possible_commands_depend_on_the_job_status() {
    let possible = |kind| -> Vec<S> {
        let mut order = order(kind);
        if kind == FailureCommandKind::Change {
            order.changes.priority = Some(3);
        }
        let done = |status| {
            matches!(
                decide_command(&order, false, &COMMAND_SETTINGS, &case(status)),
                CommandDecision::Accepted { .. }
            )
        };
        S::ALL.into_iter().filter(|status| done(*status)).collect()
    };
    assert_eq!(possible(FailureCommandKind::Retry), [S::Failed, S::Terminated, S::PendingFailed]);
    assert_eq!(possible(FailureCommandKind::Ignore), [S::Failed, S::Terminated, S::PendingFailed]);
    assert_eq!(possible(FailureCommandKind::Fail), [S::PendingFailed]);
    let waiting =
        [S::Uninitialized, S::Blocked, S::Ready, S::Failed, S::Canceled, S::Terminated, S::PendingFailed];
    assert_eq!(possible(FailureCommandKind::Change), waiting);
}

#[test]
fn revision_contains_only_differences() {
    let mut order = order(FailureCommandKind::Retry);
    order.changes.memory_bytes = Some(Bytes(2 * GIB));
    order.changes.priority = Some(0);
    order.changes.command = Some("work".into());
    let CommandDecision::Accepted { message: words, patch: revision } =
        decide_command(&order, false, &COMMAND_SETTINGS, &case(S::Failed))
    else {
        panic!()
    };
    assert_eq!(words, "retry with memory 1 GiB → 2 GiB");
    let (before, after) = *revision.unwrap();
    assert_eq!(before, JobPatch { asked: Some(asked(GIB)), ..JobPatch::default() });
    assert_eq!(after.asked.unwrap().by, ResourceSource::Itself);
    assert_eq!((after.command, after.priority), (None, None));

    order.changes.memory_bytes = None;
    let CommandDecision::Accepted { patch: None, message: words } =
        decide_command(&order, false, &COMMAND_SETTINGS, &case(S::Failed))
    else {
        panic!()
    };
    assert_eq!(words, "retry");
    order.kind = FailureCommandKind::Change;
    assert_eq!(refusal(&order, false, &COMMAND_SETTINGS, &case(S::Failed)), "nothing would change");
}

#[test]
fn invalid_commands_are_rejected() {
    let refused = |change: fn(&mut FailureCommand)| {
        let mut order = order(FailureCommandKind::Retry);
        change(&mut order);
        refusal(&order, false, &COMMAND_SETTINGS, &case(S::Failed))
    };
    assert!(refused(|order| order.confidence = Some(1.5)).contains("between 0 and 1"));
    assert!(refused(|order| order.confidence = Some(f64::NAN)).contains("between 0 and 1"));
    assert!(refused(|order| order.changes.runtime_seconds = Some(-1.0)).contains("runtime"));
    assert!(refused(|order| order.changes.runtime_seconds = Some(f64::INFINITY)).contains("runtime"));
    assert!(refused(|order| order.changes.memory_bytes = Some(Bytes(0))).contains("memory"));
    assert!(refused(|order| order.changes.command = Some(" ".into())).contains("empty"));
    assert!(refused(|order| order.changes.nodes = Some(0)).contains("node"));
    let mut fail = order(FailureCommandKind::Fail);
    fail.changes.cpus = Some(2);
    assert!(refusal(&fail, false, &COMMAND_SETTINGS, &case(S::PendingFailed)).contains("cannot be changed"));
}

#[test]
fn agents_have_fewer_permissions_than_people() {
    let retry = order(FailureCommandKind::Retry);
    assert!(refusal(&retry, true, &COMMAND_SETTINGS, &case(S::Failed)).contains("pending_failed"));
    let closed = CommandSettings { uses_pending_failed: false, ..COMMAND_SETTINGS };
    assert!(refusal(&retry, true, &closed, &case(S::PendingFailed)).contains("use_pending_failed"));
    assert!(matches!(
        decide_command(&retry, true, &COMMAND_SETTINGS, &case(S::PendingFailed)),
        CommandDecision::Accepted { .. }
    ));

    // The command could approve what the agent proposes.
    let mut evil = order(FailureCommandKind::Retry);
    evil.changes.command = Some("windlass failures approve 1".into());
    evil.confidence = Some(1.0);
    for kind in [FailureCommandKind::Retry, FailureCommandKind::Change] {
        evil.kind = kind;
        let decided = decide_command(&evil, true, &COMMAND_SETTINGS, &case(S::PendingFailed));
        let CommandDecision::Proposed(why) = decided else { panic!("{decided:?}") };
        assert!(why.contains("windlass failures approve 1"), "the person sees the command: {why}");
        let decided = decide_command(&evil, false, &COMMAND_SETTINGS, &case(S::PendingFailed));
        assert!(matches!(decided, CommandDecision::Accepted { .. }), "{decided:?}");
    }

    let policy =
        TriagePolicy { min_confidence: Some(0.8), max_agent_retries: Some(2), require_evidence: true };
    let strict = CommandSettings { policy, ..COMMAND_SETTINGS };
    assert!(refusal(&retry, true, &strict, &case(S::PendingFailed)).contains("evidence"));
    let mut quoting = order(FailureCommandKind::Retry);
    quoting.evidence = vec!["fatal: out of cheese".into()];
    let unsure = |order: &FailureCommand| {
        matches!(decide_command(order, true, &strict, &case(S::PendingFailed)), CommandDecision::Proposed(_))
    };
    assert!(unsure(&quoting), "it did not say how sure it is");
    quoting.confidence = Some(0.7);
    assert!(unsure(&quoting));
    quoting.confidence = Some(0.8);
    assert!(!unsure(&quoting));
    let after_two_retries = CommandTarget { agent_retries: 2, ..case(S::PendingFailed) };
    assert!(refusal(&quoting, true, &strict, &after_two_retries).contains("2 times"));
    quoting.evidence.push("invented".into());
    assert!(
        refusal(&quoting, true, &strict, &case(S::PendingFailed)).contains("does not contain `invented`")
    );
    quoting.evidence = vec!["e".into()];
    assert!(refusal(&quoting, true, &strict, &case(S::PendingFailed)).contains("does not contain `e`"));
    let looked_up = CommandTarget { log_tail: None, ..case(S::PendingFailed) };
    assert!(matches!(decide_command(&quoting, true, &strict, &looked_up), CommandDecision::Accepted { .. }));
    assert!(
        matches!(decide_command(&retry, false, &strict, &case(S::Failed)), CommandDecision::Accepted { .. }),
        "a person may"
    );
}

/// Jobs 0 and 1, then 2 that waits for both, then 3 that waits for 2.
fn table(status: [S; 4]) -> JobTable {
    let mut edges = DependencyEdgesBuilder::default();
    edges.add_dependencies(2, &[0, 1]);
    edges.add_dependencies(3, &[2]);
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

/// States of the jobs after the commands, if a store applies the changes one after another.
fn carried_out(status: [S; 4], chosen: &[(u32, FailureCommandKind)]) -> [S; 4] {
    let table = table(status);
    let done = (0..4)
        .filter(|job| matches!(status[*job], S::Completed | S::Failed | S::Terminated | S::PendingFailed))
        .map(|job| (table.ids[job], Attempt::FIRST))
        .collect();
    let changes = plan_commands(WorkflowId(1), RunId(1), &table, chosen, &done).unwrap();
    let mut found = status;
    for change in &changes {
        let (job, from, to) = match *change {
            WorkflowChange::Status { job, from, to } => (job, from, to),
            WorkflowChange::Retry { job, from, attempt } => {
                assert_eq!(attempt, Attempt::FIRST);
                (job, from, S::Ready)
            }
            WorkflowChange::Reset { job, from, .. } => (job, from, S::Uninitialized),
            WorkflowChange::Ignore { .. } => continue,
            ref other => panic!("{other:?}"),
        };
        let index = (job.0 - 101) as usize;
        assert_eq!(found[index], from, "{changes:?}");
        found[index] = to;
    }
    found
}

#[test]
fn commands_change_job_states() {
    use S::{Blocked, Canceled, Completed, Failed, PendingFailed, Ready};
    let asked = [PendingFailed, Completed, Blocked, Blocked];
    assert_eq!(carried_out(asked, &[(0, FailureCommandKind::Retry)]), [Ready, Completed, Blocked, Blocked]);
    assert_eq!(carried_out(asked, &[(0, FailureCommandKind::Fail)]), [Failed, Completed, Canceled, Canceled]);
    assert_eq!(carried_out(asked, &[(0, FailureCommandKind::Ignore)]), [Failed, Completed, Ready, Blocked]);
    assert_eq!(carried_out(asked, &[(0, FailureCommandKind::Change)]), asked);

    let failed = [Failed, Failed, Canceled, Canceled];
    assert_eq!(carried_out(failed, &[(0, FailureCommandKind::Retry)]), [Ready, Failed, Blocked, Blocked]);
    assert_eq!(
        carried_out(failed, &[(0, FailureCommandKind::Ignore)]),
        [Failed, Failed, Canceled, Canceled],
        "the other one counts"
    );
    let both = [(0, FailureCommandKind::Ignore), (1, FailureCommandKind::Ignore)];
    assert_eq!(carried_out(failed, &both), [Failed, Failed, Ready, Blocked]);
    let mixed = [(0, FailureCommandKind::Retry), (1, FailureCommandKind::Ignore)];
    assert_eq!(carried_out(failed, &mixed), [Ready, Failed, Blocked, Blocked]);

    let undecided = [PendingFailed, PendingFailed, Blocked, Blocked];
    let one_of_each = [(0, FailureCommandKind::Fail), (1, FailureCommandKind::Retry)];
    assert_eq!(carried_out(undecided, &one_of_each), [Failed, Ready, Blocked, Blocked]);

    // It ran although the first job had failed.
    let later = [Failed, Completed, PendingFailed, Blocked];
    let on_both = [(0, FailureCommandKind::Retry), (2, FailureCommandKind::Ignore)];
    assert_eq!(carried_out(later, &on_both), [Ready, Completed, Blocked, Blocked], "it runs again anyway");
}
