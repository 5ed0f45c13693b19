//! Paused workflows, and sites closed to one workflow or to all: nothing new starts, running jobs continue.

use crate::kit::{FailureSettings, Fixture, PlannedJob, Worker, ended, plain, someone};
use std::collections::BTreeSet;
use windlass_types::worker_protocol::WorkerRegistration;
use windlass_types::{JobStatus, WorkflowId};

/// Units of a landing and one job that depends on it.
fn begin(fixture: &Fixture, units: u32) -> WorkflowId {
    let unit = |unit| {
        let landing = PlannedJob { unit: Some(unit), elects: true, ..PlannedJob::default() };
        let work = PlannedJob { unit: Some(unit), waits_for: vec![unit * 2], ..PlannedJob::default() };
        [landing, work]
    };
    let jobs: Vec<PlannedJob> = (0..units).flat_map(unit).collect();
    fixture.begin_failing(&jobs, &FailureSettings::default())
}

fn at(fixture: &Fixture, site: &str) -> Worker {
    Worker::join(fixture, WorkerRegistration { site: site.into(), ..someone(8) })
}

/// Its jobs of this workflow after an exchange.
fn has(worker: &mut Worker, fixture: &Fixture, workflow: WorkflowId) -> Vec<String> {
    worker.say(fixture, vec![]).unwrap();
    let of = worker.held.iter().filter(|assignment| assignment.key.workflow == workflow);
    of.map(|assignment| assignment.name.clone()).collect()
}

fn end(worker: &mut Worker, fixture: &Fixture, workflow: WorkflowId, name: &str) {
    let is_meant = |held: &&windlass_types::worker_messages::Assignment| {
        held.key.workflow == workflow && held.name == name
    };
    let key = worker.held.iter().find(is_meant).unwrap().key;
    worker.say(fixture, vec![ended(key, 0)]).unwrap();
}

fn sites(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn a_paused_workflow_starts_nothing_and_others_continue() {
    let fixture = Fixture::new();
    let (paused, other) = (begin(&fixture, 2), begin(&fixture, 1));
    fixture.service.set_paused(paused, true);
    let mut west = at(&fixture, "west");
    assert_eq!(has(&mut west, &fixture, paused), [""; 0]);
    assert_eq!(has(&mut west, &fixture, other), ["j0"]);
    fixture.service.set_paused(paused, false);
    assert_eq!(has(&mut west, &fixture, paused), ["j0", "j2"]);

    fixture.service.set_paused(paused, true);
    end(&mut west, &fixture, paused, "j0");
    assert_eq!(
        has(&mut west, &fixture, paused),
        ["j2"],
        "running jobs continue, their dependents do not start"
    );
    assert_eq!(fixture.row(paused).counts.get(JobStatus::Completed), 1, "and its result is recorded");
    fixture.service.set_paused(paused, false);
    west.work_off(&fixture);
    assert_eq!(fixture.row(paused).counts.get(JobStatus::Completed), 4);
}

/// It is not in the database, so its owner sets it again.
#[test]
fn a_restarted_server_forgets_pauses() {
    let mut fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    fixture.service.set_paused(workflow, true);
    assert_eq!(has(&mut at(&fixture, "west"), &fixture, workflow), [""; 0]);
    fixture.restart();
    assert_eq!(has(&mut at(&fixture, "west"), &fixture, workflow), ["j0"]);
}

#[test]
fn units_do_not_start_at_closed_sites() {
    let fixture = Fixture::new();
    let (shy, other) = (begin(&fixture, 2), begin(&fixture, 1));
    fixture.service.set_closed_sites_for(shy, sites(&["east"]));
    let (mut east, mut west) = (at(&fixture, "east"), at(&fixture, "west"));
    assert_eq!(has(&mut east, &fixture, shy), [""; 0]);
    assert_eq!(has(&mut east, &fixture, other), ["j0"], "it is open to other workflows");
    assert_eq!(has(&mut west, &fixture, shy), ["j0", "j2"]);

    // Closed again, units that are there continue there.
    end(&mut west, &fixture, shy, "j0");
    fixture.service.set_closed_sites_for(shy, sites(&["east", "west"]));
    assert_eq!(has(&mut west, &fixture, shy), ["j2", "j1"], "its unit has elected this site");
    west.work_off(&fixture);
    assert_eq!(fixture.row(shy).counts.get(JobStatus::Completed), 4);
}

#[test]
fn a_reopened_site_gets_waiting_units() {
    let fixture = Fixture::new();
    let workflow = begin(&fixture, 1);
    let mut east = at(&fixture, "east");
    fixture.service.set_closed_sites_for(workflow, sites(&["east"]));
    assert_eq!(has(&mut east, &fixture, workflow), [""; 0]);
    // Sites closed for all are closed in addition.
    fixture.service.set_closed_sites(sites(&["east"]));
    fixture.service.set_closed_sites_for(workflow, sites(&[]));
    assert_eq!(has(&mut east, &fixture, workflow), [""; 0]);
    fixture.service.set_closed_sites(sites(&[]));
    assert_eq!(has(&mut east, &fixture, workflow), ["j0"]);
}
