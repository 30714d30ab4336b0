//! The ledgers of this process's tunnels: which streams of each were begun, for servers that ask about a silent
//! tunnel over another one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::stream_ledger::{Fenced, StreamLedger};
use proto::wire::{StreamQuery, StreamReport, Welcome};

/// Most tunnels that have ended and whose ledgers are kept. A server may still ask for their streams.
pub const ENDED_TUNNELS_MAX: usize = 32;

/// The ledgers of all tunnels. Clones share them.
#[derive(Clone, Default)]
pub struct TunnelLedgers(Arc<Mutex<VecDeque<LedgerEntry>>>);

struct LedgerEntry {
    /// The number of the tunnel, as its greeting has it.
    sequence: u64,
    server: ServerIdentity,
    ledger: SharedLedger,
    /// Closes the tunnel. `None` once it has ended.
    close: Option<Box<dyn Fn() + Send>>,
}

/// The process of a server. It may ask about its own tunnels only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerIdentity {
    id: String,
    /// Names the process. Empty from a server that does not send it.
    boot: Vec<u8>,
}

/// The ledger of one tunnel. Clones are the same ledger.
#[derive(Debug, Clone, Default)]
pub struct SharedLedger(Arc<Mutex<StreamLedger>>);

/// Marks the tunnel as ended when it is dropped.
#[must_use = "the tunnel counts as ended when this is dropped"]
pub struct LedgerGuard {
    ledgers: TunnelLedgers,
    ledger: SharedLedger,
}

impl TunnelLedgers {
    /// Adds the ledger of a new tunnel to `server`, which this process has dialed as its tunnel number `sequence`.
    /// `close` closes that tunnel.
    pub fn open(
        &self,
        server: ServerIdentity,
        sequence: u64,
        close: impl Fn() + Send + 'static,
    ) -> LedgerGuard {
        let ledger = SharedLedger::default();
        let entry = LedgerEntry { sequence, server, ledger: ledger.clone(), close: Some(Box::new(close)) };
        self.entries().push_back(entry);
        LedgerGuard { ledgers: self.clone(), ledger }
    }

    /// Answers a question of `server` about one of its tunnels, and closes that tunnel if the server has. Of a
    /// tunnel that is not known, nothing is promised.
    #[must_use]
    pub fn answer(&self, server: &ServerIdentity, query: &StreamQuery) -> StreamReport {
        let entries = self.entries();
        let found = entries.iter().find(|entry| entry.sequence == query.tunnel && entry.server == *server);
        let Some(LedgerEntry { ledger, close, .. }) = found else {
            return StreamReport { query: query.query, tunnel: query.tunnel, refused: Vec::new() };
        };
        let report = ledger.lock().answer(query);
        if query.closed {
            close.iter().for_each(|close| close());
        }
        report
    }

    fn ended(&self, ledger: &SharedLedger) {
        let mut entries = self.entries();
        let ended = entries.iter_mut().find(|entry| Arc::ptr_eq(&entry.ledger.0, &ledger.0));
        ended.into_iter().for_each(|entry| entry.close = None);
        let is_full = entries.iter().filter(|entry| entry.close.is_none()).count() > ENDED_TUNNELS_MAX;
        // The oldest one: they are in the order of their greetings.
        if is_full && let Some(oldest) = entries.iter().position(|entry| entry.close.is_none()) {
            entries.remove(oldest);
        }
    }

    fn entries(&self) -> MutexGuard<'_, VecDeque<LedgerEntry>> {
        // Every change is a single one, so a poisoned lock does no harm.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerIdentity {
    /// The server process that has sent this Welcome.
    #[must_use]
    pub fn from_welcome(welcome: &Welcome) -> Self {
        Self { id: welcome.server_id.clone(), boot: welcome.boot_nonce.clone() }
    }

    /// The name of the server, which its next process keeps.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl SharedLedger {
    /// Records that a stream begins to be carried out.
    ///
    /// # Errors
    /// The stream is fenced, and nothing of it may be sent on.
    pub fn begin(&self, stream: u64) -> Result<(), Fenced> {
        self.lock().begin(stream)
    }

    fn lock(&self) -> MutexGuard<'_, StreamLedger> {
        // A panic under the lock leaves a valid ledger behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LedgerGuard {
    /// The tunnel's ledger, for its streams.
    #[must_use]
    pub fn ledger(&self) -> SharedLedger {
        self.ledger.clone()
    }
}

impl Drop for LedgerGuard {
    fn drop(&mut self) {
        self.ledgers.ended(&self.ledger);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_server_is_answered_about_its_own_tunnels_only() {
        let ledgers = TunnelLedgers::default();
        let (one, other) = (server("a", 1), server("a", 2));
        let guard = ledgers.open(one.clone(), 4, || ());

        assert_eq!(ledgers.answer(&other, &query(4)).refused, [0; 0]);
        assert_eq!(ledgers.answer(&one, &query(5)).refused, [0; 0]);
        assert_eq!(guard.ledger().begin(7), Ok(()), "it was not fenced for others");
        assert_eq!(ledgers.answer(&one, &query(4)).refused, [8]);
        assert_eq!(guard.ledger().begin(8), Err(Fenced));
    }

    #[test]
    fn a_tunnel_that_its_server_has_closed_is_closed_here() {
        let (ledgers, closed) = (TunnelLedgers::default(), Arc::new(AtomicU32::new(0)));
        let counter = Arc::clone(&closed);
        let guard = ledgers.open(server("a", 1), 4, move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let open = ledgers.answer(&server("a", 1), &query(4));
        assert_eq!(open.refused, [7, 8]);
        assert_eq!(closed.load(Ordering::Relaxed), 0);

        let report = ledgers.answer(&server("a", 1), &StreamQuery { closed: true, ..query(4) });

        assert_eq!((closed.load(Ordering::Relaxed), report.refused), (1, vec![7, 8]));
        assert_eq!(guard.ledger().begin(9), Err(Fenced));
    }

    #[test]
    fn ledgers_of_ended_tunnels_are_kept_up_to_the_limit() {
        let (ledgers, server) = (TunnelLedgers::default(), server("a", 1));
        let live = ledgers.open(server.clone(), 1, || ());
        for sequence in 2..=ENDED_TUNNELS_MAX as u64 + 2 {
            let ended = ledgers.open(server.clone(), sequence, || ());
            assert_eq!(ended.ledger().begin(7), Ok(()));
        }

        assert_eq!(ledgers.entries().len(), ENDED_TUNNELS_MAX + 1);
        let refused = [1, 2, 3].map(|tunnel| ledgers.answer(&server, &query(tunnel)).refused);
        assert_eq!(refused, [vec![7, 8], vec![], vec![8]], "the oldest that has ended is forgotten");
        drop(live);
    }

    fn server(id: &str, boot: u8) -> ServerIdentity {
        ServerIdentity::from_welcome(&Welcome {
            server_id: id.to_owned(),
            boot_nonce: vec![boot; 16],
            ..Welcome::default()
        })
    }

    fn query(tunnel: u64) -> StreamQuery {
        StreamQuery { query: 1, tunnel, streams: vec![7, 8], closed: false }
    }
}
