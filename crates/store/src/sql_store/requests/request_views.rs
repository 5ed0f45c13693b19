//! Loads requests with everything that decisions about them need: together, so that a pass over many takes few
//! statements.

use super::row_decoding;
use crate::db::{SqlConnection, SqlRow, ToSqlValue};
use crate::error::SqlError;
use crate::sql::requests as sql;
use crate::sql_store::column_decoding;
use crate::sql_store::query_builder::SqlQuery;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::requests::RequestView;

/// Names per statement: databases limit the number of parameters to some ten thousand.
const NAMES_PER_STATEMENT: usize = 1000;

pub(super) fn load_views(db: &impl SqlConnection, requests: &[String]) -> Result<Vec<RequestView>, SqlError> {
    let mut views = Vec::with_capacity(requests.len());
    for names in requests.chunks(NAMES_PER_STATEMENT) {
        views.extend(load_some_views(db, names)?);
    }
    views.sort_by(|a, b| a.row.request.request_name.cmp(&b.row.request.request_name));
    Ok(views)
}

/// Five statements, whose rows are joined by request name.
fn load_some_views(db: &impl SqlConnection, names: &[String]) -> Result<Vec<RequestView>, SqlError> {
    let found = build_query(sql::VIEWED_REQUESTS, names, "").read_rows(db, |row| {
        let row = row_decoding::read_request(row)?;
        let name = row.request.request_name.clone();
        let (blocks, steps) = (Vec::new(), Vec::new());
        Ok((name, RequestView { row, process: None, run: None, failures: Arc::default(), blocks, steps }))
    })?;
    let mut views: BTreeMap<String, RequestView> = found.into_iter().collect();
    let mut each =
        |query: SqlQuery, name: usize, read: fn(&mut RequestView, &SqlRow<'_>) -> Result<(), SqlError>| {
            let take = |row: &SqlRow<'_>| {
                // Everything is read in one snapshot, so the request of each part exists.
                let view = row.get_text(name)?.and_then(|name| views.get_mut(name));
                view.map_or(Ok(()), |view| read(view, row))
            };
            query.read_rows(db, take).map(drop)
        };
    each(build_query(sql::VIEWED_PROCESSES, names, ""), 1, |view, row| {
        view.process = Some(column_decoding::read_required_json(row, 0)?);
        Ok(())
    })?;
    each(build_query(sql::VIEWED_RUNS, names, ""), 27, |view, row| {
        view.run = Some(row_decoding::read_run(row)?);
        view.failures = Arc::new(column_decoding::read_json(row, 26)?.unwrap_or_default());
        Ok(())
    })?;
    each(build_query(sql::VIEWED_BLOCKS, names, " ORDER BY b.dataset, b.n"), 15, |view, row| {
        view.blocks.push(row_decoding::read_block(row)?);
        Ok(())
    })?;
    let order = " ORDER BY s.due_at, s.block, s.unit, s.kind";
    each(build_query(sql::VIEWED_STEPS, names, order), 10, |view, row| {
        view.steps.push(row_decoding::read_step(row)?);
        Ok(())
    })?;
    Ok(views.into_values().collect())
}

/// Returns the statement for these requests.
pub(crate) fn build_query(base: &str, names: &[String], order: &str) -> SqlQuery {
    let mut query = SqlQuery::new(base, vec![]);
    let places = vec!["?"; names.len()].join(", ");
    let values = names.iter().map(|name| Box::new(name.clone()) as Box<dyn ToSqlValue>);
    query.push(&format!("IN ({places}){order}"), values.collect());
    query
}
