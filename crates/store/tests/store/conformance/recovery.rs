//! Recovery of requests: overrides, causes of runs, failures, files, bans made with a decision.

use super::requests::{applied, block, commit, done, later, run, running, sample_request, status, step};
use crate::kit::{self, NOW, claim, create, end, key, new_worker};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::change::WorkflowChange;
use windlass_core::failure_signature::FailureSignature;
use windlass_core::requests::change::{BlockChange, RequestChange, RunChange};
use windlass_core::requests::failures::FailureTally;
use windlass_core::requests::rows::{
    BlockRow, FileRemainder, NewBan, OutputStepKind, OutputStepState, RequestFileCounts, RequestFileRow,
    RequestFileState, RequestOverrides, RequestRunCause, RunRow,
};
use windlass_core::workflow_state::{AttemptFailure, FailureDiagnosis, FailureDisposition};
use windlass_store::model::{FailedAttempt, NewWorker, SiteBanFilter};
use windlass_store::{StoreDatabase, StoreError};
use windlass_types::requests::{Request, RequestStatus};
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{Attempt, FailureClass, JobStatus, LumiMask, WorkerId};

fn tally(read: i64) -> FailureTally {
    serde_json::from_value(json!({ "read": read })).unwrap()
}

pub(crate) fn commit_updates_recovery_rows(store: &dyn StoreDatabase) {
    running(store, "r");
    let fresh = store.request("r").unwrap().unwrap();
    assert!(fresh.overrides.is_empty());
    let overrides = RequestOverrides {
        retry_count: Some(5),
        error_hold_threshold: Some(0.3),
        excluded_files: ["/store/bad".to_owned()].into(),
        ..RequestOverrides::default()
    };
    let of_run = |change| RequestChange::Run { run: "u-r".into(), change };
    let note =
        |run: &str, read| RequestChange::FailureTally { run: run.into(), tally: Arc::new(tally(read)) };
    let changes = vec![
        RequestChange::Overrides(overrides.clone().into()),
        of_run(RunChange::Pause(Some(later(4)))),
        of_run(RunChange::Unresponsive(Some(later(3)))),
        of_run(RunChange::Priority(-7)),
        RequestChange::Block { block: "b-r".into(), change: BlockChange::UnitsExpected(3) },
        note("u-r", 1),
        note("u-r", 2),
    ];
    applied(store, commit("r", 2, changes)).unwrap();
    assert_eq!(store.request("r").unwrap().unwrap().overrides, overrides);
    let row = store.request_run("u-r").unwrap().unwrap();
    assert_eq!((row.paused, row.silent, row.priority), (Some(later(4)), Some(later(3)), Some(-7)));
    assert_eq!(store.processing_blocks("p-r").unwrap()[0].units_expected, 3);
    let seen =
        |store: &dyn StoreDatabase| store.load_request_views(&["r".to_owned()]).unwrap().pop().unwrap();
    let view = seen(store);
    assert_eq!((view.row.overrides, *view.failures == tally(2)), (overrides, true));
    assert_eq!(view.run.unwrap().priority, Some(-7));

    // Another run begins without failures; those of the earlier run are kept.
    let next = RunRow {
        parent: Some("u-r".into()),
        cause: RequestRunCause::Failure,
        rescues: 2,
        paused: Some(later(7)),
        silent: Some(later(8)),
        ..run("a-next", "p-r")
    };
    applied(store, commit("r", 3, vec![RequestChange::AddRun(next.clone().into())])).unwrap();
    let view = seen(store);
    assert_eq!((view.run.as_ref(), *view.failures == FailureTally::default()), (Some(&next), true));
    applied(store, commit("r", 4, vec![note("a-next", 9), of_run(RunChange::Pause(None))])).unwrap();
    assert_eq!(*seen(store).failures, tally(9));
    assert_eq!(store.request_run("u-r").unwrap().unwrap().paused, None);
    let all = store.list_failure_tallies("p-r").unwrap();
    assert_eq!(all, [("u-r".to_owned(), tally(2)), ("a-next".to_owned(), tally(9))]);
    assert_eq!(store.list_failure_tallies("unknown").unwrap(), []);
}

fn ban(site: &str, request: Option<&str>) -> NewBan {
    NewBan {
        site: site.into(),
        request: request.map(str::to_owned),
        reason: "3 of 4 attempts failed".into(),
        failure_data: json!({ "failed": 3 }),
        by: "ada".into(),
        expires_at: later(100),
    }
}

