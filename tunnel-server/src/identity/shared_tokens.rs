//! The static tokens in force: whoever reads their file again puts others in their place.

use std::sync::Arc;

use tokio::sync::watch;

use super::{Prefixes, StaticTokens};

/// The tokens in force. Clones are the same.
#[derive(Debug, Clone)]
pub struct SharedTokens {
    tokens: Arc<watch::Sender<Arc<StaticTokens>>>,
    prefixes: Prefixes,
}

impl SharedTokens {
    /// With these first.
    #[must_use]
    pub fn new(tokens: StaticTokens) -> Self {
        let prefixes = tokens.prefixes().clone();
        Self { tokens: Arc::new(watch::Sender::new(Arc::new(tokens))), prefixes }
    }

    /// In front of the names of all of them, whenever they are read.
    #[must_use]
    pub fn prefixes(&self) -> &Prefixes {
        &self.prefixes
    }

    /// Puts others in force.
    pub fn replace(&self, tokens: StaticTokens) {
        self.tokens.send_replace(Arc::new(tokens));
    }

    /// Those in force now.
    pub(super) fn current(&self) -> Arc<StaticTokens> {
        Arc::clone(&self.tokens.borrow())
    }

    /// Those in force, now and whenever others take their place.
    pub(super) fn changes(&self) -> watch::Receiver<Arc<StaticTokens>> {
        self.tokens.subscribe()
    }
}
