//! `tombolo cluster`: creates, labels, updates, deletes and undeletes clusters at a server.

mod check;

use std::collections::BTreeSet;

use proto::admin::{CreateClusterRequest, Description, Texts, UpdateClusterRequest};

use crate::admin::{Admin, AdminError};
use crate::args::{ClusterCreate, ClusterDelete, ClusterLabel, ClusterUndelete, ClusterUpdate, LabelChange};
use crate::confirm::{self, ConfirmError};
use crate::print;
use crate::runtime::{self, RuntimeError};

pub(crate) use check::check;

/// The error if no cluster was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(transparent)]
    Confirm(#[from] ConfirmError),
    #[error(
        "nothing is to be changed: give --network or --advertise; for labels there is `tombolo cluster label {0} NAME=VALUE`"
    )]
    NothingToUpdate(String),
    #[error("the label {0} is to be set and to be removed; leave one of the two out")]
    SetAndRemoved(String),
    #[error("the label {0} is to be set twice; leave one of the two out")]
    SetTwice(String),
}

/// Creates a cluster, so that its agents may connect.
pub(crate) fn create(args: ClusterCreate) -> Result<Vec<String>, ClusterError> {
    let ClusterCreate { cluster, labels, networks, advertise, join: _, server } = args;
    let networks = networks.iter().map(ToString::to_string).collect();
    let description = Some(Description { labels: labels.into_iter().collect(), networks, advertise });
    let request = CreateClusterRequest { name: cluster.to_string(), description };
    runtime::run(async |scope| {
        Admin::connect(server.endpoint(), scope).await?.create_cluster(request).await
    })??;
    Ok(vec![format!("cluster {cluster} is created")])
}

/// Sets and removes labels of a cluster.
pub(crate) fn label(args: ClusterLabel) -> Result<Vec<String>, ClusterError> {
    let ClusterLabel { cluster, labels, server } = args;
    let mut request = UpdateClusterRequest { name: cluster.to_string(), ..UpdateClusterRequest::default() };
    for change in labels {
        match change {
            LabelChange::Set(name, value) => {
                if request.set_labels.insert(name.clone(), value).is_some() {
                    return Err(ClusterError::SetTwice(name));
                }
            }
            LabelChange::Remove(name) => request.remove_labels.push(name),
        }
    }
    if let Some(name) = request.remove_labels.iter().find(|name| request.set_labels.contains_key(*name)) {
        return Err(ClusterError::SetAndRemoved(name.clone()));
    }
    runtime::run(async |scope| {
        Admin::connect(server.endpoint(), scope).await?.update_cluster(request).await
    })??;
    Ok(vec![format!("cluster {cluster} is labelled")])
}

/// Replaces the networks of a cluster, or the addresses that its agents may advertise.
pub(crate) fn update(args: ClusterUpdate) -> Result<Vec<String>, ClusterError> {
    let ClusterUpdate { cluster, networks, advertise, server } = args;
    if networks.is_none() && advertise.is_none() {
        return Err(ClusterError::NothingToUpdate(cluster.to_string()));
    }
    let texts = |texts: Option<Vec<String>>| {
        texts.map(|texts| Texts { texts: texts.into_iter().filter(|text| !text.is_empty()).collect() })
    };
    let request = UpdateClusterRequest {
        name: cluster.to_string(),
        networks: texts(networks),
        advertise: texts(advertise),
        ..UpdateClusterRequest::default()
    };
    runtime::run(async |scope| {
        Admin::connect(server.endpoint(), scope).await?.update_cluster(request).await
    })??;
    Ok(vec![format!("cluster {cluster} is updated")])
}

/// Deletes a cluster, whose name stays reserved.
pub(crate) fn delete(args: &ClusterDelete) -> Result<Vec<String>, ClusterError> {
    let name = args.cluster.to_string();
    let warning = format!(
        "Cluster {name} loses its agents and tokens for ever, and its name unless you undelete it within 90 days."
    );
    confirm::by_name(&warning, &name, args.yes)?;
    let deleted = runtime::run(async |scope| {
        Admin::connect(args.server.endpoint(), scope).await?.delete_cluster(name).await
    })??;
    let cluster = &args.cluster;
    let until = deleted.reserved_until.map_or_else(String::new, |until| format!(" until {until}"));
    Ok(vec![
        format!("cluster {cluster} is deleted; its name stays reserved{until}"),
        format!("if that was a mistake: tombolo cluster undelete {cluster}"),
    ])
}

/// Brings a deleted cluster back, without its agents.
pub(crate) fn undelete(args: &ClusterUndelete) -> Result<Vec<String>, ClusterError> {
    let (cluster, name) = (&args.cluster, args.cluster.to_string());
    let undeleted = runtime::run(async |scope| {
        Admin::connect(args.server.endpoint(), scope).await?.undelete_cluster(name).await
    })??;
    let Description { labels, networks, advertise } = undeleted.description.unwrap_or_default();
    let labels: BTreeSet<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let named = |what: &str, texts: &[String]| format!("{what}: {}", print::listed(texts));
    Ok(vec![
        format!("cluster {cluster} is back, without the agents that it had"),
        named("labels", &labels.into_iter().collect::<Vec<_>>()),
        named("networks", &networks),
        named("addresses to advertise", &advertise),
        format!("next: let its agents enroll again: tombolo token create --cluster {cluster}"),
    ])
}
