//! Data of the contract besides running jobs: jobs with all fields, lists with filters, sort order and counts.

use crate::kit::{NOW, claim, commit, create, end, key, worker};
use serde_json::json;
use std::time::Duration;
use windlass_store::model::{
    AddFile, AddJob, AddUserData, CountQuery, DataFilter, JobFilter, JobUpdate, NewWorkflow, SortBy,
    WorkflowFilter, WorkflowPartId,
};
use windlass_store::{Store, StoreError};
use windlass_types::settings::{FailureHandler, SlurmScheduler};
use windlass_types::worker_messages::{StdioMode, StdioSettings};
use windlass_types::{
    FileId, JobDefinition, JobId, JobOptions, JobSettings, JobStatus, UserDataId, WorkflowId,
};

fn empty(store: &dyn Store) -> WorkflowId {
    let new = NewWorkflow { name: "new", user: "ada", ..NewWorkflow::default() };
    store.create_workflow(&new, &mut crate::kit::ListSource::default(), NOW).unwrap()
}

fn new(name: &str) -> AddJob {
    JobDefinition::new(name, format!("echo {name}")).into()
}

fn with_settings(name: &str, settings: JobSettings<i64>) -> AddJob {
    JobDefinition { settings, ..new(name).definition }.into()
}

fn handler(store: &dyn Store, workflow: WorkflowId) -> i64 {
    let handler = FailureHandler { name: "again".into(), rules: Vec::new() };
    store.add_handler(workflow, &handler, NOW).unwrap()
}

fn scheduler(store: &dyn Store, workflow: WorkflowId) -> i64 {
    let scheduler =
        SlurmScheduler { name: "night".into(), account: "lab".into(), ..SlurmScheduler::default() };
    store.add_scheduler(workflow, &scheduler, NOW).unwrap()
}

fn files<const N: usize>(store: &dyn Store, workflow: WorkflowId, names: [&str; N]) -> [FileId; N] {
    let new = names.map(|name| AddFile { name: name.into(), path: format!("/{name}"), mtime_ns: None });
    store.add_files(workflow, &new, NOW).unwrap().try_into().unwrap()
}

fn pieces(store: &dyn Store, workflow: WorkflowId) -> [UserDataId; 2] {
    let piece = |name: &str| AddUserData { name: name.into(), ..AddUserData::default() };
    store.add_user_data_list(workflow, &[piece("u"), piece("v")], NOW).unwrap().try_into().unwrap()
}

