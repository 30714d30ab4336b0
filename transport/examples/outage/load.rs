//! The load of a tunnel while its link goes dark, and the measurements of it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch as signal;
use tokio::time::sleep;

use crate::arguments::{Arguments, Dark};
use crate::link::Link;
use crate::pair::{Duplex, Pair, Servers};
use crate::watch::Watch;

/// The kind of load that a tunnel carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Fills the window from the agent to the server.
    Download,
    /// Fills the window from the server to the agent.
    Upload,
    /// A few bytes every tenth of a second, both ways.
    Trickle,
    /// A stream on which a few bytes are sent in the middle of the outage.
    Idle,
    /// No stream, only the tunnel's heartbeats.
    Heartbeats,
    /// All of these at once; the trickle is measured.
    All,
}

/// The time over which goodput is compared.
pub(crate) const SECONDS: Duration = Duration::from_secs(5);

const KINDS: [Kind; 6] =
    [Kind::Download, Kind::Upload, Kind::Trickle, Kind::Idle, Kind::Heartbeats, Kind::All];

pub(crate) struct Load {
    kind: Kind,
    pair: Pair,
    link: Link,
    at_server: Watch,
    at_agent: Watch,
    send_now: signal::Sender<u32>,
    after: Arc<Mutex<After>>,
}

/// Measurements from after a link's return, and the number of packets that it swallowed.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct After {
    /// The larger of both ends' estimates, one second later.
    pub(crate) round_trip: Duration,
    /// Bytes of the first seconds, as a part of those of as many seconds before the outage.
    pub(crate) goodput: f64,
    /// Packets a second that both ends sent into the dark.
    pub(crate) into_the_dark: f64,
}

impl Load {
    /// A load of each kind in turn, over tunnels of ours and of plain quinn.
    pub(crate) async fn all(arguments: &Arguments, round: usize) -> Vec<Self> {
        let servers = Servers::start();
        let mut loads = Vec::new();
        for number in 0..arguments.tunnels {
            let kind = KINDS[(number + round) % KINDS.len()];
            for stock in [false, true] {
                if arguments.stock || !stock {
                    let link = Link::to(servers.address(stock)).await;
                    let pair = if stock { servers.stock(&link).await } else { servers.ours(&link).await };
                    loads.push(Self::new(kind, pair, link));
                }
            }
        }
        for load in &loads {
            load.begin().await;
        }
        loads
    }

    fn new(kind: Kind, pair: Pair, link: Link) -> Self {
        let (at_server, at_agent) = (Watch::default(), Watch::default());
        Self {
            kind,
            pair,
            link,
            at_server,
            at_agent,
            send_now: signal::Sender::new(0),
            after: Arc::default(),
        }
    }

    async fn begin(&self) {
        let Self { kind, pair, at_server, at_agent, send_now, .. } = self;
        let kind = *kind;
        let of_kind = |wanted| kind == wanted || kind == Kind::All;
        if of_kind(Kind::Download) {
            let (server, agent) = pair.stream().await;
            let watched = if kind == Kind::All { Watch::default() } else { at_server.clone() };
            fill(agent, server, watched);
        }
        if of_kind(Kind::Upload) {
            let (server, agent) = pair.stream().await;
            let watched = if kind == Kind::All { Watch::default() } else { at_agent.clone() };
            fill(server, agent, watched);
        }
        if of_kind(Kind::Trickle) {
            let (server, agent) = pair.stream().await;
            trickle(server, at_server.clone());
            trickle(agent, at_agent.clone());
        }
        if of_kind(Kind::Idle) {
            let (server, agent) = pair.stream().await;
            let watches = if kind == Kind::All {
                (Watch::default(), Watch::default())
            } else {
                (at_server.clone(), at_agent.clone())
            };
            send_on_signal(server, send_now.subscribe(), watches.0);
            send_on_signal(agent, send_now.subscribe(), watches.1);
        }
        if kind == Kind::Heartbeats {
            pair.watch_packets(at_server.clone(), at_agent.clone());
        }
    }

