//! Jobs that kill their workers.

use crate::world::{Worker, World, ask, plain};
use windlass_types::JobStatus as S;

/// Has worker after worker die of `j0`, as often as it is given to one; the others do their work.
fn die_of(world: &World, poison: &str) -> Vec<usize> {
    let mut beside = Vec::new();
    for _ in 0..20 {
        let mut worker = Worker::new(world, 4);
        loop {
            worker.say(world, vec![]).unwrap();
            if worker.held.iter().any(|a| a.name == poison) {
                beside.push(worker.held.len() - 1);
                ask(|reply| world.service.retire(worker.id, "me", reply)).unwrap();
                break;
            }
            if worker.held.is_empty() {
                return beside;
            }
            let ends = worker.keys().into_iter().map(|key| crate::world::ended(key, 0)).collect();
            worker.say(world, ends).unwrap();
        }
    }
    panic!("it was never given up: {beside:?}");
}

#[test]
fn it_is_tried_alone_and_then_given_up_and_costs_its_neighbours_nothing() {
    let world = World::new();
    let workflow = world.begin(&[plain(), plain(), plain()]);
    let beside = die_of(&world, "j0");
    assert_eq!(beside, [2, 2, 0], "twice beside others, then alone");
    assert_eq!(world.statuses(workflow), [S::Failed, S::Completed, S::Completed]);
    let results = world.results(workflow);
    let of =
        |name: &str| results.iter().filter(|(n, ..)| n == name).map(|(.., code)| *code).collect::<Vec<_>>();
    assert_eq!(of("j0"), [-128, -128, -128]);
    assert_eq!(*of("j1").last().unwrap(), 0);
    assert_eq!(*of("j2").last().unwrap(), 0);
}

#[test]
fn others_go_on_while_one_is_tried_alone() {
    let world = World::new();
    let workflow = world.begin(&[plain(), plain(), plain(), plain()]);
    for _ in 0..2 {
        let mut worker = Worker::new(&world, 1);
        worker.say(&world, vec![]).unwrap();
        assert_eq!(worker.held[0].name, "j0");
        ask(|reply| world.service.retire(worker.id, "me", reply)).unwrap();
    }
    let (mut one, mut two) = (Worker::new(&world, 4), Worker::new(&world, 4));
    one.say(&world, vec![]).unwrap();
    two.say(&world, vec![]).unwrap();
    let mut counts = [one.held.len(), two.held.len()];
    counts.sort_unstable();
    assert_eq!(counts, [1, 3], "one worker has the suspect, the other all the rest");
    one.work_off(&world);
    two.work_off(&world);
    world.service.look_around();
    assert_eq!(world.statuses(workflow), [S::Completed; 4], "it was not the job after all");
}
