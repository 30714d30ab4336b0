//! API servers of tenants whose control planes run in this cluster, as pods or behind Services.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use api_servers::slices::joined;
use policy::{ServiceName, Target};
use serde::Deserialize;

use crate::guard::services::Backends;

#[derive(Deserialize)]
struct ItemList<T> {
    items: Vec<T>,
}

#[derive(Deserialize)]
struct Pod {
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    host_network: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    #[serde(rename = "podIPs")]
    pod_ips: Vec<PodIp>,
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct PodIp {
    ip: String,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Deserialize)]
struct TenantService {
    metadata: ObjectMetadata,
    #[serde(default)]
    spec: ServiceSpec,
}

#[derive(Deserialize)]
struct ObjectMetadata {
    name: String,
    namespace: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ServiceSpec {
    #[serde(rename = "clusterIPs")]
    cluster_ips: Vec<String>,
    ports: Vec<ServicePort>,
}

#[derive(Deserialize)]
struct ServicePort {
    port: u16,
}

/// The addresses of pods that are ready. A pod in its node's network is left out, because it has the node's
/// address.
pub(super) fn pod_endpoints(answer: &[u8], port: u16) -> Result<Vec<String>, serde_json::Error> {
    let ItemList::<Pod> { items } = serde_json::from_slice(answer)?;
    let is_ready = |pod: &&Pod| {
        pod.status.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True")
    };
    let own = items.iter().filter(is_ready).filter(|pod| !pod.spec.host_network);
    Ok(targets(own.flat_map(|pod| &pod.status.pod_ips).map(|ip| joined(&ip.ip, port))))
}

/// The addresses and names of Services with an address and this port. Headless ones are left out: anybody can
/// choose their endpoints.
pub(super) fn service_endpoints(answer: &[u8], port: u16) -> Result<Vec<String>, serde_json::Error> {
    let ItemList::<TenantService> { items } = serde_json::from_slice(answer)?;
    Ok(targets(items.iter().filter(|service| service.fits(port)).flat_map(
        |TenantService { metadata: ObjectMetadata { name, namespace }, spec }| {
            let addresses = spec.cluster_ips.iter().map(|address| joined(address, port));
            addresses.chain([format!("{name}.{namespace}.svc:{port}")])
        },
    )))
}

/// The backends of the same Services by name: each has its own addresses, and no slices are read.
pub(super) fn backends(
    answer: &[u8],
    port: u16,
) -> Result<BTreeMap<ServiceName, Backends>, serde_json::Error> {
    let ItemList::<TenantService> { items } = serde_json::from_slice(answer)?;
    let backends = items.iter().filter(|service| service.fits(port)).filter_map(|service| {
        let name = ServiceName::new(&service.metadata.name, &service.metadata.namespace)?;
        let addresses = service.spec.cluster_ips.iter().filter_map(|address| address.parse::<IpAddr>().ok());
        let addresses = addresses.map(|address| SocketAddr::new(address, port)).collect();
        Some((name, Backends::Ports([(port, addresses)].into())))
    });
    Ok(backends.collect())
}

impl TenantService {
    /// Returns true if the Service has an address and this port.
    fn fits(&self, port: u16) -> bool {
        let addressed = self.spec.cluster_ips.iter().any(|address| address != "None");
        addressed && self.spec.ports.iter().any(|found| found.port == port)
    }
}

fn targets(found: impl Iterator<Item = String>) -> Vec<String> {
    found.filter(|target| target.parse::<Target>().is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_are_ready_are_found_and_never_a_nodes_address() {
        let pod = |ip: &str, status: &str, host: bool| {
            format!(
                r#"{{"metadata":{{}},"spec":{{"hostNetwork":{host}}},"status":{{"podIPs":[{{"ip":"{ip}"}}],
                    "conditions":[{{"type":"Ready","status":"{status}"}}]}}}}"#
            )
        };
        let pods = [
            pod("10.0.0.1", "True", false),
            pod("10.0.0.2", "False", false),
            pod("192.168.1.10", "True", true),
            pod("fd00::1", "True", false),
            r#"{"metadata":{},"spec":{},"status":{}}"#.to_owned(),
        ];

        let found = pod_endpoints(format!(r#"{{"items":[{}]}}"#, pods.join(",")).as_bytes(), 6443).unwrap();

        assert_eq!(found, ["10.0.0.1:6443", "[fd00::1]:6443"]);
    }

    #[test]
    fn services_with_an_address_and_the_port_are_found_by_address_and_name() {
        let service = |name: &str, ip: &str, port: u16| {
            format!(
                r#"{{"metadata":{{"name":"{name}","namespace":"tenant-a"}},
                    "spec":{{"clusterIPs":["{ip}"],"ports":[{{"name":"x","port":{port},"protocol":"TCP"}}]}}}}"#
            )
        };
        let services = [
            service("api", "10.96.0.7", 6443),
            service("other", "10.96.0.8", 80),
            service("headless", "None", 6443),
            r#"{"metadata":{"name":"external","namespace":"tenant-a"},"spec":{"externalName":"x.example"}}"#
                .to_owned(),
        ];

        let answer = format!(r#"{{"items":[{}]}}"#, services.join(","));
        let found = service_endpoints(answer.as_bytes(), 6443).unwrap();

        assert_eq!(found, ["10.96.0.7:6443", "api.tenant-a.svc:6443"]);
        let addresses = vec!["10.96.0.7:6443".parse().unwrap()];
        let api = ServiceName::new("api", "tenant-a").unwrap();
        let expected = [(api, Backends::Ports([(6443, addresses)].into()))];
        assert_eq!(backends(answer.as_bytes(), 6443).unwrap(), expected.into());
    }

    #[test]
    fn a_status_is_no_list() {
        assert!(pod_endpoints(b"{\"kind\":\"Status\"}", 1).is_err());
        assert!(service_endpoints(b"{\"kind\":\"Status\"}", 1).is_err());
    }
}
