//! Specs: checking and planning them, making workflows of them, and what there is to read about them.

use super::{Answer, slurm};
use crate::desk::{Desk, SpecText, Trouble};
use crate::library;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use windlass_core::edges::Edges;
use windlass_core::outline::{self, Facts, Grain, Outline, Request};
use windlass_insight::making;
use windlass_spec::{Diagnostics, Format, NoAttachments, Report, Source, Workflow};
use windlass_store::model::JobFilter;
use windlass_types::Resources;

/// What a spec is called in messages.
const NAME: &str = "spec";
/// Mistakes that are told of one spec.
const MISTAKES: usize = 50;
/// Names of jobs, and lines of a plan.
const NAMED: usize = 100;
/// Jobs that are read at once.
const PAGE: u64 = 2000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckSpec {
    /// The text of the spec, in YAML, JSON, JSON5, TOML or KDL.
    spec: String,
}

#[expect(clippy::unnecessary_wraps, reason = "others of its kind fail")]
pub(super) fn check(_: &Desk, args: &CheckSpec) -> Answer {
    Ok(checked(&args.spec))
}

pub(super) fn load(text: &str) -> Result<Workflow<'_>, Diagnostics> {
    windlass_spec::load(source(text), &NoAttachments)
}

pub(super) fn source(text: &str) -> Source<'_> {
    Source::new(NAME, text.as_bytes())
}

fn checked(text: &str) -> Value {
    match load(text) {
        Ok(workflow) => json!({
            "valid": true, "errors": [], "warnings": mistakes(workflow.all_warnings()), "summary": summary(&workflow),
        }),
        Err(found) => json!({
            "valid": false, "errors": mistakes(&found), "error_count": found.count(), "warnings": [], "summary": null,
        }),
    }
}

fn mistakes(found: &Diagnostics) -> Vec<Report> {
    found.reports().into_iter().take(MISTAKES).collect()
}

