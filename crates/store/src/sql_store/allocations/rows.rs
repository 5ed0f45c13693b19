//! Rows of allocations: insertion, changes, and their events.

use crate::StoreError;
use crate::db::{SqlConnection, SqlRow, values};
use crate::error::SqlError;
use crate::model::{AllocationFilter, EventSeverity, NewEvent};
use crate::sql::allocations as sql;
use crate::sql_store::apply_changes::{current_run, to_micros};
use crate::sql_store::job_loading::JobIdBlocks;
use crate::sql_store::query_builder::{SqlQuery, render_id_list as numbers};
use crate::sql_store::workflow_updates::AuditContext;
use crate::sql_store::{column_decoding, events, workflow_parts};
use serde_json::json;
use std::time::Duration;
use windlass_core::attempt_outcome::INTERRUPTED;
use windlass_core::change::AttemptResult;
use windlass_core::crash_suspects::ORPHAN_REASON_PREFIX;
use windlass_core::slurm::allocation_ends::{self, AllocationEviction};
use windlass_core::slurm::allocation_rows::{
    AllocationChange, ExternalAllocation, NewAllocation, SlurmCallCount, hour_start,
};
use windlass_types::slurm::{Allocation, AllocationRequest, AllocationState, SlurmJobState};
use windlass_types::{AllocationId, Timestamp, WorkflowId};

const ALLOCATION_CATEGORY: &str = "allocation";

fn missing_error(id: AllocationId) -> StoreError {
    StoreError::NoSuch { what: ALLOCATION_CATEGORY.into(), id: id.0 }
}

// ---- queries ----

pub(crate) fn find_allocation(
    db: &impl SqlConnection,
    id: AllocationId,
) -> Result<Option<Allocation>, SqlError> {
    let filter = AllocationFilter { ids: vec![id], ..AllocationFilter::default() };
    Ok(list_allocations(db, &filter)?.pop())
}

pub(crate) fn list_allocations(
    db: &impl SqlConnection,
    filter: &AllocationFilter,
) -> Result<Vec<Allocation>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_ALLOCATIONS, vec![]);
    query.push("a.id > 0", vec![]);
    if let Some(workflow) = filter.workflow {
        query.push(" AND a.workflow_id = ?", vec![Box::new(workflow.0)]);
    }
    if !filter.ids.is_empty() {
        query.push(&format!(" AND a.id IN ({})", numbers(filter.ids.iter().map(|id| id.0))), vec![]);
    }
    if !filter.states.is_empty() {
        let names: Vec<String> = filter.states.iter().map(|state| format!("'{}'", state.name())).collect();
        query.push(&format!(" AND a.state IN ({})", names.join(", ")), vec![]);
    }
    // Literally the condition of the index of open allocations.
    match filter.is_open {
        Some(true) => query.push(" AND a.is_ended = 0", vec![]),
        Some(false) => query.push(" AND a.is_ended = 1", vec![]),
        None => {}
    }
    if let Some(is_ours) = filter.is_ours {
        query.push(" AND a.is_ours = ?", vec![Box::new(i64::from(is_ours))]);
    }
    if let Some(scheduler) = filter.scheduler {
        query.push(" AND a.scheduler_id = ?", vec![Box::new(scheduler)]);
    }
    if let Some(name) = &filter.scheduler_name {
        query.push(" AND a.scheduler_name = ?", vec![Box::new(name.clone())]);
    }
    if let Some(job) = filter.job_id {
        query.push(" AND a.job_id = ?", vec![Box::new(checked_job_number(job)?)]);
    }
    if let Some(tag) = &filter.tag {
        query.push(" AND a.tag = ?", vec![Box::new(tag.clone())]);
    }
    if let Some(action) = filter.action {
        query.push(" AND a.action_id = ?", vec![Box::new(action)]);
    }
    query.push(" ORDER BY a.id", vec![]);
    query.push_page(filter.offset, filter.limit);
    query.read_rows(db, read_allocation_row)
}

