//! Slurm allocations for the remaining jobs of a workflow: the data is read from the database, the plan is
//! computed by [`windlass_core::slurm::schedule_regeneration`], and it is stored atomically.

use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use windlass_core::recovery::AvailableWorker;
use windlass_core::slurm::allocation_groups::{AllocationOptions, remaining_levels};
use windlass_core::slurm::allocation_rows::{AllocationSchedule, AppliedSchedule};
use windlass_core::slurm::autoschedule::{OpenAllocations, UnservedJob};
use windlass_core::slurm::cluster_profile::{ClusterProfile, NodeShape, Partition};
use windlass_core::slurm::end_reserve::end_reserve;
use windlass_core::slurm::schedule_generation::format_walltime;
use windlass_core::slurm::schedule_regeneration::{
    AllocationAction, RegenerateError, RegenerateInput, RegenerateOptions, RemainingJob, regenerate_schedule,
};
use windlass_store::model::{
    ActionRow, AllocationFilter, JobFilter, NewWorker, SlurmSchedulerRow, WorkerKind, WorkerRow, WorkflowRow,
};
use windlass_store::{Store, StoreError};
use windlass_types::settings::{ActionType, SlurmScheduler, WorkflowSettings};
use windlass_types::slurm::Allocation;
use windlass_types::{Capacity, JobId, JobStatus, Resources, Timestamp, WorkflowId};

use crate::recovery::EligibleWorkers;
use crate::{has_active_process, is_remote_store};

const JOB_PAGE: u64 = 2000;
/// Maximum number of attempts after concurrent changes.
const MAX_SCHEDULE_ATTEMPTS: usize = 10;
/// Suffix of the names of new schedulers.
const SCHEDULER_SUFFIX: &str = "regen";

/// Whether a workflow runs in Slurm allocations: it has schedulers for them, or had allocations.
pub fn is_on_slurm(store: &dyn Store, workflow: WorkflowId) -> Result<bool, StoreError> {
    let one = AllocationFilter { workflow: Some(workflow), limit: Some(1), ..AllocationFilter::default() };
    Ok(!store.schedulers(workflow)?.is_empty() || !store.allocations(&one)?.is_empty())
}

/// Whether an allocation of the workflow is open, or a pending action will request one.
pub fn has_open_or_due_allocation(store: &dyn Store, workflow: WorkflowId) -> Result<bool, StoreError> {
    let open = AllocationFilter {
        workflow: Some(workflow),
        is_open: Some(true),
        limit: Some(1),
        ..AllocationFilter::default()
    };
    Ok(!store.allocations(&open)?.is_empty() || has_due_action(store, workflow)?)
}

/// Whether a triggered action will request allocations.
pub fn has_due_action(store: &dyn Store, workflow: WorkflowId) -> Result<bool, StoreError> {
    Ok(store.actions(workflow)?.iter().any(is_due))
}

fn is_due(row: &ActionRow) -> bool {
    parse_allocation_action(row).is_some_and(|action| !action.is_executed)
        && row.trigger_count >= row.required_triggers()
}

/// Whether ready jobs wait for nodes that are not requested: their allocations were canceled, preempted or
/// lost.
pub fn needs_allocations(
    store: &dyn Store,
    row: &WorkflowRow,
    profile: &ClusterProfile,
    options: &AllocationOptions,
) -> Result<bool, RescheduleError> {
    if row.counts.get(JobStatus::Ready) == 0 || !depends_on_allocations(store, row)? {
        return Ok(false);
    }
    let wanted = NewAllocationOptions { options, included_jobs: &[], submit: true, by: &row.user };
    let gathered = AllocationFacts::load(store, row, &[])?;
    let plan = gathered.plan_schedule(profile, &wanted)?;
    Ok(!gathered.find_unplanned_jobs(&plan, &HashMap::new(), Timestamp(0)).is_empty())
}

