//! EndpointSlices: the addresses of a Service, and those of API servers, which keep the slices of
//! `kubernetes` themselves.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use serde::Deserialize;

/// Name of the API server's port in a slice.
const PORT_NAME: &str = "https";

#[derive(Deserialize)]
struct SliceList {
    items: Vec<Slice>,
}

/// One slice of the endpoints of a Service.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Slice {
    address_type: String,
    #[serde(default)]
    endpoints: Option<Vec<Endpoint>>,
    #[serde(default)]
    ports: Option<Vec<SlicePort>>,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Conditions,
}

#[derive(Debug, Default, Deserialize)]
struct Conditions {
    /// Absent means ready, by the API's definition.
    ready: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct SlicePort {
    name: Option<String>,
    protocol: Option<String>,
    port: Option<u16>,
}

/// Parses a list of slices.
///
/// # Errors
/// The answer is not such a list.
pub fn parse(answer: &[u8]) -> Result<Vec<Slice>, serde_json::Error> {
    serde_json::from_slice(answer).map(|SliceList { items }| items)
}

/// Returns true if a port of a Service or a slice is a TCP port. An absent protocol means TCP, by the API's
/// definition.
#[must_use]
pub fn is_tcp(protocol: Option<&str>) -> bool {
    protocol.is_none_or(|protocol| protocol == "TCP")
}

impl Slice {
    /// The addresses of ready endpoints, with the number that the TCP port `name` has there. Only the first
    /// address of an endpoint counts. A slice of DNS names gives none.
    pub fn ready(&self, name: &str) -> impl Iterator<Item = SocketAddr> {
        let is_named = |port: &&SlicePort| {
            port.name.as_deref().unwrap_or_default() == name && is_tcp(port.protocol.as_deref())
        };
        let port =
            self.ports.iter().flatten().find(is_named).and_then(|port| port.port).filter(|port| *port > 0);
        let port = port.filter(|_| ["IPv4", "IPv6"].contains(&self.address_type.as_str()));
        let ready =
            self.endpoints.iter().flatten().filter(|endpoint| endpoint.conditions.ready != Some(false));
        let first = ready.filter_map(|endpoint| endpoint.addresses.first()?.parse::<IpAddr>().ok());
        first.filter_map(move |address| port.map(|port| SocketAddr::new(address, port)))
    }
}

/// `host:port` of every ready endpoint, sorted and without duplicates.
///
/// # Errors
/// The answer is not a list of slices.
pub fn endpoints(answer: &[u8]) -> Result<Vec<String>, serde_json::Error> {
    let mut endpoints: Vec<String> = parse(answer)?.iter().flat_map(slice_endpoints).collect();
    endpoints.sort_unstable();
    endpoints.dedup();
    Ok(endpoints)
}

fn slice_endpoints(slice: &Slice) -> Vec<String> {
    let named =
        |port: &&SlicePort| port.name.as_deref().is_none_or(|name| name.is_empty() || name == PORT_NAME);
    let port = slice.ports.iter().flatten().find(named).and_then(|port| port.port);
    let (Some(port), "IPv4" | "IPv6" | "FQDN") = (port, slice.address_type.as_str()) else {
        return Vec::new();
    };
    let ready = slice.endpoints.iter().flatten().filter(|endpoint| endpoint.conditions.ready != Some(false));
    ready.flat_map(|endpoint| &endpoint.addresses).map(|address| joined(address, port)).collect()
}

/// `host:port`, with an IPv6 address in brackets.
#[must_use]
pub fn joined(address: &str, port: u16) -> String {
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
    fn slices_without_endpoints_or_ports_give_nothing() {
        let answer = r#"{"items":[{"addressType":"IPv4","endpoints":null,"ports":[{"port":6443}]},
            {"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"ports":null}]}"#;

        assert_eq!(endpoints(answer.as_bytes()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_status_is_no_list() {
        assert!(endpoints(b"{\"kind\":\"Status\"}").is_err());
    }
}
