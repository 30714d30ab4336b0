//! Adapts the controller to quinn's trait.
//!
//! quinn's trait lacks three things. There is no pace to set, so the window sets it. Losses that turn out to
//! be wrong are not reported. Sent bytes include bare acknowledgements, which are never in flight, so the
//! bytes in flight are corrected at each acknowledgement.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use aws_lc_rs::rand;
use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::RttEstimator;

use super::control::CongestionControl;
use super::loss_tolerant::LossTolerant;

/// Makes the controller that ships, one for each path of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct LossTolerantFactory;

#[derive(Debug, Clone)]
struct Adapter(LossTolerant);

impl ControllerFactory for LossTolerantFactory {
    fn build(self: Arc<Self>, _now: Instant, packet_bytes: u16) -> Box<dyn Controller> {
        let mut seed = [0; 8];
        // Without randomness tunnels would probe in step, and no more than that; the trait allows no error.
        let _ = rand::fill(&mut seed);
        Box::new(Adapter(LossTolerant::new(packet_bytes, u64::from_ne_bytes(seed))))
    }
}

impl Controller for Adapter {
    fn on_sent(&mut self, now: Instant, bytes: u64, _last_packet_number: u64) {
        self.0.sent(now, bytes);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        _app_limited: bool,
        _round_trip: &RttEstimator,
    ) {
        self.0.acked(now, sent, bytes);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, _largest_acked: Option<u64>) {
        self.0.acks_end(now, in_flight, app_limited);
    }

    fn on_congestion_event(&mut self, now: Instant, _sent: Instant, persistent: bool, lost_bytes: u64) {
        // quinn reports an ECN mark as congestion without a lost byte.
        if lost_bytes == 0 {
            self.0.marked(now);
        } else {
            self.0.lost(now, lost_bytes);
        }
        if persistent {
            self.0.persistent_congestion(now);
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.0.packet_bytes(new_mtu);
    }

    fn window(&self) -> u64 {
        self.0.window(Instant::now())
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.0.window(Instant::now());
        metrics.pacing_rate = self.0.pacing_rate().map(|bytes| bytes.saturating_mul(8));
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.0.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
