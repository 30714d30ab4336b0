//! How far a drain has come.

/// What was asked and what was said. Nothing here is ever taken back.
#[derive(Debug, Default)]
pub(super) struct DrainState {
    asked_here: bool,
    asked_there: bool,
    said_drained: bool,
    heard_drained: bool,
    told_empty: bool,
}

impl DrainState {
    pub(super) fn is_asked(&self) -> bool {
        self.asked_here || self.asked_there
    }

    /// Asks; true the first time.
    pub(super) fn ask(&mut self) -> bool {
        !std::mem::replace(&mut self.asked_here, true)
    }

    /// The peer asked; true the first time.
    pub(super) fn peer_asked(&mut self) -> bool {
        !std::mem::replace(&mut self.asked_there, true)
    }

    /// The peer has nothing open. It can only say so in a drain, so this asks for one, too.
    pub(super) fn peer_drained(&mut self) {
        self.asked_there = true;
        self.heard_drained = true;
    }

    /// Whether `Drained` is to be said; true once.
    pub(super) fn may_say_drained(&mut self, streams_open: u32) -> bool {
        let now = self.is_asked() && streams_open == 0 && !self.said_drained;
        self.said_drained |= now;
        now
    }

    /// Whether both sides are empty; true once.
    ///
    /// A stream that the server opened just before it drained may reach the agent after the agent said `Drained`. The
    /// server still counts that stream, so it has not said `Drained`, and neither side comes to this point early.
    pub(super) fn is_newly_empty(&mut self, streams_open: u32) -> bool {
        let now = self.said_drained && self.heard_drained && streams_open == 0 && !self.told_empty;
        self.told_empty |= now;
        now
    }

    /// Whether this side is stopping, empty, and has nobody to wait for, because the peer is silent; true once.
    pub(super) fn is_alone(&mut self, streams_open: u32) -> bool {
        let now = self.asked_here && streams_open == 0 && !self.told_empty;
        self.told_empty |= now;
        now
    }
}
