//! The file of API servers that are known. It is read before any network, and it is a hint: a bad one is set
//! aside, and seeds serve.

use std::net::SocketAddr;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use daemon::{StateDir, StateFile, error_chain};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::balancer::Balancer;
use crate::members::{API_SERVERS_MAX, NamedBefore, Source};
use crate::tls::{Tls, hex};

/// Largest file that is read: 32 API servers take 3 KiB. 64 KiB.
pub const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Version of the form of the file.
const VERSION: u32 = 1;

/// Pause between a change and the file, for further changes.
const SETTLE: Duration = Duration::from_millis(500);

/// Interval of writing the age of last resorts, without another change.
const REWRITE_EVERY: Duration = Duration::from_secs(3600);

/// The content of the first line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawState {
    version: u32,
    ca_keys: Vec<String>,
    api_servers: Vec<RawApiServer>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawApiServer {
    address: SocketAddr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unnamed_seconds: Option<u64>,
}

/// The reason why the file is not used.
#[derive(Debug, thiserror::Error)]
pub enum BadState {
    /// There are not two lines.
    #[error("it is cut short or is no text")]
    Form,
    /// The second line is not the digest of the first.
    #[error("its checksum is wrong")]
    Checksum,
    /// The first line is not JSON of this form.
    #[error("it cannot be parsed")]
    Syntax(#[source] serde_json::Error),
    /// Another release has written the file.
    #[error("it has version {0}, and this program reads {VERSION}")]
    Version(u32),
    /// The file belongs to another cluster.
    #[error("it belongs to a cluster with another CA")]
    OtherCluster,
    /// There are too many API servers.
    #[error("it has {0} API servers, and {API_SERVERS_MAX} are the most")]
    TooMany(usize),
}

/// The text of the file: one line of JSON, and its digest.
#[must_use]
pub fn text(ca_keys: &[String], remembered: &[NamedBefore]) -> String {
    let api_servers = remembered
        .iter()
        .map(|remembered| RawApiServer {
            address: remembered.address,
            unnamed_seconds: remembered.unnamed_for.map(|time| time.as_secs()),
        })
        .collect();
    let state = RawState { version: VERSION, ca_keys: ca_keys.to_vec(), api_servers };
    // Numbers, texts and addresses always have a form in JSON.
    let line = serde_json::to_string(&state).unwrap_or_default();
    format!("{line}\n{}\n", checksum(&line))
}

/// Parses the file of a cluster with one of these CA keys.
///
/// # Errors
/// [`BadState`]. Nothing of such a file is used.
pub fn parse(bytes: &[u8], ca_keys: &[String]) -> Result<Vec<NamedBefore>, BadState> {
    let text = std::str::from_utf8(bytes).map_err(|_| BadState::Form)?;
    let (line, rest) = text.split_once('\n').ok_or(BadState::Form)?;
    let found = rest.strip_suffix('\n').ok_or(BadState::Form)?;
    if found != checksum(line) {
        return Err(BadState::Checksum);
    }
    let RawState { version, ca_keys: written, api_servers } =
        serde_json::from_str(line).map_err(BadState::Syntax)?;
    if version != VERSION {
        return Err(BadState::Version(version));
    }
    if !written.iter().any(|key| ca_keys.contains(key)) {
        return Err(BadState::OtherCluster);
    }
    if api_servers.len() > API_SERVERS_MAX {
        return Err(BadState::TooMany(api_servers.len()));
    }
    let remembered = api_servers.into_iter().map(|RawApiServer { address, unnamed_seconds }| NamedBefore {
        address,
        unnamed_for: unnamed_seconds.map(Duration::from_secs),
    });
    Ok(remembered.collect())
}

/// Reads the file. Whatever is wrong with it stands in the log, and counts as no file.
pub(super) fn read(state: &StateDir, ca_keys: &[String]) -> Vec<NamedBefore> {
    let read = state.read_or_replace(StateFile::ApiServers, FILE_BYTES_MAX, |bytes| parse(bytes, ca_keys));
    match read {
        Ok(Some(remembered)) => {
            let addresses: Vec<String> = remembered.iter().map(|one| one.address.to_string()).collect();
            info!(api_servers = ?addresses, "the state file names API servers");
            remembered
        }
        Ok(None) => Vec::new(),
        Err(error) => {
            warn!(error = %error_chain(&error), "the state file is not used, the configured API servers serve");
            Vec::new()
        }
    }
}

/// Writes the file whenever the API servers are others, for ever.
pub(super) async fn follow(state: StateDir, tls: Tls, balancer: Balancer) {
    let mut changed = balancer.subscribe();
    let (mut written, mut has_failed) = (None, false);
    loop {
        let identity = tls.current();
        let remembered = balancer.to_remember();
        // Ages alone are no change.
        let key = (
            identity.ca_keys.clone(),
            remembered.iter().map(|one| (one.address, one.unnamed_for.is_some())).collect::<Vec<_>>(),
        );
        let has_last_resort = remembered.iter().any(|one| one.unnamed_for.is_some());
        if !remembered.is_empty() && written.as_ref() != Some(&key) {
            let (state, text) = (state.clone(), text(&identity.ca_keys, &remembered));
            let writing = spawn_blocking(move || state.write(StateFile::ApiServers, text.as_bytes()));
            match writing.await {
                Ok(Ok(())) => {
                    (written, has_failed) = (Some(key), false);
                    balancer.confirm(Source::StateFile);
                }
                Ok(Err(error)) => {
                    if !has_failed {
                        warn!(error = %error_chain(&error), "the API servers cannot be written down");
                    }
                    has_failed = true;
                }
                Err(_) => return,
            }
        }
        // Cancel-safe: a change that is missed is seen at the next look.
        match timeout(REWRITE_EVERY, changed.changed()).await {
            Ok(Ok(())) => sleep(SETTLE).await,
            Ok(Err(_)) => return,
            Err(_) if has_last_resort || has_failed => written = None,
            Err(_) => {}
        }
    }
}

fn checksum(line: &str) -> String {
    format!("sha256:{}", hex(digest(&SHA256, line.as_bytes()).as_ref()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> Vec<String> {
        vec!["sha256:aa".to_owned(), "sha256:bb".to_owned()]
    }

    fn remembered() -> Vec<NamedBefore> {
        let address = |last: u8| SocketAddr::from(([10, 0, 0, last], 6443));
        vec![
            NamedBefore { address: address(1), unnamed_for: None },
            NamedBefore { address: "[fd00::2]:6443".parse().unwrap(), unnamed_for: None },
            NamedBefore { address: address(3), unnamed_for: Some(Duration::from_secs(7)) },
        ]
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text = text(&keys(), &remembered());

        assert_eq!(parse(text.as_bytes(), &keys()[1..]).unwrap(), remembered());
    }

    #[test]
    fn the_file_of_another_cluster_is_not_used() {
        let text = text(&keys(), &remembered());

        let parsed = parse(text.as_bytes(), &["sha256:cc".to_owned()]);

        assert!(matches!(parsed, Err(BadState::OtherCluster)), "{parsed:?}");
    }

    #[test]
    fn a_file_with_too_many_is_not_used() {
        let one = remembered()[0];
        let text = text(&keys(), &[one; API_SERVERS_MAX + 1]);

        assert!(matches!(parse(text.as_bytes(), &keys()), Err(BadState::TooMany(33))));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        /// Bytes are changed, cut off, or added, in 1,000 files.
        #[test]
        fn no_damaged_file_is_used(position in 0_usize..1000, damage in 0_u8..3, byte in any::<u8>()) {
            let good = text(&keys(), &remembered()).into_bytes();
            let position = position % good.len();
            let mut bad = good.clone();
            match damage {
                0 => bad[position] = byte,
                1 => bad.truncate(position),
                _ => bad.insert(position, byte),
            }
            prop_assume!(bad != good);

            prop_assert!(parse(&bad, &keys()).is_err(), "{:?}", String::from_utf8_lossy(&bad));
        }
    }
}
