//! Each cluster's own admin.conf, unchanged, from a network that has only a route to the server's host.

use std::fs::{self, File};
use std::path::PathBuf;

use super::DemoError;
use super::denial::PolicyFile;
use super::installer::Installer;
use super::network::{CONTROL_PLANE, Cloud, DemoNetwork, EDGES};
use super::tour::Tour;
use crate::kube::EdgeCluster;
use crate::kube::kubectl::Kubectl;
use crate::network::NetworkNamespace;

/// The device through which a process gets a network interface.
const TUN: &str = "/dev/net/tun";
/// The user of an admin.conf, as the clusters know it.
const ADMIN: &str = "kubernetes-admin";

/// A network of people who have only kubectl and an admin.conf, for each cluster one.
#[derive(Debug)]
pub(super) struct Offices(Vec<Office>);

#[derive(Debug)]
struct Office {
    edge: &'static str,
    name: String,
    network: NetworkNamespace,
    admin_conf: PathBuf,
}

impl Offices {
    /// Builds the networks, and adds virtual IPs to the server's configuration, which takes a restart. `None` is for a
    /// machine that does not permit it, which is said in one line.
    pub(super) async fn prepare(
        tour: &Tour<'_>,
        installer: &Installer<'_>,
        network: &DemoNetwork,
        clusters: [&EdgeCluster; 2],
    ) -> Result<Option<Self>, DemoError> {
        let cloud = match possible(&network.cloud) {
            Ok(cloud) => cloud,
            Err(reason) => {
                tour.say(&format!(
                    "not shown here: an admin.conf that reaches its cluster unchanged, because {reason}"
                ));
                return Ok(None);
            }
        };
        tour.say("two offices have a route to the server's host and nothing else, and each has a cluster's own admin.conf:");
        let mut offices = Vec::new();
        for (number, (edge, cluster)) in (1..).zip(EDGES.into_iter().zip(clusters)) {
            offices.push(Office::build(tour, cloud, number, edge, cluster).await?);
        }
        for edge in EDGES {
            let socket = installer.admin_socket();
            installer
                .tombolo(&format!("cluster update {edge} --advertise {CONTROL_PLANE} --socket {socket}"))
                .await?;
        }
        let offices = Self(offices);
        PolicyFile::in_folder(tour.folder).append(tour, &offices.rules())?;
        installer.extend_server(&offices.entry_points())?;
        tour.say("the server says what it will change on its host; all of it goes when the process ends:");
        installer.dry_run(&network.cloud).await?;
        Ok(Some(offices))
    }

    /// Shows that one address is another cluster in each office.
    pub(super) async fn show(&self, tour: &Tour<'_>) -> Result<(), DemoError> {
        tour.say(&format!(
            "one address, {CONTROL_PLANE}, in both admin.conf, and TLS to each cluster's own API server:"
        ));
        for Office { edge, admin_conf, .. } in &self.0 {
            let text = fs::read_to_string(admin_conf).map_err(DemoError::Files)?;
            let server = text.lines().find(|line| line.contains("server:")).unwrap_or_default();
            tour.progress.command(&format!("grep server: {}", admin_conf.display()));
            tour.progress.output(server);
            if !server.contains(&CONTROL_PLANE.to_string()) {
                let claim = format!("the admin.conf of {edge} should name {CONTROL_PLANE}");
                return Err(DemoError::NotShown { claim, found: server.to_owned() });
            }
        }
        for office in &self.0 {
            office.asks(tour, "get configmap site -o jsonpath={.data.name}", office.edge).await?;
            office.asks(tour, "auth whoami -o jsonpath={.status.userInfo.username}", ADMIN).await?;
        }
        Ok(())
    }

    /// Commands of the offices, for a person who is root.
    pub(super) fn commands(&self) -> Vec<String> {
        self.0.iter().map(|office| format!("{} get namespaces", office.kubectl_line())).collect()
    }

    fn rules(&self) -> String {
        let rule = |Office { edge, name, .. }: &Office| {
            format!(
                "- name: {name}\n  effect: Allow\n  subjects:\n  - {{ method: \"entry-point:{name}\", user: \"*\" }}\n  \
                 clusters: {{ names: [\"{edge}\"] }}\n  mode: dial\n  targets:\n  - {{ hosts: [\"{}\"], ports: [\"{}\"] }}\n",
                CONTROL_PLANE.ip(),
                CONTROL_PLANE.port()
            )
        };
        self.0.iter().map(rule).collect()
    }

    fn entry_points(&self) -> String {
        let entry_point = |(number, Office { edge, name, .. }): (u8, &Office)| {
            format!(
                "  - name: {name}\n    sources: [10.8.{number}.0/24]\n    \
                 addresses: [{{ listen: \"{CONTROL_PLANE}\", cluster: {edge} }}]\n"
            )
        };
        let entry_points: String = (1..).zip(&self.0).map(entry_point).collect();
        format!("vip:\n  interface: tombolo0\n  entryPoints:\n{entry_points}")
    }
}

impl Office {
    async fn build(
        tour: &Tour<'_>,
        cloud: &NetworkNamespace,
        number: u8,
        edge: &'static str,
        cluster: &EdgeCluster,
    ) -> Result<Self, DemoError> {
        let name = format!("office-{number}");
        let network = NetworkNamespace::new().await?;
        cloud.connect(&name, &network, "eth0").await?;
        cloud.ip(&format!("addr add 10.8.{number}.1/24 dev {name}")).await?;
        network.ip(&format!("addr add 10.8.{number}.2/24 dev eth0")).await?;
        network.ip(&format!("route add default via 10.8.{number}.1")).await?;
        // A copy, so that a person finds it; its rights are copied, too.
        let admin_conf = tour.folder.join(format!("{edge}-admin.conf"));
        fs::copy(cluster.admin_kubeconfig(), &admin_conf).map_err(DemoError::Files)?;
        Ok(Self { edge, name, network, admin_conf })
    }

    async fn asks(&self, tour: &Tour<'_>, words: &str, wanted: &str) -> Result<(), DemoError> {
        // kubectl names its caches after the address, which is the same for both.
        let kubectl: Kubectl = tour
            .kubectl
            .clone()
            .with_kubeconfig(&self.admin_conf)
            .with_home(tour.folder.join(format!("{}-home", self.name)))
            .in_network_namespace(Some(self.network.path().to_owned()));
        tour.progress.command(&format!("{} {words}", self.kubectl_line()));
        let output = kubectl.run(&words.split(' ').collect::<Vec<_>>()).await?;
        let found = String::from_utf8_lossy(&output.stdout).into_owned();
        tour.progress.output(&found);
        if output.status.success() && found.trim() == wanted {
            return Ok(());
        }
        let claim = format!("the answer in {} should be {wanted}", self.name);
        Err(DemoError::NotShown {
            claim,
            found: format!("{found}{}", String::from_utf8_lossy(&output.stderr)),
        })
    }

    fn kubectl_line(&self) -> String {
        format!(
            "nsenter --net={} kubectl --kubeconfig {}",
            self.network.path().display(),
            self.admin_conf.display()
        )
    }
}

/// The cloud's namespace, if the server can have an interface there.
fn possible(cloud: &Cloud) -> Result<&NetworkNamespace, String> {
    let namespace = cloud.namespace.as_ref().ok_or("there are no network namespaces")?;
    File::options()
        .read(true)
        .write(true)
        .open(TUN)
        .map_err(|error| format!("{TUN} cannot be opened: {error}"))?;
    Ok(namespace)
}
