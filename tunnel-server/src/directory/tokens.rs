//! Enrollment tokens, each of which enrolls one agent of one cluster once.

use std::time::{Duration, SystemTime};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use proto::ClusterId;

use super::bearer_token::BearerToken;
use super::records::{Agent, Cluster, IssuedChain, Token, TokenUse, UnixSeconds, Workload};
use super::store::{StoreError, StoredRecord, Transaction};
use super::tombstones::existing_cluster;
use super::{Directory, agents, attestations};

/// Most tokens that are kept, including used and expired ones until they are removed.
pub const TOKENS_MAX: usize = 10_000;

/// Longest lifetime of a token.
pub const TTL_MAX: Duration = Duration::from_secs(60 * 60);

/// Shortest lifetime of a token: somebody has to carry it to the site.
const TTL_MIN: Duration = Duration::from_secs(60);

/// The time for which an expired token is still listed.
const KEPT_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// A record that is useless after its end.
pub(super) trait Expiring: StoredRecord {
    fn expires(&self) -> UnixSeconds;
}

/// A token in a listing.
#[derive(Debug, Clone)]
pub struct TokenEntry {
    /// The part in front of the dot.
    pub id: String,
    /// The record of the token.
    pub token: Token,
}

/// The right that a token gives to its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenGrant {
    /// To enroll a new agent of this cluster.
    NewAgent(ClusterId),
    /// To get the certificate again that was issued for the same key.
    Repeat(IssuedChain),
}

/// The reason why no token was created.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It is for a cluster that does not exist.
    #[error("there is no cluster {0}; make it first: tombolo cluster create {0}")]
    Unknown(ClusterId),
    /// The lifetime is too short or too long.
    #[error("a token holds for {} to {} minutes", TTL_MIN.as_secs() / 60, TTL_MAX.as_secs() / 60)]
    Ttl,
    /// The limit of tokens is reached.
    #[error("{max} tokens are kept, which is the most; revoke some, or wait until they expire", max = TOKENS_MAX)]
    Full,
    /// The system has no random bytes.
    #[error("the system has no random bytes for a token")]
    Randomness,
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The reason why a token enrolls nobody. Clients get one answer for every reason.
#[derive(Debug, thiserror::Error)]
pub enum TokenRefused {
    /// There is no such token, or it was removed.
    #[error("it is not known")]
    Unknown,
    /// The secret of the token is wrong.
    #[error("its secret is wrong")]
    Secret,
    /// The token has expired by now.
    #[error("it has expired")]
    Expired,
    /// Another key was enrolled by it.
    #[error("it was used with another key")]
    Used,
    /// The cluster of the token was deleted.
    #[error("its cluster was deleted")]
    Deleted,
    /// The agent expects to belong to another cluster.
    #[error("it is another cluster's than the agent's")]
    OtherCluster,
    /// The cluster has as many agents as it can have.
    #[error("its cluster has as many agents as it may")]
    Full,
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Directory {
    /// Creates a token for one agent of a cluster. The token cannot be shown a second time.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn create_token(
        &self,
        cluster: ClusterId,
        ttl: Duration,
        now: SystemTime,
    ) -> Result<(BearerToken, Token), TokenError> {
        if !(TTL_MIN..=TTL_MAX).contains(&ttl) {
            return Err(TokenError::Ttl);
        }
        let bearer = BearerToken::random().ok_or(TokenError::Randomness)?;
        let cached = self.record(&cluster);
        self.change(move |transaction| {
            let now = UnixSeconds::from(now);
            existing_cluster(transaction, &cluster, cached)
                .map_err(|_| TokenError::Unknown(cluster.clone()))?;
            if remove_expired::<Token>(transaction, now)? >= TOKENS_MAX {
                return Err(TokenError::Full);
            }
            let token = Token {
                cluster: cluster.to_string(),
                secret_hash: bearer.hash(),
                created: now,
                expires: now + ttl,
                used: None,
            };
            transaction.put(&bearer.id(), &token)?;
            Ok((bearer, token))
        })
        .await
    }

