//! The tunnel that carries an exchange, as far as the accounts of the exchange need it.

use proto::session::Health;
use transport::Tunnel;

use super::peers::TunnelAtPeer;

/// The identity of a tunnel, by which its exchanges are counted. It names the agent's own tunnel, never a connection
/// that several tunnels share: the slow readers of one agent must not use up the budget of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TunnelNumber(u64);

/// The tunnel over which the last stream of an exchange was opened. The exchange's entry keeps it after the route, to
/// tell how the exchange ended.
#[derive(Clone)]
pub(crate) struct CarryingTunnel(CarryingWay);

#[derive(Clone)]
enum CarryingWay {
    Here(Tunnel),
    AtPeer(TunnelAtPeer),
}

impl TunnelNumber {
    /// The number of the tunnel with this ticket, of which a registry makes no second one.
    pub(crate) const fn new(ticket: u64) -> Self {
        Self(ticket)
    }

    /// The number as other servers know it.
    pub(crate) const fn get(self) -> u64 {
        self.0
    }
}

impl CarryingTunnel {
    pub(super) fn here(tunnel: &Tunnel) -> Self {
        Self(CarryingWay::Here(tunnel.clone()))
    }

    pub(super) fn at_peer(tunnel: &TunnelAtPeer) -> Self {
        Self(CarryingWay::AtPeer(tunnel.clone()))
    }

    /// Returns true if the tunnel has ended, in good order or not.
    pub(crate) fn is_lost(&self) -> bool {
        let health = match &self.0 {
            CarryingWay::Here(tunnel) => tunnel.health(),
            CarryingWay::AtPeer(tunnel) => tunnel.health(),
        };
        health == Health::Lost
    }
}
