//! Failures that cannot be taken back now: what was built on them would have to begin anew, and somebody works on it.

use crate::edges::DependencyEdges;
use crate::graph::DependencyCycle;
use crate::topological_order::TopologicalOrder;
use windlass_types::JobStatus;
use windlass_types::failure_commands::FailureCommandKind;

/// Of each job the one with a worker that stands in its way, over all jobs at once: orders may be about very many.
#[derive(Clone, Debug)]
pub struct HeldDependents {
    /// It would go back if the job ran again.
    held_dependent: Vec<Option<u32>>,
    /// It would go back if the job were ignored: what was canceled for it would run after all.
    held_canceled_dependent: Vec<Option<u32>>,
}

impl HeldDependents {
    pub fn new(edges: &DependencyEdges, status: &[JobStatus]) -> Result<Self, DependencyCycle> {
        let order = TopologicalOrder::new(u32::try_from(status.len()).unwrap_or(u32::MAX), edges)?;
        let mut held = Self {
            held_dependent: vec![None; order.len()],
            held_canceled_dependent: vec![None; order.len()],
        };
        for &node in order.sorted().iter().rev() {
            let behind = held.held_dependent[node as usize];
            // A gate passes on what is behind it.
            let (active, canceled) = match status.get(node as usize) {
                None => (behind, held.held_canceled_dependent[node as usize]),
                // Left out on purpose: it stays as it is, and nothing behind it goes back for its sake.
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

    /// The job that a worker holds and that would have to go back, if this were done about `job`.
    pub fn blocking_job(&self, job: u32, verdict: FailureCommandKind) -> Option<u32> {
        let behind = match verdict {
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
    use crate::edges::DependencyEdgesBuilder;

    fn held(status: &[JobStatus], depends: &[(u32, &[u32])]) -> HeldDependents {
        let mut edges = DependencyEdgesBuilder::default();
        for (job, on) in depends {
            edges.add_dependencies(*job, on);
        }
        HeldDependents::new(&edges.finish(), status).unwrap()
    }

    #[test]
    fn who_has_somebody_at_work_behind_it_is_held() {
        use JobStatus::{Blocked, Canceled, Completed, Disabled, Failed, Ready, Running};
        let (retry, ignore) = (FailureCommandKind::Retry, FailureCommandKind::Ignore);
        for (status, depends, job, verdict, expected) in [
            (vec![Failed, Running], &[(1, &[0u32][..])][..], 0, retry, Some(1)),
            (vec![Failed, Running], &[(1, &[0])], 0, FailureCommandKind::Fail, None),
            (vec![Failed, Running], &[(1, &[0])], 0, ignore, None),
            (vec![Failed, Ready], &[(1, &[0])], 0, retry, None),
            (vec![Failed, Running], &[], 0, retry, None),
            // Not only directly, and not through what is left out.
            (vec![Failed, Completed, Running], &[(1, &[0]), (2, &[1])], 0, retry, Some(2)),
            (vec![Failed, Disabled, Running], &[(1, &[0]), (2, &[1])], 0, retry, None),
            // What was canceled for it would run.
            (vec![Failed, Canceled, Running], &[(1, &[0]), (2, &[1])], 0, ignore, Some(2)),
            (vec![Failed, Blocked, Running], &[(1, &[0]), (2, &[1])], 0, ignore, None),
            // All of these before all of those.
            (vec![Failed, Completed, Running, Ready], &[(2, &[0, 1]), (3, &[0, 1])], 0, retry, Some(2)),
            (
                vec![Failed, Failed, Canceled, Canceled, Running],
                &[(2, &[0, 1]), (3, &[0, 1]), (4, &[3])],
                1,
                ignore,
                Some(4),
            ),
        ] {
            let found = held(&status, depends).blocking_job(job, verdict);
            assert_eq!(found, expected, "{status:?} {depends:?} {verdict}");
        }
    }
}
