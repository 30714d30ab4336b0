//! An outage while everything flows: which streams notice it, how soon they go on, and whether a byte is
//! lost.

use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::time::{sleep, sleep_until};

mod echo_api;
mod memory;
mod meter;
mod streams;
mod tunnels;

pub use echo_api::EchoApi;
pub use memory::{Memory, Resident};
pub use meter::{Meter, StreamEnd};
pub use tunnels::Tunnels;

use crate::caller::Http2Caller;
use crate::lab::{Lab, Site, Uplink};
use crate::rig::{Agent, ApiServer, Rig};
use echo_api::{ServerStreams, event};
use memory::memory_held;
use streams::CallerStreams;

/// A link with 40 ms round trip, and a rate that a download and an upload fill.
pub const LINK: &str = "delay=20ms rate=8mbit queue=128KiB";
/// The bytes that each bulk stream must have carried before the link goes dark. By then its window has been
/// full for long.
const FILLED_BYTES: u64 = 512 * 1024;
/// The time that everything flows before and after.
const FLOWS: Duration = Duration::from_secs(1);
/// The limit for anything that has no deadline of its own. Builds of other trials may run beside.
const SOON: Duration = Duration::from_secs(60);
/// The time after the reopening within which the first byte must come.
const RESUME_MAX: Duration = Duration::from_secs(120);
/// The time within which the server may notice the outage.
const NOTICE_MAX: Duration = Duration::from_secs(20);
/// Between two events of the busy watch.
const EVENT_EVERY: Duration = Duration::from_millis(200);
/// The beginning of a watch's last event when its stream is no longer what was sent.
const ERROR_EVENT: &str = "{\"type\":\"ERROR\"";
/// The pause between two looks at the streams.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The parameters of one outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct OutagePlan {
    /// The time that the link is dark.
    pub length: Duration,
    /// True if the agent has another source port afterwards.
    pub new_port: bool,
    /// The seed from which all bytes are drawn.
    pub seed: u64,
}

/// A site with two clusters' agents in one pod: the tunnel of one carries everything, the tunnel of the other
/// only heartbeats.
#[derive(Debug)]
#[must_use = "all of it ends when this is dropped"]
pub struct OutageSite {
    busy: String,
    quiet: String,
    echo_api: EchoApi,
    /// The agent with the busy tunnel, and the one with the quiet tunnel.
    agents: [Agent; 2],
    site: Site,
}

/// The outcome of one direction of a stream.
#[derive(Debug, Clone, Serialize)]
pub struct Direction {
    /// The name of the stream and of the receiving end.
    pub name: &'static str,
    /// The time from the reopening to its first byte.
    pub resumed: Option<Duration>,
    /// If it broke: how long after the link went dark, and how.
    pub broken: Option<(Duration, String)>,
    /// If it ended as if all were well, in the midst of what was sent.
    pub truncated: bool,
    /// The first difference from what was sent.
    pub fault: Option<String>,
    /// The bytes that had arrived at each time, in seconds from when the link went dark.
    #[serde(skip)]
    pub delivered: Vec<(f64, f64)>,
}

/// The outcome of all streams.
#[derive(Debug, Clone, Serialize)]
pub struct OutageOutcome {
    /// The parameters of the outage.
    pub plan: OutagePlan,
    /// The time that the link was dark, as the link reports it.
    pub dark: Duration,
    /// The time when the server found the busy tunnel, and the quiet one, suspect.
    pub noticed: [Option<Duration>; 2],
    /// Each direction of each stream.
    pub directions: Vec<Direction>,
    /// The memory that the outage cost.
    pub memory: Memory,
}

impl OutageSite {
    /// Builds a site behind a NAT and a link with these options in both directions, and connects both agents,
    /// whose configuration ends with `more`.
    pub async fn build(lab: &Lab, rig: &Rig, name: &str, link: &str, seed: u64, more: &str) -> Self {
        // The NAT forgets nobody by itself: a new source port comes when the trial says so.
        let nat = ["--nat", "--nat-expiry", "1h", "--seed", &seed.to_string()];
        let site = lab.site(name, Uplink::simulated(link).with(&nat)).await;
        let echo_api = site.run(EchoApi::start()).await.expect("the partner starts");
        let kubeconfig = rig.path().join(format!("{name}.kubeconfig"));
        echo_api.write_kubeconfig(&kubeconfig).expect("a file can be written");
        let (busy, quiet) = (format!("busy-{name}"), format!("quiet-{name}"));
        let api = ApiServer::Kubeconfig(kubeconfig);
        let agents =
            [site.agent_of(rig, &busy, &api, more).await, site.agent_of(rig, &quiet, &api, more).await];
        rig.connected(&busy).await;
        rig.connected(&quiet).await;
        Self { busy, quiet, echo_api, agents, site }
    }

