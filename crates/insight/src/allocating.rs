//! Allocations for what is left of a workflow: what the books have about it is gathered, the plan itself is
//! [`windlass_core::slurm::regenerate`]'s, and it is put into the books as a whole or not at all.

use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use windlass_core::recovery::Taker;
use windlass_core::slurm::autoschedule::{Open, Unplanned};
use windlass_core::slurm::book::{Schedule, Scheduled};
use windlass_core::slurm::generate::write_walltime;
use windlass_core::slurm::groups::{Options, levels_left};
use windlass_core::slurm::profile::{Partition, Profile, Shape};
use windlass_core::slurm::regenerate::{Asking, Books, Left, NoSchedule, Wish, regenerate};
use windlass_core::slurm::reserve::reserve;
use windlass_store::model::{
    ActionRow, AllocationFilter, JobFilter, NewWorker, SchedulerRow, WorkerKind, WorkerRow, WorkflowRow,
};
use windlass_store::{Error, Store};
use windlass_types::settings::{ActionType, Settings, SlurmScheduler};
use windlass_types::slurm::Allocation;
use windlass_types::{Capacity, JobId, JobStatus, Resources, Timestamp, WorkflowId};

use crate::recovery::Room;
use crate::{is_elsewhere, is_run_by_somebody};

const PAGE: u64 = 2000;
/// As often another one may be quicker before we give up.
const ATTEMPTS: usize = 10;
/// What the names of new schedulers end with.
const SUFFIX: &str = "regen";

/// Whether a workflow runs in allocations of Slurm: it has schedulers for them, or had some.
pub fn is_on_slurm(store: &dyn Store, workflow: WorkflowId) -> Result<bool, Error> {
    let one = AllocationFilter { workflow: Some(workflow), limit: Some(1), ..AllocationFilter::default() };
    Ok(!store.schedulers(workflow)?.is_empty() || !store.allocations(&one)?.is_empty())
}

/// Whether an allocation of the workflow is open, or an action is about to ask for one.
pub fn is_served(store: &dyn Store, workflow: WorkflowId) -> Result<bool, Error> {
    let open = AllocationFilter {
        workflow: Some(workflow),
        is_open: Some(true),
        limit: Some(1),
        ..AllocationFilter::default()
    };
    Ok(!store.allocations(&open)?.is_empty() || may_be_asked(store, workflow)?)
}

/// Whether an action is about to ask for allocations: what it waits for has happened.
pub fn may_be_asked(store: &dyn Store, workflow: WorkflowId) -> Result<bool, Error> {
    Ok(store.actions(workflow)?.iter().any(is_due))
}

fn is_due(row: &ActionRow) -> bool {
    asking(row).is_some_and(|action| !action.is_executed) && row.trigger_count >= row.required_triggers()
}

/// Whether jobs that are ready wait for nodes that nobody asks for: their allocations were cancelled, preempted or lost.
pub fn is_wanting(
    store: &dyn Store,
    row: &WorkflowRow,
    profile: &Profile,
    options: &Options,
) -> Result<bool, Unscheduled> {
    if row.counts.get(JobStatus::Ready) == 0 || !depends_on_allocations(store, row)? {
        return Ok(false);
    }
    let wanted = Wanted { options, include: &[], submit: true, by: &row.user };
    let gathered = Gathered::read(store, row, &[])?;
    let plan = gathered.plan(profile, &wanted)?;
    Ok(!gathered.unplanned(&plan, &HashMap::new(), Timestamp(0)).is_empty())
}

/// Whether a workflow is under way and nobody but allocations of Slurm works for it: what is ready waits for those.
pub fn depends_on_allocations(store: &dyn Store, row: &WorkflowRow) -> Result<bool, Error> {
    let is_under_way = row.started_at.is_some() && row.ended_at.is_none() && !row.is_canceled;
    if !is_under_way || (!is_elsewhere(store) && is_run_by_somebody(store, row)) {
        return Ok(false);
    }
    let takes_part = |worker: &NewWorker| {
        let is_its = worker.workflow.map_or(worker.user == row.user, |workflow| workflow == row.id);
        is_its && worker.allocation.is_none() && worker.kind != WorkerKind::Claims
    };
    let stays = |there: &WorkerRow| !there.is_draining && takes_part(&there.worker);
    Ok(!store.active_workers(None)?.iter().any(stays))
}

