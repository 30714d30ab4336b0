//! Plots as SVG, written by hand: two axes, lines or bars, a legend, and nothing that needs a browser's scripts.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 90.0;
/// Colours that people with colour blindness can tell apart: <https://jfly.uni-koeln.de/color/>.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// A plot with its file name.
#[derive(Debug, Clone)]
pub struct Plot {
    /// The file name without `.svg`.
    pub file: String,
    /// The SVG document of the plot.
    pub svg: String,
}

/// One line of a plot: points from left to right.
#[derive(Debug, Clone)]
pub struct Line {
    /// The name in the legend.
    pub name: String,
    /// The points from left to right.
    pub points: Vec<(f64, f64)>,
}

/// The title and the axis labels of a plot.
#[derive(Debug, Clone, Copy)]
pub struct Labels<'a> {
    /// The title above the plot.
    pub title: &'a str,
    /// The label below the x axis.
    pub x: &'a str,
    /// The label at the left of the y axis.
    pub y: &'a str,
}

/// A mapping from numbers to coordinates.
#[derive(Debug, Clone, Copy)]
struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
    from: f64,
    to: f64,
}

/// Draws a line plot. `log_x` and `log_y` make an axis logarithmic.
pub fn lines(file: &str, labels: Labels<'_>, lines: &[Line], log_x: bool, log_y: bool) -> Plot {
    let all = || lines.iter().flat_map(|line| &line.points);
    let x = Axis::over(all().map(|point| point.0), log_x, LEFT, WIDTH - RIGHT);
    let y = Axis::over(all().map(|point| point.1), log_y, HEIGHT - BOTTOM, TOP);
    let mut svg = frame(labels);
    ticks_y(&mut svg, y);
    for tick in x.ticks() {
        text(&mut svg, x.position(tick), HEIGHT - BOTTOM + 18.0, "middle", &number(tick));
    }
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let points: Vec<String> =
            line.points.iter().map(|&(a, b)| format!("{:.1},{:.1}", x.position(a), y.position(b))).collect();
        let _ = writeln!(
            svg,
            r#"<polyline fill="none" stroke="{colour}" stroke-width="2" points="{}"/>"#,
            points.join(" ")
        );
        if line.points.len() <= 20 {
            for &(a, b) in &line.points {
                let _ = writeln!(
                    svg,
                    r#"<circle cx="{:.1}" cy="{:.1}" r="3" fill="{colour}"/>"#,
                    x.position(a),
                    y.position(b)
                );
            }
        }
    }
    legend(&mut svg, lines.iter().map(|line| line.name.as_str()));
    Plot { file: file.to_owned(), svg: svg + "</svg>\n" }
}

/// Draws grouped bars. `groups` are the labels of the x axis, and each of `bars` has one height for each
/// group.
pub fn bars(file: &str, labels: Labels<'_>, groups: &[String], bars: &[(String, Vec<f64>)]) -> Plot {
    let heights = bars.iter().flat_map(|(_, heights)| heights.iter().copied());
    let y = Axis::over(heights.chain([0.0]), false, HEIGHT - BOTTOM, TOP);
    let mut svg = frame(labels);
    ticks_y(&mut svg, y);
    let room = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    let wide = room * 0.8 / bars.len().max(1) as f64;
    for (group, name) in groups.iter().enumerate() {
        let begin = LEFT + room * group as f64;
        text(&mut svg, begin + room / 2.0, HEIGHT - BOTTOM + 18.0, "middle", name);
        for (bar, ((_, heights), colour)) in bars.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let Some(&height) = heights.get(group) else { continue };
            let (top, left) = (y.position(height), begin + room * 0.1 + wide * bar as f64);
            let _ = writeln!(
                svg,
                r#"<rect x="{left:.1}" y="{top:.1}" width="{wide:.1}" height="{:.1}" fill="{colour}"/>"#,
                HEIGHT - BOTTOM - top
            );
            text(&mut svg, left + wide / 2.0, top - 4.0, "middle", &number(height));
        }
    }
    legend(&mut svg, bars.iter().map(|(name, _)| name.as_str()));
    Plot { file: file.to_owned(), svg: svg + "</svg>\n" }
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, is_log: bool, from: f64, to: f64) -> Self {
        let usable = values.filter(|value| value.is_finite() && (!is_log || *value > 0.0));
        let (low, high) = usable
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low <= high { (low, high) } else { (1.0, 10.0) };
        if is_log {
            let (low, high) = (10_f64.powf(low.log10().floor()), 10_f64.powf(high.log10().ceil()));
            return Self { low, high: if high > low { high } else { low * 10.0 }, is_log, from, to };
        }
        // Linear axes begin at zero, so that a small difference does not look large.
        let low = low.min(0.0);
        let high = if high > low { high * 1.08 } else { low + 1.0 };
        Self { low, high, is_log, from, to }
    }

    fn position(&self, value: f64) -> f64 {
        let share = if self.is_log {
            (value.max(self.low).log10() - self.low.log10()) / (self.high.log10() - self.low.log10())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.is_log {
            let mut ticks = vec![self.low];
            while ticks[ticks.len() - 1] * 9.99 < self.high {
                ticks.push(ticks[ticks.len() - 1] * 10.0);
            }
            return ticks;
        }
        let rough = (self.high - self.low) / 5.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        // Ticks are multiples of the step, also on an axis that begins below zero.
        let first = (self.low / step).ceil() * step;
        (0..=10).map(|tick| first + step * f64::from(tick)).take_while(|tick| *tick <= self.high).collect()
    }
}

