//! Lines in a picture (SVG).

use std::fmt::{self, Write as _};

const WIDTH: f64 = 840.0;
const HEIGHT: f64 = 400.0;
/// Around the lines: room for the title, the axes and the names.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const COLOURS: [&str; 8] = ["#1f77b4", "#d62728", "#9467bd", "#2ca02c", "#ff7f0e", "#17a0b4", "#8c564b", "#777777"];
/// The least value of a logarithmic axis.
const LEAST: f64 = 0.1;

#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) lines: Vec<Line>,
    /// A value to stay below.
    pub(crate) aim: Option<f64>,
    /// Whether the values have a logarithmic axis.
    pub(crate) is_logarithmic: bool,
}

/// From values to a place in the picture.
struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
    is_logarithmic: bool,
}

impl Axis {
    fn place(&self, value: f64) -> f64 {
        let scaled = |value: f64| if self.is_logarithmic { value.max(self.least).ln() } else { value };
        let share = (scaled(value) - scaled(self.least)) / (scaled(self.most) - scaled(self.least));
        self.from + share * (self.to - self.from)
    }

    /// Round values: powers of ten, or about five steps.
    fn ticks(&self) -> Vec<f64> {
        if self.is_logarithmic {
            return (-1..12).map(|power| 10_f64.powi(power)).filter(|value| (self.least..=self.most).contains(value)).collect();
        }
        let rough = (self.most - self.least) / 5.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough).unwrap_or(rough);
        let first = (self.least / step).ceil() as i64;
        (first..).map(|number| number as f64 * step).take_while(|value| *value <= self.most).collect()
    }
}

impl Chart {
    pub(crate) fn svg(&self) -> String {
        let mut text = String::new();
        // A text never refuses to grow.
        let _ = self.draw(&mut text);
        text
    }

    fn axes(&self) -> (Axis, Axis) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let least = points().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
        let most = points().map(|(x, _)| *x).fold(f64::NEG_INFINITY, f64::max);
        let (least, most) = if least < most { (least, most) } else { (0.0, most.max(1.0)) };
        let highest = points().map(|(_, y)| *y).chain(self.aim).fold(1.0, f64::max) * 1.1;
        let lowest = if self.is_logarithmic { LEAST } else { 0.0 };
        let x = Axis { least, most, from: LEFT, to: WIDTH - RIGHT, is_logarithmic: false };
        let y = Axis { least: lowest, most: highest, from: HEIGHT - BOTTOM, to: TOP, is_logarithmic: self.is_logarithmic };
        (x, y)
    }

    fn draw(&self, out: &mut String) -> fmt::Result {
        let ((x, y), (right, bottom)) = (self.axes(), (WIDTH - RIGHT, HEIGHT - BOTTOM));
        writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">"#
        )?;
        writeln!(out, r##"<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>"##)?;
        writeln!(out, r#"<text x="{LEFT}" y="24" font-size="16">{}</text>"#, self.title)?;
        writeln!(out, r#"<text x="{right}" y="{}" text-anchor="end">{}</text>"#, HEIGHT - 12.0, self.x)?;
        writeln!(out, r#"<text x="10" y="{}">{}</text>"#, TOP - 4.0, self.y)?;
        for value in x.ticks() {
            let at = x.place(value);
            writeln!(out, r##"<path d="M{at:.1} {TOP}V{bottom}" stroke="#eeeeee"/>"##)?;
            writeln!(out, r#"<text x="{at:.1}" y="{}" text-anchor="middle">{}</text>"#, bottom + 18.0, short(value))?;
        }
        for value in y.ticks() {
            let at = y.place(value);
            writeln!(out, r##"<path d="M{LEFT} {at:.1}H{right}" stroke="#eeeeee"/>"##)?;
            writeln!(out, r#"<text x="{}" y="{:.1}" text-anchor="end">{}</text>"#, LEFT - 6.0, at + 4.0, short(value))?;
        }
        if let Some(aim) = self.aim {
            writeln!(out, r##"<path d="M{LEFT} {:.1}H{right}" stroke="#000000" stroke-dasharray="4"/>"##, y.place(aim))?;
        }
        for (number, (line, colour)) in self.lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let points = line.points.iter().map(|(at, value)| format!("{:.1},{:.1}", x.place(*at), y.place(*value)));
            let points = points.collect::<Vec<_>>().join(" ");
            writeln!(out, r#"<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>"#)?;
            let at = TOP + 16.0 * number as f64;
            writeln!(out, r#"<path d="M{} {at}h16" stroke="{colour}" stroke-width="2"/>"#, right + 8.0)?;
            writeln!(out, r#"<text x="{}" y="{}">{}</text>"#, right + 28.0, at + 4.0, line.name)?;
        }
        writeln!(out, "</svg>")
    }
}

/// A number in few characters.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e4 => format!("{}k", value / 1e3),
        // The steps of an axis are sums of fractions.
        value => format!("{}", (value * 100.0).round() / 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_round_ticks_and_places_them() {
        let axis = |least, most, is_logarithmic| Axis { least, most, from: 0.0, to: 100.0, is_logarithmic };
        assert_eq!(axis(100.0, 430.0, false).ticks(), [100.0, 200.0, 300.0, 400.0]);
        assert_eq!(axis(0.0, 0.9, false).ticks().len(), 5);
        let times = axis(0.1, 1_000.0, true);
        assert_eq!(
            times.ticks().iter().map(|value| times.place(*value).round()).collect::<Vec<_>>(),
            [0.0, 25.0, 50.0, 75.0, 100.0]
        );
        assert_eq!(times.place(0.0), 0.0, "below the least value");
    }

    #[test]
    fn a_chart_has_its_texts_and_a_line_for_each_name() {
        let line = |name: &str, points: &[(f64, f64)]| Line { name: name.to_owned(), points: points.to_vec() };
        let lines = vec![line("p50", &[(1.0, 2.0), (2.0, 0.0), (3.0, 9.0)]), line("one", &[(1.0, 1.0)]), line("none", &[])];
        for is_logarithmic in [true, false] {
            let svg = Chart { title: "Load", x: "rate", y: "ms", lines: lines.clone(), aim: Some(50.0), is_logarithmic }.svg();
            assert!(["Load", "rate", "ms", "p50", "one", "none"].iter().all(|text| svg.contains(&format!(">{text}<"))), "{svg}");
            assert_eq!(svg.matches("<polyline").count(), 3);
            assert!(svg.contains("points=\"70.0,") && !svg.contains("NaN") && !svg.contains("inf"));
        }
    }
}
