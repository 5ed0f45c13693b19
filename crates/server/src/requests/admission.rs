//! Whose turn it is, and how many may have one.

use super::Actor;
use crate::error::{Answer, ApiError};
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_api::requests::{AdmissionConfig, AdmissionQueue, NextInQueue, SystemStatus};
use windlass_core::requests::View;
pub use windlass_core::requests::admission::Settings;
use windlass_core::requests::admission::{Candidate, queue};
use windlass_core::requests::lifecycle::takes_place;
use windlass_store::Database;
use windlass_types::Timestamp;
use windlass_types::requests::RequestStatus;

/// The setting that says how many runs may be under way at once.
pub use windlass_requests::MAX_ACTIVE_RUNS as MAX_ACTIVE;
/// So many of the queue are told, unless somebody asks for another number.
const TOLD: usize = 100;
const LARGEST: u64 = 1_000_000;

/// What holds now: what was set while the server ran, else what is usual.
pub fn settings(db: &dyn Database, usual: &Settings) -> Answer<Settings> {
    let set = db.setting(MAX_ACTIVE)?.and_then(|value| value.as_u64());
    Ok(Settings { max_active: set.map_or(usual.max_active, |most| most as usize), ..usual.clone() })
}

pub fn show(
    db: &dyn Database,
    limit: Option<u64>,
    usual: &Settings,
    now: Timestamp,
) -> Answer<AdmissionQueue> {
    let settings = settings(db, usual)?;
    let names: Vec<String> = db.open_requests()?.into_iter().map(|(name, _)| name).collect();
    let open = db.views(&names)?;
    let holders: Vec<&str> =
        open.iter().filter(|one| takes_place(one)).map(|one| one.row.request.requestor.as_str()).collect();
    let waiting: Vec<&View> = open.iter().filter(|one| one.row.status == RequestStatus::Queued).collect();
    let candidates: Vec<Candidate<'_>> = waiting.iter().map(|one| candidate(one)).collect();
    let turns = queue(&candidates, &holders, &settings, now);
    let told = limit.map_or(TOLD, |limit| limit as usize);
    let in_order: Vec<NextInQueue> = turns
        .iter()
        .filter_map(|turn| waiting.iter().find(|one| one.row.request.request_name == turn.name))
        .take(told.max(1))
        .map(|one| next(one))
        .collect();
    Ok(AdmissionQueue {
        active_dags: holders.len() as u64,
        max_active_dags: settings.max_active as u64,
        queued_workflows: waiting.len() as u64,
        next_in_queue: in_order.first().cloned(),
        queue: in_order.into_iter().take(told).collect(),
    })
}

/// Everything about requests in numbers.
pub fn system_status(db: &dyn Database, now: Timestamp) -> Answer<SystemStatus> {
    let AdmissionQueue { active_dags, max_active_dags, queued_workflows, .. } =
        show(db, Some(0), &Settings::default(), now)?;
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

fn candidate(open: &View) -> Candidate<'_> {
    let request = &open.row.request;
    Candidate {
        name: &request.request_name,
        requestor: &request.requestor,
        urgent: request.urgent,
        priority: request.priority,
        created_at: open.row.created_at,
        queued_since: open.row.since,
    }
}

fn next(open: &View) -> NextInQueue {
    let request = &open.row.request;
    NextInQueue {
        request_name: request.request_name.clone(),
        priority: request.priority,
        queued_since: open.row.since,
        urgent: request.urgent,
        requestor: request.requestor.clone(),
    }
}

pub fn config(db: &dyn Database) -> Answer<AdmissionConfig> {
    Ok(AdmissionConfig { max_active_dags: Some(settings(db, &Settings::default())?.max_active as u64) })
}

pub fn set(
    db: &dyn Database,
    wanted: &AdmissionConfig,
    actor: Actor<'_>,
    now: Timestamp,
) -> Answer<AdmissionConfig> {
    if let Some(most) = wanted.max_active_dags {
        if most > LARGEST {
            return Err(ApiError::invalid(format!("`max_active_dags` is {most}; it is at most {LARGEST}")));
        }
        db.set_setting(MAX_ACTIVE, Some(&Value::from(most)), actor.name, now)?;
    }
    config(db)
}