pub(crate) fn added_job_has_all_given_fields(store: &dyn Store) {
    let id = empty(store);
    let (handler, scheduler) = (handler(store, id), scheduler(store, id));
    let ([input, output], [read, written]) = (files(store, id, ["in", "out"]), pieces(store, id));
    let stdio = StdioSettings { mode: StdioMode::Combined, delete_on_success: true };
    let full = AddJob {
        definition: JobDefinition {
            invocation_script: Some("wrap.sh".into()),
            env: vec![("A".into(), "1".into())],
            priority: 4,
            cancel_on_blocking_job_failure: false,
            settings: JobSettings {
                supports_termination: Some(true),
                stdio: Some(stdio),
                labels: vec!["gpu".into()],
                failure_handler: Some(handler),
                scheduler: Some(scheduler),
                ..JobSettings::default()
            },
            options: JobOptions { description: Some("All fields".into()) },
            ..new("full").definition
        },
        input_files: vec![input],
        output_files: vec![output],
        input_user_data: vec![read],
        output_user_data: vec![written],
        is_uninitialized: true,
        waits_for: vec![],
    };
    let jobs = store.add_jobs(id, &[full.clone(), new("plain")], NOW).unwrap();
    let details = store.job(jobs[0]).unwrap().unwrap();
    assert_eq!((details.row.name.as_str(), details.row.status), ("full", JobStatus::Uninitialized));
    let defined = &full.definition;
    assert_eq!(details.row.options, defined.options);
    assert_eq!((&details.invocation_script, &details.env), (&defined.invocation_script, &defined.env));
    assert_eq!((details.stdio, details.supports_termination), (Some(stdio), Some(true)));
    assert_eq!((details.failure_handler_id, details.scheduler_id), (Some(handler), Some(scheduler)));
    assert_eq!((details.labels, details.row.priority), (defined.settings.labels.clone(), 4));
    let plain = store.job(jobs[1]).unwrap().unwrap();
    assert_eq!((plain.labels.len(), plain.stdio, plain.row.status), (0, None, JobStatus::Ready));
    let relations = store.list_job_relations(&jobs).unwrap();
    assert_eq!(
        (&relations[0].input_files[..], &relations[0].output_files[..]),
        (&[input][..], &[output][..])
    );
    assert_eq!(relations[0].input_user_data, [read]);
    assert_eq!(relations[0].output_user_data, [written]);
    assert!(relations[1].input_files.is_empty());
    assert_eq!(store.workflow_of(WorkflowPartId::Job(jobs[0])).unwrap(), Some(id));
    assert_eq!(store.workflow_of(WorkflowPartId::Job(JobId(jobs[1].0 + 1))).unwrap(), None);

    // Parts of another workflow are not found, and nothing of the attempt is left.
    let other = empty(store);
    let strangers = [
        with_settings("x", JobSettings { failure_handler: Some(handler), ..JobSettings::default() }),
        with_settings("x", JobSettings { scheduler: Some(scheduler), ..JobSettings::default() }),
        AddJob { input_files: vec![input], ..new("x") },
        AddJob { input_user_data: vec![read], ..new("x") },
        AddJob { waits_for: vec![jobs[0]], ..new("x") },
    ];
    for stranger in strangers {
        assert!(store.add_jobs(other, &[new("y"), stranger], NOW).is_err());
    }
    assert_eq!(store.job_ids(other).unwrap(), []);
    assert!(store.delete_handler(handler, NOW).is_err(), "a job refers to it");
}

pub(crate) fn every_job_field_can_be_changed(store: &dyn Store) {
    let id = empty(store);
    let (handler, scheduler) = (handler(store, id), scheduler(store, id));
    let jobs = store.add_jobs(id, &[new("a"), new("b")], NOW).unwrap();
    let update = JobUpdate {
        invocation_script: Some(Some("wrap.sh".into())),
        cancel_on_blocking_job_failure: Some(false),
        supports_termination: Some(Some(true)),
        failure_handler: Some(Some(handler)),
        scheduler: Some(Some(scheduler)),
        labels: Some(vec!["gpu".into()]),
        ..JobUpdate::default()
    };
    assert_eq!(store.update_job(id, jobs[0], &update, NOW).unwrap().len(), 6);
    assert_eq!(store.update_job(id, jobs[0], &update, NOW).unwrap().len(), 0, "all values are the same");
    let told = |job| {
        let job = store.job(job).unwrap().unwrap();
        (
            job.invocation_script,
            job.supports_termination,
            job.failure_handler_id,
            job.scheduler_id,
            job.labels,
        )
    };
    let changed =
        (Some("wrap.sh".to_owned()), Some(true), Some(handler), Some(scheduler), vec!["gpu".to_owned()]);
    assert_eq!(told(jobs[0]), changed);
    assert_eq!(told(jobs[1]), (None, None, None, None, vec![]), "the other one is unchanged");

    let back = JobUpdate {
        invocation_script: Some(None),
        supports_termination: Some(None),
        failure_handler: Some(None),
        scheduler: Some(None),
        labels: Some(Vec::new()),
        ..JobUpdate::default()
    };
    store.update_job(id, jobs[0], &back, NOW).unwrap();
    assert_eq!(told(jobs[0]), (None, None, None, None, vec![]));
    store.delete_handler(handler, NOW).unwrap();
}

