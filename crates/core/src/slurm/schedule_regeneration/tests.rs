use super::*;
use crate::slurm::allocation_groups::GroupBy;
use crate::slurm::cluster_profile::Partition;
use proptest::prelude::*;
use windlass_types::slurm::AllocationState;
use windlass_types::{AllocationId, Bytes, Timestamp};

fn profile() -> ClusterProfile {
    let partition = |name: &str, cpus| Partition {
        name: name.into(),
        nodes: Some(8),
        cpus_per_node: cpus,
        memory_mb: 16_000,
        max_walltime_secs: Some(86_400),
        shared: true,
        ..Partition::default()
    };
    ClusterProfile {
        name: "test".into(),
        partitions: vec![Partition { is_default: true, ..partition("standard", 8) }, partition("wide", 32)],
        ..ClusterProfile::default()
    }
}

fn job(id: i64, cpus: u32, level: u32) -> RemainingJob {
    RemainingJob {
        id: JobId(id),
        name: format!("job_{id}"),
        status: if level == 0 { JobStatus::Ready } else { JobStatus::Blocked },
        requirements: Some(format!("r{cpus}")),
        resources: Resources {
            cpus,
            memory: Bytes(500 << 20),
            gpus: 0,
            nodes: 1,
            runtime: Some(Duration::from_mins(30)),
        },
        level,
        labels: Vec::new(),
        scheduler: None,
    }
}

/// A workflow in the database, to which schedules are applied.
#[derive(Default)]
struct Fixture {
    jobs: Vec<RemainingJob>,
    actions: Vec<AllocationAction>,
    schedulers: Vec<SlurmScheduler>,
    allocations: Vec<Allocation>,
    defaults: BTreeMap<String, Value>,
}

impl Fixture {
    fn plan(&self, options: &AllocationOptions, submit: bool) -> AllocationSchedule {
        self.plan_on(&profile(), options, submit).unwrap()
    }

    fn plan_on(
        &self,
        profile: &ClusterProfile,
        options: &AllocationOptions,
        submit: bool,
    ) -> Result<AllocationSchedule, RegenerateError> {
        let store = RegenerateInput {
            workflow: WorkflowId(1),
            seen: "x",
            jobs: &self.jobs,
            actions: &self.actions,
            schedulers: &self.schedulers,
            allocations: &self.allocations,
            slurm_defaults: &self.defaults,
        };
        let regenerate_options =
            RegenerateOptions { options, include: &[], submit, suffix: "regen", by: "me" };
        regenerate_schedule(&store, profile, &regenerate_options)
    }

    fn apply(&mut self, schedule: &AllocationSchedule) {
        for action in &mut self.actions {
            action.is_executed |= schedule.mark_executed.contains(&action.id);
        }
        self.schedulers.extend(schedule.schedulers.iter().cloned());
        for (id, name) in &schedule.assign {
            let job = self.jobs.iter_mut().find(|job| job.id == *id).unwrap();
            job.scheduler = Some(name.clone());
        }
        for new in &schedule.actions {
            self.actions.push(AllocationAction {
                id: self.actions.len() as i64 + 100,
                scheduler: new.action.scheduler.clone(),
                allocations: new.action.num_allocations.unwrap_or(1),
                is_executed: false,
                is_recovery: new.is_recovery,
            });
        }
        for new in &schedule.allocations {
            let id = self.allocations.len() as i64 + 1;
            self.allocations.push(allocation(id, new));
        }
    }
}

fn allocation(id: i64, new: &NewAllocation) -> Allocation {
    let mut row = serde_json::json!({
        "id": id, "workflow": 1, "scheduler": null, "tag": format!("t{id}"), "request": new.request,
        "state": "intended", "job_id": null, "by": new.by, "created_at": "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap(),
        "submitted_at": null, "started_at": null, "ends_at": null, "ended_at": null, "end": null, "seen_at": null,
    });
    row["is_ours"] = true.into();
    serde_json::from_value(row).unwrap()
}

