//! Finds jobs that depend on each other in a cycle.
//!
//! A depth-first search over jobs *and* shared lists: a list that a thousand jobs share is visited once, so the
//! work is proportional to the size of the spec, not of the expanded graph.

use crate::resolve::ListRef;

/// Maximum number of cycles to report: each may be as long as the workflow.
const MAX_CYCLES: usize = 50;

/// The dependencies of jobs.
pub(crate) trait DependencyGraph {
    fn job_count(&self) -> u32;

    /// The number of shared lists.
    fn shared_list_count(&self) -> usize;

    /// The `n`th dependency list of a job. Numbers beyond the last job are ignored.
    fn dependency_list(&self, job: u32, n: u32) -> Option<ListRef<'_>>;
}

/// Returns some cycles, if there are any: each job depends on the next, and the last one on the first.
pub(crate) fn find_cycles(graph: &impl DependencyGraph) -> Vec<Vec<u32>> {
    if has_only_backward_edges(graph) {
        return Vec::new();
    }
    let jobs = vec![VisitState::New; graph.job_count() as usize];
    let lists = vec![VisitState::New; graph.shared_list_count()];
    let mut walk = CycleSearch { graph, jobs, lists, path: Vec::new(), cycles: Vec::new() };
    for job in 0..graph.job_count() {
        if walk.cycles.len() < MAX_CYCLES && walk.jobs[job as usize] == VisitState::New {
            walk.enter_job(job);
            walk.run();
        }
    }
    walk.cycles
}

/// Whether every job depends only on jobs with smaller numbers. Most specs are written that way and need no
/// search.
fn has_only_backward_edges(graph: &impl DependencyGraph) -> bool {
    let mut last_in: Vec<Option<u32>> = vec![None; graph.shared_list_count()];
    let last = |items: &[u32]| {
        items.iter().copied().filter(|item| *item < graph.job_count()).max().map_or(0, |job| job + 1)
    };
    (0..graph.job_count()).all(|job| {
        let mut lists = (0..).map_while(|n| graph.dependency_list(job, n));
        lists.all(|list| match list.shared {
            None => last(list.items) <= job,
            Some(shared) => *last_in[shared as usize].get_or_insert_with(|| last(list.items)) <= job,
        })
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum VisitState {
    New,
    /// On the path from the start to the current node.
    OnPath,
    Done,
}

/// A job whose lists are being visited.
struct SearchFrame {
    job: u32,
    /// The current list of the job and the next item in it.
    list: u32,
    next: u32,
}

struct CycleSearch<'a, G> {
    graph: &'a G,
    jobs: Vec<VisitState>,
    lists: Vec<VisitState>,
    path: Vec<SearchFrame>,
    cycles: Vec<Vec<u32>>,
}

impl<G: DependencyGraph> CycleSearch<'_, G> {
    fn enter_job(&mut self, job: u32) {
        self.jobs[job as usize] = VisitState::OnPath;
        self.path.push(SearchFrame { job, list: 0, next: 0 });
    }

    fn run(&mut self) {
        while let Some(step) = self.path.last()
            && self.cycles.len() < MAX_CYCLES
        {
            let (job, next) = (step.job, step.next as usize);
            let Some(list) = self.graph.dependency_list(job, step.list) else {
                self.jobs[job as usize] = VisitState::Done;
                self.path.pop();
                continue;
            };
            if next == 0 && !self.enter_list(list) || next >= list.items.len() {
                self.leave_list(list, next);
                continue;
            }
            if let Some(step) = self.path.last_mut() {
                step.next += 1;
            }
            let target = list.items[next];
            match self.jobs.get(target as usize) {
                Some(VisitState::New) => self.enter_job(target),
                Some(VisitState::OnPath) => {
                    let from = self.path.iter().rposition(|step| step.job == target).unwrap_or(0);
                    self.cycles.push(self.path[from..].iter().map(|step| step.job).collect());
                }
                Some(VisitState::Done) | None => {}
            }
        }
    }

    /// Starts a list of the last job on the path. Returns `false` if it need not be visited.
    fn enter_list(&mut self, list: ListRef<'_>) -> bool {
        let Some(shared) = list.shared else { return true };
        match self.lists[shared as usize] {
            VisitState::New => {
                self.lists[shared as usize] = VisitState::OnPath;
                true
            }
            VisitState::OnPath => {
                self.record_cycle_through(shared);
                false
            }
            VisitState::Done => false,
        }
    }

    /// Moves to the next list of the last job on the path.
    fn leave_list(&mut self, list: ListRef<'_>, next: usize) {
        if let Some(shared) = list.shared
            && next > 0
        {
            self.lists[shared as usize] = VisitState::Done;
        }
        if let Some(step) = self.path.last_mut() {
            step.list += 1;
            step.next = 0;
        }
    }

    /// Records a cycle: the last job depends on a list that is on the path, so the jobs on the path after that
    /// list form a cycle.
    fn record_cycle_through(&mut self, shared: u32) {
        let on_it = |step: &SearchFrame| {
            step.next > 0
                && self
                    .graph
                    .dependency_list(step.job, step.list)
                    .is_some_and(|list| list.shared == Some(shared))
        };
        let Some(owner) = self.path.iter().rposition(on_it) else { return };
        self.cycles.push(self.path[owner + 1..].iter().map(|step| step.job).collect());
    }
}
