//! Requests with all that decisions about them need: read together, so that a pass over many is a few statements.

use super::rows;
use crate::books::column;
use crate::books::query::Query;
use crate::db::{Db, Row, ToValue};
use crate::error::Fault;
use crate::sql::requests as sql;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::requests::View;

/// Names in one statement: databases take no more than some ten thousand values.
const AT_ONCE: usize = 1000;

pub(super) fn views(db: &impl Db, requests: &[String]) -> Result<Vec<View>, Fault> {
    let mut views = Vec::with_capacity(requests.len());
    for names in requests.chunks(AT_ONCE) {
        views.extend(some(db, names)?);
    }
    views.sort_by(|a, b| a.row.request.request_name.cmp(&b.row.request.request_name));
    Ok(views)
}

/// Five statements, whose rows are put together by the names of the requests.
fn some(db: &impl Db, names: &[String]) -> Result<Vec<View>, Fault> {
    let found = about(sql::VIEWED_REQUESTS, names, "").run(db, |row| {
        let row = rows::request(row)?;
        let name = row.request.request_name.clone();
        let (blocks, steps) = (Vec::new(), Vec::new());
        Ok((name, View { row, process: None, run: None, failures: Arc::default(), blocks, steps }))
    })?;
    let mut views: BTreeMap<String, View> = found.into_iter().collect();
    let mut each = |query: Query, name: usize, read: fn(&mut View, &Row<'_>) -> Result<(), Fault>| {
        let take = |row: &Row<'_>| {
            // All of it is read at one moment: what belongs to a request is there only if the request is.
            let view = row.text(name)?.and_then(|name| views.get_mut(name));
            view.map_or(Ok(()), |view| read(view, row))
        };
        query.run(db, take).map(drop)
    };
    each(about(sql::VIEWED_PROCESSES, names, ""), 1, |view, row| {
        view.process = Some(column::required_json(row, 0)?);
        Ok(())
    })?;
    each(about(sql::VIEWED_RUNS, names, ""), 27, |view, row| {
        view.run = Some(rows::run(row)?);
        view.failures = Arc::new(column::json(row, 26)?.unwrap_or_default());
        Ok(())
    })?;
    each(about(sql::VIEWED_BLOCKS, names, " ORDER BY b.dataset, b.n"), 15, |view, row| {
        view.blocks.push(rows::block(row)?);
        Ok(())
    })?;
    let order = " ORDER BY s.due_at, s.block, s.unit, s.kind";
    each(about(sql::VIEWED_STEPS, names, order), 10, |view, row| {
        view.steps.push(rows::step(row)?);
        Ok(())
    })?;
    Ok(views.into_values().collect())
}

/// The statement about these requests.
pub(crate) fn about(base: &str, names: &[String], order: &str) -> Query {
    let mut query = Query::new(base, vec![]);
    let places = vec!["?"; names.len()].join(", ");
    let values = names.iter().map(|name| Box::new(name.clone()) as Box<dyn ToValue>);
    query.push(&format!("IN ({places}){order}"), values.collect());
    query
}
