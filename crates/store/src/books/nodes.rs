//! Nodes that get no jobs for a while. Each change leaves an event that says who made it and why.

use super::manage::By;
use super::{column, events};
use crate::db::{Db, Row, values};
use crate::error::Fault;
use crate::model::{NewEvent, NodeAside, Severity};
use crate::sql::server as sql;
use serde_json::{Value, json};
use windlass_types::Timestamp;

pub(super) fn set_aside(db: &impl Db, node: &NodeAside, by: By<'_>) -> Result<(), Fault> {
    let evidence = node.evidence.as_ref().map(column::json_text).transpose()?;
    let user = node.user.as_deref().unwrap_or_default();
    let values = values![node.host, node.since.0, node.until.0, node.set_by, node.reason, evidence, user];
    db.execute(sql::SET_NODE_ASIDE, values)?;
    let NodeAside { host, until, reason, .. } = node;
    let whose = node.user.as_ref().map(|user| format!(" (workers of {user})")).unwrap_or_default();
    let message = format!("node {host} gets no jobs until {until}{whose}: {reason}");
    note(db, "node_set_aside", Severity::Warning, message, json!(node), by)
}

/// `false`: it was trusted already.
pub(super) fn release(
    db: &impl Db,
    host: &str,
    user: Option<&str>,
    why: &str,
    by: By<'_>,
) -> Result<bool, Fault> {
    let was_aside = db.execute(sql::RELEASE_NODE, values![host, user])? > 0;
    if was_aside {
        let message = format!("node {host} is trusted again: {why}");
        note(
            db,
            "node_released",
            Severity::Info,
            message,
            json!({ "host": host, "user": user, "reason": why }),
            by,
        )?;
    }
    Ok(was_aside)
}

fn note(
    db: &impl Db,
    category: &str,
    severity: Severity,
    message: String,
    data: Value,
    by: By<'_>,
) -> Result<(), Fault> {
    let category = category.to_owned();
    let event = NewEvent { workflow: None, job: None, severity, category, message, data: Some(data) };
    events::note(db, by.actor, &event, by.now)?;
    Ok(())
}

pub(super) fn node_row(row: &Row<'_>) -> Result<NodeAside, Fault> {
    Ok(NodeAside {
        host: row.get(0)?,
        user: Some(row.get::<String>(6)?).filter(|user| !user.is_empty()),
        since: Timestamp(row.get(1)?),
        until: Timestamp(row.get(2)?),
        set_by: row.get(3)?,
        reason: row.get(4)?,
        evidence: column::json(row, 5)?,
    })
}
