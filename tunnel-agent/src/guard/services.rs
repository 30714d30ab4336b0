//! What the cluster's Services lead to, as its API server has said last.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use policy::{ServiceName, Target};

/// Most endpoints of one port of a Service that are kept; the others are not dialed.
pub const ENDPOINTS_MAX: usize = 256;

/// Most Services that one search for tenants' API servers adds.
pub const FOUND_MAX: usize = 64;

/// What is known of Services: those that the agent's file names, and those that searches have found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Services {
    named: BTreeMap<ServiceName, Backends>,
    /// By the number of the search.
    found: BTreeMap<usize, BTreeMap<ServiceName, Backends>>,
}

/// What one Service leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backends {
    /// There is none of this name.
    Absent,
    /// It is another name of something elsewhere, an `ExternalName`, which nobody here follows.
    Elsewhere,
    /// Its TCP ports that somebody may want, each with what is ready behind it.
    Ports(BTreeMap<u16, Vec<SocketAddr>>),
}

/// Why a Service leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Nowhere {
    /// The API server has not said, or does not let the agent read it.
    #[error(
        "the API server has not said where this Service leads; apply what `tombolo rbac` makes of the configuration"
    )]
    Unread,
    /// There is none.
    #[error("there is no such Service")]
    Absent,
    /// It is an alias.
    #[error("this Service is an ExternalName, which is not followed")]
    Elsewhere,
    /// Not this one.
    #[error("this Service has no such TCP port")]
    NoPort,
    /// Nobody serves it.
    #[error("no endpoint of this Service is ready")]
    NotReady,
}

impl Services {
    /// Keeps what the API server says of a Service that the agent's file names; says whether that is news.
    pub fn learn(&mut self, name: &ServiceName, mut backends: Backends) -> bool {
        backends.bound();
        if self.named.get(name) == Some(&backends) {
            return false;
        }
        self.named.insert(name.clone(), backends);
        true
    }

    /// Forgets it, because the agent may read it no more; says whether it was known.
    pub fn forget(&mut self, name: &ServiceName) -> bool {
        self.named.remove(name).is_some()
    }

    /// Keeps what a search has found, of at most [`FOUND_MAX`] Services, in place of what it had; says whether that is news.
    pub fn find(&mut self, search: usize, found: BTreeMap<ServiceName, Backends>) -> bool {
        let mut found: BTreeMap<_, _> = found.into_iter().take(FOUND_MAX).collect();
        found.values_mut().for_each(Backends::bound);
        let was = self.found.insert(search, found.clone());
        was.unwrap_or_default() != found
    }

    /// Where a Service leads at the port that `target` names; at least one address, none of them looked at yet.
    ///
    /// # Errors
    ///
    /// [`Nowhere`]; `Unread`, too, where `target` is no Service.
    pub fn leads(&self, target: &Target) -> Result<&[SocketAddr], Nowhere> {
        let name = target.service().ok_or(Nowhere::Unread)?;
        let found = || self.found.values().find_map(|found| found.get(&name));
        match self.named.get(&name).or_else(found) {
            None => Err(Nowhere::Unread),
            Some(Backends::Absent) => Err(Nowhere::Absent),
            Some(Backends::Elsewhere) => Err(Nowhere::Elsewhere),
            Some(Backends::Ports(ports)) => match ports.get(&target.port()) {
                None => Err(Nowhere::NoPort),
                Some(addresses) if addresses.is_empty() => Err(Nowhere::NotReady),
                Some(addresses) => Ok(addresses),
            },
        }
    }
}

impl Backends {
    fn bound(&mut self) {
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
    fn a_service_leads_where_it_was_said_last_and_else_it_is_said_why_not() {
        let mut services = Services::default();
        let hook = name("hook.shop.svc");
        let leads = |services: &Services, text: &str| services.leads(&target(text)).map(<[SocketAddr]>::len);

        assert_eq!(leads(&services, "hook.shop.svc:443"), Err(Nowhere::Unread));
        assert!(services.learn(&hook, ports(2)) && !services.learn(&hook, ports(2)));
        assert_eq!(leads(&services, "hook.shop.svc:443"), Ok(2));
        assert_eq!(leads(&services, "hook.shop.svc:80"), Err(Nowhere::NoPort));
        assert_eq!(leads(&services, "hook.other.svc:443"), Err(Nowhere::Unread));
        assert_eq!(leads(&services, "10.42.0.1:443"), Err(Nowhere::Unread));
        for (backends, why) in [
            (ports(0), Nowhere::NotReady),
            (Backends::Absent, Nowhere::Absent),
            (Backends::Elsewhere, Nowhere::Elsewhere),
        ] {
            assert!(services.learn(&hook, backends));
            assert_eq!(leads(&services, "hook.shop.svc:443"), Err(why));
        }
        assert!(services.forget(&hook) && !services.forget(&hook));
        assert_eq!(leads(&services, "hook.shop.svc:443"), Err(Nowhere::Unread));
    }

    #[test]
    fn what_a_search_finds_is_known_until_it_finds_something_else_and_never_in_place_of_what_is_named() {
        let mut services = Services::default();
        let found = |count| BTreeMap::from([(name("api.tenant-a.svc"), ports(count))]);
        assert!(services.find(1, found(1)) && !services.find(1, found(1)));
        assert_eq!(services.leads(&target("api.tenant-a.svc:443")).unwrap().len(), 1);

        services.learn(&name("api.tenant-a.svc"), ports(3));
        assert_eq!(services.leads(&target("api.tenant-a.svc:443")).unwrap().len(), 3);
        services.forget(&name("api.tenant-a.svc"));

        assert!(services.find(1, BTreeMap::new()));
        assert_eq!(services.leads(&target("api.tenant-a.svc:443")), Err(Nowhere::Unread));
    }

    #[test]
    fn as_many_endpoints_and_found_services_are_kept_as_may_be_and_not_one_more() {
        let mut services = Services::default();
        services.learn(&name("hook.shop.svc"), ports(ENDPOINTS_MAX + 1));
        assert_eq!(services.leads(&target("hook.shop.svc:443")).unwrap(), addresses(ENDPOINTS_MAX));

        let found = (0..=FOUND_MAX).map(|n| (name(&format!("api.tenant-{n:03}.svc")), ports(1)));
        services.find(0, found.collect());
        let leads = |n: usize| services.leads(&target(&format!("api.tenant-{n:03}.svc:443"))).is_ok();
        assert!(leads(FOUND_MAX - 1) && !leads(FOUND_MAX));
    }
}
