//! End reserve: the part of an allocation in which no job may run, because a worker starts only jobs that end
//! in time.

use std::time::Duration;
use windlass_types::settings::WorkflowSettings;

/// Default of workflows, as in Torc.
const KILL_HEADROOM: u64 = 60;
const TERM_LEAD: u64 = 30;
/// Time from the start of the allocation until the worker has its first jobs.
const WORKER_START: Duration = Duration::from_secs(30);

/// Returns how long before the end jobs are asked to stop: the time that they may take, plus the time before
/// the end in which Slurm wants nothing to run.
pub fn termination_lead(settings: &WorkflowSettings) -> Duration {
    let config = settings.execution_config.as_ref();
    let headroom = config.and_then(|config| config.sigkill_headroom_seconds);
    let headroom = headroom.or(settings.compute_node_expiration_buffer_seconds).unwrap_or(KILL_HEADROOM);
    let term = config.and_then(|config| config.sigterm_lead_seconds).unwrap_or(TERM_LEAD);
    Duration::from_secs(headroom.saturating_add(term))
}

/// Returns by how much an allocation must be longer than a job that is to start there.
pub fn end_reserve(settings: &WorkflowSettings) -> Duration {
    termination_lead(settings).saturating_add(WORKER_START)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::settings::ExecutionConfig;

    #[test]
    fn workflow_settings_change_the_end_reserve() {
        assert_eq!(termination_lead(&WorkflowSettings::default()), Duration::from_secs(90));
        assert_eq!(end_reserve(&WorkflowSettings::default()), Duration::from_mins(2));
        let config = ExecutionConfig {
            sigkill_headroom_seconds: Some(5),
            sigterm_lead_seconds: Some(3),
            ..ExecutionConfig::default()
        };
        let said = WorkflowSettings {
            execution_config: Some(config),
            compute_node_expiration_buffer_seconds: Some(600),
            ..WorkflowSettings::default()
        };
        assert_eq!(termination_lead(&said), Duration::from_secs(8));
        assert_eq!(
            termination_lead(&WorkflowSettings { execution_config: None, ..said }),
            Duration::from_secs(630)
        );
    }
}
