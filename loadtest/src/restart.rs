//! `loadtest restart`: how soon idle agents are back after their server was killed and started again.

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use ::tests::fake_api::{Behaviour, FakeApi};
use ::tests::rig::{ApiServer as Written, Rig};
use clap::Args;
use daemon::metrics::links::Links;
use daemon::{Readiness, Scope};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::sleep;
use transport::Carrier;
use tunnel_agent::apiserver::{ApiServer, Limits};
use tunnel_agent::config::{ApiServerSource, Impersonation, Proxies, ServerAddress};
use tunnel_agent::dialer::{Dialer, Equipment, Named};
use tunnel_agent::forward::Forwarder;
use tunnel_agent::guard::Guard;
use tunnel_agent::streams::Streams;

use crate::agents::{Agent, issue};
use crate::progress::Progress;
use crate::report::{Heading, Report};
use crate::scrape::Gauges;
use crate::svg::{Line, Words, lines};
use crate::table::Table;

/// How soon all of a thousand idle agents have to be back.
const BACK_SECONDS_MAX: f64 = 10.0;
/// How long tunnels have held before the server is killed: longer than it takes an agent to trust one.
const HELD: Duration = Duration::from_secs(12);
/// How long all may take to come, or to come back.
const COME_MAX: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Agents that begin to dial in one go.
const BATCH: usize = 50;

/// Flags of `loadtest restart`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Flags {
    /// Agents, each with a certificate, a socket and a tunnel of its own; they dial as real ones do
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub agents: u32,

    /// How long the server stays away, round by round
    #[arg(long, value_name = "SECONDS,SECONDS", value_delimiter = ',', default_values_t = [1.0, 10.0, 40.0])]
    pub outages: Vec<f64>,
}

/// One death of the server.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Round {
    outage_seconds: f64,
    /// From the start of the new process until it was ready.
    ready_seconds: f64,
    /// From its readiness until half of the agents were back, 99 of 100, and all.
    half_seconds: f64,
    most_seconds: f64,
    all_seconds: f64,
    /// Seconds since readiness, and agents.
    #[serde(skip)]
    curve: Vec<(f64, f64)>,
}

/// Measures.
///
/// # Errors
/// Any that stands in the way of a report.
pub async fn run(flags: &Flags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let heading = Heading::new("restart", seed, flags)?;
    let progress = Progress::new();
    let mut rig = Rig::start_logging("info", "").await;
    progress.say(&format!("issuing {} certificates", flags.agents));
    let agents = issue(&rig, "idle", flags.agents, seed).await?;
    let scope = Scope::here();
    let fake = FakeApi::start().await?;
    fake.otherwise(Behaviour::json("{}"));
    let streams = streams(&rig, &fake, &scope)?;

    progress.say(&format!("{} agents dial", flags.agents));
    for batch in agents.chunks(BATCH) {
        batch.iter().for_each(|agent| dialer(agent, &rig, &streams, &scope).run());
        sleep(LOOK_EVERY).await;
    }
    curve(&rig, flags.agents, Instant::now()).await?;
    let mut rounds = Vec::new();
    for outage in &flags.outages {
        progress.say(&format!("{} agents hold their tunnels", flags.agents));
        sleep(HELD).await;
        rig.kill_server();
        progress.say(&format!("the server is away for {outage} s"));
        sleep(Duration::from_secs_f64(*outage)).await;
        let started = Instant::now();
        rig.start_server().await;
        let ready_seconds = started.elapsed().as_secs_f64();
        let curve = curve(&rig, flags.agents, Instant::now()).await?;
        let share = |share: f64| {
            let enough = f64::from(flags.agents) * share;
            curve.iter().find(|(_, back)| *back >= enough).map_or(f64::NAN, |(at, _)| *at)
        };
        rounds.push(Round {
            outage_seconds: *outage,
            ready_seconds,
            half_seconds: share(0.5),
            most_seconds: share(0.99),
            all_seconds: share(1.0),
            curve,
        });
    }
    scope.abort();
    report(heading, &rounds)
}

/// How many agents the server counts, from now until it counts all of them.
async fn curve(rig: &Rig, agents: u32, from: Instant) -> io::Result<Vec<(f64, f64)>> {
    let mut curve = Vec::new();
    loop {
        let gauges = Gauges::parse(&rig.metrics(rig.probes()).await);
        let connected = gauges.sum("tombolo_server_agents_connected");
        curve.push((from.elapsed().as_secs_f64(), connected));
        if connected >= f64::from(agents) {
            return Ok(curve);
        }
        if from.elapsed() >= COME_MAX {
            let said = format!("the server counts {connected} agents and not {agents}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, said));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// One set of streams for all: nobody asks for anything.
fn streams(rig: &Rig, fake: &FakeApi, scope: &Scope) -> Result<Streams, Box<dyn Error>> {
    let Written::Kubeconfig(path) = Written::of_fake(rig, fake) else {
        return Err("a fake has a kubeconfig".into());
    };
    let source = ApiServerSource::Kubeconfig { path, context: None };
    let api_server = ApiServer::new(source, Limits::default(), scope)?;
    let nobody = Impersonation { users: Vec::new(), groups: Vec::new(), system_names: Vec::new() };
    Ok(Streams::new(Guard::new(&nobody), Forwarder::new(api_server, scope.clone())))
}

fn dialer(agent: &Agent, rig: &Rig, streams: &Streams, scope: &Scope) -> Dialer {
    let address = ServerAddress { host: rig.gateway().ip().to_string(), port: rig.gateway().port() };
    let server = Named { certificate_name: address.host.clone(), address };
    let (id, boot, keys, tls) = agent.parts();
    let equipment = Equipment {
        agent: id,
        boot,
        keys,
        tls,
        carriers: vec![Carrier::Quic, Carrier::Http2],
        proxies: Proxies::default(),
        outage_limit: None,
        streams: streams.clone(),
        endpoints: watch::channel(Vec::new()).1,
        readiness: Readiness::new(),
        links: Links::new("restart", "server"),
    };
    Dialer::new(vec![server], equipment, scope.clone())
}

fn report(heading: Heading, rounds: &[Round]) -> Result<Report, Box<dyn Error>> {
    let mut table = Table::new(&["away, s", "ready, s", "half back, s", "99 of 100, s", "all, s"]);
    for round in rounds {
        let seconds = [
            round.outage_seconds,
            round.ready_seconds,
            round.half_seconds,
            round.most_seconds,
            round.all_seconds,
        ];
        table.row(seconds.iter().map(|seconds| format!("{seconds:.1}")).collect());
    }
    let worst = rounds.iter().map(|round| round.all_seconds).fold(0.0, f64::max);
    let missed = (worst > BACK_SECONDS_MAX).then(|| {
        format!("all agents were back {worst:.1} s after the server was ready, not within {BACK_SECONDS_MAX}")
    });
    let words = Words { title: "Agents that are back", x: "seconds since the server is ready", y: "agents" };
    let all: Vec<Line> = rounds
        .iter()
        .map(|round| Line {
            name: format!("away for {} s", round.outage_seconds),
            points: round.curve.clone(),
        })
        .collect();
    let plot = lines("restart-back", words, &all, false, false);
    Ok(Report::new(heading, &rounds)?
        .table("idle agents after their server's death", table)
        .missed(missed)
        .plots([plot]))
}
