//! The head of a cluster's answer: waits for it within a limit, cleans it, and says why none came.

use std::time::Duration;

use daemon::error_chain;
use http::Response;
use hyper::body::Incoming;
use proto::deadlines::agent_deadline;
use proto::headers;
use proto::session::Health;
use proto::{AbortCode, ClusterId};
use tracing::debug;
use transport::AbortCodes;

use super::head_timeout::{HeadTimeout, UploadProgress};
use super::location::LocationRules;
use super::refusal::Refusal;
use crate::registry::Route;

/// The facts of an exchange that its answer's head is checked with.
pub(super) struct ResponseContext {
    pub(super) cluster: ClusterId,
    pub(super) abort_codes: AbortCodes,
    /// The longest time that the API server may take until the head of its answer.
    pub(super) deadline: Duration,
    /// The rules by which the answer's `Location` is adapted.
    pub(super) locations: LocationRules,
}

impl ResponseContext {
    /// Waits for the head of `answer`, which comes by `route`. With `limit`, neither the caller nor the
    /// agent may be silent for too long before it.
    ///
    /// # Errors
    /// The refusal that says why no head came.
    pub(super) async fn wait(
        &self,
        answer: impl Future<Output = hyper::Result<Response<Incoming>>>,
        limit: Option<UploadProgress>,
        route: &Route,
    ) -> Result<Response<Incoming>, Refusal> {
        let answer = match limit {
            Some(progress) => {
                progress.head_of(answer).await.map_err(|timeout| self.timed_out(timeout, route.health()))?
            }
            None => answer.await,
        };
        answer.map_err(|error| self.failed(&error))
    }

    /// The refusal for a timeout, which names the caller, the agent or the link.
    fn timed_out(&self, timeout: HeadTimeout, health: Health) -> Refusal {
        let (cluster, limit) = (self.cluster.clone(), agent_deadline(self.deadline));
        match (timeout, health) {
            (HeadTimeout::Caller, _) => Refusal::CallerSilent,
            (HeadTimeout::Agent, Health::Live) => Refusal::AgentSilent(cluster, limit),
            (HeadTimeout::Agent, Health::Suspect | Health::Lost) => Refusal::LinkSilent(cluster, limit),
        }
    }

    /// Removes hop-by-hop headers from an answer's head, and adapts its `Location`.
    ///
    /// # Errors
    /// A redirect that leads out of the cluster.
    pub(super) fn clean<B>(&self, response: Response<B>) -> Result<Response<B>, Refusal> {
        let (mut parts, body) = response.into_parts();
        headers::clean_response(&mut parts.headers);
        self.locations.adapt(&self.cluster, parts.status, &mut parts.headers)?;
        Ok(Response::from_parts(parts, body))
    }

    /// The refusal for an answer that broke before its head.
    fn failed(&self, error: &hyper::Error) -> Refusal {
        let cluster = self.cluster.clone();
        debug!(%cluster, error = %error_chain(error), "no answer");
        match self.abort_codes.peer_code() {
            Some(AbortCode::ApiServerProtocolError) => Refusal::NotHttp(cluster),
            Some(AbortCode::TunnelLost) => Refusal::Lost(cluster),
            Some(AbortCode::ApiServerSilent) => Refusal::ApiServerSilent(cluster, self.deadline),
            Some(code) => Refusal::Aborted(cluster, code),
            None if error.is_parse() => Refusal::NotHttp(cluster),
            None if error.is_user() => Refusal::BrokenBody,
            None => Refusal::Lost(cluster),
        }
    }
}
