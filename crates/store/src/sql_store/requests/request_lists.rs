//! Reads requests and their parts.

use super::row_decoding;
use crate::db::{SqlConnection, ToSqlValue, values};
use crate::error::SqlError;
use crate::model::{OutputStepFilter, RequestCounts, RequestFilter, RequestRunFilter};
use crate::sql::requests as sql;
use crate::sql_store::column_decoding;
use crate::sql_store::query_builder::SqlQuery;
use std::collections::BTreeMap;
use std::str::FromStr;
use windlass_core::requests::rows::{
    OutputStep, OutputStepState, RequestFileCounts, RequestFileRow, RequestFileState, RequestProgress,
    RequestRow, RunRow,
};

const SORTABLE_REQUESTS: &[(&str, &str)] = &[
    ("request_name", "r.name"),
    ("status", "r.status"),
    ("priority", "r.priority"),
    ("campaign", "r.campaign"),
    ("created_at", "r.created_at"),
    ("updated_at", "r.updated_at"),
];

pub(super) fn find_request(db: &impl SqlConnection, name: &str) -> Result<Option<RequestRow>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_REQUESTS, vec![]);
    query.push("r.name = ?", vec![Box::new(name.to_owned())]);
    Ok(query.read_rows(db, row_decoding::read_request)?.pop())
}

pub(super) fn list_requests(
    db: &impl SqlConnection,
    filter: &RequestFilter,
) -> Result<Vec<RequestRow>, SqlError> {
    let mut query = build_query(sql::SELECT_REQUESTS, filter);
    query.push_order(filter.sort.as_ref(), SORTABLE_REQUESTS, "r.name")?;
    query.push_page(filter.offset, filter.limit);
    query.read_rows(db, row_decoding::read_request)
}

pub(super) fn count_requests(db: &impl SqlConnection, filter: &RequestFilter) -> Result<u64, SqlError> {
    build_query(sql::SELECT_COUNT_OF_REQUESTS, filter).read_count(db)
}

fn build_query(base: &str, filter: &RequestFilter) -> SqlQuery {
    let RequestFilter {
        status, campaign, requestor, priority_min, priority_max, name, previous_version, ..
    } = filter;
    let mut query = SqlQuery::new(base, vec![]);
    query.push("1 = 1", vec![]);
    push_any_of(&mut query, "r.status", status.iter().map(|status| status.name()));
    for (column, text) in
        [("r.campaign", campaign), ("r.requestor", requestor), ("r.previous_version", previous_version)]
    {
        push_equal(&mut query, column, text.clone());
    }
    if let Some(least) = *priority_min {
        query.push(" AND r.priority >= ?", vec![Box::new(least)]);
    }
    if let Some(most) = *priority_max {
        query.push(" AND r.priority <= ?", vec![Box::new(most)]);
    }
    if let Some(pattern) = name {
        query.push_pattern(" AND ", "r.name", pattern);
    }
    query
}

/// In one of these; no condition if the list is empty.
fn push_any_of(query: &mut SqlQuery, column: &str, words: impl Iterator<Item = &'static str>) {
    let words: Vec<String> = words.map(|word| format!("'{word}'")).collect();
    match words.as_slice() {
        [] => {}
        // Literals: a partial index is used only if the values are visible.
        [word] => query.push(&format!(" AND {column} = {word}"), vec![]),
        words => query.push(&format!(" AND {column} IN ({})", words.join(", ")), vec![]),
    }
}

pub(super) fn push_equal(query: &mut SqlQuery, column: &str, value: Option<impl ToSqlValue + 'static>) {
    if let Some(value) = value {
        query.push(&format!(" AND {column} = ?"), vec![Box::new(value)]);
    }
}

pub(super) fn find_process(
    db: &impl SqlConnection,
    sql: &str,
    key: &str,
) -> Result<Option<RequestProgress>, SqlError> {
    db.query_optional(sql, [key], |row| column_decoding::read_required_json(row, 0))
}

pub(super) fn find_run(db: &impl SqlConnection, uuid: &str) -> Result<Option<RunRow>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_RUNS, vec![]);
    query.push("u.uuid = ?", vec![Box::new(uuid.to_owned())]);
    Ok(query.read_rows(db, row_decoding::read_run)?.pop())
}

