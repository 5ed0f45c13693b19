//! Failure commands and revisions by people and agents.

use crate::kit::{NOW, claim, commit, defined, end, job, key, status_of, worker, workflow};
use windlass_core::change::WorkflowChange;
use windlass_core::dependency_edges::DependencyEdgesBuilder;
use windlass_core::failure_signature::FailureSignature;
use windlass_core::workflow_state::{AttemptFailure, FailureDiagnosis, FailureDisposition};
use windlass_store::model::{
    DecisionFilter, DecisionState, InMemoryJobSource, JobFilter, JobUpdate, NewJob, NewRequirements,
    NewWorkflow, RequirementsChange, RequirementsUsers, RevisionFilter,
};
use windlass_store::{Store, StoreError};
use windlass_types::failure_commands::{
    FailureCommand, FailureCommandBatch, FailureCommandKind, FailureCommandOutcome, FailureCommandStatus,
    PendingCommand, RequestedJobChanges, TriagePolicy,
};
use windlass_types::settings::{SlurmScheduler, WorkflowSettings};
use windlass_types::{
    Attempt, Bytes, FailureClass, JobDefinition, JobGroup, JobId, JobSettings, JobStatus, Resources,
    WorkflowId,
};

const GIB: u64 = 1 << 30;

/// Two jobs and a dependent of both; the first failed and waits for a decision, the second failed for good.
fn failed(store: &dyn Store, policy: Option<TriagePolicy>) -> (WorkflowId, Vec<JobId>) {
    let mut edges = DependencyEdgesBuilder::default();
    edges.add_dependencies(2, &[0, 1]);
    let edges = edges.finish();
    let resources = Resources { memory: Bytes(GIB), ..Resources::DEFAULT };
    let requirements = [NewRequirements { name: "small", resources }];
    let settings =
        WorkflowSettings { use_pending_failed: true, triage: policy, ..WorkflowSettings::default() };
    let new = NewWorkflow { settings: Some(&settings), ..workflow(&requirements, &edges) };
    let jobs = ["a", "b", "c"].map(|name| {
        defined(JobDefinition { resource_requirements: Some(0), ..JobDefinition::new(name, "true") })
    });
    let id = store.create_workflow(&new, &mut InMemoryJobSource::new(jobs), NOW).unwrap();
    let jobs = store.load_jobs(id).unwrap().ids;
    let worker = worker(store, id);
    store.begin_run(id, NOW).unwrap();
    let blocked = WorkflowChange::Status { job: jobs[2], from: JobStatus::Ready, to: JobStatus::Blocked };
    let mut asking = end(key(id, jobs[0], 1), worker, JobStatus::PendingFailed);
    if let WorkflowChange::End { failure, .. } = &mut asking {
        *failure = Some(Box::new(AttemptFailure {
            diagnosis: FailureDiagnosis {
                class: FailureClass::Memory,
                signature: FailureSignature { key: "a".repeat(16), message: "no room".into() },
                rule: None,
                log_line: None,
            },
            next: FailureDisposition::PendingFailed,
            reason: None,
            log_tail: Some("reading\nno room for 7 more\n".into()),
        }));
    }
    let failing = end(key(id, jobs[1], 1), worker, JobStatus::Failed);
    let changes = vec![blocked, claim(jobs[0], 1, worker), claim(jobs[1], 1, worker), asking, failing];
    commit(store, id, changes).unwrap();
    store.end_run(id, false, NOW).unwrap();
    store.retire_worker(worker, NOW).unwrap();
    (id, jobs)
}

fn order(job: JobId, kind: FailureCommandKind) -> FailureCommand {
    FailureCommand {
        job,
        kind,
        changes: RequestedJobChanges::default(),
        reason: "because".into(),
        confidence: None,
        evidence: Vec::new(),
    }
}

