//! Slurm's accounting records of a workflow: queried for its allocations, and joined with the database.

use crate::parse::sacct_usage::parse_attempt;
use crate::slurm_client::{SlurmClient, SlurmOutcome, SlurmUnavailable};
use std::collections::{BTreeMap, BTreeSet};
use windlass_api::slurm::SlurmAccountingEntry;
use windlass_store::model::{AllocationFilter, JobFilter};
use windlass_store::{Store, StoreError};
use windlass_types::{JobId, WorkflowId};

/// Why there are no records.
#[derive(Debug, thiserror::Error)]
pub enum AccountingError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("accounting is disabled on this cluster")]
    Disabled,
    #[error("sacct failed: {0}")]
    Refused(String),
    #[error(transparent)]
    Unknown(SlurmUnavailable),
}

impl AccountingError {
    pub fn render_hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Disabled => {
                Some("`windlass slurm usage` shows the usage that Windlass measured".to_owned())
            }
            Self::Unknown(SlurmUnavailable::NotStarted { .. }) => {
                Some("run this on a login node; `windlass slurm usage` works everywhere".to_owned())
            }
            Self::Unknown(_) => Some("try again later".to_owned()),
            Self::Refused(_) => None,
        }
    }
}

/// Number of jobs per query.
const LOOKUP_BATCH: usize = 500;

/// All allocations of the workflow that Slurm has seen, and their steps.
pub fn load_workflow_accounting(
    slurm: &SlurmClient,
    store: &dyn Store,
    workflow: WorkflowId,
) -> Result<Vec<SlurmAccountingEntry>, AccountingError> {
    let filter =
        AllocationFilter { workflow: Some(workflow), is_ours: Some(true), ..AllocationFilter::default() };
    let known: BTreeMap<u64, i64> =
        store.allocations(&filter)?.iter().filter_map(|one| Some((one.job_id?, one.id.0))).collect();
    if known.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<u64> = known.keys().copied().collect();
    let mut rows = match slurm.list_accounting(&ids) {
        SlurmOutcome::Answered(rows) => rows.ok_or(AccountingError::Disabled)?,
        SlurmOutcome::Refused(message) => return Err(AccountingError::Refused(message.trim().to_owned())),
        SlurmOutcome::Unknown(why) => return Err(AccountingError::Unknown(why)),
    };
    let job_of = |row: &SlurmAccountingEntry| {
        parse_attempt(row).filter(|key| key.workflow == workflow).map(|key| key.job)
    };
    let names = load_job_names(store, workflow, rows.iter().filter_map(job_of))?;
    for row in &mut rows {
        let job = job_of(row);
        row.allocation_id = known.get(&row.slurm_job_id).copied();
        row.job_id = job.map(|job| job.0);
        row.job_name = job.and_then(|job| names.get(&job).cloned());
    }
    Ok(rows)
}

/// The names of these jobs.
pub fn load_job_names(
    store: &dyn Store,
    workflow: WorkflowId,
    jobs: impl Iterator<Item = JobId>,
) -> Result<BTreeMap<JobId, String>, StoreError> {
    let wanted: Vec<JobId> = jobs.collect::<BTreeSet<_>>().into_iter().collect();
    let mut names = BTreeMap::new();
    for ids in wanted.chunks(LOOKUP_BATCH) {
        let filter = JobFilter { ids: ids.to_vec(), ..JobFilter::default() };
        names.extend(store.jobs(workflow, &filter)?.into_iter().map(|job| (job.id, job.name)));
    }
    Ok(names)
}
