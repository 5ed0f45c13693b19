//! The execution settings of a workflow, and how they and a job make an assignment.

use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_core::attempt_outcome::ReturnCodes;
use windlass_core::workflow_state::WorkflowState;
use windlass_store::Store;
use windlass_store::model::{JobCommand, JobFile, WorkflowRow};
use windlass_types::settings::WorkflowSettings;
use windlass_types::worker_messages::{
    Assignment, AttemptKey, AttemptLimits, StdioSettings, TerminationSettings, return_code,
};
use windlass_types::{JobId, Resources, shell, signal_number};

/// SIGTERM.
const DEFAULT_SIGNAL: i32 = 15;

/// Settings that the jobs of a workflow share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExecutionSettings {
    env: Vec<(String, String)>,
    stdio: StdioSettings,
    /// By the name of the job.
    stdio_overrides: BTreeMap<String, StdioSettings>,
    /// The requested resources of jobs are enforced as limits.
    enforces_limits: bool,
    termination: Option<TerminationSettings>,
}

impl ExecutionSettings {
    pub(crate) fn from_workflow(workflow: &WorkflowRow) -> Self {
        let config = workflow.settings.execution_config.as_ref();
        Self {
            env: workflow.env.clone(),
            stdio: workflow.settings.stdio(workflow.stdio),
            stdio_overrides: config.map(|config| config.job_stdio_overrides.clone()).unwrap_or_default(),
            enforces_limits: config.and_then(|c| c.limit_resources).unwrap_or(true),
            termination: termination_settings(&workflow.settings),
        }
    }

    /// `named`: the job states its resource requirements.
    pub(crate) fn build_assignment(
        &self,
        key: AttemptKey,
        job: JobCommand,
        resources: Resources,
        named: bool,
    ) -> Assignment {
        let limits = if named && self.enforces_limits {
            // Requirements without memory do not limit memory.
            let memory = Some(resources.memory).filter(|memory| memory.0 > 0);
            AttemptLimits { memory, runtime: resources.runtime }
        } else {
            AttemptLimits::default()
        };
        let command = match job.invocation_script.as_deref() {
            Some(script) => shell::wrap_with_invocation_script(Some(script), &job.command),
            None => job.command,
        };
        Assignment {
            env: merge_env(&self.env, job.env),
            params: job.params.0.into_iter().map(|(name, value)| (name, render_plain_text(value))).collect(),
            asked_for_resources: named,
            limits,
            termination: self.termination,
            stdio: job.stdio.or_else(|| self.stdio_overrides.get(&job.name).copied()).unwrap_or(self.stdio),
            input_files: file_paths(job.input_files),
            output_files: file_paths(job.output_files),
            hash_files: job.hash_files,
            ..Assignment::from_command(key, job.name, command, resources)
        }
    }
}

/// Creates the assignments of jobs that were just claimed, in their order.
pub(crate) fn load_assignments(
    store: &dyn Store,
    state: &WorkflowState,
    terms: &ExecutionSettings,
    jobs: &[u32],
) -> Result<Vec<Assignment>, windlass_store::StoreError> {
    let keys: Vec<AttemptKey> = jobs.iter().map(|&job| state.attempt_key(job)).collect();
    let ids: Vec<JobId> = keys.iter().map(|key| key.job).collect();
    let commands = store.load_job_commands(&ids)?;
    let assigned = jobs.iter().zip(keys).zip(commands).map(|((&job, key), command)| {
        let assigned =
            terms.build_assignment(key, command, *state.resources(job), state.has_resource_request(job));
        Assignment { recovery: state.recovery_script(job).cloned().map(Box::new), ..assigned }
    });
    Ok(assigned.collect())
}

/// The return codes of attempts that are ended here.
pub(crate) fn return_codes(settings: &WorkflowSettings) -> ReturnCodes {
    let config = settings.execution_config.as_ref();
    ReturnCodes {
        timeout: config.and_then(|c| c.timeout_exit_code).unwrap_or(return_code::TIMEOUT),
        out_of_memory: config.and_then(|c| c.oom_exit_code).unwrap_or(return_code::OUT_OF_MEMORY),
    }
}

/// `None` where nothing is set, so that plain jobs carry nothing.
fn termination_settings(settings: &WorkflowSettings) -> Option<TerminationSettings> {
    let config = settings.execution_config.as_ref()?;
    if config.termination_signal.is_none() && config.sigterm_lead_seconds.is_none() {
        return None;
    }
    let named = config.termination_signal.as_deref().and_then(signal_number);
    let lead = config.sigterm_lead_seconds.map(Duration::from_secs);
    Some(TerminationSettings { signal: named.unwrap_or(DEFAULT_SIGNAL), lead })
}

/// A string without its quotes, all else as JSON.
fn render_plain_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn file_paths(files: Vec<JobFile>) -> Vec<String> {
    files.into_iter().map(|file| file.path).collect()
}

/// The workflow's variables, overridden by the job's own.
fn merge_env(workflow: &[(String, String)], job: Vec<(String, String)>) -> Vec<(String, String)> {
    if workflow.is_empty() {
        return job;
    }
    let inherited = workflow.iter().filter(|(name, _)| job.iter().all(|(own, _)| own != name));
    let mut env: Vec<_> = inherited.cloned().collect();
    env.extend(job);
    env
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::settings::ExecutionConfig;
    use windlass_types::worker_messages::StdioMode;

    fn with(config: ExecutionConfig) -> WorkflowSettings {
        WorkflowSettings { execution_config: Some(config), ..WorkflowSettings::default() }
    }

    #[test]
    fn variables_of_a_job_override_those_of_the_workflow() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let merged = merge_env(&[pair("A", "1"), pair("B", "1")], vec![pair("B", "2"), pair("C", "2")]);
        assert_eq!(merged, [pair("A", "1"), pair("B", "2"), pair("C", "2")]);
    }

    #[test]
    fn without_settings_assignments_carry_nothing() {
        assert_eq!(termination_settings(&WorkflowSettings::default()), None);
        assert_eq!(termination_settings(&with(ExecutionConfig::default())), None);
        let lead = ExecutionConfig { sigterm_lead_seconds: Some(30), ..ExecutionConfig::default() };
        let thirty = Some(Duration::from_secs(30));
        assert_eq!(termination_settings(&with(lead)), Some(TerminationSettings { signal: 15, lead: thirty }));
        let named =
            ExecutionConfig { termination_signal: Some("SIGUSR1".into()), ..ExecutionConfig::default() };
        assert_eq!(termination_settings(&with(named)), Some(TerminationSettings { signal: 10, lead: None }));
    }

    #[test]
    fn return_codes_may_be_chosen() {
        assert_eq!(return_codes(&WorkflowSettings::default()), ReturnCodes::default());
        let chosen = ExecutionConfig {
            timeout_exit_code: Some(124),
            oom_exit_code: Some(9),
            ..ExecutionConfig::default()
        };
        assert_eq!(return_codes(&with(chosen)), ReturnCodes { timeout: 124, out_of_memory: 9 });
    }

    #[test]
    fn stdio_of_the_workflow_precedes_that_of_its_config() {
        let of = |mode| StdioSettings { mode, delete_on_success: false };
        let config = with(ExecutionConfig { stdio: Some(of(StdioMode::None)), ..ExecutionConfig::default() });
        assert_eq!(config.stdio(StdioSettings::default()), of(StdioMode::None));
        assert_eq!(config.stdio(of(StdioMode::Combined)), of(StdioMode::Combined));
        assert_eq!(WorkflowSettings::default().stdio(StdioSettings::default()), StdioSettings::default());
    }
}
