//! A running `linksim` and its control connection.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use linksim::clock::instant;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use crate::binaries::binary;
use crate::network::NetworkNamespace;
use crate::process::{Invocation, Process, ProcessError};

/// The limit for it to become ready, and for its answer to a command.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Pause between two looks whether it is ready.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Longer than the longest trial.
const RUN: &str = "2h";

/// A link between two namespaces; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the link is gone when this is dropped"]
pub struct Linksim {
    process: Process,
    control: PathBuf,
}

/// One end of a link: the namespace, the device's name in it, its address with a prefix.
pub(super) type LinkEnd<'a> = (&'a NetworkNamespace, &'a str, String);

/// An error of starting or controlling a link.
#[derive(Debug, thiserror::Error)]
pub enum LinksimError {
    /// It could not be started.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// It ended before it was ready.
    #[error("linksim is not ready: {0}")]
    NotReady(String),
    /// The control socket of linksim failed.
    #[error("linksim's control socket does not answer")]
    Control(#[source] io::Error),
    /// linksim refused a command that was sent.
    #[error("linksim refused {command:?}: {message}")]
    Refused {
        /// The command that was sent.
        command: String,
        /// The error message of linksim.
        message: String,
    },
}

impl Linksim {
    pub(super) async fn start(
        folder: &Path,
        name: &str,
        a: LinkEnd<'_>,
        b: LinkEnd<'_>,
        more: &[String],
    ) -> Result<Self, LinksimError> {
        let control = folder.join(format!("{name}.sock"));
        let text = |path: &Path| path.display().to_string();
        let mut words = vec!["--control".to_owned(), text(&control), "--for".to_owned(), RUN.to_owned()];
        for (side, (namespace, device, address)) in [("a", a), ("b", b)] {
            words.extend([format!("--{side}"), text(namespace.path())]);
            words.extend([format!("--{side}-name"), device.to_owned()]);
            words.extend([format!("--{side}-address"), address]);
        }
        let invocation = Invocation::of(binary("linksim")).arguments(words).arguments(more.iter().cloned());
        let process = Process::start(&invocation, &folder.join(format!("{name}.linksim.log"))).await?;
        let mut link = Self { process, control };
        link.ready().await?;
        Ok(link)
    }

    /// Its process ID, to check whether it still runs.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Sends a command as `linksim --help` lists them, and returns the answer.
    ///
    /// # Panics
    /// If it is refused or not answered.
    pub async fn send(&self, command: &str) -> Value {
        self.try_send(command).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Makes the link dark. No packet passes after the returned instant.
    pub async fn down(&self) -> Instant {
        at(&self.send("down").await["down_ns"])
    }

    /// Opens the link. What comes after the instant that is returned passes.
    pub async fn up(&self) -> Instant {
        at(&self.send("up").await["reopened_ns"])
    }

    /// Lets the NAT forget all its mappings: the next packets leave from new ports, and from `address` if one
    /// is given.
    pub async fn rebind(&self, address: Option<Ipv4Addr>) -> Instant {
        let address = address.map_or_else(String::new, |address| format!(" {address}"));
        at(&self.send(&format!("rebind{address}")).await["rebound_ns"])
    }

    /// Changes impairments, such as `loss=5%`, or `a-to-b loss=5%`; A is the site, B the cloud.
    pub async fn set(&self, words: &str) {
        self.send(&format!("set {words}")).await;
    }

    /// The counters of the link so far.
    pub async fn stats(&self) -> Value {
        self.send("stats").await
    }

    /// The same where a refusal is expected.
    ///
    /// # Errors
    /// [`LinksimError`].
    pub async fn try_send(&self, command: &str) -> Result<Value, LinksimError> {
        let exchange = async {
            let mut stream = UnixStream::connect(&self.control).await?;
            stream.write_all(format!("{command}\n").as_bytes()).await?;
            let mut answer = String::new();
            BufReader::new(stream).read_line(&mut answer).await?;
            Ok(serde_json::from_str::<Value>(&answer)?)
        };
        let answer = timeout(ANSWER_MAX, exchange).await.map_err(|_| io::ErrorKind::TimedOut.into());
        let answer = answer.flatten().map_err(LinksimError::Control)?;
        match answer.get("error") {
            None => Ok(answer),
            Some(message) => {
                Err(LinksimError::Refused { command: command.to_owned(), message: message.to_string() })
            }
        }
    }

    // The control socket is there once the devices are.
    async fn ready(&mut self) -> Result<(), LinksimError> {
        let deadline = Instant::now() + ANSWER_MAX;
        while self.try_send("stats").await.is_err() {
            if self.process.ended().is_some() || Instant::now() >= deadline {
                return Err(LinksimError::NotReady(self.process.tail().trim().to_owned()));
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}

fn at(answer: &Value) -> Instant {
    instant(answer.as_u64().expect("linksim tells when"))
}
