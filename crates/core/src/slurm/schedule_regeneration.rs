//! A schedule for the remaining jobs of a workflow, if allocations were lost, or jobs were added without
//! allocations.
//!
//! Pending requests count: open allocations, and recovery actions that wait for their jobs. So a second
//! planning requests nothing.

use super::allocation_capacity::AllocationCapacity;
use super::allocation_groups::{
    AllocationDemand, AllocationOptions, UnfitDemand, WalltimeStrategy, fits_any_partition, sequential_slots,
};
use super::allocation_request::{AllocationWorkerOptions, build_request};
use super::allocation_rows::{AllocationSchedule, NewAllocation, NewAllocationAction};
use super::cluster_profile::{ClusterProfile, Partition};
use super::partition_fit::{PartitionRequest, smallest_node};
use super::schedule_generation::{SchedulerProposal, propose_schedulers};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windlass_types::settings::SlurmScheduler;
use windlass_types::slurm::Allocation;
use windlass_types::{JobId, JobStatus, Resources, WorkflowId};

/// A job of the workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemainingJob {
    pub id: JobId,
    pub name: String,
    pub status: JobStatus,
    /// Name of its resource requirements; `None`: none.
    pub requirements: Option<String>,
    pub resources: Resources,
    /// Number of unfinished jobs that must end one after another before it can start.
    pub level: u32,
    pub labels: Vec<String>,
    pub scheduler: Option<String>,
}

/// An action that requests allocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationAction {
    pub id: i64,
    pub scheduler: Option<String>,
    pub allocations: u32,
    pub is_executed: bool,
    pub is_recovery: bool,
}

/// State of a workflow in the database.
#[derive(Clone, Copy, Debug)]
pub struct RegenerateInput<'a> {
    pub workflow: WorkflowId,
    /// As [`AllocationSchedule::seen`].
    pub seen: &'a str,
    pub jobs: &'a [RemainingJob],
    pub actions: &'a [AllocationAction],
    pub schedulers: &'a [SlurmScheduler],
    /// All allocations, including ended ones.
    pub allocations: &'a [Allocation],
    pub slurm_defaults: &'a BTreeMap<String, Value>,
}

/// Options of the user.
#[derive(Clone, Copy, Debug)]
pub struct RegenerateOptions<'a> {
    /// Without an account, partition or walltime, those of the workflow's schedulers apply.
    pub options: &'a AllocationOptions,
    /// These jobs too, in any state.
    pub include: &'a [JobId],
    /// Whether allocations for ready jobs are requested immediately.
    pub submit: bool,
    /// Suffix of the names of new schedulers.
    pub suffix: &'a str,
    pub by: &'a str,
}

/// Why there is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegenerateError {
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Unfit(Vec<UnfitDemand>),
    #[error("{0}")]
    Request(String),
}

/// Returns the schedule; empty if all remaining jobs are served. A schedule that only marks actions is not
/// empty: they would request allocations a second time.
pub fn regenerate_schedule(
    store: &RegenerateInput<'_>,
    profile: &ClusterProfile,
    regenerate_options: &RegenerateOptions<'_>,
) -> Result<AllocationSchedule, RegenerateError> {
    let options = with_account(regenerate_options.options, store.schedulers);
    let include: BTreeSet<JobId> = regenerate_options.include.iter().copied().collect();
    let wanted: Vec<&RemainingJob> = store.jobs.iter().filter(|job| is_included(job, &include)).collect();
    let served = find_served_jobs(store, profile, &wanted, regenerate_options);
    let unserved: Vec<&RemainingJob> = wanted.into_iter().filter(|job| !served.contains(&job.id)).collect();
    let mut schedule = AllocationSchedule { seen: store.seen.to_owned(), ..AllocationSchedule::default() };
    let armed = store.actions.iter().filter(|action| !action.is_executed && !action.is_recovery);
    schedule.mark_executed = armed.map(|action| action.id).collect();
    reuse_schedulers(store, profile, &unserved, regenerate_options, &mut schedule)?;
    let reused: BTreeSet<&str> =
        schedule.allocations.iter().map(|one| one.request.scheduler.as_str()).collect();
    let reused = store.schedulers.iter().filter(|one| reused.contains(one.name.as_str()));
    let reused: BTreeMap<&str, &SlurmScheduler> = reused.map(|one| (one.name.as_str(), one)).collect();
    let names_one = |job: &&RemainingJob| {
        let its = job.scheduler.as_deref().and_then(|name| reused.get(name));
        its.is_some_and(|scheduler| {
            scheduler_fits_job(profile, scheduler, job, regenerate_options.options.reserve)
        })
    };
    let unserved: Vec<&RemainingJob> = unserved.into_iter().filter(|job| !names_one(job)).collect();
    let mut demands = group_into_demands(&unserved);
    let taken = store.schedulers.iter().map(|scheduler| scheduler.name.clone()).collect();
    // The earlier settings may not fit the present requests.
    let there = with_inherited_partition(&options, store.schedulers);
    let attempt = |demands: &[AllocationDemand]| {
        let with = |options: &AllocationOptions| {
            propose_schedulers(profile, demands, options, Some(regenerate_options.suffix), &taken)
        };
        with(&with_inherited_walltime(&there, store.schedulers))
            .or_else(|_| with(&there))
            .or_else(|_| with(&options))
    };
    let proposals = match attempt(&demands) {
        Ok(proposals) => proposals,
        Err(faults) => {
            // A job that fits nowhere does not block others.
            demands.retain(|demand| fits_any_partition(profile, demand, &options));
            if demands.is_empty() && schedule.allocations.is_empty() {
                return Err(RegenerateError::Unfit(faults));
            }
            schedule.unfit = faults.iter().map(ToString::to_string).collect();
            attempt(&demands).map_err(RegenerateError::Unfit)?
        }
    };
    for proposal in proposals {
        add_proposal(store, regenerate_options, &demands, proposal, &mut schedule)?;
    }
    Ok(schedule)
}

