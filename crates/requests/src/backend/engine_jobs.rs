//! A run as a workflow of the engine: for each work unit a landing, its processing jobs, a merge and a cleanup.

use super::role_retries::{RoleRetrySettings, quote_shell_word};
use crate::planned_run_units::{PlannedRunUnits, PlannedUnitJobs, manifest_path};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;
use windlass_core::dependency_edges::{DependencyEdges, DependencyEdgesBuilder};
use windlass_core::failure_handlers::RequestRetryPolicy;
use windlass_store::model::{FirstIds, JobSource, NewJob, NewRequirements, NewWorkflow};
use windlass_types::requests::{DEFAULT_PRIORITY, NodeRole};
use windlass_types::settings::{FailureHandler, RetryBudget, WorkflowSettings};
use windlass_types::{Bytes, JobDefinition, JobGroup, JobSettings, JobStatus, Resources};

/// The `windlass` binary of the worker that runs the job.
const PROGRAM_COMMAND: &str = r#""${WINDLASS_EXE:-windlass}""#;
/// Units that are nearly done come before new ones.
pub(super) const FINISHING_PRIORITY_BONUS: i32 = 10;

/// The requirements of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct JobSize {
    pub(crate) cores: u32,
    pub(crate) memory_mb: u64,
    /// Its runtime limit.
    pub(crate) runtime_sec: u64,
}

impl JobSize {
    const HOUR: u64 = 3600;

    /// The limit for a job with this estimate.
    pub(crate) fn from_estimate(cores: u32, memory_mb: u64, time_sec: u64) -> Self {
        Self { cores, memory_mb, runtime_sec: RequestRetryPolicy::time_limit(time_sec).as_secs() }
    }

    fn resources(self) -> Resources {
        Resources {
            cpus: self.cores.max(1),
            memory: Bytes(self.memory_mb << 20),
            runtime: Some(Duration::from_secs(self.runtime_sec)),
            ..Resources::DEFAULT
        }
    }

    /// For a landing: only where all jobs that follow would fit.
    pub(super) fn for_landing(self) -> Self {
        Self { runtime_sec: Self::HOUR / 2, ..self }
    }

    /// For jobs that need one core and no more than its share of memory.
    pub(super) fn single_core(self, hours: u64) -> Self {
        let memory_mb = (self.memory_mb / u64::from(self.cores.max(1))).max(1);
        Self { cores: 1, memory_mb, runtime_sec: hours * Self::HOUR }
    }

    /// The larger of both.
    fn max_of_both(self, other: Self) -> Self {
        Self {
            cores: self.cores.max(other.cores),
            memory_mb: self.memory_mb.max(other.memory_mb),
            runtime_sec: self.runtime_sec.max(other.runtime_sec),
        }
    }
}

/// All parameters of a submission except the jobs themselves.
#[derive(Clone, Debug)]
pub(crate) struct RunSubmission {
    pub(crate) name: String,
    pub(crate) user: String,
    /// Identifies the workflow after a crash.
    pub(crate) digest: String,
    pub(crate) directory: String,
    /// Maximum number of concurrent jobs of a category; `MergeGroup`: of units.
    pub(crate) throttles: BTreeMap<String, u64>,
    pub(crate) retries: RoleRetrySettings,
    /// Maximum memory of a job with one core, in MB.
    pub(crate) max_memory_per_core: u64,
    /// Memory set by an operator, perhaps after the planning.
    pub(crate) memory_mb: Option<u64>,
    /// The current priority.
    pub(crate) priority: i64,
}

impl RunSubmission {
    /// The priority of its jobs. Without a priority, a request shares workers with workflows that have none.
    pub(super) fn job_priority(&self) -> i32 {
        let most = i64::from(i32::MAX - FINISHING_PRIORITY_BONUS);
        i32::try_from((self.priority - DEFAULT_PRIORITY).clamp(-most, most)).unwrap_or_default()
    }
}

/// The workflow of a run, ready to be created.
#[derive(Debug)]
pub(crate) struct RunGraph<'o> {
    outline: &'o PlannedRunUnits,
    settings: WorkflowSettings,
    handlers: Vec<FailureHandler>,
    sizes: Vec<(String, JobSize)>,
    /// By unit: the index of its size.
    unit_sizes: Vec<u32>,
    edges: DependencyEdges,
    logs: String,
}

