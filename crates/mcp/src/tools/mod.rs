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
mod workflow_commands;
mod workflows;

pub(crate) use logs::read_log;

use crate::agent_session::{AgentCapability, AgentSession, ToolError};
use rmcp::handler::server::common::schema_for_input;
use rmcp::model::{JsonObject, ToolAnnotations};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::{Arc, LazyLock};

type ToolResult = Result<Value, ToolError>;
type ToolFunction = Box<dyn Fn(&AgentSession, Value) -> ToolResult + Send + Sync>;

/// What a tool does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ToolEffect {
    Reads,
    /// It adds something, or can be taken back.
    Writes,
    /// It ends work, or has it done again.
    Destroys,
}

pub(crate) struct AgentTool {
    name: &'static str,
    effect: ToolEffect,
    /// What the hands must be able to do.
    needs: Option<AgentCapability>,
    description: &'static str,
    schema: Arc<JsonObject>,
    run: ToolFunction,
}

fn define_tool<A: DeserializeOwned + JsonSchema + 'static>(
    name: &'static str,
    effect: ToolEffect,
    description: &'static str,
    run: fn(&AgentSession, &A) -> ToolResult,
) -> AgentTool {
    let schema = schema_for_input::<A>().unwrap_or_else(|why| panic!("the arguments of {name}: {why}"));
    let run = move |desk: &AgentSession, arguments: Value| {
        let arguments: A = serde_json::from_value(arguments)
            .map_err(|why| ToolError::new(format!("the arguments of {name} make no sense: {why}")))?;
        run(desk, &arguments)
    };
    AgentTool { name, effect, needs: None, description, schema, run: Box::new(run) }
}

#[rustfmt::skip]
static TOOLS: LazyLock<Vec<AgentTool>> = LazyLock::new(|| vec![
    define_tool("list_workflows", ToolEffect::Reads,
        "Workflows, newest first, each with its state and how many jobs stand where.",
        workflows::list_workflows),
    define_tool("get_workflow_status", ToolEffect::Reads,
        "One workflow: its state, counts by job status, what runs, what failed and what waits for a decision.",
        workflows::get_workflow_status),
    define_tool("get_workflow_summary", ToolEffect::Reads,
        "How a workflow that is over went: counts, times, CPU time, the largest memory, its longest jobs.",
        workflows::get_workflow_summary),
    define_tool("list_jobs_by_status", ToolEffect::Reads,
        "The jobs of a workflow that stand in one status, a page at a time.",
        jobs::list_jobs_by_status),
    define_tool("get_job_details", ToolEffect::Reads,
        "One job: its command, status, what it asks for, what it depends on, and all its attempts.",
        jobs::get_job_details),
    define_tool("explain_job", ToolEffect::Reads,
        "Why a job is where it is: a verdict, the evidence for it (facts and log lines), what blocks it, and what to do next. Start here for a single job.",
        jobs::explain_job),
    define_tool("list_failed_jobs", ToolEffect::Reads,
        "Jobs that failed, were ended for lack of time, or failed and wait for a decision (pending_failed), with exit code, reason and class of failure; the same failure is told once per group.",
        jobs::list_failed_jobs),
    define_tool("list_results", ToolEffect::Reads,
        "Attempts that ended: exit codes, times, CPU and memory. Filters for job, run, exit code and status.",
        jobs::list_results),
    define_tool("get_job_logs", ToolEffect::Reads,
        "The end of what an attempt of a job wrote to stdout or stderr. Without run and attempt, the newest one.",
        logs::get_job_logs),
    define_tool("analyze_workflow_logs", ToolEffect::Reads,
        "Lines in the logs of failed attempts that usually say why, each with what it means.",
        logs::analyze_logs),
    define_tool("list_pending_failed_jobs", ToolEffect::Reads,
        "Jobs that failed, match no rule, and wait for a decision (status pending_failed), each with the end of its stderr and what the rules of Windlass take the failure for.",
        triage::list_pending_failed_jobs),
    define_tool("check_resource_utilization", ToolEffect::Reads,
        "Classes of jobs that used more than they asked for, or much less, with proposals and what those rest on.",
        resources::check_utilization),
    define_tool("analyze_resource_usage", ToolEffect::Reads,
        "What every class of jobs asked for and used: memory, CPU, time, from the median to the largest.",
        resources::analyze_usage),
    define_tool("get_slurm_sacct", ToolEffect::Reads,
        "What became of the Slurm allocations of a workflow: Slurm's job, its state and exit code, times, nodes, and why it waits, was refused or ended.",
        slurm::get_slurm_sacct),
    AgentTool { needs: Some(AgentCapability::PlanAllocations), ..define_tool("plan_allocations", ToolEffect::Reads,
        "Which Slurm allocations a spec's jobs would share on this cluster, how long and large, and when they would start. Nothing is stored or submitted.",
        slurm::plan_allocations) },
    define_tool("get_execution_plan", ToolEffect::Reads,
        "What a spec, or a workflow given by its id, would do: stages, groups of like jobs, the critical path, CPU hours.",
        specs::get_execution_plan),
    define_tool("check_spec", ToolEffect::Reads,
        "Reads a workflow spec (YAML, JSON, JSON5, TOML or KDL) and reports every mistake with its place, or what it would make. Nothing is stored.",
        specs::check_spec),
    define_tool("list_examples", ToolEffect::Reads,
        "The example specs that come with Windlass.",
        specs::list_examples),
    define_tool("get_example", ToolEffect::Reads,
        "The text of one example spec, converted to another format if one is named.",
        specs::get_example),
    define_tool("get_docs", ToolEffect::Reads,
        "One page of the guide. Without a topic: which pages there are.",
        specs::get_docs),

    define_tool("list_requests", ToolEffect::Reads,
        "Requests (datasets to be made, in rounds of work units), by name, each with its status, since when and why.",
        requests::list_requests),
    define_tool("get_request", ToolEffect::Reads,
        "One request: its document, status and history (who, when, why), its progress, and what was done about failures: rescues, bans, overrides, outputs.",
        requests::get_request),
    define_tool("request_errors", ToolEffect::Reads,
        "What went wrong in a request: failed attempts by category, site, exit code and bad input file, with what one of each kind said last, and what a release might change. Start here for a request that is held.",
        requests::get_request_errors),

    AgentTool { needs: Some(AgentCapability::ReadJournals), ..define_tool("check_offline_journals", ToolEffect::Reads,
        "Results that workers on this machine keep because they could not reach their server: nothing is lost, the server gets them once it is reached.",
        journals::check_offline_journals) },

    AgentTool { needs: Some(AgentCapability::MakeWorkflows), ..define_tool("create_workflow", ToolEffect::Writes,
        "Checks a spec, writes it to a file, or makes a workflow of it. It does not run until run_workflow is called.",
        specs::create_workflow) },
    define_tool("update_job_resources", ToolEffect::Writes,
        "What one job asks for from its next attempt on: memory, time, CPUs, Slurm scheduler or partition. Other jobs that shared its requirements keep theirs.",
        resources::update_resources),
    define_tool("regroup_job_resources", ToolEffect::Writes,
        "New requirements for groups of jobs that wait or have failed. Each job gets its own, others that shared theirs keep them; that is a revision, and can be undone. With dry_run nothing is changed.",
        resources::regroup_resources),
    define_tool("run_workflow", ToolEffect::Writes,
        "Has a workflow run. It starts programs: needs confirm.",
        workflow_commands::run_workflow),
    define_tool("cancel_workflow", ToolEffect::Destroys,
        "Ends a workflow and kills its running jobs: needs confirm.",
        workflow_commands::cancel_workflow),
    define_tool("reset_workflow_status", ToolEffect::Destroys,
        "Has jobs run again that are over, and all that was built on them: needs confirm. With failed_only, those that did not end well.",
        workflow_commands::reset_workflow),
    define_tool("recover_workflow", ToolEffect::Destroys,
        "Brings a workflow back that stopped with failures: each failed job is diagnosed from its own measurements; what ran out of memory or time runs again with more of it; on Slurm new allocations are asked for. Unless dry_run is false and confirm is true, only says what it would do.",
        recover::recover_workflow),
    define_tool("classify_and_resolve_failures", ToolEffect::Destroys,
        "Decides on jobs that wait for it: retry (perhaps with more memory or time), or fail, which cancels what depends on them. One result per job. Evidence lines are looked up in the log. Unless confirm is true, only says what it would do.",
        triage::resolve_failures),
    define_tool("release_request", ToolEffect::Destroys,
        "Lets a request go on that is held, perhaps without sites or input files, or with more memory: what is done is credited, and the rest runs. Steps about its outputs that were given up are tried again. Needs confirm.",
        requests::release_request),
    define_tool("stop_request", ToolEffect::Destroys,
        "Stops the run of a request cleanly; what is done stays done, and it goes on when its turn comes again. One that is not under way yet is held until it is released. Needs confirm.",
        requests::stop_request),
    define_tool("fail_request", ToolEffect::Destroys,
        "Gives a request up for good: what runs is ended, and what there is of its outputs is listed. It cannot be taken back. Needs confirm.",
        requests::fail_request),
]);

