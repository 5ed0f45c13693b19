//! Remedies for diagnosed jobs: new requests from their own measurements, limited by the workers.

use super::diagnosis::diagnose_job;
use super::{AvailableWorker, FailedJob, JobRemedy, RecoveryAction, RecoveryDiagnosis, RecoverySettings};
use crate::growth_limits::GrowthLimits;
use crate::sizing::{
    self, AttemptObservation, ResourceAmount, ResourceChange, ResourceKind, SizingGroup, SizingRules,
};
use std::time::Duration;
use windlass_types::worker_messages::return_code;
use windlass_types::{Bytes, Capacity, JobStatus, Resources};

pub(super) fn find_remedy(case: &FailedJob, terms: &RecoverySettings<'_>) -> JobRemedy {
    let (diagnosis, evidence) = diagnose_job(case);
    let changes = match (case.asked, &case.last) {
        (Some(asked), Some(last)) => plan_increases(asked, as_diagnosed(diagnosis, &last.observation), terms),
        _ => Vec::new(),
    };
    let stuck = case.asked.and_then(|asked| stuck_reason(diagnosis, asked, &changes, terms));
    let next = match (diagnosis, stuck) {
        (_, Some(why)) => RecoveryAction::Stay(why),
        (RecoveryDiagnosis::Unknown, None) if !terms.retry_unknown => {
            RecoveryAction::Stay("its cause is unknown; --retry-unknown retries it".to_owned())
        }
        _ => RecoveryAction::RunAgain,
    };
    let changes = if next == RecoveryAction::RunAgain { changes } else { Vec::new() };
    JobRemedy { job: case.job, diagnosis, evidence, next, changes }
}

/// Overrides the observed end by the diagnosis: return codes are configurable, and a termination may have other
/// reasons.
fn as_diagnosed(diagnosis: RecoveryDiagnosis, seen: &AttemptObservation) -> AttemptObservation {
    let return_code = match diagnosis {
        RecoveryDiagnosis::OutOfMemory => return_code::OUT_OF_MEMORY,
        RecoveryDiagnosis::Timeout => return_code::TIMEOUT,
        _ => 1,
    };
    AttemptObservation { status: JobStatus::Failed, return_code, ..*seen }
}

/// Returns the changes of its request.
fn plan_increases(
    asked: Resources,
    seen: AttemptObservation,
    terms: &RecoverySettings<'_>,
) -> Vec<ResourceChange> {
    let rules = SizingRules {
        memory_multiplier: terms.memory_multiplier,
        cpu_multiplier: terms.cpu_multiplier,
        runtime_multiplier: terms.runtime_multiplier,
        downsize: false,
    };
    let alone = SizingGroup { name: "", asked, jobs: 1, observations: &[seen] };
    let eligible_workers = workers_that_fit(&asked, terms.workers);
    let workers: Vec<Capacity> = eligible_workers.iter().map(|eligible| eligible.capacity).collect();
    let room = GrowthLimits { workers: &workers, asked };
    let (mut memory, mut cpus) = (asked.memory, asked.cpus);
    let mut changes = sizing::size_group(&alone, &rules).changes;
    // Memory comes first: CPUs must fit with it, and time with both.
    for change in &mut changes {
        let to = match change.to {
            ResourceAmount::Memory(wanted) => {
                memory = cap_value(wanted, room.max_memory(), asked.memory);
                ResourceAmount::Memory(memory)
            }
            ResourceAmount::Cpus(wanted) => {
                cpus = cap_value(wanted, room.max_cpus(memory), asked.cpus);
                ResourceAmount::Cpus(cpus)
            }
            ResourceAmount::Runtime(wanted) => ResourceAmount::Runtime(cap_value(
                wanted,
                longest_stay(&eligible_workers, memory, cpus),
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

/// Returns the workers that can run the job as it is: the increase must fit together with the rest of the
/// request, for as long as the job runs. Returns all if none can.
fn workers_that_fit(asked: &Resources, eligible_workers: &[AvailableWorker]) -> Vec<AvailableWorker> {
    let holding: Vec<AvailableWorker> =
        eligible_workers.iter().filter(|eligible| eligible.can_run(asked)).copied().collect();
    if holding.is_empty() { eligible_workers.to_vec() } else { holding }
}

/// Returns the longest stay of a worker with these resources; `None` if unlimited or unknown.
fn longest_stay(eligible_workers: &[AvailableWorker], memory: Bytes, cpus: u32) -> Option<Duration> {
    let has =
        |eligible: &&AvailableWorker| eligible.capacity.memory >= memory && eligible.capacity.cpus >= cpus;
    let stays = |eligible_workers: Vec<&AvailableWorker>| {
        eligible_workers.iter().map(|eligible| eligible.time_left).collect::<Option<Vec<_>>>()
    };
    let able: Vec<&AvailableWorker> = eligible_workers.iter().filter(has).collect();
    let able = if able.is_empty() { eligible_workers.iter().collect() } else { able };
    stays(able)?.into_iter().max()
}

/// Limits the value to what is available, but never below the value before.
fn cap_value<Q: Ord>(wanted: Q, most: Option<Q>, before: Q) -> Q {
    match most {
        Some(most) => wanted.min(most).max(before),
        None => wanted,
    }
}

/// Returns why the job would end in the same way: the exhausted resource cannot grow.
fn stuck_reason(
    diagnosis: RecoveryDiagnosis,
    asked: Resources,
    changes: &[ResourceChange],
    terms: &RecoverySettings<'_>,
) -> Option<String> {
    let grows = |resource| changes.iter().any(|change| change.to.resource() == resource);
    match diagnosis {
        RecoveryDiagnosis::OutOfMemory if !grows(ResourceKind::Memory) => {
            let is_there = terms.workers.iter().any(|eligible| eligible.capacity.memory > asked.memory);
            let which = if is_there { "no worker that could run it" } else { "no worker" };
            Some(format!("{which} has more than the requested {}", asked.memory))
        }
        RecoveryDiagnosis::Timeout if asked.runtime.is_some() && !grows(ResourceKind::Runtime) => {
            let runtime = asked.runtime.unwrap_or_default();
            let is_there =
                terms.workers.iter().any(|eligible| eligible.time_left.is_none_or(|stays| stays > runtime));
            let which = if is_there { "no worker that could run it" } else { "no worker" };
            Some(format!("{which} stays longer than its {}", ResourceAmount::Runtime(runtime)))
        }
        _ => None,
    }
}
