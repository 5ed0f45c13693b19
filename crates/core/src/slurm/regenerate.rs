//! A schedule for what is left of a workflow, where allocations died, or jobs came that nobody asked nodes for.
//!
//! What is asked for already counts: allocations that are open, and recovery actions that wait for their jobs. So planning
//! twice asks for nothing the second time.

use super::book::{AddAction, NewAllocation, Schedule};
use super::fit::{Ask, smallest_node};
use super::generate::{Proposal, propose};
use super::groups::{Demand, Fault, Options, WalltimeStrategy, fits, slots};
use super::offer::Offer;
use super::profile::{Partition, Profile};
use super::request::{Crew, request};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windlass_types::settings::SlurmScheduler;
use windlass_types::slurm::Allocation;
use windlass_types::{JobId, JobStatus, Resources, WorkflowId};

/// A job of the workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    pub id: JobId,
    pub name: String,
    pub status: JobStatus,
    /// The name of what it asks for; `None`: it says nothing.
    pub requirements: Option<String>,
    pub resources: Resources,
    /// How many unfinished jobs have to end one after the other before it can start.
    pub level: u32,
    pub labels: Vec<String>,
    pub scheduler: Option<String>,
}

/// An action that asks for allocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asking {
    pub id: i64,
    pub scheduler: Option<String>,
    pub allocations: u32,
    pub is_executed: bool,
    pub is_recovery: bool,
}

/// What the books have about a workflow.
#[derive(Clone, Copy, Debug)]
pub struct Books<'a> {
    pub workflow: WorkflowId,
    /// As [`Schedule::seen`].
    pub seen: &'a str,
    pub jobs: &'a [Left],
    pub actions: &'a [Asking],
    pub schedulers: &'a [SlurmScheduler],
    /// All that there ever were.
    pub allocations: &'a [Allocation],
    pub slurm_defaults: &'a BTreeMap<String, Value>,
}

/// What somebody wants of it.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// Where nothing is said about account, partition and walltime, those of the workflow's schedulers hold.
    pub options: &'a Options,
    /// These jobs as well, whatever their state.
    pub include: &'a [JobId],
    /// Allocations for jobs that are ready are asked for at once.
    pub submit: bool,
    /// What makes the names of new schedulers new.
    pub suffix: &'a str,
    pub by: &'a str,
}

/// Why there is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSchedule {
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Unfit(Vec<Fault>),
    #[error("{0}")]
    Request(String),
}

/// The schedule; it is empty if everything that is left is served. A schedule that marks actions and no more still changes
/// something: they would ask for allocations a second time.
pub fn regenerate(books: &Books<'_>, profile: &Profile, wish: &Wish<'_>) -> Result<Schedule, NoSchedule> {
    let options = with_account(wish.options, books.schedulers);
    let include: BTreeSet<JobId> = wish.include.iter().copied().collect();
    let wanted: Vec<&Left> = books.jobs.iter().filter(|job| is_wanted(job, &include)).collect();
    let served = served(books, profile, &wanted, wish);
    let unserved: Vec<&Left> = wanted.into_iter().filter(|job| !served.contains(&job.id)).collect();
    let mut schedule = Schedule { seen: books.seen.to_owned(), ..Schedule::default() };
    let armed = books.actions.iter().filter(|action| !action.is_executed && !action.is_recovery);
    schedule.mark_executed = armed.map(|action| action.id).collect();
    reuse(books, profile, &unserved, wish, &mut schedule)?;
    let reused: BTreeSet<&str> =
        schedule.allocations.iter().map(|one| one.request.scheduler.as_str()).collect();
    let reused = books.schedulers.iter().filter(|one| reused.contains(one.name.as_str()));
    let reused: BTreeMap<&str, &SlurmScheduler> = reused.map(|one| (one.name.as_str(), one)).collect();
    let names_one = |job: &&Left| {
        let its = job.scheduler.as_deref().and_then(|name| reused.get(name));
        its.is_some_and(|scheduler| holds(profile, scheduler, job, wish.options.reserve))
    };
    let unserved: Vec<&Left> = unserved.into_iter().filter(|job| !names_one(job)).collect();
    let mut demands = demands(&unserved);
    let taken = books.schedulers.iter().map(|scheduler| scheduler.name.clone()).collect();
    // What was good for them before may not hold what they ask for now.
    let there = inherited(&options, books.schedulers);
    let attempt = |demands: &[Demand]| {
        let with = |options: &Options| propose(profile, demands, options, Some(wish.suffix), &taken);
        with(&lasting(&there, books.schedulers)).or_else(|_| with(&there)).or_else(|_| with(&options))
    };
    let proposals = match attempt(&demands) {
        Ok(proposals) => proposals,
        Err(faults) => {
            // One that fits nowhere keeps nobody else waiting.
            demands.retain(|demand| fits(profile, demand, &options));
            if demands.is_empty() && schedule.allocations.is_empty() {
                return Err(NoSchedule::Unfit(faults));
            }
            schedule.unfit = faults.iter().map(ToString::to_string).collect();
            attempt(&demands).map_err(NoSchedule::Unfit)?
        }
    };
    for proposal in proposals {
        add(books, wish, &demands, proposal, &mut schedule)?;
    }
    Ok(schedule)
}

