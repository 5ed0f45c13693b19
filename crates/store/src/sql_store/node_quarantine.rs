//! Quarantine of nodes. Each change records an event with author and reason.

use super::workflow_updates::AuditContext;
use super::{column_decoding, events};
use crate::db::{SqlConnection, SqlRow, values};
use crate::error::SqlError;
use crate::model::{EventSeverity, NewEvent, NodeQuarantineRow};
use crate::sql::workers_and_parts as sql;
use serde_json::{Value, json};
use windlass_types::Timestamp;

pub(super) fn quarantine_node(
    db: &impl SqlConnection,
    node: &NodeQuarantineRow,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let evidence = node.evidence.as_ref().map(column_decoding::render_json).transpose()?;
    let user = node.user.as_deref().unwrap_or_default();
    let values = values![node.host, node.since.0, node.until.0, node.set_by, node.reason, evidence, user];
    db.execute(sql::QUARANTINE_NODE, values)?;
    let NodeQuarantineRow { host, until, reason, .. } = node;
    let whose = node.user.as_ref().map(|user| format!(" (workers of {user})")).unwrap_or_default();
    let message = format!("node {host} is quarantined until {until}{whose}: {reason}");
    record_node_event(db, "node_quarantined", EventSeverity::Warning, message, json!(node), by)
}

/// `false`: it was not quarantined.
pub(super) fn release_node(
    db: &impl SqlConnection,
    host: &str,
    user: Option<&str>,
    why: &str,
    by: AuditContext<'_>,
) -> Result<bool, SqlError> {
    let was_aside = db.execute(sql::RELEASE_QUARANTINED_NODE, values![host, user])? > 0;
    if was_aside {
        let message = format!("node {host} is released from quarantine: {why}");
        record_node_event(
            db,
            "node_released",
            EventSeverity::Info,
            message,
            json!({ "host": host, "user": user, "reason": why }),
            by,
        )?;
    }
    Ok(was_aside)
}

fn record_node_event(
    db: &impl SqlConnection,
    category: &str,
    severity: EventSeverity,
    message: String,
    data: Value,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let category = category.to_owned();
    let event = NewEvent { workflow: None, job: None, severity, category, message, data: Some(data) };
    events::insert_event(db, by.actor, &event, by.now)?;
    Ok(())
}

pub(super) fn read_node_row(row: &SqlRow<'_>) -> Result<NodeQuarantineRow, SqlError> {
    Ok(NodeQuarantineRow {
        host: row.get(0)?,
        user: Some(row.get::<String>(6)?).filter(|user| !user.is_empty()),
        since: Timestamp(row.get(1)?),
        until: Timestamp(row.get(2)?),
        set_by: row.get(3)?,
        reason: row.get(4)?,
        evidence: column_decoding::read_json(row, 5)?,
    })
}
