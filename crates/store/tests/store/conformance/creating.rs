//! Creating workflows.

use crate::kit::{NOW, counts, create, create_jobs, defined, job, workflow};
use std::time::Duration;
use windlass_core::dependency_edges::{DependencyEdges, DependencyEdgesBuilder};
use windlass_store::model::{InMemoryJobSource, JobFilter, NewJob, NewRequirements, NewWorkflow};
use windlass_store::{Store, StoreError};
use windlass_types::worker_messages::{StdioMode, StdioSettings};
use windlass_types::{Attempt, Bytes, JobDefinition, JobId, JobStatus, Resources};

pub(crate) fn created_workflow_is_read_back(store: &dyn Store) {
    let large = Resources {
        cpus: 4,
        memory: Bytes(8 << 30),
        gpus: 1,
        nodes: 2,
        runtime: Some(Duration::from_secs(90)),
    };
    let requirements = [NewRequirements { name: "large", resources: large }];
    let edges = DependencyEdges::default();
    let env = [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "\"zwei\"\n".to_owned())];
    let new = NewWorkflow {
        name: "names",
        user: "ada",
        description: Some("what it is for"),
        submission_dir: "/home/ada",
        output_dir: "/home/ada/out",
        spec_path: Some("/home/ada/spec.yaml"),
        spec_digest: Some("abc"),
        env: &env,
        stdio: StdioSettings { mode: StdioMode::NoStderr, delete_on_success: true },
        requirements: &requirements,
        edges: &edges,
        ..NewWorkflow::default()
    };
    let jobs = [
        defined(JobDefinition {
            env: env[..1].to_vec(),
            resource_requirements: Some(0),
            priority: -3,
            ..JobDefinition::new("first", "true")
        }),
        NewJob {
            status: JobStatus::Blocked,
            ..defined(JobDefinition {
                cancel_on_blocking_job_failure: false,
                ..JobDefinition::new("second", "true")
            })
        },
    ];
    let id = store.create_workflow(&new, &mut InMemoryJobSource::new(jobs), NOW).unwrap();

    let row = store.workflow(id).unwrap().unwrap();
    assert_eq!((row.id, row.name.as_str(), row.user.as_str()), (id, "names", "ada"));
    assert_eq!(row.uuid.len(), 36);
    assert_eq!(row.description.as_deref(), Some("what it is for"));
    assert_eq!((row.submission_dir.as_str(), row.output_dir.as_str()), ("/home/ada", "/home/ada/out"));
    assert_eq!(
        (row.spec_path.as_deref(), row.spec_digest.as_deref()),
        (Some("/home/ada/spec.yaml"), Some("abc"))
    );
    assert_eq!(row.env, env);
    assert_eq!(row.stdio, new.stdio);
    assert_eq!((row.created_at, row.run_id.0, row.is_canceled), (NOW, 1, false));
    assert_eq!((row.started_at, row.ended_at), (None, None));

    let table = store.load_jobs(id).unwrap();
    assert_eq!(table.status, [JobStatus::Ready, JobStatus::Blocked]);
    assert_eq!(table.attempt, [Attempt::FIRST; 2]);
    assert_eq!(table.priority, [-3, 0]);
    assert_eq!(table.cancel_on_blocking_job_failure, [true, false]);
    assert_eq!(table.class, [1, 0]);
    assert_eq!(table.requirements, [Resources::DEFAULT, large]);

    let rows = store.jobs(id, &JobFilter::default()).unwrap();
    assert_eq!(rows[0].resource_requirements.as_deref(), Some("large"));
    assert_eq!(rows[1].resource_requirements, None);
    let commands = store.load_job_commands(&table.ids).unwrap();
    assert_eq!(commands[0].env, env[..1]);
    assert_eq!((commands[1].name.as_str(), commands[1].command.as_str()), ("second", "true"));
    assert!(commands[1].env.is_empty());
}

pub(crate) fn ids_are_one_block_in_creation_order(store: &dyn Store) {
    let (_, first) = create(store, 200);
    let (_, second) = create(store, 3);
    let ascending = |ids: &[JobId]| ids.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1);
    assert!(ascending(&first) && ascending(&second));
    assert!(second[0] > first[199]);
    assert_eq!(store.job_names(&first[198..]).unwrap(), ["job_0198", "job_0199"]);
}

pub(crate) fn edges_round_trip(store: &dyn Store) {
    create(store, 5); // so that ids and positions differ
    let mut builder = DependencyEdgesBuilder::default();
    builder.add_dependencies(3, &[0, 1, 2]);
    builder.add_dependencies(4, &[0, 1, 2]);
    builder.add_dependencies(4, &[3]);
    builder.add_dependencies(5, &[3, 4]);
    builder.add_dependencies(2, &[0]);
    let edges = builder.finish();
    let names = ["a", "b", "c", "d", "e", "f"];
    let id = store
        .create_workflow(
            &workflow(&[], &edges),
            &mut InMemoryJobSource::new(names.iter().map(|name| job(name))),
            NOW,
        )
        .unwrap();
    assert_eq!(store.load_jobs(id).unwrap().edges, edges);

    // The order of the input does not matter.
    let mut turned = edges.clone();
    turned.direct.reverse();
    turned.waits.reverse();
    turned.groups[0].reverse();
    let id = store
        .create_workflow(
            &workflow(&[], &turned),
            &mut InMemoryJobSource::new(names.iter().map(|name| job(name))),
            NOW,
        )
        .unwrap();
    assert_eq!(store.load_jobs(id).unwrap().edges, edges);
}

