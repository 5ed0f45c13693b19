//! Job groups with their usage: jobs of one entry of the spec with the same requirements.

use std::collections::{BTreeMap, HashMap};
use windlass_core::sizing::{self, AttemptObservation, GroupSizing, SizingRules};
use windlass_store::model::{JobFilter, ResultFilter, ResultRow, WorkflowRow};
use windlass_store::{Store, StoreError};
use windlass_types::worker_messages::return_code;
use windlass_types::{JobGroupId, JobId, JobStatus, Resources, RunId};

const JOB_PAGE: u64 = 2000;

/// Which attempts count.
#[derive(Clone, Copy, Debug)]
pub struct JobGroupFilter<'a> {
    /// `None`: the newest run of each job.
    pub run: Option<RunId>,
    /// Include failed attempts.
    pub include_failed: bool,
    /// Only these jobs; empty: all.
    pub jobs: &'a [JobId],
}

#[derive(Clone, Debug)]
pub struct JobGroupUsage {
    /// Entry of the spec, or the requirements if a job is an entry of its own.
    pub name: String,
    /// Name of their requirements.
    pub requirements: String,
    pub kind: Option<JobGroupId>,
    pub requested: Resources,
    pub jobs: Vec<JobId>,
    pub observations: Vec<AttemptObservation>,
}

impl JobGroupUsage {
    /// Name of the requirements that the group gets for itself; always the same, so that repeated corrections
    /// reuse them.
    pub fn corrected_name(&self) -> String {
        match self.requirements.strip_suffix(&self.name_suffix()) {
            Some(_) => self.requirements.clone(),
            None => format!("{}{}", self.requirements, self.name_suffix()),
        }
    }

    fn name_suffix(&self) -> String {
        format!(" for {}", self.name)
    }
}

/// Evaluates each group by the usage of its jobs.
pub fn size_groups(classes: Vec<JobGroupUsage>, rules: &SizingRules) -> Vec<(JobGroupUsage, GroupSizing)> {
    let size_one_group = |class: JobGroupUsage| {
        let sizing = sizing::size_group(
            &sizing::SizingGroup {
                name: &class.name,
                asked: class.requested,
                jobs: class.jobs.len() as u32,
                observations: &class.observations,
            },
            rules,
        );
        (class, sizing)
    };
    classes.into_iter().map(size_one_group).collect()
}

/// The same grouped by requirements, as named in the spec.
pub fn merge_by_requirements(classes: Vec<JobGroupUsage>) -> Vec<JobGroupUsage> {
    let mut merged: Vec<JobGroupUsage> = Vec::new();
    for class in classes {
        let name =
            class.requirements.strip_suffix(&class.name_suffix()).unwrap_or(&class.requirements).to_owned();
        match merged.iter_mut().find(|known| known.name == name) {
            Some(known) => {
                known.jobs.extend(class.jobs);
                known.observations.extend(class.observations);
            }
            None => merged.push(JobGroupUsage { requirements: name.clone(), name, kind: None, ..class }),
        }
    }
    merged
}

/// Returns the groups with requirements and at least one result, in the order of their first jobs.
pub fn load_job_groups(
    store: &dyn Store,
    row: &WorkflowRow,
    which: &JobGroupFilter<'_>,
) -> Result<Vec<JobGroupUsage>, StoreError> {
    let mut classes = gather_job_groups(store, row, which)?;
    let class_of: HashMap<JobId, usize> = classes
        .iter()
        .enumerate()
        .flat_map(|(index, class)| class.jobs.iter().map(move |job| (*job, index)))
        .collect();
    for (job, newest) in load_newest_results(store, row, which)? {
        if let Some(&index) = class_of.get(&job) {
            classes[index].observations.push(newest.to_observation());
        }
    }
    classes.retain(|class| !class.observations.is_empty());
    Ok(classes)
}

fn gather_job_groups(
    store: &dyn Store,
    row: &WorkflowRow,
    which: &JobGroupFilter<'_>,
) -> Result<Vec<JobGroupUsage>, StoreError> {
    let kinds: HashMap<String, JobGroupId> =
        store.job_groups(row.id)?.into_iter().map(|kind| (kind.group.name, kind.id)).collect();
    let sets: HashMap<String, Resources> =
        store.requirements(row.id)?.into_iter().map(|set| (set.name, set.resources)).collect();
    let mut classes: Vec<JobGroupUsage> = Vec::new();
    let mut known: HashMap<(Option<String>, String), usize> = HashMap::new();
    let mut after = None;
    loop {
        let filter =
            JobFilter { after, limit: Some(JOB_PAGE), ids: which.jobs.to_vec(), ..JobFilter::default() };
        let page = store.jobs(row.id, &filter)?;
        let Some(last) = page.last().map(|job| job.id) else { return Ok(classes) };
        for job in page {
            let Some(requirements) = job.resource_requirements else { continue };
            let Some(&asked) = sets.get(&requirements) else { continue };
            let index = *known.entry((job.kind.clone(), requirements.clone())).or_insert_with(|| {
                classes.push(JobGroupUsage {
                    name: job.kind.clone().unwrap_or_else(|| requirements.clone()),
                    kind: job.kind.as_ref().and_then(|kind| kinds.get(kind).copied()),
                    requirements,
                    requested: asked,
                    jobs: Vec::new(),
                    observations: Vec::new(),
                });
                classes.len() - 1
            });
            classes[index].jobs.push(job.id);
        }
        after = Some(last);
    }
}

/// Returns the newest informative attempt of each job.
fn load_newest_results(
    store: &dyn Store,
    row: &WorkflowRow,
    which: &JobGroupFilter<'_>,
) -> Result<BTreeMap<JobId, ResultRow>, StoreError> {
    let mut newest = BTreeMap::new();
    let mut after = None;
    loop {
        let filter = ResultFilter { run: which.run, after, limit: Some(JOB_PAGE), ..ResultFilter::default() };
        let page = store.results(row.id, &filter)?;
        let Some(last) = page.last().map(|row| row.key) else { return Ok(newest) };
        after = Some((last.job_id, last.run_id, last.attempt_id));
        // Sorted by job, run and attempt: the last one wins.
        for result in page.into_iter().filter(|result| is_counted(result, which)) {
            newest.insert(result.key.job_id, result);
        }
    }
}

fn is_counted(result: &ResultRow, which: &JobGroupFilter<'_>) -> bool {
    match result.status {
        JobStatus::Completed => true,
        // A canceled or lost attempt says nothing about the job's needs.
        JobStatus::Canceled => false,
        _ => which.include_failed && result.return_code != return_code::ORPHANED,
    }
}
