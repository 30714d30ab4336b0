//! The figures as a table.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::load::Load;

/// Outage, arm, kind and direction.
type Row = (Duration, &'static str, &'static str, &'static str);

#[derive(Default)]
pub(crate) struct Table(BTreeMap<Row, Vec<Option<Duration>>>);

impl Table {
    pub(crate) fn enter(&mut self, outage: Duration, load: &Load) {
        for (direction, first) in load.firsts() {
            self.0.entry((outage, load.arm(), load.kind(), direction)).or_default().push(first);
        }
    }

    pub(crate) fn render(&self) -> String {
        let mut text = String::from(
            "| outage s | what | load | to | trials | median s | max s | never |\n|--|--|--|--|--|--|--|--|\n",
        );
        for ((outage, arm, kind, direction), firsts) in &self.0 {
            let mut came: Vec<Duration> = firsts.iter().flatten().copied().collect();
            came.sort_unstable();
            let (never, trials) = (firsts.len() - came.len(), firsts.len());
            let median = came.get(came.len() / 2).map_or_else(|| "-".to_owned(), shown);
            let max = came.last().map_or_else(|| "-".to_owned(), shown);
            let outage = outage.as_secs();
            let _ = writeln!(
                text,
                "| {outage} | {arm} | {kind} | {direction} | {trials} | {median} | {max} | {never} |"
            );
        }
        text
    }
}

fn shown(duration: &Duration) -> String {
    format!("{:.2}", duration.as_secs_f64())
}
