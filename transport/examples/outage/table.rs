//! Renders the measurements as a Markdown table.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::load::{After, Load};

/// Outage, arm, kind and direction.
type Row = (Duration, &'static str, &'static str, &'static str);

#[derive(Default)]
pub(crate) struct Table(BTreeMap<Row, Vec<(Option<Duration>, After)>>);

const HEAD: &str = "\
| outage s | what | load | to | trials | median s | max s | never | round trip 1 s later, max | goodput of 5 s, median, min | packets/s into the dark, max |
|--|--|--|--|--|--|--|--|--|--|--|
";

impl Table {
    pub(crate) fn enter(&mut self, outage: Duration, load: &Load) {
        for (direction, first) in load.firsts() {
            let row = (outage, load.arm(), load.kind(), direction);
            self.0.entry(row).or_default().push((first, load.after()));
        }
    }

    pub(crate) fn render(&self) -> String {
        let mut text = HEAD.to_owned();
        for ((outage, arm, kind, direction), trials) in &self.0 {
            let mut came: Vec<Duration> = trials.iter().filter_map(|(first, _)| *first).collect();
            came.sort_unstable();
            let never = trials.len() - came.len();
            let median = came.get(came.len() / 2).map_or_else(|| "-".to_owned(), shown);
            let max = came.last().map_or_else(|| "-".to_owned(), shown);
            let round_trip = trials.iter().map(|(_, after)| after.round_trip).max().unwrap_or_default();
            let mut goodput: Vec<f64> = trials.iter().map(|(_, after)| after.goodput).collect();
            goodput.sort_unstable_by(f64::total_cmp);
            let dark = trials.iter().map(|(_, after)| after.into_the_dark).fold(0.0, f64::max);
            let _ = writeln!(
                text,
                "| {} | {arm} | {kind} | {direction} | {} | {median} | {max} | {never} | {} | {:.2}, {:.2} | {dark:.1} |",
                outage.as_secs(),
                trials.len(),
                shown(&round_trip),
                goodput[goodput.len() / 2],
                goodput[0],
            );
        }
        text
    }
}

fn shown(duration: &Duration) -> String {
    format!("{:.2}", duration.as_secs_f64())
}