fn is_wanted(job: &Left, include: &BTreeSet<JobId>) -> bool {
    let is_left = matches!(job.status, JobStatus::Uninitialized | JobStatus::Ready | JobStatus::Blocked);
    job.labels.is_empty() && (is_left || include.contains(&job.id))
}

/// Who paid pays, where nobody says otherwise.
fn with_account(options: &Options, schedulers: &[SlurmScheduler]) -> Options {
    let mut options = options.clone();
    if options.account.is_empty() {
        let account = schedulers.iter().map(|scheduler| &scheduler.account).find(|it| !it.is_empty());
        options.account = account.cloned().unwrap_or_default();
    }
    options
}

/// They go where they went, if all schedulers agree about it and nobody says otherwise.
fn inherited(options: &Options, schedulers: &[SlurmScheduler]) -> Options {
    let mut options = options.clone();
    if options.partition.is_none()
        && let Some(first) = schedulers.first()
        && schedulers.iter().all(|scheduler| scheduler.partition == first.partition)
    {
        options.partition.clone_from(&first.partition);
    }
    options
}

/// And last as long as they did, on the same terms. Whoever says how walltimes are found does not want the old ones.
fn lasting(options: &Options, schedulers: &[SlurmScheduler]) -> Options {
    let mut options = options.clone();
    let is_said = options.exact_walltime.is_some()
        || options.walltime != WalltimeStrategy::default()
        || options.multiplier.total_cmp(&Options::default().multiplier).is_ne();
    if !is_said
        && let Some(first) = schedulers.first().and_then(SlurmScheduler::walltime)
        && schedulers.iter().all(|scheduler| scheduler.walltime() == Some(first))
    {
        options.exact_walltime = Some(first);
    }
    options
}

