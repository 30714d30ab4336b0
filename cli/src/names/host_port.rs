//! Addresses that are printed into commands and files: a host and a port.

#[derive(Debug, thiserror::Error)]
#[error("use HOST:PORT, an IPv6 address in brackets, such as gateway.example:8443")]
pub(crate) struct NotAHostAndPort;

/// Parses an address that agents dial.
pub(crate) fn host_and_port(text: &str) -> Result<String, NotAHostAndPort> {
    if is_host_and_port(text) { Ok(text.to_owned()) } else { Err(NotAHostAndPort) }
}

/// Returns true if the text is a host and a port, without a character that a shell, YAML or a line could take for its
/// own.
pub(crate) fn is_host_and_port(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    let port =
        text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    text.bytes().all(is_plain) && matches!(port, Some(Ok(1..)))
}