    /// Goes dark a little later than others and comes back a little later still, so that every phase is met.
    #[expect(clippy::cast_precision_loss, reason = "counts of packets and bytes")]
    pub(crate) fn begin_outage(&self, outage: Duration, arguments: &Arguments, number: usize) {
        let (link, watches) = (self.link.clone(), [self.at_server.clone(), self.at_agent.clone()]);
        let (dark, new_port, stale) = (arguments.dark, arguments.new_port, arguments.stale);
        let server = self.pair.server();
        let (send_now, after, ends) = (self.send_now.clone(), Arc::clone(&self.after), self.pair.ends());
        let spread = |factor: usize, most: u64| Duration::from_millis((number * factor) as u64 % most);
        let (late, lag, longer) = (spread(137, 1000), spread(31, 100), spread(89, 1000));
        tokio::spawn(async move {
            sleep(late).await;
            let bytes = || watches.iter().map(Watch::bytes).sum::<u64>();
            let before = bytes();
            sleep(SECONDS).await;
            let before = bytes() - before;
            let (to_server, to_agent) = (dark != Dark::ToAgent, dark != Dark::ToServer);
            // One direction goes first, so that some packets arrive whose acknowledgement is lost.
            if number.is_multiple_of(2) {
                link.darken(to_server, false);
            } else {
                link.darken(false, to_agent);
            }
            if stale {
                link.forget();
            }
            sleep(lag).await;
            link.darken(to_server, to_agent);
            sleep(outage / 2).await;
            send_now.send_modify(|count| *count += 1);
            sleep(outage / 2 + longer).await;
            if new_port {
                link.remap(server).await;
            }
            let now = Instant::now();
            watches.iter().for_each(|watch| watch.reopened(now));
            link.darken(false, false);
            let (to_server, to_agent) = link.swallowed();
            let at_return = bytes();
            sleep(Duration::from_secs(1)).await;
            let (at_server, at_agent) = ends.round_trips();
            sleep(SECONDS - Duration::from_secs(1)).await;
            *after.lock().unwrap() = After {
                round_trip: at_server.max(at_agent),
                goodput: (bytes() - at_return) as f64 / before.max(1) as f64,
                into_the_dark: (to_server + to_agent) as f64 / (outage + longer).as_secs_f64(),
            };
        });
    }

    pub(crate) fn after(&self) -> After {
        *self.after.lock().unwrap()
    }

    pub(crate) fn arm(&self) -> &'static str {
        if self.pair.is_stock() { "quinn, keep-alive 1 s" } else { "tombolo" }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self.kind {
            Kind::Download => "download",
            Kind::Upload => "upload",
            Kind::Trickle => "trickle",
            Kind::Idle => "idle stream",
            Kind::Heartbeats => "heartbeats",
            Kind::All => "trickle beside all",
        }
    }

    /// Time from the link's return to the first byte, in each direction that this load has.
    pub(crate) fn firsts(&self) -> Vec<(&'static str, Option<Duration>)> {
        let directions = match self.kind {
            Kind::Download => vec![("server", &self.at_server)],
            Kind::Upload => vec![("agent", &self.at_agent)],
            Kind::Trickle | Kind::Idle | Kind::Heartbeats | Kind::All => {
                vec![("server", &self.at_server), ("agent", &self.at_agent)]
            }
        };
        directions.into_iter().map(|(name, watch)| (name, watch.first())).collect()
    }
}

fn fill(mut from: Duplex, mut to: Duplex, watch: Watch) {
    tokio::spawn(async move {
        let bytes = vec![7; 16 * 1024];
        while from.write_all(&bytes).await.is_ok() {}
    });
    tokio::spawn(async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = to.read(&mut buffer).await {
            watch.saw(read as u64);
        }
    });
}

fn trickle(stream: Duplex, watch: Watch) {
    let (mut read, mut write) = tokio::io::split(stream);
    tokio::spawn(async move {
        while write.write_all(b"trickle").await.is_ok() {
            sleep(Duration::from_millis(100)).await;
        }
    });
    tokio::spawn(async move {
        let mut buffer = vec![0; 1024];
        while let Ok(length @ 1..) = read.read(&mut buffer).await {
            watch.saw(length as u64);
        }
    });
}

fn send_on_signal(stream: Duplex, mut send_now: signal::Receiver<u32>, watch: Watch) {
    let (mut read, mut write) = tokio::io::split(stream);
    tokio::spawn(async move {
        while send_now.changed().await.is_ok() && write.write_all(b"said").await.is_ok() {}
        std::future::pending::<()>().await;
    });
    tokio::spawn(async move {
        let mut buffer = vec![0; 1024];
        while let Ok(length @ 1..) = read.read(&mut buffer).await {
            watch.saw(length as u64);
        }
    });
}