/// Jobs for which nodes are asked already. Of those that name a scheduler as many as its open allocations, and those that
/// its armed recovery action will ask for, can hold; those that are furthest from running go without first. Those that name
/// none are taken by whoever has room.
fn served(books: &Books<'_>, profile: &Profile, wanted: &[&Left], wish: &Wish<'_>) -> BTreeSet<JobId> {
    let mut served = BTreeSet::new();
    for scheduler in books.schedulers {
        let mut jobs: Vec<&Left> = wanted
            .iter()
            .copied()
            .filter(|job| job.scheduler.as_deref() == Some(scheduler.name.as_str()))
            .filter(|job| holds(profile, scheduler, job, wish.options.reserve))
            .collect();
        let open = books.allocations.iter().filter(|one| is_of(one, scheduler) && !one.state.is_over());
        let open = open.filter(|one| one.unwanted.is_none()).count() as u64;
        let armed = books.actions.iter().filter(|action| {
            action.is_recovery && !action.is_executed && action.scheduler.as_ref() == Some(&scheduler.name)
        });
        let armed: u64 = armed.map(|action| u64::from(action.allocations)).sum();
        let supply = open + armed;
        if supply == 0 && (wish.submit || !is_fresh(books, scheduler)) {
            continue;
        }
        let room = if supply == 0 {
            u64::MAX
        } else {
            supply.saturating_mul(capacity(scheduler, &jobs, wish.options.reserve))
        };
        jobs.sort_by_key(|job| (job.level, job.id));
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        served.extend(jobs.iter().take(room).map(|job| job.id));
        let mut others: Vec<&Left> = wanted
            .iter()
            .copied()
            .filter(|job| job.scheduler.is_none() && !served.contains(&job.id))
            .filter(|job| holds(profile, scheduler, job, wish.options.reserve))
            .collect();
        let room = open
            .saturating_mul(capacity(scheduler, &others, wish.options.reserve))
            .saturating_sub(jobs.len() as u64);
        others.sort_by_key(|job| (job.level, job.id));
        served.extend(others.iter().take(usize::try_from(room).unwrap_or(usize::MAX)).map(|job| job.id));
    }
    served
}

fn is_of(allocation: &Allocation, scheduler: &SlurmScheduler) -> bool {
    allocation.request.scheduler == scheduler.name
}

/// Nobody has asked for an allocation of it, and nothing will: it was made for somebody who does so by hand.
fn is_fresh(books: &Books<'_>, scheduler: &SlurmScheduler) -> bool {
    let asks = |action: &&Asking| action.scheduler.as_ref() == Some(&scheduler.name);
    !books.allocations.iter().any(|one| is_of(one, scheduler)) && books.actions.iter().find(asks).is_none()
}

/// Whether the job fits into an allocation of the scheduler at all: what it asks for may be more than it was. What the scheduler
/// does not say is limited by the nodes that Slurm would give it.
fn holds(profile: &Profile, scheduler: &SlurmScheduler, job: &Left, reserve: Duration) -> bool {
    let asks = &job.resources;
    let has_node = |partition: &Partition| smallest_node(&Ask::new(asks, ""), partition).is_some();
    let may_be_given = |partition: &&Partition| match &scheduler.partition {
        Some(name) => partition.name == *name,
        None => partition.is_default || !partition.requires_explicit_request,
    };
    let mut given = profile.partitions.iter().filter(may_be_given).peekable();
    // Of a partition that the profile does not know, nothing is known.
    let is_there = given.peek().is_none() || given.any(has_node);
    // A worker begins nothing that would reach into the end of its allocation.
    let runtime = asks.runtime.map(|runtime| runtime.saturating_add(reserve));
    is_there && Offer::from(scheduler).holds(&Resources { runtime, ..*asks })
}

/// How many of these jobs one allocation of the scheduler can do. What it does not say is no limit.
fn capacity(scheduler: &SlurmScheduler, jobs: &[&Left], reserve: Duration) -> u64 {
    let most =
        |amount: fn(&Resources) -> u64| jobs.iter().map(|job| amount(&job.resources)).max().unwrap_or(0);
    let runtime =
        jobs.iter().filter_map(|job| job.resources.runtime).max().unwrap_or(Resources::UNSAID_RUNTIME);
    let holds =
        |has: Option<u64>, asks: u64| has.map_or(u64::MAX, |has| has.checked_div(asks).unwrap_or(u64::MAX));
    let offer = Offer::from(scheduler);
    let per_node = holds(offer.cpus.map(u64::from), most(|asks| asks.cpus.into()))
        .min(holds(offer.memory.map(|bytes| bytes.0), most(|asks| asks.memory.0)))
        .min(holds(offer.gpus.map(u64::from), most(|asks| asks.gpus.into())))
        .max(1);
    let slots = u64::from(slots(offer.lasts.unwrap_or(Duration::ZERO), runtime, reserve));
    let units = u64::from(scheduler.nodes) / most(|asks| asks.nodes.into()).max(1);
    per_node.saturating_mul(slots).saturating_mul(units.max(1))
}

