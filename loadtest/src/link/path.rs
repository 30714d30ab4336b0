//! Two network namespaces with an impaired link between them, and threads that live in them.

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

/// Where the sender is, and where the receiver is.
pub const SENDER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

/// How long a link may take to carry packets.
const READY_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A link that is forgotten ends by itself.
const LINK_MAX: &str = "30m";

/// LinkScenarioFlags of whatever measures over such a link.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkFlags {
    /// What the link carries in each direction
    #[arg(long, value_name = "MBIT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rate: u32,

    /// Its round trip, without any queue
    #[arg(long, value_name = "MS", default_value_t = 40, value_parser = clap::value_parser!(u32).range(2..=2000))]
    pub round_trip: u32,

    /// What its queue holds, in milliseconds at its rate
    #[arg(long, value_name = "MS", default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub queue: u32,
}

/// What the link does.
#[derive(Debug, Clone, Copy)]
pub struct Impairments {
    pub rate_mbit: u32,
    pub round_trip_ms: u32,
    pub queue_ms: u32,
    pub loss_percent: f64,
    pub seed: u64,
}

/// The link; it is gone when this is dropped.
#[derive(Debug)]
pub struct Path {
    sender: NetworkNamespace,
    receiver: NetworkNamespace,
    _linksim: Process,
}

/// The error if there is no link.
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
    /// Lays the link.
    pub async fn lay(scratch: &Scratch, impairments: &Impairments) -> Result<Self, PathError> {
        let (sender, receiver) = (NetworkNamespace::new().await?, NetworkNamespace::new().await?);
        let log = scratch.path().join("linksim.log");
        // What an earlier link said would be taken for this one's.
        let _ = std::fs::remove_file(&log);
        let words = impairments.words();
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

    /// Runs a future, made by `make`, on a thread at the sender's side. Its end may be awaited or not.
    pub fn at_sender<F, T>(
        &self,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<oneshot::Receiver<T>>
    where
        F: Future<Output = T>,
        T: Send + 'static,
    {
        inhabit(&self.sender, make)
    }

    /// The same at the receiver's.
    pub fn at_receiver<F, T>(
        &self,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<oneshot::Receiver<T>>
    where
        F: Future<Output = T>,
        T: Send + 'static,
    {
        inhabit(&self.receiver, make)
    }
}

impl LinkFlags {
    /// The link that they say, which loses this part of the packets.
    pub fn impairments(&self, loss_percent: f64, seed: u64) -> Impairments {
        let Self { rate, round_trip, queue } = *self;
        Impairments { rate_mbit: rate, round_trip_ms: round_trip, queue_ms: queue, loss_percent, seed }
    }
}

impl Impairments {
    /// As linksim reads them.
    pub fn words(&self) -> String {
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

/// A thread that lives in the namespace, with a runtime of its own.
fn inhabit<F, T>(
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
        // Nobody waits any longer: the run was given up.
        let _ = result.send(runtime.block_on(make()));
    })?;
    Ok(awaited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linksim_can_read_what_it_is_told() {
        let impairments =
            Impairments { rate_mbit: 100, round_trip_ms: 41, queue_ms: 80, loss_percent: 1.5, seed: 1 };
        let read: linksim::impairment::Impairment = impairments.words().parse().expect("words");
        assert_eq!((read.delay, read.rate), (Duration::from_micros(20_500), Some(100_000_000)));
        assert!(read.queue_bytes >= 1_000_000 && (read.loss - 0.015).abs() < 1e-9, "{read:?}");
    }
}
