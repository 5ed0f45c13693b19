//! The jobs of a workflow in the books, as the comparison wants them. Commands are read a page at a time, so that a
//! million of them need not be in memory at once.

use crate::error::CliError;
use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use windlass_core::edges::Edges;
use windlass_core::reuse::{Before, Definition};
use windlass_store::Store as _;
use windlass_store::model::{
    DataFilter, JobCommand, LastRecord, LoadedJobs, Params, UserDataRow, WorkflowRow,
};
use windlass_store::sqlite::SqliteStore;
use windlass_types::{JobId, JobStatus, Timestamp, UserDataId};

/// Jobs whose commands are read at once, and how many such pages are kept.
const PAGE: u32 = 1024;
const PAGES: usize = 32;

pub(crate) struct Books<'a> {
    store: &'a SqliteStore,
    row: &'a WorkflowRow,
    table: LoadedJobs,
    /// By number.
    records: HashMap<u32, LastRecord>,
    user_data: Vec<UserDataRow>,
    /// The user data that each job reads and no job writes, by number of the job: indices into `user_data`.
    reads: HashMap<u32, Vec<usize>>,
    numbers: OnceCell<HashMap<String, u32>>,
    pages: RefCell<HashMap<u32, Rc<Vec<JobCommand>>>>,
    trouble: RefCell<Option<windlass_store::Error>>,
}

impl<'a> Books<'a> {
    pub(crate) fn load(store: &'a SqliteStore, row: &'a WorkflowRow) -> Result<Self, CliError> {
        let table = store.load_jobs(row.id)?;
        let number = |id: JobId| table.ids.binary_search(&id).ok().map(|number| number as u32);
        let records = store.last_records(row.id)?.into_iter();
        let records = records.filter_map(|record| Some((number(record.job)?, record))).collect();
        let user_data = store.user_data(row.id, &DataFilter::default())?;
        let reads = reads(store, row, &user_data, number)?;
        Ok(Self {
            store,
            row,
            table,
            records,
            user_data,
            reads,
            numbers: OnceCell::new(),
            pages: RefCell::default(),
            trouble: RefCell::default(),
        })
    }

    pub(crate) fn row(&self) -> &WorkflowRow {
        self.row
    }

    pub(crate) fn count(&self) -> u32 {
        self.table.ids.len() as u32
    }

    pub(crate) fn table(&self) -> &LoadedJobs {
        &self.table
    }

    pub(super) fn edges(&self) -> &Edges {
        &self.table.edges
    }

    pub(crate) fn id(&self, number: u32) -> JobId {
        self.table.ids[number as usize]
    }

    pub(crate) fn status(&self, number: u32) -> JobStatus {
        self.table.status[number as usize]
    }

    pub(crate) fn name(&self, number: u32) -> String {
        self.command(number).map(|job| job.name.clone()).unwrap_or_default()
    }

    /// The attempt whose work counts as that of this completed job.
    pub(crate) fn record(&self, number: u32) -> Option<&LastRecord> {
        self.records.get(&number)
    }

    pub(crate) fn user_data(&self) -> &[UserDataRow] {
        &self.user_data
    }