fn give(
    store: &dyn Store,
    id: WorkflowId,
    agent: Option<&str>,
    orders: Vec<FailureCommand>,
) -> Vec<FailureCommandOutcome> {
    let orders =
        FailureCommandBatch { agent: agent.map(str::to_owned), orders, ..FailureCommandBatch::default() };
    store.apply_triage_command(id, &PendingCommand::Orders(orders), NOW).unwrap()
}

fn answers(outcomes: &[FailureCommandOutcome]) -> Vec<FailureCommandStatus> {
    outcomes.iter().map(|outcome| outcome.answer).collect()
}

fn memory_of(store: &dyn Store, id: WorkflowId, job: usize) -> u64 {
    let table = store.load_jobs(id).unwrap();
    table.requirements[table.class[job] as usize].memory.0
}

pub(crate) fn user_retries_a_job_with_more_resources(store: &dyn Store) {
    let (id, jobs) = failed(store, None);
    let mut more = order(jobs[0], FailureCommandKind::Retry);
    more.changes = RequestedJobChanges {
        memory_bytes: Some(Bytes(2 * GIB)),
        priority: Some(7),
        ..RequestedJobChanges::default()
    };
    let orders =
        FailureCommandBatch { dry_run: true, orders: vec![more.clone()], ..FailureCommandBatch::default() };
    let tried = store.apply_triage_command(id, &PendingCommand::Orders(orders), NOW).unwrap();
    assert_eq!(tried[0].words, "retry with memory 1 GiB → 2 GiB, priority 0 → 7");
    assert_eq!(status_of(store, id, jobs[0]), JobStatus::PendingFailed, "nothing was changed");

    let missing = order(JobId(987_654), FailureCommandKind::Retry);
    let outcomes =
        give(store, id, None, vec![more.clone(), missing, order(jobs[2], FailureCommandKind::Fail), more]);
    assert_eq!(
        answers(&outcomes),
        [
            FailureCommandStatus::Done,
            FailureCommandStatus::Refused,
            FailureCommandStatus::Refused,
            FailureCommandStatus::Refused
        ]
    );
    let table = store.load_jobs(id).unwrap();
    assert_eq!(table.status, [JobStatus::Ready, JobStatus::Failed, JobStatus::Blocked]);
    assert_eq!((table.attempt[0], table.priority[0]), (Attempt(2), 7));
    assert_eq!(
        (memory_of(store, id, 0), memory_of(store, id, 1)),
        (2 * GIB, GIB),
        "requirements of other jobs stay the same"
    );
    assert!(store.workflow(id).unwrap().unwrap().ended_at.is_none(), "the run continues");

    let decisions = store.decisions(id, &DecisionFilter::default()).unwrap();
    let told = |d: &windlass_store::model::DecisionRow| (d.kind, d.attempt_id, d.is_agent, d.state);
    assert_eq!(
        decisions.iter().map(told).collect::<Vec<_>>(),
        [(FailureCommandKind::Retry, Attempt(1), false, DecisionState::Done)]
    );
    assert_eq!((decisions[0].class, &*decisions[0].reason), (Some(FailureClass::Memory), "because"));

    let of = |job| store.revisions(id, RevisionFilter { batch: Some(1), job: Some(job) }).unwrap();
    assert_eq!((of(jobs[0]).len(), of(jobs[1]).len()), (1, 0));
    let revisions = store.revisions(id, RevisionFilter::default()).unwrap();
    assert_eq!((revisions.len(), revisions[0].batch, revisions[0].job_id), (1, 1, jobs[0]));
    let found = store.find_job(jobs[0]).unwrap().unwrap();
    assert_eq!((found.workflow_id, found.id), (id, jobs[0]));
    assert!(store.find_job(JobId(i64::MAX)).unwrap().is_none());
    let undo = |batch| PendingCommand::Undo { batch, agent: Some("ai".to_owned()) };
    let undone = store.apply_triage_command(id, &undo(1), NOW).unwrap();
    assert_eq!(undone[0].words, "memory 2 GiB → 1 GiB, priority 7 → 0");
    let table = store.load_jobs(id).unwrap();
    assert_eq!((table.class[0], table.priority[0]), (table.class[1], 0), "and shares them again");
    assert!(matches!(store.apply_triage_command(id, &undo(1), NOW), Err(StoreError::OutOfRange { .. })));
    assert!(matches!(store.apply_triage_command(id, &undo(9), NOW), Err(StoreError::OutOfRange { .. })));
    let revisions = store.revisions(id, RevisionFilter::default()).unwrap();
    assert_eq!(
        revisions.iter().map(|r| (r.batch, r.undone_at.is_some())).collect::<Vec<_>>(),
        [(1, true), (2, false)]
    );
    assert_eq!((revisions[0].undone_by.as_deref(), &*revisions[1].made_by), (Some("ai"), "ai"));
    assert_ne!(revisions[0].made_by, "ai");
}

