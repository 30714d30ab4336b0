//! A route to a cluster: through a tunnel of this server, or by one hop through a tunnel of another one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use daemon::Home;
use policy::Target;
use proto::Capabilities;
use proto::greeting::Advertised;
use proto::inquiry::StreamFate;
use proto::session::Health;
use proto::spiffe::AgentId;
use proto::wire::StreamOpen;
use tokio::time::Instant;
use transport::{Carrier, OpenError, Tunnel, TunnelStream};

use super::carrying_tunnel::{CarryingTunnel, TunnelNumber};
use super::inquiries::ProcessInquiry;
use super::live_since::LiveSince;
use super::peers::TunnelAtPeer;
use super::tunnels::TunnelEntry;
use super::{RegisteredTunnel, advertised};

/// A route to a cluster, through a tunnel of one of its agents. Its users open streams and ask how the tunnel does; none
/// of them sees the tunnel itself.
#[derive(Clone)]
pub struct Route {
    agent: AgentId,
    way: Way,
}

#[derive(Clone)]
enum Way {
    Here(OwnTunnel),
    AtPeer(TunnelAtPeer),
}

/// A tunnel to this server.
#[derive(Clone)]
struct OwnTunnel {
    /// The position of the tunnel in the order of registrations.
    ticket: u64,
    tunnel: Tunnel,
    home: Home,
    live: Arc<LiveSince>,
    advertised: Arc<Mutex<Advertised>>,
    /// The number of the tunnel among those that its process has dialed.
    sequence: u64,
    inquiry: Arc<ProcessInquiry>,
    capabilities: Capabilities,
}

impl Route {
    pub(super) fn here(entry: &TunnelEntry<RegisteredTunnel>) -> Self {
        let RegisteredTunnel {
            tunnel,
            home,
            live,
            advertised,
            sequence,
            inquiry,
            capabilities,
            credential: _,
            version: _,
        } = &entry.tunnel;
        let own = OwnTunnel {
            ticket: entry.ticket,
            tunnel: tunnel.clone(),
            home: *home,
            live: Arc::clone(live),
            advertised: Arc::clone(advertised),
            sequence: *sequence,
            inquiry: Arc::clone(inquiry),
            capabilities: *capabilities,
        };
        Self { agent: entry.agent.clone(), way: Way::Here(own) }
    }

    pub(super) fn at_peer(tunnel: TunnelAtPeer) -> Self {
        Self { agent: tunnel.told().agent.clone(), way: Way::AtPeer(tunnel) }
    }

    /// Opens a stream to the agent.
    ///
    /// # Errors
    /// `OpenError` if the tunnel takes no stream now. The agent has received nothing of it.
    pub async fn open(&self, open: &StreamOpen) -> Result<TunnelStream, OpenError> {
        match &self.way {
            Way::Here(own) => own.tunnel.open(open).await,
            Way::AtPeer(tunnel) => tunnel.open(open).await,
        }
    }

    /// The identity of the agent, as its certificate names it.
    #[must_use]
    pub fn agent(&self) -> &AgentId {
        &self.agent
    }

    /// The ID of the server that has the tunnel; `None` if it is this one.
    #[must_use]
    pub fn peer(&self) -> Option<&str> {
        match &self.way {
            Way::Here(_) => None,
            Way::AtPeer(tunnel) => Some(tunnel.session().server_id()),
        }
    }

    /// The runtime on which exchanges of this route run.
    #[must_use]
    pub fn home(&self) -> Home {
        match &self.way {
            Way::Here(own) => own.home,
            Way::AtPeer(tunnel) => tunnel.session().home(),
        }
    }

    /// The protocol that carries the streams of this route from here.
    #[must_use]
    pub fn carrier(&self) -> Carrier {
        self.first_leg().carrier()
    }

    /// The health of the tunnel at this moment.
    #[must_use]
    pub fn health(&self) -> Health {
        match &self.way {
            Way::Here(own) => own.tunnel.health(),
            Way::AtPeer(tunnel) => tunnel.health(),
        }
    }