#[test]
fn remaining_jobs_get_new_schedulers() {
    let mut fixture = Fixture {
        jobs: (0..40).map(|id| job(id, 1, u32::from(id >= 20))).collect(),
        actions: vec![
            AllocationAction {
                id: 7,
                scheduler: Some("old".into()),
                allocations: 9,
                is_executed: false,
                is_recovery: false,
            },
            AllocationAction {
                id: 8,
                scheduler: Some("old".into()),
                allocations: 9,
                is_executed: true,
                is_recovery: false,
            },
        ],
        schedulers: vec![SlurmScheduler {
            name: "old".into(),
            account: "lab".into(),
            ..SlurmScheduler::default()
        }],
        ..Fixture::default()
    };
    fixture.jobs[0].status = JobStatus::Completed;
    fixture.jobs[1].labels = vec!["here".into()];
    let options = AllocationOptions { group_by: GroupBy::Requirements, ..AllocationOptions::default() };
    let found = fixture.plan(&options, true);
    assert_eq!(found.mark_executed, [7], "executed actions stay executed");
    let names: Vec<&str> = found.schedulers.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["r1_scheduler_regen", "r1_scheduler_deferred_regen"]);
    assert!(found.schedulers.iter().all(|one| one.account == "lab"), "the account stays the same");
    assert_eq!(found.assign.len(), 38);
    assert_eq!(found.allocations.len(), 3, "18 jobs, 8 at once");
    assert_eq!(found.allocations[0].request.scheduler, "r1_scheduler_regen");
    assert_eq!(found.actions.len(), 1);
    assert!(found.actions[0].is_recovery && found.actions[0].jobs.len() == 20);
    assert_eq!(found.actions[0].action.scheduler.as_deref(), Some("r1_scheduler_deferred_regen"));
}

#[test]
fn named_jobs_are_planned_in_any_state() {
    let mut fixture = Fixture { jobs: vec![job(1, 1, 0)], ..Fixture::default() };
    fixture.jobs[0].status = JobStatus::Failed;
    assert!(fixture.plan(&AllocationOptions::default(), true).is_empty());
    let store = RegenerateInput {
        workflow: WorkflowId(1),
        seen: "",
        jobs: &fixture.jobs,
        actions: &[],
        schedulers: &[],
        allocations: &[],
        slurm_defaults: &fixture.defaults,
    };
    let options = AllocationOptions::default();
    let regenerate_options = RegenerateOptions {
        options: &options,
        include: &[JobId(1)],
        submit: true,
        suffix: "regen",
        by: "me",
    };
    assert_eq!(regenerate_schedule(&store, &profile(), &regenerate_options).unwrap().assign.len(), 1);
}

#[test]
fn open_allocations_are_used_first() {
    let mut fixture = Fixture { jobs: (0..16).map(|id| job(id, 1, 0)).collect(), ..Fixture::default() };
    let options = AllocationOptions::default();
    let first = fixture.plan(&options, true);
    assert_eq!(first.allocations.len(), 2);
    fixture.apply(&first);
    assert!(fixture.plan(&options, true).is_empty());
    // One of them ends.
    fixture.allocations[0].state = AllocationState::Ended;
    let second = fixture.plan(&options, true);
    assert_eq!((second.assign.len(), second.allocations.len()), (8, 1));
    assert_eq!(second.schedulers[0].name, "standard_scheduler_regen_2");
    fixture.apply(&second);
    assert!(fixture.plan(&options, true).is_empty());
}

#[test]
fn grown_jobs_do_not_use_smaller_allocations() {
    let mut fixture = Fixture { jobs: (0..2).map(|id| job(id, 1, 0)).collect(), ..Fixture::default() };
    let options = AllocationOptions::default();
    fixture.apply(&fixture.plan(&options, true));
    fixture.jobs[0].resources.memory = Bytes(4 << 30);
    let second = fixture.plan(&options, true);
    assert_eq!((second.assign.len(), second.assign[0].0), (1, JobId(0)));
    assert_eq!(second.allocations.len(), 1, "its scheduler's allocation is open, but can never fit it");
    fixture.apply(&second);
    assert!(fixture.plan(&options, true).is_empty());
    // Longer than its allocations last.
    fixture.jobs[1].resources.runtime = Some(Duration::from_hours(5));
    assert_eq!(fixture.plan(&options, true).assign[0].0, JobId(1));
}

