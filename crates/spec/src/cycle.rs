//! Finds jobs that wait for each other in a circle.
//!
//! A walk in depth over jobs *and* lists: a list that a thousand jobs share is walked once, so the work is the size of
//! the spec and not of the graph it spells out.

use crate::resolve::ListRef;

/// With so many circles nobody looks for more: each may be as long as the workflow.
const MOST: usize = 50;

/// Who waits for whom.
pub(crate) trait Graph {
    fn jobs(&self) -> u32;

    /// How many shared lists there are.
    fn shared_lists(&self) -> usize;

    /// The `n`th list of what a job waits for. Numbers beyond the last job are passed over.
    fn list(&self, job: u32, n: u32) -> Option<ListRef<'_>>;
}

/// Some circles, if there are any: jobs that each wait for the next, and the last for the first.
pub(crate) fn circles(graph: &impl Graph) -> Vec<Vec<u32>> {
    if only_looks_back(graph) {
        return Vec::new();
    }
    let jobs = vec![Mark::New; graph.jobs() as usize];
    let lists = vec![Mark::New; graph.shared_lists()];
    let mut walk = Walk { graph, jobs, lists, path: Vec::new(), found: Vec::new() };
    for job in 0..graph.jobs() {
        if walk.found.len() < MOST && walk.jobs[job as usize] == Mark::New {
            walk.enter(job);
            walk.run();
        }
    }
    walk.found
}

/// Whether every job waits only for jobs with smaller numbers. Most specs are written that way, and then no walk is
/// needed.
fn only_looks_back(graph: &impl Graph) -> bool {
    let mut last_in: Vec<Option<u32>> = vec![None; graph.shared_lists()];
    let last = |items: &[u32]| {
        items.iter().copied().filter(|item| *item < graph.jobs()).max().map_or(0, |job| job + 1)
    };
    (0..graph.jobs()).all(|job| {
        let mut lists = (0..).map_while(|n| graph.list(job, n));
        lists.all(|list| match list.shared {
            None => last(list.items) <= job,
            Some(shared) => *last_in[shared as usize].get_or_insert_with(|| last(list.items)) <= job,
        })
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    New,
    /// On the way from the start to here.
    OnPath,
    Done,
}

/// A job whose lists are being walked.
struct Step {
    job: u32,
    /// Which of its lists, and which item of that comes next.
    list: u32,
    next: u32,
}

struct Walk<'a, G> {
    graph: &'a G,
    jobs: Vec<Mark>,
    lists: Vec<Mark>,
    path: Vec<Step>,
    found: Vec<Vec<u32>>,
}

impl<G: Graph> Walk<'_, G> {
    fn enter(&mut self, job: u32) {
        self.jobs[job as usize] = Mark::OnPath;
        self.path.push(Step { job, list: 0, next: 0 });
    }

    fn run(&mut self) {
        while let Some(step) = self.path.last()
            && self.found.len() < MOST
        {
            let (job, next) = (step.job, step.next as usize);
            let Some(list) = self.graph.list(job, step.list) else {
                self.jobs[job as usize] = Mark::Done;
                self.path.pop();
                continue;
            };
            if next == 0 && !self.begin(list) || next >= list.items.len() {
                self.end(list, next);
                continue;
            }
            if let Some(step) = self.path.last_mut() {
                step.next += 1;
            }
            let target = list.items[next];
            match self.jobs.get(target as usize) {
                Some(Mark::New) => self.enter(target),
                Some(Mark::OnPath) => {
                    let from = self.path.iter().rposition(|step| step.job == target).unwrap_or(0);
                    self.found.push(self.path[from..].iter().map(|step| step.job).collect());
                }
                Some(Mark::Done) | None => {}
            }
        }
    }

    /// Begins a list of the last job on the path. `false`: it need not be walked.
    fn begin(&mut self, list: ListRef<'_>) -> bool {
        let Some(shared) = list.shared else { return true };
        match self.lists[shared as usize] {
            Mark::New => {
                self.lists[shared as usize] = Mark::OnPath;
                true
            }
            Mark::OnPath => {
                self.circle_through(shared);
                false
            }
            Mark::Done => false,
        }
    }

    /// Goes on to the next list of the last job on the path.
    fn end(&mut self, list: ListRef<'_>, next: usize) {
        if let Some(shared) = list.shared
            && next > 0
        {
            self.lists[shared as usize] = Mark::Done;
        }
        if let Some(step) = self.path.last_mut() {
            step.list += 1;
            step.next = 0;
        }
    }

    /// The last job waits for a list that is on the path: whoever the path went to from that list waits for this job.
    fn circle_through(&mut self, shared: u32) {
        let on_it = |step: &Step| {
            step.next > 0
                && self.graph.list(step.job, step.list).is_some_and(|list| list.shared == Some(shared))
        };
        let Some(owner) = self.path.iter().rposition(on_it) else { return };
        self.found.push(self.path[owner + 1..].iter().map(|step| step.job).collect());
    }
}