fn read_allocation_row(row: &SqlRow<'_>) -> Result<Allocation, SqlError> {
    let state = row.get_text(6)?.unwrap_or_default();
    let state = AllocationState::from_name(state)
        .ok_or_else(|| row.conversion_error(6, format!("unknown allocation state `{state}`")))?;
    let end = match row.get_text(22)? {
        None => None,
        Some(end) => Some(
            SlurmJobState::parse(end)
                .ok_or_else(|| row.conversion_error(22, format!("unknown Slurm state `{end}`")))?,
        ),
    };
    let action = match row.get::<Option<i64>>(11)? {
        None => None,
        Some(action) => Some((action, row.get(12)?, row.get(13)?)),
    };
    Ok(Allocation {
        id: AllocationId(row.get(0)?),
        workflow: WorkflowId(row.get(1)?),
        is_ours: column_decoding::read_flag(row, 2)?,
        scheduler: row.get(3)?,
        tag: row.get::<Option<String>>(4)?.unwrap_or_default(),
        request: column_decoding::read_required_json(row, 5)?,
        state,
        job_id: row.get::<Option<i64>>(7)?.map(i64::unsigned_abs),
        restarts: row.get(8)?,
        reason: row.get(9)?,
        nodes: row.get(10)?,
        action,
        by: row.get(14)?,
        unwanted: row.get(15)?,
        created_at: Timestamp(row.get(16)?),
        submitted_at: column_decoding::read_time(row, 17)?,
        submissions: row.get(18)?,
        started_at: column_decoding::read_time(row, 19)?,
        ends_at: column_decoding::read_time(row, 20)?,
        ended_at: column_decoding::read_time(row, 21)?,
        end,
        exit_code: row.get(23)?,
        seen_at: column_decoding::read_time(row, 24)?,
        missed: row.get(25)?,
    })
}

fn checked_job_number(job: u64) -> Result<i64, StoreError> {
    i64::try_from(job).map_err(|_| StoreError::OutOfRange { what: format!("Slurm job id {job}") })
}

// ---- allocations of Windlass ----

pub(crate) fn add_allocation(
    db: &impl SqlConnection,
    new: &NewAllocation,
    by: AuditContext<'_>,
) -> Result<AllocationId, SqlError> {
    current_run(db, new.workflow)?;
    if let Some((action, attempt, ordinal)) = new.action
        && let Some(id) =
            db.query_optional(sql::FIND_SAME_REQUEST, values![action, attempt, ordinal], |row| row.get(0))?
    {
        return Ok(AllocationId(id));
    }
    if let Some(what) = new.find_problem() {
        return Err(StoreError::OutOfRange { what }.into());
    }
    let schedulers = workflow_parts::list_schedulers(db, new.workflow)?;
    let name = &new.request.scheduler;
    let scheduler = match new.scheduler {
        Some(id) if schedulers.iter().any(|row| row.id == id) => Some(id),
        Some(id) => return Err(StoreError::NoSuch { what: "scheduler".into(), id }.into()),
        None => schedulers.iter().find(|row| row.scheduler.name == *name).map(|row| row.id),
    };
    let (action, attempt, ordinal) =
        new.action.map_or((None, None, None), |(a, b, c)| (Some(a), Some(b), Some(c)));
    let request = column_decoding::render_json(&new.request)?;
    let tag = (!new.tag.is_empty()).then_some(&new.tag);
    let inserted = db.query_one(
        sql::INSERT_ALLOCATION,
        values![
            new.workflow.0,
            1_i64,
            scheduler,
            name,
            tag,
            request,
            AllocationState::Intended.name(),
            0_i64,
            None::<i64>,
            action,
            attempt,
            ordinal,
            new.by,
            by.now.0,
            None::<i64>,
            None::<&str>,
        ],
        |row| row.get(0),
    );
    let id: i64 = inserted.map_err(|fault| match fault {
        fault if fault.is_duplicate() => {
            StoreError::NameTaken { what: "an allocation".into(), name: new.tag.clone() }.into()
        }
        fault => fault,
    })?;
    if tag.is_none() {
        // Made of the globally unique number of the workflow and of the allocation id, so it is unique.
        let uuid: String = db.query_one(sql::UUID_OF_WORKFLOW, [new.workflow.0], |row| row.get(0))?;
        let tag = format!("windlass-{}-{id}", &uuid[..8.min(uuid.len())]);
        db.execute(sql::SET_TAG, values![tag, id])?;
    }
    let message = format!("allocation {id} requested (scheduler `{name}`)");
    let data = json!({
        "allocation_id": id, "scheduler": name, "nodes": new.request.nodes, "by": new.by, "action_id": action,
    });
    by.record_event(db, new.workflow, "allocation_intended", message, data)?;
    Ok(AllocationId(id))
}

