//! `loadtest restart`: how soon agents are back after their server was killed and started again, idle ones and such as hold
//! streams.

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use ::tests::caller::{Http2Caller, read_to_end};
use ::tests::fake_api::{Answer, Behaviour, FakeApi, WatchFeed};
use ::tests::rig::{ApiServer as RigApiServer, Rig};
use clap::Args;
use daemon::metrics::links::Links;
use daemon::{Readiness, Scope};
use proto::AllowList;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{interval, sleep};
use transport::Carrier;
use tunnel_agent::apiserver::{ApiServer, Limits};
use tunnel_agent::config::{self, ApiServerSource, Proxies, ServerAddress};
use tunnel_agent::dialer::{ControlPlane, Dialer, Equipment, Named};
use tunnel_agent::forward::{Forwarder, Turns};
use tunnel_agent::guard::Guard;
use tunnel_agent::guard::services::Services;
use tunnel_agent::guard::targets::Targets;
use tunnel_agent::relay::Relay;
use tunnel_agent::streams::Streams;

use crate::agents::{Agent, issue};
use crate::progress::Progress;
use crate::report::{Heading, Report};
use crate::scrape::Gauges;
use crate::svg::{Labels, Line, lines};
use crate::table::Table;

/// How soon all of a thousand idle agents have to be back.
const BACK_SECONDS_MAX: f64 = 10.0;
/// How soon agents have to be back that hold streams: what is on the way there meets the new process at once.
const HOLDING_BACK_SECONDS_MAX: f64 = 3.0;
/// The clusters of both, each with a number.
const IDLE: &str = "idle";
const HOLDING: &str = "holding";
/// What each of the latter holds: a watch that brings an event so often, and a download of so many bytes, a piece at a time.
const EVENT_EVERY: Duration = Duration::from_millis(250);
const DOWNLOAD_BYTES: usize = 64 * 1024 * 1024;
const PIECE_BYTES: usize = 64 * 1024;
const PIECE_EVERY: Duration = Duration::from_millis(100);
/// How long tunnels have held before the server is killed: longer than it takes an agent to trust one.
const HELD: Duration = Duration::from_secs(12);
/// How long all may take to come, or to come back.
const COME_MAX: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Agents that begin to dial in one go.
const BATCH: usize = 50;

/// RestartFlags of `loadtest restart`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartFlags {
    /// Agents, each with a certificate, a socket and a tunnel of its own; they dial as real ones do
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub agents: u32,

    /// Further agents, each of which holds a watch and a download when the server is killed
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub holding: u32,

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
    /// From its readiness until half of the idle agents were back, 99 of 100, and all.
    half_seconds: f64,
    most_seconds: f64,
    all_seconds: f64,
    /// Until all were back that held streams; absent without any.
    holding_seconds: Option<f64>,
    /// Seconds since readiness, and idle agents.
    #[serde(skip)]
    curve: Vec<(f64, f64)>,
}

/// Seconds since an instant, and how many agents were there: the idle ones, and those that hold streams.
struct ReconnectCurves {
    idle: Vec<(f64, f64)>,
    holding: Vec<(f64, f64)>,
}

/// Measures.
///
/// # Errors
/// Any that stands in the way of a report.
pub async fn run(flags: &RestartFlags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let heading = Heading::new("restart", seed, flags)?;
    let progress = Progress::new();
    let mut rig = Rig::start_logging("info", "").await;
    progress.say(&format!("issuing {} certificates", flags.agents + flags.holding));
    let mut agents = issue(&rig, IDLE, flags.agents, seed).await?;
    agents.extend(issue(&rig, HOLDING, flags.holding, !seed).await?);
    let scope = Scope::here();
    let fake = FakeApi::start().await?;
    fake.otherwise(Behaviour::json("{}"));
    let events = serve_streams(&fake);
    let streams = streams(&rig, &fake, &scope)?;

    progress.say(&format!("{} agents dial", agents.len()));
    for batch in agents.chunks(BATCH) {
        batch.iter().for_each(|agent| dialer(agent, &rig, &streams, &scope).run());
        sleep(LOOK_EVERY).await;
    }
    returns(&rig, flags, Instant::now()).await?;
    let mut rounds = Vec::new();
    for outage in &flags.outages {
        progress.say(&format!("{} agents hold their tunnels", agents.len()));
        let held = hold(&rig, flags.holding).await?;
        sleep(HELD).await;
        rig.kill_server();
        // Callers have gone with it.
        held.join_all().await;
        progress.say(&format!("the server is away for {outage} s"));
        sleep(Duration::from_secs_f64(*outage)).await;
        let started = Instant::now();
        rig.start_server().await;
        let ready_seconds = started.elapsed().as_secs_f64();
        let ReconnectCurves { idle, holding } = returns(&rig, flags, Instant::now()).await?;
        let share = |share: f64| enough(&idle, f64::from(flags.agents) * share);
        rounds.push(Round {
            outage_seconds: *outage,
            ready_seconds,
            half_seconds: share(0.5),
            most_seconds: share(0.99),
            all_seconds: share(1.0),
            holding_seconds: (flags.holding > 0).then(|| enough(&holding, f64::from(flags.holding))),
            curve: idle,
        });
    }
    events.abort();
    scope.abort();
    report(heading, &rounds)
}

