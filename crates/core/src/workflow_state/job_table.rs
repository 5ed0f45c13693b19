//! What a board is built from.

use super::{NextAttempt, WorkUnitRow};
use crate::dispatch::LocationConstraint;
use crate::edges::DependencyEdges;
use serde::{Deserialize, Serialize};
use windlass_types::settings::FailureHandler;
use windlass_types::{Attempt, JobId, JobStatus, Resources};

/// The jobs of a workflow as columns, in creation order, without their commands.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct JobTable {
    /// Ascending.
    pub ids: Vec<JobId>,
    pub status: Vec<JobStatus>,
    /// The attempt that runs, or the next one to run.
    pub attempt: Vec<Attempt>,
    pub priority: Vec<i32>,
    pub cancel_on_blocking_job_failure: Vec<bool>,
    /// Index into `requirements`.
    pub class: Vec<u32>,
    /// What jobs ask for; index 0 is [`Resources::DEFAULT`].
    pub requirements: Vec<Resources>,
    /// Index into `places`; empty where no job belongs anywhere.
    pub place: Vec<u32>,
    /// Index 0 is for jobs that belong nowhere.
    pub places: Vec<LocationConstraint>,
    /// What earlier attempts left to jobs, by their numbers; only where there is something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carried: Vec<(u32, NextAttempt)>,
    /// Index into `handlers`, plus one; empty where no job has a handler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handler: Vec<u32>,
    /// Who says what follows the failures of jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handlers: Vec<FailureHandler>,
    /// Attempts that handlers have granted in this run.
    #[serde(default)]
    pub retries_granted: u64,
    /// Those that failed, and whose failure is to count for nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<u32>,
    /// Jobs that belong together; empty where none do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<WorkUnitRow>,
    pub edges: DependencyEdges,
}

impl JobTable {
    pub fn location_of(&self, index: usize) -> LocationConstraint {
        let place = self.place.get(index).and_then(|&place| self.places.get(place as usize));
        place.cloned().unwrap_or_default()
    }
}
