//! `windlass jobs spawn`: a running job adds jobs to its own workflow.

use crate::args::spec::JobSpawnArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliErrorKind, CliExit};
use crate::spec_file::SpecFile;
use crate::ui::text;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::str::FromStr;
use windlass_core::spawn::{self, SpawnedJob};
use windlass_store::model::{SpawnJob, SpawnRequest};
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{JobDefinition, JobOptions, JobSettings};

pub(crate) fn run(ctx: &CliContext, args: &JobSpawnArgs) -> Result<CliExit, CliError> {
    let caller = calling_attempt(|name| std::env::var(name).ok())?;
    let file = SpecFile::read(&ctx.cwd, &args.file)?;
    let request = spawn_request(caller, read_spawn_file(&file)?, file.name())?;
    let store = ctx.open_write()?;
    let spawned = store.spawn_jobs(&request, ctx.clock.now())?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&spawned)?;
        return Ok(CliExit::Success);
    }
    let jobs = text::render_count(spawned.spawned_job_ids.len() as u64, "job");
    let ids: Vec<String> = spawned.spawned_job_ids.iter().map(ToString::to_string).collect();
    let again = if spawned.is_replay { " (already added)" } else { "" };
    ctx.ui.print_line(&format!("iteration {}: {jobs}, {}{again}", spawned.iteration, ids.join(" ")))?;
    Ok(CliExit::Success)
}

/// The calling attempt: each job has it in its environment.
fn calling_attempt(variable: impl Fn(&str) -> Option<String>) -> Result<AttemptKey, CliError> {
    Ok(AttemptKey {
        workflow: parse_variable(&variable, "WINDLASS_WORKFLOW_ID")?,
        job: parse_variable(&variable, "WINDLASS_JOB_ID")?,
        run: parse_variable(&variable, "WINDLASS_RUN_ID")?,
        attempt: parse_variable(&variable, "WINDLASS_ATTEMPT")?,
    })
}

fn parse_variable<T: FromStr>(variable: impl Fn(&str) -> Option<String>, name: &str) -> Result<T, CliError> {
    let Some(value) = variable(name) else {
        return Err(CliError::user(format!("{name} is not set: only a running job can add jobs")).with_hint(
            "call it from the command of a job; otherwise add the jobs to the spec and run that",
        ));
    };
    value.parse().map_err(|_| CliError::user(format!("{name} is `{value}`, which is not a number")))
}

/// The file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpawnFile {
    jobs: Vec<SpawnFileJob>,
    lineage: Option<String>,
    state: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpawnFileJob {
    name: String,
    command: String,
    #[serde(default)]
    depends_on: Vec<String>,
    resource_requirements: Option<String>,
    #[serde(default)]
    priority: i32,
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default = "yes")]
    cancel_on_blocking_job_failure: bool,
    #[serde(default)]
    env: BTreeMap<String, Value>,
    invocation_script: Option<String>,
    #[serde(flatten)]
    options: JobOptions,
}

const fn yes() -> bool {
    true
}

/// Any spec format, parsed by the same front end.
fn read_spawn_file(file: &SpecFile) -> Result<SpawnFile, CliError> {
    let value = windlass_spec::document_to_json(file.source())?;
    serde_json::from_value(value).map_err(|e| {
        CliError::new(CliErrorKind::Spec, format!("{}: {e}", file.name()))
            .with_hint("`windlass jobs spawn --help` describes the file")
    })
}

fn spawn_request(caller: AttemptKey, written: SpawnFile, name: &str) -> Result<SpawnRequest, CliError> {
    let mut faults = Vec::new();
    let jobs: Vec<SpawnedJob> = written.jobs.into_iter().map(|job| spawned_job(job, &mut faults)).collect();
    match spawn::check_spawn_batch(&jobs, written.lineage.as_deref()) {
        Ok(batch) if faults.is_empty() => {
            let jobs = jobs.into_iter().zip(batch.depends_on);
            let jobs = jobs.map(|(job, depends_on)| SpawnJob { definition: job.definition, depends_on });
            Ok(SpawnRequest { caller, lineage: written.lineage, state: written.state, jobs: jobs.collect() })
        }
        checked => {
            faults.extend(checked.err().iter().flatten().map(ToString::to_string));
            Err(CliError::new(CliErrorKind::Spec, format!("{name}: {}", faults.join("; "))))
        }
    }
}

fn spawned_job(job: SpawnFileJob, faults: &mut Vec<String>) -> SpawnedJob {
    let definition = JobDefinition {
        env: job_environment(&job, faults),
        invocation_script: job.invocation_script,
        resource_requirements: job.resource_requirements,
        priority: job.priority,
        cancel_on_blocking_job_failure: job.cancel_on_blocking_job_failure,
        settings: JobSettings { labels: job.labels, ..JobSettings::default() },
        options: job.options,
        ..JobDefinition::new(job.name, job.command)
    };
    SpawnedJob { definition, depends_on: job.depends_on }
}

/// A variable is a text, even if written as a number; any other value is an error.
fn job_environment(job: &SpawnFileJob, faults: &mut Vec<String>) -> Vec<(String, String)> {
    let mut env = Vec::with_capacity(job.env.len());
    for (name, value) in &job.env {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => {
                faults.push(format!(
                    "variable `{name}` of job `{}` is not a text; write \"\" for an empty one",
                    job.name
                ));
                continue;
            }
        };
        env.push((name.clone(), text));
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calling_attempt_is_read_from_environment() {
        let set = |name: &str| match name {
            "WINDLASS_WORKFLOW_ID" => Some("3".to_owned()),
            "WINDLASS_JOB_ID" => Some("12".to_owned()),
            "WINDLASS_RUN_ID" | "WINDLASS_ATTEMPT" => Some("1".to_owned()),
            _ => None,
        };
        assert_eq!(calling_attempt(set).unwrap().log_stem(), "job_wf3_j12_r1_a1");
        let error = calling_attempt(|_| None).unwrap_err();
        assert!(error.message.contains("WINDLASS_WORKFLOW_ID"), "{error}");
        assert!(calling_attempt(|_| Some("x".to_owned())).is_err());
    }

    #[test]
    fn spawn_error_lists_every_fault_of_batch() {
        let key = calling_attempt(|_| Some("1".to_owned())).unwrap();
        let written: SpawnFile = serde_json::from_str(
            r#"{"jobs": [{"name": "a", "command": "true", "depends_on": ["b"]}, {"name": "a", "command": "true"}]}"#,
        )
        .unwrap();
        let error = spawn_request(key, written, "next.yaml").unwrap_err();
        assert!(error.message.starts_with("next.yaml: "), "{error}");
        assert!(error.message.contains("named `a`") && error.message.contains("`b`"), "{error}");
    }
}
