//! Enrolled agents: the key of each, and the certificate that was issued for it.

use std::time::{Duration, SystemTime};

use proto::ClusterId;
use proto::spiffe::AgentId;

use super::Directory;
use super::records::{Agent, IssuedChain, Previous, UnixSeconds};
use super::store::{RECORDS_AT_ONCE, StoreError, Transaction};
use super::tombstones::existing_cluster;

/// Most agents of a cluster that are remembered: the pods of a few years of node replacements.
pub const AGENTS_PER_CLUSTER_MAX: usize = 256;

/// Least time for which an expired agent is remembered when room is needed.
pub const GRACE_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// An agent in a listing.
#[derive(Debug, Clone)]
pub struct AgentEntry {
    /// The cluster of the agent.
    pub cluster: ClusterId,
    /// The name of the agent within its cluster.
    pub instance: String,
    /// The record of the agent.
    pub agent: Agent,
}

/// The key that must sign a renewal, and the result if it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewalClaim {
    /// The key that must sign, as a `SubjectPublicKeyInfo` in base64.
    pub signer: String,
    /// The result of the renewal if that key has signed it.
    pub outcome: RenewalOutcome,
}

/// The result of a renewal whose proof is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenewalOutcome {
    /// The next certificate can be issued.
    Next,
    /// The last renewal is repeated: its answer was lost.
    Again(IssuedChain),
    /// Nothing, and an alarm: two processes have a key that only one agent had.
    Replaced,
}

/// The reason why an agent gets no next certificate. Agents get one answer for every reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RenewalRefused {
    /// It never had a certificate, or not this one.
    #[error("its certificate is not on record")]
    Unknown,
    /// It expired longer ago than the grace lasts.
    #[error("its certificate expired too long ago")]
    TooLate,
    /// It must have a new key for each certificate.
    #[error("it asks for a certificate of its old key")]
    SameKey,
}

/// The reason why the next certificate was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// The record has changed since the certificate was issued.
    #[error("its record has changed meanwhile")]
    Changed,
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Directory {
    /// The agents of a cluster, or of all clusters.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn agents(&self, cluster: Option<ClusterId>) -> Result<Vec<AgentEntry>, StoreError> {
        let prefix = cluster.as_ref().map_or_else(String::new, prefix);
        self.with_store(move |store| {
            let found = store.list::<Agent>(&prefix)?.into_iter();
            let entry = |(key, agent): (String, Agent)| {
                let (cluster, instance) = key.split_once('/')?;
                Some(AgentEntry { cluster: cluster.parse().ok()?, instance: instance.to_owned(), agent })
            };
            Ok(found.filter_map(entry).collect())
        })
        .await
    }

    /// The record of an agent.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn agent(&self, agent: &AgentId) -> Result<Option<Agent>, StoreError> {
        let key = key(agent.cluster(), agent.instance());
        self.with_store(move |store| store.get::<Agent>(&key)).await
    }

    /// Records an agent's next certificate in place of the one with the serial number `old`. If the same
    /// renewal was recorded meanwhile, its certificate is returned.
    ///
    /// # Errors
    /// [`RenewError`].
    pub async fn renew(&self, id: &AgentId, old: String, next: Agent) -> Result<IssuedChain, RenewError> {
        let id = id.clone();
        self.change(move |transaction| {
            let key = key(id.cluster(), id.instance());
            let found = transaction.get::<Agent>(&key)?.ok_or(RenewError::Changed)?;
            if existing_cluster(transaction, id.cluster(), None).is_err() {
                return Err(RenewError::Changed);
            }
            match found.claim(&old, &next.public_key) {
                Some(RenewalClaim { outcome: RenewalOutcome::Next, .. }) => {
                    let previous = Previous { public_key: found.public_key, serial: found.serial };
                    let answer = next.answer.clone();
                    let next = Agent { previous: Some(previous), pod: found.pod, ..next.clone() };
                    transaction.put(&key, &next)?;
                    Ok(answer)
                }
                Some(RenewalClaim { outcome: RenewalOutcome::Again(answer), .. }) => Ok(answer),
                Some(RenewalClaim { outcome: RenewalOutcome::Replaced, .. }) | None => {
                    Err(RenewError::Changed)
                }
            }
        })
        .await
    }
}

impl Agent {
    /// The result of a request for a certificate of the key `next`, if the holder of the certificate with
    /// this serial number has signed it.
    ///
    /// # Errors
    /// [`RenewalRefused`], for the log.
    pub fn claims(
        &self,
        serial: &str,
        next: &str,
        now: UnixSeconds,
        grace: Duration,
    ) -> Result<RenewalClaim, RenewalRefused> {
        let claim = self.claim(serial, next).ok_or(RenewalRefused::Unknown)?;
        if now > self.expires + grace {
            return Err(RenewalRefused::TooLate);
        }
        if claim.outcome == RenewalOutcome::Next && next == self.public_key {
            return Err(RenewalRefused::SameKey);
        }
        Ok(claim)
    }

