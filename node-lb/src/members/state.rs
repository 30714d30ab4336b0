//! The API servers that are known, and all that is known of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::grade::Grade;
use super::named_by::NamedBy;
use super::traffic::Traffic;

/// Most API servers that are known at a time.
pub const API_SERVERS_MAX: usize = api_servers::list::NODE_LB_API_SERVERS_MAX;

/// An API server that no source names any more stays a last resort for this time.
pub const LAST_RESORT_FOR: Duration = Duration::from_secs(24 * 3600);

/// Round trips that are remembered of each API server. The shortest counts.
pub(super) const ROUND_TRIPS: usize = 8;

/// All API servers that are known.
#[derive(Debug, Default)]
pub struct Members {
    pub(super) list: Vec<Member>,
    /// Counts choices among API servers that are all down, so that each begins with another one.
    pub(super) turns: usize,
    /// The slice was read in this process's life, so the state file is no longer a source.
    pub(super) has_slice: bool,
}

/// One API server that is known.
#[derive(Debug)]
pub struct Member {
    /// The address that is dialed.
    pub address: SocketAddr,
    /// The bytes and connections that are relayed to it.
    pub traffic: Arc<Traffic>,
    pub(super) grade: Grade,
    pub(super) named: NamedBy,
    pub(super) round_trips: Vec<Duration>,
    /// The number of misses one after another.
    pub(super) misses: u8,
    /// The begin of the first of these misses.
    pub(super) missed_since: Option<Instant>,
    /// The begin of the last probe that was answered.
    pub(super) answered_since: Option<Instant>,
    /// It is down, and its connections end as soon as another API server answers.
    pub(super) to_be_cut: bool,
}

/// The consequences of one report about an API server.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The grade before and after, if it is another one now.
    pub grade: Option<(Grade, Grade)>,
    /// The number of other API servers that are ready, if this one has just become ready.
    pub joined: Option<usize>,
    /// The API servers whose connections must end now.
    pub cut: Vec<SocketAddr>,
    /// Every other API server is to be probed now: an answer shows that the fault is not here.
    pub probe_others: bool,
    /// This API server is to be probed again at once.
    pub probe_again: bool,
}

impl Members {
    /// Every API server, in the order in which they became known.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.list.iter()
    }

    /// The API server at this address, if it is known.
    #[must_use]
    pub fn get(&self, address: SocketAddr) -> Option<&Member> {
        self.list.iter().find(|member| member.address == address)
    }

    pub(super) fn get_mut(&mut self, address: SocketAddr) -> Option<&mut Member> {
        self.list.iter_mut().find(|member| member.address == address)
    }

    /// The number of API servers of this grade.
    #[must_use]
    pub fn count(&self, grade: Grade) -> usize {
        self.list.iter().filter(|member| member.grade == grade).count()
    }
}

impl Member {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            traffic: Arc::default(),
            grade: Grade::Unproven,
            named: NamedBy::default(),
            round_trips: Vec::with_capacity(ROUND_TRIPS),
            misses: 0,
            missed_since: None,
            answered_since: None,
            to_be_cut: false,
        }
    }

    /// The health of the API server as it was last seen.
    #[must_use]
    pub fn grade(&self) -> Grade {
        self.grade
    }

    /// True if it has shown a certificate of the cluster's CA in this process's life, and no other since.
    #[must_use]
    pub fn has_proved(&self) -> bool {
        self.grade != Grade::Unproven
    }

    /// The shortest of the last round trips. `None` before the first answer.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trips.iter().min().copied()
    }
}
