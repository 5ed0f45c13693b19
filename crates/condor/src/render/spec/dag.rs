//! The DAG file of a workflow spec: its nodes, what they ask for, and who waits for whom.

use super::nodes::{self, Kinds};
use super::{Files, SpecRun};
use crate::layout;
use crate::render::group::NEVER_AGAIN;
use crate::render::outer::{ABORT, STATUS_INTERVAL, comment};
use crate::render::quote::{self, Unfit};
use crate::render::submits::absolute;
use crate::render::{RenderError, named};
use crate::terms::{Care, TOO_EARLY};
use std::fmt::Write as _;
use std::time::Duration;
use windlass_spec::{Job, JobKind, Workflow};

/// A DAG file on its way.
pub(super) struct Dag<'r, 'a> {
    workflow: &'a Workflow<'a>,
    program: &'a str,
    /// Of all nodes, by the numbers of their jobs.
    names: &'r [String],
    text: String,
    kinds: Kinds,
    /// Jobs that wait for the same list of others.
    waiting: Vec<Waiting<'a>>,
}

struct Waiting<'a> {
    parents: &'a [u32],
    children: Vec<u32>,
}

impl<'r, 'a> Dag<'r, 'a> {
    pub(super) fn new(run: &SpecRun<'a>, names: &'r [String]) -> Result<Self, RenderError> {
        let what = "the path of windlass";
        let program = named(what, quote::dag_word(absolute(what, run.program)?))?;
        let text = format!(
            "# Workflow {}, run {}.\n\
             CONFIG {}\n\
             NODE_STATUS_FILE {} {STATUS_INTERVAL}\n\
             JOBSTATE_LOG {}\n",
            comment(run.workflow.name()),
            comment(run.run),
            layout::CONFIG,
            layout::OUTER_STATUS,
            layout::OUTER_JOBSTATE,
        );
        let (workflow, kinds) = (run.workflow, Kinds::default());
        Ok(Self { workflow, program, names, text, kinds, waiting: Vec::new() })
    }

    /// The next job.
    pub(super) fn node(&mut self, number: u32, job: &Job<'a>, files: &Files) -> Result<(), Unfit> {
        let (name, program, workflow) = (&self.names[number as usize], self.program, self.workflow);
        let kind = job.kind.map(|kind| &workflow.kinds()[kind as usize]);
        let vars = vars_of(workflow, job, files)?;
        let (alike, retries) = self.kinds.of(workflow, job);
        let text = &mut self.text;
        writeln!(text, "\nJOB {name} {}", layout::JOB_SUBMIT).ok();
        writeln!(text, "VARS {name} {vars}").ok();
        writeln!(
            text,
            "SCRIPT POST {name} {program} condor post $JOB $RETURN $RETRY $MAX_RETRIES $JOBID {alike}"
        )
        .ok();
        if retries > 0 {
            writeln!(text, "RETRY {name} {retries} UNLESS-EXIT {NEVER_AGAIN}").ok();
        }
        if let Some(category) = kind.and_then(|kind| category(workflow, kind)) {
            writeln!(text, "CATEGORY {name} limit_{category}").ok();
        }
        for parents in job.depends_on().filter(|parents| !parents.is_empty()) {
            self.wait(number, parents);
        }
        Ok(())
    }

    /// Jobs that share a list come one after the other, so that one line serves them all.
    fn wait(&mut self, number: u32, parents: &'a [u32]) {
        match self.waiting.last_mut().filter(|last| std::ptr::eq(last.parents, parents)) {
            Some(last) => last.children.push(number),
            None => self.waiting.push(Waiting { parents, children: vec![number] }),
        }
    }

    pub(super) fn finish(mut self) -> (String, Kinds) {
        let pause = look_again(self.workflow);
        let (text, program) = (&mut self.text, self.program);
        writeln!(text, "\nSCRIPT DEFER {TOO_EARLY} {pause} PRE ALL_NODES {program} condor pre $JOB $RETRY")
            .ok();
        writeln!(text, "ABORT-DAG-ON ALL_NODES {ABORT} RETURN 1").ok();
        for (number, most) in self.workflow.settings().limits.values().enumerate() {
            writeln!(text, "MAXJOBS limit_{number} {most}").ok();
        }
        for Waiting { parents, children } in &self.waiting {
            text.push_str("PARENT");
            list(text, self.names, parents);
            text.push_str(" CHILD");
            list(text, self.names, children);
            text.push('\n');
        }
        (self.text, self.kinds)
    }
}

fn list(text: &mut String, names: &[String], numbers: &[u32]) {
    for number in numbers {
        write!(text, " {}", names[*number as usize]).ok();
    }
}

/// What differs between jobs. What one does not say is not there, and the pool has its own idea of it.
pub(super) fn vars_of(workflow: &Workflow<'_>, job: &Job<'_>, files: &Files) -> Result<String, Unfit> {
    let kind = job.kind.map(|kind| &workflow.kinds()[kind as usize]);
    let mut pairs = vec![("urgency", job.priority.to_string())];
    if let Some(asked) = nodes::asked(workflow, job) {
        pairs.push(("cpus", asked.cpus.max(1).to_string()));
        pairs.push(("memory", asked.memory.0.div_ceil(1 << 20).max(1).to_string()));
        pairs.extend((asked.gpus > 0).then(|| ("gpus", asked.gpus.to_string())));
        pairs.extend(asked.runtime.map(|runtime| ("runtime", runtime.as_secs().max(1).to_string())));
    }
    for (name, list) in [("sent", &files.sent), ("fetched", &files.fetched)] {
        pairs.extend((!list.is_empty()).then(|| (name, list.clone())));
    }
    if let Some(kind) = kind.filter(|kind| !kind.sites.is_empty()) {
        pairs.push(("sites", quote::sites(&kind.sites)?));
    }
    let mut text = String::new();
    for (name, value) in pairs {
        let space = if text.is_empty() { "" } else { " " };
        write!(text, "{space}{name}=\"{}\"", quote::vars(&value)?).ok();
    }
    Ok(text)
}

/// The number of its limit, in the order of their names.
fn category(workflow: &Workflow<'_>, kind: &JobKind) -> Option<usize> {
    let limit = kind.limit.as_ref()?;
    workflow.settings().limits.keys().position(|name| name == limit)
}

/// How long DAGMan waits before it asks again whether a delay is over: no longer than the shortest that there is.
fn look_again(workflow: &Workflow<'_>) -> u64 {
    let rules = workflow.failure_handlers().iter().flat_map(|handler| &handler.rules);
    let shortest = rules.filter_map(|rule| rule.delay).min().unwrap_or(Duration::ZERO);
    Care { cool_off_sec: shortest.as_secs(), ..Care::default() }.look_again_sec()
}