impl<'o> RunGraph<'o> {
    pub(crate) fn new(submission: &RunSubmission, outline: &'o PlannedRunUnits) -> Self {
        let cores = outline.sizes.iter().map(|size| size.cores).max().unwrap_or(1).max(1);
        let most = submission.max_memory_per_core * u64::from(cores);
        let most = Bytes(most.max(submission.memory_mb.unwrap_or(0)) << 20);
        let handlers =
            NodeRole::ALL.iter().map(|role| submission.retries.failure_handler(*role, most)).collect();
        let (of_units, unit_sizes) = unit_job_sizes(outline);
        Self {
            outline,
            settings: workflow_settings(&submission.throttles),
            handlers,
            sizes: all_job_sizes(outline, &of_units),
            unit_sizes,
            edges: dependency_edges(outline),
            logs: format!("{}/logs", submission.directory),
        }
    }

    /// The failure handlers, by role.
    pub(crate) fn handlers(&self) -> &[FailureHandler] {
        &self.handlers
    }

    /// Calls `create` with the workflow and a source for its jobs.
    pub(crate) fn create_workflow<T>(
        &self,
        submission: &RunSubmission,
        create: impl FnOnce(&NewWorkflow<'_>, &mut dyn JobSource) -> T,
    ) -> T {
        let requirements: Vec<_> = self
            .sizes
            .iter()
            .map(|(name, size)| NewRequirements { name, resources: size.resources() })
            .collect();
        let kinds = self.job_groups();
        let workflow = NewWorkflow {
            name: &submission.name,
            user: &submission.user,
            submission_dir: &submission.directory,
            output_dir: &self.logs,
            spec_digest: Some(&submission.digest),
            settings: Some(&self.settings),
            requirements: &requirements,
            failure_handlers: &self.handlers,
            job_groups: &kinds,
            edges: &self.edges,
            ..NewWorkflow::default()
        };
        create(&workflow, &mut RunJobSource::new(self.outline, &self.unit_sizes, submission))
    }

    /// Processing, merge, cleanup; then a group of landings for each set of sites.
    fn job_groups(&self) -> Vec<JobGroup<u32>> {
        let of = |role: NodeRole, name: &str| JobGroup {
            name: name.to_owned(),
            settings: JobSettings {
                failure_handler: NodeRole::ALL.iter().position(|known| *known == role).map(|at| at as u32),
                limit: self.settings.limits.get_key_value(role.name()).map(|(name, _)| name.clone()),
                ..JobSettings::default()
            },
            ..JobGroup::default()
        };
        let mut kinds = vec![
            of(NodeRole::Processing, "processing"),
            of(NodeRole::Merge, "merge"),
            of(NodeRole::Cleanup, "cleanup"),
        ];
        let landings = self.outline.sites.iter().zip(landing_group_names(self.outline));
        kinds.extend(landings.map(|(sites, name)| {
            let mut landing = JobGroup { elects_site: true, ..of(NodeRole::Landing, &name) };
            landing.settings.sites.clone_from(sites);
            landing
        }));
        kinds
    }
}

const PROCESSING: u32 = 0;
const MERGE: u32 = 1;
const CLEANUP: u32 = 2;
const LANDING: u32 = 3;

/// `landing`, or `landing_0`, `landing_1`, … where units differ in their allowed sites.
fn landing_group_names(outline: &PlannedRunUnits) -> Vec<String> {
    match outline.sites.len() {
        1 => vec!["landing".to_owned()],
        several => (0..several).map(|set| format!("landing_{set}")).collect(),
    }
}

fn workflow_settings(throttles: &BTreeMap<String, u64>) -> WorkflowSettings {
    let of = |name: &str| throttles.get(name).map(|&limit| u32::try_from(limit).unwrap_or(u32::MAX));
    let roles = [NodeRole::Processing, NodeRole::Merge, NodeRole::Cleanup];
    WorkflowSettings {
        limits: roles.iter().filter_map(|role| Some((role.name().to_owned(), of(role.name())?))).collect(),
        max_units: of("MergeGroup"),
        // The retries of each job are limited. There must be no limit for all of them: a run that stands still
        // never ends.
        retry_budget: Some(RetryBudget::Count(u32::MAX)),
        ..WorkflowSettings::default()
    }
}

/// Those of processing jobs in the outline's order, then those of the other jobs: three for each size of units.
fn all_job_sizes(outline: &PlannedRunUnits, unit_sizes: &[JobSize]) -> Vec<(String, JobSize)> {
    let processing = outline.sizes.iter().enumerate().map(|(n, size)| (format!("processing_{n}"), *size));
    let others = unit_sizes.iter().enumerate().flat_map(|(n, size)| {
        let suffix = if unit_sizes.len() > 1 { format!("_{n}") } else { String::new() };
        [
            (format!("landing{suffix}"), size.for_landing()),
            (format!("merge{suffix}"), size.single_core(8)),
            (format!("cleanup{suffix}"), size.single_core(1)),
        ]
    });
    processing.chain(others).collect()
}

pub(super) fn largest_job_size(outline: &PlannedRunUnits) -> JobSize {
    outline.sizes.iter().copied().fold(JobSize::default(), JobSize::max_of_both)
}

/// What covers all processing jobs of a unit, for each unit: the distinct sizes, and the index of each unit's
/// size. A unit with probes requests more than the others.
pub(super) fn unit_job_sizes(outline: &PlannedRunUnits) -> (Vec<JobSize>, Vec<u32>) {
    let mut sizes: Vec<JobSize> = Vec::new();
    let of_nodes = |nodes: &[(u32, u32)]| {
        let known = nodes.iter().filter_map(|&(size, _)| outline.sizes.get(size as usize).copied());
        known.reduce(JobSize::max_of_both).unwrap_or_else(|| largest_job_size(outline))
    };
    let number = |unit: &PlannedUnitJobs| {
        let size = of_nodes(&unit.nodes);
        let at = sizes.iter().position(|known| *known == size).unwrap_or_else(|| {
            sizes.push(size);
            sizes.len() - 1
        });
        at as u32
    };
    let numbers = outline.units.iter().map(number).collect();
    (sizes, numbers)
}

/// Landing, processing, merge, cleanup of each unit, numbered in this order.
fn dependency_edges(outline: &PlannedRunUnits) -> DependencyEdges {
    let mut edges = DependencyEdgesBuilder::default();
    let mut next = 0;
    let mut nodes = Vec::new();
    for unit in &outline.units {
        let landing = next;
        nodes.clear();
        nodes.extend(unit.sizes().zip(landing + 1..).map(|(_, job)| job));
        let merge = landing + 1 + nodes.len() as u32;
        for &node in &nodes {
            edges.add_dependencies(node, &[landing]);
        }
        edges.add_dependencies(merge, &nodes);
        edges.add_dependencies(merge + 1, &[merge]);
        next = merge + 2;
    }
    edges.finish()
}

/// The jobs, one at a time.
struct RunJobSource<'o> {
    outline: &'o PlannedRunUnits,
    unit_sizes: &'o [u32],
    directory: &'o Path,
    priority: i32,
    unit: u32,
    position: UnitPosition,
    /// The remaining nodes of the unit: their sizes, the last one first.
    nodes: Vec<u32>,
    manifest: String,
    definition: JobDefinition<u32>,
}

