//! Inserts the jobs of a new workflow in batches.

use super::shared::{SharedIds, resolve_number};
use crate::StoreError;
use crate::db::{BulkLoader, JobChunk, JobValues, SqlConnection, TextRange, values};
use crate::error::SqlError;
use crate::model::{CompletedWork, FirstIds, JobSource, NewJob};
use crate::sql::tables;
use crate::sql_store::work_units::NewWorkUnits;
use crate::sql_store::{column_decoding, completion_records};
use windlass_types::{JobDefinition, JobId, JobStatus, StatusCounts, WorkflowId};

/// The first ids and the numbers of the files and user data of a new workflow.
#[derive(Clone, Copy)]
pub(crate) struct DataNumbering {
    pub(crate) first: FirstIds,
    /// Number of files.
    pub(crate) files: i64,
    pub(crate) user_data: i64,
}

/// They get one block of ids, because no other writer is active meanwhile.
pub(crate) fn insert_jobs(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    shared: &SharedIds,
    numbers: DataNumbering,
    source: &mut dyn JobSource,
) -> Result<(StatusCounts, NewWorkUnits), SqlError> {
    let mut counts = StatusCounts::default();
    let mut units = NewWorkUnits::default();
    let mut rows = JobRowWriter::new(db, workflow, numbers.first.job);
    let mut relations = JobRelationLoader::prepare(db)?;
    while let Some(job) = source.next_job() {
        let id = rows.next_id();
        relations.insert(id, &job, numbers)?;
        let name = &job.definition.name;
        counts.add(job.status, 1);
        let elects = job.job_group.is_some_and(|job_group| shared.site_electing.contains(&job_group));
        units.add_job(id, job.unit, elects, job.status, name)?;
        let resolve = |ids: &[i64], number: Option<u32>, what| {
            number.map(|number| resolve_number(ids, number, what, name)).transpose()
        };
        let job_group = resolve(&shared.job_groups, job.job_group, "job group")?;
        let requirements =
            resolve(&shared.requirements, job.definition.resource_requirements, "requirement")?;
        let row = NewJobRow {
            params: job.params,
            has_files: !job.input_files.is_empty() || !job.output_files.is_empty(),
            reused_from: job.reused_from,
            reused_work: job.reused_work,
            ..NewJobRow::new(job.status, job_group, requirements)
        };
        rows.push(&job.definition, &row)?;
    }
    rows.finish()?;
    relations.finish()?;
    Ok((counts, units))
}

/// The columns of a job to insert in addition to its definition.
pub(crate) struct NewJobRow<'a> {
    status: JobStatus,
    job_group: Option<i64>,
    requirements: Option<i64>,
    params: Option<&'a str>,
    has_files: bool,
    reused_from: Option<JobId>,
    reused_work: Option<&'a CompletedWork>,
}

impl NewJobRow<'_> {
    pub(crate) const fn new(status: JobStatus, job_group: Option<i64>, requirements: Option<i64>) -> Self {
        let (params, has_files, reused_from, reused_work) = (None, false, None, None);
        Self { status, job_group, requirements, params, has_files, reused_from, reused_work }
    }
}

/// Collects jobs to insert, with consecutive ids.
pub(crate) struct JobRowWriter<'d, D> {
    db: &'d D,
    workflow: WorkflowId,
    first_id: i64,
    /// Number of inserted jobs.
    inserted: i64,
    pending: Vec<JobValues>,
    /// The texts of collected jobs.
    texts: String,
}

impl<'d, D: SqlConnection> JobRowWriter<'d, D> {
    pub(crate) fn new(db: &'d D, workflow: WorkflowId, first_id: i64) -> Self {
        let pending = Vec::with_capacity(D::JOBS_PER_INSERT);
        Self { db, workflow, first_id, inserted: 0, pending, texts: String::new() }
    }

    /// Id of the next job.
    pub(crate) fn next_id(&self) -> i64 {
        self.first_id + self.inserted + self.pending.len() as i64
    }

