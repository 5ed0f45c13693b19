//! The input of a workflow state.

use super::{NextAttempt, WorkUnitRow};
use crate::dependency_edges::DependencyEdges;
use crate::dispatch::LocationConstraint;
use serde::{Deserialize, Serialize};
use windlass_types::settings::FailureHandler;
use windlass_types::{Attempt, JobId, JobStatus, Resources};

/// The jobs of a workflow as columns, in creation order, without their commands.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct JobTable {
    /// Ascending.
    pub ids: Vec<JobId>,
    pub status: Vec<JobStatus>,
    /// The current attempt, or the next one.
    pub attempt: Vec<Attempt>,
    pub priority: Vec<i32>,
    pub cancel_on_blocking_job_failure: Vec<bool>,
    /// Index into `requirements`.
    pub class: Vec<u32>,
    /// Distinct requests; index 0 is [`Resources::DEFAULT`].
    pub requirements: Vec<Resources>,
    /// Index into `places`; empty if no job has a location constraint.
    pub place: Vec<u32>,
    /// Index 0 is for jobs without a location constraint.
    pub places: Vec<LocationConstraint>,
    /// What earlier attempts left to jobs, by number; only if there is something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inherited: Vec<(u32, NextAttempt)>,
    /// Index into `handlers`, plus one; empty if no job has a handler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handler: Vec<u32>,
    /// The failure handlers of jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handlers: Vec<FailureHandler>,
    /// Retries granted by handlers in this run.
    #[serde(default)]
    pub retries_granted: u64,
    /// Failed jobs whose failure is ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<u32>,
    /// Work units; empty if there are none.
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
