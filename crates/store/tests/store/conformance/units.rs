//! Work units: groups of jobs that choose a site and end as a whole.

use crate::kit::{NOW, RUN, claim, commit, job, workflow};
use windlass_core::change::{WorkUnitChange, WorkflowChange};
use windlass_core::dependency_edges::DependencyEdges;
use windlass_core::workflow_state::WorkUnitRow;
use windlass_store::model::{
    ExportOptions, ImportOptions, InMemoryJobSource, JobGroupRow, NewJob, NewWorker, NewWorkflow,
};
use windlass_store::{Store, StoreError};
use windlass_types::{
    JobGroup, JobId, JobSettings, JobStatus, RunId, WorkUnitStatus, WorkUnitStatusCounts, WorkflowId,
};

fn change(number: u32, from: WorkUnitStatus, to: WorkUnitStatus, site: Option<&str>) -> WorkflowChange {
    WorkflowChange::Unit(WorkUnitChange { number, from, to, site: site.map(str::to_owned) })
}

/// Units 0 and 1 with two jobs each, a job without a unit between them, and unit 4 with a completed job.
fn create(store: &dyn Store) -> (WorkflowId, Vec<JobId>) {
    let edges = DependencyEdges::default();
    let sites = vec!["west".to_owned(), "east".to_owned()];
    let kinds = [
        JobGroup {
            name: "landing".into(),
            settings: JobSettings { sites, limit: Some("few".into()), ..JobSettings::default() },
            elects_site: true,
            ..JobGroup::default()
        },
        JobGroup { name: "work".into(), ..JobGroup::default() },
    ];
    let new = NewWorkflow { job_groups: &kinds, ..workflow(&[], &edges) };
    let of = |name, unit, kind| NewJob { unit, job_group: Some(kind), ..job(name) };
    let jobs = [
        of("landing_0", Some(0), 0),
        of("work_0", Some(0), 1),
        of("apart", None, 1),
        of("landing_1", Some(1), 0),
        of("work_1", Some(1), 1),
        NewJob { status: JobStatus::Completed, ..of("done", Some(4), 1) },
    ];
    let id = store.create_workflow(&new, &mut InMemoryJobSource::new(jobs), NOW).unwrap();
    (id, store.load_jobs(id).unwrap().ids)
}

fn seen(store: &dyn Store, workflow: WorkflowId, after: u64) -> Vec<(u32, WorkUnitStatus, Option<String>)> {
    let units = store.work_units(workflow, after).unwrap();
    units.into_iter().map(|unit| (unit.number, unit.status, unit.site)).collect()
}

fn last_seq(store: &dyn Store, workflow: WorkflowId) -> u64 {
    store.work_units(workflow, 0).unwrap().last().unwrap().seq
}

pub(crate) fn work_units_are_created_with_their_jobs(store: &dyn Store) {
    let (workflow, _) = create(store);
    let table = store.load_jobs(workflow).unwrap();
    let unit = |number, jobs| WorkUnitRow { number, jobs: vec![jobs], ..WorkUnitRow::default() };
    let done = WorkUnitRow { status: WorkUnitStatus::Completed, ..unit(4, (5, 1)) };
    assert_eq!(table.units, [unit(0, (0, 2)), unit(1, (3, 2)), done]);
    let place = table.location_of(3);
    assert_eq!(
        (place.sites, place.limit.as_deref(), place.elects),
        (vec!["east".into(), "west".into()], Some("few"), true)
    );
    let kinds = store.job_groups(workflow).unwrap();
    let limited = |row: &JobGroupRow| {
        let settings = &row.group.settings;
        (settings.sites.len(), settings.limit.clone(), row.group.elects_site)
    };
    assert_eq!(limited(&kinds[0]), (2, Some("few".into()), true));
    assert_eq!(limited(&kinds[1]), (0, None, false));
    let counts = WorkUnitStatusCounts { waiting: 2, completed: 1, ..WorkUnitStatusCounts::default() };
    assert_eq!(store.work_unit_counts(workflow).unwrap(), counts);
    assert!(store.work_units(workflow, 0).unwrap()[2].ended_at.is_some());

    // A workflow without units has none of these.
    let (plain, _) = crate::kit::create(store, 2);
    assert_eq!(store.work_units(plain, 0).unwrap(), []);
    assert_eq!(store.work_unit_counts(plain).unwrap(), WorkUnitStatusCounts::default());
    assert!(store.load_jobs(plain).unwrap().units.is_empty());
    assert!(matches!(store.work_unit_counts(WorkflowId(4711)), Err(StoreError::NoSuchWorkflow(_))));
}