pub(crate) fn jobs_are_filtered_by_relations(store: &dyn Store) {
    let id = empty(store);
    let [input] = files(store, id, ["in"]);
    let first = store.add_jobs(id, &[AddJob { input_files: vec![input], ..new("Alpha") }], NOW).unwrap()[0];
    let labels = |labels: &[&str]| JobSettings {
        labels: labels.iter().map(|&label| label.to_owned()).collect(),
        ..JobSettings::default()
    };
    let second = AddJob { waits_for: vec![first], ..with_settings("beta", labels(&["gpu"])) };
    let mut third = with_settings("gamma", labels(&["gpu", "big"]));
    third.definition.command = "50% _off".into();
    let rest = store.add_jobs(id, &[second, third], NOW).unwrap();
    let by = worker(store, id);
    commit(store, id, vec![claim(first, 1, by)]).unwrap();
    let found = |filter: JobFilter| {
        let ids: Vec<_> = store.jobs(id, &filter).unwrap().iter().map(|row| row.id).collect();
        assert_eq!(
            store.count_rows(&CountQuery::Jobs(id, filter.clone())).unwrap(),
            ids.len() as u64,
            "{filter:?}"
        );
        ids
    };
    let all = JobFilter::default;
    assert_eq!(found(JobFilter { worker: Some(by), ..all() }), [first]);
    assert_eq!(found(JobFilter { needs_file: Some(input), ..all() }), [first]);
    assert_eq!(found(JobFilter { upstream: Some(first), ..all() }), [rest[0]]);
    assert_eq!(found(JobFilter { name_contains: Some("ALPH".into()), ..all() }), [first]);
    assert_eq!(found(JobFilter { command_contains: Some("% _".into()), ..all() }), [rest[1]]);
    assert_eq!(found(JobFilter { command_contains: Some("e_h".into()), ..all() }), [], "no wildcards");
    let labels = |labels: &[&str]| Some(labels.iter().map(|&label| label.to_owned()).collect());
    assert_eq!(found(JobFilter { for_labels: labels(&[]), ..all() }), [first]);
    assert_eq!(found(JobFilter { for_labels: labels(&["gpu"]), ..all() }), [rest[0]]);
    assert_eq!(found(JobFilter { for_labels: labels(&["big", "gpu", "x"]), ..all() }), rest);
}

pub(crate) fn lists_are_sorted_and_counted(store: &dyn Store) {
    let id = empty(store);
    let added: Vec<_> = [("b", 1), ("c", 1), ("a", 2)]
        .map(|(name, priority)| JobDefinition { priority, ..new(name).definition }.into())
        .into();
    store.add_jobs(id, &added, NOW).unwrap();
    let sorted = |field: &str, descending| {
        let sort = Some(SortBy { field: field.into(), descending });
        let rows = store.jobs(id, &JobFilter { sort, ..JobFilter::default() })?;
        Ok::<_, StoreError>(rows.into_iter().map(|row| row.name).collect::<Vec<_>>())
    };
    assert_eq!(sorted("name", false).unwrap(), ["a", "b", "c"]);
    assert_eq!(sorted("name", true).unwrap(), ["c", "b", "a"]);
    assert_eq!(sorted("priority", true).unwrap()[0], "a");
    assert_eq!(sorted("priority", false).unwrap(), ["b", "c", "a"], "ties are sorted by id");
    assert!(sorted("name; DROP TABLE job", false).is_err());

    files(store, id, ["y", "x"]);
    let sort = Some(SortBy { field: "name".into(), descending: false });
    let filter = DataFilter { sort, limit: Some(1), ..DataFilter::default() };
    assert_eq!(store.files(id, &filter).unwrap()[0].name, "x");
    assert_eq!(store.count_rows(&CountQuery::Files(id, filter)).unwrap(), 2, "without the limit");
    create(store, 1);
    let named = WorkflowFilter { name: Some("new".into()), limit: Some(1), ..WorkflowFilter::default() };
    assert_eq!(store.count_rows(&CountQuery::Workflows(named)).unwrap(), 1);
    assert_eq!(store.count_rows(&CountQuery::Workflows(WorkflowFilter::default())).unwrap(), 2);
}