    /// Runs one outage with these parameters.
    ///
    /// # Panics
    /// If not all streams flow before it.
    pub async fn run(&self, rig: &Rig, tunnels: &Tunnels, plan: OutagePlan) -> OutageOutcome {
        let trial = format!("t{}-{}", plan.seed, plan.length.as_secs());
        let server_streams = self.echo_api.server_streams(&trial, plan.seed);
        let streams = CallerStreams::open(rig, &self.busy, &trial, server_streams.seeds).await;
        server_streams.event(0);
        let flowing = [&streams.download, &server_streams.upload].map(|meter| meter.becomes(SOON, filled));
        let [down_flows, up_flows] = flowing;
        let (down_flows, up_flows) = tokio::join!(down_flows, up_flows);
        assert!(down_flows && up_flows, "{}: not everything flows before the outage", self.busy);
        let mut events = Events::default();
        events.go_on(&server_streams, FLOWS).await;
        let resident = || Resident::now(rig, &self.agents[0]);

        let before = resident();
        let down = self.site.link().down().await;
        let watched = tunnels.suspect(&self.busy, &self.quiet, down, NOTICE_MAX.min(plan.length));
        let passes = events.go_on_until(&server_streams, down + plan.length);
        let (noticed, ()) = tokio::join!(watched, passes);
        // Not before: a gateway does not keep a connection for long on which nothing was asked.
        let mut quiet = Http2Caller::dial(rig).await;
        let (dark, held_bytes) = (resident(), memory_held(&server_streams, &streams));
        if plan.new_port {
            self.site.link().rebind(None).await;
        }
        let up = self.site.link().up().await;
        server_streams.event(1);
        let path = format!("/clusters/{}/api/v1/namespaces/{trial}/services/quiet", self.quiet);
        let asked = async {
            let answer = tokio::time::timeout(RESUME_MAX, quiet.ask("GET", &path, &[])).await;
            match answer {
                Ok(Ok(answer)) if answer.status() == 200 => Ok(Instant::now()),
                Ok(Ok(answer)) => Err((Instant::now(), format!("answered {}", answer.status()))),
                Ok(Err(error)) => Err((Instant::now(), error.to_string())),
                Err(_) => Err((Instant::now(), format!("no answer within {RESUME_MAX:?}"))),
            }
        };
        let (quiet_answered, ()) = tokio::join!(asked, all_resumed(&server_streams, &streams, up));
        events.go_on(&server_streams, FLOWS).await;
        let memory = Memory { before, dark, after: resident(), streams: CallerStreams::COUNT, held_bytes };
        server_streams.stop();
        streams.stop();
        all_ended(&server_streams, &streams).await;
        self.echo_api.clear(&trial);
        let times = OutageTimes { down, up };
        let directions = times.directions(&server_streams, &streams, quiet_answered);
        OutageOutcome { plan, dark: up - down, noticed, directions, memory }
    }

    /// The site of the agents.
    pub fn site(&self) -> &Site {
        &self.site
    }
}

impl OutageOutcome {
    /// The longest time to the first byte; `None` if a direction had none.
    pub fn slowest(&self) -> Option<Duration> {
        let resumed: Option<Vec<Duration>> = self.directions.iter().map(|it| it.resumed).collect();
        resumed.and_then(|resumed| resumed.into_iter().max())
    }

    /// Sentences about wrong bytes in streams that should have lived.
    pub fn wrongs(&self) -> Vec<String> {
        let mut wrongs = Vec::new();
        for Direction { name, broken, truncated, fault, .. } in &self.directions {
            wrongs.extend(fault.iter().map(|fault| format!("{name}: {fault}")));
            wrongs.extend(truncated.then(|| format!("{name}: ended as if it were whole")));
            wrongs
                .extend(broken.iter().map(|(after, how)| format!("{name}: broke after {after:.1?}: {how}")));
        }
        wrongs
    }

    /// Sentences about wrong outcomes beyond the limit up to which streams are kept. Each stream of the busy
    /// tunnel must have ended with an error, and never as if it were complete.
    pub fn wrongs_beyond(&self) -> Vec<String> {
        let streams = self.directions.iter().filter(|it| !it.name.starts_with("idle tunnel"));
        streams
            .filter_map(|it| match (&it.fault, it.truncated, &it.broken) {
                (Some(fault), ..) => Some(format!("{}: {fault}", it.name)),
                (None, true, _) => Some(format!("{}: ended as if it were whole", it.name)),
                (None, false, None) => Some(format!("{}: no error, although the limit is over", it.name)),
                (None, false, Some(_)) => None,
            })
            .collect()
    }
}

/// Events of the busy watch, which go on through the outage.
#[derive(Debug, Default)]
struct Events(usize);

impl Events {
    async fn go_on(&mut self, server_streams: &ServerStreams, lasts: Duration) {
        self.go_on_until(server_streams, Instant::now() + lasts).await;
    }

    async fn go_on_until(&mut self, server_streams: &ServerStreams, until: Instant) {
        while Instant::now() < until {
            server_streams.busy_event(self.0);
            self.0 += 1;
            sleep_until((Instant::now() + EVENT_EVERY).min(until).into()).await;
        }
    }
}

/// The time when a request over the idle tunnel was answered, or when it failed, with the error.
type IdleAnswer = Result<Instant, (Instant, String)>;