/// Whether an active workflow has no workers except in Slurm allocations, so that its ready jobs wait for
/// those.
pub fn depends_on_allocations(store: &dyn Store, row: &WorkflowRow) -> Result<bool, StoreError> {
    let is_under_way = row.started_at.is_some() && row.ended_at.is_none() && !row.is_canceled;
    if !is_under_way || (!is_remote_store(store) && has_active_process(store, row)) {
        return Ok(false);
    }
    let takes_part = |worker: &NewWorker| {
        let is_its = worker.workflow.map_or(worker.user == row.user, |workflow| workflow == row.id);
        is_its && worker.allocation.is_none() && worker.kind != WorkerKind::Claims
    };
    let stays = |there: &WorkerRow| !there.is_draining && takes_part(&there.worker);
    Ok(!store.active_workers(None)?.iter().any(stays))
}

/// The data of a workflow that determines its allocations.
#[derive(Clone, Debug)]
pub struct AllocationFacts {
    workflow: WorkflowId,
    seen: String,
    jobs: Vec<RemainingJob>,
    allocation_actions: Vec<AllocationAction>,
    /// Actions that are about to request allocations.
    due_actions: BTreeSet<i64>,
    schedulers: Vec<SlurmScheduler>,
    pub allocations: Vec<Allocation>,
    progress: u64,
    slurm_defaults: BTreeMap<String, Value>,
    /// Time reserved at the end of an allocation.
    reserve: Duration,
}

impl AllocationFacts {
    pub fn load(store: &dyn Store, row: &WorkflowRow, include: &[JobId]) -> Result<Self, StoreError> {
        // Read first: any later change makes the plan outdated.
        let seen = store.schedule_fingerprint(row.id)?;
        let of_workflow = AllocationFilter { workflow: Some(row.id), ..AllocationFilter::default() };
        let schedulers = store.schedulers(row.id)?;
        let (jobs, progress) = load_remaining_jobs(store, row, &schedulers, include)?;
        let actions = store.actions(row.id)?;
        Ok(Self {
            workflow: row.id,
            seen,
            jobs,
            progress,
            due_actions: actions.iter().filter(|action| is_due(action)).map(|action| action.id).collect(),
            allocation_actions: actions.iter().filter_map(parse_allocation_action).collect(),
            schedulers: schedulers.into_iter().map(|row| row.scheduler).collect(),
            allocations: store.allocations(&of_workflow)?,
            slurm_defaults: row.settings.slurm_defaults.clone(),
            reserve: end_reserve(&row.settings),
        })
    }

    /// Computes the plan without storing it.
    pub fn plan_schedule(
        &self,
        profile: &ClusterProfile,
        wanted: &NewAllocationOptions<'_>,
    ) -> Result<AllocationSchedule, RegenerateError> {
        let jobs_store = RegenerateInput {
            workflow: self.workflow,
            seen: &self.seen,
            jobs: &self.jobs,
            actions: &self.allocation_actions,
            schedulers: &self.schedulers,
            allocations: &self.allocations,
            slurm_defaults: &self.slurm_defaults,
        };
        let NewAllocationOptions { options, included_jobs: include, submit, by } = *wanted;
        let options = AllocationOptions { reserve: self.reserve, ..options.clone() };
        regenerate_schedule(
            &jobs_store,
            profile,
            &RegenerateOptions { options: &options, include, submit, suffix: SCHEDULER_SUFFIX, by },
        )
    }

    /// Treats jobs that will be reset as ready, with these requirements.
    pub fn assume_requeued(&mut self, then: &dyn Fn(JobId) -> Option<Resources>) {
        for job in &mut self.jobs {
            if let Some(resources) = then(job.id) {
                (job.resources, job.requirements) = (resources, Some(format!("job {}", job.id)));
                (job.status, job.level) = (JobStatus::Ready, 0);
            }
        }
    }

    /// Jobs that wait to run.
    pub fn pending_count(&self) -> usize {
        self.jobs.len()
    }

