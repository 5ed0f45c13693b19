//! What is done about a job whose ailment is known: sized anew by its own measurements, capped by what workers have.

use super::diagnosis::diagnose;
use super::{Case, Diagnosis, Next, Remedy, Terms};
use crate::room::Room;
use crate::sizing::{self, Amount, Change, Class, Observation, Resource, Rules};
use windlass_types::work::return_code;
use windlass_types::{JobStatus, Resources};

pub(super) fn find(case: &Case, terms: &Terms<'_>) -> Remedy {
    let (diagnosis, evidence) = diagnose(case);
    let changes = match (case.asked, &case.last) {
        (Some(asked), Some(last)) => more(asked, as_diagnosed(diagnosis, &last.seen), terms),
        _ => Vec::new(),
    };
    let stuck = case.asked.and_then(|asked| stuck(diagnosis, asked, &changes));
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
    let room = Room { workers: terms.workers, asked };
    let mut memory = asked.memory;
    let mut changes = sizing::size(&alone, &rules).changes;
    // Memory comes first: CPUs have to go with it.
    for change in &mut changes {
        let to = match change.to {
            Amount::Memory(wanted) => {
                memory = capped(wanted, room.memory(), asked.memory);
                Amount::Memory(memory)
            }
            Amount::Cpus(wanted) => Amount::Cpus(capped(wanted, room.cpus(memory), asked.cpus)),
            Amount::Runtime(wanted) => {
                Amount::Runtime(capped(wanted, terms.longest, asked.runtime.unwrap_or_default()))
            }
        };
        if to != change.to {
            change.to = to;
            change.evidence.push_str("; a worker has no more");
        }
    }
    changes.retain(|change| change.from != Some(change.to));
    changes
}

/// No more than there is, and never less than before.
fn capped<Q: Ord>(wanted: Q, most: Option<Q>, before: Q) -> Q {
    match most {
        Some(most) => wanted.min(most).max(before),
        None => wanted,
    }
}

/// Why it would end in the same way: it cannot get more of what it ran out of.
fn stuck(diagnosis: Diagnosis, asked: Resources, changes: &[Change]) -> Option<String> {
    let grows = |resource| changes.iter().any(|change| change.to.resource() == resource);
    match diagnosis {
        Diagnosis::OutOfMemory if !grows(Resource::Memory) => {
            Some(format!("no worker has more than the {} that it asks for", asked.memory))
        }
        Diagnosis::Timeout if asked.runtime.is_some() && !grows(Resource::Runtime) => {
            let runtime = asked.runtime.unwrap_or_default();
            Some(format!("no worker stays longer than its {}", Amount::Runtime(runtime)))
        }
        _ => None,
    }
}
