//! A UDP relay between a server and an agent that can keep the server's packets back.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;
use tokio::sync::Notify;

/// One agent's way to a server. What the agent sends always passes.
#[derive(Clone)]
pub(crate) struct Valve(Arc<State>);

struct State {
    /// The address that the agent dials.
    address: SocketAddr,
    queue: Mutex<Queue>,
    changed: Notify,
}

struct Queue {
    /// Number of packets that may pass; all of them, if `None`.
    may_pass: Option<usize>,
    packets: VecDeque<Vec<u8>>,
}

impl Valve {
    /// An open valve in front of a server.
    pub(crate) async fn before(server: SocketAddr) -> Self {
        let inner = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let outer = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        outer.connect(server).await.unwrap();
        let valve = Self(Arc::new(State {
            address: inner.local_addr().unwrap(),
            queue: Mutex::new(Queue { may_pass: None, packets: VecDeque::new() }),
            changed: Notify::new(),
        }));
        tokio::spawn(valve.clone().carry(inner, outer));
        valve
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Keeps back everything that the server sends from now on.
    pub(crate) fn shut(&self) {
        self.0.queue.lock().unwrap().may_pass = Some(0);
    }

    /// Number of packets that are kept back.
    pub(crate) fn queued(&self) -> usize {
        self.0.queue.lock().unwrap().packets.len()
    }

    /// Lets the queued packets pass, and this many of those that follow.
    pub(crate) fn let_pass(&self, behind: usize) {
        let mut queue = self.0.queue.lock().unwrap();
        queue.may_pass = Some(queue.packets.len() + behind);
        self.0.changed.notify_one();
    }

    async fn carry(self, inner: Arc<UdpSocket>, outer: Arc<UdpSocket>) {
        let (mut from_agent, mut from_server) = (vec![0; 2048], vec![0; 2048]);
        let mut agent = None;
        loop {
            tokio::select! {
                Ok((length, from)) = inner.recv_from(&mut from_agent) => {
                    agent = Some(from);
                    let _ = outer.send(&from_agent[..length]).await;
                }
                Ok(length) = outer.recv(&mut from_server) => {
                    self.0.queue.lock().unwrap().packets.push_back(from_server[..length].to_vec());
                }
                () = self.0.changed.notified() => {}
            }
            while let (Some(agent), Some(packet)) = (agent, self.next()) {
                let _ = inner.send_to(&packet, agent).await;
            }
        }
    }

    fn next(&self) -> Option<Vec<u8>> {
        let mut queue = self.0.queue.lock().unwrap();
        if queue.may_pass == Some(0) {
            return None;
        }
        let packet = queue.packets.pop_front()?;
        queue.may_pass = queue.may_pass.map(|packets| packets - 1);
        Some(packet)
    }
}
