//! The tools for agents: a table with one entry per tool. Names and arguments of tools that Torc also has are
//! Torc's.
//!
//! A tool is a plain, blocking function of the session and its arguments ([`crate::handler`] runs it on a
//! thread). Every list has a limit and reports whether there is more.

mod jobs;
mod journals;
mod logs;
mod page;
mod pending_failures;
mod recover;
mod requests;
mod resources;
mod slurm;
mod specs;
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

/// The effect of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ToolEffect {
    Reads,
    /// Adds something, or can be undone.
    Writes,
    /// Ends or repeats work.
    Destroys,
}

pub(crate) struct AgentTool {
    name: &'static str,
    effect: ToolEffect,
    /// Capability that the session's actions must have.
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
    let run = move |session: &AgentSession, arguments: Value| {
        let arguments: A = serde_json::from_value(arguments)
            .map_err(|why| ToolError::new(format!("invalid arguments of {name}: {why}")))?;
        run(session, &arguments)
    };
    AgentTool { name, effect, needs: None, description, schema, run: Box::new(run) }
}

#[rustfmt::skip]
static TOOLS: LazyLock<Vec<AgentTool>> = LazyLock::new(|| vec![
    define_tool("list_workflows", ToolEffect::Reads,
        "List workflows, newest first, with state and job counts by status.",
        workflows::list_workflows),
    define_tool("get_workflow_status", ToolEffect::Reads,
        "Get the status of a workflow: state, job counts by status, running jobs, failed jobs, and jobs that wait for a decision.",
        workflows::get_workflow_status),
    define_tool("get_workflow_summary", ToolEffect::Reads,
        "Get a summary of a workflow that has ended: counts, times, CPU time, largest memory use, longest jobs.",
        workflows::get_workflow_summary),
    define_tool("list_jobs_by_status", ToolEffect::Reads,
        "List the jobs of a workflow with a given status, in pages.",
        jobs::list_jobs_by_status),
    define_tool("get_job_details", ToolEffect::Reads,
        "Get a job: command, status, resource requirements, dependencies, and all attempts.",
        jobs::get_job_details),
    define_tool("explain_job", ToolEffect::Reads,
        "Explain why a job is in its status: diagnosis, evidence (facts and log lines), what blocks it, and what to do next. Start here for a single job.",
        jobs::explain_job),
    define_tool("list_failed_jobs", ToolEffect::Reads,
        "List jobs that failed, were terminated by a timeout, or failed and wait for a decision (pending_failed), with exit code, reason and failure class; equal failures are grouped.",
        jobs::list_failed_jobs),
    define_tool("list_results", ToolEffect::Reads,
        "List attempts that ended: exit codes, times, CPU and memory. Filters for job, run, exit code and status.",
        jobs::list_results),
    define_tool("get_job_logs", ToolEffect::Reads,
        "Get the end of the stdout or stderr of a job's attempt. Default: the newest attempt.",
        logs::get_job_logs),
    define_tool("analyze_workflow_logs", ToolEffect::Reads,
        "Find lines in the logs of failed attempts that usually show the cause, each with its meaning.",
        logs::analyze_logs),
    define_tool("list_pending_failed_jobs", ToolEffect::Reads,
        "List jobs that failed, match no failure handler rule, and wait for a decision (status pending_failed), each with the end of its stderr and the built-in classification.",
        pending_failures::list_pending_failed_jobs),
    define_tool("check_resource_utilization", ToolEffect::Reads,
        "List job groups that used more resources than requested, or much less, with proposed values and their basis.",
        resources::check_utilization),
    define_tool("analyze_resource_usage", ToolEffect::Reads,
        "Compare requested and used memory, CPU and time of every job group, from the median to the maximum.",
        resources::analyze_usage),
    define_tool("get_slurm_sacct", ToolEffect::Reads,
        "Get the state of a workflow's Slurm allocations: Slurm job id, state and exit code, times, nodes, and why an allocation waits, was refused or ended.",
        slurm::get_slurm_sacct),
    AgentTool { needs: Some(AgentCapability::PlanAllocations), ..define_tool("plan_allocations", ToolEffect::Reads,
        "Plan Slurm allocations for the jobs of a spec on this cluster: number, size, time limit, and estimated start. Nothing is stored or submitted.",
        slurm::plan_allocations) },
    define_tool("get_execution_plan", ToolEffect::Reads,
        "Show the execution plan of a spec or of a workflow given by its id: stages, job groups, critical path, CPU hours.",
        specs::get_execution_plan),
    define_tool("check_spec", ToolEffect::Reads,
        "Check a workflow spec (YAML, JSON, JSON5, TOML or KDL): report every error with its position, or what the spec would create. Nothing is stored.",
        specs::check_spec),
    define_tool("list_examples", ToolEffect::Reads,
        "List the example specs that come with Windlass.",
        specs::list_examples),
    define_tool("get_example", ToolEffect::Reads,
        "Get an example spec, optionally converted to another format.",
        specs::get_example),
    define_tool("get_docs", ToolEffect::Reads,
        "Get a page of the guide. Without a topic, list the pages.",
        specs::get_docs),

    define_tool("list_requests", ToolEffect::Reads,
        "List requests (datasets to be produced in rounds of work units) by name, with status, the time it was entered, and the reason.",
        requests::list_requests),
    define_tool("get_request", ToolEffect::Reads,
        "Get a request: document, status and history (who, when, why), progress, and recovery from failures: rescues, bans, overrides, outputs.",
        requests::get_request),
    define_tool("request_errors", ToolEffect::Reads,
        "Get the errors of a request: failed attempts by category, site, exit code and bad input file, with a log excerpt of each type, and changes that a release could make. Start here for a held request.",
        requests::get_request_errors),

    AgentTool { needs: Some(AgentCapability::ReadJournals), ..define_tool("check_offline_journals", ToolEffect::Reads,
        "List results that workers on this machine could not deliver to their server. They are not lost: the server gets them when it is reachable again.",
        journals::check_offline_journals) },

    AgentTool { needs: Some(AgentCapability::CreateWorkflows), ..define_tool("create_workflow", ToolEffect::Writes,
        "Check a spec, write it to a file, or create a workflow from it. The workflow does not start until run_workflow is called.",
        specs::create_workflow) },
    define_tool("update_job_resources", ToolEffect::Writes,
        "Change the resource requirements of one job from its next attempt on: memory, time, CPUs, Slurm scheduler or partition. Other jobs with the same requirements keep theirs.",
        resources::update_resources),
    define_tool("regroup_job_resources", ToolEffect::Writes,
        "Change the resource requirements of groups of waiting or failed jobs. Each job gets its own; other jobs with the same requirements keep theirs. The change is a revision and can be undone. With dry_run nothing is changed.",
        resources::regroup_resources),
    define_tool("run_workflow", ToolEffect::Writes,
        "Start a workflow. Starts programs: requires confirm.",
        workflow_commands::run_workflow),
    define_tool("cancel_workflow", ToolEffect::Destroys,
        "Cancel a workflow and kill its running jobs. Requires confirm.",
        workflow_commands::cancel_workflow),
    define_tool("reset_workflow_status", ToolEffect::Destroys,
        "Reset ended jobs and their dependents to run again; with failed_only, only jobs that did not complete. Requires confirm.",
        workflow_commands::reset_workflow),
    define_tool("recover_workflow", ToolEffect::Destroys,
        "Recover a workflow that stopped with failures: diagnose each failed job from its own measurements, rerun jobs that ran out of memory or time with more of it, and request new allocations on Slurm. Only reports the plan unless dry_run is false and confirm is true.",
        recover::recover_workflow),
    define_tool("classify_and_resolve_failures", ToolEffect::Destroys,
        "Decide on jobs that wait for a decision: retry (optionally with more memory or time) or fail, which cancels their dependents. One result per job. Evidence lines are checked against the log. Only reports the plan unless confirm is true.",
        pending_failures::resolve_failures),
    define_tool("release_request", ToolEffect::Destroys,
        "Release a held request, optionally without some sites or input files, or with more memory: finished work units are kept, and the rest is queued. Output steps that were given up are retried. Requires confirm.",
        requests::release_request),
    define_tool("stop_request", ToolEffect::Destroys,
        "Stop the run of a request cleanly; completed work units are kept, and the request continues when it is admitted again. A request that is not active is held until it is released. Requires confirm.",
        requests::stop_request),
    define_tool("fail_request", ToolEffect::Destroys,
        "Fail a request permanently: running jobs are ended, and the inventory of its outputs is recorded. Cannot be undone. Requires confirm.",
        requests::fail_request),
]);

