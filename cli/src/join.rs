//! `tombolo cluster create`: with `--print` the command that joins the new cluster, and with `--wait` the wait until it is connected.

use std::collections::BTreeSet;
use std::io;
use std::time::Instant;

use daemon::Scope;
use proto::admin::Cluster;
use proto::admin::watch_clusters_response::Event;
use tokio::time::timeout;

use crate::admin::{Admin, AdminError};
use crate::args::{AdminEndpoint, ClusterCreate, JoinArgs, PrintedCommand};
use crate::cluster::{self, ClusterError};
use crate::names::WaitTime;
use crate::print;
use crate::runtime::{self, RuntimeError};
use crate::site::{self, NewSite, UnnamedCallers};

/// The error if a cluster was not created, or has not joined.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinError {
    #[error(transparent)]
    Create(#[from] ClusterError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("cluster {0} is created, but there is no command to join it")]
    Command(String, #[source] AdminError),
    #[error("cannot wait for cluster {0}; see `tombolo cluster list {0}`")]
    Wait(String, #[source] AdminError),
    #[error("the server has ended the wait for cluster {0}; see `tombolo cluster list {0}`")]
    WaitEnded(String),
    #[error(
        "no agent of cluster {cluster} has connected within {limit}; in that cluster, see `kubectl --namespace tombolo logs \
         deployment/tunnel-agent`"
    )]
    NotLive { cluster: String, limit: WaitTime },
    #[error("cannot print")]
    Print(#[from] io::Error),
}

/// Creates a cluster. With `--print`, prints the command that joins it. With `--wait`, waits for an agent.
pub(crate) fn create(args: ClusterCreate) -> Result<(), JoinError> {
    let (join, id) = (args.join.clone(), args.cluster.clone());
    let cluster = id.to_string();
    let endpoint = args.server.endpoint();
    let created = cluster::create(args)?;
    match join.print {
        Some(PrintedCommand::Helm) => {
            let needs = runtime::run(async |scope| {
                let mut admin = Admin::connect(endpoint.clone(), scope).await?;
                NewSite::gather(&mut admin, id, join.token_ttl, &join.site.servers).await
            })?
            .map_err(|error| JoinError::Command(cluster.clone(), error))?;
            print::document(&site::helm(&join.site, &needs))?;
            site::note_on_callers(&join.site, UnnamedCallers::Nobody).map_or(Ok(()), print::note)?;
        }
        None => {
            print::lines(&created)?;
            if join.wait {
                print::note(&format!(
                    "start an agent in it, by `tombolo token create --cluster {cluster}` in another terminal"
                ))?;
            }
        }
    }
    if join.wait {
        print::note(&format!("waiting for an agent of {cluster}, up to {}", join.timeout))?;
        let live = runtime::run(async |scope| wait(&join, &cluster, endpoint, scope).await)??;
        print::note(&live)?;
    }
    Ok(())
}

/// Waits until an agent of the cluster is connected. Returns a sentence about it.
async fn wait(
    join: &JoinArgs,
    cluster: &str,
    endpoint: AdminEndpoint,
    scope: &Scope,
) -> Result<String, JoinError> {
    let begun = Instant::now();
    let limit = join.timeout;
    let not_live = || JoinError::NotLive { cluster: cluster.to_owned(), limit };
    let connected = connected(cluster, endpoint, scope);
    let found = timeout(limit.duration(), connected).await.map_err(|_| not_live())??;
    // An agent has a tunnel to each of several servers.
    let agents: BTreeSet<&str> = found.tunnels.iter().map(|tunnel| tunnel.agent.as_str()).collect();
    let agents: Vec<&str> = agents.into_iter().collect();
    Ok(format!(
        "cluster {cluster} is live after {} s, by the agent {}",
        begun.elapsed().as_secs(),
        agents.join(", ")
    ))
}

async fn connected(cluster: &str, endpoint: AdminEndpoint, scope: &Scope) -> Result<Cluster, JoinError> {
    let failed = |error| JoinError::Wait(cluster.to_owned(), error);
    let mut admin = Admin::connect(endpoint, scope).await.map_err(failed)?;
    let mut changes = admin.watch(vec![cluster.to_owned()], false).await.map_err(failed)?;
    while let Some(event) = changes.next().await.map_err(failed)? {
        match event {
            Event::Cluster(found) if found.connected => return Ok(*found),
            Event::Cluster(_) | Event::Deleted(_) | Event::InitialEnd(_) => {}
        }
    }
    Err(JoinError::WaitEnded(cluster.to_owned()))
}