pub(crate) fn work_unit_changes_with_its_batch(store: &dyn Store) {
    use WorkUnitStatus::{Active, Completed, Failed, Waiting};
    let (workflow, jobs) = create(store);
    let worker = crate::kit::worker(store, workflow);
    let before = last_seq(store, workflow);
    let landed = vec![claim(jobs[3], 1, worker), change(1, Waiting, Active, None)];
    commit(store, workflow, landed).unwrap();
    assert_eq!(seen(store, workflow, before), [(1, Active, None)]);
    let both = vec![change(1, Active, Active, Some("west")), change(0, Waiting, Failed, None)];
    commit(store, workflow, both).unwrap();
    assert_eq!(seen(store, workflow, before + 1), [(1, Active, Some("west".into())), (0, Failed, None)]);
    let units = store.work_units(workflow, before + 1).unwrap();
    assert!(units[0].ended_at.is_none() && units[1].ended_at.is_some());
    assert_eq!(units[0].run_id, RUN);
    let counts =
        WorkUnitStatusCounts { active: 1, completed: 1, failed: 1, ..WorkUnitStatusCounts::default() };
    assert_eq!(store.work_unit_counts(workflow).unwrap(), counts);

    // A conflicting change rolls back the whole batch.
    let unfit = vec![change(0, Failed, Waiting, None), change(1, Completed, Waiting, None)];
    let refused = commit(store, workflow, unfit).unwrap_err();
    assert!(refused.to_string().contains("unit 1"), "{refused}");
    assert_eq!(store.work_unit_counts(workflow).unwrap(), counts);
    let loaded = store.load_jobs(workflow).unwrap().units;
    assert_eq!((loaded[1].status, loaded[1].site.as_deref()), (Active, Some("west")));
}

pub(crate) fn canceled_run_cancels_open_work_units(store: &dyn Store) {
    use WorkUnitStatus::{Active, Canceled, Completed, Waiting};
    let (workflow, _) = create(store);
    store.begin_run(workflow, NOW).unwrap();
    commit(store, workflow, vec![change(1, Waiting, Active, Some("west"))]).unwrap();
    let before = last_seq(store, workflow);
    store.end_run(workflow, true, NOW).unwrap();
    let canceled = [(0, Canceled, None), (1, Canceled, Some("west".to_owned()))];
    assert_eq!(seen(store, workflow, before), canceled, "and it keeps its site");
    let counts = WorkUnitStatusCounts { canceled: 2, completed: 1, ..WorkUnitStatusCounts::default() };
    assert_eq!(store.work_unit_counts(workflow).unwrap(), counts);

    let run = store.begin_next_run(workflow, &[], NOW).unwrap();
    assert_eq!(run, RunId(2));
    let batch = vec![change(1, Canceled, Active, Some("west"))];
    let batch = windlass_store::ChangeBatch { workflow, run, changes: batch.into() };
    crate::kit::commit_batch(store, batch).unwrap();
    store.end_run(workflow, false, NOW).unwrap();
    let units = store.work_units(workflow, 0).unwrap();
    assert_eq!(
        (units[2].number, units[2].status, units[2].run_id),
        (1, Active, run),
        "this one was not canceled"
    );
    assert_eq!(units[0].status, Completed);
    store.delete_workflow(workflow, NOW).unwrap();
    assert_eq!(store.work_units(workflow, 0).unwrap(), []);
}

pub(crate) fn invalid_landing_jobs_are_rejected(store: &dyn Store) {
    let edges = DependencyEdges::default();
    let kinds = [JobGroup { name: "landing".into(), elects_site: true, ..JobGroup::default() }];
    let new = NewWorkflow { job_groups: &kinds, ..workflow(&[], &edges) };
    let electing = |name, unit| NewJob { unit, job_group: Some(0), ..job(name) };
    for (jobs, complaint) in [
        ([electing("a", Some(0)), electing("b", None)], "without a work unit"),
        ([electing("a", Some(7)), electing("b", Some(7))], "the second landing job of work unit 7"),
    ] {
        let refused = store.create_workflow(&new, &mut InMemoryJobSource::new(jobs), NOW).unwrap_err();
        assert!(refused.to_string().contains(complaint), "{refused}");
    }
    assert!(store.workflows().unwrap().is_empty());
}

pub(crate) fn work_units_survive_export_and_import(store: &dyn Store) {
    let (workflow, jobs) = create(store);
    store.delete_jobs(workflow, &jobs[4..5], NOW).unwrap();
    let export = store.export_workflow(workflow, ExportOptions::default(), NOW).unwrap();
    let copy = store.import_workflow(&export, &ImportOptions::default(), NOW).unwrap();
    let (table, was) = (store.load_jobs(copy).unwrap(), store.load_jobs(workflow).unwrap());
    let of =
        |table: &[WorkUnitRow]| table.iter().map(|unit| (unit.number, unit.jobs.clone())).collect::<Vec<_>>();
    assert_eq!(of(&table.units), of(&was.units));
    assert_eq!(table.units[1].jobs, [(3, 1)], "the other one was deleted");
    assert_eq!(table.location_of(3), was.location_of(3));
}

pub(crate) fn worker_site_is_stored(store: &dyn Store) {
    let (workflow, _) = crate::kit::create(store, 1);
    let at =
        |site: Option<&str>| NewWorker { site: site.map(str::to_owned), ..crate::kit::new_worker(workflow) };
    let here = store.add_worker(&at(Some("west")), NOW).unwrap();
    let nowhere = store.add_worker(&at(None), NOW).unwrap();
    let site = |id| store.worker(id).unwrap().unwrap().worker.site;
    assert_eq!((site(here).as_deref(), site(nowhere)), (Some("west"), None));
    assert_eq!(store.active_workers(Some(workflow)).unwrap()[0].worker.site.as_deref(), Some("west"));
    let update = windlass_store::model::WorkerUpdate { site: Some("east".into()), ..Default::default() };
    store.update_worker(here, &update, NOW).unwrap();
    assert_eq!(site(here).as_deref(), Some("east"));
}
