//! The inquiries about silent tunnels: exchanges wait for the fates of their streams, and live tunnels of the same
//! agent process ask for them.

use std::sync::{Arc, Weak};

use dashmap::DashMap;
use proto::greeting::BootNonce;
use proto::inquiry::{Inquiry, StreamFate};
use proto::spiffe::AgentId;
use proto::wire::{StreamQuery, StreamReport};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

/// The inquiries of all agent processes that have a tunnel, or whose streams somebody waits for.
#[derive(Debug, Default)]
pub(super) struct Inquiries(DashMap<ProcessKey, Weak<ProcessInquiry>>);

type ProcessKey = (AgentId, BootNonce);

/// The inquiry about the tunnels of one agent process.
#[derive(Debug, Default)]
pub(super) struct ProcessInquiry {
    /// Notifies those who wait for fates.
    state: watch::Sender<Inquiry>,
    /// Notifies the live tunnels that there is something to ask.
    due: Notify,
}

/// One stream whose fate is waited for. Dropped, it is forgotten.
struct ExpectedStream<'a> {
    process: &'a ProcessInquiry,
    tunnel: u64,
    stream: u64,
}

impl Inquiries {
    /// The inquiry of this process, which has just greeted. `alive_max` bounds the number of processes that have a tunnel.
    pub(super) fn of_process(
        &self,
        agent: &AgentId,
        boot: BootNonce,
        alive_max: usize,
    ) -> Arc<ProcessInquiry> {
        // Seldom, so that it costs little for each registration.
        if self.0.len() > 2 * alive_max + 64 {
            self.0.retain(|_, inquiry| inquiry.strong_count() > 0);
        }
        let mut entry = self.0.entry((agent.clone(), boot)).or_default();
        if let Some(inquiry) = entry.upgrade() {
            inquiry.change(Inquiry::revive);
            return inquiry;
        }
        let inquiry = Arc::new(ProcessInquiry::default());
        *entry = Arc::downgrade(&inquiry);
        inquiry
    }
}

impl ProcessInquiry {
    /// The fate of a stream of `tunnel`, once the agent has told it over another tunnel. Cancel-safe.
    pub(super) async fn fate(&self, tunnel: u64, stream: u64) -> StreamFate {
        let _expected = ExpectedStream::begin(self, tunnel, stream);
        let mut state = self.state.subscribe();
        loop {
            let known = state.borrow_and_update().fate(tunnel, stream);
            if let Some(fate) = known {
                return fate;
            }
            // The sender is ours, so it cannot be closed.
            let _ = state.changed().await;
        }
    }

    /// The next query to send over `tunnel`, for as long as `live` says that it is live. Cancel-safe.
    pub(super) async fn query_due(
        &self,
        tunnel: u64,
        live: &mut watch::Receiver<Option<Instant>>,
    ) -> StreamQuery {
        loop {
            // Created before the look, so that a change after it is not missed.
            let due = self.due.notified();
            let is_live = live.borrow_and_update().is_some();
            if is_live && let Some(query) = self.poll_query(tunnel) {
                return query;
            }
            let again_at = self.state.borrow().poll_timeout().filter(|_| is_live);
            // All arms are cancel-safe: each is looked at again.
            tokio::select! {
                () = due => {}
                changed = live.changed() => if changed.is_err() {
                    // The tunnel has ended, and asks nothing more.
                    return std::future::pending().await;
                },
                () = sleep_until(again_at.map_or_else(Instant::now, Instant::from)), if again_at.is_some() => {}
            }
        }
    }

    fn poll_query(&self, over: u64) -> Option<StreamQuery> {
        let mut query = None;
        self.state.send_if_modified(|inquiry| {
            query = inquiry.poll_query(Instant::now().into_std(), over);
            false
        });
        query
    }

    pub(super) fn handle_report(&self, report: &StreamReport) {
        self.state.send_modify(|inquiry| inquiry.handle_report(report));
        // There may be more to ask.
        self.due.notify_waiters();
    }

    /// Has the agent told that this server has closed the tunnel for good.
    pub(super) fn close(&self, tunnel: u64) {
        self.change(|inquiry| inquiry.close(tunnel));
        self.due.notify_waiters();
    }

