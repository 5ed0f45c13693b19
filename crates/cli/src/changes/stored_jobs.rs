//! The stored jobs of a workflow in the form that the comparison needs.

use super::job_command_pages::{JobCommandPages, PagedJobCommand};
use super::user_data::{self, WorkflowUserData};
use crate::error::CliError;
use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use windlass_core::dependency_edges::DependencyEdges;
use windlass_core::reuse::{self, NameSetDigest, PreviousJob, ReuseDefinition};
use windlass_store::Store;
use windlass_store::model::{
    CompletedWork, CompletionRecord, DataFilter, JobParameters, LoadedJobs, UserDataRow, WorkflowRow,
};
use windlass_types::{JobId, JobStatus, Timestamp};

/// Number of jobs whose names are read at once.
const NAMES_PER_PAGE: usize = 1024;

pub(crate) struct StoredJobs<'a> {
    store: &'a dyn Store,
    row: &'a WorkflowRow,
    loaded_jobs: LoadedJobs,
    /// By job number.
    records: HashMap<u32, CompletionRecord>,
    data: WorkflowUserData,
    /// Jobs that added other jobs, ascending.
    spawners: Vec<JobId>,
    names: OnceCell<StoredJobNames>,
    /// Dependencies by job number.
    depends_on: OnceCell<Vec<NameSetDigest>>,
    pages: JobCommandPages,
    read_error: RefCell<Option<windlass_store::StoreError>>,
}

#[derive(Default)]
struct StoredJobNames {
    numbers: HashMap<String, u32>,
    /// By job number.
    digests: Vec<NameSetDigest>,
}

impl<'a> StoredJobs<'a> {
    pub(crate) fn load(store: &'a dyn Store, row: &'a WorkflowRow) -> Result<Self, CliError> {
        let table = store.load_jobs(row.id)?;
        let number = |id: JobId| table.ids.binary_search(&id).ok().map(|number| number as u32);
        let records = store.completion_records(row.id)?.into_iter();
        let records = records.filter_map(|record| Some((number(record.job)?, record))).collect();
        let data = WorkflowUserData::load(store, row, number)?;
        Ok(Self {
            store,
            row,
            loaded_jobs: table,
            records,
            data,
            spawners: store.spawning_jobs(row.id)?,
            names: OnceCell::new(),
            depends_on: OnceCell::new(),
            pages: JobCommandPages::default(),
            read_error: RefCell::default(),
        })
    }

    pub(crate) fn workflow_row(&self) -> &WorkflowRow {
        self.row
    }

    pub(crate) fn count(&self) -> u32 {
        self.loaded_jobs.ids.len() as u32
    }

    pub(crate) fn loaded_jobs(&self) -> &LoadedJobs {
        &self.loaded_jobs
    }

    pub(super) fn edges(&self) -> &DependencyEdges {
        &self.loaded_jobs.edges
    }

    pub(crate) fn id(&self, number: u32) -> JobId {
        self.loaded_jobs.ids[number as usize]
    }

    /// Whether the job added jobs to its workflow.
    pub(super) fn has_spawned_jobs(&self, number: u32) -> bool {
        self.spawners.binary_search(&self.id(number)).is_ok()
    }

    pub(crate) fn status(&self, number: u32) -> JobStatus {
        self.loaded_jobs.status[number as usize]
    }

    pub(crate) fn name(&self, number: u32) -> String {
        self.load_command(number).map(|job| job.name.clone()).unwrap_or_default()
    }

    /// The attempt whose result counts for this completed job.
    pub(crate) fn completed_work(&self, number: u32) -> Option<&CompletedWork> {
        self.records.get(&number).map(|record| &record.work)
    }

    pub(crate) fn user_data(&self) -> &[UserDataRow] {
        &self.data.rows
    }

    /// The paths of all declared files.
    pub(super) fn paths(&self) -> BTreeSet<String> {
        let rows = self.keep_error(self.store.files(self.row.id, &DataFilter::default())).unwrap_or_default();
        rows.into_iter().map(|file| file.path).collect()
    }

