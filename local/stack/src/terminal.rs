//! The log on the terminal: one short line for each request and for the first warning of a kind, counts of the next
//! ones, and the usual form for every other event.

use std::{
    collections::BTreeMap,
    error::Error,
    fmt, iter, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidemark_local::{REDIS, REQUESTS};
use tokio::sync::Notify;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Format, Full, Writer},
        time::{FormatTime as _, SystemTime},
    },
    registry::LookupSpan,
};

const RED: u8 = 31;
const GREEN: u8 = 32;
const YELLOW: u8 = 33;
const DIM: u8 = 2;

/// The target of a line that counts warnings.
const COUNTS: &str = "tidemark_local::counts";
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// Counts the warnings that were printed already, by message.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    held_back: Mutex<BTreeMap<String, u64>>,
    first: Notify,
}

impl Repeats {
    /// Prints the counts every few seconds while there are warnings. A kind that was silent meanwhile is new again.
    pub(crate) async fn print(&self) {
        loop {
            self.first.notified().await;
            while !self.held_back().is_empty() {
                tokio::time::sleep(COUNT_EVERY).await;
                for (message, count) in self.take() {
                    tracing::warn!(target: COUNTS, "{message}: {count} more in {} s", COUNT_EVERY.as_secs());
                }
            }
        }
    }

    fn take(&self) -> Vec<(String, u64)> {
        let mut held_back = self.held_back();
        held_back.retain(|_, count| *count > 0);
        held_back.iter_mut().map(|(message, count)| (message.clone(), mem::take(count))).collect()
    }

    /// Counts a warning. Returns true if it is the first of its kind.
    fn is_first(&self, message: &str) -> bool {
        let mut held_back = self.held_back();
        if let Some(count) = held_back.get_mut(message) {
            *count += 1;
            return false;
        }
        held_back.insert(message.to_owned(), 0);
        self.first.notify_one();
        true
    }