/// What the books have about a workflow, as far as its allocations depend on it.
#[derive(Clone, Debug)]
pub struct Gathered {
    workflow: WorkflowId,
    seen: String,
    jobs: Vec<Left>,
    actions: Vec<Asking>,
    /// Those of them that are about to ask.
    due: BTreeSet<i64>,
    schedulers: Vec<SlurmScheduler>,
    pub allocations: Vec<Allocation>,
    progress: u64,
    slurm_defaults: BTreeMap<String, Value>,
    /// Of an allocation, for its end.
    reserve: Duration,
}

impl Gathered {
    pub fn read(store: &dyn Store, row: &WorkflowRow, include: &[JobId]) -> Result<Self, Error> {
        // First of all: what changes from here on makes the plan an old one.
        let seen = store.schedule_seen(row.id)?;
        let of_workflow = AllocationFilter { workflow: Some(row.id), ..AllocationFilter::default() };
        let schedulers = store.schedulers(row.id)?;
        let (jobs, progress) = left(store, row, &schedulers, include)?;
        let actions = store.actions(row.id)?;
        Ok(Self {
            workflow: row.id,
            seen,
            jobs,
            progress,
            due: actions.iter().filter(|action| is_due(action)).map(|action| action.id).collect(),
            actions: actions.iter().filter_map(asking).collect(),
            schedulers: schedulers.into_iter().map(|row| row.scheduler).collect(),
            allocations: store.allocations(&of_workflow)?,
            slurm_defaults: row.settings.slurm_defaults.clone(),
            reserve: reserve(&row.settings),
        })
    }

    /// What would be done.
    pub fn plan(&self, profile: &Profile, wanted: &Wanted<'_>) -> Result<Schedule, NoSchedule> {
        let books = Books {
            workflow: self.workflow,
            seen: &self.seen,
            jobs: &self.jobs,
            actions: &self.actions,
            schedulers: &self.schedulers,
            allocations: &self.allocations,
            slurm_defaults: &self.slurm_defaults,
        };
        let Wanted { options, include, submit, by } = *wanted;
        let options = Options { reserve: self.reserve, ..options.clone() };
        regenerate(&books, profile, &Wish { options: &options, include, submit, suffix: SUFFIX, by })
    }

    /// As if jobs that are to go back were ready and asked for this.
    pub fn pretend(&mut self, then: &dyn Fn(JobId) -> Option<Resources>) {
        for job in &mut self.jobs {
            if let Some(resources) = then(job.id) {
                (job.resources, job.requirements) = (resources, Some(format!("job {}", job.id)));
                (job.status, job.level) = (JobStatus::Ready, 0);
            }
        }
    }

    /// Jobs that wait to run.
    pub fn pending(&self) -> usize {
        self.jobs.len()
    }

    /// Ready jobs that nobody asks nodes for, if this is the plan for all that are left. Since when they are ready is not in the
    /// books: since `now`, unless it is known.
    pub fn unplanned(
        &self,
        plan: &Schedule,
        known: &HashMap<JobId, Timestamp>,
        now: Timestamp,
    ) -> Vec<Unplanned> {
        // A scheduler that was made and never used has its jobs already.
        let used: BTreeSet<&str> =
            plan.allocations.iter().map(|new| new.request.scheduler.as_str()).collect();
        let assigned: BTreeSet<JobId> = plan.assign.iter().map(|(job, _)| *job).collect();
        let is_unserved = |job: &&Left| {
            assigned.contains(&job.id) || job.scheduler.as_deref().is_some_and(|name| used.contains(name))
        };
        // What is about to ask for them is not anticipated.
        let is_asked_for = |job: &Left| {
            self.actions.iter().filter(|action| self.due.contains(&action.id)).any(|action| {
                action.scheduler.is_none() || job.scheduler.is_none() || action.scheduler == job.scheduler
            })
        };
        let jobs = self.jobs.iter().filter(|job| job.status == JobStatus::Ready);
        let jobs = jobs.filter(is_unserved).filter(|job| !is_asked_for(job));
        jobs.map(|job| Unplanned { id: job.id, ready_since: known.get(&job.id).copied().unwrap_or(now) })
            .collect()
    }