    /// Returns ready jobs without requested nodes, if this is the plan for all remaining jobs. The database
    /// does not record since when they are ready: `now`, unless it is known.
    pub fn find_unplanned_jobs(
        &self,
        plan: &AllocationSchedule,
        known: &HashMap<JobId, Timestamp>,
        now: Timestamp,
    ) -> Vec<UnservedJob> {
        // An existing but unused scheduler already has its jobs.
        let used: BTreeSet<&str> =
            plan.allocations.iter().map(|new| new.request.scheduler.as_str()).collect();
        let assigned: BTreeSet<JobId> = plan.assign.iter().map(|(job, _)| *job).collect();
        let is_unserved = |job: &&RemainingJob| {
            assigned.contains(&job.id) || job.scheduler.as_deref().is_some_and(|name| used.contains(name))
        };
        // Jobs of pending actions are left to those.
        let is_asked_for = |job: &RemainingJob| {
            self.allocation_actions.iter().filter(|action| self.due_actions.contains(&action.id)).any(
                |action| {
                    action.scheduler.is_none() || job.scheduler.is_none() || action.scheduler == job.scheduler
                },
            )
        };
        let jobs = self.jobs.iter().filter(|job| job.status == JobStatus::Ready);
        let jobs = jobs.filter(is_unserved).filter(|job| !is_asked_for(job));
        jobs.map(|job| UnservedJob { id: job.id, ready_since: known.get(&job.id).copied().unwrap_or(now) })
            .collect()
    }

    /// Returns the state of the allocations, for deciding whether to request more. `progress` is the value at
    /// the last request.
    pub fn open_state(&self, progress: Option<u64>) -> OpenAllocations {
        let is_open = |one: &&Allocation| !one.state.is_over() && one.unwanted.is_none();
        match progress {
            _ if self.allocations.iter().any(|one| is_open(&one)) => OpenAllocations::SomeOpen,
            // Allocations ended without starting a job: more of them would not help.
            Some(before) if before == self.progress => OpenAllocations::NoneBegan,
            _ => OpenAllocations::NoneLeft,
        }
    }

    /// Returns a number that changes whenever a job has ended or been lost.
    pub const fn progress(&self) -> u64 {
        self.progress
    }
}

/// What new allocations should cover.
#[derive(Clone, Copy, Debug)]
pub struct NewAllocationOptions<'a> {
    pub options: &'a AllocationOptions,
    /// Also these jobs, in any status.
    pub included_jobs: &'a [JobId],
    /// Request allocations for ready jobs at once.
    pub submit: bool,
    pub by: &'a str,
}

/// Why nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum RescheduleError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Plan(#[from] RegenerateError),
}

/// Plans allocations for all remaining jobs and stores the plan; plans again after a concurrent change.
pub fn reschedule_allocations(
    store: &dyn Store,
    row: &WorkflowRow,
    profile: &ClusterProfile,
    wanted: &NewAllocationOptions<'_>,
    now: impl Fn() -> Timestamp,
) -> Result<(AllocationFacts, AllocationSchedule, AppliedSchedule), RescheduleError> {
    let mut attempt = 1;
    loop {
        let gathered = AllocationFacts::load(store, row, wanted.included_jobs)?;
        let schedule = gathered.plan_schedule(profile, wanted)?;
        if schedule.is_empty() {
            return Ok((gathered, schedule, AppliedSchedule::default()));
        }
        match store.apply_schedule(row.id, &schedule, now()) {
            Err(StoreError::Unexpected { .. }) if attempt < MAX_SCHEDULE_ATTEMPTS => attempt += 1,
            done => return Ok((gathered, schedule, done?)),
        }
    }
}

/// The allocations that a plan requests from one scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SchedulerShare {
    pub scheduler: String,
    pub partition: Option<String>,
    pub account: String,
    /// Number of jobs assigned to it by this plan.
    pub jobs: usize,
    pub nodes: u32,
    pub walltime: String,
    pub mem: Option<String>,
    pub gres: Option<String>,
    /// Whether the scheduler existed before.
    pub is_known: bool,
    /// Whether they are requested when the first jobs are ready.
    pub is_deferred: bool,
    pub allocations: u32,
    /// Number of allocations requested at once.
    pub submitted: usize,
}

