//! A row of the matrix: a fault, its injection, and the outcomes that each kind of request may see.

use std::time::Duration;

use super::code::{Code, Request, Timing, UnknownCode};

/// A quick row's fault lasts no longer.
pub const QUICK_MAX: Duration = Duration::from_secs(5);

/// One fault of the matrix.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its number, the same for ever, and a letter where one number has several trials.
    pub id: &'static str,
    /// The description of the fault.
    pub fault: &'static str,
    /// The means by which the fault is made.
    pub injection: Injection,
    /// The outcomes of requests in flight, in the order of [`Request::ALL`]; `-` is not tried.
    pub in_flight: [&'static str; 5],
    /// The same of one that is unanswered, where that is another matter.
    pub before_head: Option<[&'static str; 5]>,
    /// The outcomes of requests that begin during the fault.
    pub new: [&'static str; 5],
    /// The stages of requests at which the fault is tried.
    pub timings: &'static [Timing],
    /// The time that the fault lasts.
    pub lasts: Duration,
    /// The time from the fault's begin to the begin of new requests. At first nobody can know of the fault.
    pub new_after: Duration,
    /// The options of `linksim` for the link without the fault.
    pub link: &'static str,
    /// The address family of the agent's tunnel before the fault, where both are available. Otherwise there
    /// is only IPv4.
    pub family: Option<Family>,
    /// The line that a log must contain: the log `server` or `agent`, and a part of the line.
    pub logged: Option<(&'static str, &'static str)>,
    /// The time after the fault's end without any byte after which a request counts as hung.
    pub wait_max: Duration,
    /// Size of a download in bytes.
    pub download_bytes: usize,
    /// Further remarks on the row.
    pub note: &'static str,
}

/// The means by which a fault is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Injection {
    /// `linksim`'s words for both directions.
    Link(&'static str),
    /// `linksim`'s words that come and go: on for the first time, off for the second.
    Pulses(&'static str, Duration, Duration),
    /// The same words before the agent starts, and during all of it.
    LinkFromStart(&'static str),
    /// No packet passes, in one direction (`a-to-b` is from the agent to the server) or in both (``).
    Dark(&'static str),
    /// The NAT gives every sender a new port, and another address if asked.
    Rebind {
        /// The node gets another address, too.
        address: bool,
    },
    /// A rule of nft for what the site's node forwards.
    Nft(&'static str),
    /// TCP connections of the server's port are reset, and both ends get a RST.
    Reset(Connections),
    /// The agent's interface goes, and another one with another address comes.
    Interface,
    /// The kernel keeps no more than so many bytes for each UDP socket of agent and server that were not read
    /// yet.
    Buffers(usize),
    /// A process sees a wall clock that is so many seconds ahead of the machine's.
    Clock {
        /// The process whose clock jumps.
        victim: Victim,
        /// Seconds by which the clock is ahead.
        ahead_seconds: i64,
        /// The agent is restarted under it.
        again: bool,
    },
    /// Time passes without any traffic.
    Idle,
    /// From this to this port, and no other, connections leave the pod.
    Ports(u16, u16),
    /// A process at the edge or the server, and what happens to it.
    Process(Victim, ProcessFault),
    /// The kernel grants a process less of a resource.
    Resource(Victim, Shortage),
    /// Results of system calls that `strace` injects, such as `sendmsg:error=ENOBUFS:when=1+3`.
    Strace(Victim, &'static str),
    /// A fault of the API server.
    Api(ApiFault),
    /// A fault among three servers that share their records, or of their etcd.
    Servers(ServersFault),
    /// The fault is shown by another test, whose function has this name.
    Elsewhere(&'static str),
}

/// A process under test, or its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// The agent, which is the only one.
    Agent,
    /// One of as many agents of the cluster.
    OneAgentOf(usize),
    /// The agent and the server.
    Both,
    /// The process of the tunnel-server.
    Server,
    /// The first of two servers; agents hold tunnels to both, and callers go to the next one where they find
    /// nobody.
    ServerOfTwo,
}

/// The owners of the connections that break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// The agent's, to the server.
    Carrier,
    /// The connections of callers break.
    Callers,
}

/// An address family of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// The address family of IPv4.
    V4,
    /// The address family of IPv6.
    V6,
}

/// An event that happens to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessFault {
    /// SIGKILL; at the fault's end it is started again.
    Killed,
    /// SIGTERM; at the fault's end it is started again.
    Terminated,
    /// SIGSTOP; at the fault's end SIGCONT.
    Stopped,
}

/// A resource that a process has too little of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// So much of one processor, in per cent.
    Processor(u32),
    /// So many bytes of memory.
    Memory(u64),
    /// No descriptor more than it has.
    Descriptors,
    /// No thread more than it has.
    Threads,
}

/// A fault among three servers, of which the first has the callers and the two others have the agent's tunnels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServersFault {
    /// SIGKILL for one of the two that have tunnels; at the fault's end it is started again.
    HolderKilled,
    /// SIGSTOP for one of the two that have tunnels; at the fault's end SIGCONT.
    HolderFrozen,
    /// SIGKILL for the one of the callers; at the fault's end it is started again.
    CallersServerKilled,
    /// One of the two that have tunnels, and the one of the callers, do not reach each other.
    HolderCutOff,
    /// The one of the callers reaches no other one.
    CallersServerCutOff,
    /// SIGKILL for the leader of etcd.
    LeaderKilled,
    /// SIGKILL for two of three members of etcd.
    NoQuorum,
    /// Nothing that etcd answers comes to the one of the callers.
    CutOffFromEtcd,
    /// Each sync to a disk of etcd takes longer.
    SlowDisks,
}

/// A misbehaviour of an API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiFault {
    /// It is gone: connections are refused, and old ones are broken.
    Gone,
    /// It accepts connections and sends nothing.
    Silent,
    /// It closes each connection behind the last byte of an answer.
    ClosesAfterTheLastByte,
    /// It sends GOAWAY on every connection.
    GoesAway,
    /// It freezes in the middle of an answer.
    Freezes,
    /// It sends an answer byte by byte.
    Trickles,
    /// It ends an answer before its end, by its length.
    ShortOfLength,
    /// It ends an answer before its end, in chunks.
    ShortOfChunks,
    /// It sends a malformed chunk.
    BadChunk,
    /// It answers with this status and headers, which must arrive unchanged.
    Says(u16),
    /// It redirects to another host.
    Redirects,
    /// It answers an upgrade that nobody asked for.
    Wrong101,
}

impl Row {
    /// A row without any expectation yet.
    pub const fn new(id: &'static str, fault: &'static str, injection: Injection) -> Self {
        Self {
            id,
            fault,
            injection,
            in_flight: ["-"; 5],
            before_head: None,
            new: ["-"; 5],
            timings: &Timing::ALL,
            lasts: Duration::from_secs(5),
            new_after: Duration::from_millis(100),
            link: "delay=5ms",
            family: None,
            logged: None,
            wait_max: Duration::from_secs(60),
            download_bytes: 4 * 1024 * 1024,
            note: "",
        }
    }

    /// Sets the outcomes of requests in flight.
    #[must_use]
    pub const fn in_flight(mut self, codes: [&'static str; 5]) -> Self {
        self.in_flight = codes;
        self
    }

    /// Sets the outcomes of requests in flight that are unanswered, where they differ.
    #[must_use]
    pub const fn unanswered(mut self, codes: [&'static str; 5]) -> Self {
        self.before_head = Some(codes);
        self
    }

    /// Sets the outcomes of requests that begin during the fault.
    #[must_use]
    pub const fn begun_during(mut self, codes: [&'static str; 5]) -> Self {
        self.new = codes;
        self
    }

    /// All the same, whenever they begin.
    #[must_use]
    pub const fn always(mut self, codes: [&'static str; 5]) -> Self {
        (self.in_flight, self.new) = (codes, codes);
        self
    }

    /// Sets the stages of the requests.
    #[must_use]
    pub const fn at(mut self, timings: &'static [Timing]) -> Self {
        self.timings = timings;
        self
    }

    /// Sets the time that the fault lasts.
    #[must_use]
    pub const fn seconds(mut self, seconds: u64) -> Self {
        self.lasts = Duration::from_secs(seconds);
        self
    }

    /// Sets the time from the fault's begin to the begin of new requests.
    #[must_use]
    pub const fn new_after(mut self, seconds: u64) -> Self {
        self.new_after = Duration::from_secs(seconds);
        self
    }

    /// Sets the link's impairment without the fault.
    #[must_use]
    pub const fn over(mut self, link: &'static str) -> Self {
        self.link = link;
        self
    }

    /// Sets the family of addresses by which the tunnel goes at first.
    #[must_use]
    pub const fn by(mut self, family: Family) -> Self {
        self.family = Some(family);
        self
    }

    /// Sets what the log of `server` or `agent` must contain.
    #[must_use]
    pub const fn logging(mut self, log: &'static str, words: &'static str) -> Self {
        self.logged = Some((log, words));
        self
    }

    /// Sets the time that is waited after the fault's end.
    #[must_use]
    pub const fn waiting(mut self, seconds: u64) -> Self {
        self.wait_max = Duration::from_secs(seconds);
        self
    }

    /// Sets the size of the download.
    #[must_use]
    pub const fn downloading(mut self, bytes: usize) -> Self {
        self.download_bytes = bytes;
        self
    }

    /// Adds a remark to the row.
    #[must_use]
    pub const fn note(mut self, note: &'static str) -> Self {
        self.note = note;
        self
    }

    /// The outcomes that a request may see.
    ///
    /// # Errors
    /// A word of the row is no code.
    pub fn expected(&self, request: Request, timing: Timing) -> Result<Vec<Code>, UnknownCode> {
        let column = Request::ALL.iter().position(|one| *one == request).unwrap_or_default();
        let codes = match timing {
            Timing::New => self.new,
            Timing::BeforeHead => self.before_head.unwrap_or(self.in_flight),
            Timing::MidBody | Timing::AtTheEnd => self.in_flight,
        };
        Code::list(codes[column])
    }

    /// Returns true if the fault affects a part that callers of all clusters share, so that bystanders must
    /// notice it.
    pub fn affects_all(&self) -> bool {
        use Victim::{Both, Server, ServerOfTwo};
        matches!(
            self.injection,
            Injection::Process(Server | ServerOfTwo | Both, _)
                | Injection::Resource(Server | Both, _)
                | Injection::Strace(Server | Both, _)
                | Injection::Reset(Connections::Callers)
                | Injection::Buffers(_)
                | Injection::Servers(ServersFault::CallersServerKilled)
        )
    }

    /// Returns true if the fault's trials are short, so that there may be many.
    pub fn is_quick(&self) -> bool {
        self.is_tried()
            && self.lasts <= QUICK_MAX
            && self.wait_max <= Self::new("", "", self.injection).wait_max
    }

    /// Returns true if there is a trial of the fault.
    pub fn is_tried(&self) -> bool {
        !matches!(self.injection, Injection::Elsewhere(_))
    }
}
