//! The limits of a listener for all clients together, before they are authenticated.

use daemon::Rate;
use daemon::config::{KeyError, bounded};
use serde::Deserialize;

use crate::config::value::REQUESTS_PER_SECOND_MAX;

/// The most connections or handshakes that can be configured. Each takes a file descriptor and some 50 KiB.
const LISTENER_LIMIT_MAX: usize = 100_000;

/// The limits of each listener for all clients together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListenerTotals {
    /// Of the callers' listener, and as much again of the agents' TCP listener.
    pub gateway: GatewayLimits,
    /// Of the agents' listeners, QUIC and TCP together.
    pub agents: AgentLimits,
}

/// The limits of a TCP listener; each 1 to 100,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatewayLimits {
    /// Connections, including those whose handshake is not done.
    pub connections: usize,
    /// TLS handshakes in progress at once.
    pub handshakes: usize,
}

/// The limits of the agents' listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentLimits {
    /// TLS and tunnel handshakes in progress; 1 to 100,000.
    pub handshakes: usize,
    /// Beyond this number of handshakes a QUIC client must first validate its address (Retry, RFC 9000, section 8.1.2). At
    /// most `handshakes`; 0 asks every client for it.
    pub unproved: usize,
    /// Handshakes per second without address validation, and twice as many at once.
    pub unproved_rate: Rate,
    /// The same rate for one network, a /24 of IPv4 or a /56 of IPv6.
    pub unproved_rate_of_network: Rate,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawGatewayLimits {
    /// Connections at once at one listener.
    #[cfg_attr(test, schemars(range(min = 1, max = LISTENER_LIMIT_MAX), extend("default" = GatewayLimits::default().connections)))]
    connections: Option<usize>,
    /// Handshakes at once at one listener.
    #[cfg_attr(test, schemars(range(min = 1, max = LISTENER_LIMIT_MAX), extend("default" = GatewayLimits::default().handshakes)))]
    handshakes: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawAgentLimits {
    /// Handshakes of agents at once.
    #[cfg_attr(test, schemars(range(min = 1, max = LISTENER_LIMIT_MAX), extend("default" = AgentLimits::default().handshakes)))]
    handshakes: Option<usize>,
    /// Handshakes at once from addresses that are not proved. Beyond it, an agent has to prove its address, which takes
    /// one round trip. At most `handshakes`.
    #[cfg_attr(test, schemars(range(min = 0, max = LISTENER_LIMIT_MAX), extend("default" = AgentLimits::default().unproved)))]
    unproved_handshakes: Option<usize>,
    /// New handshakes from addresses that are not proved.
    #[cfg_attr(test, schemars(range(min = 1, max = REQUESTS_PER_SECOND_MAX), extend("default" = AgentLimits::default().unproved_rate.per_second)))]
    unproved_per_second: Option<u32>,
    /// The same for one /24 of IPv4, or one /56 of IPv6.
    #[cfg_attr(test, schemars(range(min = 1, max = REQUESTS_PER_SECOND_MAX), extend("default" = AgentLimits::default().unproved_rate_of_network.per_second)))]
    unproved_per_second_of_network: Option<u32>,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self { connections: 10_000, handshakes: 2_000 }
    }
}

impl Default for AgentLimits {
    fn default() -> Self {
        // After an outage the agents of a thousand sites connect within seconds. A network is a site's, or a provider's.
        let (unproved_rate, unproved_rate_of_network) = (rate(200), rate(20));
        Self { handshakes: 1_024, unproved: 256, unproved_rate, unproved_rate_of_network }
    }
}

pub(super) fn listeners(
    gateway: RawGatewayLimits,
    agents: RawAgentLimits,
) -> Result<ListenerTotals, KeyError> {
    let (of_gateway, of_agents) = (GatewayLimits::default(), AgentLimits::default());
    let handshakes = count("limits.agents.handshakes", agents.handshakes, of_agents.handshakes)?;
    // The default is never above the configured number of handshakes.
    let unproved = agents.unproved_handshakes.unwrap_or_else(|| of_agents.unproved.min(handshakes));
    Ok(ListenerTotals {
        gateway: GatewayLimits {
            connections: count("limits.gateway.connections", gateway.connections, of_gateway.connections)?,
            handshakes: count("limits.gateway.handshakes", gateway.handshakes, of_gateway.handshakes)?,
        },
        agents: AgentLimits {
            handshakes,
            unproved: bounded("limits.agents.unprovedHandshakes", unproved, 0..=handshakes)?,
            unproved_rate: per_second(
                "limits.agents.unprovedPerSecond",
                agents.unproved_per_second,
                of_agents.unproved_rate,
            )?,
            unproved_rate_of_network: per_second(
                "limits.agents.unprovedPerSecondOfNetwork",
                agents.unproved_per_second_of_network,
                of_agents.unproved_rate_of_network,
            )?,
        },
    })
}

fn per_second(key: &str, raw: Option<u32>, default: Rate) -> Result<Rate, KeyError> {
    bounded(key, raw.unwrap_or(default.per_second), 1..=REQUESTS_PER_SECOND_MAX).map(rate)
}

fn rate(per_second: u32) -> Rate {
    Rate { per_second, burst: 2 * per_second }
}

fn count(key: &str, raw: Option<usize>, default: usize) -> Result<usize, KeyError> {
    bounded(key, raw.unwrap_or(default), 1..=LISTENER_LIMIT_MAX)
}
