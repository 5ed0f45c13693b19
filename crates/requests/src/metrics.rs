//! Counters of requests, for metrics.

use std::collections::BTreeMap;
use windlass_core::requests::lifecycle::{AlertKind, LifecycleAlert};
use windlass_types::requests::{ProcessingBlockStatus, RequestStatus};

/// Gauges as of the last pass, counters since the start of the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LifecycleMetrics {
    pub requests: BTreeMap<RequestStatus, u64>,
    pub blocks: BTreeMap<ProcessingBlockStatus, u64>,
    pub queue_depth: u64,
    /// For each active run: the fraction of completed work units.
    pub progress: BTreeMap<String, f64>,
    pub alerts: BTreeMap<&'static str, u64>,
    pub stuck: BTreeMap<RequestStatus, u64>,
}

impl LifecycleMetrics {
    pub(crate) fn count_alerts(&mut self, alerts: &[LifecycleAlert]) {
        for alert in alerts {
            *self.alerts.entry(alert.kind.name()).or_default() += 1;
            let stuck = match alert.kind {
                AlertKind::Stuck(status) => Some(status),
                AlertKind::StuckInQueue => Some(RequestStatus::Queued),
                AlertKind::SlowDag | AlertKind::ScheddUnreachable => Some(RequestStatus::Active),
                _ => None,
            };
            if let Some(status) = stuck {
                *self.stuck.entry(status).or_default() += 1;
            }
        }
    }
}