pub(crate) fn partition_changes_for_named_jobs_only(store: &dyn Store) {
    let cpu =
        SlurmScheduler { name: "cpu".into(), partition: Some("short".into()), ..SlurmScheduler::default() };
    let schedulers = [cpu.clone(), SlurmScheduler { name: "big".into(), ..SlurmScheduler::default() }];
    let kinds = [JobGroup {
        name: "k".into(),
        settings: JobSettings { scheduler: Some(0), ..JobSettings::default() },
        ..JobGroup::default()
    }];
    let edges = DependencyEdgesBuilder::default().finish();
    let new = NewWorkflow { schedulers: &schedulers, job_groups: &kinds, ..workflow(&[], &edges) };
    let of_kind = |name, kind| NewJob { job_group: kind, ..job(name) };
    let jobs = [of_kind("a", Some(0)), of_kind("b", Some(0)), of_kind("c", Some(0)), of_kind("d", None)];
    let id = store.create_workflow(&new, &mut InMemoryJobSource::new(jobs), NOW).unwrap();
    let jobs = store.load_jobs(id).unwrap().ids;
    let places = || -> Vec<Option<String>> {
        let kinds = store.job_groups(id).unwrap();
        let of_kind = |kind| store.jobs(id, &JobFilter { kind: Some(kind), ..JobFilter::default() }).unwrap();
        let has = |kind, job: &JobId| of_kind(kind).iter().any(|row| row.id == *job);
        let scheduler = |job| {
            kinds.iter().find(|row| has(row.id, job)).and_then(|row| row.group.settings.scheduler.clone())
        };
        jobs.iter().map(scheduler).collect()
    };
    let moved = |job, scheduler: Option<&str>, partition: Option<&str>| {
        let mut order = order(job, FailureCommandKind::Change);
        order.changes.scheduler = scheduler.map(str::to_owned);
        order.changes.partition = partition.map(str::to_owned);
        order
    };
    let orders = vec![
        moved(jobs[0], None, Some("long")),
        moved(jobs[1], None, Some("long")),
        moved(jobs[3], Some("big"), None),
    ];
    let done = give(store, id, None, orders);
    assert_eq!(answers(&done), [FailureCommandStatus::Done; 3], "{done:?}");
    assert_eq!(done[0].words, "change partition short → long");
    let named = |names: [Option<&str>; 4]| names.map(|name| name.map(str::to_owned)).to_vec();
    assert_eq!(places(), named([Some("cpu@long"), Some("cpu@long"), Some("cpu"), Some("big")]));
    let rows = store.schedulers(id).unwrap();
    assert_eq!((rows.len(), &rows[0].scheduler), (3, &cpu), "the shared one is unchanged");
    assert_eq!(rows[2].scheduler.partition.as_deref(), Some("long"));

    let wrong = vec![moved(jobs[2], Some("tpu"), None), moved(jobs[0], None, Some("a b"))];
    assert_eq!(answers(&give(store, id, None, wrong)), [FailureCommandStatus::Refused; 2]);
    store.apply_triage_command(id, &PendingCommand::Undo { batch: 1, agent: None }, NOW).unwrap();
    assert_eq!(places(), named([Some("cpu"), Some("cpu"), Some("cpu"), None]));
    assert_eq!(store.load_jobs(id).unwrap().ids.len(), 4);
}

