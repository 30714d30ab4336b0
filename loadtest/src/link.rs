//! `loadtest link`: compares congestion controllers and carriers on a link that loses packets.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use ::tests::carrier::Carrier;
use ::tests::scratch::Scratch;
use clap::Args;
use serde::Serialize;

use crate::comparison::cell;
use crate::link::path::{Impairments, Path};
use crate::link::quic::Controller;
use crate::order::Order;
use crate::progress::Progress;
use crate::report::{Heading, Report};
use crate::spread::Spread;
use crate::table::Table;

pub mod path;
mod quic;
mod small_requests;
mod tcp;
mod tunnel;

/// The flags of `loadtest link`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkScenarioFlags {
    /// Loss rates of the link in both directions; each packet is lost independently
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',', default_values_t = [0.0, 1.0, 5.0], value_parser = percent)]
    pub loss: Vec<f64>,

    #[command(flatten)]
    #[serde(flatten)]
    pub link: path::LinkFlags,

    /// Rounds; each has one turn of every controller at every loss rate
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,

    /// Time for which a turn is measured
    #[arg(long, value_name = "SECONDS", default_value_t = 6.0, value_parser = seconds)]
    pub seconds: f64,

    /// Flow-control window of a QUIC stream, which also limits goodput under loss, because bytes that are
    /// lost twice block it
    #[arg(long, value_name = "BYTES", default_value_t = transport::STREAM_WINDOW_BYTES)]
    pub stream_window: u32,

    /// Time for which the transfer runs before that
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    pub warm_up: f64,
}

/// The sender of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum TrafficSender {
    Quic(Controller),
    /// The kernel's TCP without TLS, with the controller of this name. Bulk only, because a small request
    /// would need a connection of its own or wait behind the bulk.
    Tcp(&'static str),
    /// The real daemons with this carrier: a download through the gateway, and small GETs.
    Tunnel(Carrier),
}

const SENDERS: [TrafficSender; 7] = [
    TrafficSender::Quic(Controller::LossTolerant),
    TrafficSender::Quic(Controller::Cubic),
    TrafficSender::Quic(Controller::Bbr),
    TrafficSender::Tcp("cubic"),
    TrafficSender::Tcp("bbr"),
    TrafficSender::Tunnel(Carrier::Quic),
    TrafficSender::Tunnel(Carrier::Http2),
];

/// The figures of one turn.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct LinkTurn {
    goodput_mbit: f64,
    /// The latency of small requests beside the bulk transfer.
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    /// Small requests that got a response.
    answered: usize,
}

/// All turns of one sender at one loss rate.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LinkRow {
    loss_percent: f64,
    sender: String,
    turns: Vec<LinkTurn>,
}

/// Runs the scenario, and reports its figures.
///
/// # Errors
/// Every error that prevents a report. The scenario needs root, or a user namespace of its own.
pub async fn run(flags: &LinkScenarioFlags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let heading = Heading::of_programs("link", seed, flags, &["linksim"])?;
    let scratch = Scratch::new("tombolo-loadtest-")?;
    let progress = Progress::new();
    let mut order = Order::new(seed);
    let combinations: Vec<(f64, TrafficSender)> =
        flags.loss.iter().flat_map(|&loss| SENDERS.map(|sender| (loss, sender))).collect();
    let mut turns: Vec<Vec<LinkTurn>> = vec![Vec::new(); combinations.len()];
    for round in 0..flags.rounds {
        for index in order.draw(combinations.len()) {
            let (loss, sender) = combinations[index];
            progress.show(&format!("round {} of {}: {loss} % loss, {sender}", round + 1, flags.rounds));
            // The same seed for all senders of a round, so that they lose the same packets as far as they
            // send the same.
            let impairments = flags.link.impairments(loss, seed + u64::from(round));
            turns[index].push(turn(&scratch, impairments, sender, flags).await?);
        }
    }
    let rows: Vec<LinkRow> = combinations
        .iter()
        .zip(turns)
        .map(|((loss_percent, sender), turns)| LinkRow {
            loss_percent: *loss_percent,
            sender: sender.to_string(),
            turns,
        })
        .collect();
    let report = Report::new(heading, &rows)?;
    Ok(tables(&rows).into_iter().fold(report, |report, (title, table)| report.table(title, table)))
}

async fn turn(
    scratch: &Scratch,
    impairments: Impairments,
    sender: TrafficSender,
    flags: &LinkScenarioFlags,
) -> Result<LinkTurn, Box<dyn Error>> {
    let [warm_up, lasts] = [flags.warm_up, flags.seconds].map(Duration::from_secs_f64);
    let path = async || Path::create(scratch, &impairments).await;
    Ok(match sender {
        TrafficSender::Quic(controller) => {
            quic::turn(&path().await?, controller, flags.stream_window, warm_up, lasts).await?
        }
        TrafficSender::Tcp(controller) => tcp::turn(&path().await?, controller, warm_up, lasts).await?,
        TrafficSender::Tunnel(carrier) => tunnel::turn(impairments, carrier, warm_up, lasts).await?,
    })
}

/// One table for each loss rate.
fn tables(rows: &[LinkRow]) -> Vec<(String, Table)> {
    let of_loss = rows.chunk_by(|one, next| one.loss_percent.total_cmp(&next.loss_percent).is_eq());
    of_loss
        .map(|rows| {
            let mut table = Table::new(&["", "Mbit/s", "p50 ms", "p99 ms"]);
            for row in rows {
                let spread =
                    |figure: fn(&LinkTurn) -> Option<f64>| Spread::of(row.turns.iter().filter_map(figure));
                table.row(vec![
                    row.sender.clone(),
                    cell(spread(|turn| Some(turn.goodput_mbit)), 1),
                    cell(spread(|turn| turn.p50_ms), 0),
                    cell(spread(|turn| turn.p99_ms), 0),
                ]);
            }
            (format!("{} % loss: a bulk transfer, and small requests beside it", rows[0].loss_percent), table)
        })
        .collect()
}

impl fmt::Display for TrafficSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quic(Controller::LossTolerant) => f.write_str("QUIC, ours"),
            Self::Quic(Controller::Cubic) => f.write_str("QUIC, quinn's CUBIC"),
            Self::Quic(Controller::Bbr) => f.write_str("QUIC, quinn's BBR"),
            Self::Tcp(controller) => write!(f, "TCP, the kernel's {controller}"),
            Self::Tunnel(carrier) => write!(f, "tunnel over {}", carrier.as_str()),
        }
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let usage = || "write 0 to 50, such as 1.5".to_owned();
    text.parse().ok().filter(|percent| (0.0..=50.0).contains(percent)).ok_or_else(usage)
}

fn seconds(text: &str) -> Result<f64, String> {
    let usage = || "write 0.1 to 600".to_owned();
    text.parse().ok().filter(|seconds| (0.1..=600.0).contains(seconds)).ok_or_else(usage)
}
