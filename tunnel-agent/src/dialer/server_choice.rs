//! Chooses the servers to which an agent keeps tunnels, among those that it was told of.
//!
//! A state machine without I/O. Its shell passes in each list of servers and, at every change and every second, the servers
//! that are connected. The plan that comes out says which servers to dial, and which tunnels to drain.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::server_list::{ListedServer, ServerList};
use proto::session::HEARTBEAT_IDLE;

use super::rendezvous::{move_delay, rank};

/// A server that is silent for this long while another one is heard gets a replacement.
pub(super) const SILENT_MAX: Duration = Duration::from_secs(10);

/// The configured names are dialed beside the servers of the list if none of these has served for this long.
pub(super) const NAMES_AFTER: Duration = Duration::from_secs(3);

/// If the link is dark, every tunnel is known to be silent before one of them counts as replaceable.
const _: () = assert!(HEARTBEAT_IDLE.as_millis() * 5 / 2 < SILENT_MAX.as_millis());

/// The choice of one agent.
#[derive(Debug)]
pub(super) struct ServerChoice {
    agent: String,
    tunnels: usize,
    /// The newest list. Addresses that several servers have are left out, because they lead to any of them.
    listed: Vec<ListedServer>,
    /// The servers of the list and those that are connected, by ID.
    states: BTreeMap<String, ServerState>,
    /// Since this instant no server serves; `None` while one does.
    unserved_since: Option<Instant>,
    /// Servers of the list are dialed by their own addresses.
    by_address: bool,
    /// Servers that got a replacement, until the shell asks for them.
    replaced: Vec<String>,
}

/// A server that is connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConnectedServer {
    /// The ID in its Welcome.
    pub(super) id: String,
    /// One of its tunnels was heard lately, and takes streams.
    pub(super) serves: bool,
    /// Time since it was heard.
    pub(super) silence: Duration,
}

/// The servers to dial, and the tunnels to keep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Servers that are dialed by their own addresses.
    pub(super) dialed: Vec<ListedServer>,
    /// Servers whose tunnels are kept. If `None`, all are: those that shall take over do not serve yet.
    pub(super) kept: Option<Arc<BTreeSet<String>>>,
    /// The configured names are dialed.
    pub(super) names: bool,
    /// Number of different servers to look for behind the configured names. Zero if one tunnel to each address is enough.
    pub(super) sought: usize,
}

#[derive(Debug)]
struct ServerState {
    /// Moves to it begin at this time. Until then it is chosen only if there are too few others.
    settled_at: Instant,
    /// The last time at which it was heard, or at which its first dial began.
    heard_at: Instant,
    /// Since this instant it serves; `None` while it does not.
    serving_since: Option<Instant>,
    is_chosen: bool,
    /// It was silent beside others, and has a replacement.
    is_away: bool,
}

impl ServerChoice {
    /// The choice of `agent`, which keeps so many tunnels to different servers.
    pub(super) fn new(now: Instant, agent: String, tunnels: usize) -> Self {
        Self {
            agent,
            tunnels,
            listed: Vec::new(),
            states: BTreeMap::new(),
            unserved_since: Some(now),
            by_address: false,
            replaced: Vec::new(),
        }
    }

    /// Takes a newer list over. Moves to servers that are new in it, or drain no more, are spread, unless it is the first list.
    pub(super) fn set_list(&mut self, now: Instant, list: &ServerList) {
        let is_first = self.listed.is_empty();
        let was_usable: BTreeSet<String> = self.usable().map(|server| server.id.clone()).collect();
        self.listed = own_addresses(list.servers());
        for server in self.listed.iter().filter(|server| !was_usable.contains(&server.id)) {
            let state = self.states.entry(server.id.clone()).or_insert_with(|| ServerState::new(now));
            // Nobody has to move to a server that serves already.
            let is_move = !is_first && state.serving_since.is_none();
            state.settled_at = if is_move { now + move_delay(&self.agent, &server.id) } else { now };
        }
    }

    /// The plan at this moment.
    pub(super) fn plan(&mut self, now: Instant, connected: &[ConnectedServer]) -> Plan {
        self.note(now, connected);
        let candidates = self.candidates(now);
        let needed = self.tunnels.min(candidates.len());
        self.decide_by_address(now, &candidates);
        if !self.by_address {
            let sought = if self.listed.len() > 1 { needed } else { 0 };
            return Plan { names: true, sought, ..Plan::default() };
        }
        let dialed = self.choose(now, candidates);
        let is_served = |server: &&ListedServer| {
            self.states.get(&server.id).is_some_and(|state| state.serving_since.is_some())
        };
        let is_complete = dialed.iter().filter(is_served).count() >= needed;
        let kept = is_complete.then(|| Arc::new(dialed.iter().map(|server| server.id.clone()).collect()));
        Plan { dialed, kept, names: self.is_unserved_for(now, NAMES_AFTER), sought: 0 }
    }

