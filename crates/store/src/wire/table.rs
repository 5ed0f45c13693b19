//! The table, and the requests that are made from it.

use super::eyes::{Eyes, Veiled as _};
use super::{Access, Answer, GivenUserData, Level, Sift as _, Subject};
use crate::Store;
use crate::model::{
    AddJob, AllocationFilter, DataFilter, DecisionFilter, EventFilter, Export, ExportOptions, FailureFilter,
    FileUpdate, ImportOptions, JobFilter, JobUpdate, NewEvent, RequirementsChange, RequirementsUpdate,
    ResultFilter, RevisionFilter, SpawnRequest, WorkflowUpdate,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_core::slurm::book::{NewAllocation, Schedule};
use windlass_types::orders::Wanted;
use windlass_types::settings::SlurmScheduler;
use windlass_types::work::AttemptKey;
use windlass_types::{
    AllocationId, EventId, FileId, JobId, RequirementsId, Resources, ResultId, Timestamp, UserDataId,
    WorkflowId,
};

/// The methods of [`Store`] that may be used from outside, by the trait that has them; hands them to the macro that is named.
///
/// `SORT Variant = method(argument: HOW Type, …) [at Timestamp] -> Answer, of SUBJECT;`
/// - SORT: `read` and `change` say what access it needs; `sifted` is a read over all workflows, from whose answer what
///   may not be seen is left out.
/// - HOW an argument is given: `val` as it is, `by` reference, a `list`, a `text`, `maybe` a reference, a `piece` of new
///   user data.
/// - `at`: the method is told the time, which is that of whoever keeps the books.
macro_rules! table {
    ($then:ident) => {
        $then! {
            Store {
                sifted Workflows = workflows() -> Vec<WorkflowRow>, of Subject::All;
                read Workflow = workflow(id: val WorkflowId) -> Option<WorkflowRow>, of Subject::workflow(*id);
                sifted FindByDigest = find_by_digest(digest: text str, submission_dir: text str)
                    -> Option<WorkflowRow>, of Subject::All;
                read LoadJobs = load_jobs(workflow: val WorkflowId) -> LoadedJobs, of Subject::workflow(*workflow);
                read Commands = commands(jobs: list JobId) -> Vec<JobCommand>, of Subject::Jobs(jobs.clone());
                read HeldJobs = held_jobs(workflow: val WorkflowId) -> Vec<HeldJob>, of Subject::workflow(*workflow);
                read Jobs = jobs(workflow: val WorkflowId, filter: by JobFilter)
                    -> Vec<JobRow>, of Subject::workflow(*workflow);
                read FindJob = find_job(id: val JobId) -> Option<JobRow>, of Subject::Jobs(vec![*id]);
                read Results = results(workflow: val WorkflowId, filter: by ResultFilter)
                    -> Vec<ResultRow>, of Subject::workflow(*workflow);
                read Failures = failures(workflow: val WorkflowId, filter: by FailureFilter)
                    -> Vec<FailureRow>, of Subject::workflow(*workflow);
                read FailureGroups = failure_groups(workflow: val WorkflowId)
                    -> Vec<FailureGroup>, of Subject::workflow(*workflow);
                read Decisions = decisions(workflow: val WorkflowId, filter: by DecisionFilter)
                    -> Vec<DecisionRow>, of Subject::workflow(*workflow);
                read Revisions = revisions(workflow: val WorkflowId, filter: val RevisionFilter)
                    -> Vec<RevisionRow>, of Subject::workflow(*workflow);
                read Units = units(workflow: val WorkflowId, after_seq: val u64)
                    -> Vec<UnitRow>, of Subject::workflow(*workflow);
                read UnitCounts = unit_counts(workflow: val WorkflowId)
                    -> UnitCounts, of Subject::workflow(*workflow);
                change CarryOut = carry_out(workflow: val WorkflowId, wanted: by Wanted) at Timestamp
                    -> Vec<Outcome>, of Subject::workflow(*workflow);
                read JobNames = job_names(jobs: list JobId) -> Vec<String>, of Subject::Jobs(jobs.clone());
                read JobRelations = job_relations(job: val JobId) -> JobRelations, of Subject::Jobs(vec![*job]);
                read Requirements = requirements(workflow: val WorkflowId)
                    -> Vec<RequirementsRow>, of Subject::workflow(*workflow);
                read Kinds = kinds(workflow: val WorkflowId) -> Vec<KindRow>, of Subject::workflow(*workflow);
                read Handlers = handlers(workflow: val WorkflowId) -> Vec<HandlerRow>, of Subject::workflow(*workflow);
                read Schedulers = schedulers(workflow: val WorkflowId)
                    -> Vec<SchedulerRow>, of Subject::workflow(*workflow);
                read Actions = actions(workflow: val WorkflowId) -> Vec<ActionRow>, of Subject::workflow(*workflow);
                read Files = files(workflow: val WorkflowId, filter: by DataFilter)
                    -> Vec<FileRow>, of Subject::workflow(*workflow);
                read File = file(id: val FileId) -> Option<FileRow>, of Subject::File(*id);
                read JobFiles = job_files(workflow: val WorkflowId) -> Vec<JobFileRow>, of Subject::workflow(*workflow);
                read UserData = user_data(workflow: val WorkflowId, filter: by DataFilter)
                    -> Vec<UserDataRow>, of Subject::workflow(*workflow);
                read UserDataPiece = user_data_piece(id: val UserDataId)
                    -> Option<UserDataRow>, of Subject::UserData(*id);
                read JobUserData = job_user_data(workflow: val WorkflowId)
                    -> Vec<JobUserDataRow>, of Subject::workflow(*workflow);
                sifted Events = events(workflow: val Option<WorkflowId>, filter: by EventFilter)
                    -> Vec<EventRow>, of Subject::workflow_or(*workflow, Subject::All);
                read Spawners = spawners(workflow: val WorkflowId) -> Vec<JobId>, of Subject::workflow(*workflow);
                read LeftBehind = left_behind(callers: list AttemptKey)
                    -> Vec<JobId>, of Subject::Attempts(callers.clone());
                read LastRecords = last_records(workflow: val WorkflowId)
                    -> Vec<LastRecord>, of Subject::workflow(*workflow);
                read CancelRequested = cancel_requested(workflow: val WorkflowId)
                    -> bool, of Subject::workflow(*workflow);
                sifted ActiveWorkers = active_workers(workflow: val Option<WorkflowId>)
                    -> Vec<WorkerRow>, of Subject::workflow_or(*workflow, Subject::All);
                read Export = export(id: val WorkflowId, options: val ExportOptions) at Timestamp
                    -> Export, of Subject::workflow(*id);

                change BeginNextRun = begin_next_run(workflow: val WorkflowId, again: list JobId) at Timestamp
                    -> RunId, of Subject::workflow(*workflow);
                change RequestCancel = request_cancel(workflow: val WorkflowId) at Timestamp
                    -> (), of Subject::workflow(*workflow);
                change AddEvent = add_event(event: by NewEvent) at Timestamp
                    -> EventId, of Subject::workflow_or(event.workflow, Subject::Database);
                change Spawn = spawn(request: by SpawnRequest) at Timestamp
                    -> Spawned, of Subject::Attempts(vec![request.caller]);
                change UpdateWorkflow = update_workflow(id: val WorkflowId, update: by WorkflowUpdate) at Timestamp
                    -> (), of Subject::workflow(*id);
                change Archive = archive(ids: list WorkflowId, is_archived: val bool) at Timestamp
                    -> (), of Subject::Workflows(ids.clone());
                change DeleteWorkflow = delete_workflow(id: val WorkflowId) at Timestamp
                    -> (), of Subject::workflow(*id);
                change ChangeRequirements =
                    change_requirements(workflow: val WorkflowId, changes: list RequirementsChange) at Timestamp
                    -> Vec<RequirementsId>, of Subject::workflow(*workflow);
                change ChangePriorities =
                    change_priorities(workflow: val WorkflowId, changes: list (i32, i32)) at Timestamp
                    -> usize, of Subject::workflow(*workflow);
                change AddUserData = add_user_data(workflow: val WorkflowId, new: piece GivenUserData) at Timestamp
                    -> UserDataId, of Subject::workflow(*workflow);
                change SetUserData = set_user_data(id: val UserDataId, data: maybe Value) at Timestamp
                    -> (), of Subject::UserData(*id);
                change DeleteUserData = delete_user_data(id: val UserDataId) at Timestamp
                    -> (), of Subject::UserData(*id);
                change AddJobs = add_jobs(workflow: val WorkflowId, jobs: list AddJob) at Timestamp
                    -> Vec<JobId>, of Subject::workflow(*workflow);
                change UpdateJob = update_job(workflow: val WorkflowId, job: val JobId, update: by JobUpdate) at Timestamp
                    -> Vec<FieldChange>, of Subject::workflow(*workflow);
                change DeleteJobs = delete_jobs(workflow: val WorkflowId, jobs: list JobId) at Timestamp
                    -> (), of Subject::workflow(*workflow);
                change AddFile = add_file(workflow: val WorkflowId, name: text str, path: text str) at Timestamp
                    -> FileId, of Subject::workflow(*workflow);
                change UpdateFile = update_file(id: val FileId, update: by FileUpdate) at Timestamp
                    -> Vec<FieldChange>, of Subject::File(*id);
                change DeleteFile = delete_file(id: val FileId) at Timestamp -> (), of Subject::File(*id);
                change AddRequirements =
                    add_requirements(workflow: val WorkflowId, name: text str, resources: by Resources) at Timestamp
                    -> RequirementsId, of Subject::workflow(*workflow);
                change UpdateRequirements =
                    update_requirements(id: val RequirementsId, update: by RequirementsUpdate) at Timestamp
                    -> Vec<FieldChange>, of Subject::Requirements(*id);
                change DeleteRequirements = delete_requirements(id: val RequirementsId) at Timestamp
                    -> (), of Subject::Requirements(*id);
                change RetryAction = retry_action(workflow: val WorkflowId, id: val i64) at Timestamp
                    -> (), of Subject::workflow(*workflow);
                change DeleteResult = delete_result(id: val ResultId) at Timestamp -> (), of Subject::Result(*id);
                change DeleteEvent = delete_event(id: val EventId) at Timestamp -> (), of Subject::Event(*id);
                change Import = import(export: by Export, options: by ImportOptions) at Timestamp
                    -> WorkflowId, of Subject::New;
            }
            Parts {
                change AddScheduler = add_scheduler(workflow: val WorkflowId, scheduler: by SlurmScheduler) at Timestamp
                    -> i64, of Subject::workflow(*workflow);
                change UpdateScheduler = update_scheduler(id: val i64, scheduler: by SlurmScheduler) at Timestamp
                    -> (), of Subject::Scheduler(*id);
                change DeleteScheduler = delete_scheduler(id: val i64) at Timestamp -> (), of Subject::Scheduler(*id);
            }
            Allocations {
                sifted Allocations = allocations(filter: by AllocationFilter)
                    -> Vec<Allocation>, of Subject::workflow_or(filter.workflow, Subject::All);
                read Allocation = allocation(id: val AllocationId)
                    -> Option<Allocation>, of Subject::Allocations(vec![*id]);
                read ScheduleSeen = schedule_seen(workflow: val WorkflowId)
                    -> String, of Subject::workflow(*workflow);
                sifted SlurmCalls = slurm_calls(since: val Timestamp) -> Vec<CallCount>, of Subject::All;
                change AddAllocations = add_allocations(new: list NewAllocation) at Timestamp
                    -> Vec<AllocationId>, of Subject::Workflows(new.iter().map(|new| new.workflow).collect());
                change DiscardAllocations = discard_allocations(ids: list AllocationId, why: text str) at Timestamp
                    -> Vec<Allocation>, of Subject::Allocations(ids.clone());
                change ApplySchedule = apply_schedule(workflow: val WorkflowId, schedule: by Schedule) at Timestamp
                    -> Scheduled, of Subject::workflow(*workflow);
            }
        }
    };
}
pub(super) use table;

/// The type that a request keeps an argument in.
macro_rules! kept {
    (text $type:ty) => { String };
    (list $type:ty) => { Vec<$type> };
    (maybe $type:ty) => { Option<$type> };
    ($how:ident $type:ty) => { $type };
}

/// An argument as the method wants it, from what a request keeps.
macro_rules! lent {
    (val $name:ident) => {
        *$name
    };
    (maybe $name:ident) => {
        $name.as_ref()
    };
    (piece $name:ident) => {
        &$name.lend()
    };
    ($how:ident $name:ident) => {
        $name
    };
}

macro_rules! level {
    (change) => {
        Level::Change
    };
    ($sort:ident) => {
        Level::Read
    };
}

macro_rules! sifted {
    (sifted $answer:expr, $eyes:expr) => {
        $answer.map(|rows| rows.sift($eyes.may_see))
    };
    ($sort:ident $answer:expr, $eyes:expr) => {
        $answer
    };
}

/// The time, where a method is told it.
macro_rules! told {
    (Timestamp $now:expr) => {
        $now
    };
}

macro_rules! requests {
    ($($trait:ident { $(
        $sort:ident $variant:ident = $method:ident($($arg:ident: $how:ident $type:ty),*) $(at $time:ident)?
            -> $answer:ty, of $subject:expr;
    )* })*) => {
        /// A method of [`Store`] and what it is called with.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(tag = "method", content = "args", rename_all = "snake_case", deny_unknown_fields)]
        #[expect(clippy::large_enum_variant, reason = "one at a time, and gone when it is answered")]
        pub enum Request {
            $($($variant { $($arg: kept!($how $type)),* },)*)*
        }

        impl Request {
            /// The names of all methods.
            pub const METHODS: &'static [&'static str] = &[$($(stringify!($method)),*),*];

            pub const fn method(&self) -> &'static str {
                match self {
                    $($(Self::$variant { .. } => stringify!($method),)*)*
                }
            }

            /// What somebody must be allowed to do for it.
            pub fn access(&self) -> Access {
                match self {
                    $($(Self::$variant { $($arg),* } => {
                        // Not every argument says what a request is about.
                        let _ = ($($arg,)*);
                        Access { level: level!($sort), subject: $subject }
                    })*)*
                }
            }

            /// Does it, and says how it went, to the eyes of whoever asked. That it may be done was settled before.
            pub fn answer(&self, store: &dyn Store, now: Timestamp, eyes: Eyes<'_>) -> Answer {
                match self {
                    $($(Self::$variant { $($arg),* } => {
                        let answer = store.$method($(lent!($how $arg),)* $(told!($time now))?);
                        let mut answer = sifted!($sort answer, eyes);
                        if let Ok(answer) = &mut answer {
                            answer.veil(eyes);
                        }
                        Answer::new(answer)
                    })*)*
                }
            }
        }
    };
}

table!(requests);
