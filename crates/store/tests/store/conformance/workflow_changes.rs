//! Changes of workflows by users: rename, archive, change, delete; and their events.

use crate::kit::{ListSource, NOW, claim, commit, counts, create, end, file, job, key, worker, workflow};
use serde_json::json;
use windlass_core::dependency_edges::DependencyEdgesBuilder;
use windlass_store::model::{
    DataFilter, EventFilter, EventSeverity, JobFilter, NewEvent, NewJob, NewUserData, NewWorkflow,
    RequirementsChange, RequirementsUsers, ResultFilter, WorkflowUpdate,
};
use windlass_store::{Store, StoreError};
use windlass_types::{
    JobDefinition, JobGroup, JobId, JobStatus, Resources, Timestamp, UserDataId, WorkflowId,
};

pub(crate) fn a_workflow_is_renamed_and_archived(store: &dyn Store) {
    let (id, _) = create(store, 1);
    let (other, _) = create(store, 1);
    let update = WorkflowUpdate {
        name: Some("new".into()),
        description: Some(Some("why".into())),
        project: Some(Some("p".into())),
        metadata: Some([("k".to_owned(), json!(1))].into()),
        ..WorkflowUpdate::default()
    };
    store.update_workflow(id, &update, NOW).unwrap();
    let row = store.workflow(id).unwrap().unwrap();
    assert_eq!(
        (row.name.as_str(), row.user.as_str(), row.description.as_deref()),
        ("new", "ada", Some("why"))
    );
    assert_eq!((row.settings.project.as_deref(), &row.settings.metadata["k"]), (Some("p"), &json!(1)));
    store
        .update_workflow(id, &WorkflowUpdate { description: Some(None), ..Default::default() }, NOW)
        .unwrap();
    let row = store.workflow(id).unwrap().unwrap();
    assert_eq!((row.name.as_str(), row.description, row.settings.project.is_some()), ("new", None, true));

    store.set_archived(&[id, other], true, NOW).unwrap();
    assert!(store.workflows().unwrap().iter().all(|row| row.is_archived));
    store.set_archived(&[other], false, NOW).unwrap();
    assert!(!store.workflow(other).unwrap().unwrap().is_archived);
    // All or nothing.
    let missing = WorkflowId(99);
    assert!(matches!(store.set_archived(&[other, missing], true, NOW), Err(StoreError::NoSuchWorkflow(_))));
    assert!(!store.workflow(other).unwrap().unwrap().is_archived);
    assert!(matches!(store.update_workflow(missing, &update, NOW), Err(StoreError::NoSuchWorkflow(_))));
}

pub(crate) fn user_data_is_added_set_and_deleted(store: &dyn Store) {
    let one = json!(1);
    let mut source = ListSource {
        user_data: vec![NewUserData { name: "config", data: Some(&one), is_ephemeral: false }],
        jobs: vec![NewJob { input_user_data: &[0], ..job("reader") }],
        ..ListSource::default()
    };
    let new = NewWorkflow { name: "test", ..NewWorkflow::default() };
    let id = store.create_workflow(&new, &mut source, NOW).unwrap();
    let config = store.user_data(id, &DataFilter::default()).unwrap()[0].id;
    let later = Timestamp(NOW.0 + 5);
    store.set_user_data(config, Some(&json!({ "x": 2 })), later).unwrap();
    let row = store.find_user_data(config).unwrap().unwrap();
    assert_eq!((row.data, row.changed_at), (Some(json!({ "x": 2 })), later));
    // The same value again is no change.
    store.set_user_data(config, Some(&json!({ "x": 2 })), Timestamp(NOW.0 + 9)).unwrap();
    assert_eq!(store.find_user_data(config).unwrap().unwrap().changed_at, later);

    let new = NewUserData { name: "more", data: None, is_ephemeral: true };
    let more = store.add_user_data(id, &new, NOW).unwrap();
    assert!(
        matches!(store.add_user_data(id, &new, NOW), Err(StoreError::DuplicateName { name, .. }) if name == "more")
    );
    assert_eq!(store.user_data(id, &DataFilter::default()).unwrap().len(), 2);
    store.delete_user_data(config, NOW).unwrap();
    assert_eq!(store.user_data(id, &DataFilter::default()).unwrap()[0].id, more);
    assert!(store.job_user_data(id).unwrap().is_empty());
    for gone in [config, UserDataId(999)] {
        assert!(matches!(store.set_user_data(gone, None, NOW), Err(StoreError::NoSuchUserData(_))));
        assert!(matches!(store.delete_user_data(gone, NOW), Err(StoreError::NoSuchUserData(_))));
    }
    let events =
        store.events(Some(id), &EventFilter { category: Some("user_data".into()), ..EventFilter::default() });
    let told: Vec<_> = events.unwrap().into_iter().map(|event| event.message).collect();
    assert_eq!(told, ["set user data `config`", "added user data `more`", "deleted user data `config`"]);
}

