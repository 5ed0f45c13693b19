//! The jobs of a workflow in the books, as the comparison wants them.

use super::data::{self, Data};
use super::pages::{JobRef, Pages};
use crate::error::CliError;
use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use windlass_core::edges::Edges;
use windlass_core::reuse::{self, Before, Definition, NamesDigest};
use windlass_store::Store;
use windlass_store::model::{DataFilter, DoneWork, LastRecord, LoadedJobs, Params, UserDataRow, WorkflowRow};
use windlass_types::{JobId, JobStatus, Timestamp};

/// Jobs whose names are read at once.
const NAMES: usize = 1024;

pub(crate) struct Books<'a> {
    store: &'a dyn Store,
    row: &'a WorkflowRow,
    table: LoadedJobs,
    /// By number.
    records: HashMap<u32, LastRecord>,
    data: Data,
    /// Jobs that have added others, ascending.
    spawners: Vec<JobId>,
    names: OnceCell<Names>,
    /// By number: whom the job waits for.
    depends_on: OnceCell<Vec<NamesDigest>>,
    pages: Pages,
    trouble: RefCell<Option<windlass_store::Error>>,
}

#[derive(Default)]
struct Names {
    numbers: HashMap<String, u32>,
    /// By number.
    digests: Vec<NamesDigest>,
}

impl<'a> Books<'a> {
    pub(crate) fn load(store: &'a dyn Store, row: &'a WorkflowRow) -> Result<Self, CliError> {
        let table = store.load_jobs(row.id)?;
        let number = |id: JobId| table.ids.binary_search(&id).ok().map(|number| number as u32);
        let records = store.last_records(row.id)?.into_iter();
        let records = records.filter_map(|record| Some((number(record.job)?, record))).collect();
        let data = Data::load(store, row, number)?;
        Ok(Self {
            store,
            row,
            table,
            records,
            data,
            spawners: store.spawners(row.id)?,
            names: OnceCell::new(),
            depends_on: OnceCell::new(),
            pages: Pages::default(),
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

    /// Whether it added jobs to its workflow.
    pub(super) fn has_added(&self, number: u32) -> bool {
        self.spawners.binary_search(&self.id(number)).is_ok()
    }

    pub(crate) fn status(&self, number: u32) -> JobStatus {
        self.table.status[number as usize]
    }

    pub(crate) fn name(&self, number: u32) -> String {
        self.command(number).map(|job| job.name.clone()).unwrap_or_default()
    }

    /// The attempt whose work counts as that of this completed job.
    pub(crate) fn record(&self, number: u32) -> Option<&DoneWork> {
        self.records.get(&number).map(|record| &record.work)
    }

    pub(crate) fn user_data(&self) -> &[UserDataRow] {
        &self.data.rows
    }

    /// The paths of all files that it declares.
    pub(super) fn paths(&self) -> BTreeSet<String> {
        let rows = self.noted(self.store.files(self.row.id, &DataFilter::default())).unwrap_or_default();
        rows.into_iter().map(|file| file.path).collect()
    }

    /// The number of the job of that name.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        self.names().numbers.get(name).copied()
    }

    fn names(&self) -> &Names {
        self.names.get_or_init(|| {
            let mut all = Names::default();
            for ids in self.table.ids.chunks(NAMES) {
                let names = self.noted(self.store.job_names(ids)).unwrap_or_default();
                all.digests.extend(names.iter().map(|name| NamesDigest::of([name.as_str()])));
                let numbers = all.numbers.len() as u32..;
                all.numbers.extend(names.into_iter().zip(numbers));
            }
            all
        })
    }

    /// Whom the job waits for.
    pub(super) fn depends_on(&self, number: u32) -> Option<NamesDigest> {
        let all = self.depends_on.get_or_init(|| {
            let digests = &self.names().digests;
            let digest = |number: u32| digests.get(number as usize).copied().unwrap_or_default();
            reuse::dependencies(self.count(), &self.table.edges, digest)
        });
        all.get(number as usize).copied()
    }

    /// What the job is, as the books have it now.
    pub(super) fn definition(&self, number: u32) -> Definition<'static> {
        self.define(number, |piece, _| data::text(piece))
    }

    /// What the job was when it last ran, and how that went.
    pub(super) fn before(&self, number: u32) -> Before<'static> {
        let record = self.record(number);
        // What a reused job read was compared with the data of this workflow when that was made.
        let settled = |at: Timestamp| at.max(self.row.created_at);
        let since = record.and_then(|record| record.started_at).map(settled);
        let written = |writer: Option<u32>| self.record(writer?).map(|record| settled(record.ended_at));
        let mut definition =
            self.define(number, |piece, writer| data::text_as_of(piece, since, written(writer)));
        if let Some(command) = self.records.get(&number).and_then(|record| record.command.clone()) {
            definition.command = Cow::Owned(command);
        }
        Before {
            definition,
            status: self.status(number),
            files: record.and_then(|record| record.files.clone()),
            // What a job adds is in the books like any other.
            has_added: false,
        }
    }

    /// `data` gives the text of what it reads; it is also told who writes that.
    fn define(&self, number: u32, data: impl Fn(&UserDataRow, Option<u32>) -> String) -> Definition<'static> {
        let Some(job) = self.command(number) else { return Definition::default() };
        let reads = self.data.read_by(number);
        let paths = |files: &[windlass_store::model::JobFile]| {
            files.iter().map(|file| Cow::Owned(file.path.clone())).collect()
        };
        Definition {
            name: Cow::Owned(job.name.clone()),
            command: Cow::Owned(job.command.clone()),
            invocation_script: job.invocation_script.clone().map(Cow::Owned),
            env: Cow::Owned(environment(&[&self.row.env, &job.env], &job.params)),
            user_data: reads
                .map(|(piece, writer)| (Cow::Owned(piece.name.clone()), Cow::Owned(data(piece, writer))))
                .collect(),
            output_user_data: self
                .data
                .written_by(number)
                .map(|piece| Cow::Owned(piece.name.clone()))
                .collect(),
            inputs: paths(&job.input_files),
            outputs: paths(&job.output_files),
            depends_on: None,
        }
    }

    fn command(&self, number: u32) -> Option<JobRef> {
        self.pages.get(number, &self.table.ids, |ids| self.noted(self.store.commands(ids)))
    }

    fn noted<T>(&self, result: Result<T, windlass_store::Error>) -> Option<T> {
        result.map_err(|error| *self.trouble.borrow_mut() = Some(error)).ok()
    }

    /// Whatever could not be read meanwhile.
    pub(crate) fn trouble(&self) -> Result<(), CliError> {
        self.trouble.take().map_or(Ok(()), |error| Err(error.into()))
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