/// By scheduler, in the order of the plan.
pub fn scheduler_shares(gathered: &AllocationFacts, schedule: &AllocationSchedule) -> Vec<SchedulerShare> {
    let new = schedule.schedulers.iter().map(|scheduler| (scheduler, false));
    let used = |one: &&SlurmScheduler| {
        schedule.allocations.iter().any(|allocation| allocation.request.scheduler == one.name)
            && !schedule.schedulers.iter().any(|new| new.name == one.name)
    };
    let known = gathered.schedulers.iter().filter(used).map(|scheduler| (scheduler, true));
    let share = |(scheduler, is_known): (&SlurmScheduler, bool)| {
        let is_its = |name: &str| name == scheduler.name;
        let action = schedule.actions.iter().find(|one| one.action.scheduler.as_deref().is_some_and(is_its));
        let submitted = schedule.allocations.iter().filter(|one| is_its(&one.request.scheduler)).count();
        let later = action.map_or(0, |one| one.action.num_allocations.unwrap_or(1));
        SchedulerShare {
            scheduler: scheduler.name.clone(),
            partition: scheduler.partition.clone(),
            account: scheduler.account.clone(),
            jobs: schedule.assign.iter().filter(|(_, name)| is_its(name)).count(),
            nodes: scheduler.nodes,
            walltime: scheduler.walltime().map_or_else(|| scheduler.walltime.clone(), format_walltime),
            mem: scheduler.mem.clone(),
            gres: scheduler.gres.clone(),
            is_known,
            is_deferred: action.is_some(),
            allocations: later.saturating_add(u32::try_from(submitted).unwrap_or(u32::MAX)),
            submitted,
        }
    };
    new.chain(known).map(share).collect()
}

/// Returns the largest capacity of this cluster for jobs: the nodes of its partitions, or of the given one, and
/// how long jobs of a workflow with these settings may use them.
pub fn cluster_capacity(
    profile: &ClusterProfile,
    partition: Option<&str>,
    settings: &WorkflowSettings,
) -> EligibleWorkers {
    let account = settings.slurm_defaults.get("account").and_then(|account| account.as_str());
    let is_meant = |one: &&Partition| {
        let is_open = one.is_up && account.is_none_or(|account| one.admits_account(account));
        partition.map_or(is_open, |name| one.name == name)
    };
    let reserve = end_reserve(settings);
    let of_partition = |one: &Partition| {
        let nodes = one.max_nodes.unwrap_or(u32::MAX).min(one.total_nodes().unwrap_or(u32::MAX)).max(1);
        // A worker starts no job that would run into the end of its allocation.
        let stays = one.max_walltime().map(|most| most.saturating_sub(reserve));
        let available = |shape: NodeShape| AvailableWorker {
            capacity: Capacity {
                cpus: shape.cpus_per_node,
                memory: shape.memory(),
                gpus: shape.gpus_per_node,
                nodes,
                max_jobs: None,
            },
            time_left: stays,
        };
        one.node_shapes().map(available).collect::<Vec<_>>()
    };
    EligibleWorkers { workers: profile.partitions.iter().filter(is_meant).flat_map(of_partition).collect() }
}

