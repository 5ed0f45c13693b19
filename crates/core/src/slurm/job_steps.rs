//! Jobs that run as Slurm steps of their allocation, and orphaned steps of lost workers.

use std::collections::BTreeSet;
use windlass_types::settings::{ExecutionConfig, ExecutionMode};
use windlass_types::worker_messages::AttemptKey;

/// Whether jobs of such a workflow run as steps, on this number of nodes. A worker of several nodes reaches the
/// others only through steps.
pub fn runs_as_steps(config: Option<&ExecutionConfig>, nodes: usize) -> bool {
    match config.and_then(|config| config.mode).unwrap_or_default() {
        ExecutionMode::Slurm | ExecutionMode::Auto => true,
        ExecutionMode::Direct => nodes > 1,
    }
}

/// A step in Slurm: `42.3`, and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmStep {
    pub job_id: u64,
    pub number: u32,
    pub name: String,
}

impl SlurmStep {
    /// As Slurm writes it.
    pub fn step_id(&self) -> String {
        format!("{}.{}", self.job_id, self.number)
    }
}

/// Returns the steps that a lost worker had started in this Slurm job: they have the names of its attempts.
pub fn orphaned_steps<'a>(steps: &'a [SlurmStep], job_id: u64, held: &[AttemptKey]) -> Vec<&'a SlurmStep> {
    let names: BTreeSet<String> = held.iter().map(AttemptKey::log_stem).collect();
    steps.iter().filter(|step| step.job_id == job_id && names.contains(&step.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::{Attempt, JobId, RunId, WorkflowId};

    #[test]
    fn job_steps_depend_on_mode_and_nodes() {
        let mode = |mode| ExecutionConfig { mode: Some(mode), ..ExecutionConfig::default() };
        for (config, nodes, expected) in [
            (None, 1, false),
            (None, 2, true),
            (Some(mode(ExecutionMode::Direct)), 1, false),
            (Some(mode(ExecutionMode::Auto)), 1, true),
            (Some(mode(ExecutionMode::Slurm)), 1, true),
        ] {
            assert_eq!(runs_as_steps(config.as_ref(), nodes), expected, "{config:?} {nodes}");
        }
    }

    #[test]
    fn leftover_steps_belong_to_the_lost_worker() {
        let key = |job, attempt| AttemptKey {
            workflow: WorkflowId(3),
            job: JobId(job),
            run: RunId(1),
            attempt: Attempt(attempt),
        };
        let step = |job_id, number, name: &str| SlurmStep { job_id, number, name: name.to_owned() };
        let steps = [
            step(42, 0, "windlass"),
            step(42, 1, "job_wf3_j7_r1_a2"),
            // Of another worker in the same allocation.
            step(42, 2, "job_wf3_j8_r1_a1"),
            // The next attempt of a job that it held before.
            step(42, 3, "job_wf3_j9_r1_a2"),
            step(43, 1, "job_wf3_j7_r1_a2"),
        ];
        let held = [key(7, 2), key(9, 1)];
        let ids: Vec<String> =
            orphaned_steps(&steps, 42, &held).into_iter().map(SlurmStep::step_id).collect();
        assert_eq!(ids, ["42.1"]);
        assert!(orphaned_steps(&steps, 42, &[]).is_empty());
    }
}
