//! `loadtest restart`: kills a server and starts it again, and measures how soon its agents have reconnected,
//! idle ones and agents with open streams.

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use ::tests::caller::{Http2Caller, read_to_end};
use ::tests::fake_api::{Answer, Behaviour, FakeApi, WatchFeed};
use ::tests::rig::{ApiServer as RigApiServer, Rig};
use clap::Args;
use daemon::metrics::links::Links;
use daemon::{Readiness, Scope, StateDir, StateError};
use proto::AllowList;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{interval, sleep};
use transport::Carrier;
use tunnel_agent::apiserver::{ApiServer, Timeouts};
use tunnel_agent::clock::Clock;
use tunnel_agent::config::{self, ApiServerSource, Proxies, ServerAddress};
use tunnel_agent::dialer::{ConfiguredServer, ControlPlane, Dependencies, Dialer};
use tunnel_agent::forward::{FairQueue, Forwarder};
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

/// Most seconds until all of a thousand idle agents have reconnected.
const BACK_SECONDS_MAX: f64 = 10.0;
/// Most seconds until agents with open streams have reconnected. Their packets reach the new process at once.
const HOLDING_BACK_SECONDS_MAX: f64 = 3.0;
/// The name prefixes of the clusters of both kinds.
const IDLE: &str = "idle";
const HOLDING: &str = "holding";
/// The open streams of an agent: a watch with an event at this interval, and a download of this size, in
/// pieces.
const EVENT_EVERY: Duration = Duration::from_millis(250);
const DOWNLOAD_BYTES: usize = 64 * 1024 * 1024;
const PIECE_BYTES: usize = 64 * 1024;
const PIECE_EVERY: Duration = Duration::from_millis(100);
/// Age of the tunnels when the server is killed, longer than an agent's probation of a tunnel.
const TUNNEL_AGE: Duration = Duration::from_secs(12);
/// Longest wait until all agents are connected.
const CONNECT_MAX: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Agents that begin to dial at the same time.
const BATCH: usize = 50;

/// The flags of `loadtest restart`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartFlags {
    /// Agents, each with a certificate, a socket and a tunnel of its own; they dial as real ones do
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub agents: u32,

    /// Further agents, each with an open watch and an open download when the server is killed
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub holding: u32,

    /// Time for which the server is down, for each round
    #[arg(long, value_name = "SECONDS,SECONDS", value_delimiter = ',', default_values_t = [1.0, 10.0, 40.0])]
    pub outages: Vec<f64>,
}

/// One round: the server is killed and started again.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Round {
    outage_seconds: f64,
    /// Time from the start of the new process until it was ready.
    ready_seconds: f64,
    /// Time from its readiness until half of the idle agents, 99 percent, and all had reconnected.
    half_seconds: f64,
    most_seconds: f64,
    all_seconds: f64,
    /// Time until all agents with streams had reconnected; absent without any.
    holding_seconds: Option<f64>,
    /// Seconds since readiness, with the number of idle agents.
    #[serde(skip)]
    curve: Vec<(f64, f64)>,
}

/// The number of connected agents over time, for idle agents and for agents with streams. Times are in
/// seconds.
struct ReconnectCurves {
    idle: Vec<(f64, f64)>,
    holding: Vec<(f64, f64)>,
}

/// Runs the scenario, and reports its figures.
///
/// # Errors
/// Every error that prevents a report.
pub async fn run(flags: &RestartFlags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let heading = Heading::new("restart", seed, flags)?;
    let progress = Progress::new();
    let mut rig = Rig::start_logging("info", "").await;
    progress.show(&format!("issuing {} certificates", flags.agents + flags.holding));
    let mut agents = issue(&rig, IDLE, flags.agents, seed).await?;
    agents.extend(issue(&rig, HOLDING, flags.holding, !seed).await?);
    let scope = Scope::here();
    let fake = FakeApi::start().await?;
    fake.otherwise(Behaviour::json("{}"));
    let events = serve_streams(&fake);
    let streams = streams(&rig, &fake, &scope)?;

    progress.show(&format!("{} agents dial", agents.len()));
    for batch in agents.chunks(BATCH) {
        for agent in batch {
            dialer(agent, &rig, &streams, &scope)?.run();
        }
        sleep(LOOK_EVERY).await;
    }
    wait_for_agents(&rig, flags, Instant::now()).await?;
    let mut rounds = Vec::new();
    for outage in &flags.outages {
        progress.show(&format!("{} agents keep their tunnels open", agents.len()));
        let open = open_streams(&rig, flags.holding).await?;
        sleep(TUNNEL_AGE).await;
        rig.kill_server();
        // The callers' connections have ended with it.
        open.join_all().await;
        progress.show(&format!("the server is away for {outage} s"));
        sleep(Duration::from_secs_f64(*outage)).await;
        let started = Instant::now();
        rig.start_server().await;
        let ready_seconds = started.elapsed().as_secs_f64();
        let ReconnectCurves { idle, holding } = wait_for_agents(&rig, flags, Instant::now()).await?;
        let share = |share: f64| time_until(&idle, f64::from(flags.agents) * share);
        rounds.push(Round {
            outage_seconds: *outage,
            ready_seconds,
            half_seconds: share(0.5),
            most_seconds: share(0.99),
            all_seconds: share(1.0),
            holding_seconds: (flags.holding > 0).then(|| time_until(&holding, f64::from(flags.holding))),
            curve: idle,
        });
    }
    events.abort();
    scope.abort();
    report(heading, &rounds)
}

