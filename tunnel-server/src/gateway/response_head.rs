//! The head of a cluster's answer: waits for it within a limit, cleans it, and says why none came.

use daemon::error_chain;
use http::header::LOCATION;
use http::{HeaderValue, Response};
use hyper::body::Incoming;
use proto::headers;
use proto::session::Health;
use proto::{AbortCode, ClusterId};
use tracing::debug;
use transport::{AbortCodes, Tunnel};

use super::head_timeout::{HeadTimeout, UploadProgress};
use super::refusal::Refusal;

/// The facts of an exchange that its answer's head is checked with.
pub(super) struct ResponseContext {
    pub(super) cluster: ClusterId,
    pub(super) abort_codes: AbortCodes,
    /// The prefix of the cluster's paths as its callers see them.
    pub(super) prefix: String,
}

impl ResponseContext {
    /// Waits for the head of `answer`, which comes over `tunnel`. With `limit`, neither the caller nor the
    /// agent may be silent for too long before it.
    ///
    /// # Errors
    /// The refusal that says why no head came.
    pub(super) async fn wait(
        &self,
        answer: impl Future<Output = hyper::Result<Response<Incoming>>>,
        limit: Option<UploadProgress>,
        tunnel: &Tunnel,
    ) -> Result<Response<Incoming>, Refusal> {
        let answer = match limit {
            Some(progress) => {
                progress.head_of(answer).await.map_err(|timeout| self.timed_out(timeout, tunnel.health()))?
            }
            None => answer.await,
        };
        answer.map_err(|error| self.failed(&error))
    }

    /// The refusal for a timeout, which names the caller, the agent or the link.
    fn timed_out(&self, timeout: HeadTimeout, health: Health) -> Refusal {
        match (timeout, health) {
            (HeadTimeout::Caller, _) => Refusal::CallerSilent,
            (HeadTimeout::Agent, Health::Live) => Refusal::AgentSilent(self.cluster.clone()),
            (HeadTimeout::Agent, Health::Suspect | Health::Lost) => Refusal::LinkSilent(self.cluster.clone()),
        }
    }

    /// Removes hop-by-hop headers from an answer's head, and adapts its `Location`.
    ///
    /// # Errors
    /// A redirect that leads out of the cluster.
    pub(super) fn clean<B>(&self, response: Response<B>) -> Result<Response<B>, Refusal> {
        let (mut parts, body) = response.into_parts();
        headers::clean_response(&mut parts.headers);
        let mut locations = parts.headers.get_all(LOCATION).iter();
        if let Some(location) = locations.next() {
            let within = location_within(location, &self.prefix).filter(|_| locations.next().is_none());
            let within = within.ok_or_else(|| Refusal::Redirect(self.cluster.clone()))?;
            parts.headers.insert(LOCATION, within);
        }
        Ok(Response::from_parts(parts, body))
    }

    /// The refusal for an answer that broke before its head.
    fn failed(&self, error: &hyper::Error) -> Refusal {
        let cluster = self.cluster.clone();
        debug!(%cluster, error = %error_chain(error), "no answer");
        match self.abort_codes.peer_code() {
            Some(AbortCode::ApiServerProtocolError) => Refusal::NotHttp(cluster),
            Some(code) => Refusal::Aborted(cluster, code),
            None if error.is_parse() => Refusal::NotHttp(cluster),
            None if error.is_user() => Refusal::BrokenBody,
            None => Refusal::Lost(cluster),
        }
    }
}

/// The target of a redirect as the caller sees it. `None` if it leaves the cluster: to another host, or up
/// out of the cluster's own paths. A caller's credential would follow it (CVE-2022-3172).
fn location_within(location: &HeaderValue, prefix: &str) -> Option<HeaderValue> {
    let location = location.to_str().ok()?;
    // Browsers drop tabs before they look for a second slash.
    let is_graphic = location.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_path = is_graphic && location.starts_with('/') && !location.starts_with("//");
    let path = location.split(['?', '#']).next().unwrap_or_default();
    // Callers resolve dot segments before they follow a redirect, and some resolve encoded ones too.
    let climbs = path.split('/').any(|segment| segment.to_ascii_lowercase().replace("%2e", ".") == "..");
    if is_path && !climbs { HeaderValue::try_from(format!("{prefix}{location}")).ok() } else { None }
}
