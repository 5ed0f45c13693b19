//! Submitting an allocation to Slurm.
//!
//! The state `submitting` is committed before `sbatch` is called. If the result of the call is unknown, the row
//! stays as it is, and later passes search the job by its tag; only what certainly does not exist is submitted
//! again.

use super::reconcile_pass::{AllocationPassError, AllocationPassRunner};
use crate::parse::sbatch;
use crate::render::batch::{self, BatchContext, BatchSubmission};
use crate::slurm_client::{SlurmOutcome, SlurmUnavailable};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_core::slurm::allocation_rows::AllocationChange;
use windlass_core::slurm::worker_settings::worker_settings;
use windlass_store::model::{EventSeverity, WorkflowRow};
use windlass_types::SystemClock;
use windlass_types::slurm::{Allocation, AllocationState};

/// Pause after the limit of submitted jobs is reached; it ends early when an allocation ends.
const JOB_LIMIT_DELAY: Duration = Duration::from_mins(5);
/// Pause after the output cannot be written: a full disk, a missing directory.
const WRITE_ERROR_DELAY: Duration = Duration::from_mins(1);

impl AllocationPassRunner {
    /// `false`: not now.
    pub(super) fn submit_allocation(
        &mut self,
        row: &Allocation,
        open: &[Allocation],
    ) -> Result<bool, AllocationPassError> {
        let now = SystemClock.now();
        self.not_before.retain(|_, until| *until > now);
        let left = self.slurm.remaining_budget();
        if self.not_before.contains_key(&row.id) || left.calls == 0 || left.paused_until.is_some() {
            return Ok(false);
        }
        if row.request.serialize && open.iter().any(|other| is_earlier_in_series(other, row)) {
            return Ok(false);
        }
        let Some(workflow) = self.database().workflow(row.workflow)? else { return Ok(false) };
        if self.options.users.as_ref().is_some_and(|users| !users.contains(&workflow.user)) {
            let why = format!(
                "workflow {} belongs to `{}`, and its jobs would run with the account of the server; `windlass serve \
                 --slurm-jobs-of {}` allows that",
                workflow.id, workflow.user, workflow.user
            );
            self.record_refusal(row, row.state, &why)?;
            return Ok(false);
        }
        let batch = match self.render_batch(row, &workflow) {
            Ok(batch) => batch,
            Err(unfit) => {
                self.record_refusal(row, row.state, &unfit.to_string())?;
                return Ok(false);
            }
        };
        if let Err((path, error)) = prepare_outputs(&batch) {
            self.not_before.insert(row.id, now.plus(WRITE_ERROR_DELAY));
            let why = format!("{} cannot be written: {error}", path.display());
            tracing::warn!(id = %row.id, %why, "cannot submit an allocation");
            self.record_reason(row, row.state, why)?;
            return Ok(false);
        }
        let issued =
            self.options.credentials.as_ref().map(|all| all.issue_credential(row.id, &workflow)).transpose();
        let credential = match issued {
            Ok(path) => path,
            Err(error) => {
                self.not_before.insert(row.id, now.plus(WRITE_ERROR_DELAY));
                let why = format!("cannot store the token of its workers: {error}");
                tracing::warn!(id = %row.id, %why, "cannot submit an allocation");
                self.record_reason(row, row.state, why)?;
                return Ok(false);
            }
        };
        let mut change = AllocationChange::new(row.id, row.state, AllocationState::Submitting);
        change.submitted_at = Some(now);
        change.missed_polls = Some(0);
        change.reason = Some(None);
        // This fails if a user withdrew the allocation meanwhile; then nothing is submitted.
        self.database().change_allocations(&[change], now)?;
        self.call_sbatch(row, &batch, credential.as_deref(), open)?;
        Ok(true)
    }

    fn call_sbatch(
        &mut self,
        row: &Allocation,
        batch: &BatchSubmission,
        credential: Option<&Path>,
        open: &[Allocation],
    ) -> Result<(), AllocationPassError> {
        let submitting = AllocationState::Submitting;
        // The path may be known: only the account that it runs with can read the file.
        let environment =
            credential.map(|path| ("WINDLASS_TOKEN_FILE".to_owned(), path.display().to_string()));
        match self.slurm.submit(&batch.arguments, &batch.script, environment.as_slice()) {
            SlurmOutcome::Answered(job) => {
                tracing::info!(allocation = %row.id, job, "submitted to Slurm");
                let mut change = AllocationChange::new(row.id, submitting, AllocationState::Pending);
                change.job_id = Some(Some(job));
                // Its worker may have started already and reported the same.
                self.commit_changes(&[change])
            }
            SlurmOutcome::Refused(refusal) if sbatch::is_job_limit(&refusal) && has_other_jobs(open, row) => {
                self.not_before.insert(row.id, SystemClock.now().plus(JOB_LIMIT_DELAY));
                self.reset_to_intended(
                    row,
                    format!("the limit of submitted jobs is reached; retrying: {refusal}"),
                )
            }
            SlurmOutcome::Refused(refusal) => self.record_refusal(row, submitting, &refusal),
            SlurmOutcome::Unknown(why) if why.is_certainly_not_sent() => {
                if let SlurmUnavailable::NotStarted { .. } = &why {
                    self.not_before.insert(row.id, SystemClock.now().plus(WRITE_ERROR_DELAY));
                }
                self.reset_to_intended(row, why.to_string())
            }
            SlurmOutcome::Unknown(why) => {
                self.record_reason(row, submitting, format!("{why}; searching it by its tag"))
            }
        }
    }

