//! Balancers on the worker of a cluster, and the waits until they and the API servers serve.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};

use super::{ANSWER_MAX, LbCluster, READY_MAX, until};
use crate::balancers::{Balancer, BalancerError, BalancerKind, BalancerOptions};
use crate::dial::dial_name;

/// The time in which every balancer sees that an API server has come back. haproxy asks twice, every 2 s.
const SEEN_WITHIN: Duration = Duration::from_secs(6);

/// The ports of the first balancer: for callers, and for metrics.
const PORTS: (u16, u16) = (7443, 9092);

/// The distance between the ports of both kinds, and so the most balancers on a worker.
const BALANCERS_MAX: u16 = PORTS.1 - PORTS.0;

impl LbCluster {
    /// Starts a balancer on the worker, as the one with this number there, and returns at once.
    ///
    /// # Errors
    /// It does not start.
    ///
    /// # Panics
    /// With a number that is too high.
    pub async fn start_balancer(&self, kind: BalancerKind, number: u16) -> Result<Balancer, BalancerError> {
        assert!(number < BALANCERS_MAX, "{number}");
        let api_servers: Vec<SocketAddr> =
            (0..self.addresses.len()).map(|master| self.socket(master)).collect();
        let kubelet = self.kubelet();
        let options = BalancerOptions {
            api_servers: &api_servers,
            ca_pem: self.edge.ca_pem(),
            kubelet: Some(&kubelet),
            network_namespace: Some(self.worker.path()),
            port: PORTS.0 + number,
            probes_port: PORTS.1 + number,
        };
        Balancer::start(kind, &options).await
    }

    /// Waits until every API server says that it is ready, and every balancer has had the time to see it.
    pub async fn until_all_serve(&self) {
        for master in 0..self.addresses.len() {
            self.until_serves(self.socket(master)).await;
        }
        sleep(SEEN_WITHIN).await;
    }

    /// Waits until `/readyz` is answered with 200 at this address, as the worker sees it.
    pub async fn until_serves(&self, address: SocketAddr) {
        until(&format!("{address} is ready"), READY_MAX, async || {
            let ca_pem = self.edge.ca_pem().to_owned();
            let asking = async move {
                // Every certificate bears this address, by which callers of balancers come.
                let mut tls = dial_name(address, "127.0.0.1", &ca_pem, &["http/1.1"], None).await.ok()?;
                tls.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.ok()?;
                let mut answer = String::new();
                tls.read_to_string(&mut answer).await.ok()?;
                answer.starts_with("HTTP/1.1 200").then_some(())
            };
            self.on_worker.run(async { timeout(ANSWER_MAX, asking).await.ok().flatten() }).await
        })
        .await;
    }
}
