//! Progress on stderr: a bar with rate and time left on a terminal, a line from time to time elsewhere.

use std::{
    io::IsTerminal,
    sync::Mutex,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use tidemark_tools::text::{rate, thousands};

const PLAIN_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Bar {
    title: &'static str,
    bar: ProgressBar,
    is_terminal: bool,
    started: Instant,
    last_line: Mutex<Instant>,
}

impl Bar {
    /// `total` may be an estimate.
    pub(crate) fn start(title: &'static str, total: u64) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let style = ProgressStyle::with_template("{prefix} {bar:32} {human_pos}/{human_len} {per_sec}, {eta} left");
        let bar = if is_terminal { ProgressBar::new(total) } else { ProgressBar::hidden() };
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─");
        let bar = bar.with_style(style).with_prefix(title);
        bar.set_length(total);
        let now = Instant::now();
        Self { title, bar, is_terminal, started: now, last_line: Mutex::new(now) }
    }

    pub(crate) fn add(&self, lines: u64) {
        self.bar.inc(lines);
        let mut last = self.last_line.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if self.is_terminal || last.elapsed() < PLAIN_EVERY {
            return;
        }
        *last = Instant::now();
        let (done, total) = (self.bar.position(), self.bar.length().unwrap_or(0));
        let speed = rate(done, self.started.elapsed());
        let left = total.saturating_sub(done).checked_div(speed).unwrap_or(0);
        eprintln!("{}: {} of {}, {} a second, {left} s left", self.title, thousands(done), thousands(total), thousands(speed));
    }

    /// Shows a line without tearing the bar.
    pub(crate) fn tell(&self, line: &str) {
        self.bar.suspend(|| println!("{line}"));
    }

    /// The same, for what is no result.
    pub(crate) fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}
