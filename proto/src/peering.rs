//! The protocol between servers: the greeting of two servers, the messages of their session, and streams that one opens
//! through the other.
//!
//! The server that dials has the part of an agent: it greets, and it accepts streams. So one session carries the
//! streams of one direction, and each server dials every other one.

mod message;
mod probe;
mod status;
mod tunnels;
mod via;

pub use message::{CallerDigest, CallerShare, PeerMessage, UsageKind};
pub use probe::{ProbeAnswer, ProbeOutcome, ProbeRequest};
pub use status::{FileDigest, PeerStatus, RecordsState};
pub use tunnels::{PoolDelta, RemoteTunnel};
pub use via::{NotVia, REFUSAL_BYTES_MAX, ViaOutcome, ViaRequest};

use crate::cluster::{NotAClusterId, is_dns_label};
use crate::frame::FRAME_BYTES_MAX;
use crate::greeting::{self, BootNonce, SOFTWARE_BYTES_MAX, best_version, listed, printable};
use crate::wire::{PeerHello, PeerWelcome, Refused, refused::Reason};

/// The versions of the protocol between servers that this build speaks, newest last.
pub const PEER_VERSIONS: [u32; 1] = [1];

/// Most tunnels in one delta, those that were removed included.
pub const DELTA_ENTRIES_MAX: usize = 512;

/// Most bytes of entries in one delta. The rest of its frame has room for the other fields.
pub const DELTA_BYTES_MAX: usize = FRAME_BYTES_MAX - 256;

/// Most callers in one message about usage.
pub const USAGE_CALLERS_MAX: usize = 1000;

/// Longest serial number of a certificate, in hexadecimal digits (RFC 5280, section 4.1.2.2: 20 bytes).
const SERIAL_DIGITS_MAX: usize = 40;

/// A server, as it introduces itself to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerInfo {
    /// The server's ID, a DNS label.
    pub server_id: String,
    /// The server process that speaks.
    pub boot: BootNonce,
    /// The number of its registration. A later one under the same ID has a higher number; zero means none.
    pub epoch: u64,
    /// Name and version of its software, for people.
    pub software: String,
}

/// An accepted greeting between servers, as either side sees the other one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerGreeting {
    /// The other server. Its ID is the one of its certificate, and its software is printable.
    pub peer: PeerInfo,
    /// The version that both servers speak from here on.
    pub version: u32,
}

/// The reason why a Welcome is not the answer of the server that was dialed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTheDialedPeer {
    /// A version that was not offered.
    #[error("it speaks version {0}, which was not offered")]
    Version(u32),
    /// Another server than its certificate says.
    #[error("it says that it is the server {found:?}, and its certificate is that of {dialed}")]
    Id {
        /// The ID that was dialed, and that the certificate has.
        dialed: String,
        /// The ID in the Welcome, printable.
        found: String,
    },
    /// The boot nonce does not have 16 bytes.
    #[error("its boot nonce does not have 16 bytes")]
    BootNonce,
}

/// The reason why a message between servers breaks a limit or names something that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerMessageError {
    /// More tunnels and removals than one delta may have.
    #[error("a delta has {0} entries, and {max} at most are allowed", max = DELTA_ENTRIES_MAX)]
    Entries(usize),
    /// A tunnel's cluster has no such name.
    #[error(transparent)]
    Cluster(#[from] NotAClusterId),
    /// A tunnel's agent has no such name.
    #[error("the name of an agent of {0} is no DNS label")]
    Agent(String),
    /// A boot nonce does not have 16 bytes.
    #[error("the boot nonce of an agent of {0} does not have 16 bytes")]
    BootNonce(String),
    /// A serial number is not one of a certificate.
    #[error("the serial number of an agent of {0} is not 1 to {max} hexadecimal digits", max = SERIAL_DIGITS_MAX)]
    Serial(String),
    /// More callers than one message may have.
    #[error("a message has {0} callers, and {max} at most are allowed", max = USAGE_CALLERS_MAX)]
    Callers(usize),
    /// A caller's digest does not have 16 bytes.
    #[error("the digest of a caller does not have 16 bytes")]
    Digest,
    /// The digest of a file does not have 32 bytes.
    #[error("the digest of a file does not have 32 bytes")]
    FileDigest,
}