    /// The number of the job with that name.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        self.names().numbers.get(name).copied()
    }

    fn names(&self) -> &StoredJobNames {
        self.names.get_or_init(|| {
            let mut all = StoredJobNames::default();
            for ids in self.loaded_jobs.ids.chunks(NAMES_PER_PAGE) {
                let names = self.keep_error(self.store.job_names(ids)).unwrap_or_default();
                all.digests.extend(names.iter().map(|name| NameSetDigest::from_names([name.as_str()])));
                let numbers = all.numbers.len() as u32..;
                all.numbers.extend(names.into_iter().zip(numbers));
            }
            all
        })
    }

    /// The dependencies of the job.
    pub(super) fn depends_on(&self, number: u32) -> Option<NameSetDigest> {
        let all = self.depends_on.get_or_init(|| {
            let digests = &self.names().digests;
            let digest = |number: u32| digests.get(number as usize).copied().unwrap_or_default();
            reuse::dependency_digests(self.count(), &self.loaded_jobs.edges, digest)
        });
        all.get(number as usize).copied()
    }

    /// The present definition of the job in the database.
    pub(super) fn definition(&self, number: u32) -> ReuseDefinition<'static> {
        self.build_definition(number, |piece, _| user_data::current_text(piece))
    }

    /// The definition of the job when it last ran, and the result of that run.
    pub(super) fn last_state(&self, number: u32) -> PreviousJob<'static> {
        let record = self.completed_work(number);
        // User data read by a reused job were compared with those of this workflow when the workflow was
        // created.
        let settled = |at: Timestamp| at.max(self.row.created_at);
        let since = record.and_then(|record| record.started_at).map(settled);
        let written =
            |writer: Option<u32>| self.completed_work(writer?).map(|record| settled(record.ended_at));
        let mut definition = self
            .build_definition(number, |piece, writer| user_data::text_as_of(piece, since, written(writer)));
        if let Some(command) = self.records.get(&number).and_then(|record| record.command.clone()) {
            definition.command = Cow::Owned(command);
        }
        PreviousJob {
            definition,
            status: self.status(number),
            files: record.and_then(|record| record.files.clone()),
            // Jobs added at run time are stored like any others.
            has_added: false,
        }
    }

    /// `data` returns the text of the user data that the job reads; it also receives the job that writes them.
    fn build_definition(
        &self,
        number: u32,
        data: impl Fn(&UserDataRow, Option<u32>) -> String,
    ) -> ReuseDefinition<'static> {
        let Some(job) = self.load_command(number) else { return ReuseDefinition::default() };
        let reads = self.data.read_by(number);
        let paths = |files: &[windlass_store::model::JobFile]| {
            files.iter().map(|file| Cow::Owned(file.path.clone())).collect()
        };
        ReuseDefinition {
            name: Cow::Owned(job.name.clone()),
            command: Cow::Owned(job.command.clone()),
            invocation_script: job.invocation_script.clone().map(Cow::Owned),
            env: Cow::Owned(merge_environment(&[&self.row.env, &job.env], &job.params)),
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

    fn load_command(&self, number: u32) -> Option<PagedJobCommand> {
        self.pages
            .get(number, &self.loaded_jobs.ids, |ids| self.keep_error(self.store.load_job_commands(ids)))
    }

    fn keep_error<T>(&self, result: Result<T, windlass_store::StoreError>) -> Option<T> {
        result.map_err(|error| *self.read_error.borrow_mut() = Some(error)).ok()
    }

    /// The first read error, if any.
    pub(crate) fn check_read_error(&self) -> Result<(), CliError> {
        self.read_error.take().map_or(Ok(()), |error| Err(error.into()))
    }
}

/// All environment variables of a job (later lists win) and its parameters.
pub(super) fn merge_environment(
    levels: &[&[(String, String)]],
    params: &JobParameters,
) -> Vec<(String, String)> {
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