/// Those that can be called at this desk.
pub(crate) fn offered_tools(desk: &AgentSession) -> impl Iterator<Item = &'static AgentTool> + use<'_> {
    let can = move |tool: &&AgentTool| tool.needs.is_none_or(|skill| desk.actions.supports(skill));
    TOOLS.iter().filter(move |tool| desk.allow_write || tool.effect == ToolEffect::Reads).filter(can)
}

/// Calls one. `None`: there is none of this name here.
pub(crate) fn call_tool(desk: &AgentSession, name: &str, arguments: Value) -> Option<ToolResult> {
    let tool = offered_tools(desk).find(|tool| tool.name == name)?;
    Some((tool.run)(desk, arguments).map(AgentSession::redact_output))
}

/// Why there is no such tool.
pub(crate) fn unknown_tool_message(name: &str) -> String {
    match TOOLS.iter().find(|tool| tool.name == name) {
        Some(tool) if tool.effect == ToolEffect::Reads => {
            format!("{name} is not offered here: `windlass mcp` on a worker's machine offers it")
        }
        Some(_) => format!("{name} changes something, and this server was started without --allow-write"),
        None => format!("there is no tool `{name}`"),
    }
}

/// The names of all tools, and whether each changes something.
pub fn tool_names() -> impl Iterator<Item = (&'static str, bool)> {
    TOOLS.iter().map(|tool| (tool.name, tool.effect != ToolEffect::Reads))
}

/// All tools as clients are told of them.
pub fn describe_tools() -> Value {
    TOOLS.iter().map(|tool| serde_json::to_value(tool.to_model()).unwrap_or_default()).collect()
}

impl AgentTool {
    pub(crate) fn to_model(&self) -> rmcp::model::Tool {
        let hints = ToolAnnotations::new()
            .read_only(self.effect == ToolEffect::Reads)
            .destructive(self.effect == ToolEffect::Destroys)
            .open_world(false);
        rmcp::model::Tool::new(self.name, self.description, Arc::clone(&self.schema)).with_annotations(hints)
    }
}
