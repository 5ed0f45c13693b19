//! Lists: filters, pages, order.

use crate::kit::{RUN, claim, commit, counts, create, end, key, start, worker};
use windlass_core::change::WorkflowChange;
use windlass_store::model::{JobFilter, ResultFilter};
use windlass_store::{Store, StoreError};
use windlass_types::{Attempt, JobId, JobStatus, RunId, WorkerId, WorkflowId};

/// Ten jobs: 0–3 completed, 4 failed at its second attempt, 5 canceled, 6 running, 7 pending, 8 and 9 ready.
fn mixed(store: &dyn Store) -> (WorkflowId, Vec<JobId>) {
    let (workflow, jobs) = create(store, 10);
    let worker = worker(store, workflow);
    let mut changes: Vec<WorkflowChange> = jobs[..8].iter().map(|job| claim(*job, 1, worker)).collect();
    for &job in &jobs[..4] {
        changes.push(end(key(workflow, job, 1), worker, JobStatus::Completed));
    }
    changes.extend(fail_twice(workflow, jobs[4], worker));
    changes.push(WorkflowChange::ReturnClaim { job: jobs[5], worker });
    changes.push(WorkflowChange::Status { job: jobs[5], from: JobStatus::Ready, to: JobStatus::Canceled });
    changes.push(start(jobs[6], 1, worker));
    commit(store, workflow, changes).unwrap();
    counts(store, workflow);
    (workflow, jobs)
}

fn fail_twice(workflow: WorkflowId, job: JobId, worker: WorkerId) -> Vec<WorkflowChange> {
    let mut first = end(key(workflow, job, 1), worker, JobStatus::Failed);
    if let WorkflowChange::End { to, next_attempt, .. } = &mut first {
        (*to, *next_attempt) = (JobStatus::Ready, Attempt(2));
    }
    let mut second = end(key(workflow, job, 2), worker, JobStatus::Failed);
    if let WorkflowChange::End { result, .. } = &mut second {
        result.return_code = 42;
        result.reason = Some("again".into());
    }
    vec![first, claim(job, 2, worker), second]
}

pub(crate) fn jobs_are_filtered_and_paged(store: &dyn Store) {
    let (workflow, jobs) = mixed(store);
    let listed = |filter: JobFilter| {
        let rows = store.jobs(workflow, &filter).unwrap();
        rows.iter().map(|row| jobs.iter().position(|job| *job == row.id).unwrap()).collect::<Vec<_>>()
    };
    let by_status = |status: &[JobStatus]| JobFilter { status: status.to_vec(), ..JobFilter::default() };
    let everything: Vec<usize> = (0..10).collect();
    assert_eq!(listed(JobFilter::default()), everything);
    assert_eq!(listed(by_status(&[JobStatus::Failed])), [4]);
    assert_eq!(listed(by_status(&[JobStatus::Canceled, JobStatus::Failed, JobStatus::Pending])), [4, 5, 7]);
    assert_eq!(listed(by_status(&[JobStatus::Running])), [6]);
    assert_eq!(listed(by_status(&[JobStatus::Completed])), [0, 1, 2, 3]);
    assert_eq!(listed(by_status(&[JobStatus::Ready, JobStatus::Failed])), [4, 8, 9]);
    assert_eq!(listed(by_status(&[JobStatus::Disabled])), [] as [usize; 0]);
    assert_eq!(listed(by_status(&JobStatus::ALL)), everything);

    assert_eq!(listed(JobFilter { offset: 3, limit: Some(4), ..JobFilter::default() }), [3, 4, 5, 6]);
    assert_eq!(listed(JobFilter { offset: 8, ..JobFilter::default() }), [8, 9]);
    assert_eq!(
        listed(JobFilter { offset: u64::MAX, limit: Some(u64::MAX), ..JobFilter::default() }),
        [] as [usize; 0]
    );
    assert_eq!(listed(JobFilter { limit: Some(0), ..JobFilter::default() }), [] as [usize; 0]);
    let page = JobFilter { offset: 1, limit: Some(2), ..by_status(&[JobStatus::Completed]) };
    assert_eq!(listed(page), [1, 2]);
    let unhappy = [JobStatus::Failed, JobStatus::Canceled];
    assert_eq!(listed(JobFilter { offset: 1, limit: Some(9), ..by_status(&unhappy) }), [5]);

    let ids = vec![jobs[9], jobs[4], jobs[4], JobId(99_999)];
    assert_eq!(listed(JobFilter { ids: ids.clone(), ..JobFilter::default() }), [4, 9]);
    assert_eq!(listed(JobFilter { ids, ..by_status(&[JobStatus::Failed]) }), [4]);
    let named = |name: &str| JobFilter { name: Some(name.into()), ..JobFilter::default() };
    assert_eq!(listed(named("job_0007")), [7]);
    assert_eq!(listed(named("job")), [] as [usize; 0]);
    assert_eq!(listed(JobFilter { status: vec![JobStatus::Ready], ..named("job_0007") }), [] as [usize; 0]);
    let begins = |prefix: &str| JobFilter { name_prefix: Some(prefix.into()), ..JobFilter::default() };
    assert_eq!(listed(begins("job_000")), everything);
    assert_eq!(listed(JobFilter { limit: Some(2), ..begins("job") }), [0, 1]);
    assert_eq!(listed(begins("job_0008")), [8]);
    assert_eq!(listed(begins("jop")), [] as [usize; 0]);
    let after = |job: usize| JobFilter { after: Some(jobs[job]), limit: Some(3), ..JobFilter::default() };
    assert_eq!(listed(after(4)), [5, 6, 7]);
    assert_eq!(listed(after(9)), [] as [usize; 0]);
    assert_eq!(listed(JobFilter { status: vec![JobStatus::Completed], ..after(1) }), [2, 3]);

    // The last attempt is shown.
    let failed = &store.jobs(workflow, &by_status(&[JobStatus::Failed])).unwrap()[0];
    assert_eq!((failed.attempt_id, failed.return_code), (Attempt(2), Some(42)));
    assert_eq!(failed.reason.as_deref(), Some("again"));
    let running = &store.jobs(workflow, &by_status(&[JobStatus::Running])).unwrap()[0];
    assert_eq!((running.pid, running.return_code), (Some(99), None));
}

