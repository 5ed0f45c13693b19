//! Manual edits: adding, changing and deleting jobs, files and requirements.

use crate::kit::{
    ListSource, NOW, claim, commit, counts, create, defined, end, file, job, key, start, worker, workflow,
};
use serde_json::json;
use std::time::Duration;
use windlass_core::dependency_edges::DependencyEdgesBuilder;
use windlass_store::model::{
    AddJob, DataFilter, EventFilter, EventSeverity, ExportOptions, FileUpdate, ImportOptions, JobFilter,
    JobRelations, JobUpdate, NewAction, NewEvent, NewJob, NewRequirements, NewUserData, NewWorkflow,
    RequirementsUpdate, ResultFilter,
};
use windlass_store::{Store, StoreError};
use windlass_types::settings::WorkflowAction;
use windlass_types::{
    Bytes, EventId, FileId, JobDefinition, JobGroup, JobId, JobStatus, Resources, ResultId, WorkflowId,
};

fn new(name: &str) -> AddJob {
    JobDefinition::new(name, format!("echo {name}")).into()
}

/// `c` and `d` depend on `a` and `b` through a dependency group; `e` depends on `d`. All read `in`, `a` writes
/// `out`.
fn graph(store: &dyn Store) -> (WorkflowId, Vec<JobId>) {
    let mut edges = DependencyEdgesBuilder::default();
    edges.add_dependencies(2, &[0, 1]);
    edges.add_dependencies(3, &[0, 1]);
    edges.add_dependencies(4, &[3]);
    let edges = edges.finish();
    assert_eq!(edges.groups, [vec![0, 1]], "the test needs a dependency group");
    let mut source = ListSource {
        files: vec![file("in", "in.txt"), file("out", "out.txt")],
        user_data: vec![NewUserData { name: "u", data: None, is_ephemeral: false }],
        jobs: vec![
            NewJob { input_files: &[0], output_files: &[1], ..job("a") },
            NewJob { input_files: &[0], ..job("b") },
            NewJob { status: JobStatus::Blocked, ..job("c") },
            NewJob { status: JobStatus::Blocked, ..job("d") },
            NewJob { status: JobStatus::Blocked, input_user_data: &[0], ..job("e") },
        ],
        command: String::new(),
    };
    let id = store.create_workflow(&workflow(&[], &edges), &mut source, NOW).unwrap();
    (id, store.load_jobs(id).unwrap().ids)
}

fn names(store: &dyn Store, id: WorkflowId) -> Vec<String> {
    store.jobs(id, &JobFilter::default()).unwrap().into_iter().map(|row| row.name).collect()
}

fn notes(store: &dyn Store, id: WorkflowId, category: &str) -> Vec<String> {
    let filter = EventFilter { category: Some(category.into()), ..EventFilter::default() };
    store.events(Some(id), &filter).unwrap().into_iter().map(|event| event.message).collect()
}

fn complete(store: &dyn Store, id: WorkflowId, jobs: &[JobId]) {
    let worker = worker(store, id);
    for &job in jobs {
        let done = end(key(id, job, 1), worker, JobStatus::Completed);
        commit(store, id, vec![claim(job, 1, worker), done]).unwrap();
    }
    store.retire_worker(worker, NOW).unwrap();
}

pub(crate) fn jobs_are_added_to_a_workflow(store: &dyn Store) {
    // To a workflow without jobs.
    let empty = NewWorkflow { name: "new", ..NewWorkflow::default() };
    let id = store.create_workflow(&empty, &mut ListSource::default(), NOW).unwrap();
    let first = store.add_jobs(id, &[new("one"), new("two")], NOW).unwrap();
    // Adjacent to its jobs, and after jobs of others.
    let third = store.add_jobs(id, &[AddJob { waits_for: vec![first[0]], ..new("three") }], NOW).unwrap();
    create(store, 3);
    let mut last = AddJob { waits_for: vec![first[1], third[0], first[1]], ..new("four") };
    last.definition.priority = 7;
    let fourth = store.add_jobs(id, &[last], NOW).unwrap();
    assert_eq!(names(store, id), ["one", "two", "three", "four"]);
    let table = store.load_jobs(id).unwrap();
    assert_eq!(table.ids, [&first[..], &third, &fourth].concat());
    assert_eq!(table.edges.direct, [(2, 0), (3, 1), (3, 2)]);
    assert_eq!(table.priority, [0, 0, 0, 7]);
    let (ready, blocked) = (JobStatus::Ready, JobStatus::Blocked);
    assert_eq!(table.status, [ready, ready, blocked, blocked]);
    assert_eq!(counts(store, id).get(blocked), 2);
    assert_eq!(store.load_job_commands(&fourth).unwrap()[0].command, "echo four");
    assert_eq!(store.jobs_after(id, third[0]).unwrap().ids, fourth);
    let told = ["added 2 jobs", "added job `three`", "added job `four`"];
    assert_eq!(notes(store, id, "jobs"), told);
    assert_eq!(store.add_jobs(id, &[], NOW).unwrap(), []);

    // The result is an ordinary workflow, which can also be exported.
    let export = store.export_workflow(id, ExportOptions::default(), NOW).unwrap();
    let copy = store.import_workflow(&export, &ImportOptions::default(), NOW).unwrap();
    assert_eq!(store.load_jobs(copy).unwrap().edges.direct, table.edges.direct);
}

