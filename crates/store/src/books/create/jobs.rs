//! The jobs of a new workflow, as they come: gathered until there are enough to insert together.

use super::shared::{Shared, nth};
use crate::Error;
use crate::books::units::NewUnits;
use crate::books::{column, records};
use crate::db::{Db, JobChunk, JobValues, Loader, Stretch, values};
use crate::error::Fault;
use crate::model::{FirstIds, JobSource, NewJob};
use crate::sql::tables;
use windlass_types::{StatusCounts, WorkflowId};

/// Where the numbers of files and user data lead.
#[derive(Clone, Copy)]
pub(crate) struct Numbers {
    pub(crate) first: FirstIds,
    /// How many there are.
    pub(crate) files: i64,
    pub(crate) user_data: i64,
}

/// They get one block of ids, because nobody else can write meanwhile.
pub(crate) fn insert(
    db: &impl Db,
    workflow: WorkflowId,
    shared: &Shared,
    numbers: Numbers,
    source: &mut dyn JobSource,
) -> Result<(StatusCounts, NewUnits), Fault> {
    let mut counts = StatusCounts::default();
    let mut units = NewUnits::default();
    let mut rows = JobRows::new(db, workflow, numbers.first.job);
    let mut relations = Relations::prepare(db)?;
    while let Some(job) = source.next() {
        let id = rows.next_id();
        relations.insert(id, &job, numbers)?;
        counts.add(job.status, 1);
        let elects = job.kind.is_some_and(|kind| shared.electing.contains(&kind));
        units.note(id, job.unit, elects, job.status, job.name)?;
        let kind = nth(&shared.kinds, job.kind, "kind", job.name)?;
        let requirements = nth(&shared.requirements, job.requirements, "requirement", job.name)?;
        rows.push(&job, kind, requirements)?;
    }
    rows.finish()?;
    relations.finish()?;
    Ok((counts, units))
}

/// Jobs on their way into the table, with ids one after the other.
pub(crate) struct JobRows<'d, D> {
    db: &'d D,
    workflow: WorkflowId,
    first_id: i64,
    /// How many are in the table.
    inserted: i64,
    waiting: Vec<JobValues>,
    /// The texts of those that wait.
    texts: String,
}

impl<'d, D: Db> JobRows<'d, D> {
    pub(crate) fn new(db: &'d D, workflow: WorkflowId, first_id: i64) -> Self {
        let waiting = Vec::with_capacity(D::JOBS_AT_ONCE);
        Self { db, workflow, first_id, inserted: 0, waiting, texts: String::new() }
    }

    /// The id of the job that comes next.
    pub(crate) fn next_id(&self) -> i64 {
        self.first_id + self.inserted + self.waiting.len() as i64
    }

    pub(crate) fn push(
        &mut self,
        job: &NewJob<'_>,
        kind: Option<i64>,
        requirements: Option<i64>,
    ) -> Result<(), Fault> {
        let row = JobValues {
            status: job.status.code(),
            priority: job.priority,
            cancel_on_blocking_job_failure: job.cancel_on_blocking_job_failure,
            requirements,
            kind,
            has_files: !job.input_files.is_empty() || !job.output_files.is_empty(),
            reused_from: job.reused_from.map(|id| id.0),
            name: self.keep(job.name),
            command: self.keep(job.command),
            invocation_script: job.invocation_script.map(|text| self.keep(text)),
            env: column::env_text(job.env).map(|text| self.keep(&text)),
            params: job.params.map(|text| self.keep(text)),
            reused_work: records::text(job.reused_work)?.map(|text| self.keep(&text)),
        };
        self.waiting.push(row);
        if self.waiting.len() >= D::JOBS_AT_ONCE { self.flush() } else { Ok(()) }
    }

    /// Inserts what still waits.
    pub(crate) fn finish(mut self) -> Result<(), Fault> {
        self.flush()
    }

    fn keep(&mut self, text: &str) -> Stretch {
        let start = self.texts.len();
        self.texts.push_str(text);
        start..self.texts.len()
    }

    fn flush(&mut self) -> Result<(), Fault> {
        let n = self.waiting.len();
        if n > 0 {
            self.db.insert_jobs(&JobChunk {
                workflow: self.workflow,
                first_id: self.first_id + self.inserted,
                is_first: self.inserted == 0,
                jobs: &self.waiting,
                texts: &self.texts,
            })?;
        }
        self.inserted += n as i64;
        self.waiting.clear();
        self.texts.clear();
        Ok(())
    }
}

/// What jobs read and write.
struct Relations<L> {
    files: L,
    user_data: L,
    sorted: Vec<u32>,
}

impl<L: Loader> Relations<L> {
    fn prepare<'d, D: Db<Loader<'d> = L>>(db: &'d D) -> Result<Self, Fault> {
        Ok(Self {
            files: db.load_into(&tables::JOB_FILE)?,
            user_data: db.load_into(&tables::JOB_USER_DATA)?,
            sorted: Vec::new(),
        })
    }

    fn insert(&mut self, id: i64, job: &NewJob<'_>, numbers: Numbers) -> Result<(), Fault> {
        let files = Block { what: "file", first: numbers.first.file, count: numbers.files };
        let user_data = Block { what: "user data", first: numbers.first.user_data, count: numbers.user_data };
        let sorted = &mut self.sorted;
        let mut relate = |rows: &mut L, block, list: &[u32], is_output| {
            sorted.clear();
            sorted.extend_from_slice(list);
            sorted.sort_unstable();
            sorted.dedup();
            insert_relation(rows, id, job.name, block, sorted, is_output)
        };
        for (list, is_output) in [(job.input_files, false), (job.output_files, true)] {
            relate(&mut self.files, files, list, is_output)?;
        }
        for (list, is_output) in [(job.input_user_data, false), (job.output_user_data, true)] {
            relate(&mut self.user_data, user_data, list, is_output)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Fault> {
        self.files.finish()?;
        self.user_data.finish()
    }
}

/// A block of ids that is referred to by numbers from 0.
#[derive(Clone, Copy)]
struct Block {
    what: &'static str,
    first: i64,
    count: i64,
}

fn insert_relation(
    rows: &mut impl Loader,
    job: i64,
    name: &str,
    block: Block,
    numbers: &[u32],
    is_output: bool,
) -> Result<(), Fault> {
    for &number in numbers {
        if i64::from(number) >= block.count {
            let what = format!("{} {number} of job `{name}`, where there are {}", block.what, block.count);
            return Err(Error::OutOfRange { what }.into());
        }
        rows.push(&values![job, i64::from(is_output), block.first + i64::from(number)])?;
    }
    Ok(())
}
