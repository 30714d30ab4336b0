//! Compares routes: medians and ranges over the rounds, and what each route adds to the first.

use serde::Serialize;

use crate::rounds::{Figures, Latency, Load, Measurements};
use crate::spread::Spread;
use crate::svg::{Labels, Line, Plot, bars, lines};
use crate::table::Table;

/// The figures of one route under one load.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComparisonRow {
    load: Load,
    #[serde(rename = "way")]
    route: String,
    /// Requests per second, or millions of bytes per second.
    rate: Option<Spread>,
    /// The rate divided by that of the first route in the same round.
    rate_to_first: Option<Spread>,
    p50_ms: Option<Spread>,
    p99_ms: Option<Spread>,
    /// Milliseconds more than the first route in the same round.
    p50_added_ms: Option<Spread>,
    p99_added_ms: Option<Spread>,
    /// CPU time in microseconds per request, or in seconds per 10^9 bytes; 0 if there is no such process.
    server_cpu: Option<Spread>,
    agent_cpu: Option<Spread>,
    target_cpu: Option<Spread>,
    figures: Vec<Figures>,
}

/// One row for each route under each load.
pub fn rows(measurements: &Measurements) -> Vec<ComparisonRow> {
    let all = (0..measurements.loads.len())
        .flat_map(|load| (0..measurements.routes.len()).map(move |route| (load, route)));
    all.map(|(load, route)| ComparisonRow::new(measurements, load, route)).collect()
}

/// One table for each load, with its title.
pub fn tables(rows: &[ComparisonRow]) -> Vec<(String, Table)> {
    rows.chunk_by(|one, next| one.load == next.load)
        .map(|rows| (rows[0].load.description(), table(rows)))
        .collect()
}

/// Plots of latency and rate over the number of callers, and of bulk throughput as bars.
pub fn plots(name: &str, rows: &[ComparisonRow]) -> Vec<Plot> {
    let mut plots = Vec::new();
    let small: Vec<&ComparisonRow> =
        rows.iter().filter(|row| matches!(row.load, Load::Small { .. })).collect();
    if !small.is_empty() {
        let labels =
            Labels { title: "Latency of a small GET, median of rounds", x: "callers at once", y: "ms" };
        plots.push(lines(&format!("{name}-latency"), labels, &latency_lines(&small), true, true));
        let labels =
            Labels { title: "Small GETs, median of rounds", x: "callers at once", y: "answers a second" };
        plots.push(lines(
            &format!("{name}-rate"),
            labels,
            &lines_of(&small, "", |row| row.rate),
            true,
            false,
        ));
    }
    let bulk: Vec<&ComparisonRow> = rows.iter().filter(|row| row.load.is_bulk()).collect();
    if !bulk.is_empty() {
        let mut groups: Vec<String> = bulk.iter().map(|row| row.load.description()).collect();
        groups.dedup();
        let heights = by_route(&bulk, |row| row.rate.map_or(0.0, |rate| rate.median));
        let labels = Labels { title: "Bulk, median of rounds", x: "", y: "MB/s" };
        plots.push(bars(&format!("{name}-bulk"), labels, &groups, &heights));
    }
    plots
}

impl ComparisonRow {
    fn new(measurements: &Measurements, load: usize, route: usize) -> Self {
        let of_route = || measurements.rounds.iter().map(|round| round[load][route]);
        let spread =
            |figure: fn(&Figures) -> Option<f64>| Spread::of(of_route().filter_map(|one| figure(&one)));
        let beside = |figure: fn(&Figures) -> Option<f64>, compare| {
            measurements.compared((load, route), (load, 0), figure, compare)
        };
        let p50 = |figures: &Figures| figures.latency.map(|Latency { p50_ms, .. }| p50_ms);
        let p99 = |figures: &Figures| figures.latency.map(|Latency { p99_ms, .. }| p99_ms);
        Self {
            load: measurements.loads[load],
            route: measurements.routes[route].clone(),
            rate: spread(|figures| Some(figures.rate)),
            rate_to_first: beside(|figures| Some(figures.rate), |one, first| one / first),
            p50_ms: spread(p50),
            p99_ms: spread(p99),
            p50_added_ms: beside(p50, |one, first| one - first),
            p99_added_ms: beside(p99, |one, first| one - first),
            server_cpu: spread(|figures| Some(figures.server_cpu)),
            agent_cpu: spread(|figures| Some(figures.agent_cpu)),
            target_cpu: spread(|figures| Some(figures.target_cpu)),
            figures: of_route().collect(),
        }
    }
}

