//! `loadtest keystrokes`: the echo time of typed lines, alone and beside bulk transfers through the same
//! tunnel.

use std::error::Error;
use std::fmt;

use ::tests::carrier::Carrier;
use clap::Args;
use serde::Serialize;

use crate::comparison::cell;
use crate::link::path;
use crate::order::Order;
use crate::progress::Progress;
use crate::report::{Heading, Report};
use crate::spread::Spread;
use crate::table::Table;

mod bulk;
mod round;
mod shells;

/// Longest p99 of a keystroke beside bulk, over QUIC: this many round trips plus this many milliseconds.
const ROUND_TRIPS_MAX: f64 = 1.2;
const BEYOND_MS_MAX: f64 = 20.0;

/// The flags of `loadtest keystrokes`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeystrokesFlags {
    #[command(flatten)]
    #[serde(flatten)]
    pub link: path::LinkFlags,

    /// Shells in which a line is typed ten times a second
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub shells: u32,

    /// Transfers at once in each direction in which there is bulk
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub transfers: u32,

    /// The carriers of the tunnel, one after the other
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', default_values_t = ["quic".to_owned(), "http2".to_owned()], value_parser = ["quic", "http2"])]
    pub carriers: Vec<String>,

    /// Rounds; each has a turn alone and one beside each kind of bulk, in a random order
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,

    /// Time for which a turn is measured
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: u32,

    /// Time for which the bulk transfers run before that
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub warm_up: u32,
}

/// The bulk transfers beside the shells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum BulkTraffic {
    Nothing,
    /// Downloads out of the cluster.
    Out,
    In,
    Both,
}

const BULK_TRAFFIC: [BulkTraffic; 4] =
    [BulkTraffic::Nothing, BulkTraffic::Out, BulkTraffic::In, BulkTraffic::Both];

/// The figures of one turn.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct KeystrokeTurn {
    lines: usize,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    out_mbit: f64,
    in_mbit: f64,
}

/// All turns over one carrier beside one kind of bulk, one for each round.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct KeystrokeRow {
    carrier: Carrier,
    #[serde(rename = "beside")]
    bulk: BulkTraffic,
    turns: Vec<KeystrokeTurn>,
    /// p99 as a multiple of p99 alone in the same round.
    p99_to_alone: Option<Spread>,
}

/// Runs the scenario, and reports its figures.
///
/// # Errors
/// Every error that prevents a report. The scenario needs root, or a user namespace of its own.
pub async fn run(flags: &KeystrokesFlags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let programs = ["linksim", "tunnel-server", "tunnel-agent", "tombolo"];
    let heading = Heading::of_programs("keystrokes", seed, flags, &programs)?;
    let progress = Progress::new();
    let mut order = Order::new(seed);
    let mut rows = Vec::new();
    for carrier in flags.carriers.iter().filter_map(|name| Carrier::named(name)) {
        let mut turns: [Vec<KeystrokeTurn>; BULK_TRAFFIC.len()] = Default::default();
        for round in 0..flags.rounds {
            progress.show(&format!("{}: round {} of {}", carrier.as_str(), round + 1, flags.rounds));
            let order = order.draw(BULK_TRAFFIC.len());
            let impairments = flags.link.impairments(0.0, seed + u64::from(round));
            let drawn = order.iter().map(|&index| BULK_TRAFFIC[index]).collect();
            let of_round = round::run(impairments, carrier, flags.clone(), drawn).await?;
            for (index, turn) in order.into_iter().zip(of_round) {
                turns[index].push(turn);
            }
        }
        rows.extend(of_carrier(carrier, turns));
    }
    let missed: Vec<String> = rows.iter().filter_map(|row| row.missed(flags)).collect();
    let report = Report::new(heading, &rows)?;
    Ok(report.table(title(flags), table(&rows)).missed(missed))
}

fn of_carrier(carrier: Carrier, turns: [Vec<KeystrokeTurn>; BULK_TRAFFIC.len()]) -> Vec<KeystrokeRow> {
    let alone = turns[0].clone();
    let rows = BULK_TRAFFIC.into_iter().zip(turns).map(|(bulk, turns)| {
        let ratios = turns.iter().zip(&alone).map(|(turn, alone)| turn.p99_ms / alone.p99_ms);
        KeystrokeRow { carrier, bulk, p99_to_alone: Spread::of(ratios), turns }
    });
    rows.collect()
}

impl KeystrokeRow {
    fn spread(&self, figure: impl Fn(&KeystrokeTurn) -> f64) -> Option<Spread> {
        Spread::of(self.turns.iter().map(figure))
    }

    /// The missed bound, if any. TCP has no bound, because the kernel's congestion control decides how much
    /// is queued in the link.
    fn missed(&self, flags: &KeystrokesFlags) -> Option<String> {
        let most = ROUND_TRIPS_MAX * f64::from(flags.link.round_trip) + BEYOND_MS_MAX;
        let p99 = self.spread(|turn| turn.p99_ms)?.median;
        (self.carrier == Carrier::Quic && p99 > most)
            .then(|| format!("over QUIC, beside {}, p99 is {p99:.0} ms, more than {most:.0}", self.bulk))
    }
}

fn title(flags: &KeystrokesFlags) -> String {
    let KeystrokesFlags { shells, link: path::LinkFlags { rate, round_trip, .. }, transfers, .. } = flags;
    format!(
        "{shells} shells over {rate} Mbit/s and {round_trip} ms; transfers in each direction with bulk: {transfers}"
    )
}

fn table(rows: &[KeystrokeRow]) -> Table {
    let mut table = Table::new(&[
        "tunnel over",
        "beside",
        "p50 ms",
        "p99 ms",
        "longest ms",
        "p99 x alone",
        "out Mbit/s",
        "in Mbit/s",
    ]);
    for row in rows {
        table.row(vec![
            row.carrier.as_str().to_owned(),
            row.bulk.to_string(),
            cell(row.spread(|turn| turn.p50_ms), 1),
            cell(row.spread(|turn| turn.p99_ms), 1),
            cell(row.spread(|turn| turn.max_ms), 1),
            cell(row.p99_to_alone, 2),
            cell(row.spread(|turn| turn.out_mbit), 1),
            cell(row.spread(|turn| turn.in_mbit), 1),
        ]);
    }
    table
}

impl BulkTraffic {
    fn is_out(self) -> bool {
        matches!(self, Self::Out | Self::Both)
    }

    fn is_in(self) -> bool {
        matches!(self, Self::In | Self::Both)
    }
}

impl fmt::Display for BulkTraffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Out => "bulk out",
            Self::In => "bulk in",
            Self::Both => "bulk out and in",
        })
    }
}
