//! Lists and counts of the contract.

use super::apply_changes::current_run;
use super::claimed_commands::merge_env;
use super::job_loading::{JobIdBlocks, read_resources};
use super::query_builder::SqlQuery;
use super::{column_decoding, events, queries, runs, workers, workflow_parts};
use crate::db::{SqlConnection, SqlRow};
use crate::error::SqlError;
use crate::model::{
    ActionRunRow, CountQuery, DependencyRow, JobDetails, JobFilter, JobRelations, ReadyJobsRow, WorkSummary,
    WorkflowFilter, WorkflowPartId, WorkflowRow,
};
use crate::sql::allocations::OWNER_OF_ALLOCATION;
use crate::sql::common::{JobColumns, REQUIREMENTS_OF, RowLookup, select_jobs};
use crate::sql::workers_and_parts as sql;
use std::collections::{BTreeSet, HashMap, HashSet};
use windlass_types::{
    Attempt, FileId, JobId, RequirementsId, Resources, RunId, Timestamp, UserDataId, WorkerId, WorkflowId,
};

pub(crate) fn count_rows(db: &impl SqlConnection, what: &CountQuery) -> Result<u64, SqlError> {
    match what {
        CountQuery::Workflows(filter) => {
            let mut query = SqlQuery::new(sql::SELECT_COUNT_OF_WORKFLOWS, vec![]);
            push_workflow_conditions(&mut query, filter);
            query.read_count(db)
        }
        CountQuery::Jobs(workflow, filter) => count_jobs(db, *workflow, filter),
        CountQuery::Results(workflow, filter) => queries::count_results(db, *workflow, filter),
        CountQuery::Files(workflow, filter) => workflow_parts::count_files(db, *workflow, filter),
        CountQuery::UserData(workflow, filter) => workflow_parts::count_user_data(db, *workflow, filter),
        CountQuery::Events(workflow, filter) => events::count_events(db, *workflow, filter),
        CountQuery::Workers(filter) => workers::count_workers(db, filter),
        CountQuery::Dependencies(workflow) => {
            current_run(db, *workflow)?;
            let counted = db.query_one(sql::COUNT_DEPENDENCIES, [workflow.0], |row| row.get::<i64>(0))?;
            Ok(counted.unsigned_abs())
        }
    }
}

/// If only states are selected, the stored counts have the answer.
fn count_jobs(db: &impl SqlConnection, workflow: WorkflowId, filter: &JobFilter) -> Result<u64, SqlError> {
    let only_states = JobFilter { status: filter.status.clone(), ..JobFilter::default() };
    let asked = JobFilter { sort: None, offset: 0, limit: None, ..filter.clone() };
    if asked != only_states {
        return queries::count_jobs(db, workflow, filter);
    }
    current_run(db, workflow)?;
    let counts = runs::load_status_counts(db, workflow)?;
    let states: BTreeSet<_> = filter.status.iter().copied().collect();
    let sum = states.into_iter().map(|status| counts.get(status)).sum();
    Ok(if filter.status.is_empty() { counts.total() } else { sum })
}

pub(crate) fn workflow_of(
    db: &impl SqlConnection,
    part: WorkflowPartId,
) -> Result<Option<WorkflowId>, SqlError> {
    let (statement, id) = match part {
        WorkflowPartId::Job(id) => (sql::OWNER_OF_JOB, id.0),
        WorkflowPartId::File(id) => (sql::OWNER_OF_FILE, id.0),
        WorkflowPartId::UserData(id) => (sql::OWNER_OF_USER_DATA, id.0),
        WorkflowPartId::Result(id) => (sql::OWNER_OF_RESULT, id.0),
        WorkflowPartId::Requirements(id) => (sql::OWNER_OF_REQUIREMENTS, id.0),
        WorkflowPartId::Handler(id) => (sql::OWNER_OF_HANDLER, id),
        WorkflowPartId::Scheduler(id) => (sql::OWNER_OF_SCHEDULER, id),
        WorkflowPartId::Action(id) => (sql::OWNER_OF_ACTION, id),
        WorkflowPartId::Event(id) => (sql::OWNER_OF_EVENT, id.0),
        WorkflowPartId::Worker(id) => (sql::OWNER_OF_WORKER, id.0),
        WorkflowPartId::Record(id) => (sql::OWNER_OF_RECORD, id),
        WorkflowPartId::Allocation(id) => (OWNER_OF_ALLOCATION, id.0),
    };
    let owner = db.query_optional(statement, [id], |row| row.get::<Option<i64>>(0))?;
    Ok(owner.flatten().map(WorkflowId))
}