pub(super) fn list_runs(db: &impl SqlConnection, filter: &RequestRunFilter) -> Result<Vec<RunRow>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_RUNS, vec![]);
    query.push("1 = 1", vec![]);
    push_equal(&mut query, "u.process", filter.process.clone());
    push_equal(&mut query, "u.workflow_id", filter.workflow.map(|workflow| workflow.0));
    push_any_of(&mut query, "u.status", filter.status.iter().map(|status| status.name()));
    query.push(" ORDER BY u.process, u.n", vec![]);
    query.push_page(filter.offset, filter.limit);
    query.read_rows(db, row_decoding::read_run)
}

pub(super) fn list_steps(
    db: &impl SqlConnection,
    filter: &OutputStepFilter,
) -> Result<Vec<OutputStep>, SqlError> {
    let OutputStepFilter { process, block, state, due, limit } = filter;
    let mut query = SqlQuery::new(sql::SELECT_STEPS, vec![]);
    query.push("1 = 1", vec![]);
    push_equal(&mut query, "s.block", block.clone());
    push_any_of(&mut query, "s.state", state.iter().map(|state| state.name()));
    if let Some(process) = process {
        let only_open = !state.is_empty() && state.iter().all(|state| state.is_open());
        // The few open ones have an index of their own; the others are found through their blocks.
        let condition = if only_open {
            " AND s.process = ? AND s.state IN ('pending', 'failed')"
        } else {
            " AND s.block IN (SELECT b.uuid FROM request_block b WHERE b.process = ?)"
        };
        query.push(condition, vec![Box::new(process.clone())]);
    }
    if let Some(due) = due {
        query.push(" AND s.due_at <= ?", vec![Box::new(due.0)]);
    }
    query.push(" ORDER BY s.due_at, s.block, s.unit, s.kind", vec![]);
    query.push_page(0, *limit);
    query.read_rows(db, row_decoding::read_step)
}

pub(super) fn list_file_rows(
    db: &impl SqlConnection,
    process: &str,
    states: &[RequestFileState],
    offset: u64,
    limit: u64,
) -> Result<Vec<RequestFileRow>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_FILE_ROWS, vec![]);
    query.push("f.process = ?", vec![Box::new(process.to_owned())]);
    push_any_of(&mut query, "f.state", states.iter().map(|state| state.name()));
    query.push(" ORDER BY f.lfn", vec![]);
    query.push_page(offset, Some(limit));
    query.read_rows(db, row_decoding::read_file)
}

pub(super) fn count_files(db: &impl SqlConnection, process: &str) -> Result<RequestFileCounts, SqlError> {
    let mut counts = RequestFileCounts::default();
    db.query_each(sql::FILES_BY_STATE, [process], |row| {
        let place = match row_decoding::read_enum(row, 0)? {
            RequestFileState::Attempted => &mut counts.attempted,
            RequestFileState::Processed => &mut counts.processed,
            RequestFileState::Excluded => &mut counts.excluded,
        };
        *place = row_decoding::read_unsigned(row, 1)?;
        Ok(())
    })?;
    Ok(counts)
}

pub(super) fn count_by_status(db: &impl SqlConnection) -> Result<RequestCounts, SqlError> {
    let mut counts = RequestCounts {
        requests: load_status_counts(db, sql::SELECT_REQUESTS_BY_STATUS)?,
        runs: load_status_counts(db, sql::SELECT_RUNS_BY_STATUS)?,
        blocks: load_status_counts(db, sql::SELECT_BLOCKS_BY_STATUS)?,
        alerts_unnotified: db.query_one(sql::SELECT_COUNT_OF_UNNOTIFIED, values![], |row| {
            row_decoding::read_unsigned(row, 0)
        })?,
        ..RequestCounts::default()
    };
    db.query_each(sql::SELECT_OPEN_STEPS_BY_STATE, values![], |row| {
        let place = match row_decoding::read_step_state(row, 0)? {
            OutputStepState::Failed => &mut counts.steps_failed,
            _ => &mut counts.steps_pending,
        };
        *place = row_decoding::read_unsigned(row, 1)?;
        Ok(())
    })?;
    Ok(counts)
}

fn load_status_counts<T: FromStr<Err: std::fmt::Display> + Ord>(
    db: &impl SqlConnection,
    sql: &str,
) -> Result<BTreeMap<T, u64>, SqlError> {
    let counted = db.query_all(sql, values![], |row| {
        Ok((row_decoding::read_enum(row, 0)?, row_decoding::read_unsigned(row, 1)?))
    })?;
    Ok(counted.into_iter().collect())
}