pub(crate) fn ignored_failure_releases_dependents(store: &dyn Store) {
    let (id, jobs) = failed(store, None);
    let both = vec![order(jobs[0], FailureCommandKind::Ignore), order(jobs[1], FailureCommandKind::Ignore)];
    assert_eq!(answers(&give(store, id, None, both)), [FailureCommandStatus::Done; 2]);
    let table = store.load_jobs(id).unwrap();
    assert_eq!(table.status, [JobStatus::Failed, JobStatus::Failed, JobStatus::Ready]);
    assert_eq!(table.ignored, [0, 1]);
    // It counts again after a retry.
    give(store, id, None, vec![order(jobs[0], FailureCommandKind::Retry)]);
    let table = store.load_jobs(id).unwrap();
    assert_eq!(
        (table.status[0], table.status[2], table.ignored),
        (JobStatus::Ready, JobStatus::Blocked, vec![1])
    );
}

pub(crate) fn agent_proposal_is_approved_by_a_person(store: &dyn Store) {
    let policy =
        TriagePolicy { min_confidence: Some(0.8), max_agent_retries: Some(1), require_evidence: true };
    let (id, jobs) = failed(store, Some(policy));
    let mut proposal = order(jobs[0], FailureCommandKind::Retry);
    proposal.confidence = Some(0.5);
    assert_eq!(
        answers(&give(store, id, Some("ai"), vec![proposal.clone()])),
        [FailureCommandStatus::Refused],
        "no evidence"
    );
    proposal.evidence = vec!["no room for 7 more".into()];
    assert_eq!(
        answers(&give(store, id, Some("ai"), vec![proposal.clone()])),
        [FailureCommandStatus::Proposed]
    );
    assert_eq!(status_of(store, id, jobs[0]), JobStatus::PendingFailed);
    assert_eq!(
        answers(&give(store, id, Some("ai"), vec![order(jobs[1], FailureCommandKind::Retry)])),
        [FailureCommandStatus::Refused]
    );

    let waiting = DecisionFilter { state: Some(DecisionState::Proposed), ..DecisionFilter::default() };
    let proposed = store.decisions(id, &waiting).unwrap();
    let by_id = |id| DecisionFilter { id: Some(id), ..DecisionFilter::default() };
    assert_eq!(store.decisions(id, &by_id(proposed[0].id)).unwrap(), proposed);
    assert_eq!(store.decisions(id, &by_id(-1)).unwrap(), []);
    assert_eq!((proposed.len(), &*proposed[0].made_by, proposed[0].confidence), (1, "ai", Some(0.5)));
    assert_eq!(proposed[0].evidence, ["no room for 7 more"]);
    let settled = store
        .apply_triage_command(id, &PendingCommand::Settle { decision: proposed[0].id, agreed: true }, NOW)
        .unwrap();
    assert_eq!(answers(&settled), [FailureCommandStatus::Done]);
    assert_eq!(status_of(store, id, jobs[0]), JobStatus::Ready);
    let row =
        store.decisions(id, &DecisionFilter { jobs: vec![jobs[0]], ..DecisionFilter::default() }).unwrap();
    assert_eq!((row.len(), row[0].state, row[0].is_agent), (1, DecisionState::Done, true));
    assert!(row[0].settled_by.is_some());
    let again = store.apply_triage_command(
        id,
        &PendingCommand::Settle { decision: proposed[0].id, agreed: false },
        NOW,
    );
    assert!(matches!(again, Err(StoreError::OutOfRange { .. })));
}