/// How many agents the server counts, from now until it counts all of them.
async fn returns(rig: &Rig, flags: &RestartFlags, from: Instant) -> io::Result<ReconnectCurves> {
    let mut returns = ReconnectCurves { idle: Vec::new(), holding: Vec::new() };
    loop {
        let gauges = Gauges::parse(&rig.metrics(rig.probes()).await);
        let at = from.elapsed().as_secs_f64();
        let counted = |of| gauges.sum_of("tombolo_server_agents_connected", &format!("cluster=\"{of}-"));
        let (idle, holding) = (counted(IDLE), counted(HOLDING));
        returns.idle.push((at, idle));
        returns.holding.push((at, holding));
        if idle >= f64::from(flags.agents) && holding >= f64::from(flags.holding) {
            return Ok(returns);
        }
        if from.elapsed() >= COME_MAX {
            let said = format!("the server counts {idle} and {holding} agents and not all");
            return Err(io::Error::new(io::ErrorKind::TimedOut, said));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// When there were so many.
fn enough(curve: &[(f64, f64)], agents: f64) -> f64 {
    curve.iter().find(|(_, back)| *back >= agents).map_or(f64::NAN, |(at, _)| *at)
}

/// Lets the API server serve what agents hold; events come as long as what is returned runs.
fn serve_streams(fake: &FakeApi) -> JoinHandle<()> {
    let feed = WatchFeed::new();
    fake.on("/watch", Behaviour::Watch(feed.clone()));
    let answer = Answer { status: 200, headers: Vec::new(), body: vec![0; DOWNLOAD_BYTES].into() };
    fake.on("/download", Behaviour::Slow { answer, piece_bytes: PIECE_BYTES, pause: PIECE_EVERY });
    tokio::spawn(async move {
        let mut due = interval(EVENT_EVERY);
        loop {
            due.tick().await;
            feed.push("an event");
        }
    })
}

/// Lets each of so many agents hold a watch and a download for callers who read until they are cut off.
async fn hold(rig: &Rig, holding: u32) -> Result<JoinSet<()>, Box<dyn Error>> {
    let mut held = JoinSet::new();
    for number in 0..holding {
        for path in ["watch", "download"] {
            let mut caller = Http2Caller::dial(rig).await;
            let (answer, _) = caller.send("GET", &format!("/clusters/{HOLDING}-{number}/{path}"), &[], true);
            let answer = answer.await?;
            if answer.status() != 200 {
                return Err(format!("/{path} of an agent was answered {}", answer.status()).into());
            }
            held.spawn(async move { drop((read_to_end(answer.into_body()).await, caller)) });
        }
    }
    Ok(held)
}

/// One set of streams for all.
fn streams(rig: &Rig, fake: &FakeApi, scope: &Scope) -> Result<Streams, Box<dyn Error>> {
    let RigApiServer::Kubeconfig(path) = RigApiServer::of_fake(rig, fake) else {
        return Err("a fake has a kubeconfig".into());
    };
    let source = ApiServerSource::Kubeconfig { path, context: None };
    let api_server = ApiServer::new(source, Limits::default(), scope)?;
    let anybody = || Some(vec!["*".to_owned()]);
    let anybody = AllowList::new(anybody(), anybody(), None)?;
    let turns = Turns::new(config::Limits::default());
    let (endpoints, services) = (watch::channel(Vec::new()).1, watch::channel(Services::default()).1);
    let relay = Relay::new(Targets::default(), api_server.clone(), endpoints, services);
    let forwarder = Forwarder::new(api_server, None, turns, scope.clone());
    Ok(Streams::new(Guard::new(anybody, false), forwarder, relay))
}

fn dialer(agent: &Agent, rig: &Rig, streams: &Streams, scope: &Scope) -> Dialer {
    let address = ServerAddress { host: rig.gateway().ip().to_string(), port: rig.gateway().port() };
    let server = Named { certificate_name: address.host.clone(), address };
    let (id, boot, keys, trusted) = agent.parts();
    let equipment = Equipment {
        agent: id,
        boot,
        keys,
        trusted,
        carriers: vec![Carrier::Quic, Carrier::Http2],
        proxies: Proxies::default(),
        outage_limit: None,
        streams: streams.clone(),
        control_plane: ControlPlane::new(watch::channel(Vec::new()).1, watch::channel(Vec::new()).1),
        readiness: Readiness::new(),
        links: Links::new("restart", "server"),
    };
    Dialer::new(vec![server], equipment, scope.clone())
}

fn report(heading: Heading, rounds: &[Round]) -> Result<Report, Box<dyn Error>> {
    let headings = ["away, s", "ready, s", "half back, s", "99 of 100, s", "all, s", "with streams, s"];
    let mut table = Table::new(&headings);
    for round in rounds {
        let seconds = [
            round.outage_seconds,
            round.ready_seconds,
            round.half_seconds,
            round.most_seconds,
            round.all_seconds,
        ];
        let holding = round.holding_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}"));
        table.row(seconds.iter().map(|seconds| format!("{seconds:.1}")).chain([holding]).collect());
    }
    let worst = rounds.iter().map(|round| round.all_seconds).fold(0.0, f64::max);
    let missed = (worst > BACK_SECONDS_MAX).then(|| {
        format!("all agents were back {worst:.1} s after the server was ready, not within {BACK_SECONDS_MAX}")
    });
    let holding = rounds.iter().filter_map(|round| round.holding_seconds).fold(0.0, f64::max);
    let late = (holding > HOLDING_BACK_SECONDS_MAX).then(|| {
        format!(
            "all agents with streams were back {holding:.1} s after the server was ready, not within \
             {HOLDING_BACK_SECONDS_MAX}"
        )
    });
    let words =
        Labels { title: "Idle agents that are back", x: "seconds since the server is ready", y: "agents" };
    let all: Vec<Line> = rounds
        .iter()
        .map(|round| Line {
            name: format!("away for {} s", round.outage_seconds),
            points: round.curve.clone(),
        })
        .collect();
    let plot = lines("restart-back", words, &all, false, false);
    Ok(Report::new(heading, &rounds)?
        .table("agents after their server's death", table)
        .missed(missed)
        .missed(late)
        .plots([plot]))
}
