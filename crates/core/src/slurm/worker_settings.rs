//! Workflow settings that a worker in an allocation needs if its server is down when it starts.

use windlass_types::settings::{ExecutionConfig, WorkflowSettings};

/// Returns the settings about how long workers wait, stay, and take to stop.
pub fn worker_settings(settings: &WorkflowSettings) -> WorkflowSettings {
    let lead = |config: &ExecutionConfig| ExecutionConfig {
        sigkill_headroom_seconds: config.sigkill_headroom_seconds,
        sigterm_lead_seconds: config.sigterm_lead_seconds,
        ..ExecutionConfig::default()
    };
    let config = settings.execution_config.as_ref().map(lead);
    WorkflowSettings {
        execution_config: config.filter(|config| *config != ExecutionConfig::default()),
        compute_node_expiration_buffer_seconds: settings.compute_node_expiration_buffer_seconds,
        compute_node_wait_for_new_jobs_seconds: settings.compute_node_wait_for_new_jobs_seconds,
        compute_node_ignore_workflow_completion: settings.compute_node_ignore_workflow_completion,
        compute_node_wait_for_healthy_database_minutes: settings
            .compute_node_wait_for_healthy_database_minutes,
        ..WorkflowSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm::end_reserve::termination_lead;

    #[test]
    fn worker_settings_contain_only_worker_fields() {
        assert_eq!(worker_settings(&WorkflowSettings::default()), WorkflowSettings::default());
        let elsewhere = WorkflowSettings {
            project: Some("a secret".to_owned()),
            execution_config: Some(ExecutionConfig {
                termination_signal: Some("SIGINT".to_owned()),
                ..ExecutionConfig::default()
            }),
            ..WorkflowSettings::default()
        };
        assert_eq!(worker_settings(&elsewhere), WorkflowSettings::default());
        let mut said = WorkflowSettings {
            compute_node_wait_for_healthy_database_minutes: Some(60),
            compute_node_wait_for_new_jobs_seconds: Some(0),
            ..elsewhere
        };
        said.execution_config.as_mut().unwrap().sigterm_lead_seconds = Some(5);
        let told = worker_settings(&said);
        assert_eq!(termination_lead(&told), termination_lead(&said));
        assert_eq!(told.compute_node_wait_for_healthy_database_minutes, Some(60));
        assert_eq!(told.compute_node_wait_for_new_jobs_seconds, Some(0));
        assert_eq!(told.project, None);
    }
}