    pub(crate) fn push<R>(&mut self, job: &JobDefinition<R>, row: &NewJobRow<'_>) -> Result<(), SqlError> {
        let values = JobValues {
            status: row.status.code(),
            priority: job.priority,
            cancel_on_blocking_job_failure: job.cancel_on_blocking_job_failure,
            requirements: row.requirements,
            job_group: row.job_group,
            has_files: row.has_files,
            reused_from: row.reused_from.map(|id| id.0),
            name: self.append_text(&job.name),
            command: self.append_text(&job.command),
            invocation_script: job.invocation_script.as_deref().map(|text| self.append_text(text)),
            env: column_decoding::render_env(&job.env).map(|text| self.append_text(&text)),
            params: row.params.map(|text| self.append_text(text)),
            reused_work: completion_records::render_reused_work(row.reused_work)?
                .map(|text| self.append_text(&text)),
            options: column_decoding::render_options(&job.options)?.map(|text| self.append_text(&text)),
        };
        self.pending.push(values);
        if self.pending.len() >= D::JOBS_PER_INSERT { self.flush() } else { Ok(()) }
    }

    /// Inserts the collected jobs.
    pub(crate) fn finish(mut self) -> Result<(), SqlError> {
        self.flush()
    }

    fn append_text(&mut self, text: &str) -> TextRange {
        let start = self.texts.len();
        self.texts.push_str(text);
        start..self.texts.len()
    }

    fn flush(&mut self) -> Result<(), SqlError> {
        let n = self.pending.len();
        if n > 0 {
            self.db.insert_jobs(&JobChunk {
                workflow: self.workflow,
                first_id: self.first_id + self.inserted,
                is_first: self.inserted == 0,
                jobs: &self.pending,
                texts: &self.texts,
            })?;
        }
        self.inserted += n as i64;
        self.pending.clear();
        self.texts.clear();
        Ok(())
    }
}

/// Inserts the inputs and outputs of jobs.
struct JobRelationLoader<L> {
    files: L,
    user_data: L,
    sorted: Vec<u32>,
}

impl<L: BulkLoader> JobRelationLoader<L> {
    fn prepare<'d, D: SqlConnection<Loader<'d> = L>>(db: &'d D) -> Result<Self, SqlError> {
        Ok(Self {
            files: db.open_loader(&tables::JOB_FILE)?,
            user_data: db.open_loader(&tables::JOB_USER_DATA)?,
            sorted: Vec::new(),
        })
    }

    fn insert(&mut self, id: i64, job: &NewJob<'_>, numbers: DataNumbering) -> Result<(), SqlError> {
        let files = IdBlock { what: "file", first: numbers.first.file, count: numbers.files };
        let user_data =
            IdBlock { what: "user data", first: numbers.first.user_data, count: numbers.user_data };
        let sorted = &mut self.sorted;
        let mut relate = |rows: &mut L, block, list: &[u32], is_output| {
            sorted.clear();
            sorted.extend_from_slice(list);
            sorted.sort_unstable();
            sorted.dedup();
            insert_relation(rows, id, &job.definition.name, block, sorted, is_output)
        };
        for (list, is_output) in [(job.input_files, false), (job.output_files, true)] {
            relate(&mut self.files, files, list, is_output)?;
        }
        for (list, is_output) in [(job.input_user_data, false), (job.output_user_data, true)] {
            relate(&mut self.user_data, user_data, list, is_output)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), SqlError> {
        self.files.finish()?;
        self.user_data.finish()
    }
}

/// A block of ids, referred to by indices from 0.
#[derive(Clone, Copy)]
struct IdBlock {
    what: &'static str,
    first: i64,
    count: i64,
}

fn insert_relation(
    rows: &mut impl BulkLoader,
    job: i64,
    name: &str,
    block: IdBlock,
    numbers: &[u32],
    is_output: bool,
) -> Result<(), SqlError> {
    for &number in numbers {
        if i64::from(number) >= block.count {
            let what = format!("{} {number} of job `{name}` (of {})", block.what, block.count);
            return Err(StoreError::OutOfRange { what }.into());
        }
        rows.push(&values![job, i64::from(is_output), block.first + i64::from(number)])?;
    }
    Ok(())
}