pub(crate) fn files_make_dependencies_in_both_directions(store: &dyn Store) {
    let (id, jobs) = graph(store);
    let files: Vec<FileId> =
        store.files(id, &DataFilter::default()).unwrap().iter().map(|row| row.id).collect();
    let maker = AddJob { output_files: vec![files[0], files[0]], ..new("maker") };
    let user = AddJob { input_files: vec![files[1]], ..new("user") };
    let added = store.add_jobs(id, &[maker, user], NOW).unwrap();
    let of = |job| store.job_relations(job).unwrap();
    assert_eq!(of(added[1]).waits_for, [jobs[0]], "it reads what `a` writes");
    assert_eq!(of(added[0]), JobRelations { output_files: vec![files[0]], ..JobRelations::default() });
    for reader in &jobs[..2] {
        assert_eq!(of(*reader).waits_for, [added[0]], "it reads what `maker` writes");
    }
    // Files are loaded when a job is claimed.
    assert_eq!(store.load_job_commands(&added[..1]).unwrap()[0].output_files[0].path, "in.txt");
    let around = AddJob { output_files: vec![files[0]], waits_for: vec![jobs[4]], ..new("around") };
    let error = store.add_jobs(id, &[around], NOW).unwrap_err();
    assert!(matches!(&error, StoreError::Circle { jobs } if jobs.contains(&"around".to_owned())), "{error}");
    assert_eq!(names(store, id).len(), 7, "all or nothing");
    counts(store, id);
}

pub(crate) fn invalid_added_jobs_are_rejected(store: &dyn Store) {
    let (id, jobs) = graph(store);
    let (_, strangers) = create(store, 1);
    let add = |job: AddJob| store.add_jobs(id, &[new("fine"), job], NOW).unwrap_err();
    let with = |waits_for| AddJob { waits_for, ..new("x") };
    assert!(matches!(add(with(vec![strangers[0]])), StoreError::NoSuchJob(_)));
    let file = AddJob { input_files: vec![FileId(999)], ..new("x") };
    assert!(matches!(add(file), StoreError::NoSuchFile(FileId(999))));
    let mut asking = new("x");
    asking.definition.resource_requirements = Some(999);
    assert!(matches!(add(asking), StoreError::NoSuchRequirementsId(_)));
    assert!(matches!(add(new("c")), StoreError::DuplicateJobName { name } if name == "c"));
    assert!(matches!(store.add_jobs(WorkflowId(999), &[new("x")], NOW), Err(StoreError::NoSuchWorkflow(_))));
    assert_eq!(store.load_jobs(id).unwrap().ids, jobs);
    counts(store, id);
}

pub(crate) fn job_update_is_recorded(store: &dyn Store) {
    let (id, jobs) = graph(store);
    let update = JobUpdate {
        name: Some("A".into()),
        command: Some("false".into()),
        priority: Some(-3),
        ..JobUpdate::default()
    };
    let changes = store.update_job(id, jobs[0], &update, NOW).unwrap();
    let told: Vec<_> =
        changes.iter().map(|change| (change.field.as_ref(), &change.old, &change.new)).collect();
    assert_eq!(
        told,
        [
            ("name", &json!("a"), &json!("A")),
            ("command", &json!("true"), &json!("false")),
            ("priority", &json!(0), &json!(-3)),
        ]
    );
    let row = &store.jobs(id, &JobFilter { ids: vec![jobs[0]], ..JobFilter::default() }).unwrap()[0];
    assert_eq!((row.name.as_str(), row.command.as_str(), row.priority), ("A", "false", -3));
    let told = "changed job `a`: name `a` → `A`, command `true` → `false`, priority 0 → -3";
    assert_eq!(notes(store, id, "jobs"), [told]);
    // An update with the same values is no change and has no event.
    assert_eq!(store.update_job(id, jobs[0], &update, NOW).unwrap(), []);
    assert_eq!(notes(store, id, "jobs").len(), 1);

    let named = |name: &str| JobUpdate { name: Some(name.into()), ..JobUpdate::default() };
    let error = store.update_job(id, jobs[1], &named("c"), NOW).unwrap_err();
    assert!(matches!(&error, StoreError::DuplicateName { name, .. } if name == "c"), "{error}");
    let (other, _) = create(store, 1);
    assert!(matches!(store.update_job(other, jobs[0], &named("x"), NOW), Err(StoreError::NoSuchJob(_))));
}