fn is_included(job: &RemainingJob, include: &BTreeSet<JobId>) -> bool {
    let is_left = matches!(job.status, JobStatus::Uninitialized | JobStatus::Ready | JobStatus::Blocked);
    job.labels.is_empty() && (is_left || include.contains(&job.id))
}

/// Keeps the account of earlier schedulers unless another is given.
fn with_account(options: &AllocationOptions, schedulers: &[SlurmScheduler]) -> AllocationOptions {
    let mut options = options.clone();
    if options.account.is_empty() {
        let account = schedulers.iter().map(|scheduler| &scheduler.account).find(|it| !it.is_empty());
        options.account = account.cloned().unwrap_or_default();
    }
    options
}

/// Keeps the partition if all schedulers agree and no other is given.
fn with_inherited_partition(options: &AllocationOptions, schedulers: &[SlurmScheduler]) -> AllocationOptions {
    let mut options = options.clone();
    if options.partition.is_none()
        && let Some(first) = schedulers.first()
        && schedulers.iter().all(|scheduler| scheduler.partition == first.partition)
    {
        options.partition.clone_from(&first.partition);
    }
    options
}

/// Keeps the walltime too, on the same conditions. A user who sets a walltime strategy does not want the old
/// walltime.
fn with_inherited_walltime(options: &AllocationOptions, schedulers: &[SlurmScheduler]) -> AllocationOptions {
    let mut options = options.clone();
    let is_said = options.exact_walltime.is_some()
        || options.walltime != WalltimeStrategy::default()
        || options.multiplier.total_cmp(&AllocationOptions::default().multiplier).is_ne();
    if !is_said
        && let Some(first) = schedulers.first().and_then(SlurmScheduler::walltime)
        && schedulers.iter().all(|scheduler| scheduler.walltime() == Some(first))
    {
        options.exact_walltime = Some(first);
    }
    options
}

