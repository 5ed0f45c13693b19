//! What people were told.

use super::page;
use crate::error::Answer;
use windlass_api::requests::{Alert, Alerts};
use windlass_core::requests::book::AlertRow;
use windlass_store::Database;
use windlass_store::model::AlertFilter;

/// The newest of those that fit, the oldest of them first.
pub fn list(
    db: &dyn Database,
    request: Option<&str>,
    kind: Option<&str>,
    limit: Option<u64>,
) -> Answer<Alerts> {
    let filter = AlertFilter {
        request: request.map(str::to_owned),
        kind: kind.map(str::to_owned),
        limit: Some(page(limit)),
        ..AlertFilter::default()
    };
    Ok(Alerts { items: db.alerts(&filter)?.into_iter().map(shown).collect() })
}

fn shown(row: AlertRow) -> Alert {
    let AlertRow { id, alert, at, told_at } = row;
    Alert {
        id,
        kind: alert.kind,
        request_name: alert.request,
        message: alert.message,
        detail: alert.detail,
        at,
        told_at,
    }
}
