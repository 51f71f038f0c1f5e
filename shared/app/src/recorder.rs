//! Collects the values of metrics during an invocation, and writes one line at its end.

use std::{
    mem::take,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    Clock,
    metrics::{Line, MOST_VALUES, Metric, Metrics, Property, Unit, Values},
};

/// Collects the values of metrics. A process of Lambda has one invocation at a time, so what was recorded since the
/// last line belongs to the current invocation. The local stack runs invocations of one function side by side: there, a
/// value may be in the line of another one.
pub struct Recorder {
    lines: Arc<dyn Metrics>,
    clock: Arc<dyn Clock>,
    values: Mutex<Values>,
}

impl Recorder {
    /// The recorder of a process that starts.
    pub fn new(lines: Arc<dyn Metrics>, clock: Arc<dyn Clock>) -> Self {
        let recorder = Self { lines, clock, values: Mutex::default() };
        recorder.count(Metric::ColdStarts, 1);
        recorder
    }

    pub fn count(&self, metric: Metric, number: u64) {
        self.record(metric, number as f64);
    }

    pub fn time(&self, metric: Metric, time: Duration) {
        self.record(metric, milliseconds(time));
    }

    fn record(&self, metric: Metric, value: f64) {
        let mut values = self.values();
        let own = values.entry(metric).or_default();
        match (metric.unit(), own.first_mut()) {
            (Unit::Count, Some(sum)) => *sum += value,
            _ => own.push(value),
        }
        if own.len() == MOST_VALUES {
            let values = take(&mut *values);
            self.write(Vec::new(), values);
        }
    }

    /// Writes a line that belongs to no invocation.
    pub fn write(&self, properties: Vec<(&'static str, Property)>, values: Values) {
        self.lines.write(&Line { at: self.clock.now(), properties, values });
    }

    /// Returns the time until the deadline of an invocation, which is in milliseconds since the epoch; `None` if it has
    /// passed, as with `cargo lambda watch`, which always sends 600,000.
    pub fn time_until(&self, deadline: u64) -> Option<Duration> {
        deadline.checked_sub(self.clock.now().ms()).map(Duration::from_millis)
    }

    /// Starts an invocation. Its line is written when the result is dropped.
    pub fn invocation(&self, function: &str, request_id: &str) -> Invocation<'_> {
        let properties =
            vec![("function", Property::Text(function.to_owned())), ("request_id", Property::Text(request_id.to_owned()))];
        Invocation { recorder: self, started: Instant::now(), properties, own: Values::new(), ended: false }
    }

    fn values(&self) -> MutexGuard<'_, Values> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An invocation of a function. It writes one line, also if the function panics or its future is dropped.
#[must_use]
pub struct Invocation<'a> {
    recorder: &'a Recorder,
    started: Instant,
    properties: Vec<(&'static str, Property)>,
    /// Values with dimensions of this invocation.
    own: Values,
    ended: bool,
}

impl Invocation<'_> {
    /// Ends the invocation of a function without routes.
    pub fn worked(mut self, records: usize, failures: usize) {
        self.properties.extend([("records", Property::Number(records as u64)), ("failures", Property::Number(failures as u64))]);
        self.ended = true;
    }

    /// Ends the invocation of a function for a request of this route.
    pub fn responded(mut self, route: String, status: u16, degraded: bool) {
        self.own.insert(Metric::RequestLatency, vec![milliseconds(self.started.elapsed())]);
        if degraded {
            self.recorder.count(Metric::DegradedResponses, 1);
        }
        self.properties.extend([
            ("Route", Property::Text(route)),
            ("StatusClass", Property::Text(format!("{}xx", status / 100))),
            ("status", Property::Number(status.into())),
            ("degraded", Property::Flag(degraded)),
        ]);
        self.ended = true;
    }
}

impl Drop for Invocation<'_> {
    fn drop(&mut self) {
        let mut values = take(&mut *self.recorder.values());
        values.append(&mut self.own);
        let mut properties = take(&mut self.properties);
        properties.push(("duration_ms", Property::Milliseconds(milliseconds(self.started.elapsed()))));
        properties.push(("cold_start", Property::Flag(values.contains_key(&Metric::ColdStarts))));
        if !self.ended {
            properties.push(("aborted", Property::Flag(true)));
        }
        self.recorder.write(properties, values);
    }
}

/// Whole microseconds, so that a number has few digits.
fn milliseconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use tidemark_domain::Timestamp;

    use super::*;

    struct Fixed;

    impl Clock for Fixed {
        fn now(&self) -> Timestamp {
            Timestamp::from_ms(1_800_000_000_000)
        }
    }

    impl Metrics for Fixed {
        fn write(&self, _: &Line) {}
    }

    #[test]
    fn a_deadline_that_has_passed_at_the_start_is_no_deadline() {
        let recorder = Recorder::new(Arc::new(Fixed), Arc::new(Fixed));
        assert_eq!(recorder.time_until(1_800_000_010_000), Some(Duration::from_secs(10)));
        for none in [0, 600_000] {
            assert_eq!(recorder.time_until(none), None);
        }
    }
}
