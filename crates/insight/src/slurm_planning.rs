//! Slurm requests of a spec: the demand of its jobs, a proposed plan, and the resulting allocations.

mod spec_schedule;

pub use spec_schedule::{SpecScheduleError, write_schedule};

use crate::workflow_creation;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windlass_core::slurm::allocation_groups::{
    AllocationDemand, AllocationOptions, UnfitDemand, dependency_levels,
};
use windlass_core::slurm::allocation_request::{AllocationWorkerOptions, build_request};
use windlass_core::slurm::cluster_profile::ClusterProfile;
use windlass_core::slurm::end_reserve::end_reserve;
use windlass_core::slurm::schedule_generation::{
    SchedulerProposal, check_job_fits, check_scheduler, propose_schedulers,
};
use windlass_spec::{ResolvedAction, ResolvedWorkflow};
use windlass_types::Resources;
use windlass_types::settings::{ActionType, SlurmScheduler};
use windlass_types::slurm::AllocationRequest;

/// Requested resources that the cluster can never provide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SlurmPlanError {
    message: String,
    remedy: &'static str,
    cluster: String,
}

impl SlurmPlanError {
    pub fn hint(&self) -> String {
        format!("{}; `windlass slurm hpc partitions` shows what {} has", self.remedy, self.cluster)
    }
}

/// Demand of the jobs of one entry, or of those with the same requirements and the same depth of dependencies.
#[derive(Clone, Debug)]
pub struct EntryDemand {
    pub demand: AllocationDemand,
    pub entry: usize,
    /// Indices of the jobs.
    pub jobs: Vec<u32>,
}

/// In the order of the file.
pub fn entry_demands(workflow: &ResolvedWorkflow<'_>) -> Vec<EntryDemand> {
    let count = u32::try_from(workflow.job_count()).unwrap_or(u32::MAX);
    let levels = dependency_levels(count, &workflow_creation::dependency_edges(workflow));
    let mut found: Vec<EntryDemand> = Vec::new();
    let mut places: BTreeMap<(usize, Option<u32>, Option<u32>, u32), usize> = BTreeMap::new();
    for ((number, job), level) in (0..).zip(workflow.jobs()).zip(levels) {
        // Jobs of an entry may depend on each other: an action that waits for all of them to be ready would
        // never fire.
        let key = (job.entry(), job.requirements, job.group, level);
        let place = *places.entry(key).or_insert_with(|| {
            let requirements = job.requirements.map(|number| &workflow.requirements()[number as usize]);
            let kind = job.group.map(|number| &workflow.job_groups()[number as usize]);
            let scheduler = kind.and_then(|kind| kind.settings.scheduler);
            let demand = AllocationDemand {
                requirements: requirements.map(|set| set.name.clone()),
                resources: requirements.map_or(Resources::DEFAULT, |set| set.resources),
                level,
                names: vec![workflow.entry_name(job.entry()).to_owned()],
                labels: kind.map(|kind| kind.settings.labels.clone()).unwrap_or_default(),
                scheduler: scheduler.map(|number| workflow.schedulers()[number as usize].name.clone()),
                ..AllocationDemand::default()
            };
            found.push(EntryDemand { demand, entry: job.entry(), jobs: Vec::new() });
            found.len() - 1
        });
        let of = &mut found[place];
        of.demand.jobs += 1;
        of.jobs.push(number);
    }
    found
}

/// Whether the spec has its own Slurm schedulers and actions.
pub fn has_schedulers(workflow: &ResolvedWorkflow<'_>) -> bool {
    let asks = |kind: ActionType| kind == ActionType::ScheduleNodes;
    !workflow.schedulers().is_empty() || workflow.actions().iter().any(|one| asks(one.action.action_type))
}

/// Proposes a plan for all jobs; the error names jobs that fit nowhere.
pub fn propose_workflow_schedulers(
    workflow: &ResolvedWorkflow<'_>,
    demands: &[EntryDemand],
    profile: &ClusterProfile,
    options: &AllocationOptions,
) -> Result<Vec<SchedulerProposal>, SlurmPlanError> {
    let options = AllocationOptions { reserve: end_reserve(workflow.settings()), ..options.clone() };
    let demands: Vec<AllocationDemand> = demands.iter().map(|of| of.demand.clone()).collect();
    propose_schedulers(profile, &demands, &options, None, &BTreeSet::new())
        .map_err(|faults| plan_error(&faults, profile))
}

