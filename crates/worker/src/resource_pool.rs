//! The free resources of this worker. Amounts are counted by the same code as in the engine, so that both agree
//! on what can start; only the assignment of individual GPUs is known here alone.

use std::collections::BTreeSet;
use windlass_core::dispatch::{self, NodePlacement};
use windlass_types::{Capacity, Resources};

/// The free resources.
#[derive(Debug)]
pub(crate) struct WorkerResourcePool {
    capacity: Capacity,
    amounts: dispatch::NodeResourcePool,
    /// Lowest first, so that the assignment is deterministic.
    devices: BTreeSet<u32>,
}

/// The resources of one job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ResourceGrant {
    placement: NodePlacement,
    counted_resources: Resources,
    /// Indices of GPUs.
    pub(crate) devices: Vec<u32>,
}

impl WorkerResourcePool {
    pub(crate) fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            amounts: dispatch::NodeResourcePool::new(capacity),
            devices: (0..capacity.gpus).collect(),
        }
    }

    pub(crate) fn has_room_for(&mut self, resources: &Resources) -> bool {
        let grant = self.take_resources(resources);
        grant.map(|grant| self.return_resources(grant)).is_some()
    }

    pub(crate) fn take_resources(&mut self, resources: &Resources) -> Option<ResourceGrant> {
        let counted_resources = self.limit_to_capacity(resources);
        let placement = self.amounts.place(&counted_resources)?;
        let devices: Vec<u32> = self.devices.iter().copied().take(counted_resources.gpus as usize).collect();
        self.devices.retain(|device| !devices.contains(device));
        Some(ResourceGrant { placement, counted_resources, devices })
    }

    pub(crate) fn return_resources(&mut self, grant: ResourceGrant) {
        self.amounts.release(&grant.placement, &grant.counted_resources);
        self.devices.extend(grant.devices);
    }

    /// Limits a request to the capacity. The engine assigns no larger jobs; but one would block the queue for
    /// ever.
    fn limit_to_capacity(&self, asked: &Resources) -> Resources {
        Resources {
            cpus: asked.cpus.min(self.capacity.cpus),
            memory: asked.memory.min(self.capacity.memory),
            gpus: asked.gpus.min(self.capacity.gpus),
            nodes: asked.nodes.min(self.capacity.nodes.max(1)),
            runtime: asked.runtime,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::Bytes;

    const MACHINE: Capacity = Capacity { cpus: 4, memory: Bytes(100), gpus: 2, nodes: 1, max_jobs: None };

    fn asks(cpus: u32, memory: u64, gpus: u32) -> Resources {
        Resources { cpus, memory: Bytes(memory), gpus, ..Resources::DEFAULT }
    }

    #[test]
    fn checking_for_free_resources_takes_none() {
        let mut pool = WorkerResourcePool::new(MACHINE);
        assert!(pool.has_room_for(&asks(4, 100, 2)) && pool.has_room_for(&asks(4, 100, 2)));
        let grant = pool.take_resources(&asks(1, 1, 2)).unwrap();
        assert!(!pool.has_room_for(&asks(1, 1, 1)) && pool.has_room_for(&asks(3, 99, 0)));
        pool.return_resources(grant);
        assert!(pool.has_room_for(&asks(4, 100, 2)));
    }

    #[test]
    fn devices_are_exclusive_and_are_returned() {
        let mut pool = WorkerResourcePool::new(MACHINE);
        let first = pool.take_resources(&asks(1, 1, 1)).unwrap();
        let second = pool.take_resources(&asks(1, 1, 1)).unwrap();
        assert_eq!((&first.devices[..], &second.devices[..]), (&[0][..], &[1][..]));
        pool.return_resources(first);
        assert_eq!(pool.take_resources(&asks(1, 1, 1)).unwrap().devices, [0]);
    }

    #[test]
    fn a_job_larger_than_the_machine_gets_all_of_it() {
        let larger = Resources { nodes: 3, ..asks(64, 1000, 9) };
        let mut pool = WorkerResourcePool::new(MACHINE);
        let small = pool.take_resources(&asks(1, 1, 0)).unwrap();
        assert_eq!(pool.take_resources(&larger), None);
        pool.return_resources(small);
        assert_eq!(pool.take_resources(&larger).unwrap().devices, [0, 1]);
        assert!(!pool.has_room_for(&asks(1, 0, 0)));
    }
}
