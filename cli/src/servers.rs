//! `tombolo server list` and `remove`: the servers that share their records.

mod sort;
mod table;

use std::io;

use serde_saphyr::SerializeError;

use crate::admin::{Admin, AdminError};
use crate::args::{ServerList, ServerRemove, ServersOutput};
use crate::runtime::{self, RuntimeError};
use crate::yaml;

/// The error if no servers were listed, or none was removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServersError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error("the servers could not be written as JSON")]
    Json(#[from] serde_json::Error),
    #[error("the servers could not be written as YAML")]
    Yaml(#[from] SerializeError),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

/// Lists all servers, as the one that is asked knows them.
pub(crate) fn list(args: &ServerList) -> Result<Vec<String>, ServersError> {
    let mut servers =
        runtime::run(async |scope| Admin::connect(args.server.endpoint(), scope).await?.servers().await)??;
    if let Some(column) = args.sort_by {
        sort::sort(&mut servers, column);
    }
    Ok(match args.output {
        None => table::usual(&servers),
        Some(ServersOutput::Wide) => table::wide(&servers),
        Some(ServersOutput::Json) => vec![serde_json::to_string_pretty(&table::objects(&servers))?],
        Some(ServersOutput::Yaml) => vec![yaml::document(&table::objects(&servers))?],
        Some(ServersOutput::Name) => servers.into_iter().map(|server| server.id).collect(),
    })
}

/// Removes a server that is gone.
pub(crate) fn remove(args: ServerRemove) -> Result<Vec<String>, ServersError> {
    let ServerRemove { id, server } = args;
    let message = format!("the server {id} is removed; its number may be given to a new server");
    runtime::run(async |scope| Admin::connect(server.endpoint(), scope).await?.remove_server(id).await)??;
    Ok(vec![message])
}
