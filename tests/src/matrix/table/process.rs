//! Faults of processes, of hosts, and of the resources that the kernel grants them.

use super::UNNOTICED;
use crate::matrix::code::Timing;
use crate::matrix::fault::Injection::{Buffers, Elsewhere, Ports, Process, Resource, Strace};
use crate::matrix::fault::Row;
use crate::matrix::fault::{ProcessFault, Shortage, Victim};

/// A request is served or gets a proper refusal. Nothing breaks that runs.
const SERVED_OR_REFUSED: [&str; 5] = ["G0/G2", "W0/W2", "E0/E2", "A0/A2", "G0/G2"];

/// The rows 31 to 51.
pub(super) const ROWS: &[Row] = &[
    Row::new("31", "the only agent is killed, and started again 2 s later", Process(Victim::Agent, ProcessFault::Killed))
        .in_flight(["G3", "W0", "E1", "A1", "G3"])
        .unanswered(["G1", "W0", "E2", "A1", "G1"])
        .begun_during(["G0", "W0", "E0/E2", "A0/A2", "G0"])
        .seconds(2)
        .note("new ones begin 100 ms after the kill, when it cannot be noticed yet: reads are sent again, writes are not"),
    Row::new("32", "one of three agents is killed", Process(Victim::OneAgentOf(3), ProcessFault::Killed))
        .in_flight(["G0/G3", "W0", "E0/E1", "A0/A1", "G0/G3"])
        .unanswered(["G0/G1", "W0", "E0/E2", "A0/A1", "G0/G1"])
        .begun_during(["G0", "W0", "E0/E2", "A0/A2", "G0"])
        .waiting(330)
        .note(
            "a request is on the agent that dies or on another one. A dead agent that does not come back looks like a dark link, \
             so its running streams are kept for 5 minutes, and its unanswered requests for 90 s",
        ),
    Row::new("33", "one of two agents is asked to stop, as in a rolling update", Process(Victim::OneAgentOf(2), ProcessFault::Terminated))
        .always(["G0", "W0", "E0/E1", "A0", "G0"])
        .seconds(3)
        .note("an exec ends at the drain's deadline"),
    Row::new("34", "the server is killed, and started again 1 s later", Process(Victim::Server, ProcessFault::Killed))
        .in_flight(["G3", "W1/W2", "E1", "A1", "G3"])
        .begun_during(["G3", "W1/W2", "E1", "A2", "G3"])
        .seconds(1)
        .note("one server without a load balancer: while it is away a caller gets no connection and no `Status`"),
    Row::new("35", "the server is asked to stop, and a second one is there", Process(Victim::ServerOfTwo, ProcessFault::Terminated))
        .in_flight(["G0", "W0/W1", "E0/E1", "A0", "G0"])
        .begun_during(UNNOTICED)
        .seconds(3)
        .note(
            "callers try the second address where no connection is accepted, as behind a load balancer; watches and execs run \
             on until the drain's deadline",
        ),
    Row::new("37", "the server is frozen for 20 s", Process(Victim::Server, ProcessFault::Stopped))
        .always(["G0/G2", "W0/W1", "E0/E1", "A0/A1", "G0/G2/G3"])
        .seconds(20),
    Row::new("38", "5 % of a processor for the agent", Resource(Victim::Agent, Shortage::Processor(5)))
        .always(UNNOTICED)
        .downloading(256 * 1024)
        .seconds(10),
    Row::new("39", "128 MiB of memory for each of agent and server", Resource(Victim::Both, Shortage::Memory(128 << 20)))
        .always(UNNOTICED),
    Row::new("40", "too little memory for the agent to live", Resource(Victim::Agent, Shortage::Memory(2 << 20)))
        .in_flight(["G0/G3", "W0", "E0/E1", "A0/A1", "G0/G3"])
        .unanswered(["G0/G1/G3", "W0", "E0/E1/E2", "A0/A1", "G0/G1/G3"])
        .begun_during(["G0/G1/G3", "W0", "E0/E1/E2", "A0/A1/A2", "G0/G1/G3"])
        .seconds(2)
        .note("as 31 from the moment at which the agent takes more memory and the kernel kills it, which may be at any time"),
    Row::new("41", "the agent gets no further descriptor", Resource(Victim::Agent, Shortage::Descriptors))
        .in_flight(UNNOTICED)
        .begun_during(SERVED_OR_REFUSED),
    Row::new("41s", "the server gets no further descriptor", Resource(Victim::Server, Shortage::Descriptors))
        .in_flight(["G0", "W0", "E0", "A0", "G0"])
        .begun_during(["G0/G3", "W0/W1", "E0/E1", "A0/A2", "G0/G3"])
        .note("a connection that cannot be accepted waits in the kernel's queue"),
    Row::new("42", "the agent gets no further thread", Resource(Victim::Agent, Shortage::Threads)).always(UNNOTICED),
    Row::new("42i", "the same, after a while without any request", Resource(Victim::Agent, Shortage::Threads))
        .begun_during(UNNOTICED)
        .at(&[Timing::New])
        .new_after(15)
        .seconds(20),
    Row::new("43", "one port for all the agent's connections to its API server", Ports(60_000, 60_000))
        .in_flight(UNNOTICED)
        .begun_during(SERVED_OR_REFUSED),
    Row::new("44", "no disk left for the agent's state", Elsewhere("a_write_that_fails_leaves_the_old_file")),
    Row::new("45", "no disk left for the audit log", Elsewhere("an_unwritable_audit_log_stops_new_requests_and_recovers")),
    Row::new("46", "fsync of the audit log takes 10 s or fails", Elsewhere("a_writer_that_is_blocked_for_too_long_counts_as_failing")),
    Row::new("48", "the kernel has no random numbers for a running agent", Strace(Victim::Agent, "getrandom:error=ENOSYS"))
        .always(["G0", "W0", "E0/E2", "A0", "G0"])
        .note(
            "ENOSYS, as in a sandbox that does not know the call: a call with flags 0 or GRND_INSECURE is never \
             answered by EAGAIN (getrandom(2)), and Rust and AWS-LC use these flags",
        ),
    Row::new("49", "every third send of the agent fails with ENOBUFS", Strace(Victim::Agent, "sendmsg:error=ENOBUFS:when=1+3"))
        .always(UNNOTICED),
    Row::new("49e", "every third send of the agent fails with EPERM", Strace(Victim::Agent, "sendmsg:error=EPERM:when=1+3"))
        .always(UNNOTICED),
    Row::new("50", "receive buffers of 4 KiB overflow, at a server that is frozen for 150 ms now and then", Buffers(2048))
        .always(UNNOTICED)
        .downloading(16 << 20)
        .at(&[Timing::New, Timing::BeforeHead, Timing::MidBody])
        .note("apart from the last byte nothing could overflow"),
    Row::new("51", "the kernel refuses segmented sends with EIO", Strace(Victim::Agent, "sendmsg:error=EIO:when=1+20"))
        .always(UNNOTICED)
        .at(&[Timing::MidBody, Timing::New]),
];