pub(crate) fn ban_is_committed_with_its_changes(store: &dyn StoreDatabase) {
    running(store, "r");
    store.record_site_slots("A", 4, NOW).unwrap();
    let held = status(RequestStatus::Active, RequestStatus::Held);
    let note = |site| RequestChange::Ban(ban(site, Some("r")).into());
    let error = applied(store, commit("r", 2, vec![held.clone(), note("A"), note("nowhere")])).unwrap_err();
    let told = matches!(&error, StoreError::Unexpected { what, .. } if what == "site nowhere");
    assert!(told, "{error}");
    assert_eq!(store.bans(&SiteBanFilter::default()).unwrap(), []);
    assert_eq!(store.request("r").unwrap().unwrap().status, RequestStatus::Active);

    applied(store, commit("r", 2, vec![held, note("A")])).unwrap();
    let bans =
        store.bans(&SiteBanFilter { applies_to: Some("r".into()), ..SiteBanFilter::default() }).unwrap();
    let [kept] = bans.as_slice() else { panic!("{bans:?}") };
    assert_eq!((&kept.ban, kept.created_at), (&ban("A", Some("r")), later(2)));
}

pub(crate) fn new_version_is_committed_with_the_end_of_the_old(store: &dyn StoreDatabase) {
    running(store, "r");
    running(store, "taken");
    let next = |name: &str| Request { previous_version_request: Some("r".into()), ..sample_request(name) };
    let said = || RequestOverrides {
        excluded_files: ["/store/bad".to_owned()].into(),
        ..RequestOverrides::default()
    };
    let restart = |name: &str| {
        vec![
            RequestChange::SupersededBy(Some(name.to_owned())),
            RequestChange::AddVersion(next(name).into(), said().into()),
        ]
    };
    let error = applied(store, commit("r", 2, restart("taken"))).unwrap_err();
    assert!(matches!(&error, StoreError::NameTaken { name, .. } if name == "taken"), "{error}");
    assert_eq!(store.request("r").unwrap().unwrap().request.superseded_by_request, None);

    applied(store, commit("r", 2, restart("r_v2"))).unwrap();
    let old = store.request("r").unwrap().unwrap();
    assert_eq!(old.request.superseded_by_request.as_deref(), Some("r_v2"));
    let new = store.request("r_v2").unwrap().unwrap();
    assert_eq!((new.request, new.status, new.version), (next("r_v2"), RequestStatus::Submitted, 1));
    assert_eq!(new.overrides, said(), "overrides are included");
    let trail = store.transitions("r_v2").unwrap();
    assert_eq!((trail.len(), trail[0].to, trail[0].at), (1, RequestStatus::Submitted, later(2)));
    let outdated = applied(store, commit("r", 2, restart("r_v3"))).unwrap_err();
    assert!(matches!(outdated, StoreError::Outdated { .. }));
    assert_eq!(store.request("r_v3").unwrap(), None);
}

pub(crate) fn file_rows_are_inserted_and_replaced(store: &dyn StoreDatabase) {
    running(store, "r");
    running(store, "other");
    let row = |lfn: &str, state, left, reason: Option<&str>| RequestFileRow {
        lfn: lfn.into(),
        state,
        round: 0,
        left,
        reason: reason.map(str::to_owned),
    };
    let lumis = FileRemainder::Lumis(LumiMask::from([(356_164, vec![(11, 15)])]));
    let first = [
        row(
            "/store/c",
            RequestFileState::Attempted,
            Some(FileRemainder::Events(vec![(1, 10), (21, 30)])),
            None,
        ),
        row("/store/b", RequestFileState::Attempted, Some(lumis), Some("mg_000003 failed")),
        row("/store/a", RequestFileState::Processed, None, None),
    ];
    store.put_file_rows("p-r", &first).unwrap();
    store.put_file_rows("p-r", &first).unwrap();
    let mut expected: Vec<RequestFileRow> = first.to_vec();
    expected.reverse();
    assert_eq!(store.file_rows("p-r").unwrap(), expected, "by name, without duplicates");
    assert_eq!(store.file_rows("p-other").unwrap(), []);

    let now =
        RequestFileRow { round: 1, ..row("/store/b", RequestFileState::Excluded, None, Some("unreadable")) };
    store.put_file_rows("p-r", std::slice::from_ref(&now)).unwrap();
    expected[1] = now;
    assert_eq!(store.file_rows("p-r").unwrap(), expected);
    assert!(store.put_file_rows("unknown", &first).is_err());

    // Deleted with its request.
    let over = vec![
        RequestChange::FailureTally { run: "u-r".into(), tally: Arc::default() },
        status(RequestStatus::Active, RequestStatus::Failed),
    ];
    applied(store, commit("r", 2, over)).unwrap();
    store.delete_request("r").unwrap();
    assert_eq!(store.file_rows("p-r").unwrap(), []);
}

