//! Dial tokens, by which callers without a certificate are connected to targets and do nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use policy::DIAL_TOKEN_PREFIX;
use proto::ClusterId;

use super::Directory;
use super::bearer_token::{BearerToken, NotAToken};
use super::clusters::NAME_RESERVED;
use super::networks::NetworkName;
use super::records::{DialToken, UnixSeconds};
use super::store::StoreError;
use super::tombstones::existing_cluster;

/// Most tokens that are kept, including expired ones until they are removed.
pub const DIAL_TOKENS_MAX: usize = 10_000;

/// Most clusters and networks of one token.
pub const DIAL_TOKEN_CLUSTERS_MAX: usize = 100;

/// Longest lifetime of a token.
pub const DIAL_TTL_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Shortest lifetime of a token.
const DIAL_TTL_MIN: Duration = Duration::from_secs(60);

// A token never means another cluster that got the name of a deleted one.
const _: () = assert!(DIAL_TTL_MAX.as_secs() < NAME_RESERVED.as_secs());

/// A dial token as its holder has it: `tombolo-dial-ID.SECRET`. `Debug` shows only the ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DialBearer(BearerToken);

/// The clusters and networks of a token.
#[derive(Debug, Clone, Default)]
pub struct DialScope {
    /// Clusters that are named one by one.
    pub clusters: BTreeSet<ClusterId>,
    /// Networks, with the clusters that are in them when the token is used.
    pub networks: BTreeSet<NetworkName>,
}

/// A token in a listing.
#[derive(Debug, Clone)]
pub struct DialTokenEntry {
    /// The part between prefix and dot.
    pub id: String,
    /// The record of the token.
    pub token: Arc<DialToken>,
}

/// The reason why no token was created.
#[derive(Debug, thiserror::Error)]
pub enum DialTokenError {
    /// It is for a cluster that does not exist.
    #[error("there is no cluster {0}; make it first: tombolo cluster create {0}")]
    Unknown(ClusterId),
    /// The lifetime is too short or too long.
    #[error(
        "a dial token holds for {} minute to {} days",
        DIAL_TTL_MIN.as_secs() / 60,
        DIAL_TTL_MAX.as_secs() / (24 * 60 * 60)
    )]
    Ttl,
    /// It is for no cluster, or for too many.
    #[error(
        "a dial token is for 1 to {max} clusters and networks; name each by --cluster or --network",
        max = DIAL_TOKEN_CLUSTERS_MAX
    )]
    Clusters,
    /// The limit of tokens is reached.
    #[error(
        "{max} dial tokens are kept, which is the most; revoke some, or wait until they expire",
        max = DIAL_TOKENS_MAX
    )]
    Full,
    /// The system has no random bytes.
    #[error("the system has no random bytes for a token")]
    Randomness,
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The reason why a token admits nobody. Clients get one answer for every reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DialTokenRefused {
    /// There is no such token, or its secret is wrong.
    #[error("it is not known")]
    Unknown,
    /// It belongs to another user.
    #[error("it is another user's")]
    Owner,
    /// The token has expired by now.
    #[error("it has expired")]
    Expired,
}

