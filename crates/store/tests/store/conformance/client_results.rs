//! Results and events reported by clients, and the contract's queries about ready jobs.

use crate::kit::{ListSource, NOW, RUN, claim, commit, create, end, key, worker};
use serde_json::json;
use std::time::Duration;
use windlass_core::change::WorkflowChange;
use windlass_store::model::{
    AddFile, AddJob, AddUserData, ClientResult, CountQuery, EventFilter, EventSeverity, JobUpdate, NewEvent,
    NewWorkflow, ReadyJobsRow, ResultFilter, SortBy, UserDataUpdate, WorkflowPartId,
};
use windlass_store::{Store, StoreError};
use windlass_types::settings::SlurmScheduler;
use windlass_types::{
    Attempt, Bytes, EventId, FileId, JobDefinition, JobId, JobStatus, RequirementsId, Resources, ResultId,
    RunId, Timestamp, UserDataId, WorkerId, WorkflowId,
};

fn empty(store: &dyn Store) -> WorkflowId {
    let new = NewWorkflow { name: "new", user: "ada", ..NewWorkflow::default() };
    store.create_workflow(&new, &mut ListSource::default(), NOW).unwrap()
}

fn new(name: &str) -> AddJob {
    JobDefinition::new(name, "true").into()
}

fn with_requirements(name: &str, requirements: Option<RequirementsId>, scheduler: Option<i64>) -> AddJob {
    let mut job = new(name);
    job.definition.resource_requirements = requirements.map(|id| id.0);
    job.definition.settings.scheduler = scheduler;
    job
}

fn stated(job: JobId, worker: WorkerId) -> ClientResult {
    ClientResult {
        job,
        run: RUN,
        attempt: Attempt(1),
        worker,
        status: JobStatus::Failed,
        return_code: 3,
        ended_at: Timestamp(NOW.0 + 5),
        wall: Duration::from_millis(90),
        peak_memory_bytes: Some(1 << 40),
        avg_memory_bytes: None,
        peak_cpu_percent: Some(187.5),
        avg_cpu_percent: None,
    }
}

/// Messages and authors of a workflow's events.
fn told(store: &dyn Store, workflow: WorkflowId, category: &str) -> Vec<String> {
    let filter = EventFilter { category: Some(category.into()), ..EventFilter::default() };
    store.events(Some(workflow), &filter).unwrap().into_iter().map(|event| event.message).collect()
}

pub(crate) fn client_result_is_stored_and_changed(store: &dyn Store) {
    let (id, jobs) = create(store, 2);
    let by = worker(store, id);
    let first = stated(jobs[0], by);
    let result = store.add_result(&first, NOW).unwrap();
    assert_eq!(store.workflow_of(WorkflowPartId::Result(result)).unwrap(), Some(id));
    let row = store.result(result).unwrap().unwrap();
    assert_eq!((row.key.job_id, row.key.attempt_id, row.worker_id), (jobs[0], Attempt(1), by));
    assert_eq!((row.status, row.return_code, row.ended_at), (JobStatus::Failed, 3, first.ended_at));
    assert_eq!((row.peak_memory_bytes, row.avg_memory_bytes), (Some(Bytes(1 << 40)), None));
    assert_eq!((row.peak_cpu_percent, row.avg_cpu_percent), (Some(187.5), None));
    assert_eq!(
        store.jobs(id, &windlass_store::model::JobFilter::default()).unwrap()[0].status,
        JobStatus::Ready
    );

    assert!(store.add_result(&first, NOW).is_err(), "one for each attempt");
    let better = ClientResult {
        status: JobStatus::Completed,
        return_code: 0,
        peak_memory_bytes: None,
        avg_cpu_percent: Some(0.25),
        ..first.clone()
    };
    store.update_result(result, &better, NOW).unwrap();
    let row = store.result(result).unwrap().unwrap();
    assert_eq!((row.status, row.return_code, row.peak_memory_bytes), (JobStatus::Completed, 0, None));
    assert_eq!(row.avg_cpu_percent, Some(0.25));
    assert_eq!(told(store, id, "results").len(), 2, "the reported one, and the change");

    let foreign = ClientResult { worker: WorkerId(by.0 + 1), attempt: Attempt(2), ..first.clone() };
    assert!(matches!(store.add_result(&foreign, NOW), Err(StoreError::NoSuchWorker(_))));
    let nothing = ClientResult { job: JobId(jobs[1].0 + 1), ..first.clone() };
    assert!(matches!(store.add_result(&nothing, NOW), Err(StoreError::NoSuchJob(_))));
    let missing = ResultId(result.0 + 1);
    assert!(matches!(store.update_result(missing, &better, NOW), Err(StoreError::NoSuchResult(_))));
    assert!(store.result(missing).unwrap().is_none());
    assert_eq!(store.delete_results(id, NOW).unwrap(), 1);
    assert!(store.result(result).unwrap().is_none());
}

