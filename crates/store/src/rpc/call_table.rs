//! The table of methods, and the calls generated from it.

use super::redaction::{Redacted as _, Viewer};
use super::{AccessLevel, CallAccess, CallSubject, FilterVisible as _, OwnedUserData, StoreReply};
use crate::Store;
use crate::model::{
    AddJob, AllocationFilter, DataFilter, DecisionFilter, EventFilter, ExportOptions, FailureFilter,
    FileUpdate, ImportOptions, JobFilter, JobUpdate, NewEvent, RequirementsChange, RequirementsUpdate,
    ResultFilter, RevisionFilter, SpawnRequest, WorkflowExport, WorkflowUpdate,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_core::slurm::allocation_rows::{AllocationSchedule, NewAllocation};
use windlass_types::failure_commands::PendingCommand;
use windlass_types::settings::SlurmScheduler;
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{
    AllocationId, EventId, FileId, JobId, RequirementsId, Resources, ResultId, Timestamp, UserDataId,
    WorkflowId,
};

/// The remotely callable methods of [`Store`], by trait; passes them to the given macro.
///
/// `SORT Variant = method(argument: HOW Type, …) [at Timestamp] -> Answer, of SUBJECT;`
/// - SORT: `read` and `change` are the required access; `filtered` is a read over all workflows, from whose
///   reply objects that the caller may not see are removed.
/// - HOW an argument is passed: `val` by value, `by` reference, a `list`, a `text`, `maybe` an optional
///   reference, a `piece` of new user data.
/// - `at`: the method is passed the time of the server.
macro_rules! table {
    ($then:ident) => {
        $then! {
            Store {
                filtered Workflows = workflows() -> Vec<WorkflowRow>, of CallSubject::All;
                read Workflow = workflow(id: val WorkflowId) -> Option<WorkflowRow>, of CallSubject::workflow(*id);
                filtered FindByDigest = find_by_digest(digest: text str, submission_dir: text str)
                    -> Option<WorkflowRow>, of CallSubject::All;
                read LoadJobs = load_jobs(workflow: val WorkflowId) -> LoadedJobs, of CallSubject::workflow(*workflow);
                read Commands = load_job_commands(jobs: list JobId) -> Vec<JobCommand>, of CallSubject::Jobs(jobs.clone());
                read HeldJobs = held_jobs(workflow: val WorkflowId) -> Vec<HeldJob>, of CallSubject::workflow(*workflow);
                read Jobs = jobs(workflow: val WorkflowId, filter: by JobFilter)
                    -> Vec<JobRow>, of CallSubject::workflow(*workflow);
                read FindJob = find_job(id: val JobId) -> Option<JobRow>, of CallSubject::Jobs(vec![*id]);
                read Results = results(workflow: val WorkflowId, filter: by ResultFilter)
                    -> Vec<ResultRow>, of CallSubject::workflow(*workflow);
                read Failures = failures(workflow: val WorkflowId, filter: by FailureFilter)
                    -> Vec<FailureRow>, of CallSubject::workflow(*workflow);
                read FailureGroups = failure_groups(workflow: val WorkflowId)
                    -> Vec<FailureGroup>, of CallSubject::workflow(*workflow);
                read Decisions = decisions(workflow: val WorkflowId, filter: by DecisionFilter)
                    -> Vec<DecisionRow>, of CallSubject::workflow(*workflow);
                read Revisions = revisions(workflow: val WorkflowId, filter: val RevisionFilter)
                    -> Vec<JobRevisionRow>, of CallSubject::workflow(*workflow);
                read Units = work_units(workflow: val WorkflowId, after_seq: val u64)
                    -> Vec<WorkUnitStatusRow>, of CallSubject::workflow(*workflow);
                read UnitCounts = work_unit_counts(workflow: val WorkflowId)
                    -> WorkUnitStatusCounts, of CallSubject::workflow(*workflow);
                change CarryOut = apply_triage_command(workflow: val WorkflowId, wanted: by PendingCommand) at Timestamp
                    -> Vec<FailureCommandOutcome>, of CallSubject::workflow(*workflow);
                read JobNames = job_names(jobs: list JobId) -> Vec<String>, of CallSubject::Jobs(jobs.clone());
                read JobRelations = job_relations(job: val JobId) -> JobRelations, of CallSubject::Jobs(vec![*job]);
                read Requirements = requirements(workflow: val WorkflowId)
                    -> Vec<RequirementsRow>, of CallSubject::workflow(*workflow);
                read Kinds = job_groups(workflow: val WorkflowId) -> Vec<JobGroupRow>, of CallSubject::workflow(*workflow);
                read Handlers = handlers(workflow: val WorkflowId) -> Vec<FailureHandlerRow>, of CallSubject::workflow(*workflow);
                read Schedulers = schedulers(workflow: val WorkflowId)
                    -> Vec<SlurmSchedulerRow>, of CallSubject::workflow(*workflow);
                read Actions = actions(workflow: val WorkflowId) -> Vec<ActionRow>, of CallSubject::workflow(*workflow);
                read Files = files(workflow: val WorkflowId, filter: by DataFilter)
                    -> Vec<WorkflowFileRow>, of CallSubject::workflow(*workflow);
                read File = file(id: val FileId) -> Option<WorkflowFileRow>, of CallSubject::File(*id);
                read JobFiles = job_files(workflow: val WorkflowId) -> Vec<JobFileRow>, of CallSubject::workflow(*workflow);
                read UserData = user_data(workflow: val WorkflowId, filter: by DataFilter)
                    -> Vec<UserDataRow>, of CallSubject::workflow(*workflow);
                read UserDataPiece = find_user_data(id: val UserDataId)
                    -> Option<UserDataRow>, of CallSubject::UserData(*id);
                read JobUserData = job_user_data(workflow: val WorkflowId)
                    -> Vec<JobUserDataRow>, of CallSubject::workflow(*workflow);
                filtered Events = events(workflow: val Option<WorkflowId>, filter: by EventFilter)
                    -> Vec<EventRow>, of CallSubject::workflow_or(*workflow, CallSubject::All);
                read Spawners = spawning_jobs(workflow: val WorkflowId) -> Vec<JobId>, of CallSubject::workflow(*workflow);
                read LeftBehind = jobs_not_respawned(callers: list AttemptKey)
                    -> Vec<JobId>, of CallSubject::Attempts(callers.clone());
                read LastRecords = completion_records(workflow: val WorkflowId)
                    -> Vec<CompletionRecord>, of CallSubject::workflow(*workflow);
                read CancelRequested = cancel_requested(workflow: val WorkflowId)
                    -> bool, of CallSubject::workflow(*workflow);
                filtered ActiveWorkers = active_workers(workflow: val Option<WorkflowId>)
                    -> Vec<WorkerRow>, of CallSubject::workflow_or(*workflow, CallSubject::All);
                read Export = export_workflow(id: val WorkflowId, options: val ExportOptions) at Timestamp
                    -> WorkflowExport, of CallSubject::workflow(*id);

                change BeginNextRun = begin_next_run(workflow: val WorkflowId, again: list JobId) at Timestamp
                    -> RunId, of CallSubject::workflow(*workflow);
                change RequestCancel = request_cancel(workflow: val WorkflowId) at Timestamp
                    -> (), of CallSubject::workflow(*workflow);
                change AddEvent = add_event(event: by NewEvent) at Timestamp
                    -> EventId, of CallSubject::workflow_or(event.workflow, CallSubject::Database);
                change Spawn = spawn_jobs(request: by SpawnRequest) at Timestamp
                    -> SpawnResult, of CallSubject::Attempts(vec![request.caller]);
                change UpdateWorkflow = update_workflow(id: val WorkflowId, update: by WorkflowUpdate) at Timestamp
                    -> (), of CallSubject::workflow(*id);
                change Archive = set_archived(ids: list WorkflowId, is_archived: val bool) at Timestamp
                    -> (), of CallSubject::Workflows(ids.clone());
                change DeleteWorkflow = delete_workflow(id: val WorkflowId) at Timestamp
                    -> (), of CallSubject::workflow(*id);
                change ChangeRequirements =
                    change_requirements(workflow: val WorkflowId, changes: list RequirementsChange) at Timestamp
                    -> Vec<RequirementsId>, of CallSubject::workflow(*workflow);
                change ChangePriorities =
                    change_priorities(workflow: val WorkflowId, changes: list (i32, i32)) at Timestamp
                    -> usize, of CallSubject::workflow(*workflow);
                change AddUserData = add_user_data(workflow: val WorkflowId, new: piece OwnedUserData) at Timestamp
                    -> UserDataId, of CallSubject::workflow(*workflow);
                change SetUserData = set_user_data(id: val UserDataId, data: maybe Value) at Timestamp
                    -> (), of CallSubject::UserData(*id);
                change DeleteUserData = delete_user_data(id: val UserDataId) at Timestamp
                    -> (), of CallSubject::UserData(*id);
                change AddJobs = add_jobs(workflow: val WorkflowId, jobs: list AddJob) at Timestamp
                    -> Vec<JobId>, of CallSubject::workflow(*workflow);
                change UpdateJob = update_job(workflow: val WorkflowId, job: val JobId, update: by JobUpdate) at Timestamp
                    -> Vec<FieldChange>, of CallSubject::workflow(*workflow);
                change DeleteJobs = delete_jobs(workflow: val WorkflowId, jobs: list JobId) at Timestamp
                    -> (), of CallSubject::workflow(*workflow);
                change AddFile = add_file(workflow: val WorkflowId, name: text str, path: text str) at Timestamp
                    -> FileId, of CallSubject::workflow(*workflow);
                change UpdateFile = update_file(id: val FileId, update: by FileUpdate) at Timestamp
                    -> Vec<FieldChange>, of CallSubject::File(*id);
                change DeleteFile = delete_file(id: val FileId) at Timestamp -> (), of CallSubject::File(*id);
                change AddRequirements =
                    add_requirements(workflow: val WorkflowId, name: text str, resources: by Resources) at Timestamp
                    -> RequirementsId, of CallSubject::workflow(*workflow);
                change UpdateRequirements =
                    update_requirements(id: val RequirementsId, update: by RequirementsUpdate) at Timestamp
                    -> Vec<FieldChange>, of CallSubject::Requirements(*id);
                change DeleteRequirements = delete_requirements(id: val RequirementsId) at Timestamp
                    -> (), of CallSubject::Requirements(*id);
                change RetryAction = retry_action(workflow: val WorkflowId, id: val i64) at Timestamp
                    -> (), of CallSubject::workflow(*workflow);
                change DeleteResult = delete_result(id: val ResultId) at Timestamp -> (), of CallSubject::Result(*id);
                change DeleteEvent = delete_event(id: val EventId) at Timestamp -> (), of CallSubject::Event(*id);
                change Import = import_workflow(export: by WorkflowExport, options: by ImportOptions) at Timestamp
                    -> WorkflowId, of CallSubject::New;
            }
            Parts {
                change AddScheduler = add_scheduler(workflow: val WorkflowId, scheduler: by SlurmScheduler) at Timestamp
                    -> i64, of CallSubject::workflow(*workflow);
                change UpdateScheduler = update_scheduler(id: val i64, scheduler: by SlurmScheduler) at Timestamp
                    -> (), of CallSubject::Scheduler(*id);
                change DeleteScheduler = delete_scheduler(id: val i64) at Timestamp -> (), of CallSubject::Scheduler(*id);
                change RearmUnstarted = rearm_unstarted(workflow: val WorkflowId) at Timestamp
                    -> (), of CallSubject::workflow(*workflow);
            }
            Allocations {
                filtered Allocations = allocations(filter: by AllocationFilter)
                    -> Vec<Allocation>, of CallSubject::workflow_or(filter.workflow, CallSubject::All);
                read Allocation = allocation(id: val AllocationId)
                    -> Option<Allocation>, of CallSubject::Allocations(vec![*id]);
                read ScheduleSeen = schedule_fingerprint(workflow: val WorkflowId)
                    -> String, of CallSubject::workflow(*workflow);
                filtered SlurmCalls = slurm_calls(since: val Timestamp) -> Vec<SlurmCallCount>, of CallSubject::All;
                change AddAllocations = add_allocations(new: list NewAllocation) at Timestamp
                    -> Vec<AllocationId>, of CallSubject::Workflows(new.iter().map(|new| new.workflow).collect());
                change DiscardAllocations = discard_allocations(ids: list AllocationId, why: text str) at Timestamp
                    -> Vec<Allocation>, of CallSubject::Allocations(ids.clone());
                change ApplySchedule = apply_schedule(workflow: val WorkflowId, schedule: by AllocationSchedule) at Timestamp
                    -> AppliedSchedule, of CallSubject::workflow(*workflow);
            }
        }
    };
}
pub(super) use table;

/// The type of an argument in a call.
macro_rules! stored_type {
    (text $type:ty) => { String };
    (list $type:ty) => { Vec<$type> };
    (maybe $type:ty) => { Option<$type> };
    ($how:ident $type:ty) => { $type };
}

/// Converts an argument of a call to the type of the method's parameter.
macro_rules! pass_argument {
    (val $name:ident) => {
        *$name
    };
    (maybe $name:ident) => {
        $name.as_ref()
    };
    (piece $name:ident) => {
        &$name.as_new()
    };
    ($how:ident $name:ident) => {
        $name
    };
}

macro_rules! access_level {
    (change) => {
        AccessLevel::Change
    };
    ($sort:ident) => {
        AccessLevel::Read
    };
}

macro_rules! filter_reply {
    (filtered $answer:expr, $viewer:expr) => {
        $answer.map(|rows| rows.filter_visible($viewer.is_visible))
    };
    ($sort:ident $answer:expr, $viewer:expr) => {
        $answer
    };
}

/// The time, for methods that take it.
macro_rules! current_time {
    (Timestamp $now:expr) => {
        $now
    };
}

macro_rules! define_calls {
    ($($trait:ident { $(
        $sort:ident $variant:ident = $method:ident($($arg:ident: $how:ident $type:ty),*) $(at $time:ident)?
            -> $answer:ty, of $subject:expr;
    )* })*) => {
        /// A method of [`Store`] with its arguments.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(tag = "method", content = "args", rename_all = "snake_case", deny_unknown_fields)]
        #[expect(clippy::large_enum_variant, reason = "one at a time, and short-lived")]
        pub enum StoreCall {
            $($($variant { $($arg: stored_type!($how $type)),* },)*)*
        }

        impl StoreCall {
            /// The names of all methods.
            pub const METHODS: &'static [&'static str] = &[$($(stringify!($method)),*),*];

            pub const fn method(&self) -> &'static str {
                match self {
                    $($(Self::$variant { .. } => stringify!($method),)*)*
                }
            }

            /// The access that the call requires.
            pub fn access(&self) -> CallAccess {
                match self {
                    $($(Self::$variant { $($arg),* } => {
                        // Not every argument is part of the subject.
                        let _ = ($($arg,)*);
                        CallAccess { level: access_level!($sort), subject: $subject }
                    })*)*
                }
            }

            /// Executes the call and redacts the reply for the viewer. Permissions have been checked before.
            pub fn execute(&self, store: &dyn Store, now: Timestamp, viewer: Viewer<'_>) -> StoreReply {
                match self {
                    $($(Self::$variant { $($arg),* } => {
                        let answer = store.$method($(pass_argument!($how $arg),)* $(current_time!($time now))?);
                        let mut answer = filter_reply!($sort answer, viewer);
                        if let Ok(answer) = &mut answer {
                            answer.redact(viewer);
                        }
                        StoreReply::new(answer)
                    })*)*
                }
            }
        }
    };
}

table!(define_calls);
