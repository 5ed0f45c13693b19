//! What an agent can call: a table, one line for each tool. The names and arguments of those that Torc has are Torc's.
//!
//! A tool is a plain function of the desk and its arguments; that it blocks is somebody else's business ([`crate::handler`]).
//! Every list has a limit and says whether there is more.

mod jobs;
mod journals;
mod logs;
mod page;
mod recover;
mod requests;
mod resources;
mod slurm;
mod specs;
mod triage;
mod verbs;
mod workflows;

pub(crate) use logs::log_of;

use crate::desk::{Desk, Skill, Trouble};
use rmcp::handler::server::common::schema_for_input;
use rmcp::model::{JsonObject, ToolAnnotations};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::{Arc, LazyLock};

type Answer = Result<Value, Trouble>;
type Run = Box<dyn Fn(&Desk, Value) -> Answer + Send + Sync>;

/// What a tool does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Reads,
    /// It adds something, or can be taken back.
    Writes,
    /// It ends work, or has it done again.
    Destroys,
}

pub(crate) struct Tool {
    name: &'static str,
    effect: Effect,
    /// What the hands must be able to do.
    needs: Option<Skill>,
    description: &'static str,
    schema: Arc<JsonObject>,
    run: Run,
}

fn tool<A: DeserializeOwned + JsonSchema + 'static>(
    name: &'static str,
    effect: Effect,
    description: &'static str,
    run: fn(&Desk, &A) -> Answer,
) -> Tool {
    let schema = schema_for_input::<A>().unwrap_or_else(|why| panic!("the arguments of {name}: {why}"));
    let run = move |desk: &Desk, arguments: Value| {
        let arguments: A = serde_json::from_value(arguments)
            .map_err(|why| Trouble::refused(format!("the arguments of {name} make no sense: {why}")))?;
        run(desk, &arguments)
    };
    Tool { name, effect, needs: None, description, schema, run: Box::new(run) }
}

