//! The endpoints of the cluster's Services, by the last answers of its API server.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use policy::{ServiceName, Target};

/// Most endpoints of one port of a Service that are kept. Others are not dialed.
pub const ENDPOINTS_MAX: usize = 256;

/// Most Services that one search for tenants' API servers adds.
pub const FOUND_MAX: usize = 64;

/// The Services that the agent's file names, and those that searches for tenants' API servers have found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Services {
    named: BTreeMap<ServiceName, Backends>,
    /// The Services of each search, by its number.
    found: BTreeMap<usize, BTreeMap<ServiceName, Backends>>,
}

/// The backends of one Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backends {
    /// There is no Service of this name.
    Absent,
    /// The Service is an alias for a DNS name (`ExternalName`), which is not followed.
    ExternalName,
    /// The TCP ports that may be dialed, each with its ready endpoints.
    Ports(BTreeMap<u16, Vec<SocketAddr>>),
}

/// A Service has no endpoint to dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// The API server has not answered yet, or does not let the agent read the Service.
    #[error(
        "the API server has not named the endpoints of this Service; apply what `tombolo rbac` makes of the configuration"
    )]
    Unread,
    /// There is no such Service.
    #[error("there is no such Service")]
    Absent,
    /// The Service is an alias for a DNS name.
    #[error("this Service is an ExternalName, which is not followed")]
    ExternalName,
    /// The Service has no such port.
    #[error("this Service has no such TCP port")]
    NoPort,
    /// The port has no endpoint that is ready.
    #[error("no endpoint of this Service is ready")]
    NotReady,
}

impl Services {
    /// Keeps the backends of a Service that the agent's file names. Returns whether they have changed.
    pub fn set_named(&mut self, name: &ServiceName, mut backends: Backends) -> bool {
        backends.truncate();
        if self.named.get(name) == Some(&backends) {
            return false;
        }
        self.named.insert(name.clone(), backends);
        true
    }

    /// Forgets a Service that the agent may no longer read. Returns whether it was known.
    pub fn forget(&mut self, name: &ServiceName) -> bool {
        self.named.remove(name).is_some()
    }

    /// Replaces the Services that a search has found, at most [`FOUND_MAX`]. Returns whether they have
    /// changed.
    pub fn set_found(&mut self, search: usize, found: BTreeMap<ServiceName, Backends>) -> bool {
        let mut found: BTreeMap<_, _> = found.into_iter().take(FOUND_MAX).collect();
        found.values_mut().for_each(Backends::truncate);
        let before = self.found.insert(search, found.clone());
        before.unwrap_or_default() != found
    }

    /// The ready endpoints of the Service and port that `target` names, at least one. They are not checked
    /// against the list yet.
    ///
    /// # Errors
    ///
    /// [`BackendError`]. `Unread` also where `target` is no Service.
    pub fn endpoints(&self, target: &Target) -> Result<&[SocketAddr], BackendError> {
        let name = target.service().ok_or(BackendError::Unread)?;
        let found = || self.found.values().find_map(|found| found.get(&name));
        match self.named.get(&name).or_else(found) {
            None => Err(BackendError::Unread),
            Some(Backends::Absent) => Err(BackendError::Absent),
            Some(Backends::ExternalName) => Err(BackendError::ExternalName),
            Some(Backends::Ports(ports)) => match ports.get(&target.port()) {
                None => Err(BackendError::NoPort),
                Some(addresses) if addresses.is_empty() => Err(BackendError::NotReady),
                Some(addresses) => Ok(addresses),
            },
        }
    }
}

impl Backends {
    /// Cuts each port down to [`ENDPOINTS_MAX`] endpoints.
    fn truncate(&mut self) {
        if let Self::Ports(ports) = self {
            ports.values_mut().for_each(|addresses| addresses.truncate(ENDPOINTS_MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    fn name(text: &str) -> ServiceName {
        target(&format!("{text}:1")).service().unwrap()
    }

    fn addresses(count: usize) -> Vec<SocketAddr> {
        (0..count).map(|n| SocketAddr::from(([10, 42, (n / 256) as u8, (n % 256) as u8], 8443))).collect()
    }

    fn ports(count: usize) -> Backends {
        Backends::Ports([(443, addresses(count))].into())
    }

    #[test]
    fn a_service_has_the_endpoints_of_the_last_answer_or_a_reason() {
        let mut services = Services::default();
        let hook = name("hook.shop.svc");
        let endpoints =
            |services: &Services, text: &str| services.endpoints(&target(text)).map(<[SocketAddr]>::len);

        assert_eq!(endpoints(&services, "hook.shop.svc:443"), Err(BackendError::Unread));
        assert!(services.set_named(&hook, ports(2)) && !services.set_named(&hook, ports(2)));
        assert_eq!(endpoints(&services, "hook.shop.svc:443"), Ok(2));
        assert_eq!(endpoints(&services, "hook.shop.svc:80"), Err(BackendError::NoPort));
        assert_eq!(endpoints(&services, "hook.other.svc:443"), Err(BackendError::Unread));
        assert_eq!(endpoints(&services, "10.42.0.1:443"), Err(BackendError::Unread));
        for (backends, why) in [
            (ports(0), BackendError::NotReady),
            (Backends::Absent, BackendError::Absent),
            (Backends::ExternalName, BackendError::ExternalName),
        ] {
            assert!(services.set_named(&hook, backends));
            assert_eq!(endpoints(&services, "hook.shop.svc:443"), Err(why));
        }
        assert!(services.forget(&hook) && !services.forget(&hook));
        assert_eq!(endpoints(&services, "hook.shop.svc:443"), Err(BackendError::Unread));
    }

    #[test]
    fn a_searchs_services_last_until_the_next_result_and_named_ones_win() {
        let mut services = Services::default();
        let found = |count| BTreeMap::from([(name("api.tenant-a.svc"), ports(count))]);
        assert!(services.set_found(1, found(1)) && !services.set_found(1, found(1)));
        assert_eq!(services.endpoints(&target("api.tenant-a.svc:443")).unwrap().len(), 1);

        services.set_named(&name("api.tenant-a.svc"), ports(3));
        assert_eq!(services.endpoints(&target("api.tenant-a.svc:443")).unwrap().len(), 3);
        services.forget(&name("api.tenant-a.svc"));

        assert!(services.set_found(1, BTreeMap::new()));
        assert_eq!(services.endpoints(&target("api.tenant-a.svc:443")), Err(BackendError::Unread));
    }

    #[test]
    fn endpoints_and_found_services_are_kept_up_to_their_limits() {
        let mut services = Services::default();
        services.set_named(&name("hook.shop.svc"), ports(ENDPOINTS_MAX + 1));
        assert_eq!(services.endpoints(&target("hook.shop.svc:443")).unwrap(), addresses(ENDPOINTS_MAX));

        let found = (0..=FOUND_MAX).map(|n| (name(&format!("api.tenant-{n:03}.svc")), ports(1)));
        services.set_found(0, found.collect());
        let endpoints = |n: usize| services.endpoints(&target(&format!("api.tenant-{n:03}.svc:443"))).is_ok();
        assert!(endpoints(FOUND_MAX - 1) && !endpoints(FOUND_MAX));
    }
}
