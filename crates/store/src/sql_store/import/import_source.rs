//! A [`JobSource`](crate::model::JobSource) for the jobs, files and user data of an export file.

use super::bad_export_error;
use crate::StoreError;
use crate::model::export::{ExportedJob, ExportedJobGroup, SharedByGroup, WorkflowExport};
use crate::model::{FirstIds, JobSource, NewFile, NewJob, NewUserData};
use std::borrow::Cow;
use std::collections::HashMap;
use windlass_types::{JobDefinition, JobGroup, JobSettings, JobStatus};

/// Maps ids of a file to indices in the order of the file.
pub(super) struct ImportedIds {
    what: &'static str,
    numbers: HashMap<i64, u32>,
}

impl ImportedIds {
    fn from_ids(what: &'static str, ids: impl Iterator<Item = i64>) -> Result<Self, StoreError> {
        let mut numbers = HashMap::new();
        for (number, id) in (0..).zip(ids) {
            if numbers.insert(id, number).is_some() {
                return Err(bad_export_error(format!("two {what} have the id {id}")));
            }
        }
        Ok(Self { what, numbers })
    }

    pub(super) fn resolve(&self, id: i64, by: impl FnOnce() -> String) -> Result<u32, StoreError> {
        let found = self.numbers.get(&id).copied();
        found.ok_or_else(|| {
            bad_export_error(format!("{} refers to {id}, which is not among its {}", by(), self.what))
        })
    }

    pub(super) fn resolve_all(&self, ids: &[i64], by: &str) -> Result<Vec<u32>, StoreError> {
        ids.iter().map(|&id| self.resolve(id, || by.to_owned())).collect()
    }

    fn resolve_optional(&self, id: Option<i64>, by: &str) -> Result<Option<u32>, StoreError> {
        id.map(|id| self.resolve(id, || by.to_owned())).transpose()
    }
}

/// Maps all ids of a file.
pub(super) struct ImportNumbering {
    pub(super) jobs: ImportedIds,
    files: ImportedIds,
    user_data: ImportedIds,
    requirements: ImportedIds,
    handlers: ImportedIds,
    schedulers: ImportedIds,
}

impl ImportNumbering {
    pub(super) fn from_export(export: &WorkflowExport) -> Result<Self, StoreError> {
        Ok(Self {
            jobs: ImportedIds::from_ids("jobs", export.jobs.iter().map(|row| row.id))?,
            files: ImportedIds::from_ids("files", export.files.iter().map(|row| row.id))?,
            user_data: ImportedIds::from_ids("user data", export.user_data.iter().map(|row| row.id))?,
            requirements: ImportedIds::from_ids(
                "resource requirements",
                export.resource_requirements.iter().map(|row| row.id),
            )?,
            handlers: ImportedIds::from_ids(
                "failure handlers",
                export.failure_handlers.iter().map(|row| row.id),
            )?,
            schedulers: ImportedIds::from_ids(
                "schedulers",
                export.slurm_schedulers.iter().map(|row| row.id),
            )?,
        })
    }
}

/// The job groups of a file, and those created for jobs with values that are stored in job groups.
pub(super) struct ImportedJobGroups<'e> {
    pub(super) list: Vec<ImportedJobGroup<'e>>,
    by_id: HashMap<i64, u32>,
    by_shared: HashMap<&'e SharedByGroup, u32>,
}

pub(super) struct ImportedJobGroup<'e> {
    name: &'e str,
    shared: &'e SharedByGroup,
    /// Index of the job group in the file.
    row: Option<&'e ExportedJobGroup>,
}

impl<'e> ImportedJobGroups<'e> {
    pub(super) fn from_export(export: &'e WorkflowExport) -> Self {
        let mut job_groups = Self { list: Vec::new(), by_id: HashMap::new(), by_shared: HashMap::new() };
        for row in &export.job_groups {
            job_groups.by_id.insert(row.id, job_groups.list.len() as u32);
            job_groups.list.push(ImportedJobGroup { name: &row.name, shared: &row.shared, row: Some(row) });
        }
        let nothing = SharedByGroup::default();
        for job in export.jobs.iter().filter(|job| job.kind_id.is_none() && job.shared != nothing) {
            let list = &mut job_groups.list;
            job_groups.by_shared.entry(&job.shared).or_insert_with(|| {
                list.push(ImportedJobGroup { name: &job.name, shared: &job.shared, row: None });
                list.len() as u32 - 1
            });
        }
        job_groups
    }

    fn group_number(&self, job: &ExportedJob) -> Result<Option<u32>, StoreError> {
        let Some(id) = job.kind_id else { return Ok(self.by_shared.get(&job.shared).copied()) };
        let found = self.by_id.get(&id).copied();
        let missing = || {
            bad_export_error(format!("job `{}` refers to job group {id}, which is not in the file", job.name))
        };
        found.map(Some).ok_or_else(missing)
    }
}

