//! Values that sections of the document have in common: files, doors, names, prefixes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use daemon::config::{KeyError, socket_address};

use super::Prefixes;

/// What stands in an error for a key that is not there.
pub(super) const NOTHING: &str = "nothing";

pub(super) const USERNAME_PREFIX: &str = "usernamePrefix";
pub(super) const GROUPS_PREFIX: &str = "groupsPrefix";

/// Longest DNS name (RFC 1035, section 2.3.4).
const HOST_BYTES_MAX: usize = 253;

/// Longest prefix, in bytes.
const PREFIX_BYTES_MAX: usize = 64;

/// The path of a file that must be named; a relative one starts at the configuration file.
pub(super) fn file(key: &str, path: Option<PathBuf>, directory: &Path) -> Result<PathBuf, KeyError> {
    match path {
        Some(path) if !path.as_os_str().is_empty() => Ok(directory.join(path)),
        Some(_) | None => Err(KeyError::new(key, NOTHING, "the path of a file")),
    }
}

/// The prefixes that the section `way` of a method gives the names of its users and groups.
pub(super) fn prefixes(
    way: &str,
    username: Option<String>,
    groups: Option<String>,
) -> Result<Prefixes, KeyError> {
    Ok(Prefixes {
        username: prefix(format!("{way}.{USERNAME_PREFIX}"), username)?,
        groups: prefix(format!("{way}.{GROUPS_PREFIX}"), groups)?,
    })
}

fn prefix(key: String, prefix: Option<String>) -> Result<String, KeyError> {
    let Some(prefix) = prefix else {
        let allowed =
            "a prefix that tells these names from those of every other method; \"\" for one method at most";
        return Err(KeyError::new(key, NOTHING, allowed));
    };
    let visible = prefix.bytes().all(|byte| byte.is_ascii_graphic());
    if visible && prefix.len() <= PREFIX_BYTES_MAX && !prefix.starts_with("system:") {
        return Ok(prefix);
    }
    let allowed =
        format!("at most {PREFIX_BYTES_MAX} visible ASCII characters that do not begin with system:");
    Err(KeyError::new(key, format_args!("{prefix:?}"), allowed))
}

/// Where a door listens that has no port unless one is said.
pub(super) fn said_listen(key: &str, written: Option<String>) -> Result<SocketAddr, KeyError> {
    let written = written.ok_or_else(|| KeyError::new(key, NOTHING, "an address and a port"))?;
    socket_address(key, &written)
}

/// Whether it reads as a DNS name, without the dot of the root; an IPv4 address does.
pub(super) fn is_dns_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    text.len() <= HOST_BYTES_MAX && text.split('.').all(|label| !label.is_empty() && label.bytes().all(fits))
}
