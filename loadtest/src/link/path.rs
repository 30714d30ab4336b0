//! Two network namespaces with an impaired link between them, and threads that run in them.

use std::io;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use ::tests::binaries::{BinaryError, find_binary};
use ::tests::network::{NetworkError, NetworkNamespace};
use ::tests::process::{Invocation, Process, ProcessError};
use ::tests::scratch::Scratch;
use clap::Args;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

/// The addresses of the sender and of the receiver.
pub const SENDER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

/// Longest wait until a new link carries packets.
const READY_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Longest life of a link, so that a forgotten one ends by itself.
const LINK_MAX: &str = "30m";

/// The flags of every scenario that measures over such a link.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkFlags {
    /// Bandwidth of the link in each direction
    #[arg(long, value_name = "MBIT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rate: u32,

    /// Round-trip time of the link without queues
    #[arg(long, value_name = "MS", default_value_t = 40, value_parser = clap::value_parser!(u32).range(2..=2000))]
    pub round_trip: u32,

    /// Size of the link's queue, in milliseconds at its bandwidth
    #[arg(long, value_name = "MS", default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub queue: u32,
}

/// The properties of the link.
#[derive(Debug, Clone, Copy)]
pub struct Impairments {
    pub rate_mbit: u32,
    pub round_trip_ms: u32,
    pub queue_ms: u32,
    pub loss_percent: f64,
    pub seed: u64,
}

/// A running link. A drop removes it.
#[derive(Debug)]
pub struct Path {
    sender: NetworkNamespace,
    receiver: NetworkNamespace,
    _linksim: Process,
}

/// The error if a link could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Binary(#[from] BinaryError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("linksim does not get ready: {0}")]
    NotReady(String),
    #[error("could not read what linksim says")]
    Output(#[source] io::Error),
}

impl Path {
    /// Makes the namespaces and the link.
    pub async fn create(scratch: &Scratch, impairments: &Impairments) -> Result<Self, PathError> {
        let (sender, receiver) = (NetworkNamespace::new().await?, NetworkNamespace::new().await?);
        let log = scratch.path().join("linksim.log");
        // The output of an earlier link must not be taken for that of this one.
        let _ = std::fs::remove_file(&log);
        let words = impairments.linksim_words();
        let arguments = [
            ["--a".to_owned(), sender.path().display().to_string()],
            ["--a-address".to_owned(), format!("{SENDER}/30")],
            ["--b".to_owned(), receiver.path().display().to_string()],
            ["--b-address".to_owned(), format!("{RECEIVER}/30")],
            ["--both".to_owned(), words],
            ["--seed".to_owned(), impairments.seed.to_string()],
            ["--for".to_owned(), LINK_MAX.to_owned()],
        ];
        let invocation = Invocation::of(find_binary("linksim")?).arguments(arguments.into_iter().flatten());
        let mut linksim = Process::start(&invocation, &log).await?;
        let deadline = Instant::now() + READY_MAX;
        while !std::fs::read_to_string(&log).map_err(PathError::Output)?.contains("ready") {
            if linksim.ended().is_some() || Instant::now() >= deadline {
                return Err(PathError::NotReady(linksim.tail().trim().to_owned()));
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(Self { sender, receiver, _linksim: linksim })
    }

    /// Runs the future that `make` returns on a thread in the sender's namespace. Its result may be awaited.
    pub fn at_sender<F, T>(
        &self,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<oneshot::Receiver<T>>
    where
        F: Future<Output = T>,
        T: Send + 'static,
    {
        spawn_in(&self.sender, make)
    }

    /// Runs the future that `make` returns on a thread in the receiver's namespace.
    pub fn at_receiver<F, T>(
        &self,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<oneshot::Receiver<T>>
    where
        F: Future<Output = T>,
        T: Send + 'static,
    {
        spawn_in(&self.receiver, make)
    }
}

impl LinkFlags {
    /// The properties of a link with these flags and this loss rate.
    pub fn impairments(&self, loss_percent: f64, seed: u64) -> Impairments {
        let Self { rate, round_trip, queue } = *self;
        Impairments { rate_mbit: rate, round_trip_ms: round_trip, queue_ms: queue, loss_percent, seed }
    }
}

impl Impairments {
    /// The properties in the syntax of linksim.
    pub fn linksim_words(&self) -> String {
        let queue_bytes = u64::from(self.rate_mbit) * 125 * u64::from(self.queue_ms);
        let delay_us = self.round_trip_ms * 500;
        format!(
            "delay={delay_us}us rate={}mbit queue={}KiB loss={}%",
            self.rate_mbit,
            queue_bytes.div_ceil(1024),
            self.loss_percent
        )
    }
}

/// Spawns a thread in the namespace, with a runtime of its own.
fn spawn_in<F, T>(
    namespace: &NetworkNamespace,
    make: impl FnOnce() -> F + Send + 'static,
) -> io::Result<oneshot::Receiver<T>>
where
    F: Future<Output = T>,
    T: Send + 'static,
{
    let namespace = namespace.try_clone()?;
    let (result, awaited) = oneshot::channel();
    thread::Builder::new().spawn(move || {
        namespace.enter().expect("a namespace of ours can be entered");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime can be built");
        // The receiver is gone if the run was given up.
        let _ = result.send(runtime.block_on(make()));
    })?;
    Ok(awaited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linksim_parses_the_impairments() {
        let impairments =
            Impairments { rate_mbit: 100, round_trip_ms: 41, queue_ms: 80, loss_percent: 1.5, seed: 1 };
        let read: linksim::impairment::Impairment = impairments.linksim_words().parse().expect("words");
        assert_eq!((read.delay, read.rate), (Duration::from_micros(20_500), Some(100_000_000)));
        assert!(read.queue_bytes >= 1_000_000 && (read.loss - 0.015).abs() < 1e-9, "{read:?}");
    }
}
