//! Dependency counts: scales to a million jobs, with groups for "all of these before all of those".

use crate::dependency_edges::DependencyEdges;
use rustc_hash::FxHashMap;

/// The dependency graph of one workflow over jobs `0..n`.
///
/// Dependency groups are nodes of the same graph: they have a count like jobs and release their waiters when it
/// drops to zero. Finishing a job visits its own out-edges, never scans. The nodes are the initial jobs, then
/// the groups, then the jobs that were added later.
#[derive(Clone, Debug)]
pub struct JobDependencyGraph {
    /// Number of initial jobs.
    jobs: u32,
    groups: u32,
    /// CSR: the successors of initial node `i` are `targets[starts[i]..starts[i + 1]]`.
    starts: Vec<u32>,
    targets: Vec<u32>,
    /// Jobs added later, by the node that they wait for.
    added_successors: FxHashMap<u32, Vec<u32>>,
    /// Number of predecessors of each node that have not ended.
    pending_dependencies: Vec<u32>,
    /// Whether a dependency, direct or through a group, did not complete.
    failed_upstream: Vec<bool>,
    /// Scratch space for [`JobDependencyGraph::finish_job`], kept to avoid the allocation.
    stack: Vec<u32>,
}

/// Jobs that wait for each other, in order; the last waits for the first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} jobs depend on each other in a cycle", .0.len())]
pub struct DependencyCycle(pub Vec<u32>);

impl JobDependencyGraph {
    /// Builds the graph with no job finished.
    pub fn new(jobs: u32, edges: &DependencyEdges) -> Result<Self, DependencyCycle> {
        let nodes = jobs as usize + edges.groups.len();
        let pairs = || {
            let direct = edges.direct.iter().map(|&(job, on)| (on, job));
            let members = edges
                .groups
                .iter()
                .zip(jobs..)
                .flat_map(|(members, group)| members.iter().map(move |&m| (m, group)));
            let waits = edges.waits.iter().map(move |&(job, group)| (jobs + group, job));
            direct.chain(members).chain(waits)
        };
        let mut starts = vec![0u32; nodes + 1];
        let mut waiting = vec![0u32; nodes];
        for (from, to) in pairs() {
            starts[from as usize + 1] += 1;
            waiting[to as usize] += 1;
        }
        for i in 0..nodes {
            starts[i + 1] += starts[i];
        }
        let mut targets = vec![0u32; starts[nodes] as usize];
        let mut fill = starts.clone();
        for (from, to) in pairs() {
            targets[fill[from as usize] as usize] = to;
            fill[from as usize] += 1;
        }
        let graph = Self {
            jobs,
            groups: edges.groups.len() as u32,
            starts,
            targets,
            added_successors: FxHashMap::default(),
            pending_dependencies: waiting,
            failed_upstream: vec![false; nodes],
            stack: Vec::new(),
        };
        match graph.find_cycle() {
            None => Ok(graph),
            Some(cycle) => Err(DependencyCycle(cycle)),
        }
    }

    /// Adds a job without dependencies. Returns its number.
    pub fn add_job(&mut self) -> u32 {
        let node = self.pending_dependencies.len() as u32;
        self.pending_dependencies.push(0);
        self.failed_upstream.push(false);
        node - self.groups
    }

    /// Adds a dependency of a job added later. `over`: whether the dependency completed, if it has ended.
    pub fn add_dependency(&mut self, job: u32, on: u32, over: Option<bool>) {
        let (node, on) = (self.node_of_job(job), self.node_of_job(on));
        match over {
            Some(well) => self.failed_upstream[node as usize] |= !well,
            None => self.pending_dependencies[node as usize] += 1,
        }
        self.added_successors.entry(on).or_default().push(node);
    }

    /// Whether all dependencies of `job` have ended.
    pub fn is_unblocked(&self, job: u32) -> bool {
        self.pending_dependencies[self.node_of_job(job) as usize] == 0
    }

    /// Whether a dependency of `job` has ended without completing.
    pub fn has_failed_dependency(&self, job: u32) -> bool {
        self.failed_upstream[self.node_of_job(job) as usize]
    }

    const fn node_of_job(&self, job: u32) -> u32 {
        if job < self.jobs { job } else { job + self.groups }
    }

