//! The door for callers with dial tokens, as it is configured.

use std::path::Path;
use std::time::SystemTime;

use daemon::config::{KeyError, socket_address};

use super::authentication::file;
use super::valid::NOTHING;
use super::{Proxy, pem, written};

const CERTIFICATE: &str = "proxy.certificateFile";
const KEY: &str = "proxy.keyFile";

pub(super) fn proxy(written: Option<written::Proxy>, directory: &Path) -> Result<Option<Proxy>, KeyError> {
    let Some(written::Proxy { listen, certificate_file, key_file }) = written else { return Ok(None) };
    let listen = listen.ok_or_else(|| KeyError::new("proxy.listen", NOTHING, "an address and a port"))?;
    let certificate = file(CERTIFICATE, certificate_file, directory)?;
    let key = file(KEY, key_file, directory)?;
    let pair = pem::pair((CERTIFICATE, &certificate), (KEY, &key))?;
    pem::in_time(CERTIFICATE, &certificate, &pair.chain, SystemTime::now())?;
    Ok(Some(Proxy { listen: socket_address("proxy.listen", &listen)?, certificate: pair }))
}
