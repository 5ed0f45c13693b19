//! Capacity of an allocation. Unspecified resources are unlimited.

use super::schedule_generation::{parse_cpus_option, parse_gres_gpus};
use std::time::Duration;
use windlass_types::settings::{SlurmScheduler, parse_slurm_size};
use windlass_types::slurm::AllocationRequest;
use windlass_types::{Bytes, Resources};

/// Per node, except for the last two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationCapacity {
    pub cpus: Option<u32>,
    pub memory: Option<Bytes>,
    pub gpus: Option<u32>,
    pub nodes: u32,
    pub walltime: Option<Duration>,
}

impl From<&SlurmScheduler> for AllocationCapacity {
    fn from(scheduler: &SlurmScheduler) -> Self {
        Self {
            cpus: cpus_per_node(scheduler.extra.as_deref(), scheduler.ntasks_per_node),
            memory: scheduler.memory(),
            gpus: scheduler.gres.as_deref().map(parse_gres_gpus),
            nodes: scheduler.nodes.max(1),
            walltime: scheduler.walltime(),
        }
    }
}

impl From<&AllocationRequest> for AllocationCapacity {
    fn from(request: &AllocationRequest) -> Self {
        let memory = request.mem.as_deref().and_then(|mem| parse_slurm_size(mem).ok());
        Self {
            cpus: cpus_per_node(request.extra.as_deref(), request.ntasks_per_node),
            memory: memory.filter(|memory| *memory != Bytes(0)),
            gpus: request.gres.as_deref().map(parse_gres_gpus),
            nodes: request.nodes.max(1),
            walltime: Some(request.walltime),
        }
    }
}

fn cpus_per_node(extra: Option<&str>, tasks: Option<u32>) -> Option<u32> {
    Some(parse_cpus_option(extra?)?.saturating_mul(tasks.unwrap_or(1).max(1)))
}

impl AllocationCapacity {
    /// Whether the job fits into the empty allocation.
    pub fn fits_job(&self, asks: &Resources) -> bool {
        self.cpus.is_none_or(|has| asks.cpus <= has)
            && self.memory.is_none_or(|has| asks.memory <= has)
            && self.gpus.is_none_or(|has| asks.gpus <= has)
            && asks.nodes <= self.nodes
            && self.walltime.is_none_or(|lasts| asks.runtime.is_none_or(|runtime| runtime <= lasts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_fields_are_no_limit() {
        let request = AllocationRequest {
            nodes: 1,
            mem: Some("800M".to_owned()),
            ntasks_per_node: Some(1),
            extra: Some("--cpus-per-task=4".to_owned()),
            walltime: Duration::from_mins(10),
            ..AllocationRequest::default()
        };
        let asks = Resources { cpus: 4, memory: Bytes(800 << 20), ..Resources::DEFAULT };
        let rows = [
            (asks, true),
            (Resources { cpus: 5, ..asks }, false),
            (Resources { memory: Bytes(801 << 20), ..asks }, false),
            (Resources { nodes: 2, ..asks }, false),
            (Resources { gpus: 1, ..asks }, true),
            (Resources { runtime: Some(Duration::from_mins(10)), ..asks }, true),
            (Resources { runtime: Some(Duration::from_mins(11)), ..asks }, false),
        ];
        for (asks, fits) in rows {
            assert_eq!(AllocationCapacity::from(&request).fits_job(&asks), fits, "{asks:?}");
        }
        let all = AllocationRequest { mem: Some("0".to_owned()), extra: None, ..request };
        assert!(AllocationCapacity::from(&all).fits_job(&Resources {
            cpus: 100,
            memory: Bytes(1 << 50),
            ..asks
        }));
    }
}
