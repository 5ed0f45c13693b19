//! Writer of the DAG file of a workflow spec: its nodes, their resources and dependencies.

use super::node_groups::{self, NodeGroups};
use super::{JobFiles, WorkflowDagRun};
use crate::file_layout;
use crate::render::outer_dag::{ABORT_EXIT_CODE, STATUS_INTERVAL, sanitize_comment};
use crate::render::quote::{self, UnquotableText};
use crate::render::submit_files::absolute_path;
use crate::render::unit_dag::NO_RETRY_EXIT_CODE;
use crate::render::{DagRenderError, with_subject};
use crate::script_settings::{RequestRetrySettings, TOO_EARLY_EXIT_CODE};
use std::fmt::Write as _;
use std::time::Duration;
use windlass_spec::{ResolvedJob, ResolvedWorkflow};
use windlass_types::JobGroup;

/// A DAG file that is being written.
pub(super) struct WorkflowDagWriter<'r, 'a> {
    workflow: &'a ResolvedWorkflow<'a>,
    program: &'a str,
    /// The names of all nodes, by the numbers of their jobs.
    names: &'r [String],
    text: String,
    node_groups: NodeGroups,
    /// Jobs with the same list of dependencies.
    dependency_groups: Vec<ParentChildGroup<'a>>,
}

struct ParentChildGroup<'a> {
    parents: &'a [u32],
    children: Vec<u32>,
}

impl<'r, 'a> WorkflowDagWriter<'r, 'a> {
    pub(super) fn new(run: &WorkflowDagRun<'a>, names: &'r [String]) -> Result<Self, DagRenderError> {
        let what = "the path of windlass";
        let program = with_subject(what, quote::quote_dag_word(absolute_path(what, run.program)?))?;
        let text = format!(
            "# Workflow {}, run {}.\n\
             CONFIG {}\n\
             NODE_STATUS_FILE {} {STATUS_INTERVAL}\n\
             JOBSTATE_LOG {}\n",
            sanitize_comment(run.workflow.name()),
            sanitize_comment(run.run),
            file_layout::DAGMAN_CONFIG_FILE,
            file_layout::OUTER_STATUS,
            file_layout::OUTER_JOBSTATE,
        );
        let (workflow, node_groups) = (run.workflow, NodeGroups::default());
        Ok(Self { workflow, program, names, text, node_groups, dependency_groups: Vec::new() })
    }

    /// Appends the next job.
    pub(super) fn write_node(
        &mut self,
        number: u32,
        job: &ResolvedJob<'a>,
        files: &JobFiles,
    ) -> Result<(), UnquotableText> {
        let (name, program, workflow) = (&self.names[number as usize], self.program, self.workflow);
        let job_group = job.group.map(|job_group| &workflow.job_groups()[job_group as usize]);
        let vars = render_vars(workflow, job, files)?;
        let (alike, retries) = self.node_groups.assign_group(workflow, job);
        let text = &mut self.text;
        writeln!(text, "\nJOB {name} {}", file_layout::JOB_SUBMIT).ok();
        writeln!(text, "VARS {name} {vars}").ok();
        writeln!(
            text,
            "SCRIPT POST {name} {program} condor post $JOB $RETURN $RETRY $MAX_RETRIES $JOBID {alike}"
        )
        .ok();
        if retries > 0 {
            writeln!(text, "RETRY {name} {retries} UNLESS-EXIT {NO_RETRY_EXIT_CODE}").ok();
        }
        if let Some(category) = job_group.and_then(|job_group| limit_category(workflow, job_group)) {
            writeln!(text, "CATEGORY {name} limit_{category}").ok();
        }
        for parents in job.depends_on().filter(|parents| !parents.is_empty()) {
            self.add_dependencies(number, parents);
        }
        Ok(())
    }

    /// Jobs with the same dependencies follow each other, so that one line serves them all.
    fn add_dependencies(&mut self, number: u32, parents: &'a [u32]) {
        match self.dependency_groups.last_mut().filter(|last| std::ptr::eq(last.parents, parents)) {
            Some(last) => last.children.push(number),
            None => self.dependency_groups.push(ParentChildGroup { parents, children: vec![number] }),
        }
    }

    pub(super) fn finish(mut self) -> (String, NodeGroups) {
        let pause = recheck_interval(self.workflow);
        let (text, program) = (&mut self.text, self.program);
        writeln!(
            text,
            "\nSCRIPT DEFER {TOO_EARLY_EXIT_CODE} {pause} PRE ALL_NODES {program} condor pre $JOB $RETRY"
        )
        .ok();
        writeln!(text, "ABORT-DAG-ON ALL_NODES {ABORT_EXIT_CODE} RETURN 1").ok();
        for (number, most) in self.workflow.settings().limits.values().enumerate() {
            writeln!(text, "MAXJOBS limit_{number} {most}").ok();
        }
        for ParentChildGroup { parents, children } in &self.dependency_groups {
            text.push_str("PARENT");
            write_names(text, self.names, parents);
            text.push_str(" CHILD");
            write_names(text, self.names, children);
            text.push('\n');
        }
        (self.text, self.node_groups)
    }
}

fn write_names(text: &mut String, names: &[String], numbers: &[u32]) {
    for number in numbers {
        write!(text, " {}", names[*number as usize]).ok();
    }
}

/// The values that differ between jobs. Values that a job does not specify are omitted, and the defaults of the
/// pool apply.
pub(super) fn render_vars(
    workflow: &ResolvedWorkflow<'_>,
    job: &ResolvedJob<'_>,
    files: &JobFiles,
) -> Result<String, UnquotableText> {
    let job_group = job.group.map(|job_group| &workflow.job_groups()[job_group as usize]);
    let mut pairs = vec![("urgency", job.priority.to_string())];
    if let Some(asked) = node_groups::requested_resources(workflow, job) {
        pairs.push(("cpus", asked.cpus.max(1).to_string()));
        pairs.push(("memory", asked.memory.0.div_ceil(1 << 20).max(1).to_string()));
        pairs.extend((asked.gpus > 0).then(|| ("gpus", asked.gpus.to_string())));
        pairs.extend(asked.runtime.map(|runtime| ("runtime", runtime.as_secs().max(1).to_string())));
    }
    for (name, list) in [("sent", &files.input_list), ("fetched", &files.output_list)] {
        pairs.extend((!list.is_empty()).then(|| (name, list.clone())));
    }
    if let Some(job_group) = job_group.filter(|job_group| !job_group.settings.sites.is_empty()) {
        pairs.push(("sites", quote::quote_site_list(&job_group.settings.sites)?));
    }
    let mut text = String::new();
    for (name, value) in pairs {
        let space = if text.is_empty() { "" } else { " " };
        write!(text, "{space}{name}=\"{}\"", quote::quote_vars(&value)?).ok();
    }
    Ok(text)
}

/// The number of its limit, in the order of the names of limits.
fn limit_category(workflow: &ResolvedWorkflow<'_>, job_group: &JobGroup<u32>) -> Option<usize> {
    let limit = job_group.settings.limit.as_ref()?;
    workflow.settings().limits.keys().position(|name| name == limit)
}

/// How long DAGMan waits before it asks again whether a delay is over: at most the shortest delay.
fn recheck_interval(workflow: &ResolvedWorkflow<'_>) -> u64 {
    let rules = workflow.failure_handlers().iter().flat_map(|handler| &handler.rules);
    let shortest = rules.filter_map(|rule| rule.delay).min().unwrap_or(Duration::ZERO);
    RequestRetrySettings { cool_off_sec: shortest.as_secs(), ..RequestRetrySettings::default() }
        .recheck_interval_sec()
}
