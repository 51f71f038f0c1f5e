//! The output of the demo: headings, aligned rows, few colours.

use std::fmt::Display;

/// Writes to stdout, with or without colours.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    colours: bool,
}

impl Screen {
    pub fn new(colours: bool) -> Self {
        Self { colours }
    }

    fn paint(&self, code: &str, text: impl Display) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    pub fn bold(&self, text: impl Display) -> String {
        self.paint("1", text)
    }

    /// A style for secondary text.
    pub(crate) fn dim(&self, text: impl Display) -> String {
        self.paint("2", text)
    }

    /// A style for right results and unread posts.
    pub fn good(&self, text: impl Display) -> String {
        self.paint("32", text)
    }

    /// A style for wrong results.
    pub fn bad(&self, text: impl Display) -> String {
        self.paint("31", text)
    }

    pub fn heading(&self, number: usize, text: &str) {
        println!("\n{}", self.bold(format!("{number}  {text}")));
    }

    /// A row: a name and its text.
    pub fn row(&self, name: &str, text: impl Display) {
        println!("   {name:<12} {text}");
    }
}

/// `done` of `total` as a bar of `width` characters.
pub(crate) fn bar(done: u64, total: u64, width: usize) -> String {
    let share = (done.min(total) * width as u64).checked_div(total);
    let filled = share.map_or(width, |filled| filled as usize);
    format!("{}{}", "█".repeat(filled), "░".repeat(width - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_can_be_turned_off() {
        assert_eq!(Screen::new(false).good("✓"), "✓");
        assert_eq!(Screen::new(true).good("✓"), "\x1b[32m✓\x1b[0m");
    }

    #[test]
    fn bars_have_the_given_width() {
        assert_eq!([bar(0, 30, 4), bar(15, 30, 4), bar(30, 30, 4), bar(0, 0, 2)], ["░░░░", "██░░", "████", "██"]);
    }
}
