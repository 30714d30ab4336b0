//! The errors of discovery, and their log.

use daemon::error_chain;

use crate::apiserver::DocumentError;

/// The cluster gave no usable answer about its control plane.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The API server gave no answer.
    #[error("the API server does not name the control plane's addresses; {1}")]
    Document(#[source] DocumentError, &'static str),
    /// The answer cannot be parsed.
    #[error("the API server's answer is not of the requested kind")]
    Unreadable(#[source] serde_json::Error),
}

/// Logs the failure of a source when it is another one than before.
#[derive(Default)]
pub(super) struct FailureLog(Option<String>);

impl FailureLog {
    pub(super) fn log_if_new(&mut self, error: &DiscoveryError, log: impl FnOnce(&str)) {
        let message = error_chain(error).to_string();
        if self.0.as_ref() != Some(&message) {
            log(&message);
            self.0 = Some(message);
        }
    }

    /// The source answers again, so its next failure is logged.
    pub(super) fn reset(&mut self) {
        self.0 = None;
    }
}
