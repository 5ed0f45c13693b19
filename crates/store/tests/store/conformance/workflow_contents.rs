//! Contents of a workflow besides plain jobs: job groups, files, user data, failure handlers, schedulers,
//! actions.

use crate::kit::{IDS, ListSource, NOW, create, create_jobs, defined, file, job, workflow};
use serde_json::json;
use std::time::Duration;
use windlass_core::dependency_edges::DependencyEdges;
use windlass_store::model::{
    DataFilter, InMemoryJobSource, JobFile, JobFilter, JobParameters, NewAction, NewFile, NewJob,
    NewUserData, NewWorkflow,
};
use windlass_store::{Store, StoreError};
use windlass_types::settings::{
    ActionTrigger, ActionType, ChangeDetection, FailureHandler, FailureRule, SlurmScheduler, WorkflowAction,
    WorkflowSettings,
};
use windlass_types::worker_messages::{StdioMode, StdioSettings};
use windlass_types::{Bytes, FileId, JobDefinition, JobGroup, JobSettings, JobStatus, WorkflowId};

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// `gen` writes a file that `use_1` and `use_2`, both of one job group, read.
pub(crate) fn sample(store: &dyn Store, settings: &WorkflowSettings) -> WorkflowId {
    create(store, 3); // so that ids and numbers differ
    let data = json!({ "k": [1, 2.5, "x"], "z": null });
    let own_env = pairs(&[("B", "job")]);
    let mut source = ListSource {
        files: vec![
            NewFile { identifier: Some("doi:1"), mtime_ns: Some(17), ..file("raw", "data/raw.csv") },
            file("out_1", "out/1"),
            file("out_2", "/abs/2"),
        ],
        user_data: vec![
            NewUserData { name: "config", data: Some(&data), is_ephemeral: false },
            NewUserData { name: "later", data: None, is_ephemeral: true },
        ],
        jobs: vec![
            NewJob { output_files: &[0], output_user_data: &[1], ..defined(JobDefinition::new("gen", IDS)) },
            NewJob {
                job_group: Some(0),
                params: Some(r#"{"z":1,"a":0.5,"m":"it's"}"#),
                input_files: &[0, 0],
                output_files: &[1],
                input_user_data: &[1, 0],
                status: JobStatus::Blocked,
                ..defined(JobDefinition { env: own_env, ..JobDefinition::new("use_1", "true") })
            },
            NewJob {
                job_group: Some(0),
                input_files: &[2, 0],
                status: JobStatus::Blocked,
                ..defined(JobDefinition {
                    invocation_script: Some("mpirun".into()),
                    ..JobDefinition::new("use_2", "true")
                })
            },
        ],
        command: String::new(),
    };
    let kind = JobGroup {
        name: "use_{i}".into(),
        env: pairs(&[("A", "kind"), ("B", "kind")]),
        invocation_script: Some("nice".into()),
        settings: JobSettings {
            stdio: Some(StdioSettings { mode: StdioMode::Combined, delete_on_success: true }),
            supports_termination: Some(true),
            failure_handler: Some(0),
            scheduler: Some(0),
            labels: vec!["big".into()],
            ..JobSettings::default()
        },
        parameters: names(),
        ..JobGroup::default()
    };
    let edges = DependencyEdges { direct: vec![(1, 0), (2, 0)], ..DependencyEdges::default() };
    let new = NewWorkflow {
        settings: Some(settings),
        job_groups: &[kind],
        failure_handlers: &[handler()],
        schedulers: &[scheduler()],
        actions: &[NewAction { action: &action(), jobs: &[2, 1] }],
        ..workflow(&[], &edges)
    };
    let id = store.create_workflow(&new, &mut source, NOW).unwrap();
    // A source gets the ids before it makes the commands, which may contain them.
    let job = store.load_jobs(id).unwrap().ids[0];
    let file = store.files(id, &DataFilter::default()).unwrap()[0].id;
    let data = store.user_data(id, &DataFilter::default()).unwrap()[0].id;
    assert_eq!(store.load_job_commands(&[job]).unwrap()[0].command, format!("true {job} {file} {data}"));
    id
}

fn names() -> Vec<String> {
    ["z", "a", "m"].map(str::to_owned).into()
}

fn handler() -> FailureHandler {
    let rule = FailureRule {
        exit_codes: vec![1, 137],
        stderr: vec!["re:^lost".into()],
        recovery_script: Some("fix.sh".into()),
        max_retries: 2,
        delay: Some(Duration::from_secs(10)),
        memory: "x1.5".parse().ok(),
        max_memory: Some(Bytes(8 << 30)),
        ..FailureRule::default()
    };
    FailureHandler { name: "retry".into(), rules: vec![rule] }
}

fn scheduler() -> SlurmScheduler {
    SlurmScheduler {
        name: "short".into(),
        account: "ours".into(),
        nodes: 1,
        walltime: "01:00:00".into(),
        ..SlurmScheduler::default()
    }
}

fn action() -> WorkflowAction {
    WorkflowAction {
        trigger_type: ActionTrigger::OnJobsComplete,
        action_type: ActionType::RunCommands,
        commands: vec!["echo done".into()],
        scheduler: None,
        scheduler_type: None,
        num_allocations: None,
        start_one_worker_per_node: false,
        max_parallel_jobs: None,
        persistent: false,
    }
}

pub(crate) fn workflow_contents_round_trip(store: &dyn Store) {
    let settings = WorkflowSettings {
        project: Some("p".into()),
        metadata: [("x".to_owned(), json!({ "y": 1 }))].into(),
        ..WorkflowSettings::default()
    };
    let id = sample(store, &settings);
    let row = store.workflow(id).unwrap().unwrap();
    assert_eq!((row.settings, row.is_archived, row.file_count), (settings, false, 3));

    let kinds = store.job_groups(id).unwrap();
    assert_eq!(kinds.len(), 1);
    let kind = &kinds[0].group;
    let settings = JobSettings {
        stdio: Some(StdioSettings { mode: StdioMode::Combined, delete_on_success: true }),
        supports_termination: Some(true),
        failure_handler: Some("retry".to_owned()),
        scheduler: Some("short".to_owned()),
        labels: vec!["big".to_owned()],
        ..JobSettings::default()
    };
    assert_eq!((kind.name.as_str(), kind.invocation_script.as_deref()), ("use_{i}", Some("nice")));
    assert_eq!((&kind.settings, &kind.parameters), (&settings, &names()));
    assert_eq!(store.handlers(id).unwrap()[0].handler, handler());
    assert_eq!(store.schedulers(id).unwrap()[0].scheduler, scheduler());
    let jobs = store.load_jobs(id).unwrap().ids;
    let actions = store.actions(id).unwrap();
    assert_eq!((&actions[0].action, &actions[0].jobs[..]), (&action(), &jobs[1..]));

    let rows = store.jobs(id, &JobFilter::default()).unwrap();
    assert_eq!((rows[0].kind.as_deref(), rows[1].kind.as_deref()), (None, Some("use_{i}")));
    assert_eq!((rows[1].origin, rows[1].reused_from), (None, None));
    let of_kind = JobFilter { kind: Some(kinds[0].id), ..JobFilter::default() };
    let of_kind = store.jobs(id, &of_kind).unwrap();
    assert_eq!(of_kind.iter().map(|row| row.id).collect::<Vec<_>>(), jobs[1..]);
}

pub(crate) fn files_and_user_data_are_listed(store: &dyn Store) {
    let id = sample(store, &WorkflowSettings::default());
    let jobs = store.load_jobs(id).unwrap().ids;
    let files = store.files(id, &DataFilter::default()).unwrap();
    let paths: Vec<_> = files.iter().map(|file| (file.name.as_str(), file.path.as_str())).collect();
    assert_eq!(paths, [("raw", "data/raw.csv"), ("out_1", "out/1"), ("out_2", "/abs/2")]);
    assert_eq!((files[0].identifier.as_deref(), files[0].mtime_ns), (Some("doi:1"), Some(17)));
    assert_eq!(store.file(files[2].id).unwrap().as_ref(), Some(&files[2]));
    assert_eq!(store.file(FileId(999)).unwrap(), None);
    let filtered = |filter: DataFilter| store.files(id, &filter).unwrap();
    assert_eq!(filtered(DataFilter { name: Some("out_1".into()), ..DataFilter::default() }), files[1..2]);
    assert_eq!(filtered(DataFilter { job: Some(jobs[0]), ..DataFilter::default() }), files[..1]);
    assert_eq!(filtered(DataFilter { offset: 1, limit: Some(1), ..DataFilter::default() }), files[1..2]);

    let data = store.user_data(id, &DataFilter::default()).unwrap();
    assert_eq!((data[0].name.as_str(), data[0].is_ephemeral, data[0].changed_at), ("config", false, NOW));
    assert_eq!(data[0].data, Some(json!({ "k": [1, 2.5, "x"], "z": null })));
    assert_eq!((data[1].data.as_ref(), data[1].is_ephemeral), (None, true));
    let of_gen = DataFilter { job: Some(jobs[0]), ..DataFilter::default() };
    assert_eq!(store.user_data(id, &of_gen).unwrap(), data[1..]);

    let related: Vec<_> = store
        .job_files(id)
        .unwrap()
        .iter()
        .map(|r| (r.job_id.0 - jobs[0].0, r.is_output, r.file_id.0 - files[0].id.0))
        .collect();
    assert_eq!(related, [(0, true, 0), (1, false, 0), (1, true, 1), (2, false, 0), (2, false, 2)]);
    let related: Vec<_> = store
        .job_user_data(id)
        .unwrap()
        .iter()
        .map(|r| (r.job_id.0 - jobs[0].0, r.is_output, r.user_data_id.0 - data[0].id.0))
        .collect();
    assert_eq!(related, [(0, true, 1), (1, false, 0), (1, false, 1)]);
}

pub(crate) fn job_commands_are_loaded_completely(store: &dyn Store) {
    let content =
        WorkflowSettings { change_detection: Some(ChangeDetection::Content), ..WorkflowSettings::default() };
    let by_content = sample(store, &content);
    let by_time = sample(store, &WorkflowSettings::default());
    for (id, hash_files) in [(by_content, true), (by_time, false)] {
        let jobs = store.load_jobs(id).unwrap().ids;
        let files = store.files(id, &DataFilter::default()).unwrap();
        let file = |n: usize| JobFile { id: files[n].id, path: files[n].path.clone() };
        let commands = store.load_job_commands(&jobs).unwrap();
        let [plain, first, second] = &commands[..] else { panic!("{commands:?}") };
        assert_eq!((plain.stdio, plain.hash_files), (None, hash_files));
        assert_eq!((&plain.input_files[..], &plain.output_files[..]), (&[][..], &[file(0)][..]));
        // Variables of the job group come first; those of the job take precedence.
        assert_eq!(first.env, pairs(&[("A", "kind"), ("B", "job")]));
        assert_eq!(second.env, pairs(&[("A", "kind"), ("B", "kind")]));
        assert_eq!(first.invocation_script.as_deref(), Some("nice"));
        assert_eq!(second.invocation_script.as_deref(), Some("mpirun"));
        assert_eq!(first.stdio, Some(StdioSettings { mode: StdioMode::Combined, delete_on_success: true }));
        let params = [("z", json!(1)), ("a", json!(0.5)), ("m", json!("it's"))];
        assert_eq!(first.params, JobParameters(params.map(|(name, value)| (name.to_owned(), value)).into()));
        assert!(second.params.is_empty());
        assert_eq!((&first.input_files[..], &first.output_files[..]), (&[file(0)][..], &[file(1)][..]));
        assert_eq!(second.input_files, [file(0), file(2)]);
    }
    let (_, plain) = create_jobs(store, [job("plain")].into_iter());
    let command = store.load_job_commands(&plain).unwrap().remove(0);
    assert!(!command.hash_files && command.input_files.is_empty() && command.env.is_empty());
}

pub(crate) fn dangling_references_are_rejected(store: &dyn Store) {
    let refused = |source: &mut ListSource<'_>, new: &NewWorkflow<'_>| {
        let error = store.create_workflow(new, source, NOW).unwrap_err();
        assert!(store.workflows().unwrap().is_empty());
        error
    };
    let plain = NewWorkflow { name: "test", ..NewWorkflow::default() };
    let with = |job| ListSource { jobs: vec![job], ..ListSource::default() };
    for bad in [
        NewJob { job_group: Some(0), ..job("a") },
        NewJob { input_files: &[0], ..job("a") },
        NewJob { output_user_data: &[3], ..job("a") },
    ] {
        let error = refused(&mut with(bad), &plain);
        assert!(matches!(&error, StoreError::OutOfRange { what } if what.contains("`a`")), "{error}");
    }
    let kind = JobGroup {
        name: "k".into(),
        settings: JobSettings { failure_handler: Some(1), ..JobSettings::default() },
        ..JobGroup::default()
    };
    refused(&mut ListSource::default(), &NewWorkflow { job_groups: &[kind], ..plain.clone() });
    let far = NewAction { action: &action(), jobs: &[1] };
    refused(&mut with(job("a")), &NewWorkflow { actions: &[far], ..plain.clone() });
    let twice = &mut ListSource { files: vec![file("f", "1"), file("f", "2")], ..ListSource::default() };
    let error = refused(twice, &plain);
    assert!(matches!(&error, StoreError::DuplicateName { name, .. } if name == "f"), "{error}");
    assert!(error.hint().is_some());
}

pub(crate) fn files_of_many_jobs_are_not_mixed_up(store: &dyn Store) {
    let paths: Vec<String> = (0..300).map(|i| format!("out/{i}")).collect();
    let numbers: Vec<[u32; 1]> = (0..300).map(|i| [i]).collect();
    let names: Vec<String> = (0..300).map(|i| format!("job_{i}")).collect();
    let mut source = ListSource {
        files: paths.iter().map(|path| file(path, path)).collect(),
        jobs: names
            .iter()
            .zip(&numbers)
            .map(|(name, number)| NewJob {
                output_files: number,
                ..defined(JobDefinition::new(&**name, &**name))
            })
            .collect(),
        ..ListSource::default()
    };
    let id = store.create_workflow(&workflow(&[], &DependencyEdges::default()), &mut source, NOW).unwrap();
    let jobs = store.load_jobs(id).unwrap().ids;
    for (command, (path, name)) in
        store.load_job_commands(&jobs).unwrap().iter().zip(paths.iter().zip(&names))
    {
        assert_eq!((&command.name, &command.command), (name, name));
        assert_eq!(command.output_files.iter().map(|file| &file.path).collect::<Vec<_>>(), [path]);
    }
}

pub(crate) fn reused_job_counts_as_completed(store: &dyn Store) {
    let (_, old) = create(store, 1);
    let done = NewJob { status: JobStatus::Completed, reused_from: Some(old[0]), ..job("done") };
    let edges = DependencyEdges { direct: vec![(1, 0)], ..DependencyEdges::default() };
    let mut jobs = InMemoryJobSource::new([done, job("next")]);
    let id = store.create_workflow(&workflow(&[], &edges), &mut jobs, NOW).unwrap();
    let rows = store.jobs(id, &JobFilter::default()).unwrap();
    assert_eq!((rows[0].status, rows[0].reused_from), (JobStatus::Completed, Some(old[0])));
    assert_eq!(rows[1].reused_from, None);
    // A job that runs again no longer reuses work.
    store.begin_next_run(id, &[rows[0].id], NOW).unwrap();
    assert_eq!(store.jobs(id, &JobFilter::default()).unwrap()[0].reused_from, None);
}
