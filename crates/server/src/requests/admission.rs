//! Admission of requests, and its limit.

use super::RequestActor;
use crate::error::{ApiError, ApiResult};
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_api::requests::{AdmissionConfig, AdmissionQueue, NextInQueue, SystemStatus};
use windlass_core::requests::RequestView;
pub use windlass_core::requests::admission::AdmissionSettings;
use windlass_core::requests::admission::{AdmissionCandidate, order_queue};
use windlass_core::requests::lifecycle::takes_slot;
use windlass_store::StoreDatabase;
use windlass_types::Timestamp;
use windlass_types::requests::RequestStatus;

/// Name of the setting with the maximum number of active runs.
pub use windlass_requests::MAX_ACTIVE_RUNS as MAX_ACTIVE;
/// Default number of queue entries returned.
const DEFAULT_QUEUE_LENGTH: usize = 100;
const MAX_ACTIVE_LIMIT: u64 = 1_000_000;

/// Returns the current settings: those changed at run time, otherwise the defaults.
pub fn load_admission_settings(
    db: &dyn StoreDatabase,
    usual: &AdmissionSettings,
) -> ApiResult<AdmissionSettings> {
    let set = db.setting(MAX_ACTIVE)?.and_then(|value| value.as_u64());
    Ok(AdmissionSettings { max_active: set.map_or(usual.max_active, |most| most as usize), ..usual.clone() })
}

pub fn get_admission_queue(
    db: &dyn StoreDatabase,
    limit: Option<u64>,
    usual: &AdmissionSettings,
    now: Timestamp,
) -> ApiResult<AdmissionQueue> {
    let settings = load_admission_settings(db, usual)?;
    let names: Vec<String> = db.open_requests()?.into_iter().map(|(name, _)| name).collect();
    let open = db.load_request_views(&names)?;
    let holders: Vec<&str> =
        open.iter().filter(|one| takes_slot(one)).map(|one| one.row.request.requestor.as_str()).collect();
    let waiting: Vec<&RequestView> =
        open.iter().filter(|one| one.row.status == RequestStatus::Queued).collect();
    let candidates: Vec<AdmissionCandidate<'_>> =
        waiting.iter().map(|one| admission_candidate(one)).collect();
    let turns = order_queue(&candidates, &holders, &settings, now);
    let length = limit.map_or(DEFAULT_QUEUE_LENGTH, |limit| limit as usize);
    let in_order: Vec<NextInQueue> = turns
        .iter()
        .filter_map(|turn| waiting.iter().find(|one| one.row.request.request_name == turn.name))
        .take(length.max(1))
        .map(|one| api_next_in_queue(one))
        .collect();
    Ok(AdmissionQueue {
        active_dags: holders.len() as u64,
        max_active_dags: settings.max_active as u64,
        queued_workflows: waiting.len() as u64,
        next_in_queue: in_order.first().cloned(),
        queue: in_order.into_iter().take(length).collect(),
    })
}

/// Counts of requests, blocks and sites.
pub fn get_system_status(db: &dyn StoreDatabase, now: Timestamp) -> ApiResult<SystemStatus> {
    let AdmissionQueue { active_dags, max_active_dags, queued_workflows, .. } =
        get_admission_queue(db, Some(0), &AdmissionSettings::default(), now)?;
    let counts = db.request_counts()?;
    let mut sites: BTreeMap<String, u64> = BTreeMap::new();
    for site in db.sites()? {
        *sites.entry(site.status.to_string()).or_default() += 1;
    }
    Ok(SystemStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        active_dags,
        max_active_dags,
        queued_workflows,
        requests: counts.requests.into_iter().map(|(status, count)| (status.to_string(), count)).collect(),
        blocks: counts.blocks.into_iter().map(|(status, count)| (status.to_string(), count)).collect(),
        sites,
    })
}

fn admission_candidate(open: &RequestView) -> AdmissionCandidate<'_> {
    let request = &open.row.request;
    AdmissionCandidate {
        name: &request.request_name,
        requestor: &request.requestor,
        urgent: request.urgent,
        priority: request.priority,
        created_at: open.row.created_at,
        queued_since: open.row.since,
    }
}

fn api_next_in_queue(open: &RequestView) -> NextInQueue {
    let request = &open.row.request;
    NextInQueue {
        request_name: request.request_name.clone(),
        priority: request.priority,
        queued_since: open.row.since,
        urgent: request.urgent,
        requestor: request.requestor.clone(),
    }
}

pub fn get_admission_config(db: &dyn StoreDatabase) -> ApiResult<AdmissionConfig> {
    Ok(AdmissionConfig {
        max_active_dags: Some(load_admission_settings(db, &AdmissionSettings::default())?.max_active as u64),
    })
}

pub fn set_admission_config(
    db: &dyn StoreDatabase,
    wanted: &AdmissionConfig,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<AdmissionConfig> {
    if let Some(most) = wanted.max_active_dags {
        if most > MAX_ACTIVE_LIMIT {
            return Err(ApiError::invalid(format!(
                "`max_active_dags` is {most}; the maximum is {MAX_ACTIVE_LIMIT}"
            )));
        }
        db.set_setting(MAX_ACTIVE, Some(&Value::from(most)), actor.name, now)?;
    }
    get_admission_config(db)
}
