//! Progress on stderr: a bar on a terminal, a line from time to time elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::text::{rate, thousands};

const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// The progress of one piece of work.
#[derive(Debug)]
pub struct Progress {
    title: String,
    unit: &'static str,
    bar: Option<ProgressBar>,
    started: Instant,
    last_line: Instant,
}

impl Progress {
    /// Starts a progress. `unit` is the counted thing ("lines").
    pub fn start(title: impl Into<String>, unit: &'static str) -> Self {
        let title = title.into();
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{prefix} {bar:32} {human_pos}/{human_len} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("━╸─");
            ProgressBar::new(0).with_style(style).with_prefix(title.clone())
        });
        Self { title, unit, bar, started: Instant::now(), last_line: Instant::now() }
    }

    /// Shows `done` of `total` with a remark. `total` may be an estimate and may change.
    pub fn set(&mut self, done: u64, total: u64, remark: &str) {
        let speed = thousands(rate(done, self.started.elapsed()));
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(done);
            bar.set_message(format!("{speed} {}/s {remark}", self.unit));
        } else if self.last_line.elapsed() >= PLAIN_EVERY {
            self.last_line = Instant::now();
            let percent = (done * 100).checked_div(total).unwrap_or(0);
            let (done, total) = (thousands(done), thousands(total));
            eprintln!("{}: {done} of {total} {} ({percent} %), {speed} a second {remark}", self.title, self.unit);
        }
    }

    /// Ends the progress and clears the bar. Returns the elapsed time.
    pub fn finish(self) -> Duration {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.started.elapsed()
    }
}
