//! The sessions that other servers have dialed, and what each of these has told of itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proto::peering::{PeerInfo, PeerStatus};
use proto::session::Health;
use tokio::time::Instant;
use transport::Tunnel;

/// A session that another server has dialed, and its last words about itself.
pub(super) struct SessionStatus {
    pub(super) server_id: Arc<str>,
    software: String,
    pub(super) tunnel: Tunnel,
    /// The other server is stopping.
    pub(super) is_draining: AtomicBool,
    /// The tunnels of which the other server has told.
    pub(super) tunnels: AtomicUsize,
    told: Mutex<LastWords>,
}

/// The other server's last words about itself, if there were any.
#[derive(Default)]
struct LastWords {
    status: Option<(PeerStatus, Instant)>,
    clock: Option<ClockOffset>,
}

/// The difference of another server's clock from this one, the time on the way included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockOffset {
    /// The other clock is ahead of this one.
    Ahead(Duration),
    /// The other clock is behind this one.
    Behind(Duration),
}

/// The sessions that other servers have dialed, by their order.
#[derive(Default)]
pub(super) struct PeerSessions(Mutex<BTreeMap<u64, Arc<SessionStatus>>>);

/// The state of a session with another server at one moment.
#[derive(Debug, Clone)]
pub(super) struct KnownPeer {
    pub(super) software: String,
    pub(super) health: Health,
    pub(super) is_draining: bool,
    pub(super) tunnels: usize,
    /// The age of the records is that of now.
    pub(super) status: Option<PeerStatus>,
    pub(super) clock: Option<ClockOffset>,
}

impl SessionStatus {
    pub(super) fn new(peer: PeerInfo, tunnel: Tunnel) -> Self {
        let PeerInfo { server_id, software, boot: _, epoch: _ } = peer;
        Self {
            server_id: server_id.into(),
            software,
            tunnel,
            is_draining: AtomicBool::new(false),
            tunnels: AtomicUsize::new(0),
            told: Mutex::default(),
        }
    }

    pub(super) fn set_status(&self, status: PeerStatus) {
        self.told().status = Some((status, Instant::now()));
    }

    /// Takes the other server's clock, in milliseconds since 1970, as it was just now.
    pub(super) fn set_clock(&self, unix_millis: u64, now: SystemTime) {
        self.told().clock = ClockOffset::of(unix_millis, now);
    }

    fn known(&self) -> KnownPeer {
        let LastWords { status, clock } = &*self.told();
        let aged = |(status, at): &(PeerStatus, Instant)| {
            let records_age = status.records_age.saturating_add(at.elapsed());
            PeerStatus { records_age, ..status.clone() }
        };
        KnownPeer {
            software: self.software.clone(),
            health: self.tunnel.health(),
            is_draining: self.is_draining.load(Ordering::Relaxed),
            tunnels: self.tunnels.load(Ordering::Relaxed),
            status: status.as_ref().map(aged),
            clock: *clock,
        }
    }

    fn told(&self) -> MutexGuard<'_, LastWords> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClockOffset {
    /// The offset of a clock that shows `unix_millis`; `None` if that is no time here.
    fn of(unix_millis: u64, now: SystemTime) -> Option<Self> {
        let told = UNIX_EPOCH.checked_add(Duration::from_millis(unix_millis))?;
        Some(match told.duration_since(now) {
            Ok(ahead) => Self::Ahead(ahead),
            Err(behind) => Self::Behind(behind.duration()),
        })
    }

    /// The difference, whatever its direction.
    #[must_use]
    pub fn magnitude(self) -> Duration {
        match self {
            Self::Ahead(difference) | Self::Behind(difference) => difference,
        }
    }
}

impl PeerSessions {
    pub(super) fn insert(&self, ticket: u64, session: Arc<SessionStatus>) {
        self.sessions().insert(ticket, session);
    }

    pub(super) fn remove(&self, ticket: u64) {
        self.sessions().remove(&ticket);
    }

    /// The newest session of each server, by the server's ID.
    pub(super) fn known(&self) -> BTreeMap<Arc<str>, KnownPeer> {
        let sessions = self.sessions();
        sessions.values().map(|session| (Arc::clone(&session.server_id), session.known())).collect()
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<SessionStatus>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_clock_has_a_direction() {
        let now = UNIX_EPOCH + Duration::from_millis(10_000);
        let of = |unix_millis| ClockOffset::of(unix_millis, now);

        assert_eq!(of(12_500), Some(ClockOffset::Ahead(Duration::from_millis(2_500))));
        assert_eq!(of(9_000), Some(ClockOffset::Behind(Duration::from_secs(1))));
        assert_eq!(of(10_000).map(ClockOffset::magnitude), Some(Duration::ZERO));
    }
}
