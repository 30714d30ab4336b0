//! Follows the version of the API server, which servers show to callers.

use std::time::Duration;

use proto::greeting::is_kubernetes_version;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::debug;

use super::refresh::RETRY_EVERY;
use crate::apiserver::{ApiServer, DocumentError};

/// The document with the version. Everybody who is authenticated may read it.
const VERSION: &str = "/version";

/// Longest answer, in bytes. Real ones have some 400.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// Interval between two requests. An upgrade of the API server is seen within it.
const VERSION_EVERY: Duration = Duration::from_secs(300);

/// The parts of the answer that are of use here.
#[derive(serde::Deserialize)]
struct VersionInfo {
    #[serde(rename = "gitVersion")]
    git_version: String,
}

/// Asks for the version again and again, and publishes it when it has changed. Never ends.
pub(super) async fn follow(api_server: &ApiServer, published: &watch::Sender<String>) {
    let mut api_servers = api_server.changes();
    loop {
        let pause = match api_server.document(VERSION, ANSWER_BYTES_MAX).await {
            Ok(answer) => {
                publish(&answer, published);
                VERSION_EVERY
            }
            // The API server has answered, and will hardly answer otherwise soon.
            Err(DocumentError::Status(status)) => {
                debug!(%status, "the API server does not tell its version");
                VERSION_EVERY
            }
            Err(error) => {
                debug!(%error, "the API server's version is not known");
                RETRY_EVERY
            }
        };
        // Requests that go to other API servers from now on may meet another version.
        let _ = timeout(pause, api_servers.changed()).await;
    }
}

/// Publishes the version of an answer, if it has one and it has changed. Otherwise the last one holds.
fn publish(answer: &[u8], published: &watch::Sender<String>) {
    let Ok(VersionInfo { git_version }) = serde_json::from_slice(answer) else { return };
    if is_kubernetes_version(&git_version) {
        published.send_if_modified(|known| {
            let has_changed = *known != git_version;
            *known = git_version;
            has_changed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_version_of_an_api_server_is_published() {
        let published = watch::Sender::new(String::new());
        let mut seen = published.subscribe();
        for (answer, version) in [
            (r#"{"major":"1","gitVersion":"v1.36.3"}"#, Some("v1.36.3")),
            (r#"{"gitVersion":"v1.36.3"}"#, None),
            (r#"{"gitVersion":"v1.37.0+k3s1"}"#, Some("v1.37.0+k3s1")),
            (r#"{"gitVersion":"v1 \u001b[2J"}"#, None),
            (r#"{"gitVersion":""}"#, None),
            ("ok", None),
        ] {
            publish(answer.as_bytes(), &published);
            let changed = seen.has_changed().unwrap().then(|| seen.borrow_and_update().clone());
            assert_eq!(changed.as_deref(), version, "{answer}");
        }
        assert_eq!(*published.borrow(), "v1.37.0+k3s1");
    }
}