/// Returns the jobs that still have to run and those given, and the progress of all.
fn load_remaining_jobs(
    store: &dyn Store,
    row: &WorkflowRow,
    schedulers: &[SlurmSchedulerRow],
    include: &[JobId],
) -> Result<(Vec<RemainingJob>, u64), StoreError> {
    let table = store.load_jobs(row.id)?;
    let is_over: Vec<bool> = table.status.iter().map(|status| status.is_settled()).collect();
    let levels = remaining_levels(&table.edges, &is_over);
    let names: HashMap<i64, &str> =
        schedulers.iter().map(|row| (row.id, row.scheduler.name.as_str())).collect();
    let mut found = Vec::new();
    let mut add = |filter: &JobFilter| {
        let mut filter = JobFilter { limit: Some(JOB_PAGE), ..filter.clone() };
        loop {
            let page = store.jobs(row.id, &filter)?;
            let Some(last) = page.last() else { return Ok::<_, StoreError>(()) };
            filter.after = Some(last.id);
            for job in page {
                // A scheduler added after the table was read is part of the next plan.
                let Ok(number) = table.ids.binary_search(&job.id) else { continue };
                let place = table.location_of(number);
                found.push(RemainingJob {
                    id: job.id,
                    name: job.name,
                    status: job.status,
                    requirements: job.resource_requirements,
                    resources: table.requirements[table.class[number] as usize],
                    level: levels[number],
                    labels: place.labels,
                    scheduler: place.scheduler.and_then(|id| names.get(&id)).map(|name| (*name).to_owned()),
                });
            }
        }
    };
    let status = vec![JobStatus::Uninitialized, JobStatus::Ready, JobStatus::Blocked];
    add(&JobFilter { status, ..JobFilter::default() })?;
    if !include.is_empty() {
        add(&JobFilter { ids: include.to_vec(), ..JobFilter::default() })?;
        found.sort_by_key(|job| job.id);
        found.dedup_by_key(|job| job.id);
    }
    let attempts: u64 = table.attempt.iter().map(|attempt| u64::from(attempt.0)).sum();
    let over = is_over.iter().filter(|is_over| **is_over).count() as u64;
    Ok((found, attempts + over))
}

/// Returns the parameters of an action that requests allocations.
fn parse_allocation_action(row: &ActionRow) -> Option<AllocationAction> {
    (row.action.action_type == ActionType::ScheduleNodes).then(|| AllocationAction {
        id: row.id,
        scheduler: row.action.scheduler.clone(),
        allocations: row.action.num_allocations.unwrap_or(1),
        is_executed: row.last_run().is_some(),
        is_recovery: row.is_recovery,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use windlass_types::slurm::AllocationState as A;

    fn allocation(state: A, unwanted: Option<&str>) -> Allocation {
        serde_json::from_value(json!({
            "id": 1, "workflow": 1, "is_ours": true, "scheduler": null, "tag": "t", "request": {"scheduler": "s"},
            "state": state, "job_id": 7, "by": "ada", "created_at": Timestamp(0), "unwanted": unwanted, "reason": null,
            "end": null, "submitted_at": null, "started_at": null, "ends_at": null, "ended_at": null, "seen_at": null,
        }))
        .unwrap()
    }

    /// After a request at some progress without open allocations, the next one is immediate only if there was
    /// progress since.
    #[test]
    fn unused_allocations_are_distinguished_from_used_ones() {
        for (allocations, asked_at, progress, expected) in [
            (vec![], None, 0, OpenAllocations::NoneLeft),
            (vec![allocation(A::Ended, None)], None, 3, OpenAllocations::NoneLeft),
            (vec![allocation(A::Ended, None)], Some(3), 3, OpenAllocations::NoneBegan),
            (vec![allocation(A::Refused, None)], Some(3), 3, OpenAllocations::NoneBegan),
            (vec![allocation(A::Ended, None)], Some(3), 4, OpenAllocations::NoneLeft),
            (
                vec![allocation(A::Ended, None), allocation(A::Pending, None)],
                Some(3),
                3,
                OpenAllocations::SomeOpen,
            ),
            (vec![allocation(A::Running, None)], None, 0, OpenAllocations::SomeOpen),
            (vec![allocation(A::Running, Some("it goes"))], Some(3), 3, OpenAllocations::NoneBegan),
        ] {
            let gathered = AllocationFacts {
                workflow: WorkflowId(1),
                seen: String::new(),
                jobs: Vec::new(),
                allocation_actions: Vec::new(),
                due_actions: BTreeSet::new(),
                schedulers: Vec::new(),
                allocations,
                progress,
                slurm_defaults: BTreeMap::new(),
                reserve: Duration::ZERO,
            };
            let found = gathered.open_state(asked_at);
            assert_eq!(found, expected, "{:?} {asked_at:?} {progress}", gathered.allocations);
        }
    }
}
