//! `tombolo cluster`: makes, describes and deletes clusters at the server of this machine.

mod check;

use proto::admin::{CreateClusterRequest, Description, Texts, UpdateClusterRequest};

use crate::admin::{Admin, AdminError};
use crate::args::{ClusterCreate, ClusterDelete, ClusterLabel, ClusterUpdate, LabelChange};
use crate::runtime::{self, NoRuntime};

pub(crate) use check::check;

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    #[error(transparent)]
    Runtime(#[from] NoRuntime),
    #[error(transparent)]
    Admin(#[from] AdminError),
}

/// Makes a cluster.
pub(crate) fn create(order: ClusterCreate) -> Result<Vec<String>, ClusterError> {
    let ClusterCreate { cluster, labels, networks, advertise, server } = order;
    let networks = networks.iter().map(ToString::to_string).collect();
    let description = Some(Description { labels: labels.into_iter().collect(), networks, advertise });
    let request = CreateClusterRequest { name: cluster.to_string(), description };
    runtime::run(async |scope| Admin::connect(server.place(), scope).await?.create_cluster(request).await)??;
    Ok(vec![format!("cluster {cluster} is there")])
}

/// Sets labels, and takes some away.
pub(crate) fn label(order: ClusterLabel) -> Result<Vec<String>, ClusterError> {
    let ClusterLabel { cluster, labels, server } = order;
    let mut request = UpdateClusterRequest { name: cluster.to_string(), ..UpdateClusterRequest::default() };
    for change in labels {
        match change {
            LabelChange::Set(name, value) => {
                request.set_labels.insert(name, value);
            }
            LabelChange::Remove(name) => request.remove_labels.push(name),
        }
    }
    runtime::run(async |scope| Admin::connect(server.place(), scope).await?.update_cluster(request).await)??;
    Ok(vec![format!("cluster {cluster} is labelled")])
}

/// Changes networks and what may be advertised.
pub(crate) fn update(order: ClusterUpdate) -> Result<Vec<String>, ClusterError> {
    let ClusterUpdate { cluster, networks, advertise, server } = order;
    let texts = |texts: Option<Vec<String>>| {
        texts.map(|texts| Texts { texts: texts.into_iter().filter(|text| !text.is_empty()).collect() })
    };
    let request = UpdateClusterRequest {
        name: cluster.to_string(),
        networks: texts(networks),
        advertise: texts(advertise),
        ..UpdateClusterRequest::default()
    };
    runtime::run(async |scope| Admin::connect(server.place(), scope).await?.update_cluster(request).await)??;
    Ok(vec![format!("cluster {cluster} is updated")])
}

/// Deletes a cluster.
pub(crate) fn delete(order: &ClusterDelete) -> Result<Vec<String>, ClusterError> {
    let name = order.cluster.to_string();
    let deleted = runtime::run(async |scope| {
        Admin::connect(order.server.place(), scope).await?.delete_cluster(name).await
    })??;
    let cluster = &order.cluster;
    let until = deleted.reserved_until.map_or_else(String::new, |until| format!(" until {until}"));
    Ok(vec![format!("cluster {cluster} is deleted; no other gets its name{until}")])
}