    /// Returns true if the tunnel takes no new streams, because one side asked for a drain.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        match &self.way {
            Way::Here(own) => own.tunnel.is_draining(),
            Way::AtPeer(tunnel) => tunnel.is_draining(),
        }
    }

    /// Returns true if the agent will tell no fate of a stream: it has ended the tunnel itself, in good order or not, or another
    /// server has the tunnel, whom it would tell.
    #[must_use]
    pub fn tells_no_fate(&self) -> bool {
        match &self.way {
            Way::Here(own) => own.tunnel.was_closed_by_peer(),
            Way::AtPeer(_) => true,
        }
    }

    /// The number by which the exchanges of this route's tunnel are counted.
    pub(crate) fn tunnel_number(&self) -> TunnelNumber {
        TunnelNumber::new(self.ticket())
    }

    /// The tunnel as the audit entry of an exchange keeps it.
    pub(crate) fn carrying_tunnel(&self) -> CarryingTunnel {
        match &self.way {
            Way::Here(own) => CarryingTunnel::here(&own.tunnel),
            Way::AtPeer(tunnel) => CarryingTunnel::at_peer(tunnel),
        }
    }

    pub(super) fn is_here(&self) -> bool {
        matches!(self.way, Way::Here(_))
    }

    /// The position of the tunnel among all that this registry knows.
    pub(super) fn ticket(&self) -> u64 {
        match &self.way {
            Way::Here(own) => own.ticket,
            Way::AtPeer(tunnel) => tunnel.ticket(),
        }
    }

    pub(super) fn live(&self) -> &LiveSince {
        match &self.way {
            Way::Here(own) => &own.live,
            Way::AtPeer(tunnel) => tunnel.live(),
        }
    }

    /// The time since which the tunnel has been live without a break.
    pub(super) fn live_since(&self) -> Option<Instant> {
        match &self.way {
            Way::Here(own) => *own.live.borrow(),
            Way::AtPeer(tunnel) => tunnel.live_since(),
        }
    }

    /// Has a heartbeat sent now, which a live agent, or a live server, answers soon. Returns what was received before, for
    /// [`Self::has_answered_since`].
    pub(super) fn ask_for_answer(&self) -> u64 {
        let heard = self.first_leg().heard();
        self.first_leg().nudge();
        heard
    }

    /// Returns true if more than `heard` was received, and there is no doubt for packets of full size: a heartbeat passes
    /// where requests do not.
    pub(super) fn has_answered_since(&self, heard: u64) -> bool {
        self.first_leg().heard() != heard && !self.first_leg().awaits_probe()
    }

    /// The fate of a stream of this tunnel, once the tunnel is silent or gone and its agent has told the fate
    /// over another one. So the agent is within reach when this resolves. Cancel-safe.
    pub async fn fate(&self, stream: u64) -> StreamFate {
        let Way::Here(own) = &self.way else { return std::future::pending().await };
        let mut live = own.live.subscribe();
        loop {
            // The route holds the sender too, so it cannot be closed.
            let _ = live.wait_for(Option::is_none).await;
            // Both arms are cancel-safe: a stream that is not waited for is forgotten.
            tokio::select! {
                fate = own.inquiry.fate(own.sequence, stream) => return fate,
                _ = live.wait_for(Option::is_some) => {}
            }
        }
    }

    /// Returns true if the tunnel's agent advertises `target` now.
    #[must_use]
    pub fn advertises(&self, target: &Target) -> bool {
        match &self.way {
            Way::Here(own) => {
                let advertised = own.advertised.lock().unwrap_or_else(PoisonError::into_inner);
                advertised::has(&advertised.endpoints, target)
            }
            Way::AtPeer(tunnel) => advertised::has(&tunnel.told().advertised.endpoints, target),
        }
    }

    /// The abilities of the agent beyond the protocol's version. Another server may choose another tunnel of the cluster than the one
    /// that it told of, so an answer is checked as well.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        match &self.way {
            Way::Here(own) => own.capabilities,
            Way::AtPeer(tunnel) => tunnel.told().capabilities,
        }
    }

    /// The tunnel that carries streams from here: the agent's, or the session with another server.
    fn first_leg(&self) -> &Tunnel {
        match &self.way {
            Way::Here(own) => &own.tunnel,
            Way::AtPeer(tunnel) => tunnel.session().tunnel(),
        }
    }
}

/// The time at which the tunnel last received anything.
pub(super) fn last_heard(tunnel: &Tunnel) -> SystemTime {
    SystemTime::now().checked_sub(tunnel.silence()).unwrap_or(SystemTime::UNIX_EPOCH)
}
