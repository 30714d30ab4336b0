//! The ways in at which nobody proves who they are to a method of the callers' door: egress, passthrough, and clusters' addresses.

use audit::Log;
use daemon::{Failure, Scope};
use tracing::info;

use super::{authentication, egress};
use crate::config::{Config, VipPublish};
use crate::directory::Directory;
use crate::gateway::{self, Gateway};
use crate::limits::LimitUsage;
use crate::passthrough::Passthrough;
use crate::vip::{HostNamespace, Vip};

/// Those that are configured, bound.
pub(super) struct WaysIn {
    /// Where the egress of API servers comes.
    egress: Vec<egress::Way>,
    /// Where TLS passes through, if it does.
    passthrough: Option<Passthrough>,
    /// Where clusters' own addresses are this host's, if they are.
    vip: Option<Vip>,
}

impl WaysIn {
    /// Takes their ports, and what they are out of the configuration.
    ///
    /// # Errors
    /// [`Failure`]: one cannot be had.
    pub(super) async fn bind(config: &mut Config, directory: &Directory) -> Result<Self, Failure> {
        let mut egress = Vec::new();
        for way in std::mem::take(&mut config.egress) {
            egress.push(egress::Way::bind(way, &config.certificate).await?);
        }
        let passthrough = match config.passthrough.take() {
            Some(door) => Some(Passthrough::bind(door).await?),
            None => None,
        };
        let vip = match config.vip.take() {
            Some(mut door) => {
                let publish = door.publish.take();
                let published =
                    publish.map(|publish| host_namespace(publish, &config.server_id)).transpose()?;
                Some(Vip::bind(door, directory, published).await?)
            }
            None => None,
        };
        Ok(Self { egress, passthrough, vip })
    }

    /// How much of their limits is used, also while they run: of several of one kind the one that has most is told of.
    pub(super) fn usage(&self) -> impl Fn() -> Vec<LimitUsage> + Send + Sync + 'static {
        let egress: Vec<_> = self.egress.iter().map(egress::Way::places).collect();
        let passthrough = self.passthrough.as_ref().map(Passthrough::usage);
        let vip = self.vip.as_ref().map(Vip::usage);
        move || {
            let of_egress = egress.iter().map(gateway::Places::used).max_by_key(|(_, most)| *most);
            let of_egress =
                of_egress.map(|(max, most)| LimitUsage { limit: "egress_connections", max, most });
            let passing = passthrough.as_ref().map(|usage| usage()).into_iter().flatten();
            let by_address = vip.as_ref().map(|usage| usage()).into_iter().flatten();
            of_egress.into_iter().chain(passing).chain(by_address).collect()
        }
    }

    /// Serves whoever comes, until the drain.
    pub(super) fn run(self, gateway: &Gateway, log: &Log, scope: &Scope) {
        for way in self.egress {
            way.run(gateway.clone(), log.clone(), scope);
        }
        if let Some(door) = self.passthrough {
            info!(callers = %door.address(), "TLS passes through to clusters by its server name");
            scope.spawn(door.run(gateway.dials(), scope.clone()));
        }
        if let Some(door) = self.vip {
            info!("clusters' own addresses are this host's");
            door.run(gateway.dials(), scope);
        }
    }
}

fn host_namespace(
    VipPublish { host, namespace }: VipPublish,
    server: &str,
) -> Result<HostNamespace, Failure> {
    let api = authentication::host_api(&host)?;
    Ok(HostNamespace { api, name: namespace, server: server.to_owned() })
}
