//! Selection of jobs to reset: the chosen jobs and their dependents.
//!
//! A reset keeps the results of earlier runs. The jobs found here run again in the next run
//! (`Store::begin_next_run`).

use crate::dependency_edges::DependencyEdges;
use crate::dependency_graph::DependencyCycle;
use crate::topological_order::TopologicalOrder;
use serde::Serialize;
use windlass_types::{JobStatus, StatusCounts};

/// The state of a job that matters for a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobResetState {
    pub status: JobStatus,
    /// Return code of its newest attempt.
    pub return_code: Option<i32>,
}

/// Selects jobs. Several values of one kind widen the selection, several kinds narrow it; an empty one selects
/// all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResetSelection {
    /// Job numbers.
    pub jobs: Vec<u32>,
    pub statuses: Vec<JobStatus>,
    pub return_codes: Vec<i32>,
    /// Jobs that did not complete: failed, canceled, terminated, pending_failed.
    pub failed_only: bool,
}

impl ResetSelection {
    /// Whether there are no criteria, so that it selects every job.
    pub fn selects_all(&self) -> bool {
        *self == Self::default()
    }
}

/// The effect of a reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ResetPlan {
    /// Selected jobs that are reset, ascending.
    pub chosen: Vec<u32>,
    /// Other jobs that are reset because they depend on those, ascending.
    pub downstream: Vec<u32>,
    /// Selected jobs that have not run since their last reset: nothing to do.
    pub untouched: Vec<u32>,
    /// Current states of the jobs to be reset.
    #[serde(skip)]
    pub from: StatusCounts,
}

impl ResetPlan {
    /// Returns all jobs that are reset, ascending.
    pub fn all_jobs(&self) -> Vec<u32> {
        let mut all = [self.chosen.as_slice(), self.downstream.as_slice()].concat();
        all.sort_unstable();
        all
    }