pub(crate) fn record_keeps_the_executed_command(store: &dyn Store) {
    let (id, jobs) = graph(store);
    complete(store, id, &jobs[..1]);
    let command = |text: &str| JobUpdate { command: Some(text.into()), ..JobUpdate::default() };
    let done_with = || store.completion_records(id).unwrap()[0].command.clone();
    assert_eq!(done_with(), None);
    store.update_job(id, jobs[0], &command("second"), NOW).unwrap();
    store.update_job(id, jobs[0], &command("third"), NOW).unwrap();
    assert_eq!(done_with().as_deref(), Some("true"), "the executed command, not the last one");
    store.update_job(id, jobs[0], &command("true"), NOW).unwrap();
    assert_eq!(done_with(), None);
    store.update_job(id, jobs[0], &command("fourth"), NOW).unwrap();
    // After another execution it is the current command.
    store.begin_next_run(id, &jobs[..1], NOW).unwrap();
    store.update_job(id, jobs[0], &command("fifth"), NOW).unwrap();
    assert!(store.completion_records(id).unwrap().is_empty());
    let (worker, again) = (worker(store, id), windlass_types::RunId(2));
    let ready = windlass_core::change::WorkflowChange::Status {
        job: jobs[0],
        from: JobStatus::Uninitialized,
        to: JobStatus::Ready,
    };
    let done = end(
        windlass_types::worker_messages::AttemptKey { run: again, ..key(id, jobs[0], 1) },
        worker,
        JobStatus::Completed,
    );
    let changes = vec![ready, claim(jobs[0], 1, worker), done].into();
    crate::kit::commit_batch(store, windlass_store::ChangeBatch { workflow: id, run: again, changes })
        .unwrap();
    assert_eq!(done_with(), None);
}

pub(crate) fn update_of_one_job_splits_shared_rows(store: &dyn Store) {
    let shared = [NewRequirements { name: "big", resources: Resources { cpus: 4, ..Resources::DEFAULT } }];
    let kinds =
        [JobGroup { name: "k_{i}".into(), invocation_script: Some("nice".into()), ..JobGroup::default() }];
    let of_group = |name: &str| NewJob {
        job_group: Some(0),
        ..defined(JobDefinition { resource_requirements: Some(0), ..JobDefinition::new(name, "true") })
    };
    let mut source =
        ListSource { jobs: vec![of_group("k_1"), of_group("k_2"), job("plain")], ..ListSource::default() };
    let edges = windlass_core::dependency_edges::DependencyEdges::default();
    let new = NewWorkflow { job_groups: &kinds, ..workflow(&shared, &edges) };
    let id = store.create_workflow(&new, &mut source, NOW).unwrap();
    let jobs = store.load_jobs(id).unwrap().ids;
    let runtime = |seconds| JobUpdate { runtime: Some(Duration::from_secs(seconds)), ..JobUpdate::default() };
    for (job, seconds) in [(0, 60), (0, 90), (2, 5)] {
        let changes = store.update_job(id, jobs[job], &runtime(seconds), NOW).unwrap();
        assert_eq!(changes[0].field, "runtime_seconds");
    }
    let rows = store.requirements(id).unwrap();
    let known: Vec<_> = rows
        .iter()
        .map(|row| (row.name.as_str(), row.resources.cpus, row.resources.runtime.map(|time| time.as_secs())))
        .collect();
    assert_eq!(known, [("big", 4, None), ("big_k_1", 4, Some(90)), ("plain", 1, Some(5))]);
    assert_eq!(rows[2].resources.memory, Bytes(0), "no memory limit was requested");
    let all = store.jobs(id, &JobFilter::default()).unwrap();
    let used: Vec<_> = all.iter().map(|row| row.resource_requirements.as_deref()).collect();
    assert_eq!(used, [Some("big_k_1"), Some("big"), Some("plain")]);
    let back = JobUpdate { requirements: Some(rows[0].id), ..JobUpdate::default() };
    let changes = store.update_job(id, jobs[0], &back, NOW).unwrap();
    assert_eq!((&changes[0].old, &changes[0].new), (&json!("big_k_1"), &json!("big")));

    let labels = |list: &[&str]| JobUpdate {
        labels: Some(list.iter().map(|&label| label.to_owned()).collect()),
        ..JobUpdate::default()
    };
    for job in [0, 1, 2] {
        store.update_job(id, jobs[job], &labels(&["gpu"]), NOW).unwrap();
    }
    store.update_job(id, jobs[1], &labels(&[]), NOW).unwrap();
    let kinds: Vec<_> = store
        .job_groups(id)
        .unwrap()
        .into_iter()
        .map(|kind| (kind.group.name, kind.group.settings.labels))
        .collect();
    let gpu = vec!["gpu".to_owned()];
    assert_eq!(
        kinds,
        [("k_{i}".into(), vec![]), ("k_{i}".into(), gpu.clone()), ("plain".into(), gpu)],
        "one for each set of labels"
    );
    let script = store.load_job_commands(&jobs).unwrap().into_iter().map(|job| job.invocation_script);
    assert_eq!(script.collect::<Vec<_>>(), [Some("nice".into()), Some("nice".into()), None]);
    assert!(store.update_job(id, jobs[1], &labels(&[]), NOW).unwrap().is_empty());
}

