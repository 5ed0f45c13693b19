//! Failures that cannot be taken back now: what was built on them would have to begin anew, and somebody works on it.

use crate::edges::Edges;
use crate::graph::Cycle;
use crate::order::Order;
use windlass_types::JobStatus;
use windlass_types::orders::Verdict;

/// Of each job the one with a worker that stands in its way, over all jobs at once: orders may be about very many.
#[derive(Clone, Debug)]
pub struct Held {
    /// It would go back if the job ran again.
    behind: Vec<Option<u32>>,
    /// It would go back if the job were ignored: what was canceled for it would run after all.
    behind_canceled: Vec<Option<u32>>,
}

impl Held {
    pub fn new(edges: &Edges, status: &[JobStatus]) -> Result<Self, Cycle> {
        let order = Order::new(u32::try_from(status.len()).unwrap_or(u32::MAX), edges)?;
        let mut held = Self { behind: vec![None; order.len()], behind_canceled: vec![None; order.len()] };
        for &node in order.sorted().iter().rev() {
            let behind = held.behind[node as usize];
            // A gate passes on what is behind it.
            let (active, canceled) = match status.get(node as usize) {
                None => (behind, held.behind_canceled[node as usize]),
                // Left out on purpose: it stays as it is, and nothing behind it goes back for its sake.
                Some(JobStatus::Disabled) => (None, None),
                Some(status) if status.is_active() => (Some(node), None),
                Some(JobStatus::Canceled) => (behind, behind),
                Some(_) => (behind, None),
            };
            for &before in order.before(node) {
                let before = before as usize;
                held.behind[before] = held.behind[before].or(active);
                held.behind_canceled[before] = held.behind_canceled[before].or(canceled);
            }
        }
        Ok(held)
    }

    /// The job that a worker holds and that would have to go back, if this were done about `job`.
    pub fn in_the_way(&self, job: u32, verdict: Verdict) -> Option<u32> {
        let behind = match verdict {
            Verdict::Retry => &self.behind,
            Verdict::Ignore => &self.behind_canceled,
            Verdict::Fail | Verdict::Change => return None,
        };
        behind.get(job as usize).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edges::EdgesBuilder;

    fn held(status: &[JobStatus], depends: &[(u32, &[u32])]) -> Held {
        let mut edges = EdgesBuilder::default();
        for (job, on) in depends {
            edges.depend(*job, on);
        }
        Held::new(&edges.finish(), status).unwrap()
    }

    #[test]
    fn who_has_somebody_at_work_behind_it_is_held() {
        use JobStatus::{Blocked, Canceled, Completed, Disabled, Failed, Ready, Running};
        let (retry, ignore) = (Verdict::Retry, Verdict::Ignore);
        for (status, depends, job, verdict, expected) in [
            (vec![Failed, Running], &[(1, &[0u32][..])][..], 0, retry, Some(1)),
            (vec![Failed, Running], &[(1, &[0])], 0, Verdict::Fail, None),
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
            let found = held(&status, depends).in_the_way(job, verdict);
            assert_eq!(found, expected, "{status:?} {depends:?} {verdict}");
        }
    }
}
