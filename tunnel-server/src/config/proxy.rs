//! The doors for callers with dial tokens, as they are configured.

use std::net::SocketAddr;
use std::path::Path;
use std::time::SystemTime;

use daemon::config::KeyError;

use super::value::{file, said_listen};
use super::{Proxy, pem, written};

const CERTIFICATE: &str = "proxy.certificateFile";
const KEY: &str = "proxy.keyFile";

pub(super) fn proxy(written: Option<written::Proxy>, directory: &Path) -> Result<Option<Proxy>, KeyError> {
    let Some(written::Proxy { listen, certificate_file, key_file }) = written else { return Ok(None) };
    let listen = said_listen("proxy.listen", listen)?;
    let certificate = file(CERTIFICATE, certificate_file, directory)?;
    let key = file(KEY, key_file, directory)?;
    let pair = pem::pair((CERTIFICATE, &certificate), (KEY, &key))?;
    pem::in_time(CERTIFICATE, &certificate, &pair.chain, SystemTime::now())?;
    Ok(Some(Proxy { listen, certificate: pair }))
}

/// SOCKS5 has no TLS: whoever hears what passes has the token.
pub(super) fn socks(written: Option<written::Socks>) -> Result<Option<SocketAddr>, KeyError> {
    let Some(written::Socks { listen, insecure_non_loopback }) = written else { return Ok(None) };
    let address = said_listen("socks.listen", listen)?;
    if address.ip().to_canonical().is_loopback() || insecure_non_loopback == Some(true) {
        return Ok(Some(address));
    }
    let allowed = "an address of loopback, because SOCKS5 has no TLS and tokens pass in the clear; proxy.listen is the door with TLS, \
                   and socks.insecureNonLoopback: true says that the network between is trusted";
    Err(KeyError::new("socks.listen", address, allowed))
}