/// The times when the link went dark and when it was opened.
struct OutageTimes {
    down: Instant,
    up: Instant,
}

impl OutageTimes {
    fn directions(
        &self,
        server_streams: &ServerStreams,
        streams: &CallerStreams,
        quiet_answered: IdleAnswer,
    ) -> Vec<Direction> {
        let (there, here) = (streams.sent(), server_streams.sent());
        let idle: String = (0..2).map(event).collect();
        let quiet = |name, at: Option<Instant>, broken: Option<(Instant, String)>| Direction {
            name,
            resumed: at.map(|at| at.duration_since(self.up)),
            broken: broken.map(|(at, how)| (at.duration_since(self.down), how)),
            truncated: false,
            fault: None,
            delivered: Vec::new(),
        };
        vec![
            self.metered("download to the caller", &streams.download, here.download),
            self.metered("upload to the cluster", &server_streams.upload, there.upload),
            self.metered("trickle to the caller", &streams.trickle, here.trickle),
            self.metered("trickle to the cluster", &server_streams.trickle, there.trickle),
            self.metered("exec to the cluster", &server_streams.exec, there.exec),
            self.metered("exec to the caller", &streams.exec, there.exec),
            self.direction_of_text("idle watch to the caller", &streams.watch, &idle),
            self.direction_of_text("busy watch to the caller", &streams.busy_watch, &here.events),
            quiet("idle tunnel to the cluster", server_streams.quiet.first_after(self.up), None),
            quiet("idle tunnel to the caller", quiet_answered.as_ref().ok().copied(), quiet_answered.err()),
        ]
    }

    fn metered(&self, name: &'static str, meter: &Meter, sent: u64) -> Direction {
        let end = meter.end();
        let is_clean = matches!(end, Some((_, StreamEnd::Clean)));
        Direction {
            name,
            resumed: meter.first_after(self.up).map(|at| at.duration_since(self.up)),
            broken: self.broken(end),
            truncated: is_clean && meter.bytes() < sent,
            fault: meter.fault().map(|fault| fault.to_string()),
            delivered: meter.since(self.down),
        }
    }

    fn direction_of_text(&self, name: &'static str, text: &streams::Text, sent: &str) -> Direction {
        let seen = text.text();
        // A watch that cannot go on says so in an event of its own, and then ends as every watch does.
        let (seen, error) = seen.find(ERROR_EVENT).map_or((&seen[..], None), |at| {
            let (seen, error) = seen.split_at(at);
            (seen, Some(error.trim_end().to_owned()))
        });
        // A watch has no end of its own here: it is complete once everything sent is there.
        let fault = (!sent.starts_with(seen)).then(|| "an event is missing, doubled or broken".to_owned());
        let is_clean = matches!(text.end(), Some((_, StreamEnd::Clean)));
        let broken = text.end().zip(error).map(|((at, _), error)| (at, StreamEnd::Broken(error)));
        Direction {
            name,
            resumed: text.first_after(self.up).map(|at| at.duration_since(self.up)),
            truncated: is_clean && broken.is_none(),
            broken: self.broken(broken.or_else(|| text.end())),
            fault,
            delivered: text.since(self.down),
        }
    }

    fn broken(&self, end: Option<(Instant, StreamEnd)>) -> Option<(Duration, String)> {
        match end? {
            (at, StreamEnd::Broken(how)) => Some((at.duration_since(self.down), how)),
            (_, StreamEnd::Clean) => None,
        }
    }
}

fn filled(meter: &Meter) -> bool {
    meter.bytes() >= FILLED_BYTES
}

/// Waits until every direction has had a byte after the reopening, or has ended.
async fn all_resumed(server_streams: &ServerStreams, streams: &CallerStreams, up: Instant) {
    let meters = [
        &streams.download,
        &server_streams.upload,
        &streams.trickle,
        &server_streams.trickle,
        &server_streams.exec,
        &streams.exec,
    ];
    let texts = [&streams.watch, &streams.busy_watch];
    let is_done = || {
        meters.iter().all(|meter| meter.first_after(up).is_some() || meter.end().is_some())
            && texts.iter().all(|text| text.first_after(up).is_some() || text.end().is_some())
    };
    wait(RESUME_MAX, is_done).await;
}

/// Waits until all streams with an end have ended, and the watches have received every event.
async fn all_ended(server_streams: &ServerStreams, streams: &CallerStreams) {
    let meters = [
        &streams.download,
        &server_streams.upload,
        &streams.trickle,
        &server_streams.trickle,
        &server_streams.exec,
        &streams.exec,
    ];
    let is_done = || {
        meters.iter().all(|meter| meter.end().is_some())
            && streams.upload_answer.end().is_some()
            && [(&streams.busy_watch, server_streams.sent().events.len())]
                .iter()
                .all(|(text, length)| text.text().len() >= *length || text.end().is_some())
    };
    wait(SOON, is_done).await;
}

async fn wait(limit: Duration, is_done: impl Fn() -> bool) {
    let deadline = Instant::now() + limit;
    while !is_done() && Instant::now() < deadline {
        sleep(LOOK_EVERY).await;
    }
}
