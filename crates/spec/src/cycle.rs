//! Finds jobs that wait for each other in a circle.
//!
//! A walk in depth over jobs *and* lists: a list that a thousand jobs share is walked once, so the work is the size of
//! the spec and not of the graph it spells out.

use crate::diagnostic::{Diagnostic, Sink};
use crate::model::Spec;
use crate::source::Span;

/// Longer circles are shown by their beginning and end.
const SHOWN: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    New,
    /// On the way from the start to here.
    OnPath,
    Done,
}

/// A job whose list is being walked.
struct Step {
    job: u32,
    /// The next entry of its list, in `targets`.
    next: u32,
    end: u32,
    /// Where the list begins; its identity.
    list: u32,
}

struct Walk<'a, 's> {
    spec: &'a Spec<'s>,
    targets: &'a [u32],
    sink: &'a mut Sink,
    jobs: Vec<Mark>,
    /// By the place where a list begins.
    lists: Vec<Mark>,
    path: Vec<Step>,
}

/// Reports circles; `targets` may hold numbers beyond the last job, which are passed over.
pub(crate) fn report_cycles(spec: &Spec<'_>, targets: &[u32], sink: &mut Sink) {
    let jobs = vec![Mark::New; spec.jobs.len()];
    let lists = vec![Mark::New; targets.len()];
    let mut walk = Walk { spec, targets, sink, jobs, lists, path: Vec::new() };
    for job in 0..spec.jobs.len() as u32 {
        if walk.jobs[job as usize] == Mark::New {
            walk.enter(job);
            walk.run();
        }
    }
}

impl Walk<'_, '_> {
    fn run(&mut self) {
        while let Some(step) = self.path.last_mut() {
            if step.next == step.end {
                self.jobs[step.job as usize] = Mark::Done;
                self.lists[step.list as usize] = Mark::Done;
                self.path.pop();
                continue;
            }
            let entry = step.next;
            step.next += 1;
            let target = self.targets[entry as usize];
            match self.jobs.get(target as usize) {
                Some(Mark::New) => self.enter(target),
                Some(Mark::OnPath) => {
                    let from = self.path.iter().rposition(|step| step.job == target).unwrap_or(0);
                    let circle: Vec<u32> = self.path[from..].iter().map(|step| step.job).collect();
                    self.report(&circle, entry);
                }
                Some(Mark::Done) | None => {}
            }
        }
    }

    fn enter(&mut self, job: u32) {
        let list = self.spec.jobs[job as usize].depends_on;
        self.jobs[job as usize] = Mark::Done;
        if list.is_empty() {
            return;
        }
        match self.lists[list.start as usize] {
            Mark::New => {
                self.jobs[job as usize] = Mark::OnPath;
                self.lists[list.start as usize] = Mark::OnPath;
                self.path.push(Step { job, next: list.start, end: list.end, list: list.start });
            }
            Mark::OnPath => self.report_through_list(job, list.start),
            Mark::Done => {}
        }
    }

    /// `job` waits for a list that is on the path: the entry through which the path left that list waits for `job`.
    fn report_through_list(&mut self, job: u32, list: u32) {
        let Some(owner) = self.path.iter().rposition(|step| step.list == list) else { return };
        let entry = self.path[owner].next - 1;
        let mut circle: Vec<u32> = self.path[owner + 1..].iter().map(|step| step.job).collect();
        circle.push(job);
        self.report(&circle, entry);
    }

    /// `circle` lists jobs that each wait for the next; the last waits for the first, as `entry` says.
    fn report(&mut self, circle: &[u32], entry: u32) {
        let span = self.spec.names[entry as usize].span;
        let name = |job: u32| self.spec.job_name(job);
        if let &[job] = circle {
            self.sink.push(
                Diagnostic::new("self-dependency", format!("job `{}` depends on itself", name(job))).at(span),
            );
            return;
        }
        if self.sink.is_full() {
            self.sink.push(Diagnostic::new("cycle", "jobs wait for each other in a circle").at(span));
            return;
        }
        let mut diagnostic =
            Diagnostic::new("cycle", format!("jobs wait for each other in a circle: {}", self.spell(circle)))
                .at(span);
        let last = circle.len() - 1;
        diagnostic = diagnostic.label(span, self.waits(circle[last], circle[0]));
        for pair in circle.windows(2).take(SHOWN) {
            if let Some(place) = self.place(pair[0], pair[1]) {
                diagnostic = diagnostic.label(place, self.waits(pair[0], pair[1]));
            }
        }
        self.sink.push(diagnostic);
    }

    fn waits(&self, job: u32, on: u32) -> String {
        format!("`{}` waits for `{}`", self.spec.job_name(job), self.spec.job_name(on))
    }

    /// Where `job` names `on`.
    fn place(&self, job: u32, on: u32) -> Option<Span> {
        let range = self.spec.jobs[job as usize].depends_on.range();
        let entry = self.targets[range.clone()].iter().position(|target| *target == on)?;
        Some(self.spec.names[range.start + entry].span)
    }

    /// `a -> b -> c -> a`
    fn spell(&self, circle: &[u32]) -> String {
        let name = |job: &u32| self.spec.job_name(*job).to_owned();
        let mut names: Vec<String> = circle.iter().chain(&circle[..1]).map(name).collect();
        if names.len() > SHOWN {
            let left_out = names.len() - SHOWN;
            names.splice(SHOWN - 2..names.len() - 2, [format!("({left_out} more)")]);
        }
        names.join(" -> ")
    }
}