pub(crate) fn requirements_change_for_jobs_and_groups(store: &dyn Store) {
    let kinds = ["a_{i}", "b_{i}"].map(|name| JobGroup { name: name.into(), ..JobGroup::default() });
    let mut source = ListSource {
        jobs: vec![
            NewJob { job_group: Some(0), ..job("a_1") },
            NewJob { job_group: Some(1), ..job("b_1") },
            NewJob { job_group: Some(0), ..job("a_2") },
            job("plain"),
        ],
        ..ListSource::default()
    };
    let new = NewWorkflow { name: "test", job_groups: &kinds, ..NewWorkflow::default() };
    let id = store.create_workflow(&new, &mut source, NOW).unwrap();
    let jobs = store.load_jobs(id).unwrap().ids;
    let kind = store.job_groups(id).unwrap()[0].id;
    let cpus = |cpus| Resources { cpus, ..Resources::DEFAULT };
    let change =
        |name: &str, n, used_by| RequirementsChange { name: name.into(), resources: cpus(n), used_by };
    let made = store
        .change_requirements(
            id,
            &[
                change("a", 2, RequirementsUsers::Kind(kind)),
                change("p", 3, RequirementsUsers::Jobs(vec![jobs[3]])),
            ],
            NOW,
        )
        .unwrap();
    let of_jobs = || -> Vec<Option<String>> {
        let rows = store.jobs(id, &JobFilter::default()).unwrap();
        rows.into_iter().map(|row| row.resource_requirements).collect()
    };
    assert_eq!(of_jobs(), [Some("a".into()), None, Some("a".into()), Some("p".into())]);
    let again = store.change_requirements(id, &[change("a", 5, RequirementsUsers::AsBefore)], NOW).unwrap();
    assert_eq!(again, made[..1]);
    let rows = store.requirements(id).unwrap();
    let known: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.resources)).collect();
    assert_eq!(known, [("a", cpus(5)), ("p", cpus(3))]);
    assert_eq!(store.load_jobs(id).unwrap().class, [1, 0, 1, 2]);

    let unknown = change("a", 1, RequirementsUsers::Jobs(vec![JobId(9999)]));
    assert!(matches!(store.change_requirements(id, &[unknown], NOW), Err(StoreError::NoSuchJob(_))));
    let worker = worker(store, id);
    commit(store, id, vec![claim(jobs[0], 1, worker)]).unwrap();
    let error =
        store.change_requirements(id, &[change("a", 1, RequirementsUsers::AsBefore)], NOW).unwrap_err();
    assert!(matches!(error, StoreError::StillActive { .. }), "{error}");
    assert_eq!(store.requirements(id).unwrap()[0].resources, cpus(5));
}

pub(crate) fn priority_is_changed_for_all_jobs_of_a_priority(store: &dyn Store) {
    let [id, other] = ["one", "other"].map(|name| {
        let jobs = [("a", 0), ("b", 10), ("c", 0), ("d", 5)];
        let jobs = jobs.map(|(name, priority)| {
            NewJob::from(JobDefinition { priority, ..JobDefinition::new(name, "true") })
        });
        let mut source = ListSource { jobs: jobs.to_vec(), ..ListSource::default() };
        store.create_workflow(&NewWorkflow { name, ..NewWorkflow::default() }, &mut source, NOW).unwrap()
    });
    let priorities = |id| store.load_jobs(id).unwrap().priority;
    assert_eq!(store.change_priorities(id, &[(0, -7), (3, 4)], NOW).unwrap(), 2);
    assert_eq!(priorities(id), [-7, 10, -7, 5]);
    assert_eq!(priorities(other), [0, 10, 0, 5]);
    let worker = worker(store, id);
    let job = store.load_jobs(id).unwrap().ids[0];
    commit(store, id, vec![claim(job, 1, worker)]).unwrap();
    assert_eq!(store.change_priorities(id, &[(5, 6)], NOW).unwrap(), 1, "while a worker holds a job");
    assert_eq!(priorities(id), [-7, 10, -7, 6]);
}