#[test]
fn job_without_scheduler_uses_any_allocation() {
    let mut fixture = Fixture { jobs: (0..2).map(|id| job(id, 1, 0)).collect(), ..Fixture::default() };
    let options = AllocationOptions::default();
    fixture.apply(&fixture.plan(&options, true));
    assert_eq!(fixture.allocations.len(), 1);
    fixture.jobs.push(job(7, 1, 0));
    assert_eq!(fixture.plan(&options, true).assign.len(), 1, "it requests what two jobs need at once");
    fixture.jobs.remove(0);
    assert!(fixture.plan(&options, true).is_empty(), "now it fits");
    fixture.jobs.push(job(8, 32, 0));
    assert_eq!(fixture.plan(&options, true).assign, [(JobId(8), "wide_scheduler_regen".to_owned())]);
}

#[test]
fn jobs_keep_their_partition_if_possible() {
    let scheduler = |partition: &str| SlurmScheduler {
        name: format!("old_{partition}"),
        partition: Some(partition.into()),
        ..SlurmScheduler::default()
    };
    let partition_of = |schedulers: Vec<SlurmScheduler>, cpus| {
        let fixture = Fixture { jobs: vec![job(1, cpus, 0)], schedulers, ..Fixture::default() };
        fixture
            .plan(&AllocationOptions { group_by: GroupBy::Partition, ..AllocationOptions::default() }, true)
            .schedulers[0]
            .name
            .clone()
    };
    assert_eq!(partition_of(vec![], 1), "standard_scheduler_regen");
    assert_eq!(partition_of(vec![scheduler("wide")], 1), "wide_scheduler_regen");
    assert_eq!(partition_of(vec![scheduler("wide"), scheduler("standard")], 1), "standard_scheduler_regen");
    assert_eq!(partition_of(vec![scheduler("standard")], 32), "wide_scheduler_regen");
}

#[test]
fn walltime_is_kept_by_default() {
    let lasting = |name: &str, walltime: &str| SlurmScheduler {
        name: name.into(),
        partition: Some("standard".into()),
        walltime: walltime.into(),
        ..SlurmScheduler::default()
    };
    let walltime = |schedulers: Vec<SlurmScheduler>, options: AllocationOptions| {
        let fixture = Fixture { jobs: vec![job(1, 1, 0)], schedulers, ..Fixture::default() };
        fixture.plan(&options, true).schedulers[0].walltime.clone()
    };
    let usual = AllocationOptions::default;
    let longest = walltime(vec![], usual());
    assert_eq!(walltime(vec![lasting("a", "04:00:00")], usual()), "04:00:00");
    assert_eq!(walltime(vec![lasting("a", "04:00:00"), lasting("b", "4h")], usual()), "04:00:00");
    assert_eq!(walltime(vec![lasting("a", "04:00:00"), lasting("b", "05:00:00")], usual()), longest);
    // They would not fit the job any more, or the user wants other ones.
    assert_eq!(walltime(vec![lasting("a", "00:01:00")], usual()), longest);
    let exact = AllocationOptions { exact_walltime: Some(Duration::from_hours(6)), ..usual() };
    assert_eq!(walltime(vec![lasting("a", "04:00:00")], exact), "06:00:00");
    let doubled = AllocationOptions { multiplier: 2.0, ..usual() };
    assert_ne!(walltime(vec![lasting("a", "04:00:00")], doubled), "04:00:00");
}

#[test]
fn unused_schedulers_are_reused() {
    let mut fixture = Fixture { jobs: (0..16).map(|id| job(id, 1, 0)).collect(), ..Fixture::default() };
    let options = AllocationOptions::default();
    let first = fixture.plan(&options, false);
    assert_eq!((first.schedulers.len(), first.allocations.len()), (1, 0));
    fixture.apply(&first);
    assert!(fixture.plan(&options, false).is_empty(), "it waits for manual submission");
    let second = fixture.plan(&options, true);
    assert_eq!((second.schedulers.len(), second.allocations.len(), second.assign.len()), (0, 2, 0));
    fixture.apply(&second);
    assert!(fixture.plan(&options, true).is_empty());
}

