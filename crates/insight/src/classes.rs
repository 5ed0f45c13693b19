//! Classes of jobs with what they used: the jobs of one entry of the spec that ask for the same.

use std::collections::{BTreeMap, HashMap};
use windlass_core::sizing::{self, Observation, Rules, Sizing};
use windlass_store::model::{JobFilter, ResultFilter, ResultRow, WorkflowRow};
use windlass_store::{Error, Store};
use windlass_types::work::return_code;
use windlass_types::{JobId, JobStatus, KindId, Resources, RunId};

const PAGE: u64 = 2000;

/// Which attempts count.
#[derive(Clone, Copy, Debug)]
pub struct Which<'a> {
    /// `None`: of each job, the newest run in which it ran.
    pub run: Option<RunId>,
    /// Those that failed as well.
    pub failed: bool,
    /// Only these jobs; none: all.
    pub jobs: &'a [JobId],
}

#[derive(Clone, Debug)]
pub struct Class {
    /// The entry of the spec, or the set of requirements where a job is an entry of its own.
    pub name: String,
    /// The set of requirements that they use.
    pub requirements: String,
    pub kind: Option<KindId>,
    pub asked: Resources,
    pub jobs: Vec<JobId>,
    pub observations: Vec<Observation>,
}

impl Class {
    /// The name of the set that the class gets for itself; the same every time, so that correcting twice makes one set.
    pub fn corrected_name(&self) -> String {
        match self.requirements.strip_suffix(&self.suffix()) {
            Some(_) => self.requirements.clone(),
            None => format!("{}{}", self.requirements, self.suffix()),
        }
    }

    fn suffix(&self) -> String {
        format!(" for {}", self.name)
    }
}

/// Judges each class by what its jobs used.
pub fn judge(classes: Vec<Class>, rules: &Rules) -> Vec<(Class, Sizing)> {
    let judge = |class: Class| {
        let sizing = sizing::size(
            &sizing::Class {
                name: &class.name,
                asked: class.asked,
                jobs: class.jobs.len() as u32,
                observations: &class.observations,
            },
            rules,
        );
        (class, sizing)
    };
    classes.into_iter().map(judge).collect()
}

/// The same by the set of requirements that they use, as the spec names it: one class for each.
pub fn by_requirements(classes: Vec<Class>) -> Vec<Class> {
    let mut merged: Vec<Class> = Vec::new();
    for class in classes {
        let name = class.requirements.strip_suffix(&class.suffix()).unwrap_or(&class.requirements).to_owned();
        match merged.iter_mut().find(|known| known.name == name) {
            Some(known) => {
                known.jobs.extend(class.jobs);
                known.observations.extend(class.observations);
            }
            None => merged.push(Class { requirements: name.clone(), name, kind: None, ..class }),
        }
    }
    merged
}

/// The classes that ask for something and have at least one result, in the order of their first jobs.
pub fn load(store: &dyn Store, row: &WorkflowRow, which: &Which<'_>) -> Result<Vec<Class>, Error> {
    let mut classes = gather(store, row, which)?;
    let class_of: HashMap<JobId, usize> = classes
        .iter()
        .enumerate()
        .flat_map(|(index, class)| class.jobs.iter().map(move |job| (*job, index)))
        .collect();
    for (job, newest) in newest_results(store, row, which)? {
        if let Some(&index) = class_of.get(&job) {
            classes[index].observations.push(newest.observation());
        }
    }
    classes.retain(|class| !class.observations.is_empty());
    Ok(classes)
}

fn gather(store: &dyn Store, row: &WorkflowRow, which: &Which<'_>) -> Result<Vec<Class>, Error> {
    let kinds: HashMap<String, KindId> =
        store.kinds(row.id)?.into_iter().map(|kind| (kind.name, kind.id)).collect();
    let sets: HashMap<String, Resources> =
        store.requirements(row.id)?.into_iter().map(|set| (set.name, set.resources)).collect();
    let mut classes: Vec<Class> = Vec::new();
    let mut known: HashMap<(Option<String>, String), usize> = HashMap::new();
    let mut after = None;
    loop {
        let filter = JobFilter { after, limit: Some(PAGE), ids: which.jobs.to_vec(), ..JobFilter::default() };
        let page = store.jobs(row.id, &filter)?;
        let Some(last) = page.last().map(|job| job.id) else { return Ok(classes) };
        for job in page {
            let Some(requirements) = job.resource_requirements else { continue };
            let Some(&asked) = sets.get(&requirements) else { continue };
            let index = *known.entry((job.kind.clone(), requirements.clone())).or_insert_with(|| {
                classes.push(Class {
                    name: job.kind.clone().unwrap_or_else(|| requirements.clone()),
                    kind: job.kind.as_ref().and_then(|kind| kinds.get(kind).copied()),
                    requirements,
                    asked,
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

/// The newest attempt of each job that tells something.
fn newest_results(
    store: &dyn Store,
    row: &WorkflowRow,
    which: &Which<'_>,
) -> Result<BTreeMap<JobId, ResultRow>, Error> {
    let mut newest = BTreeMap::new();
    let mut after = None;
    loop {
        let filter = ResultFilter { run: which.run, after, limit: Some(PAGE), ..ResultFilter::default() };
        let page = store.results(row.id, &filter)?;
        let Some(last) = page.last().map(|row| row.key) else { return Ok(newest) };
        after = Some((last.job_id, last.run_id, last.attempt_id));
        // Sorted by job, run and attempt: the last one wins.
        for result in page.into_iter().filter(|result| counts(result, which)) {
            newest.insert(result.key.job_id, result);
        }
    }
}

fn counts(result: &ResultRow, which: &Which<'_>) -> bool {
    match result.status {
        JobStatus::Completed => true,
        // Stopped by somebody, or by the death of a worker: says nothing about what it needs.
        JobStatus::Canceled => false,
        _ => which.failed && result.return_code != return_code::ORPHANED,
    }
}