    fn held_back(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.held_back.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Formats events. Colours are those of the writer, which has none unless it is a terminal.
#[derive(Debug, Default)]
pub(crate) struct Terminal {
    full: Format<Full>,
    /// Without it, each warning has the usual form.
    repeats: Option<Arc<Repeats>>,
}

impl Terminal {
    pub(crate) fn new(repeats: Option<Arc<Repeats>>) -> Self {
        Self { full: Format::default(), repeats }
    }

    /// A warning that the stack says in its own words, or the first of a kind.
    fn warning(&self, writer: &mut Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let (target, mut fields) = (event.metadata().target(), Fields::default());
        event.record(&mut fields);
        let message = fields.0.remove("message").unwrap_or_default();
        let is_own = target == COUNTS || target == REDIS;
        if !is_own && self.repeats.as_ref().is_some_and(|repeats| !repeats.is_first(&message)) {
            return Ok(());
        }
        time(writer)?;
        match *event.metadata().level() {
            Level::WARN => coloured(writer, YELLOW, "WARN")?,
            _ => coloured(writer, GREEN, "INFO")?,
        }
        write!(writer, " {message}")?;
        if let Some(error) = fields.0.remove("error") {
            write!(writer, ": {error}")?;
        }
        for (name, value) in &fields.0 {
            write!(writer, " {name}={value}")?;
        }
        writeln!(writer)
    }
}

impl<S, N> FormatEvent<S, N> for Terminal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let (target, level) = (event.metadata().target(), *event.metadata().level());
        if target == REDIS || (self.repeats.is_some() && level == Level::WARN) {
            return self.warning(&mut writer, event);
        }
        if target != REQUESTS {
            return self.full.format_event(context, writer, event);
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let text = |name: &str| fields.0.get(name).map_or("", String::as_str);
        time(&mut writer)?;
        let colour = match text("status").as_bytes() {
            [b'5', ..] => RED,
            [b'4', ..] => YELLOW,
            _ => GREEN,
        };
        coloured(&mut writer, colour, text("status"))?;
        write!(writer, " {:6} {} {} ms", text("method"), text("path"), text("ms"))?;
        for word in [text("function"), text("problem")] {
            if !word.is_empty() {
                write!(writer, " {word}")?;
            }
        }
        if text("degraded") == "true" {
            writer.write_char(' ')?;
            coloured(&mut writer, YELLOW, "degraded")?;
        }
        writeln!(writer)
    }
}

fn time(writer: &mut Writer<'_>) -> fmt::Result {
    let mut time = String::new();
    SystemTime.format_time(&mut Writer::new(&mut time))?;
    coloured(writer, DIM, &time)?;
    writer.write_char(' ')
}

fn coloured(writer: &mut Writer<'_>, colour: u8, text: &str) -> fmt::Result {
    match writer.has_ansi_escapes() {
        true => write!(writer, "\x1b[{colour}m{text}\x1b[0m"),
        false => write!(writer, "{text}"),
    }
}

/// The fields of an event, as text. What has only the form of Rust's `Debug` is left out.
#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    /// A path may have anything that HTTP allows, and must not control the terminal.
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.chars().filter(|character| !character.is_control()).collect());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name(), format!("{value:.1}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name(), value.to_string());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name(), value.to_string());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name(), value.to_string());
    }

    /// The error and its sources, each text once.
    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        let chain = iter::successors(Some(value as &dyn Error), |error| (*error).source());
        let mut texts: Vec<String> = chain.map(ToString::to_string).collect();
        texts.dedup();
        self.0.insert(field.name(), texts.join(": "));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if matches!(field.name(), "message" | "error") {
            self.record_str(field, &format!("{value:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `work` prints, without the times.
    fn logged(ansi: bool, repeats: Option<Arc<Repeats>>, work: impl FnOnce()) -> Vec<String> {
        let lines = tempfile::NamedTempFile::new().unwrap();
        let log = tracing_subscriber::fmt().with_ansi(ansi).event_format(Terminal::new(repeats));
        let log = log.with_writer(lines.reopen().unwrap()).finish();
        tracing::subscriber::with_default(log, work);
        let text = std::fs::read_to_string(lines.path()).unwrap();
        text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
    }

    fn requests() {
        let (method, path) = ("GET", "/v1/feed");
        tracing::info!(target: REQUESTS, method, path, status = 200_u16, ms = 3.06, function = "read-feed", degraded = true);
        tracing::info!(target: REQUESTS, method, path, status = 404_u16, ms = 0.12, problem = "not-found", degraded = false);
    }

    fn warn_of_a_task() {
        let error = fmt::Error;
        tracing::warn!(function = "fan-out", attempts = 2, ids = ?[1, 2], error = &error as &dyn Error, "task failed");
    }

    #[test]
    fn a_request_is_one_short_line() {
        let lines = logged(false, None, requests);
        assert_eq!(lines, ["200 GET    /v1/feed 3.1 ms read-feed degraded", "404 GET    /v1/feed 0.1 ms not-found"]);
    }

    #[test]
    fn the_first_warning_of_a_kind_is_one_short_line_and_the_next_ones_are_counted() {
        let repeats = Arc::new(Repeats::default());
        let lines = logged(false, Some(Arc::clone(&repeats)), || {
            (0..3).for_each(|_| warn_of_a_task());
            tracing::warn!(target: REDIS, "Redis ended");
            tracing::warn!(target: REDIS, "Redis ended");
        });
        let first = format!("WARN task failed: {} attempts=2 function=fan-out", fmt::Error);
        assert_eq!(lines, [&*first, "WARN Redis ended", "WARN Redis ended"]);
        assert_eq!(repeats.take(), [("task failed".to_owned(), 2)]);
        assert_eq!(repeats.take(), [], "no warning came in between");
        assert_eq!(logged(false, Some(repeats), warn_of_a_task), [first]);
    }

    #[test]
    fn with_a_filter_of_the_caller_each_warning_has_all_its_fields() {
        let lines = logged(false, None, || (0..2).for_each(|_| warn_of_a_task()));
        assert_eq!(lines.len(), 2);
        assert!(
            lines[1].starts_with(" WARN tidemark_local::terminal::tests: task failed") && lines[1].contains("ids=[1, 2]"),
            "{lines:?}"
        );
    }

    #[test]
    fn colours_are_written_to_a_terminal_only() {
        assert!(!logged(false, None, requests).concat().contains('\x1b'));
        assert_eq!(logged(true, None, requests)[1], "\x1b[33m404\x1b[0m GET    /v1/feed 0.1 ms not-found");
    }
}
