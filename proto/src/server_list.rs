//! The list of an installation's servers, which each of them sends to its agents.

use std::collections::BTreeMap;

use prost::Message as _;

use crate::cluster::is_dns_label;
use crate::endpoint_text::is_plain;
use crate::frame::FRAME_BYTES_MAX;
use crate::wire::{ServerEntry, Servers};

/// Most servers in a list. Further ones are left out.
pub const SERVERS_MAX: usize = 64;

/// Most addresses of one server. Further ones are left out.
pub const SERVER_ADDRESSES_MAX: usize = 8;

/// Most bytes of a list, which is sent beside a trust bundle of up to 32 KiB. If a list is longer, each server has fewer
/// addresses in it.
pub const SERVERS_BYTES_MAX: usize = 24 * 1024;

const _: () = assert!(SERVERS_BYTES_MAX + 32 * 1024 < FRAME_BYTES_MAX);

/// All servers of an installation at one revision. Empty if a server shares its records with nobody.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerList {
    revision: i64,
    /// In the order of their IDs, each of which is there once.
    servers: Vec<ListedServer>,
}

/// A server of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedServer {
    /// The ID in its certificate, a DNS label.
    pub id: String,
    /// The addresses at which agents reach it, `host:port`; may be empty. Printable, and not checked otherwise.
    pub addresses: Vec<String>,
    /// It is stopping, so agents go to others.
    pub is_draining: bool,
}

impl ServerList {
    /// A list at this revision, cut to the limits and to IDs and addresses that can be used.
    #[must_use]
    pub fn new(revision: i64, servers: impl IntoIterator<Item = ListedServer>) -> Self {
        let mut by_id = BTreeMap::new();
        for server in servers.into_iter().filter(|server| is_dns_label(&server.id)).take(SERVERS_MAX) {
            let addresses = server.addresses.into_iter().filter(|address| is_plain(address));
            let addresses = addresses.take(SERVER_ADDRESSES_MAX).collect();
            by_id.insert(server.id.clone(), ListedServer { addresses, ..server });
        }
        Self { revision, servers: by_id.into_values().collect() }
    }

    /// The list in a message of a server. Nothing in it is an error, because a list that a newer server sends must end no
    /// tunnel.
    #[must_use]
    pub fn from_wire(servers: Servers) -> Self {
        let server =
            |ServerEntry { id, addresses, draining }| ListedServer { id, addresses, is_draining: draining };
        Self::new(servers.revision, servers.servers.into_iter().map(server))
    }

    /// The message that has this list, with at most [`SERVERS_BYTES_MAX`].
    #[must_use]
    pub fn to_wire(&self) -> Servers {
        let mut addresses_max = SERVER_ADDRESSES_MAX;
        loop {
            let message = self.message(addresses_max);
            if addresses_max == 0 || message.encoded_len() <= SERVERS_BYTES_MAX {
                return message;
            }
            addresses_max -= 1;
        }
    }

    /// The revision of the shared records that the list is of: a higher one is newer.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// The servers, in the order of their IDs.
    #[must_use]
    pub fn servers(&self) -> &[ListedServer] {
        &self.servers
    }

    /// Returns true if there is no server in the list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    fn message(&self, addresses_max: usize) -> Servers {
        let entry = |server: &ListedServer| ServerEntry {
            id: server.id.clone(),
            addresses: server.addresses.iter().take(addresses_max).cloned().collect(),
            draining: server.is_draining,
        };
        Servers { revision: self.revision, servers: self.servers.iter().map(entry).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_survives_being_sent() {
        let list = ServerList::new(7, [server("b", &["b.example:8443"], true), server("a", &[], false)]);
        let again = ServerList::from_wire(list.to_wire());
        assert_eq!(again, list);
        assert_eq!(again.servers().iter().map(|server| server.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(again.revision(), 7);
    }

    #[test]
    fn servers_and_addresses_beyond_the_limits_are_left_out() {
        let addresses = ["a.example:1"; SERVER_ADDRESSES_MAX + 1];
        let servers = (0..=SERVERS_MAX).map(|n| server(&format!("server-{n}"), &addresses, false));
        let list = ServerList::new(1, servers);
        assert_eq!(list.servers().len(), SERVERS_MAX);
        assert!(list.servers().iter().all(|server| server.addresses.len() == SERVER_ADDRESSES_MAX));
    }

    #[test]
    fn ids_and_addresses_that_cannot_be_used_are_left_out() {
        let list = ServerList::new(
            1,
            [server("No Label", &[], false), server("a", &["\u{1b}[2J", "", "a.example:1"], false)],
        );
        assert_eq!(list.servers(), [server("a", &["a.example:1"], false)]);
    }

    /// The longest names would not fit beside a trust bundle.
    #[test]
    fn a_long_list_has_fewer_addresses_and_all_servers() {
        let long = format!("{}:8443", "x".repeat(250));
        let addresses = [long.as_str(); SERVER_ADDRESSES_MAX];
        let servers = (0..SERVERS_MAX).map(|n| server(&format!("server-{n}"), &addresses, false));
        let message = ServerList::new(1, servers).to_wire();
        assert!(message.encoded_len() <= SERVERS_BYTES_MAX, "{}", message.encoded_len());
        assert_eq!(message.servers.len(), SERVERS_MAX);
        assert!(message.servers.iter().all(|server| server.addresses.len() == 1));
    }

    fn server(id: &str, addresses: &[&str], is_draining: bool) -> ListedServer {
        let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
        ListedServer { id: id.to_owned(), addresses, is_draining }
    }
}
