//! The jobs, files and user data of an export file, as a new workflow takes them.

use super::bad;
use crate::Error;
use crate::model::export::{Export, ExportedJob, ExportedKind, SharedByKind};
use crate::model::{FirstIds, JobSource, NewFile, NewJob, NewKind, NewUserData};
use std::collections::HashMap;
use windlass_types::JobStatus;

/// From the ids of a file to numbers in the order of the file.
pub(super) struct Ids {
    what: &'static str,
    numbers: HashMap<i64, u32>,
}

impl Ids {
    fn of(what: &'static str, ids: impl Iterator<Item = i64>) -> Result<Self, Error> {
        let mut numbers = HashMap::new();
        for (number, id) in (0..).zip(ids) {
            if numbers.insert(id, number).is_some() {
                return Err(bad(format!("two {what} have the id {id}")));
            }
        }
        Ok(Self { what, numbers })
    }

    pub(super) fn one(&self, id: i64, by: impl FnOnce() -> String) -> Result<u32, Error> {
        let found = self.numbers.get(&id).copied();
        found.ok_or_else(|| bad(format!("{} refers to {id}, which is not among its {}", by(), self.what)))
    }

    pub(super) fn all(&self, ids: &[i64], by: &str) -> Result<Vec<u32>, Error> {
        ids.iter().map(|&id| self.one(id, || by.to_owned())).collect()
    }

    fn maybe(&self, id: Option<i64>, by: &str) -> Result<Option<u32>, Error> {
        id.map(|id| self.one(id, || by.to_owned())).transpose()
    }
}

/// What the ids of a file stand for.
pub(super) struct Numbers {
    pub(super) jobs: Ids,
    files: Ids,
    user_data: Ids,
    requirements: Ids,
    handlers: Ids,
    schedulers: Ids,
}

impl Numbers {
    pub(super) fn of(export: &Export) -> Result<Self, Error> {
        Ok(Self {
            jobs: Ids::of("jobs", export.jobs.iter().map(|row| row.id))?,
            files: Ids::of("files", export.files.iter().map(|row| row.id))?,
            user_data: Ids::of("user data", export.user_data.iter().map(|row| row.id))?,
            requirements: Ids::of(
                "resource requirements",
                export.resource_requirements.iter().map(|row| row.id),
            )?,
            handlers: Ids::of("failure handlers", export.failure_handlers.iter().map(|row| row.id))?,
            schedulers: Ids::of("schedulers", export.slurm_schedulers.iter().map(|row| row.id))?,
        })
    }
}

/// The kinds of a file, and those made for jobs that say themselves what a kind would say.
pub(super) struct Kinds<'e> {
    pub(super) list: Vec<Kind<'e>>,
    by_id: HashMap<i64, u32>,
    by_shared: HashMap<&'e SharedByKind, u32>,
}

pub(super) struct Kind<'e> {
    name: &'e str,
    shared: &'e SharedByKind,
    /// Where it stands as a kind in the file.
    row: Option<&'e ExportedKind>,
}

impl<'e> Kinds<'e> {
    pub(super) fn of(export: &'e Export) -> Self {
        let mut kinds = Self { list: Vec::new(), by_id: HashMap::new(), by_shared: HashMap::new() };
        for row in &export.job_kinds {
            kinds.by_id.insert(row.id, kinds.list.len() as u32);
            kinds.list.push(Kind { name: &row.name, shared: &row.shared, row: Some(row) });
        }
        let nothing = SharedByKind::default();
        for job in export.jobs.iter().filter(|job| job.kind_id.is_none() && job.shared != nothing) {
            let list = &mut kinds.list;
            kinds.by_shared.entry(&job.shared).or_insert_with(|| {
                list.push(Kind { name: &job.name, shared: &job.shared, row: None });
                list.len() as u32 - 1
            });
        }
        kinds
    }

    fn number(&self, job: &ExportedJob) -> Result<Option<u32>, Error> {
        let Some(id) = job.kind_id else { return Ok(self.by_shared.get(&job.shared).copied()) };
        let found = self.by_id.get(&id).copied();
        let missing = || bad(format!("job `{}` refers to the kind {id}, which is not in it", job.name));
        found.map(Some).ok_or_else(missing)
    }
}

impl<'e> Kind<'e> {
    pub(super) fn resolve(&self, numbers: &Numbers) -> Result<NewKind<'e>, Error> {
        let Self { name, shared, row } = *self;
        Ok(NewKind {
            name,
            env: row.map_or(&[], |row| &row.env),
            invocation_script: row.and_then(|row| row.invocation_script.as_deref()),
            stdio: shared.stdio,
            supports_termination: shared.supports_termination,
            failure_handler: numbers.handlers.maybe(shared.failure_handler_id, name)?,
            scheduler: numbers.schedulers.maybe(shared.scheduler_id, name)?,
            labels: &shared.labels,
            sites: row.map_or(&[], |row| &row.sites),
            limit: row.and_then(|row| row.limit.as_deref()),
            elects: row.is_some_and(|row| row.elects),
            parameters: row.map_or(&[], |row| &row.parameters),
        })
    }
}

