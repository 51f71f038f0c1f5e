//! What the demo prints: headings, aligned rows, few colours.

use std::fmt::Display;

/// Writes to stdout, with colours or without.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    colours: bool,
}

impl Screen {
    /// With colours if they are wanted.
    pub fn new(colours: bool) -> Self {
        Self { colours }
    }

    fn paint(&self, code: &str, text: impl Display) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    /// Bold.
    pub fn bold(&self, text: impl Display) -> String {
        self.paint("1", text)
    }

    /// For what matters less.
    pub fn dim(&self, text: impl Display) -> String {
        self.paint("2", text)
    }

    /// For what is as it should be, and for what is unread.
    pub fn good(&self, text: impl Display) -> String {
        self.paint("32", text)
    }

    /// For what is not as it should be.
    pub fn bad(&self, text: impl Display) -> String {
        self.paint("31", text)
    }

    /// A numbered heading.
    pub fn heading(&self, number: usize, text: &str) {
        println!("\n{}", self.bold(format!("{number}  {text}")));
    }

    /// A row: a name and what is to say about it.
    pub fn row(&self, name: &str, text: impl Display) {
        println!("   {name:<12} {text}");
    }
}

/// `done` of `total` as a bar of `width` characters.
pub fn bar(done: u64, total: u64, width: usize) -> String {
    let share = (done.min(total) * width as u64).checked_div(total);
    let filled = share.map_or(width, |filled| filled as usize);
    format!("{}{}", "█".repeat(filled), "░".repeat(width - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_left_out_when_not_wanted() {
        assert_eq!(Screen::new(false).good("✓"), "✓");
        assert_eq!(Screen::new(true).good("✓"), "\x1b[32m✓\x1b[0m");
    }

    #[test]
    fn bars_are_as_wide_as_asked() {
        assert_eq!([bar(0, 30, 4), bar(15, 30, 4), bar(30, 30, 4), bar(0, 0, 2)], ["░░░░", "██░░", "████", "██"]);
    }
}
