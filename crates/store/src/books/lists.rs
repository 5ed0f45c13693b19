//! What the contract lists and counts.

use super::apply::current_run;
use super::command::merged_env;
use super::load::{Blocks, resources};
use super::query::Query;
use super::{column, events, fleet, parts, read, runs};
use crate::db::{Db, Row};
use crate::error::Fault;
use crate::model::{
    ActionRunRow, Counted, DependencyRow, JobDetails, JobFilter, JobRelations, Part, ReadyRow, WorkDone,
    WorkflowFilter, WorkflowRow,
};
use crate::sql::allocations::OWNER_OF_ALLOCATION;
use crate::sql::common::{Detail, From, REQUIREMENTS_OF, select_jobs};
use crate::sql::server as sql;
use std::collections::{BTreeSet, HashMap, HashSet};
use windlass_types::{
    Attempt, FileId, JobId, RequirementsId, Resources, RunId, Timestamp, UserDataId, WorkerId, WorkflowId,
};

pub(crate) fn count(db: &impl Db, what: &Counted) -> Result<u64, Fault> {
    match what {
        Counted::Workflows(filter) => {
            let mut query = Query::new(sql::SELECT_COUNT_OF_WORKFLOWS, vec![]);
            push_workflow_conditions(&mut query, filter);
            query.count(db)
        }
        Counted::Jobs(workflow, filter) => count_jobs(db, *workflow, filter),
        Counted::Results(workflow, filter) => read::count_results(db, *workflow, filter),
        Counted::Files(workflow, filter) => parts::count_files(db, *workflow, filter),
        Counted::UserData(workflow, filter) => parts::count_user_data(db, *workflow, filter),
        Counted::Events(workflow, filter) => events::count_events(db, *workflow, filter),
        Counted::Workers(filter) => fleet::count_workers(db, filter),
        Counted::Dependencies(workflow) => {
            current_run(db, *workflow)?;
            let counted = db.one(sql::COUNT_DEPENDENCIES, [workflow.0], |row| row.get::<i64>(0))?;
            Ok(counted.unsigned_abs())
        }
    }
}

/// Where only states are asked for the answer is kept already.
fn count_jobs(db: &impl Db, workflow: WorkflowId, filter: &JobFilter) -> Result<u64, Fault> {
    let only_states = JobFilter { status: filter.status.clone(), ..JobFilter::default() };
    let asked = JobFilter { sort: None, offset: 0, limit: None, ..filter.clone() };
    if asked != only_states {
        return read::count_jobs(db, workflow, filter);
    }
    current_run(db, workflow)?;
    let counts = runs::counts(db, workflow)?;
    let states: BTreeSet<_> = filter.status.iter().copied().collect();
    let sum = states.into_iter().map(|status| counts.get(status)).sum();
    Ok(if filter.status.is_empty() { counts.total() } else { sum })
}

pub(crate) fn workflow_of(db: &impl Db, part: Part) -> Result<Option<WorkflowId>, Fault> {
    let (statement, id) = match part {
        Part::Job(id) => (sql::OWNER_OF_JOB, id.0),
        Part::File(id) => (sql::OWNER_OF_FILE, id.0),
        Part::UserData(id) => (sql::OWNER_OF_USER_DATA, id.0),
        Part::Result(id) => (sql::OWNER_OF_RESULT, id.0),
        Part::Requirements(id) => (sql::OWNER_OF_REQUIREMENTS, id.0),
        Part::Handler(id) => (sql::OWNER_OF_HANDLER, id),
        Part::Scheduler(id) => (sql::OWNER_OF_SCHEDULER, id),
        Part::Action(id) => (sql::OWNER_OF_ACTION, id),
        Part::Event(id) => (sql::OWNER_OF_EVENT, id.0),
        Part::Worker(id) => (sql::OWNER_OF_WORKER, id.0),
        Part::Record(id) => (sql::OWNER_OF_RECORD, id),
        Part::Allocation(id) => (OWNER_OF_ALLOCATION, id.0),
    };
    let owner = db.optional(statement, [id], |row| row.get::<Option<i64>>(0))?;
    Ok(owner.flatten().map(WorkflowId))
}

