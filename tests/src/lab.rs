//! The fault lab: a cloud and sites behind masquerading nodes, each a network namespace, and links that fail
//! on command.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

use tokio::runtime::Runtime;

use crate::network::{NetworkError, NetworkNamespace};
use crate::rig::{Rig, ServerPlacement};
use crate::scratch::Scratch;
use crate::skip::skip;

mod linksim;
mod namespace_runtime;
mod site;

pub use linksim::{Linksim, LinksimError};
pub use namespace_runtime::NamespaceRuntime;
pub(crate) use site::masquerade;
pub use site::{POD, Site, SiteError, Uplink};

/// The server's address in the cloud, as agents dial it (RFC 5737: for documentation).
pub const SERVER: std::net::Ipv4Addr = std::net::Ipv4Addr::new(192, 0, 2, 1);

/// The same where the cloud speaks IPv6, too (RFC 3849: for documentation).
pub const SERVER_V6: std::net::Ipv6Addr = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// Threads of a trial's runtime: as many as the build machine has cores.
const WORKERS: usize = 2;

/// The cloud, and the folder of all files of a trial.
///
/// The trial runs *inside* the cloud: every socket that it opens is one of the cloud's namespace. What runs
/// at a site is started there: processes by [`Site::agent`], futures by [`Site::run`].
#[derive(Debug)]
#[must_use = "all of it is gone when this is dropped"]
pub struct Lab {
    cloud: NetworkNamespace,
    scratch: Scratch,
    sites: AtomicU16,
}

/// Runs a trial in a lab of its own, or reports `test` as skipped where namespaces are not permitted. However
/// the trial ends, also by a panic, its processes are killed, and its namespaces and links are removed with
/// the last of them.
///
/// # Panics
/// Where the trial does.
pub fn trial<T>(test: &str, trial: T)
where
    T: AsyncFnOnce(&Lab) + Send,
{
    if let Err(error) = run(trial) {
        skip(test, &error.to_string());
    }
}

/// The same for callers that report a missing lab themselves.
///
/// # Errors
/// If something is not permitted, or not installed.
///
/// # Panics
/// Where the trial does.
pub fn run<T, R>(trial: T) -> Result<R, SiteError>
where
    T: AsyncFnOnce(&Lab) -> R + Send,
    R: Send,
{
    let lab = Lab::open()?;
    Ok(lab.host(async || trial(&lab).await))
}

impl Lab {
    /// Opens a lab for several trials, each of which it is to [`Self::host`].
    ///
    /// # Errors
    /// What is not permitted, or not installed.
    pub fn open() -> Result<Self, SiteError> {
        let open = async {
            let scratch = Scratch::new("tombolo-lab-").map_err(NetworkError::Open)?;
            let cloud = NetworkNamespace::new().await?;
            cloud.ip(&format!("addr add {SERVER}/32 dev lo")).await?;
            // What a site needs beyond a namespace shows here, and not in the midst of a trial.
            site::rehearse().await?;
            Ok(Self { cloud, scratch, sites: AtomicU16::new(0) })
        };
        // A thread of its own: who calls may be within another runtime.
        on_a_thread(|| {
            let outside = tokio::runtime::Builder::new_current_thread().enable_all().build();
            outside.map_err(NetworkError::Open)?.block_on(open)
        })
    }

    /// Runs something in the cloud, to its end.
    ///
    /// # Panics
    /// Where that does.
    pub fn host<T, R>(&self, trial: T) -> R
    where
        T: AsyncFnOnce() -> R + Send,
        R: Send,
    {
        within(&self.cloud, trial)
    }

    /// The cloud's namespace, for [`crate::process::Invocation::in_network_namespace`].
    pub fn cloud(&self) -> &NetworkNamespace {
        &self.cloud
    }

    /// The folder of the lab's own files.
    pub fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// Starts a server in the cloud; its configuration ends with `more`.
    pub async fn rig(&self, more: &str) -> Rig {
        self.rig_logging("debug", more).await
    }

    /// The same with another level of its logs and its agents': to measure, as people run it.
    pub async fn rig_logging(&self, log_level: &'static str, more: &str) -> Rig {
        Rig::start_at(self.placement(), log_level, more).await
    }

    /// The placement of servers in the cloud.
    pub fn placement(&self) -> ServerPlacement {
        ServerPlacement {
            network_namespace: self.cloud.path().to_owned(),
            address: SERVER.into(),
            is_dual: false,
            variables: Vec::new(),
        }
    }

    /// Gives the cloud, and a site that is the first and is behind a simulated link, IPv6 beside IPv4: the
    /// server is [`SERVER_V6`] then.
    ///
    /// # Panics
    /// If that is not possible.
    pub async fn speak_v6(&self, site: &Site) {
        site.speak_v6(&self.cloud).await.unwrap_or_else(|error| panic!("IPv6: {error}"));
    }

    /// Builds a site. All sites have the same private addresses.
    ///
    /// # Panics
    /// If it cannot be built.
    pub async fn site(&self, name: &str, uplink: Uplink) -> Site {
        let number = self.sites.fetch_add(1, Ordering::Relaxed);
        Site::build(self, name, number, uplink).await.unwrap_or_else(|error| panic!("site {name}: {error}"))
    }
}

/// Runs something in a network namespace, to its end. A caller within a runtime does this by [`tokio::task::block_in_place`].
///
/// # Panics
/// If that panics.
pub fn within<T, R>(namespace: &NetworkNamespace, trial: T) -> R
where
    T: AsyncFnOnce() -> R + Send,
    R: Send,
{
    // A thread of its own: what enters a namespace stays there.
    on_a_thread(|| {
        namespace.enter().expect("a namespace of ours can be entered");
        runtime(namespace, WORKERS).block_on(trial())
    })
}

fn on_a_thread<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| resume_unwind(panic))
}

/// A runtime with all its threads in a namespace.
fn runtime(namespace: &NetworkNamespace, workers: usize) -> Runtime {
    let namespace = namespace.try_clone().expect("a file descriptor");
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .on_thread_start(move || namespace.enter().expect("a namespace of ours can be entered"))
        .enable_all()
        .build()
        .expect("a runtime can be built")
}
