//! Reads requests and what belongs to them.

use super::rows;
use crate::books::column;
use crate::books::query::Query;
use crate::db::{Db, ToValue, values};
use crate::error::Fault;
use crate::model::{RequestCounts, RequestFilter, RunFilter, StepFilter};
use crate::sql::requests as sql;
use std::collections::BTreeMap;
use std::str::FromStr;
use windlass_core::requests::book::{
    FileCounts, FileRow, FileState, OutputStep, Process, RequestRow, RunRow, StepState,
};

const ORDERS: &[(&str, &str)] = &[
    ("request_name", "r.name"),
    ("status", "r.status"),
    ("priority", "r.priority"),
    ("campaign", "r.campaign"),
    ("created_at", "r.created_at"),
    ("updated_at", "r.updated_at"),
];

pub(super) fn request(db: &impl Db, name: &str) -> Result<Option<RequestRow>, Fault> {
    let mut query = Query::new(sql::SELECT_REQUESTS, vec![]);
    query.push("r.name = ?", vec![Box::new(name.to_owned())]);
    Ok(query.run(db, rows::request)?.pop())
}

pub(super) fn requests(db: &impl Db, filter: &RequestFilter) -> Result<Vec<RequestRow>, Fault> {
    let mut query = conditions(sql::SELECT_REQUESTS, filter);
    query.push_order(filter.sort.as_ref(), ORDERS, "r.name")?;
    query.push_page(filter.offset, filter.limit);
    query.run(db, rows::request)
}

pub(super) fn count(db: &impl Db, filter: &RequestFilter) -> Result<u64, Fault> {
    conditions(sql::SELECT_COUNT_OF_REQUESTS, filter).count(db)
}

fn conditions(base: &str, filter: &RequestFilter) -> Query {
    let RequestFilter {
        status, campaign, requestor, priority_min, priority_max, name, previous_version, ..
    } = filter;
    let mut query = Query::new(base, vec![]);
    query.push("1 = 1", vec![]);
    push_words(&mut query, "r.status", status.iter().map(|status| status.name()));
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

/// In one of these; no condition if there are none.
fn push_words(query: &mut Query, column: &str, words: impl Iterator<Item = &'static str>) {
    let words: Vec<String> = words.map(|word| format!("'{word}'")).collect();
    match words.as_slice() {
        [] => {}
        // Written out: an index of some of the rows is used only where the words are seen.
        [word] => query.push(&format!(" AND {column} = {word}"), vec![]),
        words => query.push(&format!(" AND {column} IN ({})", words.join(", ")), vec![]),
    }
}

pub(super) fn push_equal(query: &mut Query, column: &str, value: Option<impl ToValue + 'static>) {
    if let Some(value) = value {
        query.push(&format!(" AND {column} = ?"), vec![Box::new(value)]);
    }
}

pub(super) fn process(db: &impl Db, sql: &str, key: &str) -> Result<Option<Process>, Fault> {
    db.optional(sql, [key], |row| column::required_json(row, 0))
}

pub(super) fn run(db: &impl Db, uuid: &str) -> Result<Option<RunRow>, Fault> {
    let mut query = Query::new(sql::SELECT_RUNS, vec![]);
    query.push("u.uuid = ?", vec![Box::new(uuid.to_owned())]);
    Ok(query.run(db, rows::run)?.pop())
}

pub(super) fn runs(db: &impl Db, filter: &RunFilter) -> Result<Vec<RunRow>, Fault> {
    let mut query = Query::new(sql::SELECT_RUNS, vec![]);
    query.push("1 = 1", vec![]);
    push_equal(&mut query, "u.process", filter.process.clone());
    push_equal(&mut query, "u.workflow_id", filter.workflow.map(|workflow| workflow.0));
    push_words(&mut query, "u.status", filter.status.iter().map(|status| status.name()));
    query.push(" ORDER BY u.process, u.n", vec![]);
    query.push_page(filter.offset, filter.limit);
    query.run(db, rows::run)
}

pub(super) fn steps(db: &impl Db, filter: &StepFilter) -> Result<Vec<OutputStep>, Fault> {
    let StepFilter { process, block, state, due, limit } = filter;
    let mut query = Query::new(sql::SELECT_STEPS, vec![]);
    query.push("1 = 1", vec![]);
    push_equal(&mut query, "s.block", block.clone());
    push_words(&mut query, "s.state", state.iter().map(|state| state.name()));
    if let Some(process) = process {
        let only_open = !state.is_empty() && state.iter().all(|state| state.is_open());
        // The few that are open have an index of their own; the others are found by their blocks.
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
    query.run(db, rows::step)
}

pub(super) fn files(
    db: &impl Db,
    process: &str,
    states: &[FileState],
    offset: u64,
    limit: u64,
) -> Result<Vec<FileRow>, Fault> {
    let mut query = Query::new(sql::SELECT_FILE_ROWS, vec![]);
    query.push("f.process = ?", vec![Box::new(process.to_owned())]);
    push_words(&mut query, "f.state", states.iter().map(|state| state.name()));
    query.push(" ORDER BY f.lfn", vec![]);
    query.push_page(offset, Some(limit));
    query.run(db, rows::file)
}

pub(super) fn file_counts(db: &impl Db, process: &str) -> Result<FileCounts, Fault> {
    let mut counts = FileCounts::default();
    db.for_each(sql::FILES_BY_STATE, [process], |row| {
        let place = match rows::word(row, 0)? {
            FileState::Attempted => &mut counts.attempted,
            FileState::Processed => &mut counts.processed,
            FileState::Excluded => &mut counts.excluded,
        };
        *place = rows::natural(row, 1)?;
        Ok(())
    })?;
    Ok(counts)
}

pub(super) fn counts(db: &impl Db) -> Result<RequestCounts, Fault> {
    let mut counts = RequestCounts {
        requests: by_status(db, sql::SELECT_REQUESTS_BY_STATUS)?,
        runs: by_status(db, sql::SELECT_RUNS_BY_STATUS)?,
        blocks: by_status(db, sql::SELECT_BLOCKS_BY_STATUS)?,
        alerts_untold: db.one(sql::SELECT_COUNT_OF_UNTOLD, values![], |row| rows::natural(row, 0))?,
        ..RequestCounts::default()
    };
    db.for_each(sql::SELECT_OPEN_STEPS_BY_STATE, values![], |row| {
        let place = match rows::step_state(row, 0)? {
            StepState::Failed => &mut counts.steps_failed,
            _ => &mut counts.steps_pending,
        };
        *place = rows::natural(row, 1)?;
        Ok(())
    })?;
    Ok(counts)
}

fn by_status<T: FromStr<Err: std::fmt::Display> + Ord>(
    db: &impl Db,
    sql: &str,
) -> Result<BTreeMap<T, u64>, Fault> {
    let counted = db.all(sql, values![], |row| Ok((rows::word(row, 0)?, rows::natural(row, 1)?)))?;
    Ok(counted.into_iter().collect())
}