    /// All enrollment tokens that are kept.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn tokens(&self) -> Result<Vec<TokenEntry>, StoreError> {
        self.read(|store| {
            let found = store.list::<Token>("")?.into_iter();
            Ok(found.map(|(id, token)| TokenEntry { id, token }).collect())
        })
        .await
    }

    /// Removes a token by its ID. Returns whether there was one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn revoke_token(&self, id: String) -> Result<bool, StoreError> {
        self.change(move |transaction| transaction.remove::<Token>(&id)).await
    }

    /// The right that a token gives to the holder of the key `pin`. Changes nothing.
    ///
    /// # Errors
    /// [`TokenRefused`], for the log.
    pub async fn token_grant(
        &self,
        bearer: BearerToken,
        pin: String,
        now: SystemTime,
    ) -> Result<TokenGrant, TokenRefused> {
        self.read(move |store| {
            let token = store.get::<Token>(&bearer.id())?.ok_or(TokenRefused::Unknown)?;
            let cluster = token.cluster_id().ok_or(TokenRefused::Unknown)?;
            let is_there =
                store.get::<Cluster>(cluster.as_str())?.is_none_or(|found| found.tombstone.is_none());
            let token_grant = token.grant_for(&bearer, &pin, now.into())?;
            if is_there { Ok(token_grant) } else { Err(TokenRefused::Deleted) }
        })
        .await
    }

    /// Records an agent that a token has enrolled, binds the token to its key, and records `workload` if its
    /// cluster has none. If a request with the same key was faster, its certificate is returned.
    ///
    /// # Errors
    /// [`TokenRefused`], for the log.
    pub async fn enroll(
        &self,
        bearer: BearerToken,
        (pin, instance): (String, String),
        agent: Agent,
        workload: Option<Workload>,
        now: SystemTime,
    ) -> Result<IssuedChain, TokenRefused> {
        self.change(move |transaction| {
            let mut token = transaction.get::<Token>(&bearer.id())?.ok_or(TokenRefused::Unknown)?;
            let cluster = match token.grant_for(&bearer, &pin, now.into())? {
                TokenGrant::NewAgent(cluster) => cluster,
                TokenGrant::Repeat(answer) => return Ok(answer),
            };
            if existing_cluster(transaction, &cluster, None).is_err() {
                return Err(TokenRefused::Deleted);
            }
            let answer = agents::put(transaction, (&cluster, &instance), agent, now)?;
            let answer = answer.ok_or(TokenRefused::Full)?;
            if let Some(workload) = workload {
                attestations::record(transaction, &cluster, workload)?;
            }
            token.used = Some(TokenUse { pin, instance, at: now.into(), answer: answer.clone() });
            transaction.put(&bearer.id(), &token)?;
            Ok(answer)
        })
        .await
    }
}

impl Token {
    /// The cluster of the token; `None` if the record is damaged.
    #[must_use]
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.cluster.parse().ok()
    }

    fn grant_for(
        &self,
        bearer: &BearerToken,
        pin: &str,
        now: UnixSeconds,
    ) -> Result<TokenGrant, TokenRefused> {
        // The secret is checked first: a client without it learns nothing, not even by the time of the answer.
        let hash = bearer.hash();
        verify_slices_are_equal(hash.as_bytes(), self.secret_hash.as_bytes())
            .map_err(|_| TokenRefused::Secret)?;
        if now >= self.expires {
            return Err(TokenRefused::Expired);
        }
        match &self.used {
            None => self.cluster_id().map(TokenGrant::NewAgent).ok_or(TokenRefused::Unknown),
            Some(used) if used.pin == pin => Ok(TokenGrant::Repeat(used.answer.clone())),
            Some(_) => Err(TokenRefused::Used),
        }
    }
}

/// Removes all tokens of a cluster.
pub(super) fn forget(transaction: &mut Transaction<'_>, cluster: &ClusterId) -> Result<(), StoreError> {
    for (id, token) in transaction.list::<Token>("")? {
        if token.cluster == cluster.as_str() {
            transaction.remove::<Token>(&id)?;
        }
    }
    Ok(())
}

impl Expiring for Token {
    fn expires(&self) -> UnixSeconds {
        self.expires
    }
}

/// Removes records that expired more than [`KEPT_AFTER`] ago. Returns how many are left.
pub(super) fn remove_expired<R: Expiring>(
    transaction: &mut Transaction<'_>,
    now: UnixSeconds,
) -> Result<usize, StoreError> {
    let mut kept = 0;
    for (id, old) in transaction.list::<R>("")? {
        if old.expires() + KEPT_AFTER < now {
            transaction.remove::<R>(&id)?;
        } else {
            kept += 1;
        }
    }
    Ok(kept)
}
