//! An agent's record of the streams of one tunnel: those that it has begun to carry out, and those that it has
//! promised never to begin.
//!
//! Both steps change one record, so a stream is either begun or fenced, and never both. The server may therefore
//! send a fenced stream's request again over another tunnel, and no request is carried out twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::inquiry::ASKED_MAX;
use crate::wire::{StreamQuery, StreamReport};

/// Most streams of a tunnel that its agent fences: as many as a server may have open. Further ones count as
/// begun.
pub const FENCED_MAX: usize = 4096;
const _: () = assert!(ASKED_MAX <= FENCED_MAX);

/// Most gaps in the numbers of begun streams that are remembered. Streams in older gaps count as begun.
const RANGES_MAX: usize = 256;

/// The streams of one tunnel, by the number of their first frame.
#[derive(Debug, Default)]
pub struct StreamLedger {
    /// First and last number of each range of streams that were begun.
    begun: BTreeMap<u64, u64>,
    /// Below this number nothing is known, so that every stream counts as begun.
    unknown_below: u64,
    fenced: BTreeSet<u64>,
    is_closed: bool,
}

/// The stream was fenced before it arrived, so it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this stream was reported as not begun, and is refused")]
pub struct Fenced;

impl StreamLedger {
    /// Records that a stream begins to be carried out. Nothing of it may have been sent on before. Zero is the
    /// number of a server that does not count its streams.
    ///
    /// # Errors
    /// The stream is fenced, and nothing of it may be sent on.
    pub fn begin(&mut self, stream: u64) -> Result<(), Fenced> {
        if self.is_closed || self.fenced.contains(&stream) {
            return Err(Fenced);
        }
        if stream > 0 {
            self.insert(stream);
        }
        Ok(())
    }

    /// Fences a stream that was not begun. Returns false if it was begun, or may have been.
    pub fn fence(&mut self, stream: u64) -> bool {
        if self.fenced.contains(&stream) {
            return true;
        }
        if stream == 0 || self.may_have_begun(stream) {
            return false;
        }
        // A closed ledger begins nothing, so it need not remember.
        if self.is_closed {
            return true;
        }
        self.fenced.len() < FENCED_MAX && self.fenced.insert(stream)
    }

    /// Fences every stream that was not begun.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Answers a query about this tunnel, and so fences the streams that the answer has. Streams beyond
    /// [`ASKED_MAX`] are not looked at.
    pub fn answer(&mut self, query: &StreamQuery) -> StreamReport {
        if query.closed {
            self.close();
        }
        let asked = query.streams.iter().copied().take(ASKED_MAX);
        let refused = asked.filter(|stream| self.fence(*stream)).collect();
        StreamReport { query: query.query, tunnel: query.tunnel, refused }
    }

    fn may_have_begun(&self, stream: u64) -> bool {
        let range = self.begun.range(..=stream).next_back();
        stream < self.unknown_below || range.is_some_and(|(_, last)| stream <= *last)
    }

    fn insert(&mut self, stream: u64) {
        if self.may_have_begun(stream) {
            return;
        }
        let last = stream.checked_add(1).and_then(|next| self.begun.remove(&next)).unwrap_or(stream);
        match self.begun.range_mut(..stream).next_back() {
            Some((_, before)) if *before + 1 == stream => *before = last,
            _ => drop(self.begun.insert(stream, last)),
        }
        if self.begun.len() > RANGES_MAX
            && let Some((_, last)) = self.begun.pop_first()
        {
            self.unknown_below = last.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One thing that happens to a ledger.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        Begin(u64),
        Fence(u64),
        Close,
    }

    fn step() -> impl Strategy<Value = Step> {
        // Few numbers that meet often, many that make gaps, and the ends.
        let number = prop_oneof![8 => 0_u64..40, 8 => 0_u64..4000, 1 => u64::MAX - 2..=u64::MAX];
        prop_oneof![
            20 => number.clone().prop_map(Step::Begin),
            20 => number.prop_map(Step::Fence),
            1 => Just(Step::Close),
        ]
    }

    proptest! {
        #[test]
        fn no_stream_is_both_begun_and_fenced(steps in prop::collection::vec(step(), 1..2000)) {
            let (mut ledger, mut begun, mut fenced) = (StreamLedger::default(), BTreeSet::new(), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Begin(stream) => if ledger.begin(stream).is_ok() { begun.insert(stream); }
                    Step::Fence(stream) => if ledger.fence(stream) { fenced.insert(stream); }
                    Step::Close => ledger.close(),
                }
                prop_assert!(ledger.begun.len() <= RANGES_MAX && ledger.fenced.len() <= FENCED_MAX);
            }
            prop_assert_eq!(begun.intersection(&fenced).next(), None);
        }

        #[test]
        fn streams_are_remembered_whatever_their_order(
            order in Just((1..=RANGES_MAX as u64).collect::<Vec<_>>()).prop_shuffle(),
            begun in 0..RANGES_MAX,
        ) {
            let mut ledger = StreamLedger::default();
            for stream in &order[..begun] {
                prop_assert_eq!(ledger.begin(*stream), Ok(()));
            }
            for (position, stream) in order.iter().enumerate() {
                prop_assert_eq!(ledger.fence(*stream), position >= begun, "stream {}", stream);
            }
        }
    }

    #[test]
    fn a_fenced_stream_is_refused_and_reported_again() {
        let mut ledger = StreamLedger::default();
        ledger.begin(1).unwrap();
        let query = |query| StreamQuery { query, tunnel: 3, streams: vec![1, 2, 0], closed: false };

        let report = ledger.answer(&query(1));

        assert_eq!(report, StreamReport { query: 1, tunnel: 3, refused: vec![2] });
        assert_eq!(ledger.begin(2), Err(Fenced));
        assert_eq!(ledger.answer(&query(2)).refused, [2], "the first report may have been lost");
        assert_eq!(ledger.begin(3), Ok(()), "others go on");
    }

    #[test]
    fn a_closed_tunnel_begins_nothing_and_needs_no_memory() {
        let mut ledger = StreamLedger::default();
        ledger.begin(1).unwrap();

        let closed = StreamQuery { query: 1, tunnel: 3, streams: vec![1, 2], closed: true };
        assert_eq!(ledger.answer(&closed).refused, [2]);

        assert_eq!((ledger.begin(2), ledger.begin(9), ledger.fenced.len()), (Err(Fenced), Err(Fenced), 0));
    }

    #[test]
    fn beyond_its_limits_a_ledger_promises_nothing() {
        let mut ledger = StreamLedger::default();
        (1..=FENCED_MAX as u64).for_each(|stream| assert!(ledger.fence(stream * 2)));
        assert!(!ledger.fence(1) && ledger.begin(1).is_ok(), "no room for another promise");

        let mut ledger = StreamLedger::default();
        (1..=RANGES_MAX as u64 + 1).for_each(|stream| ledger.begin(stream * 2).unwrap());
        assert!(!ledger.fence(1), "its gap is forgotten");
        assert!(ledger.fence(5));

        let streams = (1..=ASKED_MAX as u64 + 1).collect();
        let query = StreamQuery { query: 1, tunnel: 3, streams, closed: false };
        assert_eq!(StreamLedger::default().answer(&query).refused.len(), ASKED_MAX);
    }
}