pub(crate) fn held_job_cannot_be_changed(store: &dyn Store) {
    let (id, jobs) = graph(store);
    let worker = worker(store, id);
    commit(store, id, vec![claim(jobs[0], 1, worker), start(jobs[0], 1, worker)]).unwrap();
    let update = JobUpdate { priority: Some(1), ..JobUpdate::default() };
    let error = store.update_job(id, jobs[0], &update, NOW).unwrap_err();
    assert!(matches!(&error, StoreError::JobIsHeld { name, .. } if name == "a"), "{error}");
    assert!(error.hint().is_some());
    store.update_job(id, jobs[1], &update, NOW).unwrap();
    assert!(matches!(store.delete_jobs(id, &jobs[4..], NOW), Err(StoreError::StillActive { .. })));
}

pub(crate) fn deleting_jobs_keeps_other_jobs_unchanged(store: &dyn Store) {
    let (id, jobs) = graph(store);
    let (other, _) = create(store, 2);
    complete(store, id, &jobs[..2]);
    // From the middle and from the end.
    store.delete_jobs(id, &[jobs[4], jobs[2]], NOW).unwrap();
    assert_eq!(names(store, id), ["a", "b", "d"]);
    let table = store.load_jobs(id).unwrap();
    assert_eq!(table.ids, [jobs[0], jobs[1], jobs[3]]);
    assert_eq!((&table.edges.groups, &table.edges.waits), (&vec![vec![0, 1]], &vec![(2, 0)]));
    assert_eq!(counts(store, id).total(), 3);
    assert_eq!(store.results(id, &ResultFilter::default()).unwrap().len(), 2);
    assert!(store.job_user_data(id).unwrap().is_empty());
    let paged = JobFilter { after: Some(jobs[1]), limit: Some(5), ..JobFilter::default() };
    assert_eq!(store.jobs(id, &paged).unwrap()[0].name, "d");
    assert_eq!(notes(store, id, "jobs"), ["deleted 2 jobs"]);
    // Names can be reused, ids cannot.
    let again = store.add_jobs(id, &[AddJob { waits_for: vec![jobs[3]], ..new("c") }], NOW).unwrap();
    assert!(again[0] > jobs[4]);
    assert_eq!(store.load_jobs(id).unwrap().edges.direct, [(3, 2)]);

    store.delete_jobs(id, &store.load_jobs(id).unwrap().ids, NOW).unwrap();
    assert!(names(store, id).is_empty() && store.load_jobs(id).unwrap().edges.waits.is_empty());
    assert_eq!(counts(store, id).total(), 0);
    assert!(store.results(id, &ResultFilter { all_runs: true, ..Default::default() }).unwrap().is_empty());
    let last = store.add_jobs(id, &[new("a")], NOW).unwrap();
    assert_eq!(store.load_jobs(id).unwrap().ids, last);
    assert_eq!(counts(store, other).total(), 2);
    store.delete_workflow(id, NOW).unwrap();
}