    /// How its allocations stand, for whoever thinks of asking for more. `progress` is what it was when he last asked.
    pub fn open(&self, progress: Option<u64>) -> Open {
        let is_open = |one: &&Allocation| !one.state.is_over() && one.unwanted.is_none();
        match progress {
            _ if self.allocations.iter().any(|one| is_open(&one)) => Open::Some,
            // Allocations came and went, and no job was begun in them: neither will be in the next ones.
            Some(before) if before == self.progress => Open::NoneBegan,
            _ => Open::NoneLeft,
        }
    }

    /// Another number whenever a job has ended or been lost.
    pub const fn progress(&self) -> u64 {
        self.progress
    }
}

/// What somebody wants of new allocations.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub options: &'a Options,
    /// These jobs as well, whatever their state.
    pub include: &'a [JobId],
    /// Those for jobs that are ready are asked for at once.
    pub submit: bool,
    pub by: &'a str,
}

/// Why nothing was put into the books.
#[derive(Debug, thiserror::Error)]
pub enum Unscheduled {
    #[error(transparent)]
    Books(#[from] Error),
    #[error(transparent)]
    Plan(#[from] NoSchedule),
}

/// Plans for all that is left and puts it into the books. If somebody else was quicker it is planned anew, from what he did.
pub fn reschedule(
    store: &dyn Store,
    row: &WorkflowRow,
    profile: &Profile,
    wanted: &Wanted<'_>,
    now: impl Fn() -> Timestamp,
) -> Result<(Gathered, Schedule, Scheduled), Unscheduled> {
    let mut attempt = 1;
    loop {
        let gathered = Gathered::read(store, row, wanted.include)?;
        let schedule = gathered.plan(profile, wanted)?;
        if schedule.is_empty() {
            return Ok((gathered, schedule, Scheduled::default()));
        }
        match store.apply_schedule(row.id, &schedule, now()) {
            Err(Error::Unexpected { .. }) if attempt < ATTEMPTS => attempt += 1,
            done => return Ok((gathered, schedule, done?)),
        }
    }
}

/// What a plan asks for of one scheduler, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    pub scheduler: String,
    pub partition: Option<String>,
    pub account: String,
    /// That go to it by this plan.
    pub jobs: usize,
    pub nodes: u32,
    pub walltime: String,
    pub mem: Option<String>,
    pub gres: Option<String>,
    /// It was there before.
    pub is_known: bool,
    /// They are asked for when its first jobs are ready.
    pub is_deferred: bool,
    pub allocations: u32,
    /// So many of them are asked for at once.
    pub submitted: usize,
}

/// By scheduler, in the order of the plan.
pub fn shares(gathered: &Gathered, schedule: &Schedule) -> Vec<Share> {
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
        Share {
            scheduler: scheduler.name.clone(),
            partition: scheduler.partition.clone(),
            account: scheduler.account.clone(),
            jobs: schedule.assign.iter().filter(|(_, name)| is_its(name)).count(),
            nodes: scheduler.nodes,
            walltime: scheduler.walltime().map_or_else(|| scheduler.walltime.clone(), write_walltime),
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

/// What jobs could ever get on this cluster: the nodes of its partitions, or of the one that is meant, and how long jobs of a
/// workflow with these settings may have them.
pub fn room(profile: &Profile, partition: Option<&str>, settings: &Settings) -> Room {
    let account = settings.slurm_defaults.get("account").and_then(|account| account.as_str());
    let is_meant = |one: &&Partition| {
        let is_open = one.is_up && account.is_none_or(|account| one.admits_account(account));
        partition.map_or(is_open, |name| one.name == name)
    };
    let reserve = reserve(settings);
    let of_partition = |one: &Partition| {
        let nodes = one.max_nodes.unwrap_or(u32::MAX).min(one.all_nodes().unwrap_or(u32::MAX)).max(1);
        // A worker begins nothing that would reach into the end of its allocation.
        let stays = one.max_walltime().map(|most| most.saturating_sub(reserve));
        let taker = |shape: Shape| Taker {
            has: Capacity {
                cpus: shape.cpus_per_node,
                memory: shape.memory(),
                gpus: shape.gpus_per_node,
                nodes,
                max_jobs: None,
            },
            stays,
        };
        one.shapes().map(taker).collect::<Vec<_>>()
    };
    Room { takers: profile.partitions.iter().filter(is_meant).flat_map(of_partition).collect() }
}

/// What still has to run, and who was named; and how far all of it is.
fn left(
    store: &dyn Store,
    row: &WorkflowRow,
    schedulers: &[SchedulerRow],
    include: &[JobId],
) -> Result<(Vec<Left>, u64), Error> {
    let table = store.load_jobs(row.id)?;
    let is_over: Vec<bool> = table.status.iter().map(|status| status.is_settled()).collect();
    let levels = levels_left(&table.edges, &is_over);
    let names: HashMap<i64, &str> =
        schedulers.iter().map(|row| (row.id, row.scheduler.name.as_str())).collect();
    let mut found = Vec::new();
    let mut add = |filter: &JobFilter| {
        let mut filter = JobFilter { limit: Some(PAGE), ..filter.clone() };
        loop {
            let page = store.jobs(row.id, &filter)?;
            let Some(last) = page.last() else { return Ok::<_, Error>(()) };
            filter.after = Some(last.id);
            for job in page {
                // One that came after the table was read comes with the next plan.
                let Ok(number) = table.ids.binary_search(&job.id) else { continue };
                let place = table.place_of(number);
                found.push(Left {
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

/// An action, if it asks for allocations.
fn asking(row: &ActionRow) -> Option<Asking> {
    (row.action.action_type == ActionType::ScheduleNodes).then(|| Asking {
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

    /// Who asked when so many jobs had ended or been lost, and finds that none is open, asks again at once only if there are more
    /// by now.
    #[test]
    fn allocations_that_came_to_nothing_are_told_from_those_that_were_used() {
        for (allocations, asked_at, progress, expected) in [
            (vec![], None, 0, Open::NoneLeft),
            (vec![allocation(A::Ended, None)], None, 3, Open::NoneLeft),
            (vec![allocation(A::Ended, None)], Some(3), 3, Open::NoneBegan),
            (vec![allocation(A::Refused, None)], Some(3), 3, Open::NoneBegan),
            (vec![allocation(A::Ended, None)], Some(3), 4, Open::NoneLeft),
            (vec![allocation(A::Ended, None), allocation(A::Pending, None)], Some(3), 3, Open::Some),
            (vec![allocation(A::Running, None)], None, 0, Open::Some),
            (vec![allocation(A::Running, Some("it goes"))], Some(3), 3, Open::NoneBegan),
        ] {
            let gathered = Gathered {
                workflow: WorkflowId(1),
                seen: String::new(),
                jobs: Vec::new(),
                actions: Vec::new(),
                due: BTreeSet::new(),
                schedulers: Vec::new(),
                allocations,
                progress,
                slurm_defaults: BTreeMap::new(),
                reserve: Duration::ZERO,
            };
            let found = gathered.open(asked_at);
            assert_eq!(found, expected, "{:?} {asked_at:?} {progress}", gathered.allocations);
        }
    }
}
