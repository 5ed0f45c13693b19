//! Free resources on the nodes of one worker, and placement of jobs.

use windlass_types::worker_bounds::MAX_NODES;
use windlass_types::{Bytes, Capacity, Resources};

/// Free resources on the nodes of one worker.
///
/// Jobs of one node share it with others; jobs of several nodes have them exclusively.
#[derive(Clone, Debug)]
pub struct NodeResourcePool {
    capacity: Capacity,
    nodes: Vec<FreeNode>,
    jobs: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FreeNode {
    cpus: u32,
    memory: Bytes,
    gpus: u32,
}

/// The nodes of a placed job; released when it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlacement(Vec<u32>);

impl NodeResourcePool {
    /// The number of nodes is capped, because each is tracked.
    pub fn new(mut capacity: Capacity) -> Self {
        capacity.nodes = capacity.nodes.clamp(1, MAX_NODES);
        let nodes = vec![Self::empty_node(&capacity); capacity.nodes as usize];
        Self { capacity, nodes, jobs: 0 }
    }

    /// Whether the number of concurrent jobs is limited.
    pub(super) fn limits_job_count(&self) -> bool {
        self.capacity.max_jobs.is_some()
    }

    /// Whether nothing more fits, so that the queue need not be searched. All jobs count CPUs unless the number
    /// of jobs is limited.
    pub(super) fn is_exhausted(&self) -> bool {
        match self.capacity.max_jobs {
            Some(max) => self.jobs >= max,
            None => self.nodes.iter().all(|node| node.cpus == 0),
        }
    }

    /// Whether the job would fit with nothing else running.
    pub fn could_hold(&self, asked: &Resources) -> bool {
        let node = Self::empty_node(&self.capacity);
        asked.nodes <= self.capacity.nodes
            && asked.cpus <= node.cpus
            && asked.memory <= node.memory
            && asked.gpus <= node.gpus
    }

    /// Places a job if it fits now.
    pub fn place(&mut self, asked: &Resources) -> Option<NodePlacement> {
        if self.capacity.max_jobs.is_some_and(|max| self.jobs >= max) {
            return None;
        }
        let chosen = match asked.nodes {
            0 | 1 => vec![self.tightest_node(asked)?],
            several => self.whole_nodes(asked, several)?,
        };
        let shared = chosen.len() == 1;
        for &node in &chosen {
            let free = &mut self.nodes[node as usize];
            if shared {
                free.cpus -= asked.cpus;
                free.memory.0 -= asked.memory.0;
                free.gpus -= asked.gpus;
            } else {
                *free = FreeNode { cpus: 0, memory: Bytes(0), gpus: 0 };
            }
        }
        self.jobs += 1;
        Some(NodePlacement(chosen))
    }

    /// Releases what [`NodeResourcePool::place`] took for the same request.
    pub fn release(&mut self, placement: &NodePlacement, asked: &Resources) {
        self.jobs -= 1;
        match placement.0.as_slice() {
            &[node] => {
                let free = &mut self.nodes[node as usize];
                free.cpus += asked.cpus;
                free.memory.0 += asked.memory.0;
                free.gpus += asked.gpus;
            }
            whole => {
                for &node in whole {
                    self.nodes[node as usize] = Self::empty_node(&self.capacity);
                }
            }
        }
    }

    /// Returns the node with the least left afterwards, so that large gaps remain for large jobs.
    fn tightest_node(&self, asked: &Resources) -> Option<u32> {
        let fits = |f: &FreeNode| f.cpus >= asked.cpus && f.memory >= asked.memory && f.gpus >= asked.gpus;
        let candidates = self.nodes.iter().enumerate().filter(|(_, free)| fits(free));
        candidates.min_by_key(|(i, free)| (free.gpus, free.cpus, free.memory, *i)).map(|(i, _)| i as u32)
    }

    fn whole_nodes(&self, asked: &Resources, several: u32) -> Option<Vec<u32>> {
        let empty = Self::empty_node(&self.capacity);
        if empty.cpus < asked.cpus || empty.memory < asked.memory || empty.gpus < asked.gpus {
            return None;
        }
        let free = self.nodes.iter().enumerate().filter(|(_, node)| **node == empty);
        let chosen: Vec<u32> = free.map(|(i, _)| i as u32).take(several as usize).collect();
        (chosen.len() == several as usize).then_some(chosen)
    }

    fn empty_node(capacity: &Capacity) -> FreeNode {
        FreeNode { cpus: capacity.cpus, memory: capacity.memory, gpus: capacity.gpus }
    }
}
