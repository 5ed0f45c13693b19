//! What is free on this worker. Pure: takes and gives back amounts, starts nothing.

use std::collections::BTreeSet;
use windlass_types::{Bytes, Capacity, Resources};

/// What is free, and who may have it.
#[derive(Debug)]
pub(crate) struct Pool {
    capacity: Capacity,
    jobs: u32,
    cpus: u32,
    memory: Bytes,
    /// Lowest first, so that a half-used machine looks the same every time.
    gpus: BTreeSet<u32>,
}

/// What one job holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    cpus: u32,
    memory: Bytes,
    /// Indices of devices.
    pub(crate) gpus: Vec<u32>,
}

impl Pool {
    pub(crate) fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            jobs: capacity.max_jobs.unwrap_or(u32::MAX),
            cpus: capacity.cpus,
            memory: capacity.memory,
            gpus: (0..capacity.gpus).collect(),
        }
    }

    pub(crate) fn has_room_for(&self, resources: &Resources) -> bool {
        let need = self.need(resources);
        self.jobs > 0
            && need.cpus <= self.cpus
            && need.memory <= self.memory
            && need.gpus as usize <= self.gpus.len()
    }

    pub(crate) fn take(&mut self, resources: &Resources) -> Option<Grant> {
        if !self.has_room_for(resources) {
            return None;
        }
        let need = self.need(resources);
        self.jobs -= 1;
        self.cpus -= need.cpus;
        self.memory.0 -= need.memory.0;
        let gpus: Vec<u32> = self.gpus.iter().copied().take(need.gpus as usize).collect();
        self.gpus.retain(|gpu| !gpus.contains(gpu));
        Some(Grant { cpus: need.cpus, memory: need.memory, gpus })
    }

    pub(crate) fn give_back(&mut self, grant: Grant) {
        self.jobs += 1;
        self.cpus += grant.cpus;
        self.memory.0 += grant.memory.0;
        self.gpus.extend(grant.gpus);
    }

    /// What a job is counted as. One that asks for more than there is at all gets all there is: whoever sent it here
    /// wants it run, and waiting for ever helps nobody.
    fn need(&self, resources: &Resources) -> Need {
        Need {
            cpus: resources.cpus.min(self.capacity.cpus),
            memory: resources.memory.min(self.capacity.memory),
            gpus: resources.gpus.min(self.capacity.gpus),
        }
    }
}

struct Need {
    cpus: u32,
    memory: Bytes,
    gpus: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Capacity = Capacity { cpus: 4, memory: Bytes(100), gpus: 2, nodes: 1, max_jobs: None };

    fn asks(cpus: u32, memory: u64, gpus: u32) -> Resources {
        Resources { cpus, memory: Bytes(memory), gpus, ..Resources::DEFAULT }
    }

    #[test]
    fn each_amount_can_be_the_one_that_is_missing() {
        for (first, second, fits) in [
            (asks(2, 10, 0), asks(2, 10, 0), true),
            (asks(3, 10, 0), asks(2, 10, 0), false),
            (asks(1, 60, 0), asks(1, 60, 0), false),
            (asks(1, 10, 1), asks(1, 10, 1), true),
            (asks(1, 10, 2), asks(1, 10, 1), false),
            (asks(4, 100, 2), asks(0, 0, 0), true),
        ] {
            let mut pool = Pool::new(MACHINE);
            let grant = pool.take(&first).unwrap();
            assert_eq!(pool.take(&second).is_some(), fits, "{first:?} then {second:?}");
            pool.give_back(grant);
            assert!(pool.has_room_for(&second));
        }
    }

    #[test]
    fn devices_are_different_ones_and_come_back() {
        let mut pool = Pool::new(MACHINE);
        let first = pool.take(&asks(1, 1, 1)).unwrap();
        let second = pool.take(&asks(1, 1, 1)).unwrap();
        assert_eq!((&first.gpus[..], &second.gpus[..]), (&[0][..], &[1][..]));
        pool.give_back(first);
        assert_eq!(pool.take(&asks(1, 1, 1)).unwrap().gpus, [0]);
    }

    #[test]
    fn a_job_larger_than_the_machine_gets_all_of_it() {
        let mut pool = Pool::new(MACHINE);
        let small = pool.take(&asks(1, 1, 0)).unwrap();
        assert_eq!(pool.take(&asks(64, 1, 0)), None);
        pool.give_back(small);
        assert_eq!(pool.take(&asks(64, 1, 0)).unwrap().cpus, 4);
    }

    #[test]
    fn the_number_of_jobs_can_be_limited_whatever_they_ask_for() {
        let mut pool = Pool::new(Capacity { max_jobs: Some(1), ..MACHINE });
        assert!(pool.take(&asks(1, 1, 0)).is_some());
        assert_eq!(pool.take(&asks(1, 1, 0)), None);

        let mut pool = Pool::new(Capacity { max_jobs: Some(9), ..MACHINE });
        assert_eq!(std::iter::from_fn(|| pool.take(&Resources::UNCOUNTED)).count(), 9);
    }
}