pub(crate) fn pending_commands_are_applied_by_the_runner(store: &dyn Store) {
    let (id, jobs) = failed(store, None);
    let wanted = PendingCommand::Orders(FailureCommandBatch {
        orders: vec![order(jobs[0], FailureCommandKind::Fail)],
        ..FailureCommandBatch::default()
    });
    let pending_command = store.add_pending_command(id, &wanted, NOW).unwrap();
    let nonsense =
        store.add_pending_command(id, &PendingCommand::Undo { batch: 4, agent: None }, NOW).unwrap();
    let unwanted = store.add_pending_command(id, &wanted, NOW).unwrap();
    assert_eq!(store.open_pending_commands(id).unwrap(), [pending_command, nonsense, unwanted]);
    assert!(store.withdraw_pending_command(unwanted, NOW).unwrap());
    for pending_command in store.open_pending_commands(id).unwrap() {
        assert_eq!(store.pending_command_result(pending_command).unwrap(), None);
        store.apply_pending_command(id, pending_command, NOW).unwrap();
    }
    assert!(store.open_pending_commands(id).unwrap().is_empty());
    assert_eq!(
        answers(&store.pending_command_result(pending_command).unwrap().unwrap().unwrap()),
        [FailureCommandStatus::Done]
    );
    assert!(store.pending_command_result(nonsense).unwrap().unwrap().unwrap_err().contains("revision 4"));
    assert!(!store.withdraw_pending_command(pending_command, NOW).unwrap());
    let table = store.load_jobs(id).unwrap();
    assert_eq!(table.status, [JobStatus::Failed, JobStatus::Failed, JobStatus::Canceled]);
    assert!(
        store
            .jobs(id, &JobFilter { status: vec![JobStatus::Canceled], ..JobFilter::default() })
            .unwrap()
            .len()
            == 1
    );
}

fn change(store: &dyn Store, id: WorkflowId, jobs: &[JobId], mib: u64) {
    let more = |job: &JobId| {
        let mut order = order(*job, FailureCommandKind::Change);
        order.changes.memory_bytes = Some(Bytes(mib << 20));
        order
    };
    assert!(
        give(store, id, None, jobs.iter().map(more).collect())
            .iter()
            .all(|one| one.answer == FailureCommandStatus::Done)
    );
}

fn undo(store: &dyn Store, id: WorkflowId, batch: i64) -> Vec<(FailureCommandStatus, String)> {
    let undone = store.apply_triage_command(id, &PendingCommand::Undo { batch, agent: None }, NOW).unwrap();
    undone.into_iter().map(|outcome| (outcome.answer, outcome.words)).collect()
}

/// Undone job by job: what is possible now, and the rest when it is possible.
pub(crate) fn undo_reverts_unchanged_values_only(store: &dyn Store) {
    let (id, jobs) = failed(store, None);
    change(store, id, &jobs[..2], 2048);
    change(store, id, &jobs[..1], 4096);
    let changed = "it was changed since (memory 2 GiB → 4 GiB): undo that first".to_owned();
    assert_eq!(
        undo(store, id, 1),
        [
            (FailureCommandStatus::Refused, changed),
            (FailureCommandStatus::Done, "memory 2 GiB → 1 GiB".to_owned())
        ]
    );
    assert_eq!((memory_of(store, id, 0), memory_of(store, id, 1)), (4 * GIB, GIB));
    let undone = |batch| {
        let rows = store.revisions(id, RevisionFilter { batch: Some(batch), job: None }).unwrap();
        rows.iter().map(|row| row.undone_at.is_some()).collect::<Vec<_>>()
    };
    assert_eq!(undone(1), [false, true], "the rest can be undone later");
    assert_eq!(undo(store, id, 2), [(FailureCommandStatus::Done, "memory 4 GiB → 2 GiB".to_owned())]);
    assert_eq!(undo(store, id, 1), [(FailureCommandStatus::Done, "memory 2 GiB → 1 GiB".to_owned())]);
    assert_eq!((memory_of(store, id, 0), undone(1)), (GIB, vec![true, true]));
    let again = store.apply_triage_command(id, &PendingCommand::Undo { batch: 1, agent: None }, NOW);
    assert!(matches!(again, Err(StoreError::OutOfRange { .. })));
}

