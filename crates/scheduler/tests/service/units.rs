//! Units and limits: jobs run where their unit landed, never too many at once, and the database has the state
//! of each unit.

use crate::kit::{Failing, Planned, Worker, World, ask, code, ended, introduce, someone};
use std::collections::BTreeMap;
use windlass_scheduler::service::JobsToReset;
use windlass_store::fault_injection::{DatabaseOperation, InjectedOutcome};
use windlass_types::settings::WorkflowSettings;
use windlass_types::worker_protocol::WorkerRegistration;
use windlass_types::{JobStatus, WorkUnitStatus, WorkflowId};

/// Landing, two processing jobs, merge: four jobs for each unit.
fn units(count: u32) -> Vec<Planned> {
    let of = |unit: u32, waits_for: &[u32], limit| {
        let waits_for = waits_for.iter().map(|job| unit * 4 + job).collect();
        Planned { unit: Some(unit), waits_for, limit, ..Planned::default() }
    };
    let unit = |unit| {
        [
            Planned { elects: true, ..of(unit, &[], None) },
            of(unit, &[0], Some("processing")),
            of(unit, &[0], Some("processing")),
            of(unit, &[1, 2], None),
        ]
    };
    (0..count).flat_map(unit).collect()
}

fn begin(world: &World, count: u32, processing: u32, max_units: u32) -> WorkflowId {
    let limits = BTreeMap::from([("processing".to_owned(), processing)]);
    let settings = WorkflowSettings { limits, max_units: Some(max_units), ..WorkflowSettings::default() };
    world.begin_failing(&units(count), &Failing { settings, ..Failing::default() })
}

fn at(world: &World, site: &str) -> Worker {
    Worker::join(world, WorkerRegistration { site: site.into(), ..someone(8) })
}

fn names(worker: &Worker) -> Vec<String> {
    worker.held.iter().map(|assignment| assignment.name.clone()).collect()
}

fn stand(world: &World, workflow: WorkflowId) -> Vec<(WorkUnitStatus, Option<String>)> {
    world.service.check_time();
    let mut units = world.store.work_units(workflow, 0).unwrap();
    units.sort_by_key(|unit| unit.number);
    units.into_iter().map(|unit| (unit.status, unit.site)).collect()
}

/// It ends its jobs, the first with this code.
fn end_first(worker: &mut Worker, world: &World, code: i32) {
    let first = worker.held[0].key;
    worker.say(world, vec![ended(first, code)]).unwrap();
}

#[test]
fn jobs_run_where_their_unit_landed_and_no_more_than_their_limit() {
    use WorkUnitStatus::{Active, Completed, Waiting};
    let world = World::new();
    let workflow = begin(&world, 3, 3, 2);
    let (mut east, mut west) = (at(&world, "east"), at(&world, "west"));
    east.say(&world, vec![]).unwrap();
    assert_eq!(names(&east), ["j0", "j4"], "two units, and no third");
    assert_eq!(stand(&world, workflow), [(Active, None), (Active, None), (Waiting, None)]);
    world.changed.lock().unwrap().clear();
    end_first(&mut east, &world, 0);
    assert_eq!(stand(&world, workflow)[0], (Active, Some("east".into())));
    assert_eq!(*world.changed.lock().unwrap(), [workflow], "notified once, after the commit");
    west.say(&world, vec![]).unwrap();
    assert_eq!(names(&west), [""; 0], "ready jobs are in the east, and no third unit may start");
    east.say(&world, vec![]).unwrap();
    assert_eq!(names(&east), ["j4", "j1", "j2"]);

    end_first(&mut east, &world, 0);
    assert_eq!(names(&east), ["j1", "j2", "j5"], "the fourth would exceed the limit");
    east.work_off(&world);
    assert_eq!(
        stand(&world, workflow)[..2],
        [(Completed, Some("east".into())), (Completed, Some("east".into()))]
    );
    // By then the third had started in the east as well.
    assert_eq!(world.row(workflow).counts.get(JobStatus::Completed), 12);
    assert_eq!(world.store.work_unit_counts(workflow).unwrap().completed, 3);
}

