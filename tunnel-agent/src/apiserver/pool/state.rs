//! The connections that a pool has now, and which of them is given away next.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use tokio::time::Instant;

use super::{Inner, SingleSlot, Slot, StreamSlot, Waiter};
use crate::apiserver::connection::{STREAMS_MAX, Single, Streams};
use crate::apiserver::credential::Snapshot;
use crate::apiserver::endpoints::Place;
use crate::apiserver::probing::Balance;

/// What the pool holds.
pub(super) struct State {
    /// Whose connections these are; `None` before the first request.
    pub(super) snapshot: Option<Arc<Snapshot>>,
    pub(super) shared: Vec<Shared>,
    pub(super) idle: Vec<Idle>,
    pub(super) waiting: VecDeque<Waiter>,
    pub(super) dialing: Vec<Place>,
    /// What is known of the places where requests may go now, as they were last told.
    pub(super) known: Vec<Known>,
    /// The edition of that.
    pub(super) edition: u64,
    /// How many exchanges the last connection has room for.
    pub(super) rooms: usize,
    pub(super) next_connection: u64,
    /// Counts slots that were given away.
    pub(super) given: u64,
}

/// A place where requests may go.
pub(super) struct Known {
    pub(super) place: Place,
    /// When it was given a request last.
    pub(super) given: u64,
    /// Held by each of its HTTP/1.1 connections.
    pub(super) singles: Arc<()>,
}

/// An HTTP/2 connection.
pub(super) struct Shared {
    pub(super) number: u64,
    pub(super) place: Place,
    pub(super) streams: Streams,
    pub(super) granted: Arc<AtomicUsize>,
    pub(super) in_use: usize,
    pub(super) idle_since: Instant,
}

/// An HTTP/1.1 connection between two exchanges.
pub(super) struct Idle {
    pub(super) place: Place,
    pub(super) single: Single,
    pub(super) since: Instant,
    pub(super) counted: Arc<()>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            snapshot: None,
            shared: Vec::new(),
            idle: Vec::new(),
            waiting: VecDeque::new(),
            dialing: Vec::new(),
            known: vec![Known::new(None)],
            edition: 0,
            rooms: STREAMS_MAX,
            next_connection: 0,
            given: 0,
        }
    }
}

impl State {
    /// Turns to a newer credential: what was connected with an older one is not used again, and closes when its
    /// exchanges are over.
    pub(super) fn adopt(&mut self, snapshot: &Arc<Snapshot>) {
        match &self.snapshot {
            Some(known) if known.epoch >= snapshot.epoch => return,
            Some(_) | None => {}
        }
        self.snapshot = Some(snapshot.clone());
        self.shared.clear();
        self.idle.clear();
    }

    pub(super) fn is_of(&self, epoch: u64) -> bool {
        self.snapshot.as_ref().is_some_and(|snapshot| snapshot.epoch == epoch)
    }

    /// Turns to other API servers. What is connected to others is not used again, and closes when its exchanges are over: whoever
    /// comes back is dialed anew.
    pub(super) fn move_with(&mut self, balance: &Balance) {
        // Before the places, so that what changes in between is seen next time.
        let edition = balance.edition();
        if self.edition != edition {
            self.move_to(&balance.places());
            self.edition = edition;
        }
    }

    fn move_to(&mut self, places: &[Place]) {
        self.known.retain(|known| places.contains(&known.place));
        for place in places {
            if self.known(*place).is_none() {
                self.known.push(Known::new(*place));
            }
        }
        self.shared.retain(|shared| places.contains(&shared.place));
        self.idle.retain(|idle| places.contains(&idle.place));
    }

    pub(super) fn known(&self, place: Place) -> Option<&Known> {
        self.known.iter().find(|known| known.place == place)
    }