fn frame(labels: Labels<'_>) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut svg, WIDTH / 2.0, 22.0, "middle", labels.title);
    text(&mut svg, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - BOTTOM + 38.0, "middle", labels.x);
    let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
    let _ = writeln!(
        svg,
        r#"<text x="18" y="{middle}" text-anchor="middle" transform="rotate(-90 18 {middle})">{}</text>"#,
        escaped(labels.y)
    );
    svg
}

fn ticks_y(svg: &mut String, y: Axis) {
    for tick in y.ticks() {
        let at = y.position(tick);
        let _ = writeln!(
            svg,
            r##"<line x1="{LEFT}" y1="{at:.1}" x2="{:.1}" y2="{at:.1}" stroke="#ddd"/>"##,
            WIDTH - RIGHT
        );
        text(svg, LEFT - 6.0, at + 4.0, "end", &number(tick));
    }
}

fn legend<'a>(svg: &mut String, names: impl Iterator<Item = &'a str>) {
    let mut left = LEFT;
    for (name, colour) in names.zip(COLOURS.iter().cycle()) {
        let top = HEIGHT - 22.0;
        let _ = writeln!(
            svg,
            r#"<rect x="{left:.1}" y="{:.1}" width="12" height="12" fill="{colour}"/>"#,
            top - 10.0
        );
        text(svg, left + 18.0, top, "start", name);
        // The approximate width of the text, and a gap.
        left += 40.0 + 7.0 * name.chars().count() as f64;
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#, escaped(text));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        large if large >= 10_000.0 => format!("{:.0}k", value / 1000.0),
        whole if whole >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        tens if tens >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}").trim_end_matches('0').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: Labels<'_> = Labels { title: "a < b", x: "x", y: "y" };

    #[test]
    fn every_line_and_every_bar_is_drawn_and_words_are_escaped() {
        let line = |name: &str| Line { name: name.to_owned(), points: vec![(1.0, 2.0), (10.0, 30.0)] };
        let plot = lines("f", LABELS, &[line("one"), line("two")], true, true);
        assert_eq!(plot.svg.matches("<polyline").count(), 2);
        assert!(plot.svg.contains("a &lt; b"));
        let heights = [("one".to_owned(), vec![1.0, 2.0]), ("two".to_owned(), vec![3.0, 4.0])];
        let plot = bars("f", LABELS, &["a".to_owned(), "b".to_owned()], &heights);
        // The background, two marks in the legend, and the bars.
        assert_eq!(plot.svg.matches("<rect").count(), 1 + 2 + 4);
    }

    #[test]
    fn an_axis_keeps_its_ends_and_powers_of_ten_are_evenly_apart() {
        let axis = Axis::over([1.0, 1000.0].into_iter(), true, 0.0, 300.0);
        assert_eq!(
            [1.0, 10.0, 100.0, 1000.0].map(|value| axis.position(value).round()),
            [0.0, 100.0, 200.0, 300.0]
        );
        assert_eq!(axis.ticks().len(), 4);
    }

    #[test]
    fn ticks_are_round_on_an_axis_that_begins_below_zero() {
        assert_eq!(Axis::over([-2.9, 16.0].into_iter(), false, 0.0, 1.0).ticks(), [0.0, 5.0, 10.0, 15.0]);
    }

    #[test]
    fn a_plot_without_points_is_valid() {
        assert!(!lines("f", LABELS, &[], false, true).svg.contains("NaN"));
        assert!(!bars("f", LABELS, &[], &[]).svg.contains("NaN"));
    }
}
