//! How much all who come to a door may take together, before it is known who they are.

use daemon::Rate;
use daemon::config::{KeyError, bounded};
use serde::Deserialize;

use super::REQUESTS_PER_SECOND_MAX;

/// The most connections or handshakes that may be configured. Each takes a descriptor and some 50 KiB.
const AT_DOORS_MAX: usize = 100_000;

/// How much may be taken at once of each door.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DoorLimits {
    /// Of the callers' door, and of the agents' by TCP, each.
    pub gateway: GatewayLimits,
    /// Of the agents' door, by QUIC and by TCP together.
    pub agents: AgentLimits,
}

/// What may be taken of a TCP door; each 1 to 100,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatewayLimits {
    /// Connections, those that shake hands included.
    pub connections: usize,
    /// TLS handshakes in progress.
    pub handshakes: usize,
}

/// What may be taken of the agents' door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentLimits {
    /// Handshakes and greetings in progress; 1 to 100,000.
    pub handshakes: usize,
    /// Beyond so many of them, who comes by UDP has to show first that its address is its own (Retry, RFC 9000, section 8.1.2);
    /// at most as many as may be at all, and 0 asks it of everybody.
    pub unproved: usize,
    /// As many may begin so, and twice as many at once; beyond, the same is asked.
    pub unproved_rate: Rate,
    /// The same of one network, a /24 of IPv4 or a /56 of IPv6.
    pub unproved_rate_of_network: Rate,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct WrittenGateway {
    connections: Option<usize>,
    handshakes: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct WrittenAgents {
    handshakes: Option<usize>,
    unproved_handshakes: Option<usize>,
    unproved_per_second: Option<u32>,
    unproved_per_second_of_network: Option<u32>,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self { connections: 10_000, handshakes: 2_000 }
    }
}

impl Default for AgentLimits {
    fn default() -> Self {
        // The agents of a thousand sites knock within some seconds; a network is a site's, or a provider's.
        let (unproved_rate, unproved_rate_of_network) = (rate(200), rate(20));
        Self { handshakes: 1_024, unproved: 256, unproved_rate, unproved_rate_of_network }
    }
}

pub(super) fn valid(gateway: WrittenGateway, agents: WrittenAgents) -> Result<DoorLimits, KeyError> {
    let (of_gateway, of_agents) = (GatewayLimits::default(), AgentLimits::default());
    let handshakes = count("limits.agents.handshakes", agents.handshakes, of_agents.handshakes)?;
    // What was not named is never more than what was.
    let unproved = agents.unproved_handshakes.unwrap_or_else(|| of_agents.unproved.min(handshakes));
    Ok(DoorLimits {
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

fn per_second(key: &str, written: Option<u32>, default: Rate) -> Result<Rate, KeyError> {
    bounded(key, written.unwrap_or(default.per_second), 1..=REQUESTS_PER_SECOND_MAX).map(rate)
}

fn rate(per_second: u32) -> Rate {
    Rate { per_second, burst: 2 * per_second }
}

fn count(key: &str, written: Option<usize>, default: usize) -> Result<usize, KeyError> {
    bounded(key, written.unwrap_or(default), 1..=AT_DOORS_MAX)
}