pub(crate) fn equal_requirements_share_a_class_except_the_default(store: &dyn Store) {
    let two = Resources { cpus: 2, ..Resources::DEFAULT };
    let requirements = [
        NewRequirements { name: "a", resources: two },
        NewRequirements { name: "b", resources: Resources::DEFAULT },
        NewRequirements { name: "c", resources: two },
    ];
    let edges = DependencyEdges::default();
    let jobs = [Some(0), Some(1), Some(2), None, Some(0)];
    let names = ["v", "w", "x", "y", "z"];
    let rows = names.iter().zip(jobs).map(|(name, resource_requirements)| {
        defined(JobDefinition { resource_requirements, ..JobDefinition::new(*name, "true") })
    });
    let mut rows = InMemoryJobSource::new(rows);
    let id = store.create_workflow(&workflow(&requirements, &edges), &mut rows, NOW).unwrap();
    let table = store.load_jobs(id).unwrap();
    assert_eq!(table.class, [1, 2, 1, 0, 1]);
    // A value set by a user is a limit, even if it equals the default.
    assert_eq!(table.requirements, [Resources::DEFAULT, two, Resources::DEFAULT]);
}

pub(crate) fn names_may_be_anything_but_not_twice(store: &dyn Store) {
    let names = ["it's", "\"quoted\"", "naïve ☃ 名前", "a;DROP TABLE job;--", "a\nb", "%_$1?", "A", "a"];
    let (id, ids) = create_jobs(store, names.iter().map(|name| job(name)));
    assert_eq!(store.job_names(&ids).unwrap(), names);
    for (name, &job) in names.iter().zip(&ids) {
        let filter = JobFilter { name: Some((*name).into()), ..JobFilter::default() };
        let found = store.jobs(id, &filter).unwrap();
        assert_eq!(found.iter().map(|row| row.id).collect::<Vec<_>>(), [job], "{name}");
    }
    // Far apart, adjacent, and in the last rows, which may be inserted in another way.
    for (first, second) in [(0, 150), (10, 11), (198, 199), (64, 128)] {
        let mut names: Vec<String> = (0..200).map(|i| format!("job_{i}")).collect();
        names[second] = format!("job_{first}");
        let edges = DependencyEdges::default();
        let error = store
            .create_workflow(
                &workflow(&[], &edges),
                &mut InMemoryJobSource::new(names.iter().map(|name| job(name))),
                NOW,
            )
            .unwrap_err();
        assert!(matches!(&error, StoreError::DuplicateJobName { name } if *name == names[first]), "{error}");
    }
    assert_eq!(store.workflows().unwrap().len(), 1);
}

pub(crate) fn failed_creation_leaves_no_rows(store: &dyn Store) {
    let beyond = DependencyEdges { direct: vec![(0, 7)], ..DependencyEdges::default() };
    let no_group = DependencyEdges { waits: vec![(0, 0)], ..DependencyEdges::default() };
    let itself = DependencyEdges { direct: vec![(1, 1)], ..DependencyEdges::default() };
    for edges in [&beyond, &no_group, &itself] {
        let mut rows = InMemoryJobSource::new(["a", "b"].iter().map(|name| job(name)));
        store.create_workflow(&workflow(&[], edges), &mut rows, NOW).unwrap_err();
    }
    let edges = DependencyEdges::default();
    for bad in [
        defined(JobDefinition {
            resource_requirements: Some(0),
            ..JobDefinition::new("has missing requirements", "true")
        }),
        NewJob { status: JobStatus::Running, ..job("runs without a worker") },
        job(""),
    ] {
        store
            .create_workflow(&workflow(&[], &edges), &mut InMemoryJobSource::new([job("fine"), bad]), NOW)
            .unwrap_err();
    }
    assert!(store.workflows().unwrap().is_empty());
    // The store keeps working.
    let (id, ids) = create(store, 2);
    assert_eq!(counts(store, id).get(JobStatus::Ready), 2);
    assert_eq!(store.load_job_commands(&ids).unwrap().len(), 2);
}

pub(crate) fn a_workflow_may_be_empty(store: &dyn Store) {
    let (empty, ids) = create(store, 0);
    assert!(ids.is_empty());
    assert_eq!(counts(store, empty).total(), 0);
    assert!(store.jobs(empty, &JobFilter::default()).unwrap().is_empty());
    let (_, ids) = create(store, 1);
    assert_eq!(ids.len(), 1);
}

pub(crate) fn newest_workflow_with_the_digest_is_found(store: &dyn Store) {
    let edges = DependencyEdges::default();
    let with = |digest, submission_dir| {
        let new = NewWorkflow { spec_digest: digest, submission_dir, ..workflow(&[], &edges) };
        store.create_workflow(&new, &mut InMemoryJobSource::new([]), NOW).unwrap()
    };
    let (_, newest) = (with(Some("d"), "/here"), with(Some("d"), "/here"));
    with(Some("e"), "/here");
    with(None, "/here");
    let there = with(Some("d"), "/there");
    let found = |digest, dir| store.find_by_digest(digest, dir).unwrap().map(|row| row.id);
    assert_eq!(found("d", "/here"), Some(newest));
    assert_eq!(found("d", "/there"), Some(there));
    assert_eq!(found("f", "/here"), None);
}
