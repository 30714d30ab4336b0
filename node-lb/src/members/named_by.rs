//! The sources of addresses, and those that name one API server.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A source of API servers' addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The file in the state directory, which is read before any network. It counts until the slice was read.
    StateFile,
    /// The configuration. What it names is never dropped.
    Seeds,
    /// The EndpointSlice of the cluster's own Service `kubernetes`.
    Slice,
    /// The EndpointSlices of a Service in the host cluster that runs the API servers.
    HostSlice,
}

/// An API server that a source named in an earlier process, and the time for which none has named it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedBefore {
    /// The address of the API server.
    pub address: SocketAddr,
    /// `None` if a source still named it then.
    pub unnamed_for: Option<Duration>,
}

/// The sources that name one API server now.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NamedBy {
    pub(super) state_file: bool,
    seeds: bool,
    pub(super) slice: bool,
    pub(super) host_slice: bool,
    /// The time for which no source had named it at that moment.
    pub(super) unnamed: Option<(Duration, Instant)>,
}

impl Source {
    /// Every source, in the order of the metric's labels.
    pub const ALL: [Self; 4] = [Self::StateFile, Self::Seeds, Self::Slice, Self::HostSlice];

    /// The value of the metric's label `source`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::StateFile => "state_file",
            Self::Seeds => "seeds",
            Self::Slice => "endpoint_slice",
            Self::HostSlice => "host_endpoint_slice",
        }
    }
}

impl NamedBy {
    pub(super) fn source(&mut self, source: Source) -> &mut bool {
        match source {
            Source::StateFile => &mut self.state_file,
            Source::Seeds => &mut self.seeds,
            Source::Slice => &mut self.slice,
            Source::HostSlice => &mut self.host_slice,
        }
    }

    pub(super) fn is_named(self) -> bool {
        self.state_file || self.seeds || self.slice || self.host_slice
    }

    /// The time for which no source has named the API server. `None` if one names it now.
    pub(super) fn unnamed_for(self, now: Instant) -> Option<Duration> {
        if self.is_named() {
            return None;
        }
        self.unnamed.map(|(before, since)| before + now.saturating_duration_since(since))
    }

    /// Begins or ends the time without a source.
    pub(super) fn settle(&mut self, now: Instant) {
        if self.is_named() {
            self.unnamed = None;
        } else {
            self.unnamed.get_or_insert((Duration::ZERO, now));
        }
    }

    /// The priority of an API server when there are too many: the smallest are kept.
    pub(super) fn rank(self, now: Instant) -> (u8, Duration) {
        match (self.seeds, self.slice || self.host_slice, self.state_file) {
            (true, _, _) => (0, Duration::ZERO),
            (_, true, _) => (1, Duration::ZERO),
            (_, _, true) => (2, Duration::ZERO),
            (false, false, false) => (3, self.unnamed_for(now).unwrap_or_default()),
        }
    }
}