/// Samples the server's count of agents until all are connected.
async fn wait_for_agents(rig: &Rig, flags: &RestartFlags, from: Instant) -> io::Result<ReconnectCurves> {
    let mut curves = ReconnectCurves { idle: Vec::new(), holding: Vec::new() };
    loop {
        let gauges = Gauges::parse(&rig.metrics(rig.probes()).await);
        let at = from.elapsed().as_secs_f64();
        let counted = |of| gauges.sum_of("tombolo_server_agents_connected", &format!("cluster=\"{of}-"));
        let (idle, holding) = (counted(IDLE), counted(HOLDING));
        curves.idle.push((at, idle));
        curves.holding.push((at, holding));
        if idle >= f64::from(flags.agents) && holding >= f64::from(flags.holding) {
            return Ok(curves);
        }
        if from.elapsed() >= CONNECT_MAX {
            let message = format!("the server counts {idle} and {holding} agents and not all");
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// The time at which this many agents were connected.
fn time_until(curve: &[(f64, f64)], agents: f64) -> f64 {
    curve.iter().find(|(_, back)| *back >= agents).map_or(f64::NAN, |(at, _)| *at)
}

/// Configures the API server for the streams of agents. Events are sent until the returned task is aborted.
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

/// Opens a watch and a download through each of this many agents. The callers read until they are cut off.
async fn open_streams(rig: &Rig, holding: u32) -> Result<JoinSet<()>, Box<dyn Error>> {
    let mut open = JoinSet::new();
    for number in 0..holding {
        for path in ["watch", "download"] {
            let mut caller = Http2Caller::dial(rig).await;
            let (answer, _) = caller.send("GET", &format!("/clusters/{HOLDING}-{number}/{path}"), &[], true);
            let answer = answer.await?;
            if answer.status() != 200 {
                return Err(format!("/{path} of an agent was answered {}", answer.status()).into());
            }
            open.spawn(async move { drop((read_to_end(answer.into_body()).await, caller)) });
        }
    }
    Ok(open)
}

/// The stream handling that all agents share.
fn streams(rig: &Rig, fake: &FakeApi, scope: &Scope) -> Result<Streams, Box<dyn Error>> {
    let RigApiServer::Kubeconfig(path) = RigApiServer::of_fake(rig, fake) else {
        return Err("a fake has a kubeconfig".into());
    };
    let source = ApiServerSource::Kubeconfig { path, context: None };
    let api_server = ApiServer::new(source, Timeouts::default(), Clock::default(), scope)?;
    let anybody = || Some(vec!["*".to_owned()]);
    let anybody = AllowList::new(anybody(), anybody(), None)?;
    let queue = FairQueue::new(config::Limits::default());
    let (endpoints, services) = (watch::channel(Vec::new()).1, watch::channel(Services::default()).1);
    let relay = Relay::new(Targets::default(), api_server.clone(), endpoints, services);
    let forwarder = Forwarder::new(api_server, None, queue, scope.clone());
    Ok(Streams::new(Guard::new(anybody, false), forwarder, relay))
}

fn dialer(agent: &Agent, rig: &Rig, streams: &Streams, scope: &Scope) -> Result<Dialer, StateError> {
    let address = ServerAddress { host: rig.gateway().ip().to_string(), port: rig.gateway().port() };
    let server = ConfiguredServer { certificate_name: address.host.clone(), address, id: None };
    let (id, boot, keys, trust) = agent.parts();
    let state = StateDir::open(&rig.path().join(format!("{}.state", id.cluster())))?;
    let dependencies = Dependencies {
        boot,
        keys,
        carriers: vec![Carrier::Quic, Carrier::Http2],
        proxies: Proxies::default(),
        outage_limit: None,
        streams: streams.clone(),
        control_plane: ControlPlane::new(
            watch::channel(Vec::new()).1,
            watch::channel(Vec::new()).1,
            watch::channel(String::new()).1,
        ),
        readiness: Readiness::new(),
        links: Links::new("restart", "server"),
        tunnels: 1,
        state,
    };
    Dialer::begin(vec![server], id, trust, dependencies, scope.clone())
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
        format!("all agents had reconnected {worst:.1} s after the server was ready, not within {BACK_SECONDS_MAX}")
    });
    let holding = rounds.iter().filter_map(|round| round.holding_seconds).fold(0.0, f64::max);
    let late = (holding > HOLDING_BACK_SECONDS_MAX).then(|| {
        format!(
            "all agents with streams had reconnected {holding:.1} s after the server was ready, not within \
             {HOLDING_BACK_SECONDS_MAX}"
        )
    });
    let labels =
        Labels { title: "Idle agents that are back", x: "seconds since the server is ready", y: "agents" };
    let all: Vec<Line> = rounds
        .iter()
        .map(|round| Line {
            name: format!("away for {} s", round.outage_seconds),
            points: round.curve.clone(),
        })
        .collect();
    let plot = lines("restart-back", labels, &all, false, false);
    Ok(Report::new(heading, &rounds)?
        .table("agents after their server was killed", table)
        .missed(missed)
        .missed(late)
        .plots([plot]))
}