    fn render_batch(
        &self,
        row: &Allocation,
        workflow: &WorkflowRow,
    ) -> Result<BatchSubmission, batch::InvalidAllocation> {
        let directory = PathBuf::from(&workflow.submission_dir);
        let output_dir = directory.join(&workflow.output_dir);
        batch::render_batch(
            row,
            &BatchContext {
                windlass: &self.options.windlass,
                server: &self.options.server,
                tag_prefix: &self.options.tag_prefix,
                output_dir: &output_dir,
                directory: &directory,
                warning: self.options.warning,
                settings: worker_settings(&workflow.settings),
            },
        )
    }

    fn reset_to_intended(&self, row: &Allocation, why: String) -> Result<(), AllocationPassError> {
        let mut change =
            AllocationChange::new(row.id, AllocationState::Submitting, AllocationState::Intended);
        change.reason = Some(Some(why));
        self.commit_changes(&[change])
    }

    fn record_reason(
        &self,
        row: &Allocation,
        state: AllocationState,
        why: String,
    ) -> Result<(), AllocationPassError> {
        let mut change = AllocationChange::new(row.id, state, state);
        change.reason = Some(Some(why));
        self.commit_changes(&[change])
    }

    fn record_refusal(
        &self,
        row: &Allocation,
        from: AllocationState,
        refusal: &str,
    ) -> Result<(), AllocationPassError> {
        let mut change = AllocationChange::new(row.id, from, AllocationState::Refused);
        change.reason = Some(Some(refusal.to_owned()));
        change.ended_at = Some(SystemClock.now());
        self.commit_changes(&[change])?;
        let message = format!(
            "Slurm rejected allocation {} of scheduler `{}`: {refusal}. Correct the scheduler, then request again: \
             `windlass slurm schedule-nodes`",
            row.id, row.request.scheduler
        );
        self.record_workflow_event(row.workflow, EventSeverity::Error, message)
    }
}

/// Allocations of a series are submitted one after the other: the result of the previous one must be known.
fn is_earlier_in_series(other: &Allocation, row: &Allocation) -> bool {
    other.id != row.id
        && other.state == AllocationState::Submitting
        && other.workflow == row.workflow
        && other.request.scheduler == row.request.scheduler
}

/// Other allocations of this server exist whose end makes room.
fn has_other_jobs(open: &[Allocation], row: &Allocation) -> bool {
    let is_there = |other: &Allocation| other.job_id.is_some() && other.id != row.id;
    open.iter().any(is_there)
}

/// Slurm writes the output of the allocation as the user of the server: it must not follow a link that the owner
/// of the directory has created.
fn prepare_outputs(batch: &BatchSubmission) -> Result<(), (&Path, io::Error)> {
    for path in &batch.outputs {
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))
            .map_err(|error| (path.as_path(), error))?;
        if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err((path, io::Error::other("it is a link or not a regular file; remove it")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn submission(directory: &Path) -> BatchSubmission {
        let outputs =
            ["o", "e"].map(|end| directory.join("output").join(format!("slurm_output_wf1_sl1.{end}")));
        BatchSubmission { arguments: Vec::new(), script: "#!/bin/sh\n".to_owned(), outputs }
    }

    /// The server may have permissions that the owner of the directory lacks.
    #[test]
    fn submit_does_not_write_through_symlinks() {
        let directory = tempfile::tempdir().unwrap();
        let batch = submission(directory.path());
        prepare_outputs(&batch).unwrap();
        let secret = directory.path().join("authorized_keys");
        fs::write(&secret, "as it was").unwrap();
        for target in [secret.clone(), directory.path().join("not there yet")] {
            for output in &batch.outputs {
                symlink(&target, output).unwrap();
                let (path, error) = prepare_outputs(&batch).unwrap_err();
                assert_eq!(path, output);
                assert!(error.to_string().contains("link"), "{error}");
                fs::remove_file(output).unwrap();
            }
        }
        fs::create_dir(&batch.outputs[0]).unwrap();
        assert!(prepare_outputs(&batch).is_err(), "Slurm cannot write there");
        fs::remove_dir(&batch.outputs[0]).unwrap();
        // The output of an earlier submission is overwritten.
        fs::write(&batch.outputs[0], "earlier").unwrap();
        prepare_outputs(&batch).unwrap();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "as it was");
        let names: Vec<_> = fs::read_dir(directory.path().join("output")).unwrap().collect();
        assert_eq!(names.len(), 1, "the server writes no script beside the outputs: {names:?}");
    }
}
