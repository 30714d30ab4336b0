//! A table of nftables that leads packets for one address to another, and that ends with this process.
//!
//! The table has the flag `owner` of Linux 5.12: it belongs to the socket by which it was made. The kernel removes
//! it when the socket is closed, also after `kill -9`. So no rule leads pods to a program that is gone.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::net::netlink::NETFILTER;

use crate::netlink::{Attributes, Messages, Netlink};

/// The name of the table, which `nft list ruleset` shows.
const TABLE: &str = "tombolo-node-lb";

/// Before kube-proxy and everything else that changes destinations at its usual priority of -100.
const PRIORITY: i32 = -110;

// linux/netfilter/nfnetlink.h and nf_tables.h
const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const NEW_CHAIN: u16 = SUBSYSTEM << 8 | 3;
const NEW_RULE: u16 = SUBSYSTEM << 8 | 6;
const IPV4: u8 = 2;
const TABLE_FLAG_OWNER: u32 = 2;
const LIST_ELEMENT: u16 = 1;
const REGISTER_1: u32 = 1;
const REGISTER_2: u32 = 2;
const PROTOCOL_TCP: u8 = 6;

/// The chains: packets from pods come by the first hook, those of this host's own processes by the second.
const CHAINS: [(&str, u32); 2] = [("prerouting", 0), ("output", 3)];

/// The table, until this is dropped.
#[derive(Debug)]
pub(super) struct Steering(Netlink);

impl Steering {
    /// # Errors
    /// The kernel's: EEXIST if a living process has the table, EPERM without CAP_NET_ADMIN, EOPNOTSUPP or EINVAL if
    /// the kernel does not know the flag.
    pub(super) fn begin(service: SocketAddrV4, to: SocketAddrV4) -> io::Result<Self> {
        let netlink = Netlink::open(Some(NETFILTER))?;
        netlink.request(&table(service, to))?;
        Ok(Self(netlink))
    }

    /// Takes over the socket by which another process has made the table.
    pub(super) fn take_over(socket: OwnedFd) -> Self {
        Self(Netlink::from(socket))
    }

    /// The socket that owns the table.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// All of the table in one batch: the kernel takes all of it or nothing.
fn table(service: SocketAddrV4, to: SocketAddrV4) -> Messages {
    let mut messages = Messages::default();
    messages.mark(BATCH_BEGIN, |body| header(body, 0, SUBSYSTEM));
    messages.create(NEW_TABLE, |body| {
        header(body, IPV4, 0);
        body.text(1, TABLE).number(2, TABLE_FLAG_OWNER);
    });
    for (chain, hook) in CHAINS {
        messages.create(NEW_CHAIN, |body| {
            header(body, IPV4, 0);
            body.text(1, TABLE).text(3, chain);
            body.nested(4, |body| {
                body.number(1, hook).number(2, PRIORITY.cast_unsigned());
            });
            body.text(7, "nat");
        });
        messages.append(NEW_RULE, |body| {
            header(body, IPV4, 0);
            body.text(1, TABLE).text(2, chain);
            body.nested(4, |body| rule(body, service, to));
        });
    }
    messages.mark(BATCH_END, |body| header(body, 0, SUBSYSTEM));
    messages
}

/// Adds the `struct nfgenmsg` of a message.
fn header(body: &mut Attributes, family: u8, resource: u16) {
    let [high, low] = resource.to_be_bytes();
    body.fixed(&[family, 0, high, low]);
}

/// `ip daddr SERVICE tcp dport PORT dnat to ADDRESS:PORT`
fn rule(body: &mut Attributes, service: SocketAddrV4, to: SocketAddrV4) {
    const BASE_NETWORK: u32 = 1;
    const BASE_TRANSPORT: u32 = 2;
    const DESTINATION_ADDRESS: (u32, u32) = (16, 4);
    const DESTINATION_PORT: (u32, u32) = (2, 2);
    const META_L4PROTO: u32 = 16;
    const NAT_DESTINATION: u32 = 1;
    expression(body, "meta", |body| {
        body.number(1, REGISTER_1).number(2, META_L4PROTO);
    });
    equals(body, &[PROTOCOL_TCP]);
    payload(body, BASE_NETWORK, DESTINATION_ADDRESS);
    equals(body, &service.ip().octets());
    payload(body, BASE_TRANSPORT, DESTINATION_PORT);
    equals(body, &service.port().to_be_bytes());
    immediate(body, REGISTER_1, &to.ip().octets());
    immediate(body, REGISTER_2, &to.port().to_be_bytes());
    expression(body, "nat", |body| {
        body.number(1, NAT_DESTINATION).number(2, IPV4.into());
        body.number(3, REGISTER_1).number(5, REGISTER_2);
    });
}

fn expression(body: &mut Attributes, name: &str, data: impl FnOnce(&mut Attributes)) {
    body.nested(LIST_ELEMENT, |body| {
        body.text(1, name).nested(2, data);
    });
}

/// Loads a part of the packet.
fn payload(body: &mut Attributes, base: u32, (offset, length): (u32, u32)) {
    expression(body, "payload", |body| {
        body.number(1, REGISTER_1).number(2, base).number(3, offset).number(4, length);
    });
}

/// Goes on only if what was loaded is this value.
fn equals(body: &mut Attributes, value: &[u8]) {
    const EQUAL: u32 = 0;
    expression(body, "cmp", |body| {
        body.number(1, REGISTER_1).number(2, EQUAL).nested(3, |body| {
            body.bytes(1, value);
        });
    });
}

fn immediate(body: &mut Attributes, register: u32, value: &[u8]) {
    expression(body, "immediate", |body| {
        body.number(1, register).nested(2, |body| {
            body.bytes(1, value);
        });
    });
}
