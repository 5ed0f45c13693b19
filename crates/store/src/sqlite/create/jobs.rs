//! The jobs of a new workflow, as they come: gathered until there are enough for one statement, then inserted.

use super::shared::{Shared, nth};
use crate::Error;
use crate::error::Fault;
use crate::model::{FirstIds, JobSource, NewJob};
use crate::sql::common as sql;
use crate::sql::sqlite::insert_jobs as insert_jobs_sql;
use crate::sqlite::{column, records};
use rusqlite::{Connection, OptionalExtension, Statement, ToSql, params};
use std::ops::Range;
use windlass_types::{StatusCounts, WorkflowId};

/// Jobs that one statement inserts: many at once are faster, because the cursors stay where they are.
const ROWS_A_STATEMENT: usize = 64;

/// Where the numbers of files and user data lead.
#[derive(Clone, Copy)]
pub(crate) struct Numbers {
    pub(crate) first: FirstIds,
    /// How many there are.
    pub(crate) files: i64,
    pub(crate) user_data: i64,
}

/// Gives the first job its id; SQLite then counts on, because nobody else can write meanwhile.
pub(crate) fn insert(
    conn: &Connection,
    workflow: WorkflowId,
    shared: &Shared,
    numbers: Numbers,
    source: &mut dyn JobSource,
) -> Result<StatusCounts, Fault> {
    let mut counts = StatusCounts::default();
    let mut rows = JobRows::new(conn, workflow, numbers.first.job)?;
    let mut relations = Relations::prepare(conn)?;
    while let Some(job) = source.next() {
        let id = rows.next_id();
        relations.insert(id, &job, numbers)?;
        counts.add(job.status, 1);
        let kind = nth(&shared.kinds, job.kind, "kind", job.name)?;
        let requirements = nth(&shared.requirements, job.requirements, "requirement", job.name)?;
        rows.push(&job, kind, requirements)?;
    }
    rows.finish()?;
    Ok(counts)
}

/// Jobs on their way into the table, with ids one after the other.
pub(crate) struct JobRows<'c> {
    conn: &'c Connection,
    workflow: WorkflowId,
    first_id: i64,
    /// How many are in the table.
    inserted: i64,
    waiting: Vec<Row>,
    /// The texts of those that wait.
    texts: String,
    insert_first: Statement<'c>,
    insert_one: Statement<'c>,
    insert_many: Statement<'c>,
    insert_many_plain: Statement<'c>,
}

/// A job that waits for company; its texts are stretches of the common buffer.
struct Row {
    status: u8,
    priority: i32,
    cancel_on_blocking_job_failure: bool,
    requirements: Option<i64>,
    kind: Option<i64>,
    has_files: bool,
    reused_from: Option<i64>,
    name: Range<usize>,
    command: Range<usize>,
    invocation_script: Option<Range<usize>>,
    env: Option<Range<usize>>,
    params: Option<Range<usize>>,
    reused_work: Option<Range<usize>>,
}

impl Row {
    /// Has nothing that most jobs of a large workflow lack. Saying so a million times would take time.
    fn is_plain(&self) -> bool {
        let Self { kind, has_files, reused_from, invocation_script, env, params, reused_work, .. } = self;
        kind.is_none()
            && !has_files
            && reused_from.is_none()
            && [invocation_script, env, params, reused_work].into_iter().all(Option::is_none)
    }
}

