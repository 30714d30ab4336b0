//! The audit log, which opens before the server serves and closes after the last exchange.

use std::future::pending;

use audit::{ChainKey, Log, Settings, SigningKey};
use daemon::{Failure, Readiness, Scope, StateDir};

/// The files in the state directory that hold the log's keys.
const CHAIN_KEY_FILE: &str = "audit-chain.key";
const SIGNING_KEY_FILE: &str = "audit-signing.key";

/// The name of the log's part of readiness.
const PART: &str = "audit";

/// Opens the log, with the keys of the last run or new ones. While it cannot be written, the server is not
/// ready.
pub(super) fn open(
    settings: Option<&Settings>,
    state: &StateDir,
    readiness: &Readiness,
    scope: &Scope,
) -> Result<Log, Failure> {
    let Some(settings) = settings else { return Ok(Log::off()) };
    let chain = match state.read(CHAIN_KEY_FILE, ChainKey::BYTES as u64)? {
        Some(bytes) => ChainKey::from_bytes(&bytes).map_err(Failure::misconfigured)?,
        None => {
            let key = ChainKey::generate().map_err(Failure::could_not_go_on)?;
            state.write(CHAIN_KEY_FILE, &key.to_bytes())?;
            key
        }
    };
    let signing = match state.read(SIGNING_KEY_FILE, SigningKey::BYTES as u64)? {
        Some(bytes) => SigningKey::from_bytes(&bytes).map_err(Failure::misconfigured)?,
        None => {
            let key = SigningKey::generate().map_err(Failure::could_not_go_on)?;
            state.write(SIGNING_KEY_FILE, &key.to_bytes())?;
            key
        }
    };
    drop(readiness.handle(PART));
    let (log, running) = Log::open(settings, &chain, &signing).map_err(Failure::could_not_go_on)?;
    // A background task is dropped after all work, so the log closes after the last completion.
    scope.spawn_background(async move {
        let _running = running;
        pending().await
    });
    scope.spawn_background(follow(log.clone(), readiness.clone()));
    Ok(log)
}

/// Keeps readiness in step with the log as long as the server runs.
async fn follow(log: Log, readiness: Readiness) {
    loop {
        log.becomes(true).await;
        let _lost = readiness.lost(PART);
        log.becomes(false).await;
    }
}
