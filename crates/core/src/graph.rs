//! Who waits for whom, as counts: a million jobs, and a gate for "all of these before all of those".

use crate::edges::Edges;
use rustc_hash::FxHashMap;

/// The dependency graph of one workflow over jobs `0..n`.
///
/// Gates are nodes of the same graph: they hold a count like a job does, and pass on what reached them the moment it drops
/// to zero. Finishing a job costs its own out-edges, never a scan. The nodes are the jobs that the graph was made with,
/// then the gates, then the jobs that were added later.
#[derive(Clone, Debug)]
pub struct Graph {
    /// That the graph was made with.
    jobs: u32,
    gates: u32,
    /// CSR: successors of node `i`, if it is not a later one, are `targets[starts[i]..starts[i + 1]]`.
    starts: Vec<u32>,
    targets: Vec<u32>,
    /// Later jobs, by the node that they wait for.
    later: FxHashMap<u32, Vec<u32>>,
    /// How many predecessors of each node are not over yet.
    waiting: Vec<u32>,
    /// Something it depends on, directly or through a gate, did not end well.
    tainted: Vec<bool>,
    /// Scratch for [`Graph::settle`], kept to save the allocation.
    stack: Vec<u32>,
}

/// Jobs that wait for each other, in order; the last waits for the first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} jobs wait for each other in a circle", .0.len())]
pub struct Cycle(pub Vec<u32>);

impl Graph {
    /// Builds the graph with nothing finished.
    pub fn new(jobs: u32, edges: &Edges) -> Result<Self, Cycle> {
        let nodes = jobs as usize + edges.gates.len();
        let pairs = || {
            let direct = edges.direct.iter().map(|&(job, on)| (on, job));
            let members = edges
                .gates
                .iter()
                .zip(jobs..)
                .flat_map(|(members, gate)| members.iter().map(move |&m| (m, gate)));
            let waits = edges.waits.iter().map(move |&(job, gate)| (jobs + gate, job));
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
            gates: edges.gates.len() as u32,
            starts,
            targets,
            later: FxHashMap::default(),
            waiting,
            tainted: vec![false; nodes],
            stack: Vec::new(),
        };
        match graph.find_cycle() {
            None => Ok(graph),
            Some(cycle) => Err(Cycle(cycle)),
        }
    }

    /// One more job, which waits for nothing yet. Returns its number.
    pub fn add_job(&mut self) -> u32 {
        let node = self.waiting.len() as u32;
        self.waiting.push(0);
        self.tainted.push(false);
        node - self.gates
    }

    /// A job that was added waits for another one, too. `over`: whether that one ended well, if it is over already.
    pub fn wait_for(&mut self, job: u32, on: u32, over: Option<bool>) {
        let (node, on) = (self.node(job), self.node(on));
        match over {
            Some(well) => self.tainted[node as usize] |= !well,
            None => self.waiting[node as usize] += 1,
        }
        self.later.entry(on).or_default().push(node);
    }

    /// All that `job` waited for is over.
    pub fn is_free(&self, job: u32) -> bool {
        self.waiting[self.node(job) as usize] == 0
    }

    /// Something that `job` waited for is over and did not end well.
    pub fn is_tainted(&self, job: u32) -> bool {
        self.tainted[self.node(job) as usize]
    }

    const fn node(&self, job: u32) -> u32 {
        if job < self.jobs { job } else { job + self.gates }
    }

    /// `None` for a gate.
    const fn job(&self, node: u32) -> Option<u32> {
        match node {
            _ if node < self.jobs => Some(node),
            _ if node < self.jobs + self.gates => None,
            _ => Some(node - self.gates),
        }
    }

    /// `job` is over. Calls `freed(dependent, tainted)` for each job that waits for nothing more because of it.
    pub fn settle(&mut self, job: u32, well: bool, mut freed: impl FnMut(u32, bool)) {
        let ended = self.node(job);
        if !well {
            self.tainted[ended as usize] = true;
        }
        // What a job is tainted by matters to itself; what it passes on is how it ended. A gate passes its taint on.
        debug_assert!(self.stack.is_empty());
        self.stack.push(ended);
        while let Some(node) = self.stack.pop() {
            let ill = if node == ended { !well } else { self.tainted[node as usize] };
            for i in self.range(node) {
                self.pass_on(self.targets[i], ill, &mut freed);
            }
            if let Some(later) = self.later.remove(&node) {
                for &next in &later {
                    self.pass_on(next, ill, &mut freed);
                }
                self.later.insert(node, later);
            }
        }
    }

    /// One thing fewer that `next` waits for.
    fn pass_on(&mut self, next: u32, ill: bool, freed: &mut impl FnMut(u32, bool)) {
        self.tainted[next as usize] |= ill;
        self.waiting[next as usize] -= 1;
        if self.waiting[next as usize] == 0 {
            match self.job(next) {
                None => self.stack.push(next),
                Some(job) => freed(job, self.tainted[next as usize]),
            }
        }
    }

