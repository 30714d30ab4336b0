//! Which identities this agent asserts at its API server, whatever the server asks for.

use proto::AllowList;
use proto::allow_list::{Assertable, NotAssertable};
use proto::wire::Assert;

/// The agent's own allow-list, from its own file; the server cannot widen it.
#[derive(Debug, Clone)]
pub struct Guard(AllowList);

impl Guard {
    /// A guard by this list.
    #[must_use]
    pub fn new(allow_list: AllowList) -> Self {
        Self(allow_list)
    }

    /// Whether `identity` may be asserted.
    ///
    /// # Errors
    ///
    /// As [`AllowList::check`].
    pub fn check(&self, identity: &Assert) -> Result<Assertable, NotAssertable> {
        self.0.check(identity)
    }
}
