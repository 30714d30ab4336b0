//! The progress of a drain: what each side has asked for and said.

/// Steps of a drain that have happened. None of them is ever taken back.
#[derive(Debug, Default)]
pub(super) struct DrainState {
    asked_here: bool,
    asked_there: bool,
    said_drained: bool,
    peer_said_drained: bool,
    reported_empty: bool,
}

impl DrainState {
    pub(super) fn is_asked(&self) -> bool {
        self.asked_here || self.asked_there
    }

    /// Asks for a drain from this side; true the first time.
    pub(super) fn ask(&mut self) -> bool {
        !std::mem::replace(&mut self.asked_here, true)
    }

    /// Notes that the peer asked for a drain; true the first time.
    pub(super) fn peer_asked(&mut self) -> bool {
        !std::mem::replace(&mut self.asked_there, true)
    }

    /// Notes that the peer has no open stream. It says so only in a drain, so this counts as asking for one,
    /// too.
    pub(super) fn peer_drained(&mut self) {
        self.asked_there = true;
        self.peer_said_drained = true;
    }

    /// Returns true once, when `Drained` is to be sent.
    pub(super) fn may_say_drained(&mut self, streams_open: u32) -> bool {
        let now = self.is_asked() && streams_open == 0 && !self.said_drained;
        self.said_drained |= now;
        now
    }

    /// Returns true once, when both sides are empty.
    ///
    /// A stream that the server opened just before it drained may reach the agent after the agent said
    /// `Drained`. The server still counts that stream, so it has not said `Drained`, and neither side comes
    /// to this point early.
    pub(super) fn is_newly_empty(&mut self, streams_open: u32) -> bool {
        let now = self.said_drained && self.peer_said_drained && streams_open == 0 && !self.reported_empty;
        self.reported_empty |= now;
        now
    }

    /// Returns true once, when this side is stopping, empty, and has nobody to wait for, because the peer is
    /// silent.
    pub(super) fn is_alone(&mut self, streams_open: u32) -> bool {
        let now = self.asked_here && streams_open == 0 && !self.reported_empty;
        self.reported_empty |= now;
        now
    }
}
