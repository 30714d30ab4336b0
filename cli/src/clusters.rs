//! `tombolo cluster list`: shows the clusters of a server with their tunnels, once or whenever they change.

mod objects;
mod sort;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::SystemTime;

use proto::ClusterId;
use proto::admin::Cluster;
use proto::admin::watch_clusters_response::Event;
use serde_saphyr::SerializeError;

use crate::admin::{Admin, AdminError};
use crate::args::{self, ClustersOutput};
use crate::print;
use crate::runtime::{self, RuntimeError};
use crate::yaml;
use table::{Shape, Table};

/// The error if not all clusters were shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClustersError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error("this server knows no cluster {0}; check the name, or the agent's `cluster`")]
    UnknownCluster(String),
    #[error("the clusters could not be written as JSON")]
    Json(#[from] serde_json::Error),
    #[error("the clusters could not be written as YAML")]
    Yaml(#[from] SerializeError),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

/// Prints the clusters, and with `--watch` each again when it has changed.
pub(crate) fn show(args: &args::ClustersArgs) -> Result<(), ClustersError> {
    runtime::run(async |scope| {
        let mut admin = Admin::connect(args.server.endpoint(), scope).await?;
        if args.watch { watch(&mut admin, args).await } else { list(&mut admin, args).await }
    })?
}

async fn list(admin: &mut Admin, args: &args::ClustersArgs) -> Result<(), ClustersError> {
    let mut clusters = admin.list(names(args)).await?;
    let are_any_known = !clusters.is_empty();
    clusters.retain(|cluster| is_selected(args, cluster));
    if let Some(column) = args.sort_by {
        sort::sort(&mut clusters, column);
    }
    let (now, mut table) = (SystemTime::now(), table(args));
    match args.output {
        None if clusters.is_empty() && are_any_known => print::note("no cluster has labels that match -l")?,
        None if clusters.is_empty() && args.names.is_empty() => {
            print::note(
                "this server knows no cluster; make one with `tombolo cluster create`, or start an agent in one",
            )?;
        }
        None | Some(ClustersOutput::Wide) => print::lines(&table.rows(&clusters, now))?,
        Some(ClustersOutput::Json) => {
            print::lines(&[serde_json::to_string_pretty(&objects::list(&clusters))?])?;
        }
        Some(ClustersOutput::Yaml) => print::lines(&[yaml::document(&objects::list(&clusters))?])?,
        Some(ClustersOutput::Name) => {
            let names: Vec<String> = clusters.iter().map(|cluster| cluster.name.clone()).collect();
            print::lines(&names)?;
        }
    }
    all_found(&args.names, &clusters)
}

/// Prints changes until standard output is closed or the server ends the watch.
async fn watch(admin: &mut Admin, args: &args::ClustersArgs) -> Result<(), ClustersError> {
    // The usual table leaves measurements out: a row for each new round-trip time would hide the other changes.
    let measurements =
        matches!(args.output, Some(ClustersOutput::Wide | ClustersOutput::Json | ClustersOutput::Yaml));
    let mut changes = admin.watch(names(args), measurements).await?;
    let mut table = table(args);
    let mut initial = Some(Vec::new());
    let mut selected = BTreeSet::new();
    while let Some(event) = changes.next().await? {
        let clusters = match (event, &mut initial) {
            (Event::Cluster(cluster), _) if !is_selected(args, &cluster) => {
                if selected.remove(&cluster.name) {
                    print::note(&format!("cluster {} has no longer labels that match -l", cluster.name))?;
                }
                continue;
            }
            (Event::Cluster(cluster), initial) => {
                selected.insert(cluster.name.clone());
                match initial {
                    Some(initial) => {
                        initial.push(*cluster);
                        continue;
                    }
                    None => vec![*cluster],
                }
            }
            (Event::Deleted(name), _) => {
                // Of a cluster that was never shown nobody has asked.
                if selected.remove(&name) || args.selector.is_none() {
                    print::note(&format!("cluster {name} was deleted"))?;
                }
                continue;
            }
            // All rows of the first table are printed together, so that they share column widths.
            (Event::InitialEnd(_), _) => initial.take().unwrap_or_default(),
        };
        let lines = match args.output {
            None | Some(ClustersOutput::Wide) => table.rows(&clusters, SystemTime::now()),
            Some(ClustersOutput::Json) => {
                let line = |cluster| serde_json::to_string(&objects::object(cluster));
                clusters.iter().map(line).collect::<Result<_, _>>()?
            }
            Some(ClustersOutput::Yaml) => {
                let document = |cluster| Ok(format!("---\n{}", yaml::document(&objects::object(cluster))?));
                clusters.iter().map(document).collect::<Result<_, SerializeError>>()?
            }
            Some(ClustersOutput::Name) => clusters.iter().map(|cluster| cluster.name.clone()).collect(),
        };
        if !print::still_read(&lines)? {
            return Ok(());
        }
    }
    Ok(())
}

fn table(args: &args::ClustersArgs) -> Table {
    let shape = if args.output == Some(ClustersOutput::Wide) { Shape::Wide } else { Shape::Usual };
    Table::new(shape, args.show_labels)
}

/// Returns true if the labels of a cluster match the selector, if one is given.
fn is_selected(args: &args::ClustersArgs, cluster: &Cluster) -> bool {
    let Some(selector) = &args.selector else { return true };
    let labels = cluster.description.iter().flat_map(|description| description.labels.clone());
    selector.selects(&labels.collect::<BTreeMap<String, String>>())
}

fn names(args: &args::ClustersArgs) -> Vec<String> {
    args.names.iter().map(ClusterId::to_string).collect()
}

fn all_found(asked_for: &[ClusterId], found: &[Cluster]) -> Result<(), ClustersError> {
    let found: BTreeSet<&str> = found.iter().map(|cluster| cluster.name.as_str()).collect();
    let missing: Vec<&str> =
        asked_for.iter().map(ClusterId::as_str).filter(|name| !found.contains(name)).collect();
    if missing.is_empty() { Ok(()) } else { Err(ClustersError::UnknownCluster(missing.join(", "))) }
}
