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

use super::error::ForwardError;
use super::head_timeout::{HeadTimeout, UploadProgress};
use super::location::LocationRules;
use crate::registry::Route;

/// The facts of an exchange that its answer's head is checked with.
pub(crate) struct ResponseContext {
    pub(crate) cluster: ClusterId,
    pub(crate) abort_codes: AbortCodes,
    /// The longest time that the API server may take until the head of its answer.
    pub(crate) deadline: Duration,
    /// The rules by which the answer's `Location` is adapted.
    pub(crate) locations: LocationRules,
}

impl ResponseContext {
    /// Waits for the head of `answer`, which comes by `route`. With `limit`, neither the caller nor the
    /// agent may be silent for too long before it.
    ///
    /// # Errors
    /// The refusal that says why no head came.
    pub(crate) async fn wait(
        &self,
        answer: impl Future<Output = hyper::Result<Response<Incoming>>>,
        limit: Option<UploadProgress>,
        route: &Route,
    ) -> Result<Response<Incoming>, ForwardError> {
        let answer = match limit {
            Some(progress) => {
                progress.head_of(answer).await.map_err(|timeout| self.timed_out(timeout, route.health()))?
            }
            None => answer.await,
        };
        answer.map_err(|error| self.failed(&error))
    }

    /// The refusal for a timeout, which names the caller, the agent or the link.
    fn timed_out(&self, timeout: HeadTimeout, health: Health) -> ForwardError {
        let (cluster, limit) = (self.cluster.clone(), agent_deadline(self.deadline));
        match (timeout, health) {
            (HeadTimeout::Caller, _) => ForwardError::CallerSilent,
            (HeadTimeout::Agent, Health::Live) => ForwardError::AgentSilent(cluster, limit),
            (HeadTimeout::Agent, Health::Suspect | Health::Lost) => ForwardError::LinkSilent(cluster, limit),
        }
    }

    /// Removes hop-by-hop headers from an answer's head, and adapts its `Location`.
    ///
    /// # Errors
    /// A redirect that leads out of the cluster.
    pub(crate) fn clean<B>(&self, response: Response<B>) -> Result<Response<B>, ForwardError> {
        let (mut parts, body) = response.into_parts();
        headers::clean_response(&mut parts.headers);
        self.locations.adapt(&self.cluster, parts.status, &mut parts.headers)?;
        Ok(Response::from_parts(parts, body))
    }

    /// The refusal for an answer that broke before its head.
    fn failed(&self, error: &hyper::Error) -> ForwardError {
        let cluster = self.cluster.clone();
        debug!(%cluster, error = %error_chain(error), "no answer");
        match self.abort_codes.peer_code() {
            Some(AbortCode::ApiServerProtocolError) => ForwardError::NotHttp(cluster),
            Some(AbortCode::TunnelLost) => ForwardError::Lost(cluster),
            Some(AbortCode::ApiServerSilent) => ForwardError::ApiServerSilent(cluster, self.deadline),
            Some(code) => ForwardError::Aborted(cluster, code),
            None if error.is_parse() => ForwardError::NotHttp(cluster),
            None if error.is_user() => ForwardError::BrokenBody,
            None => ForwardError::Lost(cluster),
        }
    }
}
