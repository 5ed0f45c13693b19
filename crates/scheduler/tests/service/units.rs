//! Units and limits: jobs run where their unit landed, never too many at once, and the database has the state
//! of each unit.

use crate::kit::{FailureSettings, Fixture, PlannedJob, Worker, ask, code, ended, introduce, someone};
use std::collections::BTreeMap;
use windlass_scheduler::service::JobsToReset;
use windlass_store::fault_injection::{DatabaseOperation, InjectedOutcome};
use windlass_types::settings::WorkflowSettings;
use windlass_types::worker_protocol::WorkerRegistration;
use windlass_types::{JobStatus, WorkUnitStatus, WorkflowId};

/// Landing, two processing jobs, merge: four jobs for each unit.
fn units(count: u32) -> Vec<PlannedJob> {
    let of = |unit: u32, waits_for: &[u32], limit| {
        let waits_for = waits_for.iter().map(|job| unit * 4 + job).collect();
        PlannedJob { unit: Some(unit), waits_for, limit, ..PlannedJob::default() }
    };
    let unit = |unit| {
        [
            PlannedJob { elects: true, ..of(unit, &[], None) },
            of(unit, &[0], Some("processing")),
            of(unit, &[0], Some("processing")),
            of(unit, &[1, 2], None),
        ]
    };
    (0..count).flat_map(unit).collect()
}

fn begin(fixture: &Fixture, count: u32, processing: u32, max_units: u32) -> WorkflowId {
    let limits = BTreeMap::from([("processing".to_owned(), processing)]);
    let settings = WorkflowSettings { limits, max_units: Some(max_units), ..WorkflowSettings::default() };
    fixture.begin_failing(&units(count), &FailureSettings { settings, ..FailureSettings::default() })
}

fn at(fixture: &Fixture, site: &str) -> Worker {
    Worker::join(fixture, WorkerRegistration { site: site.into(), ..someone(8) })
}

fn names(worker: &Worker) -> Vec<String> {
    worker.held.iter().map(|assignment| assignment.name.clone()).collect()
}

fn stand(fixture: &Fixture, workflow: WorkflowId) -> Vec<(WorkUnitStatus, Option<String>)> {
    fixture.service.check_time();
    let mut units = fixture.store.work_units(workflow, 0).unwrap();
    units.sort_by_key(|unit| unit.number);
    units.into_iter().map(|unit| (unit.status, unit.site)).collect()
}

/// It ends its jobs, the first with this code.
fn end_first(worker: &mut Worker, fixture: &Fixture, code: i32) {
    let first = worker.held[0].key;
    worker.say(fixture, vec![ended(first, code)]).unwrap();
}

#[test]
fn jobs_run_where_their_unit_landed_and_no_more_than_their_limit() {
    use WorkUnitStatus::{Active, Completed, Waiting};
    let fixture = Fixture::new();
    let workflow = begin(&fixture, 3, 3, 2);
    let (mut east, mut west) = (at(&fixture, "east"), at(&fixture, "west"));
    east.say(&fixture, vec![]).unwrap();
    assert_eq!(names(&east), ["j0", "j4"], "two units, and no third");
    assert_eq!(stand(&fixture, workflow), [(Active, None), (Active, None), (Waiting, None)]);
    fixture.changed.lock().unwrap().clear();
    end_first(&mut east, &fixture, 0);
    assert_eq!(stand(&fixture, workflow)[0], (Active, Some("east".into())));
    assert_eq!(*fixture.changed.lock().unwrap(), [workflow], "notified once, after the commit");
    west.say(&fixture, vec![]).unwrap();
    assert_eq!(names(&west), [""; 0], "ready jobs are in the east, and no third unit may start");
    east.say(&fixture, vec![]).unwrap();
    assert_eq!(names(&east), ["j4", "j1", "j2"]);

    end_first(&mut east, &fixture, 0);
    assert_eq!(names(&east), ["j1", "j2", "j5"], "the fourth would exceed the limit");
    east.work_off(&fixture);
    assert_eq!(
        stand(&fixture, workflow)[..2],
        [(Completed, Some("east".into())), (Completed, Some("east".into()))]
    );
    // By then the third had started in the east as well.
    assert_eq!(fixture.row(workflow).counts.get(JobStatus::Completed), 12);
    assert_eq!(fixture.store.work_unit_counts(workflow).unwrap().completed, 3);
}

