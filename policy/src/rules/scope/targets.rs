//! Targets that an agent dials from within a cluster.

use crate::document;
use crate::error::{DocumentError, FieldPath};
use crate::network::Network;
use crate::rules::choice::Choice;
use crate::rules::lists::choice;
use crate::target::{Host, Target, port};

/// One entry: these hosts, each on these ports.
#[derive(Debug, Clone)]
pub(in crate::rules) struct Targets {
    hosts: Choice<HostPattern>,
    ports: Choice<u16>,
}

/// A name or an address, or all addresses of a network. A name is compared as the caller wrote it, and never resolved here.
#[derive(Debug, Clone)]
enum HostPattern {
    One(Host),
    Network(Network),
}

impl Targets {
    pub(super) fn contain(&self, target: &Target) -> bool {
        self.hosts.has(|host| host.has(&target.host)) && self.ports.has(|port| *port == target.port)
    }

    pub(super) fn contain_all(&self) -> bool {
        self.hosts.is_any() && self.ports.is_any()
    }

    pub(super) fn validate(at: &FieldPath, raw: &document::RawTargets) -> Result<Self, DocumentError> {
        let document::RawTargets { hosts, ports } = raw;
        let hosts =
            hosts.as_ref().ok_or_else(|| at.required("hosts", "at least one host, or ['*'] for all"))?;
        let ports =
            ports.as_ref().ok_or_else(|| at.required("ports", "at least one port, or ['*'] for all"))?;
        Ok(Self {
            hosts: choice(&at.child("hosts", hosts), hosts, HostPattern::parse)?,
            ports: choice(&at.child("ports", ports), ports, |text| {
                port(text).ok_or("'*', or ports of 1 to 65535")
            })?,
        })
    }
}

impl HostPattern {
    fn has(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::One(one), host) => one == host,
            (Self::Network(network), Host::Address(address)) => network.has(*address),
            (Self::Network(_), Host::Name(_)) => false,
        }
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let allowed = "'*', DNS names and IP addresses in full, or networks such as 10.0.0.0/8, with no bit set behind the mask";
        if text.contains('/') {
            return text.parse().map(Self::Network).map_err(|_| allowed);
        }
        Host::parse(text).map(Self::One).ok_or(allowed)
    }
}
