//! Carries the choice of servers out: begins and ends the tasks that dial them, and stores the newest list.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::{StateDir, error_chain};
use proto::server_list::ServerList;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{info, warn};

use super::dependencies::{ConfiguredServer, SharedDialer};
use super::known_servers::store;
use super::resolver::Resolver;
use super::server_choice::{Plan, ServerChoice};
use super::usage::Usage;
use crate::config::ServerAddress;
use crate::metrics;

/// Interval between two looks at the servers, once the agent was told of some.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The tasks that dial servers.
pub(super) struct ServerTasks {
    shared: Arc<SharedDialer>,
    choice: ServerChoice,
    /// The use of each configured name.
    names: Vec<watch::Sender<Usage>>,
    /// The use of each address of a listed server, by the server's ID and the address.
    listed: BTreeMap<(String, String), watch::Sender<Usage>>,
}

impl ServerTasks {
    /// Begins to dial the configured names. If the agent knows a list of servers already, it dials those first.
    pub(super) fn new(shared: Arc<SharedDialer>, servers: Vec<ConfiguredServer>) -> Self {
        let (now, tunnels) = (Instant::now(), shared.dependencies.tunnels);
        let mut choice = ServerChoice::new(now, shared.agent.to_string(), tunnels);
        choice.set_list(now, &expected(&shared, &shared.known.subscribe().borrow()));
        let names = choice.plan(now, &[]).names;
        let begin = |server| {
            let (usage, used) = watch::channel(Usage { dials: names, ..Usage::one_each() });
            shared.scope.spawn(Resolver::new(Arc::clone(&shared), server, used).run());
            usage
        };
        let names = servers.into_iter().map(begin).collect();
        Self { choice, names, listed: BTreeMap::new(), shared }
    }

    /// Runs as long as it is polled. Once the agent stops, it changes nothing any more.
    pub(super) async fn run(mut self) {
        let (mut known, mut connected) = (self.shared.known.subscribe(), self.shared.connected.subscribe());
        let draining = self.shared.scope.draining();
        tokio::pin!(draining);
        loop {
            self.look();
            let looks = self.choice.listed() > 0;
            // All arms are cancel-safe: a change that came is kept, and a sleep has nothing to lose.
            tokio::select! {
                Ok(()) = known.changed() => {
                    let list = Arc::clone(&known.borrow_and_update());
                    self.listed(list);
                }
                Ok(()) = connected.changed() => {}
                () = sleep(LOOK_EVERY), if looks => {}
                // The tunnels drain by themselves. A use that were dropped here would end them as if they had moved.
                () = &mut draining => return std::future::pending().await,
            }
        }
    }

    /// Takes a newer list over.
    fn listed(&mut self, list: Arc<ServerList>) {
        info!(revision = list.revision(), servers = list.servers().len(), "the list of servers has changed");
        self.choice.set_list(Instant::now(), &expected(&self.shared, &list));
        let state = self.shared.dependencies.state.clone();
        // Work of the scope, so that the list is on disk before the process ends.
        self.shared.scope.spawn(store_list(state, list));
    }

    /// Makes a plan, and carries it out.
    fn look(&mut self) {
        metrics::servers_known(self.choice.listed());
        let plan = self.choice.plan(Instant::now(), &self.shared.connected.servers());
        for server_id in self.choice.take_replaced() {
            metrics::server_replaced();
            info!(
                server_id,
                "a server is silent while another one is not: the next one is dialed in its place"
            );
        }
        self.use_names(&plan);
        self.use_listed(&plan);
    }

    fn use_names(&self, plan: &Plan) {
        // Each further name has a tunnel of its own.
        let others = self.names.len().saturating_sub(1);
        for (index, name) in self.names.iter().enumerate() {
            let tunnels_min = if index == 0 { plan.sought.saturating_sub(others).max(1) } else { 1 };
            let usage =
                Usage { dials: plan.names, kept: plan.kept.clone(), sought: plan.sought, tunnels_min };
            name.send_if_modified(|current| {
                let is_new = *current != usage;
                if is_new {
                    *current = usage;
                }
                is_new
            });
        }
    }

    fn use_listed(&mut self, plan: &Plan) {
        let mut wanted = Vec::new();
        for server in &plan.dialed {
            wanted.extend(server.addresses.iter().map(|address| (server.id.clone(), address.clone())));
        }
        if plan.kept.is_some() || plan.dialed.is_empty() {
            // Dropping the use of an address drains its tunnels.
            self.listed.retain(|key, _| wanted.contains(key));
        }
        for (id, address) in wanted {
            if self.listed.contains_key(&(id.clone(), address.clone())) {
                continue;
            }
            let Some(parsed) = ServerAddress::parse(&address) else { continue };
            let server = ConfiguredServer {
                certificate_name: parsed.host.clone(),
                address: parsed,
                id: Some(id.clone()),
            };
            let (usage, used) = watch::channel(Usage::one_each());
            self.shared.scope.spawn(Resolver::new(Arc::clone(&self.shared), server, used).run());
            self.listed.insert((id, address), usage);
        }
    }
}

/// The servers of a list to which the configuration allows tunnels.
fn expected(shared: &SharedDialer, list: &ServerList) -> ServerList {
    let servers = list.servers().iter().filter(|server| shared.trust.expects(&server.id));
    ServerList::new(list.revision(), servers.cloned())
}

/// Stores a list for the next start.
async fn store_list(state: StateDir, list: Arc<ServerList>) {
    match spawn_blocking(move || store(&state, &list)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(error = %error_chain(&error), "the list of servers could not be stored"),
        // Cancelled, because the runtime ends.
        Err(_) => {}
    }
}
