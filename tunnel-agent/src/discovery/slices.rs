//! The addresses of the cluster's API servers, which these keep in the EndpointSlices of the Service `kubernetes` themselves.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use serde::Deserialize;

/// The port of a slice that is the API.
const PORT_NAME: &str = "https";

#[derive(Deserialize)]
struct Slices {
    items: Vec<Slice>,
}

/// One slice of the endpoints of a Service.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Slice {
    address_type: String,
    #[serde(default)]
    endpoints: Option<Vec<Endpoint>>,
    #[serde(default)]
    ports: Option<Vec<Port>>,
}

#[derive(Deserialize)]
struct Endpoint {
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Conditions,
}

#[derive(Default, Deserialize)]
struct Conditions {
    /// Absent means ready, says the API.
    ready: Option<bool>,
}

#[derive(Deserialize)]
struct Port {
    name: Option<String>,
    protocol: Option<String>,
    port: Option<u16>,
}

/// The slices of an answer.
pub(super) fn of(answer: &[u8]) -> Result<Vec<Slice>, serde_json::Error> {
    serde_json::from_slice(answer).map(|Slices { items }| items)
}

/// Whether a port of a Service or a slice is one of TCP; absent means that it is, says the API.
pub(super) fn is_tcp(protocol: Option<&str>) -> bool {
    protocol.is_none_or(|protocol| protocol == "TCP")
}

impl Slice {
    /// The addresses of what is ready, with the number that the TCP port `name` has there. Of an endpoint only the first address
    /// counts, and of a slice none that is a name.
    pub(super) fn ready(&self, name: &str) -> impl Iterator<Item = SocketAddr> {
        let is_it = |port: &&Port| {
            port.name.as_deref().unwrap_or_default() == name && is_tcp(port.protocol.as_deref())
        };
        let port =
            self.ports.iter().flatten().find(is_it).and_then(|port| port.port).filter(|port| *port > 0);
        let port = port.filter(|_| ["IPv4", "IPv6"].contains(&self.address_type.as_str()));
        let ready =
            self.endpoints.iter().flatten().filter(|endpoint| endpoint.conditions.ready != Some(false));
        let first = ready.filter_map(|endpoint| endpoint.addresses.first()?.parse::<IpAddr>().ok());
        first.filter_map(move |address| port.map(|port| SocketAddr::new(address, port)))
    }
}

/// `host:port` of every endpoint that is ready.
pub(super) fn endpoints(answer: &[u8]) -> Result<Vec<String>, serde_json::Error> {
    let mut endpoints: Vec<String> = of(answer)?.iter().flat_map(of_slice).collect();
    endpoints.sort_unstable();
    endpoints.dedup();
    Ok(endpoints)
}

fn of_slice(slice: &Slice) -> Vec<String> {
    let named = |port: &&Port| port.name.as_deref().is_none_or(|name| name.is_empty() || name == PORT_NAME);
    let port = slice.ports.iter().flatten().find(named).and_then(|port| port.port);
    let (Some(port), "IPv4" | "IPv6" | "FQDN") = (port, slice.address_type.as_str()) else {
        return Vec::new();
    };
    let ready = slice.endpoints.iter().flatten().filter(|endpoint| endpoint.conditions.ready != Some(false));
    ready.flat_map(|endpoint| &endpoint.addresses).map(|address| joined(address, port)).collect()
}

pub(super) fn joined(address: &str, port: u16) -> String {
    match address.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{address}]:{port}"),
        Err(_) => format!("{address}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_endpoints_are_found_with_their_port() {
        let answer = r#"{"kind":"EndpointSliceList","items":[
            {"addressType":"IPv4","endpoints":[
                {"addresses":["192.168.1.11"],"conditions":{"ready":true}},
                {"addresses":["192.168.1.10"],"conditions":{}},
                {"addresses":["192.168.1.12"],"conditions":{"ready":false}}],
             "ports":[{"name":"metrics","port":9},{"name":"https","port":6443,"protocol":"TCP"}]},
            {"addressType":"IPv6","endpoints":[{"addresses":["fd00::a"]}],"ports":[{"name":"https","port":6443}]}]}"#;

        let found = endpoints(answer.as_bytes()).unwrap();

        assert_eq!(found, ["192.168.1.10:6443", "192.168.1.11:6443", "[fd00::a]:6443"]);
    }

    #[test]
    fn slices_without_endpoints_or_ports_say_nothing() {
        let answer = r#"{"items":[{"addressType":"IPv4","endpoints":null,"ports":[{"port":6443}]},
            {"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"ports":null}]}"#;

        assert_eq!(endpoints(answer.as_bytes()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_status_is_no_list() {
        assert!(endpoints(b"{\"kind\":\"Status\"}").is_err());
    }
}