pub(crate) fn file_rows_are_counted_and_paged(store: &dyn StoreDatabase) {
    running(store, "r");
    let row = |n: usize, state| RequestFileRow {
        lfn: format!("/store/{n}"),
        state,
        round: 0,
        left: None,
        reason: None,
    };
    let states = [
        RequestFileState::Processed,
        RequestFileState::Attempted,
        RequestFileState::Processed,
        RequestFileState::Excluded,
    ];
    let rows: Vec<RequestFileRow> = states.into_iter().enumerate().map(|(n, state)| row(n, state)).collect();
    store.put_file_rows("p-r", &rows).unwrap();
    let counts = store.file_counts("p-r").unwrap();
    assert_eq!((counts.attempted, counts.processed, counts.excluded), (1, 2, 1));
    assert_eq!(store.file_counts("p-other").unwrap(), RequestFileCounts::default());
    let page = |states: &[RequestFileState], offset, limit| {
        let rows = store.list_file_rows("p-r", states, offset, limit).unwrap();
        rows.into_iter().map(|row| row.lfn).collect::<Vec<_>>()
    };
    assert_eq!(page(&[], 1, 2), ["/store/1", "/store/2"]);
    assert_eq!(page(&[RequestFileState::Processed], 1, 9), ["/store/2"]);
    assert_eq!(
        page(&[RequestFileState::Attempted, RequestFileState::Excluded], 0, 9),
        ["/store/1", "/store/3"]
    );
}

/// Completed units: those whose outputs are registered, or wait for registration.
pub(crate) fn registered_units_are_listed_by_round(store: &dyn StoreDatabase) {
    running(store, "r");
    running(store, "other");
    let add = |block: &str, unit, kind| RequestChange::AddStep(step(block, unit, kind, 1).into());
    let later_round = BlockRow { round: 1, ..block("b-next", "p-r", 1) };
    let of_another_dataset = BlockRow { dataset: "/A/B/AOD".into(), ..block("b-aod", "p-r", 0) };
    let changes = vec![
        RequestChange::AddBlock(later_round.into()),
        RequestChange::AddBlock(of_another_dataset.into()),
        add("b-r", Some(7), OutputStepKind::Register),
        add("b-aod", Some(7), OutputStepKind::Register),
        add("b-r", Some(3), OutputStepKind::Register),
        add("b-r", Some(5), OutputStepKind::Protect),
        add("b-next", Some(2), OutputStepKind::Register),
        done("b-r", Some(3), OutputStepKind::Register),
    ];
    applied(store, commit("r", 2, changes)).unwrap();
    assert_eq!(store.registered_work_units("p-r", 0).unwrap(), [0, 3, 7]);
    assert_eq!(store.registered_work_units("p-r", 1).unwrap(), [2]);
    assert_eq!(store.registered_work_units("p-r", 2).unwrap(), [0u32; 0]);
    let mut dropped = done("b-r", Some(7), OutputStepKind::Register);
    if let RequestChange::Step { state, .. } = &mut dropped {
        *state = OutputStepState::Dropped;
    }
    applied(store, commit("r", 3, vec![dropped])).unwrap();
    assert_eq!(
        store.registered_work_units("p-r", 0).unwrap(),
        [0, 3, 7],
        "the file of the other dataset is kept"
    );
}

pub(crate) fn ban_expiry_is_notified_once(store: &dyn StoreDatabase) {
    store.record_site_slots("A", 4, NOW).unwrap();
    let first = store.add_ban(&ban("A", None), NOW).unwrap();
    let later_one = NewBan { expires_at: later(200), ..ban("A", None) };
    let second = store.add_ban(&later_one, NOW).unwrap();
    let removed = store.add_ban(&ban("A", None), NOW).unwrap();
    store.remove_ban(removed, "ada", later(5)).unwrap();
    let untold = |seconds| -> Vec<i64> {
        let filter = SiteBanFilter { expired_unnotified: Some(later(seconds)), ..SiteBanFilter::default() };
        store.bans(&filter).unwrap().into_iter().map(|ban| ban.id).collect()
    };
    assert_eq!((untold(99), untold(100), untold(300)), (vec![], vec![first], vec![first, second]));
    store.mark_expiry_notified(&[first], later(101)).unwrap();
    store.mark_expiry_notified(&[first], later(102)).unwrap();
    assert_eq!(untold(300), [second]);
    assert_eq!(store.bans(&SiteBanFilter::default()).unwrap()[0].expiry_told_at, Some(later(101)));
}