/// A job that has run with a change cannot be undone, because its results depend on it.
pub(crate) fn undo_skips_jobs_that_ran_since(store: &dyn Store) {
    let (id, jobs) = failed(store, None);
    change(store, id, &jobs[..2], 2048);
    give(store, id, None, vec![order(jobs[0], FailureCommandKind::Retry)]);
    let worker = worker(store, id);
    let again = end(key(id, jobs[0], 2), worker, JobStatus::Failed);
    commit(store, id, vec![claim(jobs[0], 2, worker), again]).unwrap();
    let has_run = "it has run since: make a new change instead".to_owned();
    assert_eq!(
        undo(store, id, 1),
        [
            (FailureCommandStatus::Refused, has_run),
            (FailureCommandStatus::Done, "memory 2 GiB → 1 GiB".to_owned())
        ]
    );
    assert_eq!((memory_of(store, id, 0), memory_of(store, id, 1)), (2 * GIB, GIB));
}

/// Shared requirements may have been changed or deleted since: the job gets its old values back.
pub(crate) fn undo_restores_previous_values(store: &dyn Store) {
    let (id, jobs) = failed(store, None);
    change(store, id, &jobs[..1], 2048);
    let resources = Resources { memory: Bytes(3 * GIB), ..Resources::DEFAULT };
    let shared = RequirementsChange { name: "small".into(), resources, used_by: RequirementsUsers::AsBefore };
    store.change_requirements(id, &[shared], NOW).unwrap();
    assert_eq!(undo(store, id, 1), [(FailureCommandStatus::Done, "memory 2 GiB → 1 GiB".to_owned())]);
    assert_eq!((memory_of(store, id, 0), memory_of(store, id, 1)), (GIB, 3 * GIB));
}

fn propose(store: &dyn Store, id: WorkflowId, job: JobId, confidence: f64) {
    let mut proposal = order(job, FailureCommandKind::Retry);
    proposal.confidence = Some(confidence);
    assert_eq!(answers(&give(store, id, Some("ai"), vec![proposal])), [FailureCommandStatus::Proposed]);
}

fn states(store: &dyn Store, id: WorkflowId) -> Vec<DecisionState> {
    store.decisions(id, &DecisionFilter::default()).unwrap().iter().map(|row| row.state).collect()
}

pub(crate) fn proposal_for_an_earlier_attempt_cannot_be_approved(store: &dyn Store) {
    use DecisionState::{Done, Overtaken, Proposed};
    let policy = TriagePolicy { min_confidence: Some(0.8), ..TriagePolicy::default() };
    let (id, jobs) = failed(store, Some(policy));
    propose(store, id, jobs[0], 0.5);
    propose(store, id, jobs[0], 0.5);
    assert_eq!(states(store, id), [Proposed], "a repeated proposal is not recorded");
    propose(store, id, jobs[0], 0.6);
    assert_eq!(states(store, id), [Overtaken, Proposed], "the last proposal counts");
    // For another job, which the user does not decide about.
    give(store, id, None, vec![order(jobs[1], FailureCommandKind::Retry)]);
    assert_eq!(states(store, id), [Overtaken, Proposed, Done]);

    give(store, id, None, vec![order(jobs[0], FailureCommandKind::Retry)]);
    assert_eq!(states(store, id), [Overtaken, Overtaken, Done, Done], "a user has decided");
    let worker = worker(store, id);
    let again = end(key(id, jobs[0], 2), worker, JobStatus::PendingFailed);
    commit(store, id, vec![claim(jobs[0], 2, worker), again]).unwrap();
    let rows = store.decisions(id, &DecisionFilter::default()).unwrap();
    let settled =
        store.apply_triage_command(id, &PendingCommand::Settle { decision: rows[1].id, agreed: true }, NOW);
    assert!(matches!(settled, Err(StoreError::OutOfRange { .. })));
    assert_eq!(status_of(store, id, jobs[0]), JobStatus::PendingFailed);

    // Returned by the process that runs it, not by a command.
    propose(store, id, jobs[0], 0.5);
    let reset = WorkflowChange::Reset { job: jobs[0], from: JobStatus::PendingFailed, attempt: Attempt(3) };
    commit(store, id, vec![reset]).unwrap();
    assert_eq!(states(store, id).last(), Some(&Overtaken));
    let filter = |state| DecisionFilter { state: Some(state), ..DecisionFilter::default() };
    assert_eq!(store.decisions(id, &filter(Proposed)).unwrap(), []);
    assert_eq!(store.decisions(id, &filter(Overtaken)).unwrap().len(), 3);
}

