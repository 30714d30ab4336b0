//! The entry points beside the gateway's own listener: egress, passthrough, and virtual addresses of
//! clusters.

use std::sync::Arc;

use audit::Log;
use aws_lc_rs::digest;
use daemon::{Failure, Scope};
use tracing::info;
use transport::tls::SharedCertificate;

use super::trusted_roots::RootsFollower;
use super::{authentication, egress};
use crate::config::{Config, HostCluster, VipConfig, VipEntryPoint, VipPublish};
use crate::directory::{Directory, RangeError, ServerRange, ServerRanges, hexadecimal};
use crate::gateway::{self, Gateway};
use crate::limits::LimitUsage;
use crate::metrics::ReloadedFile;
use crate::passthrough::PassthroughListener;
use crate::vip::{HostNamespace, VipListener};

/// The entry points that are configured, bound.
pub(super) struct EntryPoints {
    /// The entry points for the egress of API servers.
    egress: Vec<egress::BoundEgress>,
    /// The passthrough of TLS, if it is configured.
    passthrough: Option<PassthroughListener>,
    /// The virtual addresses of clusters, if they are configured.
    vip: Option<VipListener>,
    /// The ranges of the virtual addresses.
    ranges: ServerRanges,
}

impl EntryPoints {
    /// Binds the configured entry points, which show `certificate` unless they have one of their own. It takes their parts out of the configuration.
    ///
    /// # Errors
    /// [`Failure`] if one of them cannot be bound.
    pub(super) async fn bind(
        config: &mut Config,
        certificate: &Arc<SharedCertificate>,
        directory: &Directory,
        roots: &RootsFollower,
        scope: &Scope,
    ) -> Result<Self, Failure> {
        let mut egress = Vec::new();
        for listener in std::mem::take(&mut config.egress) {
            egress.push(egress::BoundEgress::bind(listener, certificate, roots, scope).await?);
        }
        let passthrough = config.passthrough.take().map(PassthroughListener::bind).transpose()?;
        let ranges = config.vip.as_ref().map(ranges).unwrap_or_default();
        let vip = match config.vip.take() {
            Some(mut vip) => {
                let publish = vip.publish.take();
                let owner = (&*config.server_id, &*config.trust_domain);
                let published = publish.map(|publish| host_namespace(publish, roots, owner)).transpose()?;
                Some(VipListener::bind(vip, directory, published).await?)
            }
            None => None,
        };
        Ok(Self { egress, passthrough, vip, ranges })
    }

    /// Records the ranges of this server, which is registered already.
    ///
    /// # Errors
    /// [`Failure`] with [`RangeError`]: another server has some of the addresses.
    pub(super) async fn claim_ranges(&self, directory: &Directory, server_id: &str) -> Result<(), Failure> {
        match directory.claim_ranges(server_id, self.ranges.clone()).await {
            Ok(()) => Ok(()),
            Err(error @ RangeError::Overlap(_)) => Err(Failure::misconfigured(error)),
            Err(RangeError::Store(error)) => Err(error.into()),
        }
    }

    /// Reports the use of the entry points' limits, also while they run. Of several entry points of one kind
    /// the busiest counts.
    pub(super) fn usage(&self) -> impl Fn() -> Vec<LimitUsage> + Send + Sync + 'static {
        let egress: Vec<_> = self.egress.iter().map(egress::BoundEgress::slots).collect();
        let passthrough = self.passthrough.as_ref().map(PassthroughListener::usage);
        let vip = self.vip.as_ref().map(VipListener::usage);
        move || {
            let of_egress = egress.iter().map(gateway::EntryPointSlots::used).max_by_key(|(_, most)| *most);
            let of_egress =
                of_egress.map(|(max, most)| LimitUsage { limit: "egress_connections", max, most });
            let passing = passthrough.as_ref().map(|usage| usage()).into_iter().flatten();
            let by_address = vip.as_ref().map(|usage| usage()).into_iter().flatten();
            of_egress.into_iter().chain(passing).chain(by_address).collect()
        }
    }

    /// Serves connections until the drain.
    pub(super) fn run(self, gateway: &Gateway, log: &Log, scope: &Scope) {
        for listener in self.egress {
            listener.run(gateway.clone(), log.clone(), scope);
        }
        if let Some(config) = self.passthrough {
            info!(callers = %config.address(), "serving TLS passthrough by server name");
            scope.spawn(config.run(gateway.dials(), scope.clone()));
        }
        if let Some(config) = self.vip {
            info!("serving virtual addresses of clusters");
            config.run(gateway.dials(), scope);
        }
    }
}

fn host_namespace(
    VipPublish { host, namespace }: VipPublish,
    roots: &RootsFollower,
    (server, trust_domain): (&str, &str),
) -> Result<HostNamespace, Failure> {
    let api = authentication::host_api(&host, ReloadedFile::PublishCa, roots)?;
    let mark = mark(&host, &namespace);
    let (server, trust_domain) = (server.to_owned(), trust_domain.to_owned());
    Ok(HostNamespace { api, name: namespace, server, trust_domain, mark })
}

/// The ranges of the configuration, as other servers see them.
fn ranges(vip: &VipConfig) -> ServerRanges {
    let range = |(index, entry_point): (usize, &VipEntryPoint)| {
        let range = entry_point.range.as_ref()?;
        Some(ServerRange {
            key: format!("vip.entryPoints[{index}].range.network"),
            network: range.network.to_string(),
            port: range.port,
            clusters: range.clusters.keys().map(ToString::to_string).collect(),
        })
    };
    ServerRanges {
        ranges: vip.entry_points.iter().enumerate().filter_map(range).collect(),
        published_at: vip.publish.as_ref().map(|publish| mark(&publish.host, &publish.namespace)),
    }
}

/// The mark of a namespace of a host cluster: a digest of the names by which the servers know both.
fn mark(host: &HostCluster, namespace: &str) -> String {
    let names = format!("{} {namespace}", host.server);
    hexadecimal(&digest::digest(&digest::SHA256, names.as_bytes()).as_ref()[..8])
}
