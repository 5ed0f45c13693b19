//! What the server counts about itself, for Prometheus. Every name is explained in `docs/reference/metrics.md`.

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
use windlass_types::SystemClock;
use windlass_types::slurm::AllocationState;

#[derive(Debug)]
pub struct ServerMetrics {
    registry: RwLock<Registry>,
    /// Their names begin otherwise.
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

/// Why a request was not even tried, or given up.
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
        registry.register("http_requests", "Requests by route and status code", registered.requests.clone());
        registry.register(
            "http_request_duration_seconds",
            "How long requests took that are neither waits nor streams",
            registered.duration.clone(),
        );
        registry.register(
            "http_requests_in_flight",
            "Requests under way, waits included",
            registered.in_flight.clone(),
        );
        registry.register(
            "http_turned_away",
            "Requests told to come again, by reason",
            registered.rejections.clone(),
        );
        registry.register("http_connections", "Open connections", registered.connections.clone());
        registry.register("event_streams", "Readers of event streams", registered.streams.clone());
        registry.register(
            "event_streams_cut",
            "Readers cut off because they were too slow",
            registered.streams_cut.clone(),
        );
        registry.register(
            "events_published",
            "Events handed to readers of streams",
            registered.published.clone(),
        );
        let version: Family<VersionLabels, Gauge> = Family::default();
        version.get_or_create(&VersionLabels { version: env!("CARGO_PKG_VERSION").to_owned() }).set(1);
        registry.register("build_info", "Always 1; the version is in the label", version);
        Self { registry: RwLock::new(registry), ..registered }
    }
}

/// The figures of the service, read when somebody asks for them.
#[derive(Debug)]
struct ServiceCollector(SchedulerHandle);

impl Collector for ServiceCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let figures = self.0.metrics();
        let gauges = [
            ("workers", "Workers with a lease", figures.workers),
            ("workflows_active", "Workflows in memory", figures.workflows),
            ("jobs_ready", "Jobs that may be claimed", figures.ready_jobs),
            ("jobs_held", "Jobs that some worker has", figures.held_jobs),
            ("waits", "Exchanges of workers that wait for something to do", figures.waiting_exchanges),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value as i64);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let counters = [
            ("jobs_assigned", "Jobs handed out", figures.assigned_jobs),
            ("jobs_ended", "Attempts that were reported as ended", figures.ended_attempts),
            ("jobs_orphaned", "Attempts lost with their workers", figures.orphaned_attempts),
            ("stale_reports", "Reports that came after their attempt was given up", figures.stale_reports),
            ("workers_lost", "Workers given up because nothing was heard of them", figures.lost_workers),
            ("commits", "Transactions of the service", figures.commits),
            ("commits_refused", "Transactions that failed and were repeated", figures.refused_commits),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let age = (SystemClock.now().micros() - figures.last_loop_at).max(0) as f64 / 1e6;
        let gauge = ConstGauge::new(age);
        let help = "Time since the service last looked around";
        gauge.encode(encoder.encode_descriptor("loop_age_seconds", help, None, gauge.metric_type())?)
    }
}

/// What is counted about requests, under the names that their specification gives.
#[derive(Debug)]
struct RequestCollector(RequestLifecycle);

impl Collector for RequestCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let figures = self.0.metrics();
        let status = |status: &dyn std::fmt::Display| vec![("status", status.to_string())];
        let of =
            |requests: &BTreeMap<_, u64>| requests.iter().map(|(of, n)| (status(of), *n as f64)).collect();
        let blocks = figures.blocks.iter().map(|(of, n)| (status(of), *n as f64)).collect();
        let progress =
            figures.progress.iter().map(|(run, done)| (vec![("dag_id", run.clone())], *done)).collect();
        let depth = vec![(Vec::new(), figures.queue_depth as f64)];
        encode_gauges(&mut encoder, "workflows", "Requests by status", of(&figures.requests))?;
        encode_gauges(&mut encoder, "admission_queue_depth", "Requests that wait for their turn", depth)?;
        encode_gauges(
            &mut encoder,
            "dag_progress",
            "Share of the work units of a run that are completed",
            progress,
        )?;
        encode_gauges(&mut encoder, "blocks", "Processing blocks by status", blocks)?;
        let stuck = figures.stuck.iter().map(|(of, n)| (status(of), *n)).collect();
        encode_counters(&mut encoder, "request_stuck", "Requests that were found stuck, by status", stuck)?;
        let alerts =
            figures.alerts.iter().map(|(kind, n)| (vec![("type", (*kind).to_owned())], *n)).collect();
        encode_counters(&mut encoder, "alerts", "Things that a person was told of, by type", alerts)
    }
}

/// What is asked of Slurm, and the allocations that are open.
#[derive(Debug)]
struct AllocationCollector(AllocationReconciler);

impl Collector for AllocationCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let open = self.0.status().open_allocations;
        let states = AllocationState::ALL.into_iter().filter(|state| !state.is_over());
        let of = |state: AllocationState| open.get(&state).copied().unwrap_or(0) as f64;
        let open = states.map(|state| (vec![("state", state.name().to_owned())], of(state))).collect();
        encode_gauges(&mut encoder, "slurm_allocations", "Open allocations of Slurm by state", open)?;
        let left = self.0.remaining_budget();
        let calls = vec![(Vec::new(), f64::from(left.calls))];
        encode_gauges(
            &mut encoder,
            "slurm_budget_left",
            "Calls of Slurm's commands that may be made now",
            calls,
        )?;
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
        encode_counters(&mut encoder, "slurm_calls", "Calls of Slurm's commands by what came of them", calls)
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
    /// From now on those of requests are too.
    pub(crate) fn register_requests(&self, lifecycle: RequestLifecycle) {
        let mut registry = self.request_registry.write().unwrap_or_else(PoisonError::into_inner);
        registry.register_collector(Box::new(RequestCollector(lifecycle)));
    }

    /// From now on those of allocations are too.
    pub(crate) fn register_slurm(&self, steward: AllocationReconciler) {
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        registry.register_collector(Box::new(AllocationCollector(steward)));
    }

    /// From now on the figures of the service are among the others.
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

    /// In the text format of OpenMetrics, which Prometheus reads.
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

/// Counts something that lasts, until it is dropped, whatever the way.
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