impl ImportedJobGroup<'_> {
    pub(super) fn to_new_group(&self, numbers: &ImportNumbering) -> Result<JobGroup<u32>, StoreError> {
        let Self { name, shared, row } = *self;
        let settings = JobSettings {
            stdio: shared.stdio,
            supports_termination: shared.supports_termination,
            failure_handler: numbers.handlers.resolve_optional(shared.failure_handler_id, name)?,
            scheduler: numbers.schedulers.resolve_optional(shared.scheduler_id, name)?,
            labels: shared.labels.clone(),
            sites: row.map(|row| row.sites.clone()).unwrap_or_default(),
            limit: row.and_then(|row| row.limit.clone()),
        };
        Ok(JobGroup {
            name: name.to_owned(),
            env: row.map(|row| row.env.clone()).unwrap_or_default(),
            invocation_script: row.and_then(|row| row.invocation_script.clone()),
            settings,
            parameters: row.map(|row| row.parameters.clone()).unwrap_or_default(),
            elects_site: row.is_some_and(|row| row.elects),
        })
    }
}

/// Indices of the objects that a job refers to.
struct ImportedJobRefs {
    job_group: Option<u32>,
    definition: JobDefinition<u32>,
    /// Input files, output files, input user data, output user data.
    lists: [Vec<u32>; 4],
    params: Option<String>,
}

/// Returns one object after the other. References of jobs were resolved before the first one is read, because a
/// source cannot fail.
pub(super) struct ImportSource<'e> {
    export: &'e WorkflowExport,
    job_refs: Vec<ImportedJobRefs>,
    with_results: bool,
    next_file: usize,
    next_user_data: usize,
    next_job: usize,
}

impl<'e> ImportSource<'e> {
    pub(super) fn new(
        export: &'e WorkflowExport,
        numbers: &ImportNumbering,
        job_groups: &ImportedJobGroups<'_>,
        with_results: bool,
    ) -> Result<Self, StoreError> {
        let refers = export
            .jobs
            .iter()
            .map(|job| resolve_job_refs(job, numbers, job_groups))
            .collect::<Result<_, _>>()?;
        Ok(Self { export, job_refs: refers, with_results, next_file: 0, next_user_data: 0, next_job: 0 })
    }

    fn initial_status(&self, job: &ExportedJob) -> JobStatus {
        let waits = !job.depends_on_job_ids.is_empty() || !job.depends_on_groups.is_empty();
        let fresh = if waits { JobStatus::Blocked } else { JobStatus::Ready };
        match job.status.filter(|_| self.with_results) {
            // No worker holds it here.
            Some(status) if status.is_active() => JobStatus::Ready,
            Some(status) => status,
            None => fresh,
        }
    }
}

fn resolve_job_refs(
    job: &ExportedJob,
    numbers: &ImportNumbering,
    job_groups: &ImportedJobGroups<'_>,
) -> Result<ImportedJobRefs, StoreError> {
    let by = format!("job `{}`", job.name);
    let params = (!job.parameters.is_empty()).then(|| serde_json::to_string(&job.parameters));
    let job_group = job_groups.group_number(job)?;
    let group_row = job_group.and_then(|job_group| job_groups.list[job_group as usize].row);
    let inherited_env = group_row.map_or(&[][..], |row| &row.env);
    let inherited_script = group_row.and_then(|row| row.invocation_script.as_ref());
    // The settings of a job are those of its job group.
    let definition = JobDefinition {
        invocation_script: job.invocation_script.clone().filter(|own| Some(own) != inherited_script),
        env: job.env.iter().filter(|pair| !inherited_env.contains(pair)).cloned().collect(),
        resource_requirements: numbers.requirements.resolve_optional(job.resource_requirements_id, &by)?,
        priority: job.priority,
        cancel_on_blocking_job_failure: job.cancel_on_blocking_job_failure.unwrap_or(true),
        options: job.options.clone(),
        ..JobDefinition::new(&*job.name, &*job.command)
    };
    Ok(ImportedJobRefs {
        job_group,
        definition,
        lists: [
            numbers.files.resolve_all(&job.input_file_ids, &by)?,
            numbers.files.resolve_all(&job.output_file_ids, &by)?,
            numbers.user_data.resolve_all(&job.input_user_data_ids, &by)?,
            numbers.user_data.resolve_all(&job.output_user_data_ids, &by)?,
        ],
        params: params.transpose().map_err(|e| bad_export_error(format!("{by}: {e}")))?,
    })
}

impl JobSource for ImportSource<'_> {
    fn set_first_ids(&mut self, _first: FirstIds) {}

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

    fn next_job(&mut self) -> Option<NewJob<'_>> {
        let job = self.export.jobs.get(self.next_job)?;
        let refers = &self.job_refs[self.next_job];
        self.next_job += 1;
        let [input_files, output_files, input_user_data, output_user_data] = &refers.lists;
        Some(NewJob {
            definition: Cow::Borrowed(&refers.definition),
            params: refers.params.as_deref(),
            job_group: refers.job_group,
            unit: job.unit,
            status: self.initial_status(job),
            reused_from: None,
            reused_work: None,
            input_files,
            output_files,
            input_user_data,
            output_user_data,
        })
    }
}