#[test]
fn the_site_of_a_landing_survives_a_restart() {
    let mut world = World::new();
    let workflow = begin(&world, 1, 9, 1);
    let mut west = at(&world, "west");
    west.say(&world, vec![]).unwrap();
    world.restart();
    west.come_back(&world, &west.keys());
    end_first(&mut west, &world, 0);
    assert_eq!(stand(&world, workflow), [(WorkUnitStatus::Active, Some("west".into()))]);
    // And so does the site of a unit.
    world.restart();
    west.come_back(&world, &west.keys());
    let mut east = at(&world, "east");
    east.say(&world, vec![]).unwrap();
    assert!(east.held.is_empty());
    west.work_off(&world);
    assert_eq!(stand(&world, workflow), [(WorkUnitStatus::Completed, Some("west".into()))]);
}

#[test]
fn a_failed_unit_is_reopened_by_a_retry_and_by_a_reset() {
    use WorkUnitStatus::{Active, Completed, Failed, Waiting};
    let world = World::new();
    let workflow = begin(&world, 1, 1, 1);
    let mut west = at(&world, "west");
    let site = || Some("west".to_owned());
    west.say(&world, vec![]).unwrap();
    end_first(&mut west, &world, 0);
    end_first(&mut west, &world, 1);
    west.work_off(&world);
    assert_eq!(stand(&world, workflow), [(Failed, site())]);

    let row = world.row(workflow);
    let failed = world.store.load_jobs(workflow).unwrap().ids[1];
    ask(|reply| world.service.retry_job(failed, row.run_id, 9, "me", reply)).unwrap();
    assert_eq!(stand(&world, workflow), [(Active, site())]);
    west.work_off(&world);
    assert_eq!(stand(&world, workflow), [(Completed, site())]);

    ask(|reply| world.service.reset_jobs(workflow, JobsToReset::All, "me", reply)).unwrap();
    assert_eq!(stand(&world, workflow), [(Waiting, None)], "reset as a whole, it has no site");
}

#[test]
fn a_canceled_workflow_continues_at_its_sites() {
    use WorkUnitStatus::{Active, Canceled, Completed, Waiting};
    let world = World::new();
    let workflow = begin(&world, 3, 9, 2);
    let mut west = at(&world, "west");
    west.say(&world, vec![]).unwrap();
    let site = |site: &str| Some(site.to_owned());
    for name in ["j0", "j1", "j2", "j3", "j4"] {
        let key = west.held.iter().find(|assignment| assignment.name == name).unwrap().key;
        west.say(&world, vec![ended(key, 0)]).unwrap();
    }
    let before = stand(&world, workflow);
    assert_eq!(before, [(Completed, site("west")), (Active, site("west")), (Active, None)]);
    ask(|reply| world.service.cancel_workflow(workflow, "me", reply)).unwrap();
    west.leaves(&world, vec![]);
    assert!(world.row(workflow).is_canceled);
    let after = stand(&world, workflow);
    assert_eq!(after.iter().map(|unit| unit.0).collect::<Vec<_>>(), [Completed, Canceled, Canceled]);

    world.changed.lock().unwrap().clear();
    ask(|reply| world.service.reset_status(workflow, false, "me", reply)).unwrap();
    ask(|reply| world.service.reset_jobs(workflow, JobsToReset::Failed, "me", reply)).unwrap();
    ask(|reply| world.service.initialize_workflow(workflow, true, false, "me", reply)).unwrap();
    let again = stand(&world, workflow);
    assert_eq!(again[0], (Completed, site("west")));
    assert!(again[1..].iter().all(|(status, _)| matches!(status, Waiting | Active)), "{again:?}");
    assert_eq!(after[1].1, again[1].1, "it keeps its site");
    assert!(world.changed.lock().unwrap().contains(&workflow));
    at(&world, "west").work_off(&world);
    assert!(stand(&world, workflow).iter().all(|(status, _)| *status == Completed));
}

#[test]
fn a_withdrawn_claim_leaves_the_unit_waiting() {
    let world = World::new();
    let workflow = begin(&world, 1, 1, 1);
    world.next_ones(1, DatabaseOperation::Read, || InjectedOutcome::Failed);
    let mut west = at(&world, "west");
    west.say(&world, vec![]).unwrap();
    assert!(west.held.is_empty(), "the assignment could not be read");
    assert_eq!(stand(&world, workflow), [(WorkUnitStatus::Waiting, None)]);
    world.fair_weather();
    world.pass(std::time::Duration::from_secs(5));
    west.work_off(&world);
    assert_eq!(stand(&world, workflow), [(WorkUnitStatus::Completed, Some("west".into()))]);
}

#[test]
fn site_names_are_validated() {
    let world = World::new();
    let who = WorkerRegistration { site: "two words".into(), ..someone(1) };
    assert_eq!(code(&introduce(&world, &who).unwrap_err()), "bad_site");
}