    /// The servers that got a replacement since this was asked last.
    pub(super) fn take_replaced(&mut self) -> Vec<String> {
        std::mem::take(&mut self.replaced)
    }

    /// Number of servers in the list.
    pub(super) fn listed(&self) -> usize {
        self.listed.len()
    }

    /// The servers that do not drain.
    fn usable(&self) -> impl Iterator<Item = &ListedServer> {
        self.listed.iter().filter(|server| !server.is_draining)
    }

    /// Notes what is connected, and which chosen servers are away.
    fn note(&mut self, now: Instant, connected: &[ConnectedServer]) {
        for ConnectedServer { id, serves, silence } in connected {
            let state = self.states.entry(id.clone()).or_insert_with(|| ServerState::new(now));
            let heard_at = now.checked_sub(*silence).unwrap_or(state.heard_at);
            state.heard_at = state.heard_at.max(heard_at);
            state.serving_since = serves.then(|| state.serving_since.unwrap_or(now));
        }
        let listed = &self.listed;
        self.states.retain(|id, state| {
            let is_connected = connected.iter().any(|server| server.id == *id);
            if !is_connected {
                state.serving_since = None;
            }
            is_connected || listed.iter().any(|server| server.id == *id)
        });
        let serving: Vec<(String, Instant)> =
            self.states.iter().filter_map(|(id, state)| Some((id.clone(), state.serving_since?))).collect();
        self.unserved_since = serving.is_empty().then(|| self.unserved_since.unwrap_or(now));
        for (id, state) in self.states.iter_mut().filter(|(_, state)| state.is_chosen) {
            let others = serving.iter().filter(|(other, _)| other != id).map(|(_, since)| *since).min();
            // If all are silent, it is the link.
            let is_silent =
                others.is_some_and(|others| elapsed(now, others.max(state.heard_at)) >= SILENT_MAX);
            let is_back =
                state.serving_since.is_some_and(|since| elapsed(now, since) >= move_delay(&self.agent, id));
            if !state.is_away && is_silent {
                state.is_away = true;
                self.replaced.push(id.clone());
            } else if state.is_away && is_back {
                state.is_away = false;
            }
        }
    }

    /// The servers that may be chosen, the preferred one first. If all of them drain, that is all of them.
    fn candidates(&self, now: Instant) -> Vec<ListedServer> {
        let mut candidates: Vec<ListedServer> = self.usable().cloned().collect();
        if candidates.is_empty() {
            candidates.clone_from(&self.listed);
        }
        candidates.sort_by_cached_key(|server| {
            let is_new = self.states.get(&server.id).is_some_and(|state| now < state.settled_at);
            (is_new, Reverse(rank(&self.agent, &server.id)))
        });
        candidates
    }

    /// A single server is dialed by the configured names, as long as they lead to it. Servers without addresses of their own
    /// are found behind these names.
    fn decide_by_address(&mut self, now: Instant, candidates: &[ListedServer]) {
        let have_addresses =
            !candidates.is_empty() && candidates.iter().all(|server| !server.addresses.is_empty());
        let is_needed = self.by_address || self.listed.len() > 1 || self.is_unserved_for(now, SILENT_MAX);
        self.by_address = have_addresses && is_needed;
    }

    /// The first candidates, as many as there shall be tunnels. One that is away does not count, and is dialed all the same.
    fn choose(&mut self, now: Instant, candidates: Vec<ListedServer>) -> Vec<ListedServer> {
        let mut chosen = Vec::new();
        let mut counted = 0;
        for server in candidates {
            let Some(state) = self.states.get_mut(&server.id).filter(|_| counted < self.tunnels) else {
                break;
            };
            if !state.is_chosen {
                (state.is_chosen, state.heard_at) = (true, now);
            }
            counted += usize::from(!state.is_away);
            chosen.push(server);
        }
        for (id, state) in &mut self.states {
            if !chosen.iter().any(|server| server.id == *id) {
                (state.is_chosen, state.is_away) = (false, false);
            }
        }
        chosen
    }

    fn is_unserved_for(&self, now: Instant, time: Duration) -> bool {
        self.unserved_since.is_some_and(|since| elapsed(now, since) >= time)
    }
}

impl ServerState {
    fn new(now: Instant) -> Self {
        Self { settled_at: now, heard_at: now, serving_since: None, is_chosen: false, is_away: false }
    }
}

/// The servers without the addresses that others have, too.
fn own_addresses(servers: &[ListedServer]) -> Vec<ListedServer> {
    let is_own = |server: &ListedServer, address: &String| {
        servers.iter().all(|other| other.id == server.id || !other.addresses.contains(address))
    };
    let with_own = |server: &ListedServer| {
        let addresses = server.addresses.iter().filter(|address| is_own(server, address));
        ListedServer { addresses: addresses.cloned().collect(), ..server.clone() }
    };
    servers.iter().map(with_own).collect()
}

fn elapsed(now: Instant, since: Instant) -> Duration {
    now.saturating_duration_since(since)
}

#[cfg(test)]
mod tests;
