//! Paused workflows, and sites closed to one workflow or to all: nothing new starts, running jobs continue.

use crate::kit::{Failing, Planned, Worker, World, ended, plain, someone};
use std::collections::BTreeSet;
use windlass_types::worker_protocol::WorkerRegistration;
use windlass_types::{JobStatus, WorkflowId};

/// Units of a landing and one job that depends on it.
fn begin(world: &World, units: u32) -> WorkflowId {
    let unit = |unit| {
        let landing = Planned { unit: Some(unit), elects: true, ..Planned::default() };
        let work = Planned { unit: Some(unit), waits_for: vec![unit * 2], ..Planned::default() };
        [landing, work]
    };
    let jobs: Vec<Planned> = (0..units).flat_map(unit).collect();
    world.begin_failing(&jobs, &Failing::default())
}

fn at(world: &World, site: &str) -> Worker {
    Worker::join(world, WorkerRegistration { site: site.into(), ..someone(8) })
}

/// Its jobs of this workflow after an exchange.
fn has(worker: &mut Worker, world: &World, workflow: WorkflowId) -> Vec<String> {
    worker.say(world, vec![]).unwrap();
    let of = worker.held.iter().filter(|assignment| assignment.key.workflow == workflow);
    of.map(|assignment| assignment.name.clone()).collect()
}

fn end(worker: &mut Worker, world: &World, workflow: WorkflowId, name: &str) {
    let is_meant = |held: &&windlass_types::worker_messages::Assignment| {
        held.key.workflow == workflow && held.name == name
    };
    let key = worker.held.iter().find(is_meant).unwrap().key;
    worker.say(world, vec![ended(key, 0)]).unwrap();
}

fn sites(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn a_paused_workflow_starts_nothing_and_others_continue() {
    let world = World::new();
    let (paused, other) = (begin(&world, 2), begin(&world, 1));
    world.service.set_paused(paused, true);
    let mut west = at(&world, "west");
    assert_eq!(has(&mut west, &world, paused), [""; 0]);
    assert_eq!(has(&mut west, &world, other), ["j0"]);
    world.service.set_paused(paused, false);
    assert_eq!(has(&mut west, &world, paused), ["j0", "j2"]);

    world.service.set_paused(paused, true);
    end(&mut west, &world, paused, "j0");
    assert_eq!(
        has(&mut west, &world, paused),
        ["j2"],
        "running jobs continue, their dependents do not start"
    );
    assert_eq!(world.row(paused).counts.get(JobStatus::Completed), 1, "and its result is recorded");
    world.service.set_paused(paused, false);
    west.work_off(&world);
    assert_eq!(world.row(paused).counts.get(JobStatus::Completed), 4);
}

/// It is not in the database, so its owner sets it again.
#[test]
fn a_restarted_server_forgets_pauses() {
    let mut world = World::new();
    let workflow = world.begin(&[plain()]);
    world.service.set_paused(workflow, true);
    assert_eq!(has(&mut at(&world, "west"), &world, workflow), [""; 0]);
    world.restart();
    assert_eq!(has(&mut at(&world, "west"), &world, workflow), ["j0"]);
}

#[test]
fn units_do_not_start_at_closed_sites() {
    let world = World::new();
    let (shy, other) = (begin(&world, 2), begin(&world, 1));
    world.service.set_closed_sites_for(shy, sites(&["east"]));
    let (mut east, mut west) = (at(&world, "east"), at(&world, "west"));
    assert_eq!(has(&mut east, &world, shy), [""; 0]);
    assert_eq!(has(&mut east, &world, other), ["j0"], "it is open to other workflows");
    assert_eq!(has(&mut west, &world, shy), ["j0", "j2"]);

    // Closed again, units that are there continue there.
    end(&mut west, &world, shy, "j0");
    world.service.set_closed_sites_for(shy, sites(&["east", "west"]));
    assert_eq!(has(&mut west, &world, shy), ["j2", "j1"], "its unit has elected this site");
    west.work_off(&world);
    assert_eq!(world.row(shy).counts.get(JobStatus::Completed), 4);
}

#[test]
fn a_reopened_site_gets_waiting_units() {
    let world = World::new();
    let workflow = begin(&world, 1);
    let mut east = at(&world, "east");
    world.service.set_closed_sites_for(workflow, sites(&["east"]));
    assert_eq!(has(&mut east, &world, workflow), [""; 0]);
    // Sites closed for all are closed in addition.
    world.service.set_closed_sites(sites(&["east"]));
    world.service.set_closed_sites_for(workflow, sites(&[]));
    assert_eq!(has(&mut east, &world, workflow), [""; 0]);
    world.service.set_closed_sites(sites(&[]));
    assert_eq!(has(&mut east, &world, workflow), ["j0"]);
}
