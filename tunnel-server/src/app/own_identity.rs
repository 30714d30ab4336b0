//! This process as agents and other servers see it: its keys, its name, its number.

use std::time::SystemTime;

use aws_lc_rs::digest;
use daemon::{Failure, StateDir, StateFile};
use proto::greeting::{BootNonce, ServerInfo};
use proto::server_list::ServerList;
use transport::{EndpointKeys, ServerNumber};

use crate::directory::{Directory, RegisteredServer, hexadecimal};

/// The newest form of records that this server knows.
const LEVEL: u32 = 1;

/// The endpoint's keys. Those of the last run are used again, so that agents notice a restart at once.
pub(super) fn keys(state: &StateDir) -> Result<EndpointKeys, Failure> {
    let file = StateFile::EndpointKeys;
    match state.read_or_replace(file, EndpointKeys::BYTES as u64, EndpointKeys::from_bytes)? {
        Some(keys) => Ok(keys),
        None => {
            let keys = EndpointKeys::generate().map_err(Failure::could_not_go_on)?;
            state.write(file, &keys.to_bytes())?;
            Ok(keys)
        }
    }
}

/// This process as agents see it. Its trust bundle and the list of servers are left empty here, because they may change later.
pub(super) fn host(server_id: String, keys: &EndpointKeys) -> Result<ServerInfo, Failure> {
    let mut boot = [0; 16];
    aws_lc_rs::rand::fill(&mut boot).map_err(Failure::could_not_go_on)?;
    let software = concat!("tunnel-server/", env!("CARGO_PKG_VERSION")).to_owned();
    Ok(ServerInfo {
        server_id,
        software,
        boot: BootNonce(boot),
        keys_mark: keys.mark(),
        trust_bundle: Vec::new(),
        servers: ServerList::default(),
    })
}

/// A server's number in connection IDs. Servers that share their records have one each. Otherwise it is derived from the
/// server's name, so that nobody has to assign numbers.
///
/// # Errors
/// [`Failure`] if the records cannot be changed, or no number is left.
pub(super) async fn number(directory: &Directory, server_id: &str) -> Result<ServerNumber, Failure> {
    if directory.is_shared() {
        let number = directory.server_number(server_id).await.map_err(Failure::could_not_go_on)?;
        return Ok(ServerNumber(number));
    }
    let digest = digest::digest(&digest::SHA256, server_id.as_bytes());
    Ok(ServerNumber(u16::from_be_bytes([digest.as_ref()[0], digest.as_ref()[1]])))
}

/// The entry of this process among the servers that share its records.
pub(super) fn registered(
    host: &ServerInfo,
    addresses: &[String],
    peering: Option<String>,
) -> RegisteredServer {
    RegisteredServer {
        level: LEVEL,
        epoch: host.boot.to_string(),
        keys_mark: hexadecimal(&host.keys_mark),
        software: host.software.clone(),
        started: SystemTime::now().into(),
        addresses: addresses.to_vec(),
        peering,
        draining: false,
        // The directory knows it.
        stale_limit_seconds: None,
    }
}
