//! Enrollment tokens, each of which enrolls one agent of one cluster once.

use std::time::{Duration, SystemTime};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use proto::ClusterId;

use super::bearer_token::BearerToken;
use super::records::{
    Agent, Cluster, IssuedChain, Revocation, Revoked, Token, TokenUse, UnixSeconds, Workload,
};
use super::store::StoreError;
use super::tombstones::existing_cluster;
use super::{Directory, agents, attestations};

/// Most tokens that are kept, including used and expired ones until they are removed.
pub const TOKENS_MAX: usize = 10_000;

/// Longest lifetime of a token.
pub const TTL_MAX: Duration = Duration::from_secs(60 * 60);

/// Shortest lifetime of a token: somebody has to carry it to the site.
const TTL_MIN: Duration = Duration::from_secs(60);

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
    /// All agents of its cluster were revoked after it was made.
    #[error("all agents of its cluster were revoked since it was made")]
    Void,
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
        if self.with_store(|store| store.count::<Token>()).await? >= TOKENS_MAX {
            self.remove_expired_tokens(now).await?;
        }
        let bearer = BearerToken::random().ok_or(TokenError::Randomness)?;
        let cached = self.record(&cluster);
        self.change(move |transaction| {
            let now = UnixSeconds::from(now);
            existing_cluster(transaction, &cluster, cached.clone())
                .map_err(|_| TokenError::Unknown(cluster.clone()))?;
            if transaction.count::<Token>()? >= TOKENS_MAX {
                return Err(TokenError::Full);
            }
            let mut token = Token {
                cluster: cluster.to_string(),
                secret_hash: bearer.hash(),
                created: now,
                expires: now + ttl,
                used: None,
            };
            // Times are in whole seconds, and a revocation in this second is older than the token.
            if let Some(revocation) =
                transaction.get::<Revocation>(&Revoked::Agents(cluster.clone()).key())?
            {
                token.created = now.max(revocation.at + Duration::from_secs(1));
            }
            transaction.put(&bearer.id(), &token)?;
            Ok((bearer.clone(), token))
        })
        .await
    }

    /// All enrollment tokens that are kept and not void.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn tokens(&self) -> Result<Vec<TokenEntry>, StoreError> {
        let mut tokens = self.with_store(|store| store.list::<Token>("")).await?;
        tokens.retain(|(_, token)| !self.is_void(token));
        Ok(tokens.into_iter().map(|(id, token)| TokenEntry { id, token }).collect())
    }

    /// Returns true if all agents of the token's cluster were revoked since it was made, as far as memory knows.
    pub(super) fn is_void(&self, token: &Token) -> bool {
        let Some(cluster) = token.cluster_id() else { return false };
        token.is_void(self.cache().revocations.get(&Revoked::Agents(cluster)))
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
        self.with_store(move |store| {
            let token = store.get::<Token>(&bearer.id())?.ok_or(TokenRefused::Unknown)?;
            let cluster = token.cluster_id().ok_or(TokenRefused::Unknown)?;
            let is_there =
                store.get::<Cluster>(cluster.as_str())?.is_none_or(|found| found.tombstone.is_none());
            let revocation = store.get::<Revocation>(&Revoked::Agents(cluster.clone()).key())?;
            let token_grant = token.grant_for(&bearer, &pin, revocation.as_ref(), now.into())?;
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
            let cluster = token.cluster_id().ok_or(TokenRefused::Unknown)?;
            let revocation = transaction.get::<Revocation>(&Revoked::Agents(cluster.clone()).key())?;
            let cluster = match token.grant_for(&bearer, &pin, revocation.as_ref(), now.into())? {
                TokenGrant::NewAgent(cluster) => cluster,
                TokenGrant::Repeat(answer) => return Ok(answer),
            };
            if existing_cluster(transaction, &cluster, None).is_err() {
                return Err(TokenRefused::Deleted);
            }
            let answer = agents::put(transaction, (&cluster, &instance), &agent, now)?;
            let answer = answer.ok_or(TokenRefused::Full)?;
            if let Some(workload) = &workload {
                attestations::record(transaction, &cluster, workload)?;
            }
            token.used = Some(TokenUse {
                pin: pin.clone(),
                instance: instance.clone(),
                at: now.into(),
                answer: answer.clone(),
            });
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

    /// Returns true if all agents of the cluster were revoked after the token was made: it would enroll another one.
    fn is_void(&self, revocation: Option<&Revocation>) -> bool {
        revocation.is_some_and(|revocation| self.created <= revocation.at)
    }

    fn grant_for(
        &self,
        bearer: &BearerToken,
        pin: &str,
        revocation: Option<&Revocation>,
        now: UnixSeconds,
    ) -> Result<TokenGrant, TokenRefused> {
        // The secret is checked first: a client without it learns nothing, not even by the time of the answer.
        let hash = bearer.hash();
        verify_slices_are_equal(hash.as_bytes(), self.secret_hash.as_bytes())
            .map_err(|_| TokenRefused::Secret)?;
        if self.is_void(revocation) {
            return Err(TokenRefused::Void);
        }
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
