//! A machine of the tenant's site: node-lb, and callers that come through it.

use std::fs;

use tests::host_cluster::tenant::Tenant;
use tests::host_cluster::{HostCluster, SiteMachine};
use tests::lab::NamespaceRuntime;
use tests::lb_cluster::NodeLb;
use tests::lb_cluster::callers::Callers;

/// Callers at the same time, each with a connection of its own and twenty requests a second.
const CALLERS: usize = 3;

/// A machine of the site with node-lb.
pub struct Site {
    node_lb: NodeLb,
    inside: NamespaceRuntime,
    _machine: SiteMachine,
}

impl Site {
    /// Plugs in the machine, whose node-lb knows all API servers of the tenant.
    pub async fn start(host: &mut HostCluster, tenant: &Tenant) -> Self {
        let machine = host.add_machine().await.expect("a machine");
        let (ca_pem, identity) = tenant.administrator().await;
        let seeds = tenant.api_servers(host).await;
        let node_lb = NodeLb::start_on(&machine.network, &ca_pem, &identity, &seeds, "").await;
        let inside = NamespaceRuntime::new(&machine.network);
        Self { node_lb, inside, _machine: machine }
    }

    /// Callers with the CAs and the certificate in the kubeconfig of the tenant's administrator.
    pub async fn callers(&self, tenant: &Tenant) -> Callers {
        let (ca_pem, identity) = tenant.administrator().await;
        Callers::start(&self.inside, CALLERS, &ca_pem, &identity).await
    }

    /// Ends these callers, all of whose requests must have been answered.
    pub async fn no_request_failed(&self, what: &str, callers: Callers) {
        let report = callers.stop().await;
        println!(
            "{what}: {} requests, {} failed, at most {:?} between two answers",
            report.answered,
            report.failed.len(),
            report.longest
        );
        assert!(report.failed.is_empty(), "{what}: {:?}\n{}", report.failed, self.node_lb.log());
        assert!(report.answered > 0, "{what}: nobody asked");
    }

    /// Gives node-lb these CAs and this credential, as `tombolo node rotate-ca` does.
    pub async fn take(&self, tenant: &Tenant) {
        let (ca_pem, identity) = tenant.administrator().await;
        let home = self.node_lb.home();
        fs::write(home.join("ca.crt"), ca_pem).expect("a file");
        let both = format!("{}{}", identity.certificate_pem, identity.key_pem);
        fs::write(home.join("kubelet-client-current.pem"), both).expect("a file");
    }
}
