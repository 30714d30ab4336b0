//! The audit log, which opens before the server serves and closes after the last exchange.

use std::error::Error;
use std::future::pending;

use audit::{ChainKey, Log, Settings, SigningKey};
use daemon::{Failure, Readiness, Scope, StateDir, StateError, StateFile};

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
    let (chain, signing) = keys(settings, state)?;
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

/// The keys of the last run, or new ones for a new log. A log is never continued with other keys than its own:
/// it would look changed.
fn keys(settings: &Settings, state: &StateDir) -> Result<(ChainKey, SigningKey), Failure> {
    let chain = state.read(StateFile::AuditChainKey, ChainKey::BYTES as u64, ChainKey::from_bytes)?;
    let signing = state.read(StateFile::AuditSigningKey, SigningKey::BYTES as u64, SigningKey::from_bytes)?;
    let needed =
        [(StateFile::AuditChainKey, chain.is_some()), (StateFile::AuditSigningKey, signing.is_some())];
    if let Some((file, _)) = needed.into_iter().find(|(_, is_there)| !is_there)
        && settings.has_log().map_err(Failure::could_not_go_on)?
    {
        return Err(StateError::Missing { path: state.path_of(file), file }.into());
    }
    let chain = match chain {
        Some(key) => key,
        None => new_key(state, StateFile::AuditChainKey, ChainKey::generate(), ChainKey::to_bytes)?,
    };
    let signing = match signing {
        Some(key) => key,
        None => new_key(state, StateFile::AuditSigningKey, SigningKey::generate(), SigningKey::to_bytes)?,
    };
    Ok((chain, signing))
}

/// Stores a key that was generated, as `to_bytes` writes it.
fn new_key<K, E: Error + Send + Sync + 'static, const BYTES: usize>(
    state: &StateDir,
    file: StateFile,
    generated: Result<K, E>,
    to_bytes: impl FnOnce(&K) -> [u8; BYTES],
) -> Result<K, Failure> {
    let key = generated.map_err(Failure::could_not_go_on)?;
    state.write(file, &to_bytes(&key))?;
    Ok(key)
}

/// Keeps readiness in step with the log as long as the server runs.
async fn follow(log: Log, readiness: Readiness) {
    loop {
        log.becomes(true).await;
        let _lost = readiness.lost(PART);
        log.becomes(false).await;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use audit::{Sync, Target};

    use super::*;

    /// A server that made another key would find the log changed, and could verify none of it.
    #[test]
    fn a_missing_audit_key_is_named_and_not_replaced_beside_a_log() {
        for file in [StateFile::AuditChainKey, StateFile::AuditSigningKey] {
            let (home, state) = fresh();
            let settings = settings(home.path());
            let (chain, signing) = keys(&settings, &state).unwrap();
            drop(Log::open(&settings, &chain, &signing).unwrap());
            fs::remove_file(state.path_of(file)).unwrap();

            let refused = keys(&settings, &state).map(drop).unwrap_err();

            let text = daemon::error_chain(&refused).to_string();
            let path = state.path_of(file);
            assert!(text.contains(&format!("{} is missing", path.display())), "{text}");
            assert!(text.contains(file.cost()) && text.contains(file.remedy()), "{text}");
            assert!(!path.exists());
        }
    }

    #[test]
    fn without_a_log_both_audit_keys_are_made_once() {
        let (home, state) = fresh();
        let settings = settings(home.path());

        let (chain, _) = keys(&settings, &state).unwrap();

        assert_eq!(keys(&settings, &state).unwrap().0.mark(), chain.mark());
        fs::write(state.path_of(StateFile::AuditChainKey), b"short").unwrap();
        let text = daemon::error_chain(&keys(&settings, &state).map(drop).unwrap_err()).to_string();
        assert!(text.contains("audit-chain.key is damaged") && text.contains("5 bytes"), "{text}");
    }

    fn fresh() -> (tempfile::TempDir, StateDir) {
        let home = tempfile::tempdir().unwrap();
        let state = StateDir::open(&home.path().join("state")).unwrap();
        (home, state)
    }

    fn settings(home: &Path) -> Settings {
        Settings {
            server: "server-1".to_owned(),
            directory: home.join("state/audit"),
            target: Target::Files { bytes_max: audit::FILE_BYTES_MIN, kept: audit::FILES_MIN },
            sync: Sync::Interval,
        }
    }
}
