//! The ports of a server of several, all on loopback.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

/// The addresses of one server.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerAddresses {
    /// The server's number, from 0. Its ID follows from it.
    pub(super) number: u8,
    pub(super) gateway: SocketAddr,
    pub(super) tunnel: SocketAddr,
    pub(super) enrollment: SocketAddr,
    pub(super) probes: SocketAddr,
    pub(super) peering: SocketAddr,
}

impl ServerAddresses {
    /// The addresses of this many servers. All ports are held until each server has its own.
    pub(super) fn all(servers: u8, first_gateway: SocketAddr) -> io::Result<Vec<Self>> {
        let mut held = (Vec::new(), Vec::new());
        let mut tcp = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let address = listener.local_addr();
            held.0.push(listener);
            address
        };
        let mut udp = || {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            let address = socket.local_addr();
            held.1.push(socket);
            address
        };
        (0..servers)
            .map(|number| {
                Ok(Self {
                    number,
                    gateway: if number == 0 { first_gateway } else { tcp()? },
                    tunnel: udp()?,
                    enrollment: tcp()?,
                    probes: tcp()?,
                    peering: udp()?,
                })
            })
            .collect()
    }

    /// The server's ID, as a pod of a StatefulSet has it.
    pub(super) fn id(self) -> String {
        format!("tunnel-server-{}", self.number)
    }
}