    pub fn is_empty(&self) -> bool {
        self.chosen.is_empty() && self.downstream.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResetError {
    /// Jobs that would be reset are held by workers.
    #[error("{} of the jobs to reset are running; cancel the workflow or wait for them", .0.len())]
    Active(Vec<u32>),
    #[error(transparent)]
    Cycle(#[from] DependencyCycle),
}

/// Decides what is reset. `job_states` are all jobs of the workflow, by number.
pub fn plan_reset(
    job_states: &[JobResetState],
    edges: &DependencyEdges,
    choice: &ResetSelection,
) -> Result<ResetPlan, ResetError> {
    let order = TopologicalOrder::new(job_states.len() as u32, edges)?;
    let mut is_named = vec![choice.jobs.is_empty(); job_states.len()];
    choice.jobs.iter().for_each(|&job| is_named[job as usize] = true);
    let is_chosen = |job: usize| is_named[job] && is_selected(choice, &job_states[job]);
    let mut reset = ResetPlan::default();
    let mut active = Vec::new();
    // Whether a dependency of each node is reset.
    let mut reached = vec![false; order.len()];
    for &node in order.sorted() {
        let behind = order.predecessors(node).iter().any(|&before| reached[before as usize]);
        if order.is_group(node) {
            reached[node as usize] = behind;
            continue;
        }
        let chosen = is_chosen(node as usize);
        let status = job_states[node as usize].status;
        reached[node as usize] = behind || chosen;
        match () {
            () if !chosen && !behind => {}
            () if status.is_active() => active.push(node),
            () if chosen && needs_reset(status) => reset.chosen.push(node),
            () if chosen => reset.untouched.push(node),
            // Disabled, and not selected by name.
            () if status == JobStatus::Disabled => {}
            () if needs_reset(status) => reset.downstream.push(node),
            () => {}
        }
    }
    if !active.is_empty() {
        active.sort_unstable();
        return Err(ResetError::Active(active));
    }
    for list in [&mut reset.chosen, &mut reset.downstream, &mut reset.untouched] {
        list.sort_unstable();
    }
    for &job in reset.chosen.iter().chain(&reset.downstream) {
        reset.from.add(job_states[job as usize].status, 1);
    }
    Ok(reset)
}

fn is_selected(choice: &ResetSelection, job_state: &JobResetState) -> bool {
    let status = job_state.status;
    let unsuccessful = status.is_unsuccessful() || status == JobStatus::PendingFailed;
    (choice.statuses.is_empty() || choice.statuses.contains(&status))
        && (choice.return_codes.is_empty()
            || job_state.return_code.is_some_and(|code| choice.return_codes.contains(&code)))
        && (!choice.failed_only || unsuccessful)
}

/// Whether a reset would change its state.
fn needs_reset(status: JobStatus) -> bool {
    status.is_settled() || status == JobStatus::PendingFailed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dependency_edges::DependencyEdgesBuilder;
    use JobStatus as S;
    use proptest::prelude::*;

    /// 0 ─▶ 1 ─▶ 2, and 3 without dependencies.
    fn plan(statuses: [S; 4], choice: &ResetSelection) -> Result<ResetPlan, ResetError> {
        let mut builder = DependencyEdgesBuilder::default();
        builder.add_dependencies(1, &[0]);
        builder.add_dependencies(2, &[1]);
        let code = |status| match status {
            S::Completed => Some(0),
            S::Failed => Some(3),
            S::Terminated => Some(152),
            _ => None,
        };
        let job_states = statuses.map(|status| JobResetState { status, return_code: code(status) });
        plan_reset(&job_states, &builder.finish(), choice)
    }

    fn lists(statuses: [S; 4], choice: &ResetSelection) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
        let reset = plan(statuses, choice).unwrap();
        (reset.chosen, reset.downstream, reset.untouched)
    }

    #[test]
    fn selected_jobs_and_dependents_are_reset() {
        let ended = [S::Completed, S::Failed, S::Canceled, S::Terminated];
        let by_job = ResetSelection { jobs: vec![0], ..ResetSelection::default() };
        let by_status = ResetSelection { statuses: vec![S::Terminated], ..ResetSelection::default() };
        let by_code = ResetSelection { return_codes: vec![3], ..ResetSelection::default() };
        let failed = ResetSelection { failed_only: true, ..ResetSelection::default() };
        let failed_of_two =
            ResetSelection { jobs: vec![0, 1], failed_only: true, ..ResetSelection::default() };
        for (choice, expected) in [
            (by_job, (vec![0], vec![1, 2], vec![])),
            (by_status, (vec![3], vec![], vec![])),
            (by_code, (vec![1], vec![2], vec![])),
            (failed, (vec![1, 2, 3], vec![], vec![])),
            (failed_of_two, (vec![1], vec![2], vec![])),
            (ResetSelection::default(), (vec![0, 1, 2, 3], vec![], vec![])),
        ] {
            assert_eq!(lists(ended, &choice), expected, "{choice:?}");
        }
    }

    #[test]
    fn pending_failures_count_as_failed() {
        let choice = ResetSelection { failed_only: true, ..ResetSelection::default() };
        let statuses = [S::PendingFailed, S::Blocked, S::Blocked, S::Completed];
        assert_eq!(lists(statuses, &choice), (vec![0], vec![], vec![]));
    }

    #[test]
    fn unstarted_and_disabled_jobs_are_not_reset() {
        let choice = ResetSelection { jobs: vec![0, 3], ..ResetSelection::default() };
        let statuses = [S::Completed, S::Disabled, S::Completed, S::Ready];
        assert_eq!(lists(statuses, &choice), (vec![0], vec![2], vec![3]));
        let by_name = ResetSelection { jobs: vec![1], ..ResetSelection::default() };
        assert_eq!(lists(statuses, &by_name), (vec![1], vec![2], vec![]));
    }

    #[test]
    fn running_jobs_are_not_reset() {
        let choice = ResetSelection { jobs: vec![0], ..ResetSelection::default() };
        let running = [S::Completed, S::Completed, S::Running, S::Running];
        assert_eq!(plan(running, &choice), Err(ResetError::Active(vec![2])));
    }

    #[test]
    fn reset_counts_previous_states() {
        let reset =
            plan([S::Completed, S::Failed, S::Canceled, S::Ready], &ResetSelection::default()).unwrap();
        assert_eq!((reset.from.total(), reset.from.get(S::Canceled)), (3, 1));
        assert_eq!(reset.all_jobs(), [0, 1, 2]);
    }

    proptest! {
        /// A reset job resets all of its dependents that have ended, and nothing else.
        #[test]
        fn reset_includes_all_ended_dependents(
            ended in proptest::collection::vec(0usize..4, 1..25),
            raw in proptest::collection::vec((0usize..25, proptest::collection::vec(0usize..25, 1..5)), 0..20),
            chosen in proptest::collection::vec(0usize..25, 1..4),
        ) {
            let count = ended.len();
            let mut pairs = Vec::new();
            let mut builder = DependencyEdgesBuilder::default();
            for (job, on) in raw.iter().map(|(job, on)| (job % count, on)).filter(|(job, _)| *job > 0) {
                let on: Vec<u32> = on.iter().map(|on| (on % job) as u32).collect();
                builder.add_dependencies(job as u32, &on);
                pairs.extend(on.iter().map(|&on| (job, on as usize)));
            }
            let statuses = [S::Completed, S::Failed, S::Ready, S::Blocked];
            let job_states: Vec<JobResetState> =
                ended.iter().map(|&n| JobResetState { status: statuses[n], return_code: None }).collect();
            let jobs: Vec<u32> = chosen.iter().map(|job| (job % count) as u32).collect();
            let choice = ResetSelection { jobs: jobs.clone(), ..ResetSelection::default() };
            let reset = plan_reset(&job_states, &builder.finish(), &choice).unwrap();
            let mut reached: Vec<bool> = (0..count).map(|job| jobs.contains(&(job as u32))).collect();
            for job in 0..count {
                reached[job] |= pairs.iter().any(|&(waiter, on)| waiter == job && reached[on]);
            }
            let expected: Vec<u32> = (0..count)
                .filter(|&job| reached[job] && job_states[job].status.has_ended())
                .map(|job| job as u32)
                .collect();
            prop_assert_eq!(reset.all_jobs(), expected);
        }
    }
}
