//! Metrics of the server for Prometheus. Every name is documented in `docs/reference/metrics.md`.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric as _, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;
use windlass_requests::RequestLifecycle;
use windlass_scheduler::service::SchedulerHandle;
use windlass_slurm::allocation_reconciler::AllocationReconciler;
use windlass_types::slurm::AllocationState;
use windlass_types::{JobStatus, SystemClock};

#[derive(Debug)]
pub struct ServerMetrics {
    registry: RwLock<Registry>,
    /// Metrics of requests, which have another prefix.
    request_registry: RwLock<Registry>,
    requests: Family<RequestLabels, Counter>,
    duration: Family<RouteLabels, Histogram>,
    pub(crate) in_flight: Gauge,
    rejections: Family<RejectionLabels, Counter>,
    pub(crate) connections: Gauge,
    pub(crate) streams: Gauge,
    pub(crate) streams_cut: Counter,
    pub(crate) published: Counter,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    route: String,
    code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RejectionLabels {
    reason: RejectionReason,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct VersionLabels {
    version: String,
}

/// Why a request was rejected or timed out.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelValue)]
pub(crate) enum RejectionReason {
    Rate,
    Busy,
    Timeout,
    Connections,
}

impl Default for ServerMetrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("windlass");
        let registered = Self {
            requests: Family::default(),
            // From 0.5 ms to 16 s.
            duration: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0005, 2.0, 16))),
            in_flight: Gauge::default(),
            rejections: Family::default(),
            connections: Gauge::default(),
            streams: Gauge::default(),
            streams_cut: Counter::default(),
            published: Counter::default(),
            registry: RwLock::default(),
            request_registry: RwLock::new(Registry::with_prefix("wms2")),
        };
        registry.register(
            "http_requests",
            "HTTP requests by method, route and status code",
            registered.requests.clone(),
        );
        registry.register(
            "http_request_duration_seconds",
            "Duration of HTTP requests, excluding long polls and streams",
            registered.duration.clone(),
        );
        registry.register(
            "http_requests_in_flight",
            "Active HTTP requests, including long polls",
            registered.in_flight.clone(),
        );
        registry.register(
            "http_turned_away",
            "Rejected HTTP requests by reason",
            registered.rejections.clone(),
        );
        registry.register("http_connections", "Open connections", registered.connections.clone());
        registry.register("event_streams", "Active event stream readers", registered.streams.clone());
        registry.register(
            "event_streams_cut",
            "Event stream readers disconnected because they were too slow",
            registered.streams_cut.clone(),
        );
        registry.register(
            "events_published",
            "Events sent to event stream readers",
            registered.published.clone(),
        );
        let version: Family<VersionLabels, Gauge> = Family::default();
        version.get_or_create(&VersionLabels { version: env!("CARGO_PKG_VERSION").to_owned() }).set(1);
        registry.register("build_info", "Build information; always 1", version);
        Self { registry: RwLock::new(registry), ..registered }
    }
}

/// Metrics of the scheduler, read when they are scraped.
#[derive(Debug)]
struct ServiceCollector(SchedulerHandle);

impl Collector for ServiceCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let metrics = self.0.metrics();
        let gauges = [
            ("workers", "Workers with a lease", metrics.workers),
            ("workflows_active", "Workflows in memory", metrics.workflows),
            ("jobs_ready", "Jobs ready to be claimed", metrics.ready_jobs),
            ("jobs_held", "Jobs held by workers", metrics.held_jobs),
            ("waits", "Worker exchanges waiting for jobs", metrics.waiting_exchanges),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value as i64);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let counters = [
            ("jobs_assigned", "Jobs assigned to workers", metrics.assigned_jobs),
            ("jobs_orphaned", "Attempts orphaned by lost workers", metrics.orphaned_attempts),
            (
                "stale_reports",
                "Reports ignored because their attempt was no longer current",
                metrics.stale_reports,
            ),
            ("workers_lost", "Workers lost because their lease expired", metrics.lost_workers),
            ("commits", "Transactions of the scheduler", metrics.commits),
            (
                "commits_refused",
                "Transactions of the scheduler that failed and were retried",
                metrics.refused_commits,
            ),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let outcomes = [JobStatus::Completed, JobStatus::Failed, JobStatus::Terminated, JobStatus::Canceled];
        let ended = outcomes.map(|outcome| {
            (vec![("outcome", outcome.name().to_owned())], metrics.ended_attempts.get(outcome))
        });
        encode_counters(&mut encoder, "jobs_ended", "Attempts that ended, by outcome", ended.into())?;
        let age = (SystemClock.now().micros() - metrics.last_loop_at).max(0) as f64 / 1e6;
        let gauge = ConstGauge::new(age);
        let help = "Seconds since the last iteration of the scheduler loop";
        gauge.encode(encoder.encode_descriptor("loop_age_seconds", help, None, gauge.metric_type())?)
    }
}

/// Metrics of requests, with the names of their specification.
#[derive(Debug)]
struct RequestCollector(RequestLifecycle);

