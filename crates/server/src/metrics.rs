//! What the server counts about itself, for Prometheus. Every name is explained in `docs/reference/metrics.md`.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::Duration;

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<Request, Counter>,
    duration: Family<Route, Histogram>,
    pub(crate) in_flight: Gauge,
    turned_away: Family<TurnedAway, Counter>,
    pub(crate) connections: Gauge,
    pub(crate) streams: Gauge,
    pub(crate) streams_cut: Counter,
    pub(crate) published: Counter,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Request {
    method: String,
    route: String,
    code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Route {
    route: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TurnedAway {
    reason: Reason,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Version {
    version: String,
}

/// Why a request was not even tried, or given up.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelValue)]
pub(crate) enum Reason {
    Rate,
    Busy,
    Timeout,
    Connections,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("windlass");
        let registered = Self {
            requests: Family::default(),
            // From 0.5 ms to 16 s.
            duration: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0005, 2.0, 16))),
            in_flight: Gauge::default(),
            turned_away: Family::default(),
            connections: Gauge::default(),
            streams: Gauge::default(),
            streams_cut: Counter::default(),
            published: Counter::default(),
            registry: Registry::default(),
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
            registered.turned_away.clone(),
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
        let version: Family<Version, Gauge> = Family::default();
        version.get_or_create(&Version { version: env!("CARGO_PKG_VERSION").to_owned() }).set(1);
        registry.register("build_info", "Always 1; the version is in the label", version);
        Self { registry, ..registered }
    }
}

impl Metrics {
    pub(crate) fn requested(&self, method: &str, route: &str, code: u16) {
        let labels = Request { method: method.to_owned(), route: route.to_owned(), code };
        self.requests.get_or_create(&labels).inc();
    }

    pub(crate) fn took(&self, route: &str, time: Duration) {
        self.duration.get_or_create(&Route { route: route.to_owned() }).observe(time.as_secs_f64());
    }

    pub(crate) fn turned_away(&self, reason: Reason) {
        self.turned_away.get_or_create(&TurnedAway { reason }).inc();
    }

    /// In the text format of OpenMetrics, which Prometheus reads.
    pub(crate) fn render(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Counts something that lasts, until it is dropped, whatever the way.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Counted {
    pub(crate) fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