#[test]
fn the_site_of_a_landing_survives_a_restart() {
    let mut fixture = Fixture::new();
    let workflow = begin(&fixture, 1, 9, 1);
    let mut west = at(&fixture, "west");
    west.say(&fixture, vec![]).unwrap();
    fixture.restart();
    west.come_back(&fixture, &west.keys());
    end_first(&mut west, &fixture, 0);
    assert_eq!(stand(&fixture, workflow), [(WorkUnitStatus::Active, Some("west".into()))]);
    // And so does the site of a unit.
    fixture.restart();
    west.come_back(&fixture, &west.keys());
    let mut east = at(&fixture, "east");
    east.say(&fixture, vec![]).unwrap();
    assert!(east.held.is_empty());
    west.work_off(&fixture);
    assert_eq!(stand(&fixture, workflow), [(WorkUnitStatus::Completed, Some("west".into()))]);
}

#[test]
fn a_failed_unit_is_reopened_by_a_retry_and_by_a_reset() {
    use WorkUnitStatus::{Active, Completed, Failed, Waiting};
    let fixture = Fixture::new();
    let workflow = begin(&fixture, 1, 1, 1);
    let mut west = at(&fixture, "west");
    let site = || Some("west".to_owned());
    west.say(&fixture, vec![]).unwrap();
    end_first(&mut west, &fixture, 0);
    end_first(&mut west, &fixture, 1);
    west.work_off(&fixture);
    assert_eq!(stand(&fixture, workflow), [(Failed, site())]);

    let row = fixture.row(workflow);
    let failed = fixture.store.load_jobs(workflow).unwrap().ids[1];
    ask(|reply| fixture.service.retry_job(failed, row.run_id, 9, "me", reply)).unwrap();
    assert_eq!(stand(&fixture, workflow), [(Active, site())]);
    west.work_off(&fixture);
    assert_eq!(stand(&fixture, workflow), [(Completed, site())]);

    ask(|reply| fixture.service.reset_jobs(workflow, JobsToReset::All, "me", reply)).unwrap();
    assert_eq!(stand(&fixture, workflow), [(Waiting, None)], "reset as a whole, it has no site");
}

#[test]
fn a_canceled_workflow_continues_at_its_sites() {
    use WorkUnitStatus::{Active, Canceled, Completed, Waiting};
    let fixture = Fixture::new();
    let workflow = begin(&fixture, 3, 9, 2);
    let mut west = at(&fixture, "west");
    west.say(&fixture, vec![]).unwrap();
    let site = |site: &str| Some(site.to_owned());
    for name in ["j0", "j1", "j2", "j3", "j4"] {
        let key = west.held.iter().find(|assignment| assignment.name == name).unwrap().key;
        west.say(&fixture, vec![ended(key, 0)]).unwrap();
    }
    let before = stand(&fixture, workflow);
    assert_eq!(before, [(Completed, site("west")), (Active, site("west")), (Active, None)]);
    ask(|reply| fixture.service.cancel_workflow(workflow, "me", reply)).unwrap();
    west.leaves(&fixture, vec![]);
    assert!(fixture.row(workflow).is_canceled);
    let after = stand(&fixture, workflow);
    assert_eq!(after.iter().map(|unit| unit.0).collect::<Vec<_>>(), [Completed, Canceled, Canceled]);

    fixture.changed.lock().unwrap().clear();
    ask(|reply| fixture.service.reset_status(workflow, false, "me", reply)).unwrap();
    ask(|reply| fixture.service.reset_jobs(workflow, JobsToReset::Failed, "me", reply)).unwrap();
    ask(|reply| fixture.service.initialize_workflow(workflow, true, false, "me", reply)).unwrap();
    let again = stand(&fixture, workflow);
    assert_eq!(again[0], (Completed, site("west")));
    assert!(again[1..].iter().all(|(status, _)| matches!(status, Waiting | Active)), "{again:?}");
    assert_eq!(after[1].1, again[1].1, "it keeps its site");
    assert!(fixture.changed.lock().unwrap().contains(&workflow));
    at(&fixture, "west").work_off(&fixture);
    assert!(stand(&fixture, workflow).iter().all(|(status, _)| *status == Completed));
}

#[test]
fn a_withdrawn_claim_leaves_the_unit_waiting() {
    let fixture = Fixture::new();
    let workflow = begin(&fixture, 1, 1, 1);
    fixture.next_ones(1, DatabaseOperation::Read, || InjectedOutcome::Failed);
    let mut west = at(&fixture, "west");
    west.say(&fixture, vec![]).unwrap();
    assert!(west.held.is_empty(), "the assignment could not be read");
    assert_eq!(stand(&fixture, workflow), [(WorkUnitStatus::Waiting, None)]);
    fixture.database_available();
    fixture.pass(std::time::Duration::from_secs(5));
    west.work_off(&fixture);
    assert_eq!(stand(&fixture, workflow), [(WorkUnitStatus::Completed, Some("west".into()))]);
}

#[test]
fn site_names_are_validated() {
    let fixture = Fixture::new();
    let who = WorkerRegistration { site: "two words".into(), ..someone(1) };
    assert_eq!(code(&introduce(&fixture, &who).unwrap_err()), "bad_site");
}
