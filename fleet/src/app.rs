//! Builds the controller from its configuration, and runs it.

use std::time::SystemTime;

use daemon::{
    BoundProbes, Failure, Metrics, NotReady, Probes, Product, Readiness, Scope, error_chain, run_until,
};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{info, warn};

use crate::config::Config;
use crate::gateway::{Gateway, Listing};
use crate::host::Host;
use crate::leadership::Leadership;
use crate::metrics::{self, Part};
use crate::profiles::{Access, Profiles};

/// The names of this program.
pub const PRODUCT: Product =
    Product { name: "fleet-controller", metrics_prefix: "tombolo_fleet", version: env!("CARGO_PKG_VERSION") };

/// The part of `/readyz` that waits for the Lease.
const LEASE: &str = "lease";

/// A controller that has its listener, and knows its host cluster.
#[must_use = "it does nothing before it runs"]
pub struct Bound {
    config: Config,
    host: Host,
    probes: BoundProbes,
    readiness: Readiness,
    lease: NotReady,
}

/// The parts of a round that did not work, each for as long as that lasts.
struct Lost {
    readiness: Readiness,
    gateway: Option<NotReady>,
    profiles: Option<NotReady>,
}

impl Bound {
    /// Reads the kubeconfig, and binds the listener of the probes. Neither the gateway nor the host cluster is asked.
    ///
    /// # Errors
    /// [`Failure`], whose cause says what is wrong and what to do.
    pub async fn bind(config: Config, metrics: &Metrics) -> Result<Self, Failure> {
        // It fails only if another one is there already, which is as good.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        metrics::describe();
        let host = Host::find(&config).await.map_err(Failure::misconfigured)?;
        let readiness = Readiness::new();
        let lease = readiness.handle(LEASE);
        let probes = Probes::bind(config.probes_listen, readiness.clone(), metrics.clone())?;
        Ok(Self { config, host, probes, readiness, lease })
    }

    /// Runs until the drain has begun.
    pub async fn run(self, scope: Scope) {
        let Self { config, host, probes, readiness, lease } = self;
        probes.run(&scope);
        let begun = run_until(lease_of(&config, &host), scope.draining()).await;
        let Ok(mut leadership) = begun else { return };
        // Also a controller that waits for another one's Lease does what it is there for.
        drop(lease);
        let following = follow(&config, &host, &readiness, &mut leadership);
        let _ = run_until(following, scope.draining()).await;
        leadership.release().await;
    }
}

/// Begins to wait for the Lease. The host cluster may come later.
async fn lease_of(config: &Config, host: &Host) -> Leadership {
    loop {
        match Leadership::begin(host, &config.lease, &identity()).await {
            Ok(leadership) => return leadership,
            Err(error) => {
                warn!(error = %error_chain(&error), lease = config.lease, "cannot read or make the Lease");
                sleep(config.interval).await;
            }
        }
    }
}

/// Publishes whenever this controller holds the Lease.
async fn follow(config: &Config, host: &Host, readiness: &Readiness, leadership: &mut Leadership) {
    loop {
        if leadership.is_leader.wait_for(|is_leader| *is_leader).await.is_err() {
            return;
        }
        info!(lease = config.lease, namespace = host.namespace, "this controller is active");
        metrics::leads(true);
        // What the last holder of the Lease has seen is unknown, so all is seen anew.
        let publishing = publish(config, host, readiness);
        let ended = leadership.is_leader.wait_for(|is_leader| !*is_leader);
        // Both are cancel-safe: a round that was cut off is made again.
        tokio::select! {
            () = publishing => {}
            _ = ended => {}
        }
        metrics::leads(false);
        warn!(lease = config.lease, "this controller is no longer active");
    }
}

/// Makes the profiles say what the gateway says, for ever.
async fn publish(config: &Config, host: &Host, readiness: &Readiness) {
    let mut gateway = Gateway::new(config.gateway.clone());
    let mut profiles = Profiles::new(host, &config.manager);
    let mut lost = Lost { readiness: readiness.clone(), gateway: None, profiles: None };
    let mut ticks = interval(config.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let listed = gateway.list().await;
        let Some(Listing { ca_pem, clusters }) = lost.note(Part::Gateway, listed) else { continue };
        let access = Access { gateway: config.gateway.url.clone(), ca_pem };
        let published = profiles.publish(&access, &clusters).await;
        if lost.note(Part::Profiles, published).is_some() {
            metrics::succeeded(SystemTime::now());
        }
    }
}

impl Lost {
    /// Notes the result of a part in `/readyz`, the log and the metrics, and returns what came out of it.
    fn note<T, E: std::error::Error + 'static>(&mut self, part: Part, result: Result<T, E>) -> Option<T> {
        let lost = match part {
            Part::Gateway => &mut self.gateway,
            Part::Profiles => &mut self.profiles,
        };
        match result {
            Ok(value) => {
                if lost.take().is_some() {
                    info!(part = part.name(), "works again");
                }
                Some(value)
            }
            Err(error) => {
                let why = error_chain(&error).to_string();
                warn!(part = part.name(), error = why, "does not work");
                metrics::failed(part);
                *lost = Some(self.readiness.lost_because(part.name(), why));
                None
            }
        }
    }
}

/// The name of this controller in the Lease: that of its pod or machine, with the number of the process.
fn identity() -> String {
    let host =
        std::env::var("HOSTNAME").ok().or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let host = host.as_deref().map_or("unknown", str::trim);
    format!("{host}-{}", std::process::id())
}
