//! Checks that decisions stay within the capacity of the workers: a job that fits no worker would wait forever.

use crate::recovery::AvailableWorker;
use std::time::Duration;
use windlass_types::failure_commands::RequestedJobChanges;
use windlass_types::worker_bounds::MAX_NODES;
use windlass_types::{Bytes, Capacity, Resources, format_duration};

/// More than one machine has. It is the limit where no worker is known.
const LARGEST_EXPECTED: &[AvailableWorker] = &[AvailableWorker {
    capacity: Capacity {
        cpus: 16_384,
        memory: Bytes(64 << 40),
        gpus: 1024,
        nodes: MAX_NODES,
        max_jobs: None,
    },
    time_left: None,
}];

/// Returns why no worker could run the job after these changes, with the limit; `None`: one could.
///
/// Only changed resources are checked: a job that requested too much before may be changed in other ways.
pub fn exceeds_workers_reason(
    changes: &RequestedJobChanges,
    asked: &Resources,
    eligible_workers: &[AvailableWorker],
) -> Option<String> {
    let then = changes.apply_to_resources(*asked);
    let (eligible_workers, limit) = match eligible_workers {
        [] => (LARGEST_EXPECTED, "no worker is known; without one the limit is"),
        known => (known, "no worker has more than"),
    };
    if then == *asked || eligible_workers.iter().any(|eligible| eligible.can_run(&then)) {
        return None;
    }
    let most =
        |amount: fn(&AvailableWorker) -> u64| eligible_workers.iter().map(amount).max().unwrap_or_default();
    let memory = eligible_workers.iter().map(|eligible| eligible.capacity.memory).max().unwrap_or_default();
    if then.memory != asked.memory && then.memory > memory {
        return Some(format!("it would request {} of memory, and {limit} {memory}", then.memory));
    }
    for (what, now, before, most) in [
        ("cpus", then.cpus, asked.cpus, most(|eligible| eligible.capacity.cpus.into())),
        ("gpus", then.gpus, asked.gpus, most(|eligible| eligible.capacity.gpus.into())),
        ("nodes", then.nodes, asked.nodes, most(|eligible| eligible.capacity.nodes.into())),
    ] {
        if now != before && u64::from(now) > most {
            return Some(format!("it would request {now} {what}, and {limit} {most}"));
        }
    }
    let stays: Option<Duration> = eligible_workers
        .iter()
        .map(|eligible| eligible.time_left)
        .collect::<Option<Vec<_>>>()
        .and_then(|all| all.into_iter().max());
    if let (Some(runtime), Some(stays)) = (then.runtime.filter(|_| then.runtime != asked.runtime), stays)
        && runtime > stays
    {
        let (runtime, stays) = (format_duration(runtime), format_duration(stays));
        return Some(format!("it would request {runtime}, and no worker stays longer than {stays}"));
    }
    let fitted_before = eligible_workers.iter().any(|eligible| eligible.can_run(asked));
    fitted_before.then(|| "no single worker has all that it would request".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn eligible(cpus: u32, gib: u64, hours: Option<u64>) -> AvailableWorker {
        let has = Capacity { cpus, memory: Bytes(gib * GIB), gpus: 0, nodes: 1, max_jobs: None };
        AvailableWorker { capacity: has, time_left: hours.map(Duration::from_hours) }
    }

    fn asked(cpus: u32, gib: u64) -> Resources {
        Resources { cpus, memory: Bytes(gib * GIB), ..Resources::DEFAULT }
    }

    #[test]
    fn request_beyond_all_workers_is_rejected_with_the_limit() {
        let memory = |gib: u64| RequestedJobChanges {
            memory_bytes: Some(Bytes(gib * GIB)),
            ..RequestedJobChanges::default()
        };
        let two = [eligible(4, 16, Some(2)), eligible(16, 8, Some(1))];
        let said = |changes: &RequestedJobChanges| exceeds_workers_reason(changes, &asked(1, 1), &two);
        assert_eq!(said(&memory(16)), None);
        assert_eq!(
            said(&memory(100_000)).unwrap(),
            "it would request 97.7 TiB of memory, and no worker has more than 16 GiB"
        );
        let cpus = |n| RequestedJobChanges { cpus: Some(n), ..RequestedJobChanges::default() };
        assert_eq!(said(&cpus(16)), None);
        assert!(said(&cpus(17)).unwrap().contains("17 cpus, and no worker has more than 16"));
        let together = RequestedJobChanges { cpus: Some(16), ..memory(16) };
        assert!(said(&together).unwrap().contains("no single worker"));
        assert!(
            said(&RequestedJobChanges { gpus: Some(1), ..RequestedJobChanges::default() })
                .unwrap()
                .contains("more than 0")
        );
        let runtime =
            RequestedJobChanges { runtime_seconds: Some(3.0 * 3600.0), ..RequestedJobChanges::default() };
        assert!(said(&runtime).unwrap().contains("stays longer than 2h"));
        assert_eq!(exceeds_workers_reason(&runtime, &asked(1, 1), &[eligible(1, 1, None)]), None);
        let unknown = |changes: &RequestedJobChanges| exceeds_workers_reason(changes, &asked(1, 1), &[]);
        assert_eq!(unknown(&memory(1000)), None);
        assert_eq!(
            unknown(&memory(100_000)).unwrap(),
            "it would request 97.7 TiB of memory, and no worker is known; without one the limit is 64 TiB"
        );
        assert!(unknown(&cpus(1_000_000)).unwrap().contains("the limit is 16384"));
    }

    #[test]
    fn oversized_job_can_be_changed() {
        let one = [eligible(4, 16, None)];
        let lower =
            RequestedJobChanges { memory_bytes: Some(Bytes(8 * GIB)), ..RequestedJobChanges::default() };
        assert_eq!(exceeds_workers_reason(&lower, &asked(1, 1000), &one), None);
        let other = RequestedJobChanges { cpus: Some(2), ..RequestedJobChanges::default() };
        assert_eq!(exceeds_workers_reason(&other, &asked(1, 1000), &one), None, "memory is not changed");
        let priority = RequestedJobChanges { priority: Some(2), ..RequestedJobChanges::default() };
        assert_eq!(exceeds_workers_reason(&priority, &asked(1, 1000), &one), None);
    }
}
