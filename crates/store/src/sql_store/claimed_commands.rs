//! Reads jobs when they are claimed. Most of them have neither a job group nor files and cost only one lookup
//! by primary key.

use super::column_decoding;
use crate::StoreError;
use crate::db::{SqlConnection, SqlRow};
use crate::error::SqlError;
use crate::model::{JobCommand, JobFile, JobParameters};
use crate::sql::common as sql;
use std::collections::HashMap;
use windlass_types::settings::{ChangeDetection, WorkflowSettings};
use windlass_types::worker_messages::StdioSettings;
use windlass_types::{FileId, JobId};

pub(crate) fn load_commands(db: &impl SqlConnection, jobs: &[JobId]) -> Result<Vec<JobCommand>, SqlError> {
    let ids: Vec<i64> = jobs.iter().map(|job| job.0).collect();
    let mut found: Vec<(JobCommand, JobReferences)> = Vec::with_capacity(jobs.len());
    db.for_each_key(sql::JOB_COMMAND, &ids, |place, row| {
        require_all_found(jobs, found.len(), place)?;
        found.push((read_command(row, jobs[place])?, JobReferences::from_row(row)?));
        Ok(())
    })?;
    require_all_found(jobs, found.len(), jobs.len())?;
    let mut known = SharedLookupCache::default();
    let complete = |(mut command, refers): (JobCommand, JobReferences)| {
        if let Some(job_group) = refers.job_group {
            known.job_group(db, job_group)?.apply_defaults(&mut command);
        }
        if refers.has_files {
            command.hash_files = known.workflow_hashes_files(db, refers.workflow)?;
            add_files(db, &mut command)?;
        }
        Ok(command)
    };
    found.into_iter().map(complete).collect()
}

/// Requires that all rows up to `place` were found.
fn require_all_found(jobs: &[JobId], found: usize, place: usize) -> Result<(), SqlError> {
    match jobs.get(found) {
        Some(&job) if found < place => Err(StoreError::NoSuchJob(job).into()),
        _ => Ok(()),
    }
}

/// The job's own values.
fn read_command(row: &SqlRow<'_>, id: JobId) -> Result<JobCommand, SqlError> {
    Ok(JobCommand {
        id,
        name: row.get(0)?,
        command: row.get(1)?,
        invocation_script: row.get(5)?,
        env: column_decoding::read_env(row, 2)?,
        params: column_decoding::read_json::<JobParameters>(row, 6)?.unwrap_or_default(),
        stdio: None,
        input_files: Vec::new(),
        output_files: Vec::new(),
        hash_files: false,
    })
}

/// What else has to be loaded.
struct JobReferences {
    job_group: Option<i64>,
    has_files: bool,
    workflow: i64,
}

impl JobReferences {
    fn from_row(row: &SqlRow<'_>) -> Result<Self, SqlError> {
        Ok(Self {
            job_group: row.get(3)?,
            has_files: column_decoding::read_flag(row, 4)?,
            workflow: row.get(7)?,
        })
    }
}

/// Values shared by jobs of one call, loaded once.
#[derive(Default)]
struct SharedLookupCache {
    job_groups: HashMap<i64, JobGroupDefaults>,
    hashes_files: HashMap<i64, bool>,
}

impl SharedLookupCache {
    fn job_group(&mut self, db: &impl SqlConnection, id: i64) -> Result<&JobGroupDefaults, SqlError> {
        use std::collections::hash_map::Entry;
        match self.job_groups.entry(id) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let job_group = db.query_one(sql::JOB_GROUP, [id], JobGroupDefaults::from_row)?;
                Ok(place.insert(job_group))
            }
        }
    }

    fn workflow_hashes_files(&mut self, db: &impl SqlConnection, workflow: i64) -> Result<bool, SqlError> {
        if let Some(&known) = self.hashes_files.get(&workflow) {
            return Ok(known);
        }
        let settings: WorkflowSettings =
            db.query_one(sql::SETTINGS, [workflow], |row| column_decoding::read_required_json(row, 0))?;
        let hashes = settings.change_detection == Some(ChangeDetection::Content);
        self.hashes_files.insert(workflow, hashes);
        Ok(hashes)
    }
}

/// Values from the job group.
struct JobGroupDefaults {
    env: Vec<(String, String)>,
    invocation_script: Option<String>,
    stdio: Option<StdioSettings>,
}

impl JobGroupDefaults {
    fn from_row(row: &SqlRow<'_>) -> Result<Self, SqlError> {
        Ok(Self {
            env: column_decoding::read_env(row, 0)?,
            invocation_script: row.get(1)?,
            stdio: column_decoding::read_stdio(row, 2)?,
        })
    }

    /// The job's own values take precedence.
    fn apply_defaults(&self, command: &mut JobCommand) {
        command.stdio = self.stdio;
        if command.invocation_script.is_none() {
            command.invocation_script.clone_from(&self.invocation_script);
        }
        command.env = merge_env(&self.env, std::mem::take(&mut command.env));
    }
}

/// Inherited variables come first, except those that the job overrides.
pub(crate) fn merge_env(inherited: &[(String, String)], own: Vec<(String, String)>) -> Vec<(String, String)> {
    let unsaid = inherited.iter().filter(|(name, _)| own.iter().all(|(mine, _)| mine != name));
    let mut env: Vec<_> = unsaid.cloned().collect();
    env.extend(own);
    env
}

fn add_files(db: &impl SqlConnection, command: &mut JobCommand) -> Result<(), SqlError> {
    db.query_each(sql::PATHS_OF_JOB, [command.id.0], |row| {
        let file = JobFile { id: FileId(row.get(1)?), path: row.get(2)? };
        let list = if column_decoding::read_flag(row, 0)? {
            &mut command.output_files
        } else {
            &mut command.input_files
        };
        list.push(file);
        Ok(())
    })?;
    Ok(())
}