    /// On the API server that has the least to do; there the fullest connection that is not full, so that the emptiest become
    /// idle.
    pub(super) fn free_slot(&mut self, pool: &Weak<Inner>) -> Option<Slot> {
        self.shared.retain(|shared| !shared.streams.is_closed());
        self.idle.retain(|idle| !idle.single.is_closed());
        let has_room = |place: Place| {
            self.shared.iter().any(|shared| shared.place == place && shared.in_use < shared.room())
                || self.idle.iter().any(|idle| idle.place == place && idle.single.is_ready())
        };
        let free = self.known.iter().filter(|known| has_room(known.place));
        let place = free.min_by_key(|known| (self.in_use(known), known.given))?.place;
        self.given += 1;
        let given = self.given;
        self.known.iter_mut().filter(|known| known.place == place).for_each(|known| known.given = given);
        let there = self.shared.iter_mut().filter(|shared| shared.place == place);
        let fullest = there.filter(|shared| shared.in_use < shared.room()).max_by_key(|shared| shared.in_use);
        if let Some(shared) = fullest {
            shared.in_use += 1;
            let (connection, streams) = (shared.number, shared.streams.clone());
            return Some(Slot::Stream(StreamSlot { pool: pool.clone(), connection, streams }));
        }
        let latest = self.idle.iter().rposition(|idle| idle.place == place && idle.single.is_ready())?;
        let Idle { place, single, since: _, counted } = self.idle.remove(latest);
        let epoch = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.epoch);
        Some(Slot::Single(Box::new(SingleSlot { pool: pool.clone(), epoch, place, single, counted })))
    }

    /// Exchanges at an API server.
    pub(super) fn in_use(&self, known: &Known) -> usize {
        let shared: usize =
            self.shared.iter().filter(|shared| shared.place == known.place).map(|shared| shared.in_use).sum();
        let idle = self.idle.iter().filter(|idle| idle.place == known.place).count();
        // One is the place's own.
        shared + Arc::strong_count(&known.singles).saturating_sub(1 + idle)
    }

    pub(super) fn add_shared(&mut self, place: Place, streams: Streams, granted: Arc<AtomicUsize>) {
        self.next_connection += 1;
        let number = self.next_connection;
        let shared = Shared { number, place, streams, granted, in_use: 0, idle_since: Instant::now() };
        self.rooms = shared.room().max(1);
        self.shared.push(shared);
    }

    /// Gives free places to those who wait, first come, first served.
    pub(super) fn serve(&mut self, pool: &Weak<Inner>) {
        let mut spare = None;
        while !self.waiting.is_empty() {
            let Some(slot) = spare.take().or_else(|| self.free_slot(pool)) else {
                return;
            };
            let Some(waiter) = self.waiting.pop_front() else {
                break;
            };
            spare = waiter.send(Ok(slot)).err().and_then(Result::ok);
        }
        if let Some(slot) = spare {
            self.take_back(slot);
        }
    }

    /// Frees a slot while the state is locked, where its `Drop` would lock again.
    pub(super) fn take_back(&mut self, slot: Slot) {
        match slot {
            Slot::Stream(mut slot) => {
                slot.pool = Weak::new();
                let shared = self.shared.iter_mut().find(|shared| shared.number == slot.connection);
                if let Some(shared) = shared {
                    shared.in_use -= 1;
                }
            }
            Slot::Single(slot) => self.idle.push(slot.into_idle()),
        }
    }

    /// Where a connection is to be made, if one is: until every waiter will have a place, and so that every API server is
    /// asked. Where there are the fewest.
    pub(super) fn place_to_dial(&self) -> Option<Place> {
        let bare = self.bare_place();
        let under_way = self.dialing.iter().filter(|place| self.known(**place).is_some()).count();
        if bare.is_none() && under_way >= self.waiting.len().div_ceil(self.rooms) {
            return None;
        }
        let fewest = self.known.iter().min_by_key(|known| (self.connections(known), known.given));
        bare.or_else(|| fewest.map(|known| known.place))
    }

    /// An API server without any connection, where there are several.
    pub(super) fn bare_place(&self) -> Option<Place> {
        let bare = |known: &&Known| self.connections(known) == 0;
        if self.known.len() > 1 { self.known.iter().find(bare).map(|known| known.place) } else { None }
    }

    /// Connections to a place, those that are being dialed included.
    pub(super) fn connections(&self, known: &Known) -> usize {
        let dialing = self.dialing.iter().filter(|place| **place == known.place).count();
        let shared = self.shared.iter().filter(|shared| shared.place == known.place).count();
        dialing + shared + Arc::strong_count(&known.singles) - 1
    }

    /// Whether a dial is under way that somebody may wait for.
    pub(super) fn is_dialing(&self) -> bool {
        self.dialing.iter().any(|place| self.known(*place).is_some())
    }
}

impl Known {
    pub(super) fn new(place: Place) -> Self {
        Self { place, given: 0, singles: Arc::default() }
    }
}

impl Shared {
    pub(super) fn room(&self) -> usize {
        self.granted.load(Ordering::Relaxed).min(STREAMS_MAX)
    }
}
