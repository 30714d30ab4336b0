//! Callers with tokens of the host cluster, whose API server reviews them (TokenReview).
//! <https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-review-v1/>

mod error;
mod result;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use aws_lc_rs::rand::SystemRandom;
use daemon::Scope;
use serde_json::json;

pub use error::TokenReviewError;
pub use result::{ACCEPTED_FOR, REFUSED_FOR};

use super::host_api::HostApi;
use super::review_cache::ReviewCache;
use super::{Caller, Method, NotAuthenticated, Prefixes, RetainedToken};
use result::TokenReviewResult;

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// The reviewer of tokens, an API server.
pub struct TokenReviewer {
    method: Method,
    audiences: Arc<[String]>,
    prefixes: Prefixes,
    /// The key of the MACs under which tokens are cached. It ends with this process.
    key: Key,
    reviews: ReviewCache<TokenReviewResult>,
}

impl TokenReviewer {
    /// The reviewer with this `name` in the configuration, which tasks of `scope` call. A token must be for
    /// one of these `audiences`.
    ///
    /// # Errors
    ///
    /// The system has no randomness.
    pub fn new(
        name: &str,
        api: Arc<HostApi>,
        audiences: &[String],
        prefixes: Prefixes,
        scope: Scope,
    ) -> Result<Self, aws_lc_rs::error::Unspecified> {
        let method = format!("token-review:{name}");
        Ok(Self {
            method: Method::TokenReview(method.as_str().into()),
            audiences: audiences.into(),
            prefixes,
            key: Key::generate(HMAC_SHA256, &SystemRandom::new())?,
            reviews: ReviewCache::new(api, PATH, method, scope),
        })
    }

    pub(super) fn prefixes(&self) -> &Prefixes {
        &self.prefixes
    }

    /// The caller that `token` belongs to.
    pub(super) async fn caller(&self, token: &str, now: SystemTime) -> Result<Caller, NotAuthenticated> {
        let mut mac = [0; 32];
        mac.copy_from_slice(sign(&self.key, token.as_bytes()).as_ref());
        let question = || {
            json!({
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": { "token": token, "audiences": &*self.audiences },
            })
        };
        let (audiences, prefixes, shown) =
            (Arc::clone(&self.audiences), self.prefixes.clone(), token.to_owned());
        let read = move |status: &_| TokenReviewResult::from_status(status, &shown, &audiences, &prefixes);
        let caller = self.reviews.answer(&mac, question, read).await.caller(&self.method, now)?;
        Ok(Caller { token: Some(RetainedToken::new(token)), ..caller })
    }
}

impl fmt::Debug for TokenReviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenReviewer").field("method", &self.method).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
