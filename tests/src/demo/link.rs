//! The link of a cluster goes dark and comes back: a filter at both of its ends, or an agent that is stopped.

use std::time::Duration;

use rustix::process::Signal;

use super::DemoError;
use super::progress::Progress;
use crate::network::NetworkNamespace;
use crate::process::{Invocation, Process, run};

/// The limit for one run of `nft`.
const NFT_MAX: Duration = Duration::from_secs(10);

/// An end of a link: the namespace, and the device's name in it.
pub(super) type DemoLinkEnd<'a> = (&'a NetworkNamespace, &'a str);

/// The link between a cluster's agent and the server.
#[derive(Debug)]
pub(super) struct DemoLink<'a> {
    /// Both ends; `None` where everything is on loopback.
    pub(super) ends: Option<[DemoLinkEnd<'a>; 2]>,
    pub(super) agent: &'a Process,
}

/// A link that is dark. Dropping it lets a stopped agent go on, so that it can be ended.
#[derive(Debug)]
#[must_use = "a stopped agent goes on when this is dropped"]
pub(super) struct DarkLink<'a> {
    cut: Option<[DemoLinkEnd<'a>; 2]>,
    stopped: Option<&'a Process>,
}

impl<'a> DemoLink<'a> {
    /// Lets no packet pass in either direction, and nobody is told.
    pub(super) async fn dark(&self, progress: &Progress) -> Result<DarkLink<'a>, DemoError> {
        let reason = match self.ends {
            None => "there are no network namespaces here".to_owned(),
            Some(ends) => match cut(ends, progress).await {
                Ok(()) => return Ok(DarkLink { cut: Some(ends), stopped: None }),
                Err(reason) => {
                    let _ = mend(ends, progress).await; // One end may be cut already.
                    reason
                }
            },
        };
        progress.say(&format!("{reason}, so the agent is stopped instead: as silent as behind a dead link"));
        if let Some(id) = self.agent.id() {
            progress.command(&format!("kill -STOP {id}"));
        }
        self.agent.signal(Signal::STOP)?;
        Ok(DarkLink { cut: None, stopped: Some(self.agent) })
    }
}

impl DarkLink<'_> {
    /// Lets packets pass in both directions again.
    pub(super) async fn bright(self, progress: &Progress) -> Result<(), DemoError> {
        if let Some(ends) = self.cut {
            mend(ends, progress).await.map_err(|stderr| DemoError::Refused {
                command: "nft delete table netdev dark".to_owned(),
                stderr,
            })?;
        }
        if let Some(id) = self.stopped.and_then(Process::id) {
            progress.command(&format!("kill -CONT {id}"));
        }
        Ok(())
    }
}

impl Drop for DarkLink<'_> {
    fn drop(&mut self) {
        if let Some(agent) = self.stopped {
            let _ = agent.signal(Signal::CONT); // It may have ended.
        }
    }
}

// Each end drops what comes in. A filter of what goes out would tell the sender.
async fn cut(ends: [DemoLinkEnd<'_>; 2], progress: &Progress) -> Result<(), String> {
    for (namespace, device) in ends {
        let chain = format!(
            "add chain netdev dark in {{ type filter hook ingress device {device} priority 0; policy drop; }}"
        );
        nft(namespace, &format!("add table netdev dark; {chain}"), progress).await?;
    }
    Ok(())
}

async fn mend(ends: [DemoLinkEnd<'_>; 2], progress: &Progress) -> Result<(), String> {
    let mut mended = Ok(());
    for (namespace, _) in ends {
        mended = mended.and(nft(namespace, "delete table netdev dark", progress).await);
    }
    mended
}

async fn nft(namespace: &NetworkNamespace, rules: &str, progress: &Progress) -> Result<(), String> {
    progress.command(&format!("nsenter --net={} nft '{rules}'", namespace.path().display()));
    let nft =
        Invocation::of("nft").arguments([rules]).in_network_namespace(Some(namespace.path().to_owned()));
    let output = run(&nft, NFT_MAX).await.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("nft cannot cut the link ({})", stderr.lines().next().unwrap_or("it says nothing")))
}
