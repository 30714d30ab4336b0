//! Faults of the network between agent and server.

use std::time::Duration;

use super::{REFUSED, UNNOTICED};
use crate::matrix::code::Timing;
use crate::matrix::fault::Injection::{
    Dark, Elsewhere, Idle, Interface, Link, LinkFromStart, Nft, Pulses, Rebind, Reset,
};
use crate::matrix::fault::{Connections, Family, Row};

/// The rows 1 to 30.
pub(super) const ROWS: &[Row] = &[
    Row::new("1", "1 % of packets lost, 50 ms round trip", Link("delay=25ms loss=1%")).always(UNNOTICED),
    Row::new("2", "10 % lost, both ways", Link("delay=25ms loss=10%")).always(UNNOTICED).downloading(1 << 20),
    Row::new("3", "30 % lost, both ways", Link("delay=25ms loss=30%"))
        .always(["G0/G2", "W0", "E0", "A0/A1", "G0"])
        .downloading(256 * 1024)
        .seconds(10),
    Row::new(
        "4",
        "nothing for 300 ms, every 5 s",
        Pulses("loss=100%", Duration::from_millis(300), Duration::from_millis(4700)),
    )
    .always(UNNOTICED)
    .seconds(15),
    Row::new("5", "300 ms round trip, give or take 100", Link("delay=150ms jitter=50ms")).always(UNNOTICED),
    Row::new("6", "2 s round trip, from the start", LinkFromStart("delay=1s")).always(UNNOTICED).downloading(1 << 20).seconds(10),
    Row::new("7", "a quarter of the packets 50 ms late", Link("delay=10ms reorder=25%/50ms")).always(UNNOTICED),
    Row::new("8", "every packet twice", Link("duplicate=100%")).always(UNNOTICED),
    Row::new("10", "5 % with flipped bits and a right checksum", Link("corrupt-hidden=5%")).always(UNNOTICED),
    Row::new("11", "64 kbit/s", Link("rate=64kbit")).always(UNNOTICED).downloading(64 * 1024).seconds(10),
    Row::new(
        "12",
        "256 kbit/s and then as before, in turns of 5 s",
        Pulses("rate=256kbit", Duration::from_secs(5), Duration::from_secs(5)),
    )
    .always(UNNOTICED)
    .downloading(1 << 20)
    .seconds(20),
    Row::new("13", "packets over 1,280 bytes are dropped silently", Link("mtu=1280")).always(UNNOTICED),
    Row::new("13u", "UDP packets over 1,100 bytes are dropped silently for 40 s, and TCP passes", Link("udp-mtu=1100"))
        .in_flight(["G0/G3", "W0", "E0/E1", "A0/A1", "G0/G3"])
        .unanswered(["G0/G1", "W0", "E0/E1", "A0", "G0/G1"])
        .begun_during(UNNOTICED)
        .new_after(20)
        .seconds(40)
        .note("heartbeats pass, and QUIC carries nothing else. A tunnel without traffic is probed every 15 s. What its streams still carry beside a live \
               tunnel is broken off after half a minute"),
    Row::new("15", "nothing passes for 5 s", Dark("")).always(UNNOTICED),
    Row::new("16", "nothing passes for 60 s", Dark("")).in_flight(UNNOTICED).begun_during(REFUSED).new_after(10).seconds(60).note(
        "new ones begin 10 s after the link went dark, because a dead tunnel without traffic is noticed after 8 s. kubectl's own WebSocket exec gives up 61 s after \
         the last pong, which travels end to end; the exec here is SPDY's",
    ),
    Row::new("16u", "the same, and requests begin before it can be noticed", Dark(""))
        .begun_during(UNNOTICED)
        .at(&[Timing::New])
        .seconds(60)
        .note("requests sent meanwhile are kept like all that are in flight: they are answered when the link is back"),
    Row::new("17", "nothing passes from the agent to the server for 30 s", Dark("a-to-b"))
        .in_flight(UNNOTICED)
        .begun_during(REFUSED)
        .new_after(10)
        .seconds(30),
    Row::new("18", "nothing passes from the server to the agent for 30 s", Dark("b-to-a"))
        .in_flight(UNNOTICED)
        .begun_during(REFUSED)
        .new_after(10)
        .seconds(30),
    Row::new("20", "the NAT assigns another port", Rebind { address: false }).always(UNNOTICED),
    Row::new("21", "the agent appears under another address", Rebind { address: true }).always(UNNOTICED),
    Row::new("21i", "the agent's interface goes, and another one with another address comes", Interface).always(UNNOTICED),
    Row::new("22", "UDP is blocked from the start", LinkFromStart("udp-mtu=0"))
        .always(UNNOTICED)
        .note("the carrier is TCP"),
    Row::new("23", "UDP is blocked for 30 s", Link("udp-mtu=0"))
        .in_flight(UNNOTICED)
        .unanswered(["G0/G1", "W0", "E0", "A0", "G0/G1"])
        .begun_during(UNNOTICED)
        .new_after(10)
        .seconds(30)
        .note("streams never move between carriers: unanswered safe requests are sent again over TCP, all others are kept"),
    Row::new("23u", "UDP is blocked for 100 s, and requests begin before it can be noticed", Link("udp-mtu=0"))
        .begun_during(["G0/G1", "W0", "E0", "A0", "G0/G1"])
        .at(&[Timing::New])
        .seconds(100)
        .note("the agent tells over TCP what it has not received, and that is sent again, writes too"),
    Row::new("23d", "UDP is blocked for 60 s", Link("udp-mtu=0"))
        .in_flight(["G3", "W0", "E1", "A1", "G3"])
        .unanswered(["G1", "W0", "E2", "A1", "G1"])
        .begun_during(UNNOTICED)
        .new_after(10)
        .seconds(60)
        .note("what the agent has received ends with its tunnel, which is given up after 29 s beside a live one"),
    Row::new("24", "TCP connections of the carrier are reset", Reset(Connections::Carrier))
        .over("delay=5ms udp-mtu=0")
        .in_flight(["G3", "W0", "E1", "A1", "G3"])
        .unanswered(["G1", "W0", "E2", "A1", "G1"])
        .begun_during(["G0/G1", "W0", "E0/E2", "A0/A1/A2", "G0/G1"])
        .seconds(2)
        .note("UDP is blocked, so the carrier is TCP; the tunnel is lost, as in 31"),
    Row::new("24g", "TCP connections of callers are reset", Reset(Connections::Callers))
        .in_flight(["G3", "W1", "E1", "A1", "G3"])
        .begun_during(UNNOTICED)
        .seconds(1),
    Row::new("26", "a NAT that forgets after 30 s, and no traffic for 70 s", Idle)
        .in_flight(["G0", "-", "-", "A0", "G0"])
        .at(&[Timing::BeforeHead, Timing::MidBody])
        .seconds(70),
    Row::new("27", "every packet marked as congested", Nft("ip ecn set ce")).always(UNNOTICED),
    Row::new("28", "DNS fails, lies or knows nothing", Elsewhere("addresses_missing_from_dns_are_dialed_until_it_has_others")),
    Row::new("29", "IPv6, which the tunnel uses, breaks for 30 s, and IPv4 works", Nft("meta nfproto ipv6 drop"))
        .by(Family::V6)
        .in_flight(UNNOTICED)
        .unanswered(["G0/G1", "W0", "E0", "A0", "G0/G1"])
        .begun_during(UNNOTICED)
        .new_after(10)
        .seconds(30)
        .note("as 23: running streams are kept where they are, new ones use the other family"),
    Row::new("29r", "IPv4, which the tunnel uses, breaks for 30 s, and IPv6 works", Nft("meta nfproto ipv4 drop"))
        .by(Family::V4)
        .in_flight(UNNOTICED)
        .unanswered(["G0/G1", "W0", "E0", "A0", "G0/G1"])
        .begun_during(UNNOTICED)
        .new_after(10)
        .seconds(30),
    Row::new("30", "an interceptor answers in the server's place", Elsewhere("a_server_of_another_authority_or_name_is_not_trusted")),
];