impl<'c> JobRows<'c> {
    pub(crate) fn new(conn: &'c Connection, workflow: WorkflowId, first_id: i64) -> Result<Self, Fault> {
        Ok(Self {
            conn,
            workflow,
            first_id,
            inserted: 0,
            waiting: Vec::with_capacity(ROWS_A_STATEMENT),
            texts: String::new(),
            insert_first: conn.prepare(sql::INSERT_FIRST_JOB)?,
            insert_one: conn.prepare(&insert_jobs_sql(1, false))?,
            insert_many: conn.prepare(&insert_jobs_sql(ROWS_A_STATEMENT, false))?,
            insert_many_plain: conn.prepare(&insert_jobs_sql(ROWS_A_STATEMENT, true))?,
        })
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
        let row = Row {
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
        if self.inserted == 0 || self.waiting.len() == ROWS_A_STATEMENT { self.flush() } else { Ok(()) }
    }

    /// Inserts what still waits.
    pub(crate) fn finish(mut self) -> Result<(), Fault> {
        self.flush()?;
        let last = self.conn.last_insert_rowid();
        if self.inserted <= 1 || last == self.first_id + self.inserted - 1 {
            return Ok(());
        }
        Err(Error::OutOfRange { what: format!("job id {last}") }.into())
    }

    fn keep(&mut self, text: &str) -> Range<usize> {
        let start = self.texts.len();
        self.texts.push_str(text);
        start..self.texts.len()
    }

    fn flush(&mut self) -> Result<(), Fault> {
        let n = self.waiting.len();
        let are_plain = n == ROWS_A_STATEMENT && self.waiting.iter().all(Row::is_plain);
        let batch = Batch { workflow: self.workflow, texts: &self.texts, are_plain };
        let inserted = if self.inserted == 0 && n > 0 {
            batch.insert(&mut self.insert_first, &self.waiting, Some(self.first_id))
        } else if are_plain {
            batch.insert(&mut self.insert_many_plain, &self.waiting, None)
        } else if n == ROWS_A_STATEMENT {
            batch.insert(&mut self.insert_many, &self.waiting, None)
        } else {
            let insert = &mut self.insert_one;
            self.waiting.chunks(1).try_for_each(|row| batch.insert(insert, row, None))
        };
        if let Err(fault) = inserted {
            return Err(self.name_the_taken(fault)?);
        }
        self.inserted += n as i64;
        self.waiting.clear();
        self.texts.clear();
        Ok(())
    }

    /// Finds the name that was refused because another job of the workflow has it. SQLite does not say which one it was,
    /// but it went no further: it is the first row that is not there under its own id.
    fn name_the_taken(&self, fault: Fault) -> Result<Fault, Fault> {
        let is_taken = matches!(
            &fault,
            Fault::Sqlite(e) if e.sqlite_extended_error_code() == Some(rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE)
        );
        if !is_taken {
            return Ok(fault);
        }
        let mut statement = self.conn.prepare_cached(sql::JOB_NAMED)?;
        for (id, row) in (self.first_id + self.inserted..).zip(&self.waiting) {
            let name = &self.texts[row.name.clone()];
            let found: Option<i64> =
                statement.query_row(params![self.workflow.0, name], |row| row.get(0)).optional()?;
            if found != Some(id) {
                return Ok(Error::DuplicateJobName { name: name.to_owned() }.into());
            }
        }
        Ok(fault)
    }
}

/// What the rows of one statement have in common.
struct Batch<'t> {
    workflow: WorkflowId,
    texts: &'t str,
    /// The statement has no place for more than what every job has.
    are_plain: bool,
}

impl Batch<'_> {
    fn insert(
        &self,
        statement: &mut Statement<'_>,
        rows: &[Row],
        first_id: Option<i64>,
    ) -> Result<(), Fault> {
        let mut parameters = 1..;
        let mut bind = |value: &dyn ToSql| {
            let index: usize = parameters.next().unwrap_or_default();
            statement.raw_bind_parameter(index, value)
        };
        let text = |range: &Option<Range<usize>>| range.clone().map(|range| &self.texts[range]);
        bind(&self.workflow.0)?;
        for row in rows {
            bind(&row.status)?;
            bind(&row.priority)?;
            bind(&i64::from(row.cancel_on_blocking_job_failure))?;
            bind(&row.requirements)?;
            bind(&&self.texts[row.name.clone()])?;
            bind(&&self.texts[row.command.clone()])?;
            if self.are_plain {
                continue;
            }
            bind(&row.kind)?;
            bind(&i64::from(row.has_files))?;
            bind(&row.reused_from)?;
            bind(&text(&row.invocation_script))?;
            bind(&text(&row.env))?;
            bind(&text(&row.params))?;
            bind(&text(&row.reused_work))?;
        }
        if let Some(id) = first_id {
            bind(&id)?;
        }
        statement.raw_execute()?;
        Ok(())
    }
}

/// What jobs read and write.
struct Relations<'c> {
    files: Statement<'c>,
    user_data: Statement<'c>,
    sorted: Vec<u32>,
}

impl<'c> Relations<'c> {
    fn prepare(conn: &'c Connection) -> Result<Self, Fault> {
        Ok(Self {
            files: conn.prepare(sql::INSERT_JOB_FILE)?,
            user_data: conn.prepare(sql::INSERT_JOB_USER_DATA)?,
            sorted: Vec::new(),
        })
    }

    fn insert(&mut self, id: i64, job: &NewJob<'_>, numbers: Numbers) -> Result<(), Fault> {
        let files = Block { what: "file", first: numbers.first.file, count: numbers.files };
        let user_data = Block { what: "user data", first: numbers.first.user_data, count: numbers.user_data };
        let sorted = &mut self.sorted;
        let mut relate = |statement: &mut Statement<'_>, block, list: &[u32], is_output| {
            sorted.clear();
            sorted.extend_from_slice(list);
            sorted.sort_unstable();
            sorted.dedup();
            insert_relation(statement, id, job.name, block, sorted, is_output)
        };
        for (list, is_output) in [(job.input_files, false), (job.output_files, true)] {
            relate(&mut self.files, files, list, is_output)?;
        }
        for (list, is_output) in [(job.input_user_data, false), (job.output_user_data, true)] {
            relate(&mut self.user_data, user_data, list, is_output)?;
        }
        Ok(())
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
    statement: &mut Statement<'_>,
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
        statement.execute([job, i64::from(is_output), block.first + i64::from(number)])?;
    }
    Ok(())
}
