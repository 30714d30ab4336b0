//! Plots of outages: bytes delivered over time, and the time to the first byte.

use std::time::Duration;

use ::tests::outage::OutageOutcome;

use super::bounds::by_direction_max;
use crate::svg::{Labels, Line, Plot, bars, lines};

/// The length of the outages that are plotted. If there is none, the longest below the limit.
const DRAWN: Duration = Duration::from_secs(30);
/// Most lines in one plot.
const LINES_MAX: usize = 4;
/// The plotted directions: file name, words in the title, and name of the direction.
const DELIVERED: [(&str, &str, &str); 3] = [
    ("outage-exec", "exec (echo)", "exec to the caller"),
    ("outage-watch", "a watch with five events a second", "busy watch to the caller"),
    ("outage-download", "a download over 8 Mbit/s", "download to the caller"),
];

/// All plots of the scenario.
pub fn plots(outcomes: &[OutageOutcome], limit: Duration) -> Vec<Plot> {
    let lived = || outcomes.iter().filter(|outcome| outcome.plan.length < limit);
    let lengths = || lived().map(|outcome| outcome.plan.length);
    let length = lengths().find(|length| *length == DRAWN).or(lengths().max());
    let Some(length) = length else { return Vec::new() };
    let drawn: Vec<&OutageOutcome> =
        lived().filter(|outcome| outcome.plan.length == length).take(LINES_MAX).collect();
    let delivered = DELIVERED.map(|(file, what, direction)| {
        let drawn: Vec<Line> = drawn.iter().filter_map(|outcome| line(outcome, direction)).collect();
        let title = format!("Delivered of {what}, the link dark from 0 to {} s", length.as_secs());
        let labels = Labels { title: &title, x: "seconds since the link went dark", y: "KiB since then" };
        lines(file, labels, &drawn, false, false)
    });
    let below: Vec<OutageOutcome> = lived().cloned().collect();
    delivered.into_iter().chain([resumed(&below)]).collect()
}

fn line(outcome: &OutageOutcome, direction: &str) -> Option<Line> {
    let it = outcome.directions.iter().find(|it| it.name == direction)?;
    // From a second before the outage. Bytes that came earlier are subtracted.
    let floor = it.delivered.iter().rev().find(|(at, _)| *at < -1.0).map_or(0.0, |(_, bytes)| *bytes);
    let mut points = vec![(-1.0, 0.0)];
    for (at, bytes) in it.delivered.iter().filter(|(at, _)| *at >= -1.0) {
        // A step: the line stays level until the next bytes.
        let before = points.last().map_or(0.0, |(_, bytes)| *bytes);
        points.extend([(*at, before), (*at, (bytes - floor) / 1024.0)]);
    }
    let port = if outcome.plan.new_port { "new" } else { "same" };
    Some(Line { name: format!("trial {}, {port} port", outcome.plan.seed), points: thinned(points) })
}

// A plot needs no more points than it has pixel columns.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    const GAP: f64 = 0.02;
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for (at, point) in points.iter().enumerate() {
        let is_near = kept.last().is_some_and(|last| point.0 - last.0 < GAP);
        let next_is_near = points.get(at + 1).is_some_and(|next| next.0 - point.0 < GAP);
        if !(is_near && next_is_near) {
            kept.push(*point);
        }
    }
    kept
}

fn resumed(outcomes: &[OutageOutcome]) -> Plot {
    let all = by_direction_max(outcomes);
    let kinds: Vec<String> = all
        .first()
        .map(|(_, kinds)| kinds.iter().map(|(kind, _)| kind.clone()).collect())
        .unwrap_or_default();
    let drawn: Vec<(String, Vec<f64>)> = all
        .into_iter()
        .map(|(name, kinds)| {
            let heights = kinds.iter().map(|(_, max)| max.map_or(f64::NAN, |max| max.as_secs_f64()));
            (name.to_owned(), heights.collect())
        })
        .collect();
    let labels = Labels {
        title: "First byte after the link's return, longest of all trials",
        x: "how long the link was dark, and whether the agent then had a new source port",
        y: "seconds",
    };
    bars("outage-resumed", labels, &kinds, &drawn)
}
