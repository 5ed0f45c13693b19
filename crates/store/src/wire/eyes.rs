//! Whose eyes an answer is for: rows that they may not see are left out, and values that they may not see are masked.

use super::MaySee;
use crate::model::{
    ActionRow, DecisionRow, EventRow, Export, FailureGroup, FailureRow, FieldChange, FileRow, HandlerRow,
    HeldJob, JobCommand, JobFileRow, JobRelations, JobRow, JobUserDataRow, KindRow, LastRecord, LoadedJobs,
    RequirementsRow, ResultRow, RevisionRow, SchedulerRow, Spawned, UnitRow, UserDataRow, WorkerRow,
    WorkflowRow,
};
use windlass_core::redact::Masking;
use windlass_core::slurm::book::{CallCount, Scheduled};
use windlass_types::orders::Outcome;
use windlass_types::slurm::Allocation;
use windlass_types::{
    AllocationId, EventId, FileId, JobId, RequirementsId, RunId, UnitCounts, UserDataId, WorkflowId,
};

/// Which names mean secrets, for somebody who may not see those of a workflow; `None`: he may. The workflow is `None`
/// where a row does not say whose it is: then it is one of those that the request is about.
pub type Masked<'a> = &'a dyn Fn(Option<WorkflowId>) -> Option<&'a Masking>;

/// What somebody may see.
#[derive(Clone, Copy)]
pub struct Eyes<'a> {
    pub may_see: MaySee<'a>,
    pub masked: Masked<'a>,
}

impl Eyes<'static> {
    /// Of one who may see everything.
    pub const ALL: Self = Self { may_see: &|_| true, masked: &|_| None };
}

impl Eyes<'_> {
    fn mask<'e>(&self, of: Option<WorkflowId>, environments: impl IntoIterator<Item = &'e mut Environment>) {
        let Some(masking) = (self.masked)(of) else { return };
        for (name, value) in environments.into_iter().flatten() {
            if let shown = masking.shown(name, value)
                && shown != value
            {
                *value = shown.to_owned();
            }
        }
    }
}

impl std::fmt::Debug for Eyes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Eyes").finish_non_exhaustive()
    }
}

type Environment = Vec<(String, String)>;

/// Everything that is ever answered: each says what in it is secret, so that nothing is answered that nobody thought of.
pub(super) trait Veiled {
    fn veil(&mut self, eyes: Eyes<'_>);
}

impl<T: Veiled> Veiled for Vec<T> {
    fn veil(&mut self, eyes: Eyes<'_>) {
        for one in self {
            one.veil(eyes);
        }
    }
}

impl<T: Veiled> Veiled for Option<T> {
    fn veil(&mut self, eyes: Eyes<'_>) {
        if let Some(one) = self {
            one.veil(eyes);
        }
    }
}

impl Veiled for WorkflowRow {
    fn veil(&mut self, eyes: Eyes<'_>) {
        eyes.mask(Some(self.id), [&mut self.env]);
    }
}

impl Veiled for JobCommand {
    fn veil(&mut self, eyes: Eyes<'_>) {
        eyes.mask(None, [&mut self.env]);
    }
}

impl Veiled for KindRow {
    fn veil(&mut self, eyes: Eyes<'_>) {
        eyes.mask(None, [&mut self.env]);
    }
}

impl Veiled for Export {
    fn veil(&mut self, eyes: Eyes<'_>) {
        let of_jobs = self.jobs.iter_mut().map(|job| &mut job.env);
        let of_kinds = self.job_kinds.iter_mut().map(|kind| &mut kind.env);
        eyes.mask(None, std::iter::once(&mut self.workflow.env).chain(of_kinds).chain(of_jobs));
    }
}

macro_rules! nothing_secret {
    ($($answer:ty),* $(,)?) => {
        $(impl Veiled for $answer {
            fn veil(&mut self, _: Eyes<'_>) {}
        })*
    };
}

nothing_secret!(
    (),
    bool,
    i64,
    usize,
    String,
    Allocation,
    AllocationId,
    CallCount,
    Scheduled,
    ActionRow,
    DecisionRow,
    EventId,
    EventRow,
    FailureGroup,
    FailureRow,
    FieldChange,
    FileId,
    FileRow,
    HandlerRow,
    HeldJob,
    JobFileRow,
    JobId,
    JobRelations,
    JobRow,
    JobUserDataRow,
    LastRecord,
    LoadedJobs,
    Outcome,
    RequirementsId,
    RequirementsRow,
    ResultRow,
    RevisionRow,
    RunId,
    SchedulerRow,
    Spawned,
    UnitCounts,
    UnitRow,
    UserDataId,
    UserDataRow,
    WorkerRow,
    WorkflowId,
);