#[rustfmt::skip]
static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| vec![
    tool("list_workflows", Effect::Reads,
        "Workflows, newest first, each with its state and how many jobs stand where.",
        workflows::list),
    tool("get_workflow_status", Effect::Reads,
        "One workflow: its state, counts by job status, what runs, what failed and what waits for a decision.",
        workflows::status),
    tool("get_workflow_summary", Effect::Reads,
        "How a workflow that is over went: counts, times, CPU time, the largest memory, its longest jobs.",
        workflows::summary),
    tool("list_jobs_by_status", Effect::Reads,
        "The jobs of a workflow that stand in one status, a page at a time.",
        jobs::by_status),
    tool("get_job_details", Effect::Reads,
        "One job: its command, status, what it asks for, what it depends on, and all its attempts.",
        jobs::details),
    tool("explain_job", Effect::Reads,
        "Why a job is where it is: a verdict, the evidence for it (facts and log lines), what blocks it, and what to do next. Start here for a single job.",
        jobs::explain),
    tool("list_failed_jobs", Effect::Reads,
        "Jobs that failed, were ended for lack of time, or failed and wait for a decision (pending_failed), with exit code, reason and class of failure; the same failure is told once per group.",
        jobs::failed),
    tool("list_results", Effect::Reads,
        "Attempts that ended: exit codes, times, CPU and memory. Filters for job, run, exit code and status.",
        jobs::results),
    tool("get_job_logs", Effect::Reads,
        "The end of what an attempt of a job wrote to stdout or stderr. Without run and attempt, the newest one.",
        logs::get),
    tool("analyze_workflow_logs", Effect::Reads,
        "Lines in the logs of failed attempts that usually say why, each with what it means.",
        logs::analyze),
    tool("list_pending_failed_jobs", Effect::Reads,
        "Jobs that failed, match no rule, and wait for a decision (status pending_failed), each with the end of its stderr and what the rules of Windlass take the failure for.",
        triage::list),
    tool("check_resource_utilization", Effect::Reads,
        "Classes of jobs that used more than they asked for, or much less, with proposals and what those rest on.",
        resources::check),
    tool("analyze_resource_usage", Effect::Reads,
        "What every class of jobs asked for and used: memory, CPU, time, from the median to the largest.",
        resources::analyze),
    tool("get_slurm_sacct", Effect::Reads,
        "What became of the Slurm allocations of a workflow: Slurm's job, its state and exit code, times, nodes, and why it waits, was refused or ended.",
        slurm::sacct),
    Tool { needs: Some(Skill::PlanAllocations), ..tool("plan_allocations", Effect::Reads,
        "Which Slurm allocations a spec's jobs would share on this cluster, how long and large, and when they would start. Nothing is stored or submitted.",
        slurm::plan) },
    tool("get_execution_plan", Effect::Reads,
        "What a spec, or a workflow given by its id, would do: stages, groups of like jobs, the critical path, CPU hours.",
        specs::plan),
    tool("check_spec", Effect::Reads,
        "Reads a workflow spec (YAML, JSON, JSON5, TOML or KDL) and reports every mistake with its place, or what it would make. Nothing is stored.",
        specs::check),
    tool("list_examples", Effect::Reads,
        "The example specs that come with Windlass.",
        specs::list_examples),
    tool("get_example", Effect::Reads,
        "The text of one example spec, converted to another format if one is named.",
        specs::get_example),
    tool("get_docs", Effect::Reads,
        "One page of the guide. Without a topic: which pages there are.",
        specs::get_docs),

    tool("list_requests", Effect::Reads,
        "Requests (datasets to be made, in rounds of work units), by name, each with its status, since when and why.",
        requests::list),
    tool("get_request", Effect::Reads,
        "One request: its document, status and history (who, when, why), its progress, and what was done about failures: rescues, bans, overrides, outputs.",
        requests::get),
    tool("request_errors", Effect::Reads,
        "What went wrong in a request: failed attempts by category, site, exit code and bad input file, with what one of each kind said last, and what a release might change. Start here for a request that is held.",
        requests::errors),

    Tool { needs: Some(Skill::ReadJournals), ..tool("check_offline_journals", Effect::Reads,
        "Results that workers on this machine keep because they could not reach their server: nothing is lost, the server gets them once it is reached.",
        journals::check) },

    Tool { needs: Some(Skill::MakeWorkflows), ..tool("create_workflow", Effect::Writes,
        "Checks a spec, writes it to a file, or makes a workflow of it. It does not run until run_workflow is called.",
        specs::create) },
    tool("update_job_resources", Effect::Writes,
        "What one job asks for from its next attempt on: memory, time, CPUs, Slurm scheduler or partition. Other jobs that shared its requirements keep theirs.",
        resources::update),
    tool("regroup_job_resources", Effect::Writes,
        "New requirements for groups of jobs that wait or have failed. Each job gets its own, others that shared theirs keep them; that is a revision, and can be undone. With dry_run nothing is changed.",
        resources::regroup),
    tool("run_workflow", Effect::Writes,
        "Has a workflow run. It starts programs: needs confirm.",
        verbs::run),
    tool("cancel_workflow", Effect::Destroys,
        "Ends a workflow and kills its running jobs: needs confirm.",
        verbs::cancel),
    tool("reset_workflow_status", Effect::Destroys,
        "Has jobs run again that are over, and all that was built on them: needs confirm. With failed_only, those that did not end well.",
        verbs::reset),
    tool("recover_workflow", Effect::Destroys,
        "Brings a workflow back that stopped with failures: each failed job is diagnosed from its own measurements; what ran out of memory or time runs again with more of it; on Slurm new allocations are asked for. Unless dry_run is false and confirm is true, only says what it would do.",
        recover::recover),
    tool("classify_and_resolve_failures", Effect::Destroys,
        "Decides on jobs that wait for it: retry (perhaps with more memory or time), or fail, which cancels what depends on them. One result per job. Evidence lines are looked up in the log. Unless confirm is true, only says what it would do.",
        triage::resolve),
    tool("release_request", Effect::Destroys,
        "Lets a request go on that is held, perhaps without sites or input files, or with more memory: what is done is credited, and the rest runs. Steps about its outputs that were given up are tried again. Needs confirm.",
        requests::release),
    tool("stop_request", Effect::Destroys,
        "Stops the run of a request cleanly; what is done stays done, and it goes on when its turn comes again. One that is not under way yet is held until it is released. Needs confirm.",
        requests::stop),
    tool("fail_request", Effect::Destroys,
        "Gives a request up for good: what runs is ended, and what there is of its outputs is listed. It cannot be taken back. Needs confirm.",
        requests::fail),
]);

/// Those that can be called at this desk.
pub(crate) fn offered(desk: &Desk) -> impl Iterator<Item = &'static Tool> + use<'_> {
    let can = move |tool: &&Tool| tool.needs.is_none_or(|skill| desk.hands.can(skill));
    TOOLS.iter().filter(move |tool| desk.allow_write || tool.effect == Effect::Reads).filter(can)
}

/// Calls one. `None`: there is none of this name here.
pub(crate) fn call(desk: &Desk, name: &str, arguments: Value) -> Option<Answer> {
    let tool = offered(desk).find(|tool| tool.name == name)?;
    Some((tool.run)(desk, arguments).map(Desk::show))
}

/// Why there is no such tool.
pub(crate) fn missing(name: &str) -> String {
    match TOOLS.iter().find(|tool| tool.name == name) {
        Some(tool) if tool.effect == Effect::Reads => {
            format!("{name} is not offered here: `windlass mcp` on a worker's machine offers it")
        }
        Some(_) => format!("{name} changes something, and this server was started without --allow-write"),
        None => format!("there is no tool `{name}`"),
    }
}

/// The names of all tools, and whether each changes something.
pub fn names() -> impl Iterator<Item = (&'static str, bool)> {
    TOOLS.iter().map(|tool| (tool.name, tool.effect != Effect::Reads))
}

/// All tools as clients are told of them.
pub fn describe() -> Value {
    TOOLS.iter().map(|tool| serde_json::to_value(tool.to_model()).unwrap_or_default()).collect()
}

impl Tool {
    pub(crate) fn to_model(&self) -> rmcp::model::Tool {
        let hints = ToolAnnotations::new()
            .read_only(self.effect == Effect::Reads)
            .destructive(self.effect == Effect::Destroys)
            .open_world(false);
        rmcp::model::Tool::new(self.name, self.description, Arc::clone(&self.schema)).with_annotations(hints)
    }
}
