//! What is read of jobs when they are claimed. Most of them have neither a kind nor files; those cost one lookup by
//! primary key each and nothing more.

use super::column;
use crate::Error;
use crate::db::{Db, Row};
use crate::error::Fault;
use crate::model::{JobCommand, JobFile, Params};
use crate::sql::common as sql;
use std::collections::HashMap;
use windlass_types::settings::{ChangeDetection, Settings};
use windlass_types::work::Stdio;
use windlass_types::{FileId, JobId};

pub(crate) fn commands(db: &impl Db, jobs: &[JobId]) -> Result<Vec<JobCommand>, Fault> {
    let ids: Vec<i64> = jobs.iter().map(|job| job.0).collect();
    let mut found: Vec<(JobCommand, Refers)> = Vec::with_capacity(jobs.len());
    db.for_each_of(sql::JOB_COMMAND, &ids, |place, row| {
        missing(jobs, found.len(), place)?;
        found.push((command(row, jobs[place])?, Refers::read(row)?));
        Ok(())
    })?;
    missing(jobs, found.len(), jobs.len())?;
    let mut known = Known::default();
    let complete = |(mut command, refers): (JobCommand, Refers)| {
        if let Some(kind) = refers.kind {
            known.kind(db, kind)?.complete(&mut command);
        }
        if refers.has_files {
            command.hash_files = known.hashes_files(db, refers.workflow)?;
            add_files(db, &mut command)?;
        }
        Ok(command)
    };
    found.into_iter().map(complete).collect()
}

/// All up to `place` have to be there.
fn missing(jobs: &[JobId], found: usize, place: usize) -> Result<(), Fault> {
    match jobs.get(found) {
        Some(&job) if found < place => Err(Error::NoSuchJob(job).into()),
        _ => Ok(()),
    }
}

/// The job's own.
fn command(row: &Row<'_>, id: JobId) -> Result<JobCommand, Fault> {
    Ok(JobCommand {
        id,
        name: row.get(0)?,
        command: row.get(1)?,
        invocation_script: row.get(5)?,
        env: column::env(row, 2)?,
        params: column::json::<Params>(row, 6)?.unwrap_or_default(),
        stdio: None,
        input_files: Vec::new(),
        output_files: Vec::new(),
        hash_files: false,
    })
}

/// What else has to be looked up.
struct Refers {
    kind: Option<i64>,
    has_files: bool,
    workflow: i64,
}

impl Refers {
    fn read(row: &Row<'_>) -> Result<Self, Fault> {
        Ok(Self { kind: row.get(3)?, has_files: column::flag(row, 4)?, workflow: row.get(7)? })
    }
}

/// What jobs of one request share, looked up once.
#[derive(Default)]
struct Known {
    kinds: HashMap<i64, Kind>,
    hashes_files: HashMap<i64, bool>,
}

impl Known {
    fn kind(&mut self, db: &impl Db, id: i64) -> Result<&Kind, Fault> {
        use std::collections::hash_map::Entry;
        match self.kinds.entry(id) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let kind = db.one(sql::KIND, [id], Kind::read)?;
                Ok(place.insert(kind))
            }
        }
    }

    fn hashes_files(&mut self, db: &impl Db, workflow: i64) -> Result<bool, Fault> {
        if let Some(&known) = self.hashes_files.get(&workflow) {
            return Ok(known);
        }
        let settings: Settings = db.one(sql::SETTINGS, [workflow], |row| column::required_json(row, 0))?;
        let hashes = settings.change_detection == Some(ChangeDetection::Content);
        self.hashes_files.insert(workflow, hashes);
        Ok(hashes)
    }
}

/// What jobs get from their kind.
struct Kind {
    env: Vec<(String, String)>,
    invocation_script: Option<String>,
    stdio: Option<Stdio>,
}

impl Kind {
    fn read(row: &Row<'_>) -> Result<Self, Fault> {
        Ok(Self { env: column::env(row, 0)?, invocation_script: row.get(1)?, stdio: column::stdio(row, 2)? })
    }

    /// What the job says itself wins.
    fn complete(&self, command: &mut JobCommand) {
        command.stdio = self.stdio;
        if command.invocation_script.is_none() {
            command.invocation_script.clone_from(&self.invocation_script);
        }
        command.env = merged_env(&self.env, std::mem::take(&mut command.env));
    }
}

/// What is inherited comes first, but not what the job says itself.
pub(crate) fn merged_env(
    inherited: &[(String, String)],
    own: Vec<(String, String)>,
) -> Vec<(String, String)> {
    let unsaid = inherited.iter().filter(|(name, _)| own.iter().all(|(mine, _)| mine != name));
    let mut env: Vec<_> = unsaid.cloned().collect();
    env.extend(own);
    env
}

fn add_files(db: &impl Db, command: &mut JobCommand) -> Result<(), Fault> {
    db.for_each(sql::PATHS_OF_JOB, [command.id.0], |row| {
        let file = JobFile { id: FileId(row.get(1)?), path: row.get(2)? };
        let list = if column::flag(row, 0)? { &mut command.output_files } else { &mut command.input_files };
        list.push(file);
        Ok(())
    })?;
    Ok(())
}
