//! The sources that name API servers. Each only adds to those that are tried.

use std::net::SocketAddr;
use std::time::Instant;

use super::grade::Grade;
use super::named_by::{NamedBefore, Source};
use super::state::{API_SERVERS_MAX, LAST_RESORT_FOR, Member, Members};

impl Members {
    /// Replaces the addresses of a source. Those that no source names any more become last resorts. An empty
    /// list changes nothing. Returns true if the API servers are others now.
    pub fn name(&mut self, source: Source, addresses: &[SocketAddr], now: Instant) -> bool {
        if addresses.is_empty() || (source == Source::StateFile && self.has_slice) {
            return false;
        }
        let before = self.named();
        for address in addresses {
            self.add(*address);
        }
        self.has_slice |= source == Source::Slice;
        let has_slice = self.has_slice;
        for member in &mut self.list {
            *member.named.source(source) = addresses.contains(&member.address);
            member.named.state_file &= !has_slice;
            member.named.settle(now);
        }
        self.limit(now);
        before != self.named()
    }

    /// Takes over what the state file has, last resorts included.
    pub fn remember(&mut self, remembered: &[NamedBefore], now: Instant) {
        let named: Vec<SocketAddr> = remembered
            .iter()
            .filter(|remembered| remembered.unnamed_for.is_none())
            .map(|remembered| remembered.address)
            .collect();
        self.name(Source::StateFile, &named, now);
        for remembered in remembered {
            let Some(before) = remembered.unnamed_for else { continue };
            self.add(remembered.address);
            if let Some(member) = self.get_mut(remembered.address)
                && !member.named.is_named()
            {
                member.named.unnamed = Some((before, now));
            }
        }
        self.limit(now);
        self.expire(now);
    }

    /// Forgets API servers that no source has named for [`LAST_RESORT_FOR`]. Returns true if there were any.
    pub fn expire(&mut self, now: Instant) -> bool {
        let before = self.list.len();
        let is_recent =
            |member: &Member| member.named.unnamed_for(now).is_none_or(|time| time < LAST_RESORT_FOR);
        self.list.retain(is_recent);
        before != self.list.len()
    }

    /// The API servers to write down for the next process: all but seeds that have never shown a certificate
    /// of the cluster's CA.
    #[must_use]
    pub fn to_remember(&self, now: Instant) -> Vec<NamedBefore> {
        let worth = self.list.iter().filter(|member| {
            member.grade != Grade::Unproven
                || member.named.slice
                || member.named.host_slice
                || member.named.state_file
                || !member.named.is_named()
        });
        let remembered = worth.map(|member| NamedBefore {
            address: member.address,
            unnamed_for: member.named.unnamed_for(now),
        });
        remembered.collect()
    }

    fn add(&mut self, address: SocketAddr) {
        if self.get(address).is_none() {
            self.list.push(Member::new(address));
        }
    }

    /// Keeps the best [`API_SERVERS_MAX`] and forgets all others.
    fn limit(&mut self, now: Instant) {
        while self.list.len() > API_SERVERS_MAX {
            let worst = self.list.iter().enumerate().max_by_key(|(_, member)| member.named.rank(now));
            let Some((worst, _)) = worst else { return };
            self.list.remove(worst);
        }
    }

    fn named(&self) -> Vec<(SocketAddr, bool)> {
        self.list.iter().map(|member| (member.address, member.is_named())).collect()
    }
}

impl Member {
    /// Returns true if a source names the API server now. Otherwise it is a last resort.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.named.is_named()
    }
}