/// The end of a failed attempt with the output `says`.
fn failing(key: AttemptKey, worker: WorkerId, says: &str) -> WorkflowChange {
    let mut ended = end(key, worker, JobStatus::Failed);
    if let WorkflowChange::End { failure, .. } = &mut ended {
        *failure = Some(Box::new(AttemptFailure {
            diagnosis: FailureDiagnosis {
                class: FailureClass::Data,
                rule: None,
                log_line: Some(says.to_owned()),
                signature: FailureSignature::new(FailureClass::Data, "exit code 1", Some(says)),
            },
            next: FailureDisposition::Final,
            reason: None,
            log_tail: Some(says.to_owned()),
        }));
    }
    ended
}

/// Followers of a workflow read failures since their last read, and the counts of ended attempts by site.
pub(crate) fn failed_attempts_are_read_incrementally(store: &dyn StoreDatabase) {
    let (workflow, jobs) = create(store, 4);
    let (other, theirs) = create(store, 1);
    let at = |site: &str| NewWorker { site: Some(site.to_owned()), ..new_worker(workflow) };
    let here = store.add_worker(&at("T2_A"), NOW).unwrap();
    let nowhere = store.add_worker(&NewWorker { site: None, ..new_worker(other) }, NOW).unwrap();
    let ended_of = |site: &str, handler: &str, attempts| WorkflowChange::CountSiteAttempts {
        site: site.to_owned(),
        handler: handler.to_owned(),
        attempts,
    };
    let ended = |site: &str, attempts| ended_of(site, "", attempts);
    let fail = |job: usize| failing(key(workflow, jobs[job], 1), here, &format!("cannot read {job}"));
    let claims = jobs.iter().map(|job| claim(*job, 1, here));
    kit::commit(store, workflow, claims.collect()).unwrap();
    assert_eq!(store.failed_attempts(workflow, 0, 10).unwrap(), []);
    assert_eq!(store.site_counts(workflow).unwrap(), BTreeMap::new());
    // Several in one commit have different sequence numbers.
    kit::commit(store, workflow, vec![fail(1), fail(0), ended("T2_A", 2)]).unwrap();
    let theirs = [claim(theirs[0], 1, nowhere), failing(key(other, theirs[0], 1), nowhere, "no luck")];
    kit::commit(store, other, theirs.into()).unwrap();
    let first = store.failed_attempts(workflow, 0, 10).unwrap();
    let names = |failed: &[FailedAttempt]| failed.iter().map(|one| one.job_name.clone()).collect::<Vec<_>>();
    assert_eq!(first.len(), 2);
    assert!(first[0].seq < first[1].seq);
    let one = &first[0];
    assert_eq!((one.site.as_deref(), one.class, one.is_final), (Some("T2_A"), FailureClass::Data, true));
    assert_eq!(one.last_words.as_deref(), Some("cannot read 1"), "by sequence number");
    assert_eq!(store.failed_attempts(workflow, first[1].seq, 10).unwrap(), [], "nothing is new");
    let done = end(key(workflow, jobs[2], 1), here, JobStatus::Completed);
    let counted =
        [ended("T2_A", 1), ended("T2_B", 1), ended_of("T2_B", "merge", 2), ended_of("T2_B", "merge", 3)];
    kit::commit(store, workflow, [vec![done, fail(3)], counted.to_vec()].concat()).unwrap();
    let since = store.failed_attempts(workflow, first[1].seq, 10).unwrap();
    assert_eq!((since.len(), since[0].attempt_id), (1, Attempt(1)));
    let some = store.failed_attempts(workflow, 0, 2).unwrap();
    assert_eq!(names(&some), names(&first), "no more than requested");
    let of = |counts: &[(&str, u64)]| -> BTreeMap<String, u64> {
        counts.iter().map(|(handler, n)| ((*handler).to_owned(), *n)).collect()
    };
    let counts = BTreeMap::from([
        ("T2_A".to_owned(), of(&[("", 3)])),
        ("T2_B".to_owned(), of(&[("", 1), ("merge", 5)])),
    ]);
    assert_eq!(store.site_counts(workflow).unwrap(), counts);
    let [theirs] = &store.failed_attempts(other, 0, 10).unwrap()[..] else { panic!("one") };
    assert_eq!((theirs.site.as_deref(), theirs.seq), (None, 1), "each workflow has separate counts");
    // A rejected commit changes nothing.
    kit::commit(store, workflow, vec![ended("T2_A", 5), claim(jobs[0], 9, here)]).unwrap_err();
    assert_eq!(store.site_counts(workflow).unwrap(), counts);
}