pub(crate) fn change_allocation(
    db: &impl SqlConnection,
    change: &AllocationChange,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let before = find_allocation(db, change.id)?.ok_or_else(|| missing_error(change.id))?;
    if !before.is_ours {
        return Err(client_owned_error(&before).into());
    }
    if !change.applies_to(&before) {
        return Err(unexpected_state_error(change, &before).into());
    }
    let mut after = before.clone();
    change.apply_to(&mut after);
    if after == before {
        return Ok(());
    }
    update_allocation(db, &before, &after)?;
    if after.state != before.state {
        record_allocation_events(db, &before, &after, by)?;
        if after.state == AllocationState::Ended {
            record_allocation_end(db, &after)?;
        }
    } else if after.unwanted.is_some() && before.unwanted.is_none() {
        record_discard(db, &after, by)?;
    }
    Ok(())
}

/// Adds the cause to results of attempts that ended because of the allocation before the cause was known, such
/// as those whose worker became silent before Slurm reported the end.
fn record_allocation_end(db: &impl SqlConnection, row: &Allocation) -> Result<(), SqlError> {
    for block in JobIdBlocks::load(db, row.workflow)?.iter() {
        record_end_of_jobs(db, row, (block.first, block.end()))?;
    }
    Ok(())
}

/// `jobs`: the first id, and the one after the last.
fn record_end_of_jobs(db: &impl SqlConnection, row: &Allocation, jobs: (i64, i64)) -> Result<(), SqlError> {
    let (first, end) = jobs;
    let interruption = allocation_ends::interruption_reason(row);
    db.execute(sql::SET_INTERRUPTION_REASON, values![interruption, first, end, INTERRUPTED, row.id.0])?;
    if let Some(eviction) = AllocationEviction::from_allocation(row) {
        let (loss, lost) = (eviction.loss_reason(), format!("{ORPHAN_REASON_PREFIX}%"));
        db.execute(sql::SET_LOSS_REASON, values![loss, first, end, lost, row.id.0])?;
    }
    Ok(())
}

/// Adds the end of an allocation to results stored after it. Whichever of the two is stored first, the second
/// one sees it, because one connection writes both in turn.
pub(crate) fn record_known_end(db: &impl SqlConnection, result: &AttemptResult) -> Result<(), SqlError> {
    let is_unexplained = |reason: &str| reason == INTERRUPTED || reason.starts_with(ORPHAN_REASON_PREFIX);
    if !result.reason.as_deref().is_some_and(is_unexplained) {
        return Ok(());
    }
    let allocation = db.query_optional(sql::ALLOCATION_OF_WORKER, [result.worker.0], |row| row.get(0))?;
    let Some(row) = allocation.map(|id| find_allocation(db, AllocationId(id))).transpose()?.flatten() else {
        return Ok(());
    };
    if row.state == AllocationState::Ended {
        record_end_of_jobs(db, &row, (result.key.job.0, result.key.job.0 + 1))?;
    }
    Ok(())
}

fn unexpected_state_error(change: &AllocationChange, found: &Allocation) -> StoreError {
    let told = |state: AllocationState, job: Option<u64>| match job {
        Some(job) => format!("{state} as Slurm job {job}"),
        None => state.to_string(),
    };
    StoreError::Unexpected {
        what: format!("allocation {}", change.id),
        expected: told(change.from, change.only_slurm_job),
        found: format!("is {}", told(found.state, found.job_id.filter(|_| change.only_slurm_job.is_some()))),
    }
}

fn client_owned_error(row: &Allocation) -> StoreError {
    StoreError::InUse {
        what: format!("allocation {}", row.id),
        by: "the client that submitted it manages it".to_owned(),
    }
}

fn update_allocation(
    db: &impl SqlConnection,
    before: &Allocation,
    after: &Allocation,
) -> Result<(), SqlError> {
    let touched = db.execute(
        sql::CHANGE_ALLOCATION,
        values![
            after.state.name(),
            i64::from(after.state.is_over()),
            after.job_id.map(checked_job_number).transpose()?,
            after.restarts,
            after.reason.as_ref(),
            after.nodes.as_ref(),
            after.unwanted.as_ref(),
            after.submitted_at.map(|at| at.0),
            after.submissions,
            after.started_at.map(|at| at.0),
            after.ends_at.map(|at| at.0),
            after.ended_at.map(|at| at.0),
            after.end.map(SlurmJobState::name),
            after.exit_code.as_ref(),
            after.seen_at.map(|at| at.0),
            after.missed,
            before.id.0,
            before.state.name(),
        ],
    )?;
    match touched {
        0 => Err(SqlError::damage(format!("allocation {} was changed during the read", before.id))),
        _ => Ok(()),
    }
}

