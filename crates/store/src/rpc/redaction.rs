//! Redaction of replies: removes rows that the viewer may not see and masks values.

use super::VisibilityCheck;
use crate::model::{
    ActionRow, CompletionRecord, DecisionRow, EventRow, FailureGroup, FailureHandlerRow, FailureRow,
    FieldChange, HeldJob, JobCommand, JobFileRow, JobGroupRow, JobRelations, JobRevisionRow, JobRow,
    JobUserDataRow, LoadedJobs, RequirementsRow, ResultRow, SlurmSchedulerRow, SpawnResult, UserDataRow,
    WorkUnitStatusRow, WorkerRow, WorkflowExport, WorkflowFileRow, WorkflowRow,
};
use windlass_core::redact::SecretNames;
use windlass_core::slurm::allocation_rows::{AppliedSchedule, SlurmCallCount};
use windlass_types::failure_commands::FailureCommandOutcome;
use windlass_types::slurm::Allocation;
use windlass_types::{
    AllocationId, EventId, FileId, JobId, RequirementsId, RunId, UserDataId, WorkUnitStatusCounts, WorkflowId,
};

/// Returns the names that are secrets for the viewer in a workflow; `None`: the viewer may see them. The
/// workflow is `None` where a row does not name it: then it is one of those that the call is about.
pub type SecretNamesLookup<'a> = &'a dyn Fn(Option<WorkflowId>) -> Option<&'a SecretNames>;

/// What a viewer may see.
#[derive(Clone, Copy)]
pub struct Viewer<'a> {
    pub is_visible: VisibilityCheck<'a>,
    pub masking: SecretNamesLookup<'a>,
}

impl Viewer<'static> {
    /// A viewer that may see everything.
    pub const ALL: Self = Self { is_visible: &|_| true, masking: &|_| None };
}

impl Viewer<'_> {
    fn mask_environments<'e>(
        &self,
        of: Option<WorkflowId>,
        environments: impl IntoIterator<Item = &'e mut EnvironmentVariables>,
    ) {
        let Some(masking) = (self.masking)(of) else { return };
        for (name, value) in environments.into_iter().flatten() {
            if let shown = masking.mask_value(name, value)
                && shown != value
            {
                *value = shown.to_owned();
            }
        }
    }
}

impl std::fmt::Debug for Viewer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Viewer").finish_non_exhaustive()
    }
}

type EnvironmentVariables = Vec<(String, String)>;

/// Redaction of a reply. Every reply type has to implement it, so that none is returned unchecked.
pub(super) trait Redacted {
    fn redact(&mut self, viewer: Viewer<'_>);
}

impl<T: Redacted> Redacted for Vec<T> {
    fn redact(&mut self, viewer: Viewer<'_>) {
        for one in self {
            one.redact(viewer);
        }
    }
}

impl<T: Redacted> Redacted for Option<T> {
    fn redact(&mut self, viewer: Viewer<'_>) {
        if let Some(one) = self {
            one.redact(viewer);
        }
    }
}

impl Redacted for WorkflowRow {
    fn redact(&mut self, viewer: Viewer<'_>) {
        viewer.mask_environments(Some(self.id), [&mut self.env]);
    }
}

impl Redacted for JobCommand {
    fn redact(&mut self, viewer: Viewer<'_>) {
        viewer.mask_environments(None, [&mut self.env]);
    }
}

impl Redacted for JobGroupRow {
    fn redact(&mut self, viewer: Viewer<'_>) {
        viewer.mask_environments(None, [&mut self.group.env]);
    }
}

impl Redacted for WorkflowExport {
    fn redact(&mut self, viewer: Viewer<'_>) {
        let of_jobs = self.jobs.iter_mut().map(|job| &mut job.env);
        let of_groups = self.job_groups.iter_mut().map(|job_group| &mut job_group.env);
        viewer
            .mask_environments(None, std::iter::once(&mut self.workflow.env).chain(of_groups).chain(of_jobs));
    }
}

macro_rules! impl_without_secrets {
    ($($answer:ty),* $(,)?) => {
        $(impl Redacted for $answer {
            fn redact(&mut self, _: Viewer<'_>) {}
        })*
    };
}

impl_without_secrets!(
    (),
    bool,
    i64,
    usize,
    String,
    Allocation,
    AllocationId,
    SlurmCallCount,
    AppliedSchedule,
    ActionRow,
    DecisionRow,
    EventId,
    EventRow,
    FailureGroup,
    FailureRow,
    FieldChange,
    FileId,
    WorkflowFileRow,
    FailureHandlerRow,
    HeldJob,
    JobFileRow,
    JobId,
    JobRelations,
    JobRow,
    JobUserDataRow,
    CompletionRecord,
    LoadedJobs,
    FailureCommandOutcome,
    RequirementsId,
    RequirementsRow,
    ResultRow,
    JobRevisionRow,
    RunId,
    SlurmSchedulerRow,
    SpawnResult,
    WorkUnitStatusCounts,
    WorkUnitStatusRow,
    UserDataId,
    UserDataRow,
    WorkerRow,
    WorkflowId,
);
