//! What is free on the nodes of one worker, and where a job is put.

use windlass_types::worker_bounds::MAX_NODES;
use windlass_types::{Bytes, Capacity, Resources};

/// What is free on the nodes of one worker.
///
/// A job of one node shares a node with others; a job of several nodes has them to itself.
#[derive(Clone, Debug)]
pub struct Pool {
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

/// Where a job was put; given back when it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlacement(Vec<u32>);

impl Pool {
    /// More nodes than any worker has are not counted: a record of each is kept.
    pub fn new(mut capacity: Capacity) -> Self {
        capacity.nodes = capacity.nodes.clamp(1, MAX_NODES);
        let nodes = vec![Self::empty_node(&capacity); capacity.nodes as usize];
        Self { capacity, nodes, jobs: 0 }
    }

    /// A number of jobs at once was given.
    pub(super) fn limits_job_count(&self) -> bool {
        self.capacity.max_jobs.is_some()
    }

    /// Nothing more fits, so nobody need look through what is ready. Without a number of jobs at once, all count CPUs.
    pub(super) fn is_exhausted(&self) -> bool {
        match self.capacity.max_jobs {
            Some(max) => self.jobs >= max,
            None => self.nodes.iter().all(|node| node.cpus == 0),
        }
    }

    /// Could ever run here, with nothing else running.
    pub fn could_hold(&self, asked: &Resources) -> bool {
        let node = Self::empty_node(&self.capacity);
        asked.nodes <= self.capacity.nodes
            && asked.cpus <= node.cpus
            && asked.memory <= node.memory
            && asked.gpus <= node.gpus
    }

    /// Puts a job of these needs somewhere, if it fits now.
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

    /// Gives back what [`Pool::place`] took for the same needs.
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

    /// The node where least is left afterwards, so that large holes stay for large jobs.
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
