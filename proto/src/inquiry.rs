//! A server's inquiry about the streams of silent tunnels, which an agent process answers over its live ones.
//!
//! A state machine without I/O. Exchanges say which streams they wait for (`expect`), live tunnels fetch the next
//! question (`poll_query`) and bring the answer (`handle_report`). There is one question at a time for each
//! process, so an agent never has more than one answer to write.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::wire::{StreamQuery, StreamReport};

/// Most streams in one query. The next query has the rest.
pub const ASKED_MAX: usize = 1024;

/// A question that was not answered within this time is asked again, over any tunnel that is live then.
pub const REPORT_MAX: Duration = Duration::from_secs(3);

/// The fate of a stream on a tunnel that is silent or has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamFate {
    /// The agent has not begun to carry it out, and has promised never to.
    NeverBegun,
    /// The agent has begun to carry it out, or may have.
    MayHaveBegun,
}

/// The inquiry about the tunnels of one agent process, each by its sequence number.
#[derive(Debug, Default)]
pub struct Inquiry {
    tunnels: BTreeMap<u64, TunnelInquiry>,
    outstanding: Option<OutstandingQuery>,
    queries: u64,
    /// The process is gone, so nobody will answer.
    is_abandoned: bool,
}

#[derive(Debug, Default)]
struct TunnelInquiry {
    /// The expected streams. `None` until their fate is known.
    streams: BTreeMap<u64, Option<StreamFate>>,
    /// The agent is to be told that this tunnel was closed.
    is_closed: bool,
}

#[derive(Debug)]
struct OutstandingQuery {
    query: StreamQuery,
    until: Instant,
}

impl Inquiry {
    /// Asks for a stream's fate, from the next query on.
    pub fn expect(&mut self, tunnel: u64, stream: u64) {
        self.tunnels.entry(tunnel).or_default().streams.entry(stream).or_default();
    }

    /// Forgets a stream, because nobody waits for its fate any more.
    pub fn forget(&mut self, tunnel: u64, stream: u64) {
        if let Some(inquiry) = self.tunnels.get_mut(&tunnel) {
            inquiry.streams.remove(&stream);
            self.prune(tunnel);
        }
    }

    /// Has the agent told that this side has closed the tunnel for good.
    pub fn close(&mut self, tunnel: u64) {
        self.tunnels.entry(tunnel).or_default().is_closed = true;
    }

    /// The process is gone: every fate stays unknown.
    pub fn abandon(&mut self) {
        self.is_abandoned = true;
    }

    /// The process has greeted again, so it will answer.
    pub fn revive(&mut self) {
        self.is_abandoned = false;
    }

    /// The fate of an expected stream, once it is known.
    #[must_use]
    pub fn fate(&self, tunnel: u64, stream: u64) -> Option<StreamFate> {
        let known = self.tunnels.get(&tunnel).and_then(|inquiry| *inquiry.streams.get(&stream)?);
        known.or_else(|| self.is_abandoned.then_some(StreamFate::MayHaveBegun))
    }

    /// The next query to send `over` this tunnel, which is live, if one is due.
    pub fn poll_query(&mut self, now: Instant, over: u64) -> Option<StreamQuery> {
        if self.is_abandoned || self.outstanding.as_ref().is_some_and(|outstanding| now < outstanding.until) {
            return None;
        }
        self.outstanding = None;
        let mut silent = self.tunnels.iter().filter(|(tunnel, _)| **tunnel != over);
        let (tunnel, inquiry) = silent.find(|(_, inquiry)| inquiry.is_due())?;
        let unknown = inquiry.streams.iter().filter(|(_, fate)| fate.is_none()).map(|(stream, _)| *stream);
        self.queries += 1;
        let query = StreamQuery {
            query: self.queries,
            tunnel: *tunnel,
            streams: unknown.take(ASKED_MAX).collect(),
            closed: inquiry.is_closed,
        };
        self.outstanding = Some(OutstandingQuery { query: query.clone(), until: now + REPORT_MAX });
        Some(query)
    }

    /// The time at which an unanswered question is asked again.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.outstanding.as_ref().map(|outstanding| outstanding.until)
    }

    /// Takes the agent's report. A late one counts, too: it is a promise for ever.
    pub fn handle_report(&mut self, report: &StreamReport) {
        let answered = self.outstanding.take_if(|outstanding| {
            outstanding.query.query == report.query && outstanding.query.tunnel == report.tunnel
        });
        let Some(inquiry) = self.tunnels.get_mut(&report.tunnel) else { return };
        for stream in &report.refused {
            inquiry.learn(*stream, StreamFate::NeverBegun);
        }
        if let Some(OutstandingQuery { query, .. }) = answered {
            query.streams.iter().for_each(|stream| inquiry.learn(*stream, StreamFate::MayHaveBegun));
            inquiry.is_closed &= !query.closed;
        }
        self.prune(report.tunnel);
    }

    fn prune(&mut self, tunnel: u64) {
        let is_over = |inquiry: &TunnelInquiry| inquiry.streams.is_empty() && !inquiry.is_closed;
        if self.tunnels.get(&tunnel).is_some_and(is_over) {
            self.tunnels.remove(&tunnel);
        }
    }
}

