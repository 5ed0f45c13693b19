//! What is done about a job whose ailment is known: sized anew by its own measurements, capped by what workers have.

use super::diagnosis::diagnose;
use super::{Case, Diagnosis, Next, Remedy, Taker, Terms};
use crate::room::Room;
use crate::sizing::{self, Amount, Change, Class, Observation, Resource, Rules};
use std::time::Duration;
use windlass_types::work::return_code;
use windlass_types::{Bytes, Capacity, JobStatus, Resources};

pub(super) fn find(case: &Case, terms: &Terms<'_>) -> Remedy {
    let (diagnosis, evidence) = diagnose(case);
    let changes = match (case.asked, &case.last) {
        (Some(asked), Some(last)) => more(asked, as_diagnosed(diagnosis, &last.seen), terms),
        _ => Vec::new(),
    };
    let stuck = case.asked.and_then(|asked| stuck(diagnosis, asked, &changes, terms));
    let next = match (diagnosis, stuck) {
        (_, Some(why)) => Next::Stay(why),
        (Diagnosis::Unknown, None) if !terms.retry_unknown => {
            Next::Stay("nobody knows whether another attempt would help".to_owned())
        }
        _ => Next::RunAgain,
    };
    let changes = if next == Next::RunAgain { changes } else { Vec::new() };
    Remedy { job: case.job, diagnosis, evidence, next, changes }
}

/// Return codes can be set to other values, and a termination may have had other reasons: what counts is the diagnosis.
fn as_diagnosed(diagnosis: Diagnosis, seen: &Observation) -> Observation {
    let return_code = match diagnosis {
        Diagnosis::OutOfMemory => return_code::OUT_OF_MEMORY,
        Diagnosis::Timeout => return_code::TIMEOUT,
        _ => 1,
    };
    Observation { status: JobStatus::Failed, return_code, ..*seen }
}

/// What it should ask for instead.
fn more(asked: Resources, seen: Observation, terms: &Terms<'_>) -> Vec<Change> {
    let rules = Rules {
        memory_multiplier: terms.memory_multiplier,
        cpu_multiplier: terms.cpu_multiplier,
        runtime_multiplier: terms.runtime_multiplier,
        downsize: false,
    };
    let alone = Class { name: "", asked, jobs: 1, observations: &[seen] };
    let takers = holding(&asked, terms.takers);
    let workers: Vec<Capacity> = takers.iter().map(|taker| taker.has).collect();
    let room = Room { workers: &workers, asked };
    let (mut memory, mut cpus) = (asked.memory, asked.cpus);
    let mut changes = sizing::size(&alone, &rules).changes;
    // Memory comes first: CPUs have to go with it, and time with both.
    for change in &mut changes {
        let to = match change.to {
            Amount::Memory(wanted) => {
                memory = capped(wanted, room.memory(), asked.memory);
                Amount::Memory(memory)
            }
            Amount::Cpus(wanted) => {
                cpus = capped(wanted, room.cpus(memory), asked.cpus);
                Amount::Cpus(cpus)
            }
            Amount::Runtime(wanted) => Amount::Runtime(capped(
                wanted,
                longest(&takers, memory, cpus),
                asked.runtime.unwrap_or_default(),
            )),
        };
        if to != change.to {
            change.to = to;
            change.evidence.push_str("; a worker has no more");
        }
    }
    changes.retain(|change| change.from != Some(change.to));
    changes
}

/// Those that can have the job as it is: what it gets more of has to be where the rest of it is, for as long as it takes. All,
/// if none can.
fn holding(asked: &Resources, takers: &[Taker]) -> Vec<Taker> {
    let holding: Vec<Taker> = takers.iter().filter(|taker| taker.holds(asked)).copied().collect();
    if holding.is_empty() { takers.to_vec() } else { holding }
}

/// So long one of them stays that has this; `None` where there is no limit, or nobody knows.
fn longest(takers: &[Taker], memory: Bytes, cpus: u32) -> Option<Duration> {
    let has = |taker: &&Taker| taker.has.memory >= memory && taker.has.cpus >= cpus;
    let stays = |takers: Vec<&Taker>| takers.iter().map(|taker| taker.stays).collect::<Option<Vec<_>>>();
    let able: Vec<&Taker> = takers.iter().filter(has).collect();
    let able = if able.is_empty() { takers.iter().collect() } else { able };
    stays(able)?.into_iter().max()
}

/// No more than there is, and never less than before.
fn capped<Q: Ord>(wanted: Q, most: Option<Q>, before: Q) -> Q {
    match most {
        Some(most) => wanted.min(most).max(before),
        None => wanted,
    }
}

/// Why it would end in the same way: it cannot get more of what it ran out of.
fn stuck(diagnosis: Diagnosis, asked: Resources, changes: &[Change], terms: &Terms<'_>) -> Option<String> {
    let grows = |resource| changes.iter().any(|change| change.to.resource() == resource);
    match diagnosis {
        Diagnosis::OutOfMemory if !grows(Resource::Memory) => {
            let is_there = terms.takers.iter().any(|taker| taker.has.memory > asked.memory);
            let which = if is_there { "no worker that could take it" } else { "no worker" };
            Some(format!("{which} has more than the {} that it asks for", asked.memory))
        }
        Diagnosis::Timeout if asked.runtime.is_some() && !grows(Resource::Runtime) => {
            let runtime = asked.runtime.unwrap_or_default();
            let is_there = terms.takers.iter().any(|taker| taker.stays.is_none_or(|stays| stays > runtime));
            let which = if is_there { "no worker that could take it" } else { "no worker" };
            Some(format!("{which} stays longer than its {}", Amount::Runtime(runtime)))
        }
        _ => None,
    }
}