/// Schedulers that were made before and never used are used now, instead of new ones beside them.
fn reuse(
    books: &Books<'_>,
    profile: &Profile,
    unserved: &[&Left],
    wish: &Wish<'_>,
    schedule: &mut Schedule,
) -> Result<(), NoSchedule> {
    for scheduler in books.schedulers.iter().filter(|one| wish.submit && is_fresh(books, one)) {
        let is_its = |job: &&&Left| {
            job.scheduler.as_ref() == Some(&scheduler.name)
                && holds(profile, scheduler, job, wish.options.reserve)
        };
        let jobs: Vec<&Left> = unserved.iter().filter(is_its).copied().collect();
        if jobs.is_empty() || jobs.iter().all(|job| job.level > 0) {
            continue;
        }
        let needed = (jobs.len() as u64).div_ceil(capacity(scheduler, &jobs, wish.options.reserve)).max(1);
        let nodes = jobs.iter().map(|job| job.resources.nodes).max().unwrap_or(1);
        let each = scheduler.nodes > 1 && nodes <= 1;
        push_allocations(books, wish, scheduler, u32::try_from(needed).unwrap_or(u32::MAX), each, schedule)?;
    }
    Ok(())
}

/// Jobs that ask for the same and wait for the same number of others.
fn demands(jobs: &[&Left]) -> Vec<Demand> {
    let mut found: Vec<Demand> = Vec::new();
    let mut places: BTreeMap<(Option<&str>, u32), Vec<usize>> = BTreeMap::new();
    for job in jobs {
        let same = places.entry((job.requirements.as_deref(), job.level)).or_default();
        let place = same.iter().copied().find(|place| found[*place].resources == job.resources);
        let place = place.unwrap_or_else(|| {
            same.push(found.len());
            found.push(Demand {
                requirements: job.requirements.clone(),
                resources: job.resources,
                level: job.level,
                ..Demand::default()
            });
            found.len() - 1
        });
        found[place].jobs += 1;
        found[place].ids.push(job.id);
        found[place].names.push(job.name.clone());
    }
    found
}

/// What a group adds: its scheduler, whose jobs it is for, and what asks for its allocations.
fn add(
    books: &Books<'_>,
    wish: &Wish<'_>,
    demands: &[Demand],
    proposal: Proposal,
    schedule: &mut Schedule,
) -> Result<(), NoSchedule> {
    let Proposal { scheduler, action, gate, group, .. } = proposal;
    let ids = |numbers: &[usize]| {
        numbers.iter().flat_map(|number| demands[*number].ids.clone()).collect::<Vec<_>>()
    };
    schedule.assign.extend(ids(&group.demands).into_iter().map(|id| (id, scheduler.name.clone())));
    if group.is_deferred {
        schedule.actions.push(AddAction { action, jobs: ids(&gate), is_recovery: true });
    } else if wish.submit {
        let each = action.start_one_worker_per_node;
        push_allocations(books, wish, &scheduler, group.allocations, each, schedule)?;
    }
    schedule.schedulers.push(scheduler);
    Ok(())
}

fn push_allocations(
    books: &Books<'_>,
    wish: &Wish<'_>,
    scheduler: &SlurmScheduler,
    count: u32,
    one_worker_per_node: bool,
    schedule: &mut Schedule,
) -> Result<(), NoSchedule> {
    let crew = Crew { one_worker_per_node, max_parallel_jobs: None };
    let request = request(scheduler, books.slurm_defaults, crew).map_err(NoSchedule::Request)?;
    let new = NewAllocation {
        workflow: books.workflow,
        scheduler: None,
        tag: String::new(),
        request,
        action: None,
        by: wish.by.to_owned(),
    };
    schedule.allocations.extend(std::iter::repeat_n(new, count as usize));
    Ok(())
}

#[cfg(test)]
mod tests;
