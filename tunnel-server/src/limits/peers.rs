//! The limits of a caller over all servers: this server tells the others of its largest users, and counts theirs.

use std::cmp::Reverse;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use proto::ClusterId;
use proto::peering::{CallerShare, USAGE_CALLERS_MAX, UsageKind};

use super::digest::caller_digest;
use super::elsewhere::UsageElsewhere;
use super::ledger::LargeShare;
use super::{CallerKey, ExchangeKind, Limiter};

/// Parts of a limit, of which a caller that uses more than one is told of: a quarter of the limit.
const PARTS_MIN: usize = 4;

/// Parts for each other server. Use of which no server tells is a fifth of a limit at most.
const PARTS_PER_PEER: usize = 5;

/// A finer order of shares than whole percents, for limits of up to [`LIMIT_MAX`](crate::config::LIMIT_MAX).
const ORDER_SCALE: usize = 1 << 20;

/// The word of one session with another server about its callers. It counts until this is dropped.
#[must_use = "the other server's word counts no more when this is dropped"]
pub struct PeerUsage {
    limiter: Limiter,
    server_id: String,
    session: u64,
}

impl PeerUsage {
    /// Takes the other server's word in place of its last one.
    pub fn hear(&self, shares: Vec<CallerShare>, now: Instant) {
        self.limiter.elsewhere().hear(&self.server_id, self.session, shares, now);
    }
}

impl Limiter {
    /// Begins to count the callers of another server, of which it tells over a new session.
    pub fn peer_joined(&self, server_id: String) -> PeerUsage {
        let session = self.elsewhere().join();
        PeerUsage { limiter: self.clone(), server_id, session }
    }

    /// The callers who use much of a limit here, as `peers` other servers have to know them: the largest users first, and
    /// [`USAGE_CALLERS_MAX`] at most. Requests of the next second are counted from now on.
    #[must_use]
    pub fn take_shares(&self, peers: usize, now: Instant) -> Vec<CallerShare> {
        let (limits, parts) = (self.0.limits.caller, PARTS_MIN.max(PARTS_PER_PEER * peers));
        let mut large = self.lock().take_large(&limits, parts, now);
        let connections = self.connections();
        let many = connections.iter().filter(|(_, open)| open.saturating_mul(parts) > limits.connections);
        large.extend(many.map(|(key, open)| LargeShare {
            key: key.clone(),
            cluster: None,
            kind: UsageKind::Connections,
            held: *open,
            max: limits.connections,
        }));
        drop(connections);
        large
            .sort_unstable_by_key(|share| Reverse(share.held.saturating_mul(ORDER_SCALE) / share.max.max(1)));
        large.truncate(USAGE_CALLERS_MAX);
        let told = |share: LargeShare| CallerShare {
            caller: caller_digest(&share.key, share.cluster.as_ref()),
            kind: share.kind,
            held: u32::try_from(share.held).unwrap_or(u32::MAX),
        };
        large.into_iter().map(told).collect()
    }

    /// The number of exchanges of this kind that a caller may have here, beside those at other servers.
    pub(super) fn room(
        &self,
        key: &CallerKey,
        cluster: &ClusterId,
        kind: ExchangeKind,
        now: Instant,
    ) -> usize {
        let limits = &self.0.limits.caller;
        let (max, kind, cluster) = match kind {
            ExchangeKind::Request => (limits.requests, UsageKind::Requests, None),
            ExchangeKind::Watch => (limits.watches_per_cluster, UsageKind::Watches, Some(cluster)),
            ExchangeKind::Upgrade => (limits.upgrades, UsageKind::Upgrades, None),
            // The entry point has limited them already.
            ExchangeKind::EntryPoint | ExchangeKind::SetMember => return usize::MAX,
        };
        let elsewhere = self.elsewhere();
        if elsewhere.is_silent() {
            return max;
        }
        elsewhere.room(max, caller_digest(key, cluster), kind, now)
    }

    /// The number of connections that a caller may have here, beside those to other servers.
    pub(super) fn connections_room(&self, key: &CallerKey, now: Instant) -> usize {
        let (max, elsewhere) = (self.0.limits.caller.connections, self.elsewhere());
        if elsewhere.is_silent() {
            return max;
        }
        elsewhere.room(max, caller_digest(key, None), UsageKind::Connections, now)
    }

    /// The time after which a token of the caller's rate is back here.
    pub(super) fn token_interval(&self, key: &CallerKey, now: Instant) -> Duration {
        let (rate, elsewhere) = (self.0.limits.caller.rate, self.elsewhere());
        if elsewhere.is_silent() {
            return rate.interval();
        }
        elsewhere.token_interval(rate, caller_digest(key, None), now)
    }

    fn elsewhere(&self) -> MutexGuard<'_, UsageElsewhere> {
        self.0.elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PeerUsage {
    fn drop(&mut self) {
        self.limiter.elsewhere().leave(&self.server_id, self.session);
    }
}

#[cfg(test)]
mod tests;