fn summary(workflow: &Workflow<'_>) -> Value {
    json!({
        "workflow_name": workflow.name(), "job_count": workflow.job_count(),
        "job_count_before_expansion": workflow.entry_count(), "file_count": workflow.file_count(),
        "user_data_count": workflow.user_data_count(), "resource_requirements_count": workflow.requirements().len(),
        "failure_handler_count": workflow.failure_handlers().len(), "action_count": workflow.actions().len(),
        "use_pending_failed": workflow.settings().use_pending_failed,
        "job_names": workflow.jobs().take(NAMED).map(|job| job.name.to_owned()).collect::<Vec<_>>(),
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    /// The spec: its text, or a JSON object.
    spec_json: Value,
    /// For agents that know Torc: a workflow belongs to whoever this server acts for, whatever this says.
    #[expect(dead_code, reason = "whose it is, is not for the agent to say")]
    user: Option<String>,
    action: CreateAction,
    /// local, or slurm: then schedulers and actions that ask for allocations are written into the spec, unless it has some, and
    /// what fits nowhere on the cluster is refused.
    #[serde(default)]
    workflow_type: WorkflowType,
    /// For slurm: who pays, unless the spec's slurm_defaults say so.
    account: Option<String>,
    /// For slurm: the name of a profile that is kept here; without it the cluster itself is asked.
    hpc_profile: Option<String>,
    /// For save_spec_file: a new file below the directory in which this server was started.
    output_path: Option<String>,
    /// For create_workflow over HTTP, where it is needed: the directory in which its jobs run, absolute, on the machines of
    /// the workers. Elsewhere they run in the directory in which this server was started.
    working_dir: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CreateAction {
    /// Says what is wrong with it.
    Validate,
    SaveSpecFile,
    CreateWorkflow,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum WorkflowType {
    #[default]
    Local,
    Slurm,
}

pub(super) fn create(desk: &Desk, args: &Create) -> Answer {
    let action = args.action;
    let is_for_slurm = args.workflow_type == WorkflowType::Slurm;
    if !is_for_slurm && (args.account.is_some() || args.hpc_profile.is_some()) {
        return Err(Trouble::refused("account and hpc_profile are for workflows on Slurm")
            .with_hint("leave them out, or say workflow_type slurm"));
    }
    let text = match &args.spec_json {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut found = checked(&text);
    let text = if is_for_slurm && found["valid"] == true {
        let text = slurm::scheduled(desk, &text, args.account.as_deref(), args.hpc_profile.as_deref())?;
        found = checked(&text);
        text
    } else {
        text
    };
    if found["valid"] != true || action == CreateAction::Validate {
        return Ok(found);
    }
    let spec = SpecText(text);
    match action {
        CreateAction::CreateWorkflow => desk.hands.create(&spec, args.working_dir.as_deref()),
        CreateAction::SaveSpecFile => {
            let path = args
                .output_path
                .as_ref()
                .ok_or_else(|| Trouble::refused("save_spec_file needs an output_path"))?;
            desk.hands.save(&spec, path)
        }
        CreateAction::Validate => Ok(found),
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// The id of a workflow, or the text of a spec.
    spec_or_id: Value,
}

pub(super) fn plan(desk: &Desk, args: &Plan) -> Answer {
    let text = match &args.spec_or_id {
        Value::String(text) => text.trim().to_owned(),
        other => other.to_string(),
    };
    match text.parse::<i64>() {
        Ok(id) => of_workflow(desk, id),
        Err(_) => of_spec(&text),
    }
}

fn of_spec(text: &str) -> Answer {
    let workflow = load(text).map_err(|found| {
        let first = found.reports().into_iter().next().map(|report| report.message).unwrap_or_default();
        Trouble::refused(format!("the spec has {} mistakes; the first: {first}", found.count()))
            .with_hint("check_spec tells all of them")
    })?;
    let kinds: Vec<&str> = workflow.kinds().iter().map(|kind| kind.name.as_str()).collect();
    let facts = |number: u32| {
        let job = workflow.job(number as usize);
        let set = job.requirements.map(|set| workflow.requirements()[set as usize].resources);
        Facts {
            name: job.name,
            kind: job.kind,
            resources: set.unwrap_or(Resources::DEFAULT),
            priority: job.priority,
            measured: None,
            is_reused: false,
        }
    };
    let edges = making::edges(&workflow);
    outlined(workflow.name(), workflow.job_count() as u32, &edges, &kinds, &facts)
}

fn of_workflow(desk: &Desk, id: i64) -> Answer {
    let row = desk.workflow(id)?;
    let table = desk.books.load_jobs(row.id)?;
    let (mut names, mut kinds, mut kind_of) = (Vec::new(), Vec::new(), Vec::new());
    let mut known: HashMap<String, u32> = HashMap::new();
    let mut after = None;
    loop {
        let filter = JobFilter { after, limit: Some(PAGE), ..JobFilter::default() };
        let page = desk.books.jobs(row.id, &filter)?;
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
        return Err(Trouble::refused("the workflow is changing just now").with_hint("try again"));
    }
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    let facts = |number: u32| {
        let index = number as usize;
        Facts {
            name: &names[index],
            kind: kind_of[index],
            resources: table.requirements[table.class[index] as usize],
            priority: table.priority[index],
            measured: None,
            is_reused: false,
        }
    };
    outlined(&row.name, names.len() as u32, &table.edges, &kinds, &facts)
}

fn outlined<'a>(
    name: &str,
    jobs: u32,
    edges: &'a Edges,
    kinds: &'a [&'a str],
    facts: &'a dyn Fn(u32) -> Facts<'a>,
) -> Answer {
    let request = Request { jobs, edges, kinds, facts, grain: Grain::Kinds, capacity: None };
    let mut outline: Outline =
        outline::outline(&request).map_err(|cycle| Trouble::refused(cycle.to_string()))?;
    let is_cut = outline.groups.len() > NAMED || outline.critical_path.len() > NAMED;
    outline.groups.truncate(NAMED);
    outline.links.truncate(NAMED);
    outline.stages.truncate(NAMED);
    outline.critical_path.truncate(NAMED);
    let outline = serde_json::to_value(&outline).map_err(|why| Trouble::refused(why.to_string()))?;
    Ok(json!({ "name": name, "is_cut": is_cut, "plan": outline }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

#[expect(clippy::unnecessary_wraps, reason = "others of its kind fail")]
pub(super) fn list_examples(_: &Desk, _: &Nothing) -> Answer {
    let view = |example: &library::Example| {
        let about = example.text.lines().next().unwrap_or_default().trim_start_matches(['#', '/']).trim();
        json!({ "name": example.name, "file": example.file, "about": about })
    };
    Ok(json!({ "examples": library::EXAMPLES.iter().map(view).collect::<Vec<_>>() }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetExample {
    /// As list_examples names it.
    name: String,
    /// yaml, json, json5, toml or kdl. Without it, as it was written, with its comments.
    format: Option<String>,
}

pub(super) fn get_example(_: &Desk, args: &GetExample) -> Answer {
    let example = library::example(&args.name).ok_or_else(|| {
        Trouble::refused(format!("there is no example `{}`", args.name))
            .with_hint("list_examples says which there are")
    })?;
    let text = match &args.format {
        None => example.text.to_owned(),
        Some(name) => {
            let format = Format::from_path(format!("spec.{name}").as_ref()).ok_or_else(|| {
                Trouble::refused(format!("there is no format `{name}`: yaml, json, json5, toml, kdl"))
            })?;
            let source = Source::new(example.file, example.text.as_bytes());
            windlass_spec::convert(source, format).map_err(|_| {
                Trouble::refused(format!("example `{}` cannot be written as {name}", example.name))
            })?
        }
    };
    Ok(json!({ "name": example.name, "file": example.file, "spec": text }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetDocs {
    topic: Option<String>,
}

pub(super) fn get_docs(_: &Desk, args: &GetDocs) -> Answer {
    let topics = || {
        library::PAGES
            .iter()
            .map(|page| json!({ "topic": page.topic, "title": page.title() }))
            .collect::<Vec<_>>()
    };
    let Some(topic) = &args.topic else { return Ok(json!({ "topics": topics() })) };
    match library::page(topic) {
        Some(page) => Ok(json!({ "topic": page.topic, "text": page.text })),
        None => Err(Trouble::refused(format!("there is no page about `{topic}`"))
            .with_hint("without a topic, get_docs says which there are")),
    }
}
