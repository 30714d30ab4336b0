//! The sections `proxy` and `socks`: the listeners for callers with dial tokens.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use daemon::config::KeyError;
use serde::Deserialize;

use super::pem::{self, CertifiedPair};
use super::value::{file, required_listen_address};

const CERTIFICATE: &str = "proxy.certificateFile";
const KEY: &str = "proxy.keyFile";

/// The TLS listener for callers with dial tokens.
#[derive(Debug)]
pub struct ProxyConfig {
    /// The TCP address to bind.
    pub listen: SocketAddr,
    /// The certificate that this listener alone shows.
    pub certificate: CertifiedPair,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawProxy {
    /// Address and TCP port for callers with dial tokens.
    #[cfg_attr(test, schemars(required))]
    listen: Option<String>,
    /// PEM file with the certificate of this listener alone.
    #[cfg_attr(test, schemars(required))]
    certificate_file: Option<PathBuf>,
    /// PEM file with its private key.
    #[cfg_attr(test, schemars(required))]
    key_file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawSocks {
    /// Address and TCP port for SOCKS5, a loopback address.
    #[cfg_attr(test, schemars(required))]
    listen: Option<String>,
    /// Allows another address. SOCKS5 has no TLS, so tokens pass in the clear.
    #[cfg_attr(test, schemars(extend("default" = false)))]
    insecure_non_loopback: Option<bool>,
}

pub(super) fn proxy(raw: Option<RawProxy>, directory: &Path) -> Result<Option<ProxyConfig>, KeyError> {
    let Some(RawProxy { listen, certificate_file, key_file }) = raw else { return Ok(None) };
    let listen = required_listen_address("proxy.listen", listen)?;
    let certificate = file(CERTIFICATE, certificate_file, directory)?;
    let key = file(KEY, key_file, directory)?;
    let certificate = pem::valid_pair((CERTIFICATE, &certificate), (KEY, &key))?;
    Ok(Some(ProxyConfig { listen, certificate }))
}

/// The SOCKS5 listener. SOCKS5 has no TLS, so that anyone who reads the traffic has the token.
pub(super) fn socks(raw: Option<RawSocks>) -> Result<Option<SocketAddr>, KeyError> {
    let Some(RawSocks { listen, insecure_non_loopback }) = raw else { return Ok(None) };
    let address = required_listen_address("socks.listen", listen)?;
    if address.ip().to_canonical().is_loopback() || insecure_non_loopback == Some(true) {
        return Ok(Some(address));
    }
    let allowed = "a loopback address, because SOCKS5 has no TLS and tokens pass in the clear; proxy.listen is the listener with TLS, \
                   and socks.insecureNonLoopback: true declares the network between to be trusted";
    Err(KeyError::new("socks.listen", address, allowed))
}