#[derive(Clone, Copy)]
enum UnitPosition {
    Landing,
    Node(u32),
    Merge,
    Cleanup,
}

impl<'o> RunJobSource<'o> {
    fn new(outline: &'o PlannedRunUnits, unit_sizes: &'o [u32], submission: &'o RunSubmission) -> Self {
        Self {
            outline,
            unit_sizes,
            directory: Path::new(&submission.directory),
            priority: submission.job_priority(),
            unit: 0,
            position: UnitPosition::Landing,
            nodes: Vec::new(),
            manifest: String::new(),
            definition: JobDefinition::default(),
        }
    }

    /// `windlass payload WORD MANIFEST`
    fn write_job(&mut self, role: &str, word: &str, node: Option<u32>) {
        let (unit, manifest) = (self.unit, &self.manifest);
        let JobDefinition { name, command, .. } = &mut self.definition;
        name.clear();
        command.clear();
        // Writing to a string does not fail.
        let written = match node {
            None => write!(name, "{role}_{unit:06}")
                .and_then(|()| write!(command, "{PROGRAM_COMMAND} payload {word} {manifest}")),
            Some(node) => write!(name, "{role}_{unit:06}_{node}")
                .and_then(|()| write!(command, "{PROGRAM_COMMAND} payload {word} {manifest} --node {node}")),
        };
        debug_assert!(written.is_ok());
    }
}