    /// The number of the job of that name.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get_or_init(|| self.read_names()).get(name).copied()
    }

    fn read_names(&self) -> HashMap<String, u32> {
        let mut numbers = HashMap::with_capacity(self.table.ids.len());
        for (page, ids) in (0u32..).zip(self.table.ids.chunks(PAGE as usize)) {
            let names = self.noted(self.store.job_names(ids)).unwrap_or_default();
            numbers.extend(names.into_iter().zip(page * PAGE..));
        }
        numbers
    }

    /// What the job is, as the books have it now.
    pub(super) fn definition(&self, number: u32) -> Definition<'static> {
        let data = |piece: &UserDataRow| text_of(piece);
        self.define(number, data)
    }

    /// What the job was when it last ran, and how that went.
    pub(super) fn before(&self, number: u32) -> Before<'static> {
        let record = self.record(number);
        // What a reused job read was compared with the data of this workflow when that was made.
        let since = record.and_then(|record| record.started_at).map(|at| at.max(self.row.created_at));
        let mut definition = self.define(number, |piece| text_as_of(piece, since));
        if let Some(command) = record.and_then(|record| record.command.clone()) {
            definition.command = Cow::Owned(command);
        }
        Before {
            definition,
            status: self.status(number),
            files: record.and_then(|record| record.files.clone()),
        }
    }

    fn define(&self, number: u32, data: impl Fn(&UserDataRow) -> String) -> Definition<'static> {
        let Some(job) = self.command(number) else { return Definition::default() };
        let pieces = self.reads.get(&number).into_iter().flatten().map(|index| &self.user_data[*index]);
        let paths = |files: &[windlass_store::model::JobFile]| {
            files.iter().map(|file| Cow::Owned(file.path.clone())).collect()
        };
        Definition {
            name: Cow::Owned(job.name.clone()),
            command: Cow::Owned(job.command.clone()),
            invocation_script: job.invocation_script.clone().map(Cow::Owned),
            env: Cow::Owned(environment(&[&self.row.env, &job.env], &job.params)),
            user_data: pieces
                .map(|piece| (Cow::Owned(piece.name.clone()), Cow::Owned(data(piece))))
                .collect(),
            inputs: paths(&job.input_files),
            outputs: paths(&job.output_files),
            depends_on: None,
        }
    }

    fn command(&self, number: u32) -> Option<JobRef> {
        let (page, index) = (number / PAGE, (number % PAGE) as usize);
        if let Some(known) = self.pages.borrow().get(&page) {
            return JobRef::new(known, index);
        }
        let ids = self.table.ids.chunks(PAGE as usize).nth(page as usize)?;
        let read = Rc::new(self.noted(self.store.commands(ids))?);
        let mut pages = self.pages.borrow_mut();
        if pages.len() >= PAGES {
            pages.clear();
        }
        pages.insert(page, Rc::clone(&read));
        JobRef::new(&read, index)
    }

    fn noted<T>(&self, result: Result<T, windlass_store::Error>) -> Option<T> {
        result.map_err(|error| *self.trouble.borrow_mut() = Some(error)).ok()
    }

    /// Whatever could not be read meanwhile.
    pub(crate) fn trouble(&self) -> Result<(), CliError> {
        self.trouble.take().map_or(Ok(()), |error| Err(error.into()))
    }
}

/// A job in a page.
struct JobRef {
    page: Rc<Vec<JobCommand>>,
    index: usize,
}

impl JobRef {
    fn new(page: &Rc<Vec<JobCommand>>, index: usize) -> Option<Self> {
        (index < page.len()).then(|| Self { page: Rc::clone(page), index })
    }
}

impl std::ops::Deref for JobRef {
    type Target = JobCommand;

    fn deref(&self) -> &JobCommand {
        &self.page[self.index]
    }
}

/// What a job writes for another to read is the business of the two; only what comes from outside can change here.
fn reads(
    store: &SqliteStore,
    row: &WorkflowRow,
    user_data: &[UserDataRow],
    number: impl Fn(JobId) -> Option<u32>,
) -> Result<HashMap<u32, Vec<usize>>, CliError> {
    if user_data.is_empty() {
        return Ok(HashMap::new());
    }
    let relations = store.job_user_data(row.id)?;
    let written: HashSet<UserDataId> =
        relations.iter().filter(|one| one.is_output).map(|one| one.user_data_id).collect();
    let index: HashMap<UserDataId, usize> =
        user_data.iter().enumerate().map(|(index, piece)| (piece.id, index)).collect();
    let mut reads: HashMap<u32, Vec<usize>> = HashMap::new();
    for one in relations.iter().filter(|one| !one.is_output && !written.contains(&one.user_data_id)) {
        if let (Some(number), Some(index)) = (number(one.job_id), index.get(&one.user_data_id)) {
            reads.entry(number).or_default().push(*index);
        }
    }
    Ok(reads)
}

fn text_of(piece: &UserDataRow) -> String {
    piece.data.as_ref().map_or_else(|| "null".to_owned(), ToString::to_string)
}

/// The books keep the present data only, and when they were set.
fn text_as_of(piece: &UserDataRow, started: Option<Timestamp>) -> String {
    match started {
        Some(at) if piece.changed_at > at => format!("(as it was on {at})"),
        _ => text_of(piece),
    }
}

/// All that is set for a job, the later lists winning, and its parameters.
pub(super) fn environment(levels: &[&[(String, String)]], params: &Params) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for (name, value) in levels.iter().copied().flatten() {
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => known.clone_from(value),
            None => all.push((name.clone(), value.clone())),
        }
    }
    all.extend(params.0.iter().map(|(name, value)| (format!("parameter {name}"), value.to_string())));
    all
}
