//! Tools for specs: checking, planning, creating workflows, and documentation.

use super::{ToolResult, slurm};
use crate::agent_session::{AgentSession, SpecText, ToolError};
use crate::embedded_docs;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use windlass_core::dependency_edges::DependencyEdges;
use windlass_core::workflow_outline::{
    self, OutlineGranularity, OutlineJob, OutlineRequest, WorkflowOutline,
};
use windlass_insight::workflow_creation;
use windlass_spec::{
    DiagnosticReport, NoAttachments, ResolvedWorkflow, SpecDiagnostics, SpecFormat, SpecSource,
};
use windlass_store::model::JobFilter;
use windlass_types::Resources;

/// Name of a spec in messages.
const SPEC_NAME: &str = "spec";
/// Maximum number of errors reported for a spec.
const MAX_DIAGNOSTICS: usize = 50;
/// Maximum number of job names, and lines of a plan.
const MAX_NAMED: usize = 100;
/// Number of jobs read at once.
const JOB_PAGE: u64 = 2000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckSpecInput {
    /// The text of the spec, in YAML, JSON, JSON5, TOML or KDL.
    spec: String,
}

#[expect(clippy::unnecessary_wraps, reason = "others of its kind fail")]
pub(super) fn check_spec(_: &AgentSession, args: &CheckSpecInput) -> ToolResult {
    Ok(check_report(&args.spec))
}

pub(super) fn load_spec(text: &str) -> Result<ResolvedWorkflow<'_>, SpecDiagnostics> {
    windlass_spec::load_spec(spec_source(text), &NoAttachments)
}

pub(super) fn spec_source(text: &str) -> SpecSource<'_> {
    SpecSource::new(SPEC_NAME, text.as_bytes())
}

fn check_report(text: &str) -> Value {
    match load_spec(text) {
        Ok(workflow) => json!({
            "valid": true, "errors": [], "warnings": first_diagnostics(workflow.warning_diagnostics()), "summary": spec_summary(&workflow),
        }),
        Err(found) => json!({
            "valid": false, "errors": first_diagnostics(&found), "error_count": found.count(), "warnings": [], "summary": null,
        }),
    }
}

fn first_diagnostics(found: &SpecDiagnostics) -> Vec<DiagnosticReport> {
    found.reports().into_iter().take(MAX_DIAGNOSTICS).collect()
}