    /// The jobs that wait for `job`, directly or through one gate.
    pub fn dependents(&self, job: u32) -> impl Iterator<Item = u32> + '_ {
        let node = self.node(job);
        let later = self.later.get(&node).map_or(&[][..], Vec::as_slice);
        self.successors(node).iter().chain(later).flat_map(move |&next| {
            let through_gate = if self.job(next).is_none() { self.successors(next) } else { &[] };
            self.job(next).into_iter().chain(through_gate.iter().copied())
        })
    }

    /// Of those that the graph was made with.
    fn successors(&self, node: u32) -> &[u32] {
        &self.targets[self.range(node)]
    }

    /// Where its successors are in `targets`.
    fn range(&self, node: u32) -> std::ops::Range<usize> {
        match self.starts.get(node as usize..node as usize + 2) {
            Some(&[start, end]) => start as usize..end as usize,
            _ => 0..0,
        }
    }

    /// Peels off what is free, as a run would; what is left holds a cycle, which is then walked.
    fn find_cycle(&self) -> Option<Vec<u32>> {
        let mut waiting = self.waiting.clone();
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
        // Every node that is left has a predecessor that is left: walking backwards must meet itself.
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
    use crate::edges::EdgesBuilder;

    fn graph(jobs: u32, depends: &[(u32, &[u32])]) -> Result<Graph, Cycle> {
        let mut builder = EdgesBuilder::default();
        for (job, on) in depends {
            builder.depend(*job, on);
        }
        Graph::new(jobs, &builder.finish())
    }

    fn settle(graph: &mut Graph, job: u32, well: bool) -> Vec<(u32, bool)> {
        let mut freed = Vec::new();
        graph.settle(job, well, |j, tainted| freed.push((j, tainted)));
        freed
    }

    #[test]
    fn a_diamond_opens_in_order() {
        let mut g = graph(4, &[(1, &[0]), (2, &[0]), (3, &[1, 2])]).unwrap();
        assert!(g.is_free(0) && !g.is_free(3));
        assert_eq!(settle(&mut g, 0, true), [(1, false), (2, false)]);
        assert_eq!(settle(&mut g, 1, true), []);
        assert_eq!(settle(&mut g, 2, true), [(3, false)]);
    }

    #[test]
    fn taint_reaches_those_who_wait_only_when_all_is_over() {
        let mut g = graph(4, &[(2, &[0, 1]), (3, &[0, 1])]).unwrap();
        assert_eq!(settle(&mut g, 0, false), []);
        assert_eq!(settle(&mut g, 1, true), [(2, true), (3, true)]);
    }

    #[test]
    fn a_dependent_that_ran_anyway_and_ended_well_passes_no_taint_on() {
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
        assert_eq!(graph(1, &[(0, &[0])]).unwrap_err(), Cycle(vec![0]));
    }

    #[test]
    fn jobs_that_come_later_wait_for_what_is_not_over_and_know_how_the_rest_ended() {
        // 2 and 3 wait for 0 and 1 through a gate, which stands between them and later ones in the list of nodes.
        let mut g = graph(4, &[(2, &[0, 1]), (3, &[0, 1])]).unwrap();
        settle(&mut g, 0, false);
        let (a, b) = (g.add_job(), g.add_job());
        assert_eq!((a, b), (4, 5));
        g.wait_for(a, 0, Some(false));
        g.wait_for(b, a, None);
        g.wait_for(b, 1, None);
        assert!(g.is_free(a) && g.is_tainted(a) && !g.is_free(b) && !g.is_tainted(b));
        assert_eq!(
            (g.dependents(a).collect::<Vec<_>>(), g.dependents(1).collect::<Vec<_>>()),
            (vec![5], vec![2, 3, 5])
        );
        assert_eq!(settle(&mut g, a, true), []);
        assert_eq!(settle(&mut g, 1, true), [(5, false), (2, true), (3, true)]);
        assert!(g.is_free(b));
        assert_eq!(settle(&mut g, b, true), []);
    }

    #[test]
    fn a_thousand_behind_a_thousand_takes_thousands_of_steps() {
        let first: Vec<u32> = (0..1000).collect();
        let mut builder = EdgesBuilder::default();
        (1000..2000).for_each(|job| builder.depend(job, &first));
        let mut g = Graph::new(2000, &builder.finish()).unwrap();
        assert_eq!(g.targets.len(), 2000, "edges, not pairs");
        let mut freed = 0;
        for job in 0..1000 {
            g.settle(job, true, |_, _| freed += 1);
        }
        assert_eq!(freed, 1000);
        assert_eq!(g.dependents(0).count(), 1000);
    }

    #[test]
    fn a_chain_of_a_million_needs_no_deep_stack() {
        let mut builder = EdgesBuilder::default();
        (1..1_000_000).for_each(|job| builder.depend(job, &[job - 1]));
        let mut g = Graph::new(1_000_000, &builder.finish()).unwrap();
        let mut at = 0;
        while at < 999_999 {
            let mut freed = None;
            g.settle(at, true, |job, _| freed = Some(job));
            at = freed.unwrap();
        }
    }
}
