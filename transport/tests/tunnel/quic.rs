//! Tests that apply to QUIC alone.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use transport::{Carrier, Endpoint, EndpointKeys, OpenError, Spawn, TunnelEnded};

use crate::pair::{Authority, Pair, Server, Tokio, open, soon};

#[tokio::test]
async fn a_link_counts_the_bytes_of_streams_by_direction() {
    let pair = Pair::greeted(Carrier::Quic).await;
    let before = (pair.server.link_stats(), pair.agent.link_stats());
    let mut there = pair.server.open(&open()).await.unwrap();
    let mut here = pair.accepted().await;
    here.read_open().await.unwrap();
    there.write_all(&[7; 300_000]).await.unwrap();
    soon(here.read_exact(&mut vec![0; 300_000])).await.unwrap();
    here.write_all(b"answer").await.unwrap();
    soon(there.read_exact(&mut [0; 6])).await.unwrap();

    let (server, agent) = (pair.server.link_stats(), pair.agent.link_stats());
    let first_frame = server.stream_bytes_sent - before.0.stream_bytes_sent - 300_000;
    assert!((1..200).contains(&first_frame), "{first_frame} bytes of a first frame");
    assert_eq!(server.stream_bytes_received - before.0.stream_bytes_received, 6);
    assert_eq!(agent.stream_bytes_sent - before.1.stream_bytes_sent, 6);
    assert_eq!(agent.stream_bytes_received - before.1.stream_bytes_received, first_frame + 300_000);
    assert!(
        server.wire_bytes_sent > 300_000
            && server.packets_sent > 40
            && server.packets_lost <= server.packets_sent
    );
    assert!(agent.wire_bytes_received - before.1.wire_bytes_received > 300_000);
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn packets_grow_to_what_the_route_takes() {
    let pair = Pair::greeted(Carrier::Quic).await;
    let mut there = pair.server.open(&open()).await.unwrap();
    let mut here = pair.accepted().await;
    here.read_open().await.unwrap();
    let ethernets = 1_500;
    soon(async {
        loop {
            let before = pair.server.link_stats();
            there.write_all(&[7; 300_000]).await.unwrap();
            here.read_exact(&mut vec![0; 300_000]).await.unwrap();
            let now = pair.server.link_stats();
            let bytes = now.wire_bytes_sent - before.wire_bytes_sent;
            if bytes / (now.packets_sent - before.packets_sent) > 2 * ethernets {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn an_agent_grants_128_streams_until_it_has_accepted_half_of_that() {
    let pair = Pair::greeted(Carrier::Quic).await;
    let at_first = 128;
    let mut streams = Vec::new();
    for _ in 0..at_first {
        streams.push(pair.server.open(&open()).await.unwrap());
    }
    assert!(matches!(soon(pair.server.open(&open())).await, Err(OpenError::Full)));

    let mut accepted = Vec::new();
    for _ in 0..at_first / 2 {
        accepted.push(soon(pair.agent.accept()).await.unwrap());
    }
    for _ in 0..at_first {
        streams.push(pair.server.open(&open()).await.unwrap());
    }
}

#[tokio::test]
async fn a_restarted_server_is_noticed_by_its_persisted_keys() {
    let keys = EndpointKeys::generate().unwrap();
    let authority = Authority::new();
    let spawner = KilledTogether::default();
    let first = authority.endpoint("127.0.0.1:0".parse().unwrap(), &keys, Arc::new(spawner.clone())).unwrap();
    let address = first.address().unwrap();
    let pair = authority.greet(Server::Quic(Box::new(first))).await;
    // As SIGKILL does: no close is sent, and the port is free.
    pair.server_task.abort();
    spawner.kill();
    drop((pair.server, pair.kept));

    let _second = rebound(&authority, address, &keys).await;

    assert_eq!(soon(pair.agent_ended).await.unwrap(), TunnelEnded::Restarted);
}

/// Binds the address that a killed endpoint kept, as soon as the system has let go of it.
async fn rebound(authority: &Authority, address: SocketAddr, keys: &EndpointKeys) -> Endpoint {
    soon(async {
        loop {
            match authority.endpoint(address, keys, Arc::new(Tokio)) {
                Ok(endpoint) => return endpoint,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await
}

/// Drivers that can be killed at once, as a process is.
#[derive(Clone, Default)]
struct KilledTogether(Arc<std::sync::Mutex<Vec<tokio::task::AbortHandle>>>);

impl KilledTogether {
    fn kill(&self) {
        for driver in self.0.lock().unwrap().drain(..) {
            driver.abort();
        }
    }
}

impl Spawn for KilledTogether {
    fn spawn(&self, driver: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.lock().unwrap().push(tokio::spawn(driver).abort_handle());
    }
}