impl JobSource for RunJobSource<'_> {
    fn set_first_ids(&mut self, _first: FirstIds) {}

    fn next_job(&mut self) -> Option<NewJob<'_>> {
        let unit = self.outline.units.get(self.unit as usize)?;
        let number = self.unit;
        let unit_size = self.unit_sizes.get(self.unit as usize).copied().unwrap_or_default();
        let others = self.outline.sizes.len() as u32 + 3 * unit_size;
        let (kind, requirements, ahead, status) = match self.position {
            UnitPosition::Landing => {
                let path = manifest_path(self.directory, self.unit);
                self.manifest = quote_shell_word(&path.to_string_lossy());
                self.nodes = unit.sizes().collect();
                self.nodes.reverse();
                self.write_job("landing", "land", None);
                self.position =
                    if self.nodes.is_empty() { UnitPosition::Merge } else { UnitPosition::Node(0) };
                (LANDING + unit.sites, others, 0, JobStatus::Ready)
            }
            UnitPosition::Node(node) => {
                let size = self.nodes.pop().unwrap_or_default();
                self.write_job("proc", "run", Some(node));
                self.position =
                    if self.nodes.is_empty() { UnitPosition::Merge } else { UnitPosition::Node(node + 1) };
                (PROCESSING, size, 0, JobStatus::Blocked)
            }
            UnitPosition::Merge => {
                self.write_job("merge", "merge", None);
                self.position = UnitPosition::Cleanup;
                (MERGE, others + 1, FINISHING_PRIORITY_BONUS, JobStatus::Blocked)
            }
            UnitPosition::Cleanup => {
                self.write_job("cleanup", "cleanup", None);
                self.position = UnitPosition::Landing;
                self.unit += 1;
                (CLEANUP, others + 2, FINISHING_PRIORITY_BONUS, JobStatus::Blocked)
            }
        };
        self.definition.resource_requirements = Some(requirements);
        self.definition.priority = self.priority + ahead;
        Some(NewJob {
            job_group: Some(kind),
            unit: Some(number),
            status,
            ..NewJob::new(Cow::Borrowed(&self.definition))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probes request more memory, and only units with a probe land accordingly.
    #[test]
    fn landing_requests_resources_of_its_unit() {
        let size = |memory_mb| JobSize { cores: 8, memory_mb, runtime_sec: 7200 };
        let unit = |nodes: &[(u32, u32)]| PlannedUnitJobs { sites: 0, nodes: nodes.to_vec() };
        let outline = PlannedRunUnits {
            sites: vec![vec!["T1".to_owned()]],
            sizes: vec![size(24_000), size(16_000)],
            disk_kb: 1,
            units: vec![unit(&[(0, 1), (1, 5)]), unit(&[(1, 6)]), unit(&[(1, 2)]), unit(&[])],
        };
        let (of_units, numbers) = unit_job_sizes(&outline);
        assert_eq!((&of_units[..], &numbers[..]), (&[size(24_000), size(16_000)][..], &[0, 1, 1, 0][..]));
        let named = all_job_sizes(&outline, &of_units);
        let memory = |name: &str| named.iter().find(|(known, _)| known == name).unwrap().1.memory_mb;
        let asked = ["landing_0", "landing_1", "merge_0", "merge_1", "cleanup_1"].map(memory);
        assert_eq!(asked, [24_000, 16_000, 3000, 2000, 2000]);
        let alike = PlannedRunUnits { units: vec![unit(&[(1, 3)])], ..outline };
        let named = all_job_sizes(&alike, &unit_job_sizes(&alike).0);
        assert!(named.iter().any(|(name, size)| name == "landing" && size.memory_mb == 16_000), "{named:?}");
    }
}