pub(crate) fn results_are_filtered_and_paged(store: &dyn Store) {
    let (workflow, jobs) = mixed(store);
    mixed(store); // another workflow that must not be listed
    let listed = |filter: ResultFilter| {
        let rows = store.results(workflow, &filter).unwrap();
        rows.iter()
            .map(|row| (jobs.iter().position(|job| *job == row.key.job_id).unwrap(), row.key.attempt_id.0))
            .collect::<Vec<_>>()
    };
    let all = [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (4, 2)];
    assert_eq!(listed(ResultFilter::default()), all);
    assert_eq!(listed(ResultFilter { all_runs: true, ..ResultFilter::default() }), all);
    assert_eq!(listed(ResultFilter { run: Some(RUN), ..ResultFilter::default() }), all);
    assert_eq!(listed(ResultFilter { run: Some(RunId(2)), ..ResultFilter::default() }), []);
    assert_eq!(listed(ResultFilter { failed_only: true, ..ResultFilter::default() }), [(4, 1), (4, 2)]);
    assert_eq!(listed(ResultFilter { job: Some(jobs[4]), ..ResultFilter::default() }), [(4, 1), (4, 2)]);
    assert_eq!(listed(ResultFilter { job: Some(JobId(jobs[9].0 + 1)), ..ResultFilter::default() }), []);
    let page = ResultFilter { offset: 3, limit: Some(2), ..ResultFilter::default() };
    assert_eq!(listed(page), [(3, 1), (4, 1)]);
    let after = |job: usize, attempt: u32| ResultFilter {
        after: Some((jobs[job], RUN, Attempt(attempt))),
        ..ResultFilter::default()
    };
    assert_eq!(listed(after(2, 1)), [(3, 1), (4, 1), (4, 2)]);
    assert_eq!(listed(after(4, 1)), [(4, 2)]);
    assert_eq!(listed(ResultFilter { status: vec![JobStatus::Failed], ..after(0, 1) }), [(4, 1), (4, 2)]);
    assert_eq!(listed(ResultFilter { return_code: Some(42), ..ResultFilter::default() }), [(4, 2)]);
}

pub(crate) fn commands_and_names_keep_the_requested_order(store: &dyn Store) {
    let (_, jobs) = create(store, 3);
    let asked = [jobs[2], jobs[0], jobs[2]];
    let commands = store.load_job_commands(&asked).unwrap();
    assert_eq!(commands.iter().map(|command| command.id).collect::<Vec<_>>(), asked);
    assert_eq!(store.job_names(&[jobs[1], JobId(99_999), jobs[0]]).unwrap(), ["job_0001", "", "job_0000"]);
    let error = store.load_job_commands(&[jobs[0], JobId(99_999)]).unwrap_err();
    assert!(matches!(error, StoreError::NoSuchJob(JobId(99_999))), "{error}");
    assert!(store.load_job_commands(&[]).unwrap().is_empty());
}

pub(crate) fn workflows_are_isolated(store: &dyn Store) {
    let (first, jobs) = mixed(store);
    let (second, _) = create(store, 4);
    assert_eq!(counts(store, second).get(JobStatus::Ready), 4);
    assert!(store.held_jobs(second).unwrap().is_empty());
    let foreign = JobFilter { ids: vec![jobs[0]], ..JobFilter::default() };
    assert!(store.jobs(second, &foreign).unwrap().is_empty());
    let rows = store.workflows().unwrap();
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [first, second]);
    assert_ne!(rows[0].uuid, rows[1].uuid);
    assert_eq!(rows[0].counts, counts(store, first));
}