/// The first frame of a server that dials another one.
#[must_use]
pub fn hello(own: &PeerInfo) -> PeerHello {
    PeerHello {
        versions: PEER_VERSIONS.to_vec(),
        server_id: own.server_id.clone(),
        boot_nonce: own.boot.0.to_vec(),
        epoch: own.epoch,
        software: own.software.clone(),
    }
}

/// Checks a greeting against the ID that the sender's certificate proved. `own` is this server.
///
/// # Errors
/// The frame to send back, whose message says what is wrong and what to do.
pub fn verify_hello(hello: PeerHello, certified_id: &str, own: &PeerInfo) -> Result<PeerGreeting, Refused> {
    let version = best_version(&hello.versions, &PEER_VERSIONS).ok_or_else(|| {
        let (theirs, ours) = (listed(&hello.versions), listed(&PEER_VERSIONS));
        let message =
            format!("the server {certified_id} speaks versions {theirs} and {} speaks {ours}", own.server_id);
        refuse(Reason::Version, format!("{message}; upgrade the older of the two"))
    })?;
    if hello.server_id != certified_id || !is_dns_label(certified_id) {
        let found = printable(&hello.server_id, SOFTWARE_BYTES_MAX);
        let message = format!(
            "the certificate is that of the peer {certified_id} and the server is {found:?}; give each server the \
             peer certificate of its own ID"
        );
        return Err(refuse(Reason::Greeting, message));
    }
    if certified_id == own.server_id {
        let message = format!(
            "the server {certified_id} has dialed itself, or another server of the same ID; give each server an ID \
             and an address of its own"
        );
        return Err(refuse(Reason::Greeting, message));
    }
    let Ok(boot) = <[u8; 16]>::try_from(hello.boot_nonce.as_slice()) else {
        return Err(refuse(Reason::Greeting, "the boot nonce must be 16 bytes".to_owned()));
    };
    let software = printable(&hello.software, SOFTWARE_BYTES_MAX);
    let peer = PeerInfo { server_id: hello.server_id, boot: BootNonce(boot), epoch: hello.epoch, software };
    Ok(PeerGreeting { peer, version })
}

/// The answer to an accepted greeting.
#[must_use]
pub fn welcome(greeting: &PeerGreeting, own: &PeerInfo) -> PeerWelcome {
    PeerWelcome {
        version: greeting.version,
        server_id: own.server_id.clone(),
        boot_nonce: own.boot.0.to_vec(),
        epoch: own.epoch,
        software: own.software.clone(),
    }
}

/// Checks the answer of the server that was dialed as `dialed_id`, which its certificate has proved.
///
/// # Errors
/// [`NotTheDialedPeer`]; the caller closes the connection.
pub fn verify_welcome(welcome: PeerWelcome, dialed_id: &str) -> Result<PeerGreeting, NotTheDialedPeer> {
    let PeerWelcome { version, server_id, boot_nonce, epoch, software } = welcome;
    if !PEER_VERSIONS.contains(&version) {
        return Err(NotTheDialedPeer::Version(version));
    }
    if server_id != dialed_id {
        let found = printable(&server_id, SOFTWARE_BYTES_MAX);
        return Err(NotTheDialedPeer::Id { dialed: dialed_id.to_owned(), found });
    }
    let boot = <[u8; 16]>::try_from(boot_nonce.as_slice()).map_err(|_| NotTheDialedPeer::BootNonce)?;
    let software = printable(&software, SOFTWARE_BYTES_MAX);
    Ok(PeerGreeting { peer: PeerInfo { server_id, boot: BootNonce(boot), epoch, software }, version })
}

/// Builds a refusal of a greeting between servers.
#[must_use]
pub fn refuse(reason: Reason, message: String) -> Refused {
    Refused { versions: PEER_VERSIONS.to_vec(), ..greeting::refuse(reason, message) }
}

#[cfg(test)]
mod tests;