fn record_allocation_events(
    db: &impl SqlConnection,
    before: &Allocation,
    after: &Allocation,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    use AllocationState as S;
    let id = after.id;
    let job = after.job_id.map_or_else(String::new, |job| format!(" (Slurm job {job})"));
    let why = after.reason.as_deref().map_or_else(String::new, |why| format!(": {why}"));
    let is_well = matches!(after.end, Some(SlurmJobState::Completed | SlurmJobState::Cancelled));
    let (severity, message) = match after.state {
        S::Intended => (EventSeverity::Info, format!("allocation {id} will be submitted again{why}")),
        S::Submitting => (EventSeverity::Debug, format!("allocation {id} is being submitted")),
        S::Pending => (EventSeverity::Info, format!("allocation {id} is pending{job}{why}")),
        S::Running => {
            let nodes = after.nodes.as_deref().map_or_else(String::new, |nodes| format!(" on {nodes}"));
            (EventSeverity::Info, format!("allocation {id} is running{nodes}{job}"))
        }
        S::Completing => (EventSeverity::Debug, format!("allocation {id} is completing{job}")),
        S::Ended => {
            let end = after.end.map_or("unknown state", SlurmJobState::name);
            let severity = if is_well { EventSeverity::Info } else { EventSeverity::Warning };
            (severity, format!("allocation {id} ended{job}: {end}{why}"))
        }
        S::Refused => (EventSeverity::Error, format!("Slurm rejected allocation {id}{why}")),
        S::Withdrawn => {
            (EventSeverity::Info, format!("allocation {id} was withdrawn before it was submitted{why}"))
        }
    };
    let event = NewEvent {
        workflow: Some(after.workflow),
        job: None,
        severity,
        category: format!("allocation_{}", after.state),
        message,
        data: Some(json!({
            "allocation_id": id, "from": before.state, "to": after.state, "slurm_job_id": after.job_id,
            "reason": after.reason, "nodes": after.nodes, "end": after.end, "exit_code": after.exit_code,
        })),
    };
    events::insert_event(db, by.actor, &event, by.now)?;
    Ok(())
}

fn record_discard(db: &impl SqlConnection, row: &Allocation, by: AuditContext<'_>) -> Result<(), SqlError> {
    let (id, why) = (row.id, row.unwanted.as_deref().unwrap_or_default());
    let data = json!({ "allocation_id": id, "slurm_job_id": row.job_id, "reason": why });
    by.record_event(
        db,
        row.workflow,
        "allocation_unwanted",
        format!("allocation {id} is no longer needed: {why}"),
        data,
    )
}

pub(crate) fn discard_allocation(
    db: &impl SqlConnection,
    id: AllocationId,
    why: &str,
    by: AuditContext<'_>,
) -> Result<Allocation, SqlError> {
    let row = find_allocation(db, id)?.ok_or_else(|| missing_error(id))?;
    if !row.is_ours {
        return Err(client_owned_error(&row).into());
    }
    if row.state.is_over() || row.unwanted.is_some() {
        return Ok(row);
    }
    let unwanted = Some(why.to_owned());
    let wanted = match row.state {
        AllocationState::Intended => AllocationChange {
            unwanted_reason: unwanted,
            reason: Some(Some(why.to_owned())),
            ended_at: Some(by.now),
            ..AllocationChange::new(id, row.state, AllocationState::Withdrawn)
        },
        state => AllocationChange { unwanted_reason: unwanted, ..AllocationChange::new(id, state, state) },
    };
    change_allocation(db, &wanted, by)?;
    find_allocation(db, id)?.ok_or_else(|| missing_error(id).into())
}

/// Otherwise Slurm would keep running allocations without a record.
pub(crate) fn refuse_open_allocations(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    what: &str,
) -> Result<(), SqlError> {
    let open: i64 = db.query_one(sql::COUNT_OPEN_ALLOCATIONS, [workflow.0], |row| row.get(0))?;
    match open {
        0 => Ok(()),
        n => {
            let by = format!(
                "it has {n} active Slurm allocations; cancel them first \
                 (`windlass slurm allocations {workflow}` lists them, `windlass slurm cancel` ends them)"
            );
            Err(StoreError::InUse { what: what.to_owned(), by }.into())
        }
    }
}

