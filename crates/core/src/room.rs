//! How far what a job asks for can grow: no worker gives more than it has.

use windlass_types::{Bytes, Capacity, Resources};

/// What the workers that may take a job have for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room<'a> {
    /// Empty where nobody knows.
    pub(crate) workers: &'a [Capacity],
    pub(crate) asked: Resources,
}

impl Room<'_> {
    /// The most memory that it can have together with its CPUs; `None` where nobody knows.
    pub(crate) fn memory(&self) -> Option<Bytes> {
        self.that_fit(Bytes(0)).map(|worker| worker.memory).max()
    }

    /// The most CPUs that it can have together with so much memory.
    pub(crate) fn cpus(&self, memory: Bytes) -> Option<u32> {
        self.that_fit(memory).map(|worker| worker.cpus).max()
    }

    fn that_fit(&self, memory: Bytes) -> impl Iterator<Item = &Capacity> {
        self.workers.iter().filter(move |worker| {
            worker.cpus >= self.asked.cpus && worker.memory >= memory && worker.gpus >= self.asked.gpus
        })
    }
}
