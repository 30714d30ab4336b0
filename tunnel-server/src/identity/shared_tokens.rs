//! The static tokens in force, which are replaced when their file has changed.

use std::sync::Arc;

use tokio::sync::watch;

use super::{Prefixes, StaticTokens};

/// The tokens in force. Clones share one state.
#[derive(Debug, Clone)]
pub struct SharedTokens {
    tokens: Arc<watch::Sender<Arc<StaticTokens>>>,
    prefixes: Prefixes,
}

impl SharedTokens {
    /// Begins with these tokens in force.
    #[must_use]
    pub fn new(tokens: StaticTokens) -> Self {
        let prefixes = tokens.prefixes().clone();
        Self { tokens: Arc::new(watch::Sender::new(Arc::new(tokens))), prefixes }
    }

    /// The prefixes of the names, which stay when the tokens are replaced.
    #[must_use]
    pub fn prefixes(&self) -> &Prefixes {
        &self.prefixes
    }

    /// Puts other tokens in force.
    pub fn replace(&self, tokens: StaticTokens) {
        self.tokens.send_replace(Arc::new(tokens));
    }

    /// The tokens that are in force now.
    pub(super) fn current(&self) -> Arc<StaticTokens> {
        Arc::clone(&self.tokens.borrow())
    }

    /// The tokens in force, and each replacement of them.
    pub(super) fn changes(&self) -> watch::Receiver<Arc<StaticTokens>> {
        self.tokens.subscribe()
    }
}
