//! How far what a job asks for can grow: no worker gives more than it has.

use windlass_types::{Bytes, Capacity, Resources};

/// What the workers that may take a job have for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerHeadroom<'a> {
    /// Empty where nobody knows.
    pub(crate) workers: &'a [Capacity],
    pub(crate) asked: Resources,
}

impl WorkerHeadroom<'_> {
    /// The most memory that it can have together with its CPUs; `None` where nobody knows.
    pub(crate) fn max_memory(&self) -> Option<Bytes> {
        self.fitting_workers(Bytes(0)).map(|worker| worker.memory).max()
    }

    /// The most CPUs that it can have together with so much memory.
    pub(crate) fn max_cpus(&self, memory: Bytes) -> Option<u32> {
        self.fitting_workers(memory).map(|worker| worker.cpus).max()
    }

    fn fitting_workers(&self, memory: Bytes) -> impl Iterator<Item = &Capacity> {
        self.workers.iter().filter(move |worker| {
            worker.cpus >= self.asked.cpus && worker.memory >= memory && worker.gpus >= self.asked.gpus
        })
    }
}