    /// Returns `None` for a dependency group.
    const fn job_of_node(&self, node: u32) -> Option<u32> {
        match node {
            _ if node < self.jobs => Some(node),
            _ if node < self.jobs + self.groups => None,
            _ => Some(node - self.groups),
        }
    }

    /// Records that `job` ended. Calls `freed(dependent, tainted)` for each job that waits for nothing more
    /// because of it.
    pub fn finish_job(&mut self, job: u32, well: bool, mut freed: impl FnMut(u32, bool)) {
        let ended = self.node_of_job(job);
        if !well {
            self.failed_upstream[ended as usize] = true;
        }
        // A job passes on only how it ended; a dependency group passes on failures of its members.
        debug_assert!(self.stack.is_empty());
        self.stack.push(ended);
        while let Some(node) = self.stack.pop() {
            let ill = if node == ended { !well } else { self.failed_upstream[node as usize] };
            for i in self.target_range(node) {
                self.release_node(self.targets[i], ill, &mut freed);
            }
            if let Some(later) = self.added_successors.remove(&node) {
                for &next in &later {
                    self.release_node(next, ill, &mut freed);
                }
                self.added_successors.insert(node, later);
            }
        }
    }

    /// Decrements the dependency count of `next`.
    fn release_node(&mut self, next: u32, ill: bool, freed: &mut impl FnMut(u32, bool)) {
        self.failed_upstream[next as usize] |= ill;
        self.pending_dependencies[next as usize] -= 1;
        if self.pending_dependencies[next as usize] == 0 {
            match self.job_of_node(next) {
                None => self.stack.push(next),
                Some(job) => freed(job, self.failed_upstream[next as usize]),
            }
        }
    }