pub(crate) fn only_the_last_attempt_of_a_run_is_listed(store: &dyn Store) {
    let (id, jobs) = create(store, 3);
    let by = worker(store, id);
    for (job, run, attempt, code) in [(0, 1, 1, 7), (0, 1, 2, 0), (1, 1, 1, 7), (0, 2, 1, 9), (1, 2, 1, 7)] {
        let (run, attempt) = (RunId(run), Attempt(attempt));
        let result = ClientResult { run, attempt, return_code: code, ..stated(jobs[job], by) };
        store.add_result(&result, NOW).unwrap();
    }
    let listed = |filter: ResultFilter| {
        let filter = ResultFilter { last_only: true, ..filter };
        let rows = store.results(id, &filter).unwrap();
        assert_eq!(store.count_rows(&CountQuery::Results(id, filter)).unwrap(), rows.len() as u64);
        let which = |job: JobId| jobs.iter().position(|of| *of == job).unwrap();
        rows.iter()
            .map(|row| (which(row.key.job_id), row.key.run_id.0, row.key.attempt_id.0))
            .collect::<Vec<_>>()
    };
    let plain = ResultFilter::default;
    assert_eq!(listed(plain()), [(0, 2, 1), (1, 2, 1)]);
    let all_runs = [(0, 1, 2), (0, 2, 1), (1, 1, 1), (1, 2, 1)];
    assert_eq!(listed(ResultFilter { all_runs: true, ..plain() }), all_runs);
    assert_eq!(listed(ResultFilter { run: Some(RunId(1)), ..plain() }), [(0, 1, 2), (1, 1, 1)]);
    assert_eq!(listed(ResultFilter { job: Some(jobs[0]), all_runs: true, ..plain() }), all_runs[..2]);
    let sevens = ResultFilter { return_code: Some(7), all_runs: true, ..plain() };
    assert_eq!(listed(sevens), [(1, 1, 1), (1, 2, 1)], "a later attempt followed the first of job 0");
}

/// Missing values come first, or last in reverse order.
pub(crate) fn missing_values_sort_first(store: &dyn Store) {
    let (id, jobs) = create(store, 3);
    let by = worker(store, id);
    for (job, peak_memory_bytes) in jobs.iter().zip([Some(5), None, Some(3)]) {
        store.add_result(&ClientResult { peak_memory_bytes, ..stated(*job, by) }, NOW).unwrap();
    }
    let sorted = |descending| {
        let sort = Some(SortBy { field: "peak_memory_bytes".into(), descending });
        let rows = store.results(id, &ResultFilter { sort, ..ResultFilter::default() }).unwrap();
        rows.iter().map(|row| row.peak_memory_bytes.map(|bytes| bytes.0)).collect::<Vec<_>>()
    };
    assert_eq!(sorted(false), [None, Some(3), Some(5)]);
    assert_eq!(sorted(true), [Some(5), Some(3), None]);
}

pub(crate) fn event_update_is_recorded_as_an_event(store: &dyn Store) {
    let id = empty(store);
    let event = |workflow| NewEvent {
        workflow,
        job: None,
        severity: EventSeverity::Warning,
        category: "mine".into(),
        message: String::new(),
        data: Some(json!({ "n": 1 })),
    };
    let ids = store.add_events(&[event(Some(id)), event(None)], NOW).unwrap();
    for (number, event) in ids.iter().enumerate() {
        store.update_event(*event, &json!({ "n": [number, "\u{2713}"] }), NOW).unwrap();
        let row = store.event(*event).unwrap().unwrap();
        assert_eq!(row.data, Some(json!({ "n": [number, "\u{2713}"] })));
        assert_eq!(
            (row.category.as_str(), row.message.as_str(), row.severity),
            ("mine", "", EventSeverity::Warning)
        );
    }
    let recorded = NewEvent { message: "odd".into(), ..event(Some(id)) };
    let recorded = store.add_event(&recorded, NOW).unwrap();
    assert!(matches!(store.update_event(recorded, &json!({}), NOW), Err(StoreError::EventIsRecord(_))));
    let filter = EventFilter { category: Some("events".into()), ..EventFilter::default() };
    let notes = store.events(Some(id), &filter).unwrap();
    assert_eq!(notes.len(), 1);
    assert_eq!(notes[0].data, Some(json!({ "event_id": ids[0], "old": { "n": 1 } })));
    let missing = EventId(notes[0].id.0 + 100);
    assert!(matches!(store.update_event(missing, &json!({}), NOW), Err(StoreError::NoSuchEvent(_))));
}