/// Returns the tools available in this session.
pub(crate) fn offered_tools(session: &AgentSession) -> impl Iterator<Item = &'static AgentTool> + use<'_> {
    let can = move |tool: &&AgentTool| tool.needs.is_none_or(|skill| session.actions.supports(skill));
    TOOLS.iter().filter(move |tool| session.allow_write || tool.effect == ToolEffect::Reads).filter(can)
}

/// Calls a tool. `None`: no tool with this name is available.
pub(crate) fn call_tool(session: &AgentSession, name: &str, arguments: Value) -> Option<ToolResult> {
    let tool = offered_tools(session).find(|tool| tool.name == name)?;
    Some((tool.run)(session, arguments).map(AgentSession::redact_output))
}

/// Returns why a tool is not available.
pub(crate) fn unknown_tool_message(name: &str) -> String {
    match TOOLS.iter().find(|tool| tool.name == name) {
        Some(tool) if tool.effect == ToolEffect::Reads => {
            format!("{name} is not available here: use `windlass mcp` on a worker's machine")
        }
        Some(_) => format!("{name} changes something, and this server was started without --allow-write"),
        None => format!("there is no tool `{name}`"),
    }
}

/// Returns the names of all tools, and whether each changes something.
pub fn tool_names() -> impl Iterator<Item = (&'static str, bool)> {
    TOOLS.iter().map(|tool| (tool.name, tool.effect != ToolEffect::Reads))
}

/// Returns the descriptions of all tools as clients see them.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn undescribed_arguments(schema: &Value) -> Vec<String> {
        let properties = schema["properties"].as_object().into_iter().flatten();
        let missing = properties.filter(|(_, argument)| !argument["description"].is_string());
        let nested = schema["$defs"].as_object().into_iter().flatten();
        let nested = nested.flat_map(|(_, schema)| undescribed_arguments(schema));
        missing.map(|(name, _)| name.clone()).chain(nested).collect()
    }

    #[test]
    fn every_argument_has_a_description() {
        for tool in TOOLS.iter() {
            let missing = undescribed_arguments(&Value::Object((*tool.schema).clone()));
            assert!(missing.is_empty(), "{}: {missing:?}", tool.name);
        }
    }
}
