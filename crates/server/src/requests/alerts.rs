//! Alerts for operators.

use super::page_length;
use crate::error::ApiResult;
use windlass_api::requests::{AlertList, AlertResponse};
use windlass_core::requests::rows::AlertRow;
use windlass_store::StoreDatabase;
use windlass_store::model::AlertFilter;

/// The newest matching alerts, in order from old to new.
pub fn list_alerts(
    db: &dyn StoreDatabase,
    request: Option<&str>,
    kind: Option<&str>,
    limit: Option<u64>,
) -> ApiResult<AlertList> {
    let filter = AlertFilter {
        request: request.map(str::to_owned),
        kind: kind.map(str::to_owned),
        limit: Some(page_length(limit)),
        ..AlertFilter::default()
    };
    Ok(AlertList { items: db.alerts(&filter)?.into_iter().map(api_alert).collect() })
}

fn api_alert(row: AlertRow) -> AlertResponse {
    let AlertRow { id, alert, at, told_at } = row;
    AlertResponse {
        id,
        kind: alert.kind,
        request_name: alert.request,
        message: alert.message,
        detail: alert.detail,
        at,
        told_at,
    }
}