pub(crate) fn jobs_added_one_by_one_depend_as_if_added_at_once(store: &dyn Store) {
    let edges = |one_by_one: bool| {
        let id = empty(store);
        let ([first, second, third], [early, late]) = (files(store, id, ["a", "b", "c"]), pieces(store, id));
        let jobs = [
            AddJob { output_files: vec![first], output_user_data: vec![early], ..new("source") },
            AddJob { input_files: vec![first, third], output_files: vec![second], ..new("middle") },
            AddJob { input_files: vec![first, second], input_user_data: vec![early, late], ..new("sink") },
            AddJob { input_user_data: vec![early], output_user_data: vec![late], ..new("late") },
            AddJob { output_files: vec![third], ..new("last") },
        ];
        let size = if one_by_one { 1 } else { jobs.len() };
        for some in jobs.chunks(size) {
            store.add_jobs(id, some, NOW).unwrap();
        }
        let rows = store.dependencies(id, 0, None).unwrap();
        assert_eq!(store.count_rows(&CountQuery::Dependencies(id)).unwrap(), rows.len() as u64);
        rows.into_iter().map(|row| (row.job_name, row.depends_on_job_name)).collect::<Vec<_>>()
    };
    let told = [
        ("middle", "source"),
        ("middle", "last"),
        ("sink", "source"),
        ("sink", "middle"),
        ("sink", "late"),
        ("late", "source"),
    ];
    let told = told.map(|(job, on)| (job.to_owned(), on.to_owned()));
    assert_eq!(edges(false), told);
    assert_eq!(edges(true), told);
}

pub(crate) fn client_records_are_stored_verbatim(store: &dyn Store) {
    let id = empty(store);
    let data = json!({ "memory": "4g", "nested": [1, null] });
    let record = store.add_record(Some(id), "local_scheduler", Some("here"), &data, NOW).unwrap();
    assert!(store.add_record(Some(id), "local_scheduler", Some("here"), &data, NOW).is_err());
    store.add_record(Some(id), "slurm_stats", None, &data, NOW).unwrap();
    store.add_record(Some(id), "slurm_stats", None, &data, NOW).unwrap();
    assert_eq!(store.record(record).unwrap().unwrap().data, data);
    store.update_record(record, &json!({}), NOW).unwrap();
    assert_eq!(store.records(Some(id), "local_scheduler").unwrap()[0].data, json!({}));
    assert_eq!(store.workflow_of(WorkflowPartId::Record(record)).unwrap(), Some(id));
    assert_eq!(store.delete_records(id, "slurm_stats", NOW).unwrap(), 2);
    store.delete_record(record, NOW).unwrap();
    assert_eq!(store.record(record).unwrap(), None);
    assert!(store.delete_record(record, NOW).is_err());
}

pub(crate) fn work_summary_covers_all_attempts(store: &dyn Store) {
    let (id, jobs) = create(store, 3);
    let worker = worker(store, id);
    let before = store.work_summary(id).unwrap();
    assert_eq!((before.wall, before.first_start, before.last_end), (Duration::ZERO, None, None));
    for (job, status) in [(jobs[0], JobStatus::Completed), (jobs[1], JobStatus::Failed)] {
        commit(store, id, vec![claim(job, 1, worker)]).unwrap();
        commit(store, id, vec![end(key(id, job, 1), worker, status)]).unwrap();
    }
    let done = store.work_summary(id).unwrap();
    assert_eq!((done.wall, done.first_start, done.last_end), (Duration::from_secs(3), Some(NOW), Some(NOW)));
}
