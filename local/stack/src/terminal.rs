//! The log on the terminal: one short line for each request, and the usual form for every other event.

use std::fmt;

use tidemark_local::REQUESTS;
use tracing::{
    Event, Subscriber,
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

/// Formats events. Colours are those of the writer, which has none unless it is a terminal.
#[derive(Debug, Default)]
pub(crate) struct Terminal(Format<Full>);

impl<S, N> FormatEvent<S, N> for Terminal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        if event.metadata().target() != REQUESTS {
            return self.0.format_event(context, writer, event);
        }
        let mut request = Request::default();
        event.record(&mut request);
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        coloured(&mut writer, DIM, &time)?;
        writer.write_char(' ')?;
        let status = match request.status {
            500.. => RED,
            400..500 => YELLOW,
            _ => GREEN,
        };
        coloured(&mut writer, status, &request.status)?;
        write!(writer, " {:6} {} {:.1} ms", request.method, request.path, request.ms)?;
        for word in [request.function, request.problem] {
            if !word.is_empty() {
                write!(writer, " {word}")?;
            }
        }
        if request.degraded {
            writer.write_char(' ')?;
            coloured(&mut writer, YELLOW, &"degraded")?;
        }
        writeln!(writer)
    }
}

fn coloured(writer: &mut Writer<'_>, colour: u8, text: &dyn fmt::Display) -> fmt::Result {
    match writer.has_ansi_escapes() {
        true => write!(writer, "\x1b[{colour}m{text}\x1b[0m"),
        false => write!(writer, "{text}"),
    }
}

/// The fields of a request's event.
#[derive(Debug, Default)]
struct Request {
    method: String,
    path: String,
    status: u64,
    ms: f64,
    function: String,
    problem: String,
    degraded: bool,
}

impl Visit for Request {
    fn record_str(&mut self, field: &Field, value: &str) {
        let text = match field.name() {
            "method" => &mut self.method,
            "path" => &mut self.path,
            "function" => &mut self.function,
            "problem" => &mut self.problem,
            _ => return,
        };
        // A path may have anything that HTTP allows, and must not control the terminal.
        text.extend(value.chars().filter(|character| !character.is_control()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "status" {
            self.status = value;
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if field.name() == "ms" {
            self.ms = value;
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        if field.name() == "degraded" {
            self.degraded = value;
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of two requests and a warning, without their times.
    fn logged(ansi: bool) -> Vec<String> {
        let lines = tempfile::NamedTempFile::new().unwrap();
        let log = tracing_subscriber::fmt().with_ansi(ansi).event_format(Terminal::default());
        let log = log.with_writer(lines.reopen().unwrap()).finish();
        tracing::subscriber::with_default(log, || {
            let (method, path) = ("GET", "/v1/feed");
            tracing::info!(target: REQUESTS, method, path, status = 200_u16, ms = 3.06, function = "read-feed", degraded = true);
            tracing::info!(target: REQUESTS, method, path, status = 404_u16, ms = 0.12, problem = "not-found", degraded = false);
            tracing::warn!(function = "fan-out", "task failed");
        });
        let text = std::fs::read_to_string(lines.path()).unwrap();
        text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
    }

    #[test]
    fn a_request_is_one_short_line() {
        let lines = logged(false);
        assert_eq!(lines[0], "200 GET    /v1/feed 3.1 ms read-feed degraded");
        assert_eq!(lines[1], "404 GET    /v1/feed 0.1 ms not-found");
        assert_eq!(lines[2], r#" WARN tidemark_local::terminal::tests: task failed function="fan-out""#);
    }

    #[test]
    fn colours_are_written_to_a_terminal_only() {
        assert!(!logged(false).concat().contains('\x1b'));
        assert_eq!(logged(true)[1], "\x1b[33m404\x1b[0m GET    /v1/feed 0.1 ms not-found");
    }
}
