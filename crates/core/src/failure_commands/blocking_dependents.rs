//! Dependents held by workers: a failure cannot be retried or ignored while a job that would have to be reset
//! runs.

use crate::dependency_edges::DependencyEdges;
use crate::dependency_graph::DependencyCycle;
use crate::topological_order::TopologicalOrder;
use windlass_types::JobStatus;
use windlass_types::failure_commands::FailureCommandKind;

/// For each job a dependent that blocks commands, computed for all jobs at once: there may be very many
/// commands.
#[derive(Clone, Debug)]
pub struct BlockingDependents {
    /// A dependent that would be reset if the job ran again.
    held_dependent: Vec<Option<u32>>,
    /// A dependent that would be reset if the job were ignored, because a canceled job before it would run.
    held_canceled_dependent: Vec<Option<u32>>,
}

impl BlockingDependents {
    pub fn new(edges: &DependencyEdges, status: &[JobStatus]) -> Result<Self, DependencyCycle> {
        let order = TopologicalOrder::new(u32::try_from(status.len()).unwrap_or(u32::MAX), edges)?;
        let mut held = Self {
            held_dependent: vec![None; order.len()],
            held_canceled_dependent: vec![None; order.len()],
        };
        for &node in order.sorted().iter().rev() {
            let behind = held.held_dependent[node as usize];
            // A dependency group passes on the result of its members.
            let (active, canceled) = match status.get(node as usize) {
                None => (behind, held.held_canceled_dependent[node as usize]),
                // Disabled jobs stay as they are, and so do jobs behind them.
                Some(JobStatus::Disabled) => (None, None),
                Some(status) if status.is_active() => (Some(node), None),
                Some(JobStatus::Canceled) => (behind, behind),
                Some(_) => (behind, None),
            };
            for &before in order.predecessors(node) {
                let before = before as usize;
                held.held_dependent[before] = held.held_dependent[before].or(active);
                held.held_canceled_dependent[before] = held.held_canceled_dependent[before].or(canceled);
            }
        }
        Ok(held)
    }

    /// Returns the job that is held by a worker and would have to be reset by this command for `job`.
    pub fn blocking_job(&self, job: u32, kind: FailureCommandKind) -> Option<u32> {
        let behind = match kind {
            FailureCommandKind::Retry => &self.held_dependent,
            FailureCommandKind::Ignore => &self.held_canceled_dependent,
            FailureCommandKind::Fail | FailureCommandKind::Change => return None,
        };
        behind.get(job as usize).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dependency_edges::DependencyEdgesBuilder;

    fn held(status: &[JobStatus], depends: &[(u32, &[u32])]) -> BlockingDependents {
        let mut edges = DependencyEdgesBuilder::default();
        for (job, on) in depends {
            edges.add_dependencies(*job, on);
        }
        BlockingDependents::new(&edges.finish(), status).unwrap()
    }

    #[test]
    fn failure_with_running_dependent_is_held() {
        use JobStatus::{Blocked, Canceled, Completed, Disabled, Failed, Ready, Running};
        let (retry, ignore) = (FailureCommandKind::Retry, FailureCommandKind::Ignore);
        for (status, depends, job, kind, expected) in [
            (vec![Failed, Running], &[(1, &[0u32][..])][..], 0, retry, Some(1)),
            (vec![Failed, Running], &[(1, &[0])], 0, FailureCommandKind::Fail, None),
            (vec![Failed, Running], &[(1, &[0])], 0, ignore, None),
            (vec![Failed, Ready], &[(1, &[0])], 0, retry, None),
            (vec![Failed, Running], &[], 0, retry, None),
            // Also indirectly, but not through disabled jobs.
            (vec![Failed, Completed, Running], &[(1, &[0]), (2, &[1])], 0, retry, Some(2)),
            (vec![Failed, Disabled, Running], &[(1, &[0]), (2, &[1])], 0, retry, None),
            // The job that was canceled because of it would run.
            (vec![Failed, Canceled, Running], &[(1, &[0]), (2, &[1])], 0, ignore, Some(2)),
            (vec![Failed, Blocked, Running], &[(1, &[0]), (2, &[1])], 0, ignore, None),
            // A dependency group.
            (vec![Failed, Completed, Running, Ready], &[(2, &[0, 1]), (3, &[0, 1])], 0, retry, Some(2)),
            (
                vec![Failed, Failed, Canceled, Canceled, Running],
                &[(2, &[0, 1]), (3, &[0, 1]), (4, &[3])],
                1,
                ignore,
                Some(4),
            ),
        ] {
            let found = held(&status, depends).blocking_job(job, kind);
            assert_eq!(found, expected, "{status:?} {depends:?} {kind}");
        }
    }
}