pub(crate) fn job_with_dependents_is_not_deleted(store: &dyn Store) {
    let (id, jobs) = graph(store);
    let delete = |jobs: &[JobId]| store.delete_jobs(id, jobs, NOW).unwrap_err();
    for (job, waits) in [(jobs[3], "`e`"), (jobs[0], "`c`")] {
        let error = delete(&[jobs[2], job][usize::from(job == jobs[0])..]);
        assert!(matches!(&error, StoreError::InUse { by, .. } if by.contains(waits)), "{error}");
    }
    assert!(matches!(delete(&[jobs[4], JobId(9999)]), StoreError::NoSuchJob(_)));
    assert_eq!(names(store, id).len(), 5, "all or nothing");
    // It can be deleted together with its dependents.
    store.delete_jobs(id, &[jobs[3], jobs[4]], NOW).unwrap();
    store.delete_jobs(id, &jobs[..3], NOW).unwrap();
    assert!(names(store, id).is_empty());

    let action: WorkflowAction = serde_json::from_value(json!({
        "trigger_type": "on_jobs_complete", "action_type": "run_commands", "commands": ["true"],
    }))
    .unwrap();
    let edges = windlass_core::dependency_edges::DependencyEdges::default();
    let actions = [NewAction { action: &action, jobs: &[0] }];
    let watched = NewWorkflow { actions: &actions, ..workflow(&[], &edges) };
    let mut source = ListSource { jobs: vec![job("watched")], ..ListSource::default() };
    let id = store.create_workflow(&watched, &mut source, NOW).unwrap();
    let error = store.delete_jobs(id, &store.load_jobs(id).unwrap().ids, NOW).unwrap_err();
    assert!(matches!(&error, StoreError::InUse { by, .. } if by.contains("action")), "{error}");
}

pub(crate) fn files_are_added_changed_and_deleted(store: &dyn Store) {
    let (id, _) = graph(store);
    graph(store);
    let added = store.add_file(id, "more", "more.txt", NOW).unwrap();
    let listed = || -> Vec<(String, String)> {
        let rows = store.files(id, &DataFilter::default()).unwrap();
        rows.into_iter().map(|row| (row.name, row.path)).collect()
    };
    let pair = |name: &str, path: &str| (name.to_owned(), path.to_owned());
    assert_eq!(listed(), [pair("in", "in.txt"), pair("out", "out.txt"), pair("more", "more.txt")]);
    assert_eq!(store.workflow(id).unwrap().unwrap().file_count, 3);
    let error = store.add_file(id, "in", "x", NOW).unwrap_err();
    assert!(matches!(&error, StoreError::DuplicateName { what, .. } if what == "files"), "{error}");

    let update =
        FileUpdate { name: Some("less".into()), path: Some("less.txt".into()), ..FileUpdate::default() };
    assert_eq!(store.update_file(added, &update, NOW).unwrap().len(), 2);
    assert!(store.update_file(added, &update, NOW).unwrap().is_empty());
    assert_eq!(listed()[2], pair("less", "less.txt"));
    let taken = FileUpdate { name: Some("out".into()), ..FileUpdate::default() };
    assert!(matches!(store.update_file(added, &taken, NOW), Err(StoreError::DuplicateName { .. })));

    store.delete_file(added, NOW).unwrap();
    assert_eq!((listed().len(), store.workflow(id).unwrap().unwrap().file_count), (2, 2));
    let used = store.files(id, &DataFilter::default()).unwrap()[0].id;
    let error = store.delete_file(used, NOW).unwrap_err();
    assert!(matches!(&error, StoreError::InUse { by, .. } if by.contains("`a`")), "{error}");
    assert!(matches!(store.delete_file(added, NOW), Err(StoreError::NoSuchFile(_))));
    let told = [
        "added file `more` (more.txt)",
        "changed file `more`: name `more` → `less`, path `more.txt` → `less.txt`",
        "deleted file `less` from the workflow",
    ];
    assert_eq!(notes(store, id, "files"), told);
}