pub(crate) fn list_workflows(
    db: &impl SqlConnection,
    filter: &WorkflowFilter,
) -> Result<Vec<WorkflowRow>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_WORKFLOWS, vec![]);
    push_workflow_conditions(&mut query, filter);
    query.push_order(filter.sort.as_ref(), SORTABLE_WORKFLOWS, "w.id")?;
    query.push_page(filter.offset, filter.limit);
    let rows = query.read_rows(db, queries::read_workflow_row)?;
    rows.into_iter().map(|row| queries::load_counts(db, row)).collect()
}

const SORTABLE_WORKFLOWS: &[(&str, &str)] = &[
    ("id", "w.id"),
    ("name", "w.name"),
    ("user", "w.user_name"),
    ("description", "w.description"),
    ("timestamp", "w.created_at"),
    ("run_id", "w.run_id"),
    ("is_archived", "w.is_archived"),
    ("is_canceled", "w.is_canceled"),
];

fn push_workflow_conditions(query: &mut SqlQuery, filter: &WorkflowFilter) {
    query.push("1 = 1", vec![]);
    if let Some(name) = &filter.name {
        query.push(" AND w.name = ?", vec![Box::new(name.clone())]);
    }
    if let Some(user) = &filter.user {
        query.push(" AND w.user_name = ?", vec![Box::new(user.clone())]);
    }
    if let Some(part) = &filter.description {
        query.push_contains(" AND ", "w.description", part);
    }
    if let Some(is_archived) = filter.is_archived {
        query.push(" AND w.is_archived = ?", vec![Box::new(i64::from(is_archived))]);
    }
    if let Some(group) = filter.group {
        let shared = " AND w.id IN (SELECT s.workflow_id FROM workflow_group s WHERE s.group_id = ?)";
        query.push(shared, vec![Box::new(group)]);
    }
    if let Some(user) = &filter.visible_to {
        let visible = " AND (w.user_name = ? OR w.id IN (SELECT s.workflow_id FROM workflow_group s \
            JOIN group_member m ON m.group_id = s.group_id WHERE m.user_name = ?))";
        query.push(visible, vec![Box::new(user.clone()), Box::new(user.clone())]);
    }
}

pub(crate) fn work_summary(db: &impl SqlConnection, workflow: WorkflowId) -> Result<WorkSummary, SqlError> {
    current_run(db, workflow)?;
    db.query_one(sql::WORK_DONE, [workflow.0], |row| {
        Ok(WorkSummary {
            wall: column_decoding::read_duration(row, 0)?.unwrap_or_default(),
            first_start: column_decoding::read_time(row, 1)?,
            last_end: column_decoding::read_time(row, 2)?,
        })
    })
}

pub(crate) fn find_job_details(db: &impl SqlConnection, id: JobId) -> Result<Option<JobDetails>, SqlError> {
    let Some(workflow) = workflow_of(db, WorkflowPartId::Job(id))? else { return Ok(None) };
    let run = current_run(db, workflow)?;
    let mut query = SqlQuery::new(&select_jobs(RowLookup::Anywhere, JobColumns::All), vec![Box::new(run.0)]);
    query.push("j.id = ?", vec![Box::new(id.0)]);
    Ok(query.read_rows(db, read_job_details)?.pop())
}

pub(crate) fn list_job_details<D: SqlConnection>(
    db: &D,
    workflow: WorkflowId,
    filter: &JobFilter,
) -> Result<Vec<JobDetails>, SqlError> {
    let run = current_run(db, workflow)?;
    let labels = queries::label_condition(db, workflow, filter)?;
    queries::jobs_query::<D>(workflow, run, filter, JobColumns::All, labels.as_deref())?
        .read_rows(db, read_job_details)
}

/// The columns after those of a plain row.
fn read_job_details(row: &SqlRow<'_>) -> Result<JobDetails, SqlError> {
    let inherited = column_decoding::read_env(row, 21)?;
    Ok(JobDetails {
        row: queries::read_job_row(row)?,
        requirements_id: row.get::<Option<i64>>(18)?.map(RequirementsId),
        worker_id: row.get::<Option<i64>>(19)?.map(WorkerId),
        invocation_script: row.get(20)?,
        env: merge_env(&inherited, column_decoding::read_env(row, 22)?),
        stdio: column_decoding::read_stdio(row, 23)?,
        supports_termination: row.get::<Option<i64>>(25)?.map(|flag| flag != 0),
        failure_handler_id: row.get(26)?,
        scheduler_id: row.get(27)?,
        labels: column_decoding::read_json(row, 28)?.unwrap_or_default(),
    })
}

pub(crate) fn list_job_ids(db: &impl SqlConnection, workflow: WorkflowId) -> Result<Vec<JobId>, SqlError> {
    Ok(JobIdBlocks::load(db, workflow)?.ids().collect())
}

pub(crate) fn list_job_relations(
    db: &impl SqlConnection,
    jobs: &[JobId],
) -> Result<Vec<JobRelations>, SqlError> {
    jobs.iter().map(|job| workflow_parts::load_job_relations(db, *job)).collect()
}

