//! The log on the terminal: one short line for each request, and the usual form for every other event.

use std::{collections::BTreeMap, fmt};

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
        let mut fields = Fields::default();
        event.record(&mut fields);
        let text = |name: &str| fields.0.get(name).map_or("", String::as_str);
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        coloured(&mut writer, DIM, &time)?;
        writer.write_char(' ')?;
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

fn coloured(writer: &mut Writer<'_>, colour: u8, text: &str) -> fmt::Result {
    match writer.has_ansi_escapes() {
        true => write!(writer, "\x1b[{colour}m{text}\x1b[0m"),
        false => write!(writer, "{text}"),
    }
}

/// The fields of a request's event, as text.
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

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
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