impl TunnelInquiry {
    fn is_due(&self) -> bool {
        self.is_closed || self.streams.values().any(Option::is_none)
    }

    /// Notes the fate of an expected stream, unless it is known.
    fn learn(&mut self, stream: u64, fate: StreamFate) {
        if let Some(known) = self.streams.get_mut(&stream) {
            known.get_or_insert(fate);
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test needs one instant to begin virtual time from")]
mod tests {
    use super::*;

    const SILENT: u64 = 1;
    const LIVE: u64 = 2;

    #[test]
    fn a_report_tells_the_fate_of_every_stream_that_was_asked_for() {
        let (mut inquiry, now) = (Inquiry::default(), Instant::now());
        [4, 5].into_iter().for_each(|stream| inquiry.expect(SILENT, stream));

        let query = inquiry.poll_query(now, LIVE).unwrap();
        inquiry.expect(SILENT, 6);
        inquiry.handle_report(&report(&query, &[5]));

        assert_eq!(query, StreamQuery { query: 1, tunnel: SILENT, streams: vec![4, 5], closed: false });
        let fates = [4, 5, 6].map(|stream| inquiry.fate(SILENT, stream));
        assert_eq!(fates, [Some(StreamFate::MayHaveBegun), Some(StreamFate::NeverBegun), None]);
        assert_eq!(inquiry.poll_query(now, LIVE).unwrap().streams, [6]);
    }

    #[test]
    fn one_question_is_asked_at_a_time_and_never_over_its_own_tunnel() {
        let (mut inquiry, now) = (Inquiry::default(), Instant::now());
        inquiry.expect(SILENT, 1);
        assert_eq!(inquiry.poll_query(now, SILENT), None);

        let first = inquiry.poll_query(now, LIVE).unwrap();
        assert_eq!(inquiry.poll_query(now, LIVE), None);
        assert_eq!(inquiry.poll_timeout(), Some(now + REPORT_MAX));
        let again = inquiry.poll_query(now + REPORT_MAX, LIVE + 1).unwrap();

        assert_eq!((first.streams, again.query), (again.streams.clone(), 2));
        inquiry.handle_report(&report(&again, &[]));
        assert_eq!((inquiry.poll_timeout(), inquiry.poll_query(now, LIVE)), (None, None));
    }

    #[test]
    fn a_late_report_counts_only_for_what_it_promises() {
        let (mut inquiry, now) = (Inquiry::default(), Instant::now());
        [1, 2].into_iter().for_each(|stream| inquiry.expect(SILENT, stream));
        let first = inquiry.poll_query(now, LIVE).unwrap();
        let _again = inquiry.poll_query(now + REPORT_MAX, LIVE).unwrap();

        inquiry.handle_report(&report(&first, &[2, 99]));

        assert_eq!(
            [1, 2, 99].map(|stream| inquiry.fate(SILENT, stream)),
            [None, Some(StreamFate::NeverBegun), None]
        );
        assert!(inquiry.poll_timeout().is_some(), "the later question is still open");
    }

    #[test]
    fn more_streams_than_fit_are_asked_for_one_query_after_the_other() {
        let (mut inquiry, now) = (Inquiry::default(), Instant::now());
        (0..ASKED_MAX as u64 + 1).for_each(|stream| inquiry.expect(SILENT, stream));
        let first = inquiry.poll_query(now, LIVE).unwrap();
        inquiry.handle_report(&report(&first, &[]));

        let second = inquiry.poll_query(now, LIVE).unwrap();

        assert_eq!((first.streams.len(), second.streams.len()), (ASKED_MAX, 1));
    }

    #[test]
    fn an_agent_is_told_that_a_tunnel_was_closed_until_it_has_heard() {
        let (mut inquiry, now) = (Inquiry::default(), Instant::now());
        inquiry.close(SILENT);
        assert!(inquiry.poll_query(now, LIVE).unwrap().closed);
        let again = inquiry.poll_query(now + REPORT_MAX, LIVE).unwrap();
        assert!(again.closed);

        inquiry.handle_report(&report(&again, &[]));

        assert!(inquiry.poll_query(now, LIVE).is_none() && inquiry.tunnels.is_empty());
    }

    #[test]
    fn what_nobody_waits_for_is_not_asked_and_leaves_nothing_behind() {
        let (mut inquiry, now) = (Inquiry::default(), Instant::now());
        inquiry.expect(SILENT, 1);
        inquiry.forget(SILENT, 1);
        assert!(inquiry.poll_query(now, LIVE).is_none() && inquiry.tunnels.is_empty());
    }

    #[test]
    fn of_a_process_that_is_gone_every_fate_is_unknown() {
        let (mut inquiry, now) = (Inquiry::default(), Instant::now());
        inquiry.expect(SILENT, 1);
        inquiry.abandon();
        assert_eq!(inquiry.fate(SILENT, 1), Some(StreamFate::MayHaveBegun));
        assert_eq!(inquiry.poll_query(now, LIVE), None);
    }

    fn report(query: &StreamQuery, refused: &[u64]) -> StreamReport {
        StreamReport { query: query.query, tunnel: query.tunnel, refused: refused.to_vec() }
    }
}
