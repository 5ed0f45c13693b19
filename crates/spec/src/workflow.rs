//! A spec that makes sense: every name is known, nothing waits in a circle.

use crate::model::{RequirementsSpec, Spec};
use crate::resolve::Resolved;
use windlass_types::work::Stdio;

/// A workflow as its spec file describes it. Borrows from the text of the file.
#[derive(Clone, Debug)]
pub struct Workflow<'s> {
    spec: Spec<'s>,
    resolved: Resolved,
}

/// A job of a [`Workflow`]. Jobs are numbered from 0 in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job<'a> {
    pub name: &'a str,
    pub command: &'a str,
    /// On top of [`Workflow::env`].
    pub env: &'a [(String, String)],
    /// The numbers of the jobs it waits for, as written: in any order, maybe with repetitions. Jobs that share a list
    /// through an alias get the same slice.
    pub depends_on: &'a [u32],
    /// Index into [`Workflow::requirements`].
    pub requirements: Option<u32>,
    pub priority: i32,
    pub cancel_on_blocking_job_failure: bool,
}

impl<'s> Workflow<'s> {
    pub(crate) fn new(spec: Spec<'s>, resolved: Resolved) -> Self {
        Self { spec, resolved }
    }

    pub fn name(&self) -> &str {
        self.spec.texts.get(self.spec.name)
    }

    pub fn user(&self) -> Option<&str> {
        self.spec.user.map(|text| self.spec.texts.get(text))
    }

    pub fn description(&self) -> Option<&str> {
        self.spec.description.map(|text| self.spec.texts.get(text))
    }

    /// Given to every job.
    pub fn env(&self) -> &[(String, String)] {
        &self.spec.variables[self.spec.env.range()]
    }

    pub fn stdio(&self) -> Stdio {
        self.spec.stdio
    }

    pub fn requirements(&self) -> &[RequirementsSpec] {
        &self.spec.requirements
    }

    pub fn job_count(&self) -> usize {
        self.spec.jobs.len()
    }

    /// # Panics
    /// If there is no such job.
    pub fn job(&self, number: usize) -> Job<'_> {
        let job = &self.spec.jobs[number];
        Job {
            name: self.spec.texts.get(job.name.text),
            command: self.spec.texts.get(job.command.text),
            env: &self.spec.variables[job.env.range()],
            depends_on: &self.resolved.targets[job.depends_on.range()],
            requirements: job.requirements.map(|used| self.resolved.requirements[used.name as usize]),
            priority: job.priority,
            cancel_on_blocking_job_failure: job.cancel_on_blocking_job_failure,
        }
    }

    pub fn jobs(&self) -> impl ExactSizeIterator<Item = Job<'_>> {
        (0..self.job_count()).map(|number| self.job(number))
    }
}