// ---- allocations managed by clients ----

pub(crate) fn record_client_allocation(
    db: &impl SqlConnection,
    id: Option<AllocationId>,
    stated: &ExternalAllocation,
    by: AuditContext<'_>,
) -> Result<AllocationId, SqlError> {
    current_run(db, stated.workflow)?;
    let (state, end) = stated.status.to_state();
    let kind = &stated.scheduler_type;
    let request = AllocationRequest { scheduler: kind.clone(), ..AllocationRequest::default() };
    let request = column_decoding::render_json(&request)?;
    let (is_over, job) = (i64::from(state.is_over()), checked_job_number(stated.job_id)?);
    let ended_at = state.is_over().then_some(by.now.0);
    let end = end.map(SlurmJobState::name);
    let Some(id) = id else {
        let values = values![
            stated.workflow.0,
            0_i64,
            stated.scheduler,
            kind,
            None::<&str>,
            request,
            state.name(),
            is_over,
            job,
            None::<i64>,
            None::<i64>,
            None::<i64>,
            by.actor,
            by.now.0,
            ended_at,
            end,
        ];
        return db.query_one(sql::INSERT_ALLOCATION, values, |row| row.get(0).map(AllocationId));
    };
    let before = find_allocation(db, id)?.ok_or_else(|| missing_error(id))?;
    if before.is_ours {
        let by = "it is managed by windlass, which updates its state itself".to_owned();
        return Err(StoreError::InUse { what: format!("allocation {id}"), by }.into());
    }
    let ended_at = if before.state.is_over() { before.ended_at.map(|at| at.0) } else { None }.or(ended_at);
    let values = values![
        stated.scheduler,
        kind,
        request,
        state.name(),
        is_over,
        job,
        ended_at.filter(|_| state.is_over()),
        end,
        id.0,
        stated.workflow.0,
    ];
    match db.execute(sql::UPDATE_CLIENT_ALLOCATION, values)? {
        0 => Err(missing_error(id).into()),
        _ => Ok(id),
    }
}

pub(crate) fn delete_allocation(
    db: &impl SqlConnection,
    id: AllocationId,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let row = find_allocation(db, id)?.ok_or_else(|| missing_error(id))?;
    if row.is_ours && !row.state.is_over() {
        let by = format!("it is {}; end it first with `windlass slurm cancel {id}`", row.state);
        return Err(StoreError::InUse { what: format!("allocation {id}"), by }.into());
    }
    db.execute(sql::DELETE_ALLOCATION, [id.0])?;
    let message = format!("deleted allocation {id}");
    by.record_event(db, row.workflow, "allocation_deleted", message, json!({ "allocation_id": id }))
}

pub(crate) fn delete_allocations(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    by: AuditContext<'_>,
) -> Result<u64, SqlError> {
    current_run(db, workflow)?;
    refuse_open_allocations(db, workflow, &format!("the list of allocations of workflow {workflow}"))?;
    let deleted = db.execute(sql::DELETE_ALLOCATIONS, [workflow.0])? as u64;
    if deleted > 0 {
        let message = format!("deleted all {deleted} allocations");
        by.record_event(db, workflow, "allocation_deleted", message, json!({ "allocations": deleted }))?;
    }
    Ok(deleted)
}

// ---- Slurm call counters ----

pub(crate) fn record_slurm_calls(
    db: &impl SqlConnection,
    calls: &[SlurmCallCount],
    now: Timestamp,
) -> Result<(), SqlError> {
    let hour = hour_start(now);
    let many = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    for call in calls {
        let values =
            values![hour.0, call.command, many(call.calls), many(call.failures), to_micros(call.took)];
        db.execute(sql::ADD_SLURM_CALLS, values)?;
    }
    Ok(())
}

pub(crate) fn list_slurm_calls(
    db: &impl SqlConnection,
    since: Timestamp,
) -> Result<Vec<SlurmCallCount>, SqlError> {
    db.query_all(sql::SLURM_CALLS_SINCE, [hour_start(since).0], |row| {
        Ok(SlurmCallCount {
            hour: Timestamp(row.get(0)?),
            command: row.get(1)?,
            calls: row.get::<i64>(2)?.unsigned_abs(),
            failures: row.get::<i64>(3)?.unsigned_abs(),
            took: Duration::from_micros(row.get::<i64>(4)?.unsigned_abs()),
        })
    })
}