/// What a job refers to, by number.
struct Refers {
    kind: Option<u32>,
    requirements: Option<u32>,
    /// Input files, output files, input user data, output user data.
    lists: [Vec<u32>; 4],
    params: Option<String>,
    env: Vec<(String, String)>,
}

/// Lends one thing after the other. What jobs refer to was looked up before the first one is asked for, because a
/// source cannot fail.
pub(super) struct Source<'e> {
    export: &'e Export,
    kinds: &'e Kinds<'e>,
    refers: Vec<Refers>,
    with_results: bool,
    next_file: usize,
    next_user_data: usize,
    next_job: usize,
}

impl<'e> Source<'e> {
    pub(super) fn new(
        export: &'e Export,
        numbers: &Numbers,
        kinds: &'e Kinds<'e>,
        with_results: bool,
    ) -> Result<Self, Error> {
        let refers = export.jobs.iter().map(|job| refers(job, numbers, kinds)).collect::<Result<_, _>>()?;
        Ok(Self { export, kinds, refers, with_results, next_file: 0, next_user_data: 0, next_job: 0 })
    }

    fn status(&self, job: &ExportedJob) -> JobStatus {
        let waits = !job.depends_on_job_ids.is_empty() || !job.depends_on_gates.is_empty();
        let fresh = if waits { JobStatus::Blocked } else { JobStatus::Ready };
        match job.status.filter(|_| self.with_results) {
            // Nobody holds it here.
            Some(status) if status.is_active() => JobStatus::Ready,
            Some(status) => status,
            None => fresh,
        }
    }
}

fn refers(job: &ExportedJob, numbers: &Numbers, kinds: &Kinds<'_>) -> Result<Refers, Error> {
    let by = format!("job `{}`", job.name);
    let params = (!job.parameters.is_empty()).then(|| serde_json::to_string(&job.parameters));
    let kind = kinds.number(job)?;
    let inherited = kind.and_then(|kind| kinds.list[kind as usize].row).map_or(&[][..], |row| &row.env);
    Ok(Refers {
        kind,
        requirements: numbers.requirements.maybe(job.resource_requirements_id, &by)?,
        lists: [
            numbers.files.all(&job.input_file_ids, &by)?,
            numbers.files.all(&job.output_file_ids, &by)?,
            numbers.user_data.all(&job.input_user_data_ids, &by)?,
            numbers.user_data.all(&job.output_user_data_ids, &by)?,
        ],
        params: params.transpose().map_err(|e| bad(format!("{by}: {e}")))?,
        env: job.env.iter().filter(|pair| !inherited.contains(pair)).cloned().collect(),
    })
}

impl JobSource for Source<'_> {
    fn start(&mut self, _first: FirstIds) {}

    fn next_file(&mut self) -> Option<NewFile<'_>> {
        let row = self.export.files.get(self.next_file)?;
        self.next_file += 1;
        let mtime_ns = row.mtime_ns.or_else(|| row.st_mtime.map(|seconds| (seconds * 1e9) as i64));
        Some(NewFile { name: &row.name, path: &row.path, identifier: row.identifier.as_deref(), mtime_ns })
    }

    fn next_user_data(&mut self) -> Option<NewUserData<'_>> {
        let row = self.export.user_data.get(self.next_user_data)?;
        self.next_user_data += 1;
        Some(NewUserData { name: &row.name, data: row.data.as_ref(), is_ephemeral: row.is_ephemeral })
    }

    fn next(&mut self) -> Option<NewJob<'_>> {
        let job = self.export.jobs.get(self.next_job)?;
        let refers = &self.refers[self.next_job];
        self.next_job += 1;
        let kind = refers.kind.and_then(|kind| self.kinds.list[kind as usize].row);
        let inherited = kind.and_then(|row| row.invocation_script.as_deref());
        let [input_files, output_files, input_user_data, output_user_data] = &refers.lists;
        Some(NewJob {
            name: &job.name,
            command: &job.command,
            env: &refers.env,
            invocation_script: job.invocation_script.as_deref().filter(|own| Some(*own) != inherited),
            params: refers.params.as_deref(),
            kind: refers.kind,
            requirements: refers.requirements,
            unit: job.unit,
            priority: job.priority,
            cancel_on_blocking_job_failure: job.cancel_on_blocking_job_failure.unwrap_or(true),
            status: self.status(job),
            reused_from: None,
            reused_work: None,
            input_files,
            output_files,
            input_user_data,
            output_user_data,
        })
    }
}