fn spec_summary(workflow: &ResolvedWorkflow<'_>) -> Value {
    json!({
        "workflow_name": workflow.name(), "job_count": workflow.job_count(),
        "job_count_before_expansion": workflow.entry_count(), "file_count": workflow.file_count(),
        "user_data_count": workflow.user_data_count(), "resource_requirements_count": workflow.requirements().len(),
        "failure_handler_count": workflow.failure_handlers().len(), "action_count": workflow.actions().len(),
        "use_pending_failed": workflow.settings().use_pending_failed,
        "job_names": workflow.jobs().take(MAX_NAMED).map(|job| job.name.to_owned()).collect::<Vec<_>>(),
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateWorkflowInput {
    /// The spec as text or as a JSON object.
    spec_json: Value,
    /// Ignored; accepted for compatibility with Torc. The workflow belongs to the user of this session.
    #[expect(dead_code, reason = "the agent must not choose the owner")]
    user: Option<String>,
    /// What to do with the spec: check it (validate), write it to a file (save_spec_file), or store a workflow (create_workflow).
    action: CreateAction,
    /// local or slurm. With slurm, schedulers and actions that request allocations are added to the spec unless
    /// it has some, and jobs that fit nowhere on the cluster are refused. Default: local.
    #[serde(default)]
    workflow_type: WorkflowType,
    /// For slurm: account to charge. Default: the account in the spec's slurm_defaults.
    account: Option<String>,
    /// For slurm: name of an HPC profile. Default: query the cluster itself.
    hpc_profile: Option<String>,
    /// For save_spec_file: path of a new file below the directory in which this server was started.
    output_path: Option<String>,
    /// For create_workflow over HTTP, required: the directory in which the jobs run, absolute, on the machines
    /// of the workers. Elsewhere the jobs run in the directory in which this server was started.
    working_dir: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CreateAction {
    /// Report the errors of the spec.
    Validate,
    /// Write the spec to a file.
    SaveSpecFile,
    /// Store a workflow.
    CreateWorkflow,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum WorkflowType {
    #[default]
    Local,
    Slurm,
}

pub(super) fn create_workflow(session: &AgentSession, args: &CreateWorkflowInput) -> ToolResult {
    let action = args.action;
    let is_for_slurm = args.workflow_type == WorkflowType::Slurm;
    if !is_for_slurm && (args.account.is_some() || args.hpc_profile.is_some()) {
        return Err(ToolError::new("account and hpc_profile apply only to workflows on Slurm")
            .with_hint("omit them, or set workflow_type to slurm"));
    }
    let text = match &args.spec_json {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut found = check_report(&text);
    let text = if is_for_slurm && found["valid"] == true {
        let text =
            slurm::write_schedule(session, &text, args.account.as_deref(), args.hpc_profile.as_deref())?;
        found = check_report(&text);
        text
    } else {
        text
    };
    if found["valid"] != true || action == CreateAction::Validate {
        return Ok(found);
    }
    let spec = SpecText(text);
    match action {
        CreateAction::CreateWorkflow => session.actions.create_workflow(&spec, args.working_dir.as_deref()),
        CreateAction::SaveSpecFile => {
            let path = args
                .output_path
                .as_ref()
                .ok_or_else(|| ToolError::new("save_spec_file requires an output_path"))?;
            session.actions.save_spec(&spec, path)
        }
        CreateAction::Validate => Ok(found),
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExecutionPlanInput {
    /// The id of a workflow, or the text of a spec.
    spec_or_id: Value,
}

pub(super) fn get_execution_plan(session: &AgentSession, args: &ExecutionPlanInput) -> ToolResult {
    let text = match &args.spec_or_id {
        Value::String(text) => text.trim().to_owned(),
        other => other.to_string(),
    };
    match text.parse::<i64>() {
        Ok(id) => plan_workflow(session, id),
        Err(_) => plan_spec(&text),
    }
}

fn plan_spec(text: &str) -> ToolResult {
    let workflow = load_spec(text).map_err(|found| {
        let first = found.reports().into_iter().next().map(|report| report.message).unwrap_or_default();
        ToolError::new(format!("the spec has {} errors; the first: {first}", found.count()))
            .with_hint("use check_spec to list all of them")
    })?;
    let kinds: Vec<&str> = workflow.job_groups().iter().map(|kind| kind.name.as_str()).collect();
    let facts = |number: u32| {
        let job = workflow.job(number as usize);
        let set = job.requirements.map(|set| workflow.requirements()[set as usize].resources);
        OutlineJob {
            name: job.name,
            entry: job.group,
            resources: set.unwrap_or(Resources::DEFAULT),
            priority: job.priority,
            measured_runtime: None,
            is_reused: false,
        }
    };
    let edges = workflow_creation::dependency_edges(&workflow);
    render_outline(workflow.name(), workflow.job_count() as u32, &edges, &kinds, &facts)
}

fn plan_workflow(session: &AgentSession, id: i64) -> ToolResult {
    let row = session.load_workflow(id)?;
    let table = session.store.load_jobs(row.id)?;
    let (mut names, mut kinds, mut kind_of) = (Vec::new(), Vec::new(), Vec::new());
    let mut known: HashMap<String, u32> = HashMap::new();
    let mut after = None;
    loop {
        let filter = JobFilter { after, limit: Some(JOB_PAGE), ..JobFilter::default() };
        let page = session.store.jobs(row.id, &filter)?;
        let Some(last) = page.last().map(|job| job.id) else { break };
        for job in page {
            names.push(job.name);
            kind_of.push(job.kind.map(|kind| {
                *known.entry(kind).or_insert_with_key(|kind| {
                    kinds.push(kind.clone());
                    kinds.len() as u32 - 1
                })
            }));
        }
        after = Some(last);
    }
    if names.len() != table.ids.len() {
        return Err(ToolError::new("the workflow is being changed").with_hint("try again"));
    }
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    let facts = |number: u32| {
        let index = number as usize;
        OutlineJob {
            name: &names[index],
            entry: kind_of[index],
            resources: table.requirements[table.class[index] as usize],
            priority: table.priority[index],
            measured_runtime: None,
            is_reused: false,
        }
    };
    render_outline(&row.name, names.len() as u32, &table.edges, &kinds, &facts)
}

fn render_outline<'a>(
    name: &str,
    jobs: u32,
    edges: &'a DependencyEdges,
    kinds: &'a [&'a str],
    facts: &'a dyn Fn(u32) -> OutlineJob<'a>,
) -> ToolResult {
    let request = OutlineRequest {
        jobs,
        edges,
        entries: kinds,
        facts,
        grain: OutlineGranularity::Entries,
        capacity: None,
    };
    let mut outline: WorkflowOutline =
        workflow_outline::outline_workflow(&request).map_err(|cycle| ToolError::new(cycle.to_string()))?;
    let is_cut = outline.groups.len() > MAX_NAMED || outline.critical_path.len() > MAX_NAMED;
    outline.groups.truncate(MAX_NAMED);
    outline.links.truncate(MAX_NAMED);
    outline.stages.truncate(MAX_NAMED);
    outline.critical_path.truncate(MAX_NAMED);
    let outline = serde_json::to_value(&outline).map_err(|why| ToolError::new(why.to_string()))?;
    Ok(json!({ "name": name, "is_cut": is_cut, "plan": outline }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoInput {}

#[expect(clippy::unnecessary_wraps, reason = "others of its kind fail")]
pub(super) fn list_examples(_: &AgentSession, _: &NoInput) -> ToolResult {
    let view = |example: &embedded_docs::ExampleSpec| {
        let about = example.text.lines().next().unwrap_or_default().trim_start_matches(['#', '/']).trim();
        json!({ "name": example.name, "file": example.file, "about": about })
    };
    Ok(json!({ "examples": embedded_docs::EXAMPLES.iter().map(view).collect::<Vec<_>>() }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetExampleInput {
    /// Name of the example, as returned by list_examples.
    name: String,
    /// Format to convert to: yaml, json, json5, toml or kdl. Default: the original text, with comments.
    format: Option<String>,
}

pub(super) fn get_example(_: &AgentSession, args: &GetExampleInput) -> ToolResult {
    let example = embedded_docs::find_example(&args.name).ok_or_else(|| {
        ToolError::new(format!("there is no example `{}`", args.name))
            .with_hint("use list_examples to list them")
    })?;
    let text = match &args.format {
        None => example.text.to_owned(),
        Some(name) => {
            let format = SpecFormat::from_path(format!("spec.{name}").as_ref()).ok_or_else(|| {
                ToolError::new(format!("unknown format `{name}`; expected yaml, json, json5, toml or kdl"))
            })?;
            let source = SpecSource::new(example.file, example.text.as_bytes());
            windlass_spec::convert_spec(source, format).map_err(|_| {
                ToolError::new(format!("example `{}` cannot be written as {name}", example.name))
            })?
        }
    };
    Ok(json!({ "name": example.name, "file": example.file, "spec": text }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetDocsInput {
    /// Name of the page. Default: list all pages.
    topic: Option<String>,
}

pub(super) fn get_docs(_: &AgentSession, args: &GetDocsInput) -> ToolResult {
    let topics = || {
        embedded_docs::PAGES
            .iter()
            .map(|page| json!({ "topic": page.topic, "title": page.title() }))
            .collect::<Vec<_>>()
    };
    let Some(topic) = &args.topic else { return Ok(json!({ "topics": topics() })) };
    match embedded_docs::find_page(topic) {
        Some(page) => Ok(json!({ "topic": page.topic, "text": page.text })),
        None => Err(ToolError::new(format!("there is no page about `{topic}`"))
            .with_hint("call get_docs without a topic to list the pages")),
    }
}
