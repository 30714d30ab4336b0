//! All listeners, connections and the table of this process, so that they can be stopped and handed over as one.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use daemon::Scope;
use tracing::warn;

use super::BoundRelay;
use super::connection::{Connection, Origin};
use super::parking::{Owner, Owners, Parked};
use crate::balancer::Balancer;
use crate::handover::{HandedConnection, HandoverError, ListenerKind, Successor};
use crate::pods::{PodAddress, PodSteering};

/// The listeners and connections of this process. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Relays {
    pub(super) listeners: Owners<BoundRelay>,
    connections: Owners<Connection>,
    steering: Owners<PodSteering>,
}

/// Everything, while nothing of it moves. It goes on when this is dropped.
#[derive(Debug)]
#[must_use = "everything goes on when this is dropped"]
pub struct Frozen {
    listeners: Vec<Parked<BoundRelay>>,
    connections: Vec<Parked<Connection>>,
    steering: Vec<Parked<PodSteering>>,
}

impl Relays {
    /// Serves a connection to its end, or until another process has it. It can be asked for at once.
    pub(super) fn serve(
        &self,
        mut connection: Connection,
        balancer: Balancer,
        scope: Scope,
    ) -> impl Future<Output = ()> + use<> {
        let mut owner = self.connections.register();
        async move {
            loop {
                // Both arms are cancel-safe: a connection that is not driven stands still.
                let ask = tokio::select! {
                    biased;
                    ask = owner.asked() => ask,
                    () = connection.drive(&balancer, &scope) => return,
                };
                let Some(returned) = owner.give(connection, ask).await else { return };
                connection = returned;
            }
        }
    }

    /// Goes on with connections that another process has handed over. `relays` are the listeners, among which each
    /// finds the one whose limits it counts for, and `pods` is the address for pods.
    pub fn go_on(
        &self,
        handed: Vec<HandedConnection>,
        relays: &[BoundRelay],
        pods: Option<&Arc<PodAddress>>,
        balancer: &Balancer,
        scope: &Scope,
    ) {
        let mut homes = scope.homes_in_turn();
        balancer.taken_over(handed.len());
        for handed in handed {
            let (listener, peer) = (handed.facts.listener, handed.facts.peer);
            let relay = relays.iter().find(|relay| relay.facts() == listener);
            let _permit = relay.and_then(|relay| relay.listener.admit_again(peer));
            let _pods = pods.filter(|_| listener.kind == ListenerKind::Pods).cloned();
            let origin = Origin { listener, peer, _permit, _pods };
            match Connection::take_over(handed, origin, balancer) {
                Ok(connection) => {
                    let serving = self.serve(connection, balancer.clone(), scope.clone());
                    scope.spawn_on(homes(), serving);
                }
                Err(error) => warn!(%peer, %error, "a connection that was handed over is lost"),
            }
        }
    }

    /// Keeps the table until the drain, or until another process has it.
    pub async fn keep(&self, mut steering: PodSteering, scope: &Scope) {
        let mut owner: Owner<PodSteering> = self.steering.register();
        loop {
            // Both arms are cancel-safe.
            let ask = tokio::select! {
                () = scope.draining() => return,
                ask = owner.asked() => ask,
            };
            let Some(returned) = owner.give(steering, ask).await else { return };
            steering = returned;
        }
    }

    /// Stops everything between two bytes. Cancel-safe: it goes on then.
    pub async fn freeze(&self) -> Frozen {
        // The listeners first, so that no connection comes afterwards.
        let listeners = self.listeners.collect().await;
        let connections = self.connections.collect().await;
        Frozen { listeners, connections, steering: self.steering.collect().await }
    }
}

impl Frozen {
    /// Sends everything to a successor.
    ///
    /// # Errors
    /// [`HandoverError`]
    pub async fn send(&self, successor: &mut Successor) -> Result<(), HandoverError> {
        for relay in self.listeners.iter().filter_map(Parked::value) {
            let socket = relay.listener.share()?;
            successor.listener(relay.facts(), socket.as_fd()).await?;
        }
        for steering in self.steering.iter().filter_map(Parked::value) {
            let (facts, socket) = steering.shared();
            successor.steering(facts, socket).await?;
        }
        for connection in self.connections.iter().filter_map(Parked::value) {
            connection.send(successor).await?;
        }
        Ok(())
    }

    /// Ends everything in this process, because another one has it now. Returns the number of connections.
    pub fn hand_over(self) -> usize {
        let Self { listeners, connections, steering } = self;
        for relay in listeners.into_iter().filter_map(Parked::take) {
            if let Some(pods) = &relay.pods {
                pods.leave();
            }
        }
        drop(steering.into_iter().filter_map(Parked::take).collect::<Vec<_>>());
        let connections = connections.into_iter().filter_map(Parked::take);
        connections.map(Connection::hand_over).count()
    }
}

#[cfg(test)]
mod tests;