    /// Returns true if `serial` is the serial number of the agent's certificate, or of the previous one.
    /// Nobody can guess one.
    #[must_use]
    pub fn has_serial(&self, serial: &str) -> bool {
        serial == self.serial || self.previous.as_ref().is_some_and(|previous| previous.serial == serial)
    }

    fn claim(&self, serial: &str, next: &str) -> Option<RenewalClaim> {
        if serial == self.serial {
            return Some(RenewalClaim { signer: self.public_key.clone(), outcome: RenewalOutcome::Next });
        }
        let previous = self.previous.as_ref().filter(|previous| previous.serial == serial)?;
        let is_repeat = next == self.public_key;
        let outcome =
            if is_repeat { RenewalOutcome::Again(self.answer.clone()) } else { RenewalOutcome::Replaced };
        Some(RenewalClaim { signer: previous.public_key.clone(), outcome })
    }
}

fn key(cluster: &ClusterId, instance: &str) -> String {
    format!("{}{instance}", prefix(cluster))
}

/// The beginning of the keys of a cluster's agents.
pub(super) fn prefix(cluster: &ClusterId) -> String {
    format!("{cluster}/")
}

/// Records an agent with a certificate that did not need the key of its last one. A later use of that key is
/// by a copy.
pub(super) fn put(
    transaction: &mut Transaction<'_>,
    (cluster, instance): (&ClusterId, &str),
    agent: &Agent,
    now: SystemTime,
) -> Result<Option<IssuedChain>, StoreError> {
    let key = key(cluster, instance);
    let before = transaction.get::<Agent>(&key)?;
    if before.is_none() && !make_room(transaction, cluster, now)? {
        return Ok(None);
    }
    let previous = before.map(|before| Previous { public_key: before.public_key, serial: before.serial });
    let answer = agent.answer.clone();
    transaction.put(&key, &Agent { previous, ..agent.clone() })?;
    Ok(Some(answer))
}

/// Forgets agents of a cluster that cannot return, and reports whether there is room for one more. If there
/// is none, the pod whose certificate ended first is forgotten: if it still exists, it proves itself again.
fn make_room(
    transaction: &mut Transaction<'_>,
    cluster: &ClusterId,
    now: SystemTime,
) -> Result<bool, StoreError> {
    let now = UnixSeconds::from(now);
    let (mut kept, mut forgotten) = (0, 0);
    let mut ended: Option<(UnixSeconds, String)> = None;
    for (key, agent) in transaction.list::<Agent>(&prefix(cluster))? {
        if agent.expires + GRACE_MAX < now && forgotten < RECORDS_AT_ONCE {
            transaction.remove::<Agent>(&key)?;
            forgotten += 1;
            continue;
        }
        kept += 1;
        let is_first = || ended.as_ref().is_none_or(|(first, _)| agent.expires < *first);
        if agent.pod.is_some() && agent.expires < now && is_first() {
            ended = Some((agent.expires, key));
        }
    }
    match ended {
        _ if kept < AGENTS_PER_CLUSTER_MAX => Ok(true),
        Some((_, key)) => transaction.remove::<Agent>(&key),
        None => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[test]
    fn the_last_key_renews_the_previous_one_repeats_and_others_do_nothing() {
        let (now, grace) = (UnixSeconds(0) + DAY, DAY * 90);
        let agent = agent();
        let claim = |serial: &str, next: &str, now| agent.claims(serial, next, now, grace);
        let signed = |signer: &str, outcome| Ok(RenewalClaim { signer: signer.to_owned(), outcome });

        assert_eq!(claim("2", "three", now), signed("two", RenewalOutcome::Next));
        assert_eq!(claim("1", "two", now), signed("one", RenewalOutcome::Again(agent.answer.clone())));
        assert_eq!(claim("1", "three", now), signed("one", RenewalOutcome::Replaced));
        assert_eq!(claim("0", "three", now), Err(RenewalRefused::Unknown));
        assert_eq!(claim("2", "two", now), Err(RenewalRefused::SameKey));
        // Offline for as long as the grace lasts, and a second longer.
        assert_eq!(claim("2", "three", agent.expires + grace), signed("two", RenewalOutcome::Next));
        let late = agent.expires + grace + Duration::from_secs(1);
        assert_eq!(claim("2", "three", late), Err(RenewalRefused::TooLate));
    }

    fn agent() -> Agent {
        Agent {
            public_key: "two".to_owned(),
            serial: "2".to_owned(),
            issued: UnixSeconds(0),
            expires: UnixSeconds(0) + DAY,
            answer: IssuedChain(vec!["chain".to_owned()]),
            previous: Some(Previous { public_key: "one".to_owned(), serial: "1".to_owned() }),
            pod: None,
        }
    }
}