impl Collector for RequestCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let metrics = self.0.metrics();
        let status = |status: &dyn std::fmt::Display| vec![("status", status.to_string())];
        let of =
            |requests: &BTreeMap<_, u64>| requests.iter().map(|(of, n)| (status(of), *n as f64)).collect();
        let blocks = metrics.blocks.iter().map(|(of, n)| (status(of), *n as f64)).collect();
        let progress =
            metrics.progress.iter().map(|(run, done)| (vec![("dag_id", run.clone())], *done)).collect();
        let depth = vec![(Vec::new(), metrics.queue_depth as f64)];
        encode_gauges(&mut encoder, "workflows", "Requests by status", of(&metrics.requests))?;
        encode_gauges(&mut encoder, "admission_queue_depth", "Requests waiting for admission", depth)?;
        encode_gauges(
            &mut encoder,
            "dag_progress",
            "Share of the work units of a run that are completed",
            progress,
        )?;
        encode_gauges(&mut encoder, "blocks", "Processing blocks by status", blocks)?;
        let stuck = metrics.stuck.iter().map(|(of, n)| (status(of), *n)).collect();
        encode_counters(&mut encoder, "request_stuck", "Requests detected as stuck, by status", stuck)?;
        let alerts =
            metrics.alerts.iter().map(|(kind, n)| (vec![("type", (*kind).to_owned())], *n)).collect();
        encode_counters(&mut encoder, "alerts", "Alerts raised, by type", alerts)
    }
}

/// Metrics of Slurm calls and open allocations.
#[derive(Debug)]
struct AllocationCollector(AllocationReconciler);

impl Collector for AllocationCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let open = self.0.status().open_allocations;
        let states = AllocationState::ALL.into_iter().filter(|state| !state.is_over());
        let of = |state: AllocationState| open.get(&state).copied().unwrap_or(0) as f64;
        let open = states.map(|state| (vec![("state", state.name().to_owned())], of(state))).collect();
        encode_gauges(&mut encoder, "slurm_allocations", "Open Slurm allocations by state", open)?;
        let left = self.0.remaining_budget();
        let calls = vec![(Vec::new(), f64::from(left.calls))];
        encode_gauges(&mut encoder, "slurm_budget_left", "Slurm commands that may be called now", calls)?;
        let mut calls = Vec::new();
        for (command, tally) in self.0.total_statistics() {
            let answered = tally.calls - tally.failures();
            let outcomes = [
                ("answered", answered),
                ("refused", tally.refused),
                ("timed_out", tally.timed_out),
                ("failed", tally.failed),
            ];
            calls.extend(outcomes.map(|(outcome, n)| {
                (vec![("command", command.to_owned()), ("outcome", outcome.to_owned())], n)
            }));
        }
        encode_counters(&mut encoder, "slurm_calls", "Slurm command calls by command and outcome", calls)
    }
}

type LabelPairs = Vec<(&'static str, String)>;

fn encode_gauges(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: Vec<(LabelPairs, f64)>,
) -> Result<(), std::fmt::Error> {
    let mut described = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        let gauge = ConstGauge::new(value);
        if labels.is_empty() {
            return gauge.encode(described);
        }
        gauge.encode(described.encode_family(&labels)?)?;
    }
    Ok(())
}

fn encode_counters(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: Vec<(LabelPairs, u64)>,
) -> Result<(), std::fmt::Error> {
    let mut described = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in values {
        ConstCounter::new(value).encode(described.encode_family(&labels)?)?;
    }
    Ok(())
}

impl ServerMetrics {
    /// Adds the metrics of requests.
    pub(crate) fn register_requests(&self, lifecycle: RequestLifecycle) {
        let mut registry = self.request_registry.write().unwrap_or_else(PoisonError::into_inner);
        registry.register_collector(Box::new(RequestCollector(lifecycle)));
    }

    /// Adds the metrics of Slurm allocations.
    pub(crate) fn register_slurm(&self, reconciler: AllocationReconciler) {
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        registry.register_collector(Box::new(AllocationCollector(reconciler)));
    }

    /// Adds the metrics of the scheduler.
    pub(crate) fn register_service(&self, service: SchedulerHandle) {
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        registry.register_collector(Box::new(ServiceCollector(service)));
    }

    pub(crate) fn record_request(&self, method: &str, route: &str, code: u16) {
        let labels = RequestLabels { method: method.to_owned(), route: route.to_owned(), code };
        self.requests.get_or_create(&labels).inc();
    }

    pub(crate) fn record_duration(&self, route: &str, time: Duration) {
        self.duration.get_or_create(&RouteLabels { route: route.to_owned() }).observe(time.as_secs_f64());
    }

    pub(crate) fn record_rejection(&self, reason: RejectionReason) {
        self.rejections.get_or_create(&RejectionLabels { reason }).inc();
    }

    /// Renders the metrics in the OpenMetrics text format for Prometheus.
    pub(crate) fn render(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        let registry = self.registry.read().unwrap_or_else(PoisonError::into_inner);
        text::encode_registry(&mut text, &registry)?;
        let registry = self.request_registry.read().unwrap_or_else(PoisonError::into_inner);
        text::encode_registry(&mut text, &registry)?;
        text::encode_eof(&mut text)?;
        Ok(text)
    }
}

/// Counts an active item until it is dropped.
#[derive(Debug)]
pub(crate) struct GaugeGuard(Gauge);

impl GaugeGuard {
    pub(crate) fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