    /// The process is gone: nobody waits for it any longer.
    pub(super) fn abandon(&self) {
        self.state.send_modify(Inquiry::abandon);
    }

    /// Changes the inquiry in a way that makes no fate known.
    fn change(&self, change: impl FnOnce(&mut Inquiry)) {
        self.state.send_if_modified(|inquiry| {
            change(inquiry);
            false
        });
    }
}

impl<'a> ExpectedStream<'a> {
    fn begin(process: &'a ProcessInquiry, tunnel: u64, stream: u64) -> Self {
        process.change(|inquiry| inquiry.expect(tunnel, stream));
        process.due.notify_waiters();
        Self { process, tunnel, stream }
    }
}

impl Drop for ExpectedStream<'_> {
    fn drop(&mut self) {
        self.process.change(|inquiry| inquiry.forget(self.tunnel, self.stream));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;
    use proto::inquiry::REPORT_MAX;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_live_tunnel_asks_for_the_streams_of_a_silent_one() {
        let (process, (_alive, mut live)) = (ProcessInquiry::default(), watch::channel(Some(Instant::now())));
        let mut asking = Box::pin(process.query_due(2, &mut live));
        assert!((&mut asking).now_or_never().is_none());
        let mut waiting = Box::pin(process.fate(1, 7));
        assert!((&mut waiting).now_or_never().is_none());

        let query = asking.await;
        assert_eq!((query.tunnel, &query.streams[..]), (1, &[7][..]));
        process.handle_report(&StreamReport { query: query.query, tunnel: 1, refused: vec![7] });

        assert_eq!(waiting.now_or_never(), Some(StreamFate::NeverBegun));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_that_is_not_live_asks_nothing_until_it_is() {
        let (process, (alive, mut live)) = (ProcessInquiry::default(), watch::channel(None));
        let mut waiting = Box::pin(process.fate(1, 7));
        assert!((&mut waiting).now_or_never().is_none());
        let mut asking = Box::pin(process.query_due(2, &mut live));
        assert!((&mut asking).now_or_never().is_none());

        alive.send_replace(Some(Instant::now()));

        assert_eq!(asking.now_or_never().unwrap().streams, [7]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_query_without_an_answer_is_repeated() {
        let (process, (_alive, mut live)) = (ProcessInquiry::default(), watch::channel(Some(Instant::now())));
        let mut waiting = Box::pin(process.fate(1, 7));
        assert!((&mut waiting).now_or_never().is_none());
        let (began, _first) = (Instant::now(), process.query_due(2, &mut live).await);

        let again = process.query_due(2, &mut live).await;

        assert_eq!((again.streams, began.elapsed() >= REPORT_MAX), (vec![7], true));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_no_longer_leaves_nothing_to_ask() {
        let (process, (_alive, mut live)) = (ProcessInquiry::default(), watch::channel(Some(Instant::now())));
        let mut waiting = Box::pin(process.fate(1, 7));
        assert!((&mut waiting).now_or_never().is_none());
        drop(waiting);
        let asking = tokio::time::timeout(Duration::from_secs(60), process.query_due(2, &mut live));
        assert!(asking.await.is_err());

        process.abandon();
        assert_eq!(process.fate(1, 7).now_or_never(), Some(StreamFate::MayHaveBegun));
    }

    #[test]
    fn a_process_has_one_inquiry_for_as_long_as_somebody_uses_it() {
        let inquiries = Inquiries::default();
        let agent = AgentId::parse("spiffe://tombolo/cluster/c/agent/x", "tombolo").unwrap();
        let of = |boot: u16| {
            let mut nonce = [0; 16];
            nonce[..2].copy_from_slice(&boot.to_be_bytes());
            inquiries.of_process(&agent, BootNonce(nonce), 1)
        };
        let first = of(1);
        assert!(Arc::ptr_eq(&first, &of(1)) && !Arc::ptr_eq(&first, &of(2)));

        (3..1000).for_each(|boot| drop(of(boot)));

        assert!(inquiries.0.len() < 100, "{}", inquiries.0.len());
        assert!(Arc::ptr_eq(&first, &of(1)));
    }
}
