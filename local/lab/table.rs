//! Tables in Markdown with aligned columns.

use std::fmt;

/// Columns of text, then columns of numbers.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    texts: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns. Numbers are aligned to the right.
    pub(crate) fn new(texts: &[&str], numbers: &[&str]) -> Self {
        let header = texts.iter().chain(numbers).map(|&name| name.to_owned()).collect();
        Self { texts: texts.len(), rows: vec![header] }
    }

    /// Adds a row. It must have a cell for every column.
    pub(crate) fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        debug_assert_eq!(cells.len(), self.rows[0].len());
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(3);
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                match column < self.texts {
                    true => write!(f, "| {cell:<width$} ")?,
                    false => write!(f, "| {cell:>width$} ")?,
                }
            }
            writeln!(f, "|")?;
            if number == 0 {
                for (column, &width) in widths.iter().enumerate() {
                    let end = if column < self.texts { '-' } else { ':' };
                    write!(f, "|{}{end}", "-".repeat(width + 1))?;
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["way"], &["µs"]);
        table.push(["bare".to_owned(), "1,234".to_owned()]);
        table.push(["ä".to_owned(), "5".to_owned()]);
        let expected = "\
| way  |    µs |
|------|------:|
| bare | 1,234 |
| ä    |     5 |
";
        assert_eq!(table.to_string(), expected);
    }
}