/// Checks whether the cluster can provide what the spec requests.
pub fn check(workflow: &ResolvedWorkflow<'_>, profile: &ClusterProfile) -> Result<(), SlurmPlanError> {
    let wrong =
        workflow.schedulers().iter().filter_map(|scheduler| check_scheduler(scheduler, profile).err());
    let wrong: Vec<String> = wrong.map(|fault| fault.to_string()).collect();
    if !wrong.is_empty() {
        return Err(SlurmPlanError {
            message: wrong.join("\n"),
            remedy: "change the scheduler",
            cluster: cluster_title(profile),
        });
    }
    let demands = entry_demands(workflow);
    let named = |name: &str| workflow.schedulers().iter().find(|scheduler| scheduler.name == name);
    let wrong = demands.iter().filter_map(|of| {
        let check =
            |one: &SlurmScheduler| check_job_fits(&of.demand, one, profile, end_reserve(workflow.settings()));
        match of.demand.scheduler.as_deref() {
            Some(name) => check(named(name)?).err(),
            // Allocations of any scheduler may run the job.
            None => first_error_unless_one_fits(workflow.schedulers().iter().map(check)),
        }
    });
    let mut faults: Vec<UnfitDemand> = Vec::new();
    for fault in wrong {
        // Report an entry once, even if its jobs have different dependencies.
        match faults.iter_mut().find(|other| other.names == fault.names && other.reason == fault.reason) {
            Some(same) => same.jobs += fault.jobs,
            None => faults.push(fault),
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(plan_error(&faults, profile)) }
}

/// Returns why the jobs fit no scheduler; `None` if there is no scheduler, or one that fits.
fn first_error_unless_one_fits(
    mut checked: impl Iterator<Item = Result<(), UnfitDemand>>,
) -> Option<UnfitDemand> {
    let first = checked.next()?.err()?;
    checked.all(|fits| fits.is_err()).then_some(first)
}

fn plan_error(faults: &[UnfitDemand], profile: &ClusterProfile) -> SlurmPlanError {
    let message: Vec<String> = faults.iter().map(ToString::to_string).collect();
    SlurmPlanError {
        message: message.join("\n"),
        remedy: "reduce the requirements",
        cluster: cluster_title(profile),
    }
}

/// Returns the name of the cluster for messages.
pub fn cluster_title(profile: &ClusterProfile) -> String {
    let name = if profile.display_name.is_empty() { &profile.name } else { &profile.display_name };
    format!("cluster {name}")
}

/// Returns the account in the spec, if any.
pub fn default_account<'a>(workflow: &'a ResolvedWorkflow<'_>) -> Option<&'a str> {
    workflow.settings().slurm_defaults.get("account").and_then(|account| account.as_str())
}

/// Allocations of one scheduler that are requested together.
#[derive(Clone, Debug)]
pub struct PlannedAllocations {
    pub scheduler: SlurmScheduler,
    pub partition: Option<String>,
    /// Number of jobs that run there; `None` if the spec does not determine it.
    pub jobs: Option<u64>,
    pub allocations: u32,
    pub walltime: Option<Duration>,
    pub core_hours: Option<f64>,
    /// Whether they are requested when their first jobs are ready.
    pub is_deferred: bool,
}

impl PlannedAllocations {
    /// The submission to Slurm, or why it is invalid.
    pub fn request(&self, workflow: &ResolvedWorkflow<'_>) -> Result<AllocationRequest, String> {
        build_request(
            &self.scheduler,
            &workflow.settings().slurm_defaults,
            AllocationWorkerOptions::default(),
        )
    }
}

/// Returns the allocations that would be requested, after checking them against the cluster: those in the spec,
/// or a proposal.
pub fn plan_allocations(
    workflow: &ResolvedWorkflow<'_>,
    profile: &ClusterProfile,
    options: &AllocationOptions,
) -> Result<Vec<PlannedAllocations>, SlurmPlanError> {
    if has_schedulers(workflow) {
        check(workflow, profile)?;
        return Ok(planned_from_spec(workflow));
    }
    let demands = entry_demands(workflow);
    Ok(propose_workflow_schedulers(workflow, &demands, profile, options)?
        .into_iter()
        .map(planned_from_proposal)
        .collect())
}

fn planned_from_proposal(proposal: SchedulerProposal) -> PlannedAllocations {
    // No better estimate is available.
    let core_hours = Some((proposal.core_hours() * 1000.0).round() / 1000.0);
    let group = proposal.group;
    PlannedAllocations {
        partition: Some(group.partition),
        jobs: Some(group.jobs),
        allocations: group.allocations,
        walltime: Some(group.walltime),
        core_hours,
        is_deferred: group.is_deferred,
        scheduler: proposal.scheduler,
    }
}

/// Returns the allocations in the spec itself.
fn planned_from_spec(workflow: &ResolvedWorkflow<'_>) -> Vec<PlannedAllocations> {
    let asks = workflow.actions().iter().filter(|one| one.action.action_type == ActionType::ScheduleNodes);
    let row = |one: &ResolvedAction| {
        let name = one.action.scheduler.as_deref()?;
        let scheduler = workflow.schedulers().iter().find(|scheduler| scheduler.name == name)?.clone();
        let waits = |job: &u32| workflow.job(*job as usize).depends_on().any(|list| !list.is_empty());
        Some(PlannedAllocations {
            partition: scheduler.partition.clone(),
            jobs: None,
            allocations: one.action.num_allocations.unwrap_or(1),
            walltime: scheduler.walltime(),
            core_hours: None,
            is_deferred: one.jobs.iter().any(waits),
            scheduler,
        })
    };
    asks.filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_spec::{NoAttachments, SpecSource};

    #[test]
    fn dependent_jobs_of_one_group_are_separate_demands() {
        let text = "\
name: chain
resource_requirements: [{name: small, cpus: 1, memory: 1g, runtime: 10m}]
files: [{name: 'f_{i}', path: 'f_{i}', parameters: {i: '1:4'}}]
jobs:
  - name: s_{i}
    command: 'true'
    resource_requirements: small
    input_files: ['f_{i}']
    output_files: ['f_{j}']
    parameters: {i: '1:3', j: '2:4'}
    parameter_mode: zip
  - {name: 'other_{i}', command: 'true', resource_requirements: small, parameters: {i: '1:2'}}
";
        let workflow =
            windlass_spec::load_spec(SpecSource::new("w.yaml", text.as_bytes()), &NoAttachments).unwrap();
        let found: Vec<_> = entry_demands(&workflow)
            .into_iter()
            .map(|of| (of.entry, of.demand.level, of.demand.jobs, of.jobs))
            .collect();
        let expected = [(0, 0, 1, vec![0]), (0, 1, 1, vec![1]), (0, 2, 1, vec![2]), (1, 0, 2, vec![3, 4])];
        assert_eq!(found, expected);
    }
}
