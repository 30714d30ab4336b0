//! The servers that share their records, for administrators: the list of all, and the removal of one that is gone.

use proto::admin::{self, server::State};
use proto::peering::PeerStatus;
use tonic::Status;
use tracing::info;

use super::{convert, requests};
use crate::directory::{Directory, RemoveServerError};
use crate::registry::{ClockOffset, OwnServer, ServerState, ServerStatus};

/// All servers as this one knows them, in the order of their IDs.
pub(super) fn list(own: &OwnServer) -> Vec<admin::Server> {
    own.list().into_iter().map(server).collect()
}

/// Removes the number of a server that does not run.
pub(super) async fn remove(own: &OwnServer, directory: &Directory, id: &str) -> Result<(), Status> {
    if id == own.id() || own.has_session(id) {
        // Its registration may have ended because it cannot reach etcd.
        return Err(removal_status(RemoveServerError::HasSession(id.to_owned())));
    }
    directory.remove_server(id).await.map_err(removal_status)?;
    info!(server = id, "an administrator has removed a server that is gone");
    Ok(())
}

fn removal_status(error: RemoveServerError) -> Status {
    let message = error.to_string();
    match error {
        RemoveServerError::NotShared | RemoveServerError::HasSession(_) | RemoveServerError::Alive(_) => {
            Status::failed_precondition(message)
        }
        RemoveServerError::Unknown(_) => Status::not_found(message),
        RemoveServerError::Store(error) => requests::store_status(&error),
    }
}

fn server(listed: ServerStatus) -> admin::Server {
    let ServerStatus { id, state, is_own, epoch, software, started, peering, tunnels, told, clock } = listed;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    admin::Server {
        id,
        state: self::state(state).into(),
        asked: is_own,
        epoch,
        software,
        started: started.map(convert::whole_seconds),
        peering_address: peering.unwrap_or_default(),
        tunnels: tunnels.map(count),
        told: told.map(self::told),
        clock_ahead_ms: clock.map(ahead_ms),
    }
}

fn told(status: PeerStatus) -> admin::ServerFigures {
    admin::ServerFigures {
        peers: status.peers,
        peers_connected: status.peers_connected,
        records_age: status.records_age.try_into().ok(),
        policy_digest: status.policy.to_string(),
        trust_bundle_digest: status.trust_bundle.map_or_else(String::new, |digest| digest.to_string()),
    }
}

fn state(state: ServerState) -> State {
    match state {
        ServerState::Ready => State::Ready,
        ServerState::NotReady => State::NotReady,
        ServerState::Draining => State::Draining,
        ServerState::Behind => State::Behind,
        ServerState::Stale => State::Stale,
        ServerState::Silent => State::Silent,
        ServerState::Unreachable => State::Unreachable,
        ServerState::Gone => State::Gone,
    }
}

fn ahead_ms(offset: ClockOffset) -> i64 {
    let millis = i64::try_from(offset.magnitude().as_millis()).unwrap_or(i64::MAX);
    match offset {
        ClockOffset::Ahead(_) => millis,
        ClockOffset::Behind(_) => -millis,
    }
}