/// Returns jobs that have allocations already. Of jobs that name a scheduler, as many as fit into its open
/// allocations and those that its armed recovery action will request; jobs furthest from running are left out
/// first. Jobs that name none may use any.
fn find_served_jobs(
    store: &RegenerateInput<'_>,
    profile: &ClusterProfile,
    wanted: &[&RemainingJob],
    regenerate_options: &RegenerateOptions<'_>,
) -> BTreeSet<JobId> {
    let mut served = BTreeSet::new();
    for scheduler in store.schedulers {
        let mut jobs: Vec<&RemainingJob> = wanted
            .iter()
            .copied()
            .filter(|job| job.scheduler.as_deref() == Some(scheduler.name.as_str()))
            .filter(|job| scheduler_fits_job(profile, scheduler, job, regenerate_options.options.reserve))
            .collect();
        let open = store
            .allocations
            .iter()
            .filter(|one| belongs_to_scheduler(one, scheduler) && !one.state.is_over());
        let open = open.filter(|one| one.unwanted.is_none()).count() as u64;
        let armed = store.actions.iter().filter(|action| {
            action.is_recovery && !action.is_executed && action.scheduler.as_ref() == Some(&scheduler.name)
        });
        let armed: u64 = armed.map(|action| u64::from(action.allocations)).sum();
        let supply = open + armed;
        if supply == 0 && (regenerate_options.submit || !is_unused_scheduler(store, scheduler)) {
            continue;
        }
        let room = if supply == 0 {
            u64::MAX
        } else {
            supply.saturating_mul(jobs_per_allocation(scheduler, &jobs, regenerate_options.options.reserve))
        };
        jobs.sort_by_key(|job| (job.level, job.id));
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        served.extend(jobs.iter().take(room).map(|job| job.id));
        let mut others: Vec<&RemainingJob> = wanted
            .iter()
            .copied()
            .filter(|job| job.scheduler.is_none() && !served.contains(&job.id))
            .filter(|job| scheduler_fits_job(profile, scheduler, job, regenerate_options.options.reserve))
            .collect();
        let room = open
            .saturating_mul(jobs_per_allocation(scheduler, &others, regenerate_options.options.reserve))
            .saturating_sub(jobs.len() as u64);
        others.sort_by_key(|job| (job.level, job.id));
        served.extend(others.iter().take(usize::try_from(room).unwrap_or(usize::MAX)).map(|job| job.id));
    }
    served
}

fn belongs_to_scheduler(allocation: &Allocation, scheduler: &SlurmScheduler) -> bool {
    allocation.request.scheduler == scheduler.name
}

/// No allocation of it exists, and no action will request one: it was made for manual submission.
fn is_unused_scheduler(store: &RegenerateInput<'_>, scheduler: &SlurmScheduler) -> bool {
    let asks = |action: &&AllocationAction| action.scheduler.as_ref() == Some(&scheduler.name);
    !store.allocations.iter().any(|one| belongs_to_scheduler(one, scheduler))
        && store.actions.iter().find(asks).is_none()
}

/// Whether the job fits into an allocation of the scheduler: its request may have grown. Resources that the
/// scheduler does not set are limited by the nodes that Slurm would assign.
fn scheduler_fits_job(
    profile: &ClusterProfile,
    scheduler: &SlurmScheduler,
    job: &RemainingJob,
    reserve: Duration,
) -> bool {
    let asks = &job.resources;
    let has_node =
        |partition: &Partition| smallest_node(&PartitionRequest::new(asks, ""), partition).is_some();
    let may_be_given = |partition: &&Partition| match &scheduler.partition {
        Some(name) => partition.name == *name,
        None => partition.is_default || !partition.requires_explicit_request,
    };
    let mut given = profile.partitions.iter().filter(may_be_given).peekable();
    // Nothing is known about a partition that is not in the profile.
    let is_there = given.peek().is_none() || given.any(has_node);
    // A worker starts no job that would exceed the end reserve of its allocation.
    let runtime = asks.runtime.map(|runtime| runtime.saturating_add(reserve));
    is_there && AllocationCapacity::from(scheduler).fits_job(&Resources { runtime, ..*asks })
}

/// Returns how many of these jobs one allocation of the scheduler can run. Unset resources are unlimited.
fn jobs_per_allocation(scheduler: &SlurmScheduler, jobs: &[&RemainingJob], reserve: Duration) -> u64 {
    let most =
        |amount: fn(&Resources) -> u64| jobs.iter().map(|job| amount(&job.resources)).max().unwrap_or(0);
    let runtime =
        jobs.iter().filter_map(|job| job.resources.runtime).max().unwrap_or(Resources::ASSUMED_RUNTIME);
    let holds =
        |has: Option<u64>, asks: u64| has.map_or(u64::MAX, |has| has.checked_div(asks).unwrap_or(u64::MAX));
    let offer = AllocationCapacity::from(scheduler);
    let per_node = holds(offer.cpus.map(u64::from), most(|asks| asks.cpus.into()))
        .min(holds(offer.memory.map(|bytes| bytes.0), most(|asks| asks.memory.0)))
        .min(holds(offer.gpus.map(u64::from), most(|asks| asks.gpus.into())))
        .max(1);
    let slots = u64::from(sequential_slots(offer.walltime.unwrap_or(Duration::ZERO), runtime, reserve));
    let units = u64::from(scheduler.nodes) / most(|asks| asks.nodes.into()).max(1);
    per_node.saturating_mul(slots).saturating_mul(units.max(1))
}