pub(crate) fn ready_requirements_are_grouped(store: &dyn Store) {
    let id = empty(store);
    let night = SlurmScheduler { name: "night".into(), account: "lab".into(), ..SlurmScheduler::default() };
    let night = store.add_scheduler(id, &night, NOW).unwrap();
    let big = Resources { cpus: 16, ..Resources::DEFAULT };
    // Two sets with the same values are one.
    let sets = ["big", "large"].map(|name| Some(store.add_requirements(id, name, &big, NOW).unwrap()));
    let ready = [
        with_requirements("a", sets[0], None),
        with_requirements("b", sets[1], Some(night)),
        new("c"),
        new("d"),
        with_requirements("runs", sets[0], None),
    ];
    let jobs = store.add_jobs(id, &ready, NOW).unwrap();
    store.add_jobs(id, &[AddJob { waits_for: vec![jobs[0]], ..new("waits") }], NOW).unwrap();
    commit(store, id, vec![claim(jobs[4], 1, worker(store, id))]).unwrap();
    let asked = |scheduler| {
        let rows: Vec<ReadyJobsRow> = store.ready_requirements(id, scheduler).unwrap();
        rows.into_iter().map(|row| (row.resources.cpus, row.jobs)).collect::<Vec<_>>()
    };
    assert_eq!(asked(None), [(1, 2), (16, 2)]);
    assert_eq!(asked(Some(night)), [(1, 2), (16, 2)], "jobs that name it, or none");
    assert_eq!(asked(Some(night + 1)), [(1, 2), (16, 1)]);
    assert!(matches!(
        store.ready_requirements(WorkflowId(id.0 + 1), None),
        Err(StoreError::NoSuchWorkflow(_))
    ));
    let done = JobUpdate { requirements: sets[0], ..JobUpdate::default() };
    store.update_job(id, jobs[2], &done, NOW).unwrap();
    assert_eq!(asked(None), [(1, 1), (16, 3)]);
}

fn complete(store: &dyn Store, id: WorkflowId, job: JobId, by: WorkerId) {
    let ended: WorkflowChange = end(key(id, job, 1), by, JobStatus::Completed);
    commit(store, id, vec![claim(job, 1, by), ended]).unwrap();
}

pub(crate) fn required_are_external_inputs_and_completed_outputs(store: &dyn Store) {
    let id = empty(store);
    let add = ["given", "made", "later", "idle"].map(|name| AddFile {
        name: name.into(),
        path: format!("/{name}"),
        mtime_ns: None,
    });
    let files: Vec<FileId> = store.add_files(id, &add, NOW).unwrap();
    let piece = |name: &str| AddUserData { name: name.into(), ..AddUserData::default() };
    let list = ["given", "made", "later", "idle"].map(piece);
    let data: Vec<UserDataId> = store.add_user_data_list(id, &list, NOW).unwrap();
    let first = AddJob {
        input_files: vec![files[0]],
        output_files: vec![files[1]],
        input_user_data: vec![data[0]],
        output_user_data: vec![data[1]],
        ..new("first")
    };
    let second = AddJob {
        input_files: vec![files[1]],
        output_files: vec![files[2]],
        input_user_data: vec![data[1]],
        output_user_data: vec![data[2]],
        ..new("second")
    };
    let jobs = store.add_jobs(id, &[first, second], NOW).unwrap();
    let by = worker(store, id);
    assert_eq!(store.required_files(id).unwrap(), files[..1]);
    assert_eq!(store.missing_user_data(id).unwrap(), data[..1]);
    complete(store, id, jobs[0], by);
    assert_eq!(store.required_files(id).unwrap(), files[..2], "outputs of a completed job are required");
    assert_eq!(store.missing_user_data(id).unwrap(), data[..2]);
    let filled = UserDataUpdate { data: Some(Some(json!(0))), ..UserDataUpdate::default() };
    store.update_user_data(data[0], &filled, NOW).unwrap();
    assert_eq!(store.missing_user_data(id).unwrap(), [data[1]]);
    // Null is a value, too.
    let null = UserDataUpdate { data: Some(Some(json!(null))), ..UserDataUpdate::default() };
    store.update_user_data(data[1], &null, NOW).unwrap();
    assert_eq!(store.missing_user_data(id).unwrap(), [] as [UserDataId; 0]);
    let emptied = UserDataUpdate { data: Some(None), ..UserDataUpdate::default() };
    store.update_user_data(data[1], &emptied, NOW).unwrap();
    assert_eq!(store.missing_user_data(id).unwrap(), [data[1]]);
    assert_eq!(store.required_files(empty(store)).unwrap(), [] as [FileId; 0], "of its own workflow only");
}