/// It does not set memory: its nodes are those of its partition, and its walltime is set.
#[test]
fn unused_scheduler_with_small_nodes_is_not_reused() {
    let made = |walltime: &str| SlurmScheduler {
        name: "made".into(),
        partition: Some("standard".into()),
        walltime: walltime.into(),
        nodes: 1,
        ..SlurmScheduler::default()
    };
    let plan = |memory_gib: u64, cpus, walltime: &str| {
        let mut one = job(1, cpus, 0);
        one.resources.memory = Bytes(memory_gib << 30);
        one.scheduler = Some("made".into());
        let fixture = Fixture { jobs: vec![one], schedulers: vec![made(walltime)], ..Fixture::default() };
        let mut cluster = profile();
        cluster.partitions[1].memory_mb = 64_000;
        let found = fixture.plan_on(&cluster, &AllocationOptions::default(), true).unwrap();
        let of = |one: &NewAllocation| (one.request.scheduler.clone(), one.request.partition.clone());
        assert_eq!(found.allocations.len(), 1, "{found:?}");
        let (scheduler, partition) = of(&found.allocations[0]);
        (scheduler == "made", partition.unwrap_or_default())
    };
    assert_eq!(plan(4, 1, "02:00:00"), (true, "standard".to_owned()));
    assert_eq!(plan(40, 1, "02:00:00"), (false, "wide".to_owned()), "it has 16 GB");
    assert_eq!(plan(4, 16, "02:00:00"), (false, "wide".to_owned()), "it has 8 CPUs");
    let (is_used, _) = plan(4, 1, "00:31:00");
    assert!(!is_used, "the job takes half an hour, and a worker needs two minutes itself");
}

#[test]
fn unplaceable_jobs_are_reported() {
    let fixture = Fixture { jobs: vec![job(1, 99, 0)], ..Fixture::default() };
    let store = RegenerateInput {
        workflow: WorkflowId(1),
        seen: "",
        jobs: &fixture.jobs,
        actions: &[],
        schedulers: &[],
        allocations: &[],
        slurm_defaults: &fixture.defaults,
    };
    let options = AllocationOptions::default();
    let regenerate_options =
        RegenerateOptions { options: &options, include: &[], submit: true, suffix: "regen", by: "me" };
    let said = regenerate_schedule(&store, &profile(), &regenerate_options).unwrap_err().to_string();
    assert!(said.starts_with("job `job_1` fits no partition: `r99` requests 99 CPUs"), "{said}");
}

#[test]
fn unfit_job_does_not_block_others() {
    let fixture = Fixture { jobs: vec![job(1, 1, 0), job(2, 99, 0), job(3, 99, 1)], ..Fixture::default() };
    let schedule = fixture.plan(&AllocationOptions::default(), true);
    assert_eq!(schedule.allocations.len(), 1);
    assert_eq!(schedule.assign.iter().map(|(job, _)| job.0).collect::<Vec<_>>(), [1]);
    let [said] = &schedule.unfit[..] else { panic!("{schedule:?}") };
    assert!(said.starts_with("job `job_2` (and 1 more) fits no partition: `r99` requests 99 CPUs"), "{said}");
}

proptest! {
    #[test]
    fn repeated_planning_requests_nothing(
        jobs in prop::collection::vec((1u32..=32, 0u32..3, any::<bool>()), 0..60),
        by_name in any::<bool>(),
        single in any::<bool>(),
        submit in any::<bool>(),
        dead in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
    ) {
        let mut fixture = Fixture {
            jobs: jobs.iter().zip(1..).map(|((cpus, level, is_done), id)| {
                let mut job = job(id, *cpus, *level);
                if *is_done {
                    job.status = JobStatus::Completed;
                }
                job
            }).collect(),
            ..Fixture::default()
        };
        let group_by = if by_name { GroupBy::Requirements } else { GroupBy::Partition };
        let options = AllocationOptions { group_by, single_allocation: single, ..AllocationOptions::default() };
        let first = fixture.plan(&options, submit);
        fixture.apply(&first);
        prop_assert!(fixture.plan(&options, submit).is_empty());
        // Also after some of it was lost and requested again.
        for index in &dead {
            if !fixture.allocations.is_empty() {
                let at = index.index(fixture.allocations.len());
                fixture.allocations[at].state = AllocationState::Ended;
            }
        }
        let again = fixture.plan(&options, submit);
        fixture.apply(&again);
        prop_assert!(fixture.plan(&options, submit).is_empty());
        let mut ids: Vec<AllocationId> = fixture.allocations.iter().map(|one| one.id).collect();
        ids.dedup();
        prop_assert_eq!(ids.len(), fixture.allocations.len());
    }
}
