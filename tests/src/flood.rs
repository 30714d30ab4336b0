//! A flood of silent TCP connections from one loopback address.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::dial::connect_from;

/// The silent connections with which a flood begins, and the most that it holds.
const SILENT: usize = 500;

/// The interval of further ones: 100 in a second.
const NEXT_EVERY: Duration = Duration::from_millis(10);

/// Opens silent connections until it is dropped.
#[derive(Debug)]
#[must_use = "the flood ends when this is dropped"]
pub struct SilentFlood(JoinHandle<()>);

impl SilentFlood {
    /// Opens 500 connections from `source` to `target`, and from then on 100 in a second. Those that the other side
    /// has closed are replaced.
    ///
    /// # Panics
    /// If the system refuses a connection.
    pub async fn start(source: IpAddr, target: SocketAddr) -> Self {
        let mut held = VecDeque::with_capacity(SILENT + 1);
        for _ in 0..SILENT {
            held.push_back(connect_from(source, target).await.expect("the system takes it"));
        }
        Self(tokio::spawn(async move {
            let mut turns = interval(NEXT_EVERY);
            turns.set_missed_tick_behavior(MissedTickBehavior::Burst);
            loop {
                turns.tick().await;
                // A full accept queue takes none for a moment.
                if let Ok(next) = connect_from(source, target).await {
                    held.push_back(next);
                }
                // The oldest is closed on the other side, too, or has had its time.
                if held.len() > SILENT {
                    held.pop_front();
                }
            }
        }))
    }
}

impl Drop for SilentFlood {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The loopback address that ends in `last`.
#[must_use]
pub fn loopback(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}
