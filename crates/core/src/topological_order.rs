//! The static graph in topological order and with predecessors: for plans, resets and explanations.
//!
//! [`crate::dependency_graph::JobDependencyGraph`] counts down while a workflow runs; this one does not change. As there,
//! dependency groups are nodes `jobs..`, so that traversals cost the entries of [`DependencyEdges`] and not the
//! pairs that they represent.

use crate::dependency_edges::DependencyEdges;
use crate::dependency_graph::{DependencyCycle, JobDependencyGraph};

#[derive(Clone, Debug)]
pub(crate) struct TopologicalOrder {
    jobs: u32,
    predecessors: AdjacencyLists,
    sorted: Vec<u32>,
}

/// A list of nodes per node, all in one array.
#[derive(Clone, Debug)]
struct AdjacencyLists {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl TopologicalOrder {
    pub(crate) fn new(jobs: u32, edges: &DependencyEdges) -> Result<Self, DependencyCycle> {
        let nodes = jobs as usize + edges.groups.len();
        let before = AdjacencyLists::new(nodes, || dependency_pairs(jobs, edges));
        let after = AdjacencyLists::new(nodes, || dependency_pairs(jobs, edges).map(|(node, on)| (on, node)));
        let sorted = sort_topologically(&before, &after);
        if sorted.len() < nodes {
            // The other graph can name the jobs of the cycle.
            return Err(JobDependencyGraph::new(jobs, edges).err().unwrap_or(DependencyCycle(Vec::new())));
        }
        Ok(Self { jobs, predecessors: before, sorted })
    }

    pub(crate) fn is_group(&self, node: u32) -> bool {
        node >= self.jobs
    }

    /// Jobs and dependency groups, each after its dependencies.
    pub(crate) fn sorted(&self) -> &[u32] {
        &self.sorted
    }

    /// Length of the longest chain of jobs before each job and dependency group.
    pub(crate) fn depths(&self) -> Vec<u32> {
        let mut depth = vec![0u32; self.len()];
        for &node in self.sorted() {
            let after = |&before: &u32| depth[before as usize] + u32::from(!self.is_group(before));
            depth[node as usize] = self.predecessors(node).iter().map(after).max().unwrap_or(0);
        }
        depth
    }

    /// Number of jobs and dependency groups.
    pub(crate) fn len(&self) -> usize {
        self.sorted.len()
    }

    /// The jobs and dependency groups that `node` waits for.
    pub(crate) fn predecessors(&self, node: u32) -> &[u32] {
        self.predecessors.neighbors(node)
    }
}

/// `(node, dependency)` over jobs and dependency groups.
fn dependency_pairs(jobs: u32, edges: &DependencyEdges) -> impl Iterator<Item = (u32, u32)> + '_ {
    let members = edges.groups.iter().zip(jobs..);
    let members = members.flat_map(|(members, group)| members.iter().map(move |&member| (group, member)));
    let waits = edges.waits.iter().map(move |&(job, group)| (job, jobs + group));
    edges.direct.iter().copied().chain(members).chain(waits)
}

impl AdjacencyLists {
    fn new<I: Iterator<Item = (u32, u32)>>(nodes: usize, pairs: impl Fn() -> I) -> Self {
        let mut starts = vec![0u32; nodes + 1];
        for (owner, _) in pairs() {
            starts[owner as usize + 1] += 1;
        }
        for i in 0..nodes {
            starts[i + 1] += starts[i];
        }
        let mut items = vec![0u32; starts[nodes] as usize];
        let mut fill = starts.clone();
        for (owner, item) in pairs() {
            items[fill[owner as usize] as usize] = item;
            fill[owner as usize] += 1;
        }
        Self { starts, items }
    }

    fn neighbors(&self, node: u32) -> &[u32] {
        &self.items[self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize]
    }
}

/// Nodes without dependencies first, in numerical order; incomplete if there is a cycle.
fn sort_topologically(before: &AdjacencyLists, after: &AdjacencyLists) -> Vec<u32> {
    let nodes = before.starts.len() as u32 - 1;
    let mut waiting: Vec<u32> = (0..nodes).map(|node| before.neighbors(node).len() as u32).collect();
    let mut sorted: Vec<u32> = (0..nodes).filter(|&node| waiting[node as usize] == 0).collect();
    let mut next = 0;
    while next < sorted.len() {
        for &node in after.neighbors(sorted[next]) {
            waiting[node as usize] -= 1;
            if waiting[node as usize] == 0 {
                sorted.push(node);
            }
        }
        next += 1;
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dependency_edges::DependencyEdgesBuilder;

    fn edges(depends: &[(u32, &[u32])]) -> DependencyEdges {
        let mut builder = DependencyEdgesBuilder::default();
        for (job, on) in depends {
            builder.add_dependencies(*job, on);
        }
        builder.finish()
    }

    #[test]
    fn order_respects_dependencies() {
        let order =
            TopologicalOrder::new(5, &edges(&[(0, &[3, 4]), (1, &[3, 4]), (2, &[0]), (3, &[4])])).unwrap();
        assert_eq!(order.sorted(), [4, 3, 5, 0, 1, 2], "5 is the dependency group");
        assert!(order.is_group(5) && !order.is_group(4));
        assert_eq!((order.predecessors(0), order.predecessors(5)), (&[5][..], &[3, 4][..]));
    }

    #[test]
    fn cycle_is_named() {
        let cycle = TopologicalOrder::new(3, &edges(&[(0, &[1]), (1, &[0]), (2, &[1])])).unwrap_err();
        assert_eq!(cycle.0.len(), 2);
    }
}