pub(crate) fn deleting_a_workflow_keeps_other_workflows(store: &dyn Store) {
    let full = |store: &dyn Store| {
        let mut builder = DependencyEdgesBuilder::default();
        builder.add_dependencies(2, &[0, 1]);
        builder.add_dependencies(3, &[2]);
        let edges = builder.finish();
        let mut source = ListSource {
            files: vec![file("f", "f")],
            user_data: vec![NewUserData { name: "u", data: None, is_ephemeral: false }],
            jobs: ["a", "b", "c", "d"]
                .map(|name| NewJob { input_files: &[0], output_user_data: &[0], ..job(name) })
                .into(),
            command: String::new(),
        };
        let id = store.create_workflow(&workflow(&[], &edges), &mut source, NOW).unwrap();
        let jobs = store.load_jobs(id).unwrap().ids;
        let worker = worker(store, id);
        commit(store, id, vec![claim(jobs[0], 1, worker)]).unwrap();
        (id, jobs, worker)
    };
    let finish = |(id, jobs, worker): &(WorkflowId, Vec<JobId>, windlass_types::WorkerId)| {
        commit(store, *id, vec![end(key(*id, jobs[0], 1), *worker, JobStatus::Completed)]).unwrap();
    };
    let (goes, stays) = (full(store), full(store));
    let id = goes.0;
    assert!(matches!(store.delete_workflow(id, NOW), Err(StoreError::StillActive { held: 1, .. })));
    finish(&goes);
    finish(&stays);
    let error = store.delete_workflow(id, NOW).unwrap_err();
    assert!(matches!(error, StoreError::WorkersMayBeAlive { workers: 1, .. }), "{error}");
    store.retire_worker(goes.2, NOW).unwrap();
    store.delete_workflow(id, NOW).unwrap();

    assert!(store.workflow(id).unwrap().is_none());
    assert!(matches!(store.jobs(id, &JobFilter::default()), Err(StoreError::NoSuchWorkflow(_))));
    assert!(matches!(store.delete_workflow(id, NOW), Err(StoreError::NoSuchWorkflow(_))));
    assert!(matches!(store.load_job_commands(&goes.1), Err(StoreError::NoSuchJob(_))));
    assert!(store.events(Some(id), &EventFilter::default()).unwrap().is_empty());
    let last = store.events(None, &EventFilter { newest: Some(1), ..EventFilter::default() }).unwrap();
    assert!(last[0].message.starts_with(&format!("deleted workflow {id}")), "{}", last[0].message);

    let left = stays.0;
    assert_eq!(counts(store, left).get(JobStatus::Completed), 1);
    assert_eq!(store.results(left, &ResultFilter::default()).unwrap().len(), 1);
    assert_eq!(store.load_jobs(left).unwrap().edges.groups, [vec![0, 1]]);
    assert_eq!((store.job_files(left).unwrap().len(), store.job_user_data(left).unwrap().len()), (4, 4));
    // Ids are not reused.
    assert!(create(store, 1).1[0] > stays.1[3]);
}

pub(crate) fn changes_are_recorded_as_events(store: &dyn Store) {
    let (id, jobs) = create(store, 2);
    let (other, _) = create(store, 1);
    store.begin_run(id, NOW).unwrap();
    store.request_cancel(id, NOW).unwrap();
    store.end_run(id, true, NOW).unwrap();
    store.begin_next_run(id, &jobs, NOW).unwrap();
    let bad = NewEvent {
        workflow: Some(id),
        job: None,
        severity: EventSeverity::Error,
        category: "user".into(),
        message: "it's bad".into(),
        data: Some(json!({ "why": [1] })),
    };
    let noted = store.add_event(&bad, Timestamp(NOW.0 + 1)).unwrap();
    let of = |workflow, filter: EventFilter| -> Vec<String> {
        let rows = store.events(workflow, &filter).unwrap();
        rows.into_iter().map(|row| row.message).collect()
    };
    let all = [
        "created `test` with 2 jobs",
        "run 1 is active",
        "cancellation requested",
        "run 1 was canceled",
        "run 2 started; 2 jobs will run again",
        "it's bad",
    ];
    assert_eq!(of(Some(id), EventFilter::default()), all);
    assert_eq!(of(Some(id), EventFilter { newest: Some(2), ..EventFilter::default() }), all[4..]);
    assert_eq!(
        of(Some(id), EventFilter { severity: Some(EventSeverity::Warning), ..Default::default() }),
        all[5..]
    );
    assert_eq!(of(Some(id), EventFilter { category: Some("run".into()), ..Default::default() }), all[1..5]);
    assert_eq!(of(Some(id), EventFilter { after: Some(noted), ..Default::default() }), [] as [&str; 0]);
    assert_eq!(of(Some(other), EventFilter::default()), ["created `test` with 1 jobs"]);
    assert_eq!(of(None, EventFilter::default()).len(), 7);

    let row =
        store.events(Some(id), &EventFilter { newest: Some(1), ..Default::default() }).unwrap().remove(0);
    assert_eq!((row.id, row.workflow_id, row.at), (noted, Some(id), Timestamp(NOW.0 + 1)));
    assert_eq!((row.severity, row.category.as_str(), row.data), (EventSeverity::Error, "user", bad.data));
}