pub(crate) fn requirements_are_added_changed_and_deleted(store: &dyn Store) {
    let (id, _) = graph(store);
    let large = Resources { cpus: 8, ..Resources::DEFAULT };
    let set = store.add_requirements(id, "large", &large, NOW).unwrap();
    let error = store.add_requirements(id, "large", &large, NOW).unwrap_err();
    assert!(matches!(&error, StoreError::DuplicateName { .. }), "{error}");
    let mut asking = new("asking");
    asking.definition.resource_requirements = Some(set.0);
    let job = store.add_jobs(id, &[asking], NOW).unwrap();
    let error = store.delete_requirements(set, NOW).unwrap_err();
    assert!(matches!(&error, StoreError::InUse { by, .. } if by.contains("`asking`")), "{error}");
    let update = RequirementsUpdate {
        name: Some("huge".into()),
        resources: Some(Resources { cpus: 9, runtime: Some(Duration::from_secs(7)), ..large }),
    };
    let fields: Vec<_> = store.update_requirements(set, &update, NOW).unwrap();
    let fields: Vec<_> = fields.iter().map(|change| change.field.as_ref()).collect();
    assert_eq!(fields, ["name", "num_cpus", "runtime_seconds"]);
    let table = store.load_jobs(id).unwrap();
    assert_eq!(table.requirements[table.class[5] as usize].cpus, 9);
    store.delete_jobs(id, &job, NOW).unwrap();
    store.delete_requirements(set, NOW).unwrap();
    assert!(store.requirements(id).unwrap().is_empty());
    assert!(matches!(store.update_requirements(set, &update, NOW), Err(StoreError::NoSuchRequirementsId(_))));
    assert_eq!(notes(store, id, "requirements").len(), 3);
}

pub(crate) fn results_and_events_are_deleted(store: &dyn Store) {
    let (id, jobs) = graph(store);
    complete(store, id, &jobs[..2]);
    let result = store.results(id, &ResultFilter::default()).unwrap()[0].id;
    store.delete_result(result, NOW).unwrap();
    let left = store.results(id, &ResultFilter::default()).unwrap();
    assert_eq!(left.iter().map(|row| row.job_name.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(counts(store, id).get(JobStatus::Completed), 2, "the job stays as it is");
    assert!(matches!(store.delete_result(ResultId(result.0), NOW), Err(StoreError::NoSuchResult(_))));

    let recorded = store.events(Some(id), &EventFilter::default()).unwrap()[0].id;
    assert!(matches!(store.delete_event(recorded, NOW), Err(StoreError::EventIsRecord(_))));
    let added = store.add_event(&added_by_client(id), NOW).unwrap();
    store.delete_event(added, NOW).unwrap();
    assert_eq!(notes(store, id, "mine").len(), 0);
    assert_eq!(notes(store, id, "events").len(), 1, "the deletion is recorded");
    store.add_event(&added_by_client(id), NOW).unwrap();
    let before = store.events(Some(id), &EventFilter::default()).unwrap().len();
    assert_eq!(store.delete_events(id, NOW).unwrap(), 1, "only the one that a client added");
    assert_eq!(
        store.events(Some(id), &EventFilter::default()).unwrap().len(),
        before,
        "one deleted, one added"
    );
    assert!(matches!(store.delete_event(EventId(9999), NOW), Err(StoreError::NoSuchEvent(_))));
}

/// Stores an event as `POST /events` does.
fn added_by_client(id: WorkflowId) -> NewEvent {
    NewEvent {
        workflow: Some(id),
        job: None,
        severity: EventSeverity::Info,
        category: "mine".into(),
        message: String::new(),
        data: Some(json!({ "n": 1 })),
    }
}

pub(crate) fn job_relations_are_listed(store: &dyn Store) {
    let (id, jobs) = graph(store);
    let files: Vec<FileId> =
        store.files(id, &DataFilter::default()).unwrap().iter().map(|row| row.id).collect();
    let data = store.user_data(id, &DataFilter::default()).unwrap()[0].id;
    let none = JobRelations::default;
    let expected = [
        JobRelations { input_files: vec![files[0]], output_files: vec![files[1]], ..none() },
        JobRelations { input_files: vec![files[0]], ..none() },
        JobRelations { waits_for: jobs[..2].to_vec(), ..none() },
        JobRelations { waits_for: jobs[..2].to_vec(), ..none() },
        JobRelations { waits_for: vec![jobs[3]], input_user_data: vec![data], ..none() },
    ];
    for (job, expected) in jobs.iter().zip(expected) {
        assert_eq!(store.job_relations(*job).unwrap(), expected, "{job}");
    }
    assert!(matches!(store.job_relations(JobId(9999)), Err(StoreError::NoSuchJob(_))));
}
