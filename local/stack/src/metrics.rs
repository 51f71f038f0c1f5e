//! Metrics of one stack since its start, for `GET /_local/metrics`.

use std::time::Duration;

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, Result, TextEncoder, exponential_buckets,
    register_histogram_vec_with_registry, register_histogram_with_registry, register_int_counter_vec_with_registry,
    register_int_gauge_vec_with_registry,
};

use crate::status::Status;

pub(crate) struct Metrics {
    registry: Registry,
    requests: HistogramVec,
    degraded: IntCounterVec,
    invocations: HistogramVec,
    errors: IntCounterVec,
    delivery_lag: Histogram,
    /// Read from [`Status`] for each response.
    queues: IntGaugeVec,
    streams: IntGaugeVec,
    in_flight: IntGaugeVec,
}

impl Metrics {
    pub(crate) fn new() -> Result<Self> {
        let registry = Registry::new();
        // From 1 ms to 16 s, and to 35 minutes.
        let (buckets, lag_buckets) = (exponential_buckets(0.001, 2.0, 15)?, exponential_buckets(0.001, 2.0, 22)?);
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            register_int_gauge_vec_with_registry!(Opts::new(name, help), labels, registry)
        };
        let counter = |name: &str, help: &str, label: &str| {
            register_int_counter_vec_with_registry!(Opts::new(name, help), &[label], registry)
        };
        let histogram = |name: &str, help: &str, labels: &[&str]| {
            register_histogram_vec_with_registry!(HistogramOpts::new(name, help).buckets(buckets.clone()), labels, registry)
        };
        let lag = HistogramOpts::new("tidemark_delivery_lag_seconds", "From the publish of a post to the end of its delivery.");
        let behind = "Stream records that the slowest reader has not handled.";
        let in_flight = "Invocations by queues, streams and schedules.";
        let requests = "Requests of the API, by route and status.";
        Ok(Self {
            requests: histogram("tidemark_request_duration_seconds", requests, &["route", "status"])?,
            degraded: counter("tidemark_degraded_responses_total", "Responses that were made without Redis.", "route")?,
            invocations: histogram("tidemark_invocation_duration_seconds", "Invocations of functions.", &["function"])?,
            errors: counter("tidemark_invocation_errors_total", "Invocations that failed, timed out or panicked.", "function")?,
            delivery_lag: register_histogram_with_registry!(lag.buckets(lag_buckets), registry)?,
            queues: gauge("tidemark_queue_messages", "Messages of a queue.", &["queue", "state"])?,
            streams: gauge("tidemark_stream_records_behind", behind, &["table"])?,
            in_flight: gauge("tidemark_source_invocations_in_flight", in_flight, &["function"])?,
            registry,
        })
    }

    pub(crate) fn request(&self, route: &str, status: u16, took: Duration, degraded: bool) {
        self.requests.with_label_values(&[route, &status.to_string()]).observe(took.as_secs_f64());
        if degraded {
            self.degraded.with_label_values(&[route]).inc();
        }
    }

    pub(crate) fn invocation(&self, function: &str, took: Duration, succeeded: bool) {
        self.invocations.with_label_values(&[function]).observe(took.as_secs_f64());
        self.errors.with_label_values(&[function]).inc_by(u64::from(!succeeded));
    }

    pub(crate) fn delivery(&self, lag: Duration) {
        self.delivery_lag.observe(lag.as_secs_f64());
    }

    pub(crate) fn text(&self, status: &Status) -> Result<String> {
        let gauge = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        for (queue, counts) in &status.queues {
            for (state, count) in [("visible", counts.visible), ("in_flight", counts.in_flight), ("delayed", counts.delayed)] {
                self.queues.with_label_values(&[queue.as_str(), state]).set(gauge(count as u64));
            }
        }
        for (table, stream) in &status.streams {
            self.streams.with_label_values(&[table]).set(gauge(stream.behind));
        }
        for (function, state) in &status.functions {
            self.in_flight.with_label_values(&[function]).set(gauge(state.in_flight as u64));
        }
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}