/// Formats the rows of one load.
fn table(rows: &[ComparisonRow]) -> Table {
    let is_bulk = rows[0].load.is_bulk();
    let mut table = if is_bulk {
        Table::new(&["", "MB/s", "x first", "CPU s/GB: server", "agent", "target"])
    } else {
        Table::new(&[
            "",
            "per s",
            "x first",
            "CPU us each: server",
            "agent",
            "target",
            "p50 ms",
            "p99 ms",
            "p50 + ms",
            "p99 + ms",
        ])
    };
    let cpu_digits = if is_bulk { 2 } else { 0 };
    for row in rows {
        let mut cells = vec![
            row.route.clone(),
            cell(row.rate, 0),
            cell(row.rate_to_first, 2),
            cell(row.server_cpu, cpu_digits),
            cell(row.agent_cpu, cpu_digits),
            cell(row.target_cpu, cpu_digits),
        ];
        if !is_bulk {
            let latencies = [row.p50_ms, row.p99_ms, row.p50_added_ms, row.p99_added_ms];
            cells.extend(latencies.map(|latency| cell(latency, 2)));
        }
        table.row(cells);
    }
    table
}

/// Formats a median with the lowest and the highest value.
pub fn cell(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |Spread { median, min, max }| format!("{median:.digits$} ({min:.digits$}-{max:.digits$})"),
    )
}

fn latency_lines(rows: &[&ComparisonRow]) -> Vec<Line> {
    let mut lines = lines_of(rows, " p50", |row| row.p50_ms);
    lines.extend(lines_of(rows, " p99", |row| row.p99_ms));
    lines
}

/// One line for each route, over the number of callers.
fn lines_of(
    rows: &[&ComparisonRow],
    suffix: &str,
    figure: fn(&ComparisonRow) -> Option<Spread>,
) -> Vec<Line> {
    let points = by_route(rows, |row| {
        let Load::Small { callers } = row.load else { return (0.0, 0.0) };
        (f64::from(callers), figure(row).map_or(0.0, |spread| spread.median))
    });
    points.into_iter().map(|(route, points)| Line { name: format!("{route}{suffix}"), points }).collect()
}

/// The figures of each route's rows, in the order of the routes.
fn by_route<T>(rows: &[&ComparisonRow], figure: impl Fn(&ComparisonRow) -> T) -> Vec<(String, Vec<T>)> {
    let mut routes: Vec<(String, Vec<T>)> = Vec::new();
    for row in rows {
        match routes.iter_mut().find(|(route, _)| *route == row.route) {
            Some((_, figures)) => figures.push(figure(row)),
            None => routes.push((row.route.clone(), vec![figure(row)])),
        }
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_each_round() {
        let figures = |rate: f64| {
            let ms = 1000.0 / rate;
            let latency = Latency { p50_ms: ms, p90_ms: ms, p99_ms: ms, p999_ms: ms };
            Figures {
                rate,
                latency: Some(latency),
                server_cpu: 0.0,
                agent_cpu: 0.0,
                target_cpu: 0.0,
                memory: None,
            }
        };
        let round = |slowness: f64| vec![vec![figures(100.0 / slowness), figures(50.0 / slowness)]];
        let measurements = Measurements {
            loads: vec![Load::Small { callers: 1 }],
            routes: vec!["direct".to_owned(), "tunnel".to_owned()],
            warm_up: round(5.0),
            rounds: vec![round(1.0), round(10.0), round(3.0)],
        };
        let row = ComparisonRow::new(&measurements, 0, 1);
        assert_eq!(row.rate_to_first, Some(Spread { median: 0.5, min: 0.5, max: 0.5 }));
        assert_eq!(row.p50_added_ms.map(|added| added.median.round()), Some(30.0));
        assert_eq!(plots("x", &rows(&measurements)).len(), 2);
    }
}
