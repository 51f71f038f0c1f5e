//! A bar chart of the rows.

use std::fmt::Write;

use super::report::{FanOutReport, Population, Row};
use tidemark_tools::text::thousands;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 20.0;
const BAR: f64 = 18.0;
const GROUP: f64 = 46.0;
/// The width of the longest bar. Its number is printed after it.
const LONGEST: f64 = 560.0;

impl FanOutReport {
    /// Two panels for each population: followers in a second, and server time for each.
    pub(crate) fn svg(&self) -> String {
        let mut panels = Vec::new();
        for Population { feed_entries, rows, .. } in &self.populations {
            let speeds = rows.iter().map(|row| (row, row.cost.per_second, thousands(row.cost.per_second as u64)));
            panels.push((format!("followers delivered a second, feeds of {feed_entries} (longer is better)"), speeds.collect()));
            let times = rows.iter().filter_map(|row| row.cost.server_us.map(|us| (row, us, format!("{us:.2} µs"))));
            panels
                .push((format!("Redis main-thread CPU for each, feeds of {feed_entries} (shorter is better)"), times.collect()));
        }
        let panel = |rows: &Vec<_>| rows.len() as f64 * GROUP + 50.0;
        let height: f64 = panels.iter().map(|(_, rows)| panel(rows)).sum();
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        let mut top = 0.0;
        for (title, rows) in panels {
            let next = top + panel(&rows);
            bars(&mut svg, &title, top, rows);
            top = next;
        }
        svg + "</svg>\n"
    }
}

fn bars(svg: &mut String, title: &str, top: f64, rows: Vec<(&Row, f64, String)>) {
    let most = rows.iter().map(|(_, value, _)| *value).fold(f64::MIN_POSITIVE, f64::max);
    // Writing to a string does not fail.
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{title}</text>", top + 26.0);
    for (number, (row, value, label)) in rows.iter().enumerate() {
        let y = top + 40.0 + number as f64 * GROUP;
        let color = if number == 0 { "#0b6e99" } else { "#b8c4cc" };
        let length = (value / most * LONGEST).max(1.0);
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\">{}</text>", y + 12.0, row.kind.title());
        let _ = writeln!(svg, "<rect x=\"{LEFT}\" y=\"{}\" width=\"{length:.1}\" height=\"{BAR}\" fill=\"{color}\"/>", y + 18.0);
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{}\">{label}</text>", LEFT + length + 8.0, y + 32.0);
    }
}