pub(crate) fn list_dependencies(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    offset: u64,
    limit: Option<u64>,
) -> Result<Vec<DependencyRow>, SqlError> {
    current_run(db, workflow)?;
    let at_most = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let values = [workflow.0, limit.map_or(i64::MAX, at_most), at_most(offset)];
    db.query_all(sql::DEPENDENCIES, values, |row| {
        Ok(DependencyRow {
            job_id: JobId(row.get(0)?),
            job_name: row.get(1)?,
            depends_on_job_id: JobId(row.get(2)?),
            depends_on_job_name: row.get(3)?,
        })
    })
}

pub(crate) fn list_ready_requirements(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    scheduler: Option<i64>,
) -> Result<Vec<ReadyJobsRow>, SqlError> {
    current_run(db, workflow)?;
    let pair = |row: &SqlRow<'_>| Ok((row.get::<i64>(0)?, row.get::<Option<i64>>(1)?));
    let named: HashMap<i64, Option<i64>> =
        db.query_all(sql::SCHEDULERS_OF_GROUPS, [workflow.0], pair)?.into_iter().collect();
    let counted = db.query_all(sql::READY_REQUIREMENTS, [workflow.0], |row| {
        Ok((row.get::<Option<i64>>(0)?, row.get::<Option<i64>>(1)?, row.get::<i64>(2)?))
    })?;
    let mut rows: Vec<ReadyJobsRow> = Vec::new();
    for (requirements, job_group, jobs) in counted {
        let names = job_group.and_then(|job_group| named.get(&job_group).copied().flatten());
        if scheduler.is_some() && names.is_some() && names != scheduler {
            continue;
        }
        let resources = match requirements {
            Some(id) => db.query_one(REQUIREMENTS_OF, [id], read_resources)?,
            None => Resources::DEFAULT,
        };
        match rows.iter_mut().find(|row| row.resources == resources) {
            Some(row) => row.jobs += jobs.unsigned_abs(),
            None => rows.push(ReadyJobsRow { resources, jobs: jobs.unsigned_abs() }),
        }
    }
    Ok(rows)
}

/// The same query for files and user data: which job reads and writes what.
struct DataUse<T> {
    job: JobId,
    is_output: bool,
    object: T,
}

/// Required files: read by a job and written by none, or written by a completed job.
fn find_required<T: Ord + Copy + std::hash::Hash>(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    uses: &[DataUse<T>],
) -> Result<BTreeSet<T>, SqlError> {
    let completed: HashSet<i64> =
        db.query_all(sql::COMPLETED_JOBS, [workflow.0], |row| row.get(0))?.into_iter().collect();
    let written: HashSet<T> = uses.iter().filter(|of| of.is_output).map(|of| of.object).collect();
    let needed = |of: &&DataUse<T>| {
        if of.is_output { completed.contains(&of.job.0) } else { !written.contains(&of.object) }
    };
    Ok(uses.iter().filter(needed).map(|of| of.object).collect())
}

pub(crate) fn list_required_files(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<Vec<FileId>, SqlError> {
    let uses: Vec<DataUse<FileId>> = workflow_parts::list_job_files(db, workflow)?
        .into_iter()
        .map(|row| DataUse { job: row.job_id, is_output: row.is_output, object: row.file_id })
        .collect();
    Ok(find_required(db, workflow, &uses)?.into_iter().collect())
}

pub(crate) fn list_missing_user_data(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<Vec<UserDataId>, SqlError> {
    let uses: Vec<DataUse<UserDataId>> = workflow_parts::list_job_user_data(db, workflow)?
        .into_iter()
        .map(|row| DataUse { job: row.job_id, is_output: row.is_output, object: row.user_data_id })
        .collect();
    let needed = find_required(db, workflow, &uses)?;
    let empty = db.query_all(sql::MISSING_DATA, [workflow.0], |row| row.get(0).map(UserDataId))?;
    Ok(empty.into_iter().filter(|id| needed.contains(id)).collect())
}

pub(crate) fn list_action_runs(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<Vec<ActionRunRow>, SqlError> {
    current_run(db, workflow)?;
    db.query_all(sql::ACTION_RUNS, [workflow.0], read_action_run_row)
}

pub(crate) fn read_action_run_row(row: &SqlRow<'_>) -> Result<ActionRunRow, SqlError> {
    Ok(ActionRunRow {
        action_id: row.get(0)?,
        attempt: Attempt(row.get(1)?),
        run_id: RunId(row.get(2)?),
        worker_id: row.get::<Option<i64>>(3)?.map(WorkerId),
        cause: row.get(4)?,
        started_at: Timestamp(row.get(5)?),
        ended_at: column_decoding::read_time(row, 6)?,
        return_code: row.get(7)?,
        message: row.get(8)?,
    })
}
