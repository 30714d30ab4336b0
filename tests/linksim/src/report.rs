//! The report of a link, as JSON for programs and as a table for people.

use std::fmt;

use serde::Serialize;

use crate::nat::NatCounters;
use crate::pipe::Counters;

/// Everything that a link did since its start.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The seed of all chance.
    pub seed: u64,
    /// The time for which it has run, in seconds.
    pub seconds: f64,
    /// The time of its start, in nanoseconds of `CLOCK_MONOTONIC`.
    pub started_ns: u64,
    /// The times at which it was opened again after being dark, by schedule or command, in nanoseconds of
    /// `CLOCK_MONOTONIC`.
    pub openings_ns: Vec<u64>,
    /// The direction from A to B.
    pub a_to_b: DirectionReport,
    /// The direction from B to A.
    pub b_to_a: DirectionReport,
    /// The NAT, if there is one.
    pub nat: Option<NatCounters>,
}

/// Everything that one direction did since its start.
#[derive(Debug, Clone, Serialize)]
pub struct DirectionReport {
    /// The impairments that apply now, as `KEY=VALUE`.
    pub impairment: String,
    /// True if nothing passes at this time.
    pub is_dark: bool,
    /// Dropped by the kernel before this program could read them: it was too slow, or had too little of the
    /// processor.
    pub dropped_unread: u64,
    /// Counters of everything that happened so far.
    #[serde(flatten)]
    pub counters: Counters,
}

impl Report {
    /// The report as one line of JSON.
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = [&self.a_to_b, &self.b_to_a].map(rows);
        writeln!(formatter, "seed {}, {:.1} s", self.seed, self.seconds)?;
        writeln!(formatter, "a to b: {}\nb to a: {}", self.a_to_b.impairment, self.b_to_a.impairment)?;
        writeln!(formatter, "{:<20}{:>16}{:>16}", "", "a to b", "b to a")?;
        for ((name, a), (_, b)) in a.into_iter().zip(b) {
            // Counters of drops are left out while they are zero.
            if a + b > 0 || !name.starts_with("dropped") {
                writeln!(formatter, "{name:<20}{a:>16}{b:>16}")?;
            }
        }
        if let Some(NatCounters { mapped, expired, rebound }) = self.nat {
            writeln!(
                formatter,
                "NAT: {mapped} mappings made, {expired} expired, {rebound} forgotten on command"
            )?;
        }
        Ok(())
    }
}

fn rows(way: &DirectionReport) -> [(&'static str, u64); 16] {
    let Counters {
        packets_in,
        bytes_in,
        packets_out,
        bytes_out,
        dropped_dark,
        dropped_loss,
        dropped_burst,
        dropped_queue,
        dropped_mtu,
        dropped_udp,
        dropped_nat,
        dropped_device,
        duplicated,
        reordered,
        corrupted,
    } = way.counters;
    [
        ("packets in", packets_in),
        ("packets out", packets_out),
        ("bytes in", bytes_in),
        ("bytes out", bytes_out),
        ("duplicated", duplicated),
        ("reordered", reordered),
        ("corrupted", corrupted),
        ("dropped: dark", dropped_dark),
        ("dropped: loss", dropped_loss),
        ("dropped: burst", dropped_burst),
        ("dropped: queue", dropped_queue),
        ("dropped: mtu", dropped_mtu),
        ("dropped: udp-mtu", dropped_udp),
        ("dropped: no mapping", dropped_nat),
        ("dropped: device", dropped_device),
        ("dropped: unread", way.dropped_unread),
    ]
}

#[cfg(test)]
mod tests {
    use crate::link::{Link, LinkOptions};

    #[test]
    fn the_report_is_one_line_of_json_and_a_table() {
        let report = Link::new(LinkOptions::default()).unwrap().report();
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["a_to_b"]["packets_in"], 0);
        assert_eq!(json["b_to_a"]["impairment"], "nothing");
        assert!(!report.json().contains('\n'));
        assert!(report.to_string().contains("packets in") && !report.to_string().contains("dropped"));
    }
}