    /// Returns the jobs that wait for `job`, directly or through one dependency group.
    pub fn dependents(&self, job: u32) -> impl Iterator<Item = u32> + '_ {
        let node = self.node_of_job(job);
        let later = self.added_successors.get(&node).map_or(&[][..], Vec::as_slice);
        self.successors(node).iter().chain(later).flat_map(move |&next| {
            let through_group = if self.job_of_node(next).is_none() { self.successors(next) } else { &[] };
            self.job_of_node(next).into_iter().chain(through_group.iter().copied())
        })
    }

    /// Returns successors among the initial nodes.
    fn successors(&self, node: u32) -> &[u32] {
        &self.targets[self.target_range(node)]
    }

    /// Returns the range of its successors in `targets`.
    fn target_range(&self, node: u32) -> std::ops::Range<usize> {
        match self.starts.get(node as usize..node as usize + 2) {
            Some(&[start, end]) => start as usize..end as usize,
            _ => 0..0,
        }
    }

    /// Removes unblocked nodes as a run would; the remaining nodes contain a cycle, which is then followed.
    fn find_cycle(&self) -> Option<Vec<u32>> {
        let mut waiting = self.pending_dependencies.clone();
        let mut free: Vec<u32> = (0..waiting.len() as u32).filter(|&n| waiting[n as usize] == 0).collect();
        let mut peeled = 0;
        while let Some(node) = free.pop() {
            peeled += 1;
            for &next in self.successors(node) {
                waiting[next as usize] -= 1;
                if waiting[next as usize] == 0 {
                    free.push(next);
                }
            }
        }
        if peeled == waiting.len() {
            return None;
        }
        // Every remaining node has a remaining predecessor, so going backwards must reach a node again.
        let mut predecessor = vec![u32::MAX; waiting.len()];
        for node in (0..waiting.len() as u32).filter(|&n| waiting[n as usize] > 0) {
            for &next in self.successors(node) {
                predecessor[next as usize] = node;
            }
        }
        let mut node = (0..waiting.len()).find(|&n| waiting[n] > 0)? as u32;
        let mut seen = vec![false; waiting.len()];
        while !std::mem::replace(&mut seen[node as usize], true) {
            node = predecessor[node as usize];
        }
        let mut cycle = vec![node];
        let mut at = predecessor[node as usize];
        while at != node {
            cycle.push(at);
            at = predecessor[at as usize];
        }
        cycle.retain(|&n| n < self.jobs);
        Some(cycle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dependency_edges::DependencyEdgesBuilder;

    fn graph(jobs: u32, depends: &[(u32, &[u32])]) -> Result<JobDependencyGraph, DependencyCycle> {
        let mut builder = DependencyEdgesBuilder::default();
        for (job, on) in depends {
            builder.add_dependencies(*job, on);
        }
        JobDependencyGraph::new(jobs, &builder.finish())
    }

    fn settle(graph: &mut JobDependencyGraph, job: u32, well: bool) -> Vec<(u32, bool)> {
        let mut freed = Vec::new();
        graph.finish_job(job, well, |j, tainted| freed.push((j, tainted)));
        freed
    }

    #[test]
    fn diamond_opens_in_order() {
        let mut g = graph(4, &[(1, &[0]), (2, &[0]), (3, &[1, 2])]).unwrap();
        assert!(g.is_unblocked(0) && !g.is_unblocked(3));
        assert_eq!(settle(&mut g, 0, true), [(1, false), (2, false)]);
        assert_eq!(settle(&mut g, 1, true), []);
        assert_eq!(settle(&mut g, 2, true), [(3, false)]);
    }

    #[test]
    fn dependents_are_released_tainted_after_all_ended() {
        let mut g = graph(4, &[(2, &[0, 1]), (3, &[0, 1])]).unwrap();
        assert_eq!(settle(&mut g, 0, false), []);
        assert_eq!(settle(&mut g, 1, true), [(2, true), (3, true)]);
    }

    #[test]
    fn completed_dependent_ends_the_taint() {
        let mut g = graph(3, &[(1, &[0]), (2, &[1])]).unwrap();
        assert_eq!(settle(&mut g, 0, false), [(1, true)]);
        assert_eq!(settle(&mut g, 1, true), [(2, false)]);
    }

    #[test]
    fn cycles_are_found_and_shown_as_a_path() {
        let cycle = graph(5, &[(1, &[0, 3]), (2, &[1]), (3, &[2]), (4, &[3])]).unwrap_err().0;
        let mut sorted = cycle.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [1, 2, 3], "{cycle:?}");
        assert_eq!(graph(1, &[(0, &[0])]).unwrap_err(), DependencyCycle(vec![0]));
    }

    #[test]
    fn added_jobs_wait_for_unfinished_dependencies_only() {
        // 2 and 3 wait for 0 and 1 through a group, whose node lies between them and later nodes.
        let mut g = graph(4, &[(2, &[0, 1]), (3, &[0, 1])]).unwrap();
        settle(&mut g, 0, false);
        let (a, b) = (g.add_job(), g.add_job());
        assert_eq!((a, b), (4, 5));
        g.add_dependency(a, 0, Some(false));
        g.add_dependency(b, a, None);
        g.add_dependency(b, 1, None);
        assert!(
            g.is_unblocked(a)
                && g.has_failed_dependency(a)
                && !g.is_unblocked(b)
                && !g.has_failed_dependency(b)
        );
        assert_eq!(
            (g.dependents(a).collect::<Vec<_>>(), g.dependents(1).collect::<Vec<_>>()),
            (vec![5], vec![2, 3, 5])
        );
        assert_eq!(settle(&mut g, a, true), []);
        assert_eq!(settle(&mut g, 1, true), [(5, false), (2, true), (3, true)]);
        assert!(g.is_unblocked(b));
        assert_eq!(settle(&mut g, b, true), []);
    }

    #[test]
    fn dependency_group_has_linear_edges() {
        let first: Vec<u32> = (0..1000).collect();
        let mut builder = DependencyEdgesBuilder::default();
        (1000..2000).for_each(|job| builder.add_dependencies(job, &first));
        let mut g = JobDependencyGraph::new(2000, &builder.finish()).unwrap();
        assert_eq!(g.targets.len(), 2000, "edges, not pairs");
        let mut freed = 0;
        for job in 0..1000 {
            g.finish_job(job, true, |_, _| freed += 1);
        }
        assert_eq!(freed, 1000);
        assert_eq!(g.dependents(0).count(), 1000);
    }

    #[test]
    fn long_chain_does_not_overflow_the_stack() {
        let mut builder = DependencyEdgesBuilder::default();
        (1..1_000_000).for_each(|job| builder.add_dependencies(job, &[job - 1]));
        let mut g = JobDependencyGraph::new(1_000_000, &builder.finish()).unwrap();
        let mut at = 0;
        while at < 999_999 {
            let mut freed = None;
            g.finish_job(at, true, |job, _| freed = Some(job));
            at = freed.unwrap();
        }
    }
}
