//! Faults among several servers that share their records, and of their etcd.
//!
//! Callers are at the first of three servers, and the agent has its tunnels to the two others.

use super::{REFUSED, UNNOTICED};
use crate::matrix::fault::Injection::{Elsewhere, Servers};
use crate::matrix::fault::{Row, ServersFault};

/// A request is at the server of the fault, or at the other one that has a tunnel, where nothing happens to it.
const HALF_LOST: [&str; 5] = ["G0/G3", "W0", "E0/E1", "A0/A1", "G0/G3"];

/// The same of requests that were not answered.
const HALF_LOST_UNANSWERED: [&str; 5] = ["G0/G1", "W0", "E0/E2", "A0/A1", "G0/G1"];

/// The same of requests that begin before the fault is noticed.
const HALF_LOST_NEW: [&str; 5] = ["G0/G1", "W0", "E0/E2", "A0/A1/A2", "G0/G1"];

/// The rows 80 to 91.
pub(super) const ROWS: &[Row] = &[
    Row::new("80", "one of two servers that have tunnels is killed", Servers(ServersFault::HolderKilled))
        .in_flight(HALF_LOST)
        .unanswered(HALF_LOST_UNANSWERED)
        .begun_during(HALF_LOST_NEW)
        .seconds(3)
        .note("a request is at the server that dies or at the other one"),
    Row::new(
        "81",
        "one of two servers that have tunnels is frozen for 30 s",
        Servers(ServersFault::HolderFrozen),
    )
    .in_flight(HALF_LOST)
    .unanswered(HALF_LOST_UNANSWERED)
    .begun_during(HALF_LOST_NEW)
    .seconds(30)
    .note("a server that is silent for 14 s counts as dead to the others, whose streams by it end then"),
    Row::new("82", "the server of the callers is killed", Servers(ServersFault::CallersServerKilled))
        .in_flight(["G3", "W1", "E1", "A1", "G3"])
        .begun_during(UNNOTICED)
        .seconds(3)
        .note("callers try the next server where no connection is accepted, as behind a load balancer"),
    Row::new(
        "83",
        "the callers' server and one of two that have tunnels do not reach each other for 30 s",
        Servers(ServersFault::HolderCutOff),
    )
    .in_flight(HALF_LOST)
    .unanswered(HALF_LOST_UNANSWERED)
    .begun_during(HALF_LOST_NEW)
    .seconds(30),
    Row::new(
        "84",
        "the callers' server reaches no other server for 30 s",
        Servers(ServersFault::CallersServerCutOff),
    )
    .in_flight(["G3", "W0", "E1", "A1", "G3"])
    .unanswered(["G1/G2", "W0/W2", "E2", "A1", "G1/G2"])
    .begun_during(REFUSED)
    .new_after(16)
    .seconds(35),
    Row::new("85", "the leader of etcd is killed", Servers(ServersFault::LeaderKilled)).always(UNNOTICED),
    Row::new("86", "etcd has no quorum for 20 s", Servers(ServersFault::NoQuorum))
        .always(UNNOTICED)
        .seconds(20),
    Row::new(
        "87",
        "the callers' server is cut off from etcd for 20 s",
        Servers(ServersFault::CutOffFromEtcd),
    )
    .always(UNNOTICED)
    .seconds(20),
    Row::new("88", "each sync to etcd's disks takes 200 ms longer", Servers(ServersFault::SlowDisks))
        .always(UNNOTICED),
    Row::new(
        "89",
        "a server is cut off from etcd while a revocation is made and compacted",
        Elsewhere("a_server_cut_off_past_a_compaction_knows_afterwards_what_was_revoked"),
    ),
    Row::new(
        "90",
        "the elected server is silent for longer than its lease",
        Elsewhere("a_silent_leader_stops_before_another_one_leads"),
    ),
    Row::new(
        "91",
        "the clock of one server is 60 s wrong",
        Elsewhere("a_lone_wrong_clock_issues_no_certificates_and_both_sides_say_so"),
    ),
];
