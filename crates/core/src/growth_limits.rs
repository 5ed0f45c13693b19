//! Limits of the growth of a request: no worker gives more than it has.

use windlass_types::{Bytes, Capacity, Resources};

/// The capacity of the workers that may run a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrowthLimits<'a> {
    /// Empty if unknown.
    pub(crate) workers: &'a [Capacity],
    pub(crate) asked: Resources,
}

impl GrowthLimits<'_> {
    /// Returns the maximum memory available together with the job's CPUs; `None` if unknown.
    pub(crate) fn max_memory(&self) -> Option<Bytes> {
        self.fitting_workers(Bytes(0)).map(|worker| worker.memory).max()
    }

    /// Returns the maximum number of CPUs available together with this memory.
    pub(crate) fn max_cpus(&self, memory: Bytes) -> Option<u32> {
        self.fitting_workers(memory).map(|worker| worker.cpus).max()
    }

    fn fitting_workers(&self, memory: Bytes) -> impl Iterator<Item = &Capacity> {
        self.workers.iter().filter(move |worker| {
            worker.cpus >= self.asked.cpus && worker.memory >= memory && worker.gpus >= self.asked.gpus
        })
    }
}