impl Directory {
    /// Creates a token by which `user` is connected to targets of these clusters, and of the clusters that
    /// are in these networks when it is used. The token cannot be shown a second time.
    ///
    /// # Errors
    /// [`DialTokenError`].
    pub async fn create_dial_token(
        &self,
        user: String,
        DialScope { clusters, networks }: DialScope,
        ttl: Duration,
        now: SystemTime,
    ) -> Result<(DialBearer, DialTokenEntry), DialTokenError> {
        if !(DIAL_TTL_MIN..=DIAL_TTL_MAX).contains(&ttl) {
            return Err(DialTokenError::Ttl);
        }
        if !(1..=DIAL_TOKEN_CLUSTERS_MAX).contains(&(clusters.len() + networks.len())) {
            return Err(DialTokenError::Clusters);
        }
        if self.cache().dial_tokens.len() >= DIAL_TOKENS_MAX {
            self.remove_expired_tokens(now).await?;
        }
        let bearer = BearerToken::random().ok_or(DialTokenError::Randomness)?;
        let cached: Vec<_> = clusters.iter().map(|cluster| self.record(cluster)).collect();
        self.change(move |transaction| {
            let now = UnixSeconds::from(now);
            for (cluster, cached) in clusters.iter().zip(&cached) {
                existing_cluster(transaction, cluster, cached.clone())
                    .map_err(|_| DialTokenError::Unknown(cluster.clone()))?;
            }
            if transaction.count::<DialToken>()? >= DIAL_TOKENS_MAX {
                return Err(DialTokenError::Full);
            }
            let token = DialToken {
                user: user.clone(),
                clusters: clusters.iter().map(ClusterId::to_string).collect(),
                networks: networks.iter().map(NetworkName::to_string).collect(),
                secret_hash: bearer.hash(),
                created: now,
                expires: now + ttl,
            };
            let id = bearer.id();
            transaction.put(&id, &token)?;
            Ok((DialBearer(bearer.clone()), DialTokenEntry { id, token: Arc::new(token) }))
        })
        .await
    }

    /// All dial tokens that are kept, ordered by ID.
    #[must_use]
    pub fn dial_tokens(&self) -> Vec<DialTokenEntry> {
        let cache = self.cache();
        let tokens = cache.dial_tokens.iter();
        let entry = |(id, token): (&String, &Arc<DialToken>)| DialTokenEntry {
            id: id.clone(),
            token: Arc::clone(token),
        };
        let mut entries: Vec<_> = tokens.map(entry).collect();
        drop(cache);
        entries.sort_by(|one, other| one.id.cmp(&other.id));
        entries
    }

    /// Removes a dial token by its ID. Returns whether there was one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn revoke_dial_token(&self, id: String) -> Result<bool, StoreError> {
        self.change(move |transaction| transaction.remove::<DialToken>(&id)).await
    }

    /// Returns true if there is a dial token with this ID, expired or not.
    #[must_use]
    pub fn has_dial_token(&self, id: &str) -> bool {
        self.cache().dial_tokens.contains_key(id)
    }

    /// The token of `bearer`, if it belongs to `user`.
    ///
    /// # Errors
    /// [`DialTokenRefused`], for the log.
    pub fn admits_dial_token(
        &self,
        bearer: &DialBearer,
        user: &str,
        now: SystemTime,
    ) -> Result<DialTokenEntry, DialTokenRefused> {
        let DialBearer(bearer) = bearer;
        let id = bearer.id();
        let token = self.cache().dial_tokens.get(&id).cloned().ok_or(DialTokenRefused::Unknown)?;
        // The secret is checked first: a client without it learns nothing, not even by the time of the answer.
        verify_slices_are_equal(bearer.hash().as_bytes(), token.secret_hash.as_bytes())
            .map_err(|_| DialTokenRefused::Unknown)?;
        if token.user != user {
            return Err(DialTokenRefused::Owner);
        }
        if UnixSeconds::from(now) >= token.expires {
            return Err(DialTokenRefused::Expired);
        }
        Ok(DialTokenEntry { id, token })
    }
}

impl DialBearer {
    /// The complete token, for the client that asked for it.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{DIAL_TOKEN_PREFIX}{}", self.0.reveal())
    }
}

impl std::str::FromStr for DialBearer {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        text.strip_prefix(DIAL_TOKEN_PREFIX).ok_or(NotAToken)?.parse().map(Self)
    }
}

impl DialToken {
    /// The clusters that are named one by one.
    #[must_use]
    pub fn cluster_ids(&self) -> Vec<ClusterId> {
        self.clusters.iter().filter_map(|cluster| cluster.parse().ok()).collect()
    }

    /// The networks whose clusters the token is for.
    #[must_use]
    pub fn network_names(&self) -> Vec<NetworkName> {
        self.networks.iter().filter_map(|network| network.parse().ok()).collect()
    }
}