/// Neither a lost worker nor a stop tells whether a decision was right.
pub(crate) fn decision_outcome_is_the_next_result(store: &dyn Store) {
    let (id, jobs) = failed(store, None);
    give(store, id, None, vec![order(jobs[0], FailureCommandKind::Retry)]);
    let next = || store.decisions(id, &DecisionFilter::default()).unwrap()[0].next_status;
    let worker = worker(store, id);
    let again = |attempt, ended: WorkflowChange| {
        commit(store, id, vec![claim(jobs[0], attempt, worker), ended]).unwrap();
    };
    let requeued = |attempt: u32, failed: JobStatus| {
        let mut ended = end(key(id, jobs[0], attempt), worker, failed);
        if let WorkflowChange::End { to, next_attempt, .. } = &mut ended {
            (*to, *next_attempt) = (JobStatus::Ready, Attempt(attempt + 1));
        }
        ended
    };
    let mut lost = requeued(2, JobStatus::Failed);
    if let WorkflowChange::End { failure, .. } = &mut lost {
        let diagnosis = FailureDiagnosis::for_orphan();
        *failure = Some(Box::new(AttemptFailure {
            diagnosis,
            next: FailureDisposition::Excused,
            reason: None,
            log_tail: None,
        }));
    }
    again(2, lost);
    assert_eq!(next(), None, "lost");
    let mut stopped = requeued(3, JobStatus::Terminated);
    if let WorkflowChange::End { result, .. } = &mut stopped {
        result.reason = Some("interrupted".to_owned());
    }
    again(3, stopped);
    assert_eq!(next(), None, "stopped");
    again(4, end(key(id, jobs[0], 4), worker, JobStatus::Completed));
    assert_eq!(next(), Some(JobStatus::Completed));
}

/// A manual change of a job is recorded as a revision, too, and can be undone.
pub(crate) fn manual_change_is_a_revision(store: &dyn Store) {
    let (id, jobs) = failed(store, None);
    let update = JobUpdate {
        command: Some("better".into()),
        runtime: Some(std::time::Duration::from_mins(1)),
        priority: Some(4),
        ..JobUpdate::default()
    };
    store.update_job(id, jobs[1], &update, NOW).unwrap();
    let named = JobUpdate { name: Some("another".into()), ..JobUpdate::default() };
    store.update_job(id, jobs[1], &named, NOW).unwrap();
    let rows = store.revisions(id, RevisionFilter::default()).unwrap();
    assert_eq!(rows.iter().map(|row| (row.batch, row.job_id)).collect::<Vec<_>>(), [(1, jobs[1])]);
    assert_eq!((rows[0].after.command.as_deref(), rows[0].before.priority), (Some("better"), Some(0)));
    let words = "runtime 1m → unsaid, another command, priority 4 → 0".to_owned();
    assert_eq!(undo(store, id, 1), [(FailureCommandStatus::Done, words)]);
    let table = store.load_jobs(id).unwrap();
    assert_eq!((table.class[1], table.priority[1]), (table.class[0], 0));
}
