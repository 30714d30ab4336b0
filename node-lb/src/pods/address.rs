//! An address of the worker that is valid on no network: rtnetlink(7).

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, SocketType, netdevice, socket};
use tracing::warn;

use crate::netlink::{Attributes, Messages, Netlink};

/// The interface of the address. Pods reach it by the route to their node.
const INTERFACE: &str = "lo";

/// `NETLINK_ROUTE` is protocol 0, the default.
const ROUTE: Option<Protocol> = None;

const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// The scope of a host's own addresses. With a wider one the kernel would take it as the source of the worker's own
/// packets.
const SCOPE_HOST: u8 = 254;

/// The address, until this is dropped.
#[derive(Debug)]
pub(super) struct LinkLocalAddress {
    address: Ipv4Addr,
    /// Another process has it now.
    is_left: AtomicBool,
}

impl LinkLocalAddress {
    /// # Errors
    /// The kernel's. Without CAP_NET_ADMIN it is EPERM.
    pub(super) fn add(address: Ipv4Addr) -> io::Result<Self> {
        let body = ifaddrmsg(address)?;
        let mut messages = Messages::default();
        messages.create(RTM_NEWADDR, body);
        match request(&messages) {
            Ok(()) => {}
            // Another process has left it: it was killed, or has handed over.
            Err(error) if error.raw_os_error() == Some(Errno::EXIST.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        Ok(Self { address, is_left: AtomicBool::new(false) })
    }

    /// Leaves the address on this host for good.
    pub(super) fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }

    fn remove(&self) -> io::Result<()> {
        let mut messages = Messages::default();
        messages.remove(RTM_DELADDR, ifaddrmsg(self.address)?);
        request(&messages)
    }
}

impl Drop for LinkLocalAddress {
    fn drop(&mut self) {
        if !self.is_left.load(Ordering::Relaxed)
            && let Err(error) = self.remove()
        {
            warn!(address = %self.address, %error, "the address for pods stays on this host");
        }
    }
}

/// `struct ifaddrmsg`, with the address as its attributes.
fn ifaddrmsg(address: Ipv4Addr) -> io::Result<impl FnOnce(&mut Attributes)> {
    const BITS: u8 = 32;
    let asking = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let index = netdevice::name_to_index(asking, INTERFACE)?;
    Ok(move |attributes: &mut Attributes| {
        let family = u8::try_from(AddressFamily::INET.as_raw()).unwrap_or_default();
        let [i0, i1, i2, i3] = index.to_ne_bytes();
        attributes.fixed(&[family, BITS, 0, SCOPE_HOST, i0, i1, i2, i3]);
        attributes.bytes(IFA_LOCAL, &address.octets()).bytes(IFA_ADDRESS, &address.octets());
    })
}

fn request(messages: &Messages) -> io::Result<()> {
    Netlink::open(ROUTE)?.request(messages)
}