/// Uses schedulers that were made before and never used, instead of new ones.
fn reuse_schedulers(
    store: &RegenerateInput<'_>,
    profile: &ClusterProfile,
    unserved: &[&RemainingJob],
    regenerate_options: &RegenerateOptions<'_>,
    schedule: &mut AllocationSchedule,
) -> Result<(), RegenerateError> {
    for scheduler in
        store.schedulers.iter().filter(|one| regenerate_options.submit && is_unused_scheduler(store, one))
    {
        let is_its = |job: &&&RemainingJob| {
            job.scheduler.as_ref() == Some(&scheduler.name)
                && scheduler_fits_job(profile, scheduler, job, regenerate_options.options.reserve)
        };
        let jobs: Vec<&RemainingJob> = unserved.iter().filter(is_its).copied().collect();
        if jobs.is_empty() || jobs.iter().all(|job| job.level > 0) {
            continue;
        }
        let needed = (jobs.len() as u64)
            .div_ceil(jobs_per_allocation(scheduler, &jobs, regenerate_options.options.reserve))
            .max(1);
        let nodes = jobs.iter().map(|job| job.resources.nodes).max().unwrap_or(1);
        let each = scheduler.nodes > 1 && nodes <= 1;
        push_allocations(
            store,
            regenerate_options,
            scheduler,
            u32::try_from(needed).unwrap_or(u32::MAX),
            each,
            schedule,
        )?;
    }
    Ok(())
}

/// Groups jobs with the same request and the same dependency level.
fn group_into_demands(jobs: &[&RemainingJob]) -> Vec<AllocationDemand> {
    let mut found: Vec<AllocationDemand> = Vec::new();
    let mut places: BTreeMap<(Option<&str>, u32), Vec<usize>> = BTreeMap::new();
    for job in jobs {
        let same = places.entry((job.requirements.as_deref(), job.level)).or_default();
        let place = same.iter().copied().find(|place| found[*place].resources == job.resources);
        let place = place.unwrap_or_else(|| {
            same.push(found.len());
            found.push(AllocationDemand {
                requirements: job.requirements.clone(),
                resources: job.resources,
                level: job.level,
                ..AllocationDemand::default()
            });
            found.len() - 1
        });
        found[place].jobs += 1;
        found[place].ids.push(job.id);
        found[place].names.push(job.name.clone());
    }
    found
}

/// Adds the scheduler of a group, its jobs, and the action or allocations for it.
fn add_proposal(
    store: &RegenerateInput<'_>,
    regenerate_options: &RegenerateOptions<'_>,
    demands: &[AllocationDemand],
    proposal: SchedulerProposal,
    schedule: &mut AllocationSchedule,
) -> Result<(), RegenerateError> {
    let SchedulerProposal { scheduler, action, trigger_demands, group, .. } = proposal;
    let ids = |numbers: &[usize]| {
        numbers.iter().flat_map(|number| demands[*number].ids.clone()).collect::<Vec<_>>()
    };
    schedule.assign.extend(ids(&group.demands).into_iter().map(|id| (id, scheduler.name.clone())));
    if group.is_deferred {
        schedule.actions.push(NewAllocationAction { action, jobs: ids(&trigger_demands), is_recovery: true });
    } else if regenerate_options.submit {
        let each = action.start_one_worker_per_node;
        push_allocations(store, regenerate_options, &scheduler, group.allocations, each, schedule)?;
    }
    schedule.schedulers.push(scheduler);
    Ok(())
}

fn push_allocations(
    store: &RegenerateInput<'_>,
    regenerate_options: &RegenerateOptions<'_>,
    scheduler: &SlurmScheduler,
    count: u32,
    one_worker_per_node: bool,
    schedule: &mut AllocationSchedule,
) -> Result<(), RegenerateError> {
    let worker_group = AllocationWorkerOptions { one_worker_per_node, max_parallel_jobs: None };
    let request =
        build_request(scheduler, store.slurm_defaults, worker_group).map_err(RegenerateError::Request)?;
    let new = NewAllocation {
        workflow: store.workflow,
        scheduler: None,
        tag: String::new(),
        request,
        action: None,
        by: regenerate_options.by.to_owned(),
    };
    schedule.allocations.extend(std::iter::repeat_n(new, count as usize));
    Ok(())
}

#[cfg(test)]
mod tests;