pub(crate) fn workflows(db: &impl Db, filter: &WorkflowFilter) -> Result<Vec<WorkflowRow>, Fault> {
    let mut query = Query::new(sql::SELECT_WORKFLOWS, vec![]);
    push_workflow_conditions(&mut query, filter);
    query.push_order(filter.sort.as_ref(), SORTABLE_WORKFLOWS, "w.id")?;
    query.push_page(filter.offset, filter.limit);
    let rows = query.run(db, read::workflow_row)?;
    rows.into_iter().map(|row| read::with_counts(db, row)).collect()
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

fn push_workflow_conditions(query: &mut Query, filter: &WorkflowFilter) {
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

pub(crate) fn work_done(db: &impl Db, workflow: WorkflowId) -> Result<WorkDone, Fault> {
    current_run(db, workflow)?;
    db.one(sql::WORK_DONE, [workflow.0], |row| {
        Ok(WorkDone {
            wall: column::duration(row, 0)?.unwrap_or_default(),
            first_start: column::time(row, 1)?,
            last_end: column::time(row, 2)?,
        })
    })
}

pub(crate) fn job(db: &impl Db, id: JobId) -> Result<Option<JobDetails>, Fault> {
    let Some(workflow) = workflow_of(db, Part::Job(id))? else { return Ok(None) };
    let run = current_run(db, workflow)?;
    let mut query = Query::new(&select_jobs(From::Anywhere, Detail::All), vec![Box::new(run.0)]);
    query.push("j.id = ?", vec![Box::new(id.0)]);
    Ok(query.run(db, details)?.pop())
}

pub(crate) fn job_details<D: Db>(
    db: &D,
    workflow: WorkflowId,
    filter: &JobFilter,
) -> Result<Vec<JobDetails>, Fault> {
    let run = current_run(db, workflow)?;
    let labels = read::label_condition(db, workflow, filter)?;
    read::jobs_query::<D>(workflow, run, filter, Detail::All, labels.as_deref())?.run(db, details)
}

/// What follows the columns of a plain row.
fn details(row: &Row<'_>) -> Result<JobDetails, Fault> {
    let inherited = column::env(row, 20)?;
    Ok(JobDetails {
        row: read::job_row(row)?,
        requirements_id: row.get::<Option<i64>>(17)?.map(RequirementsId),
        worker_id: row.get::<Option<i64>>(18)?.map(WorkerId),
        invocation_script: row.get(19)?,
        env: merged_env(&inherited, column::env(row, 21)?),
        stdio: column::stdio(row, 22)?,
        supports_termination: row.get::<Option<i64>>(24)?.map(|flag| flag != 0),
        failure_handler_id: row.get(25)?,
        scheduler_id: row.get(26)?,
        labels: column::json(row, 27)?.unwrap_or_default(),
    })
}

pub(crate) fn job_ids(db: &impl Db, workflow: WorkflowId) -> Result<Vec<JobId>, Fault> {
    Ok(Blocks::read(db, workflow)?.ids().collect())
}

pub(crate) fn relations(db: &impl Db, jobs: &[JobId]) -> Result<Vec<JobRelations>, Fault> {
    jobs.iter().map(|job| parts::job_relations(db, *job)).collect()
}

pub(crate) fn dependencies(
    db: &impl Db,
    workflow: WorkflowId,
    offset: u64,
    limit: Option<u64>,
) -> Result<Vec<DependencyRow>, Fault> {
    current_run(db, workflow)?;
    let at_most = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let values = [workflow.0, limit.map_or(i64::MAX, at_most), at_most(offset)];
    db.all(sql::DEPENDENCIES, values, |row| {
        Ok(DependencyRow {
            job_id: JobId(row.get(0)?),
            job_name: row.get(1)?,
            depends_on_job_id: JobId(row.get(2)?),
            depends_on_job_name: row.get(3)?,
        })
    })
}

pub(crate) fn ready_requirements(
    db: &impl Db,
    workflow: WorkflowId,
    scheduler: Option<i64>,
) -> Result<Vec<ReadyRow>, Fault> {
    current_run(db, workflow)?;
    let pair = |row: &Row<'_>| Ok((row.get::<i64>(0)?, row.get::<Option<i64>>(1)?));
    let named: HashMap<i64, Option<i64>> =
        db.all(sql::SCHEDULERS_OF_KINDS, [workflow.0], pair)?.into_iter().collect();
    let counted = db.all(sql::READY_REQUIREMENTS, [workflow.0], |row| {
        Ok((row.get::<Option<i64>>(0)?, row.get::<Option<i64>>(1)?, row.get::<i64>(2)?))
    })?;
    let mut rows: Vec<ReadyRow> = Vec::new();
    for (requirements, kind, jobs) in counted {
        let names = kind.and_then(|kind| named.get(&kind).copied().flatten());
        if scheduler.is_some() && names.is_some() && names != scheduler {
            continue;
        }
        let resources = match requirements {
            Some(id) => db.one(REQUIREMENTS_OF, [id], resources)?,
            None => Resources::DEFAULT,
        };
        match rows.iter_mut().find(|row| row.resources == resources) {
            Some(row) => row.jobs += jobs.unsigned_abs(),
            None => rows.push(ReadyRow { resources, jobs: jobs.unsigned_abs() }),
        }
    }
    Ok(rows)
}

/// The same question for files and user data: who reads and writes what.
struct Use<T> {
    job: JobId,
    is_output: bool,
    what: T,
}

/// What must be there: read by some and written by none, or written by a job that has completed.
fn must_be_there<T: Ord + Copy + std::hash::Hash>(
    db: &impl Db,
    workflow: WorkflowId,
    uses: &[Use<T>],
) -> Result<BTreeSet<T>, Fault> {
    let completed: HashSet<i64> =
        db.all(sql::COMPLETED_JOBS, [workflow.0], |row| row.get(0))?.into_iter().collect();
    let written: HashSet<T> = uses.iter().filter(|of| of.is_output).map(|of| of.what).collect();
    let needed = |of: &&Use<T>| {
        if of.is_output { completed.contains(&of.job.0) } else { !written.contains(&of.what) }
    };
    Ok(uses.iter().filter(needed).map(|of| of.what).collect())
}

pub(crate) fn required_files(db: &impl Db, workflow: WorkflowId) -> Result<Vec<FileId>, Fault> {
    let uses: Vec<Use<FileId>> = parts::job_files(db, workflow)?
        .into_iter()
        .map(|row| Use { job: row.job_id, is_output: row.is_output, what: row.file_id })
        .collect();
    Ok(must_be_there(db, workflow, &uses)?.into_iter().collect())
}

pub(crate) fn missing_user_data(db: &impl Db, workflow: WorkflowId) -> Result<Vec<UserDataId>, Fault> {
    let uses: Vec<Use<UserDataId>> = parts::job_user_data(db, workflow)?
        .into_iter()
        .map(|row| Use { job: row.job_id, is_output: row.is_output, what: row.user_data_id })
        .collect();
    let needed = must_be_there(db, workflow, &uses)?;
    let empty = db.all(sql::MISSING_DATA, [workflow.0], |row| row.get(0).map(UserDataId))?;
    Ok(empty.into_iter().filter(|id| needed.contains(id)).collect())
}

pub(crate) fn action_runs(db: &impl Db, workflow: WorkflowId) -> Result<Vec<ActionRunRow>, Fault> {
    current_run(db, workflow)?;
    db.all(sql::ACTION_RUNS, [workflow.0], action_run_row)
}

pub(crate) fn action_run_row(row: &Row<'_>) -> Result<ActionRunRow, Fault> {
    Ok(ActionRunRow {
        action_id: row.get(0)?,
        attempt: Attempt(row.get(1)?),
        run_id: RunId(row.get(2)?),
        worker_id: row.get::<Option<i64>>(3)?.map(WorkerId),
        cause: row.get(4)?,
        started_at: Timestamp(row.get(5)?),
        ended_at: column::time(row, 6)?,
        return_code: row.get(7)?,
        message: row.get(8)?,
    })
}
