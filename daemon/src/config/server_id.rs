//! The server's ID in the text of a configuration file, so that all servers of an installation can have one file.

use std::path::Path;

use proto::cluster::is_dns_label;

use super::LoadError;

/// The text in place of the server's ID. It has the form in which Kubernetes names environment variables in a container's arguments.
pub const SERVER_ID_PLACEHOLDER: &str = "$(serverId)";

/// Replaces each [`SERVER_ID_PLACEHOLDER`] of a file's text by `id`, which comes from a flag or the environment.
///
/// An ID is a DNS label, so it can change no other part of the file.
///
/// # Errors
///
/// [`LoadError::NoServerId`] if the file has the placeholder and there is no ID, or one that is no DNS label.
pub fn with_server_id(text: String, id: Option<&str>, path: &Path) -> Result<String, LoadError> {
    if !text.contains(SERVER_ID_PLACEHOLDER) {
        return Ok(text);
    }
    match id {
        Some(id) if is_dns_label(id) => Ok(text.replace(SERVER_ID_PLACEHOLDER, id)),
        found => Err(LoadError::NoServerId {
            path: path.to_owned(),
            found: found.map_or_else(|| "nothing".to_owned(), str::to_owned),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_placeholder_becomes_the_id() {
        let text = "a: $(serverId).peers:8446\nb: $(serverId)-server.crt\n".to_owned();

        let text = with_server_id(text, Some("tunnel-server-0"), Path::new("server.yaml")).unwrap();

        assert_eq!(text, "a: tunnel-server-0.peers:8446\nb: tunnel-server-0-server.crt\n");
    }

    #[test]
    fn without_the_placeholder_no_id_is_needed() {
        assert_eq!(with_server_id("a: b".to_owned(), None, Path::new("x")).unwrap(), "a: b");
    }

    #[test]
    fn a_placeholder_without_a_proper_id_is_refused() {
        for id in [None, Some(""), Some("a\nadmin: {}"), Some("../a"), Some("-a"), Some("a-"), Some("A")] {
            let error = with_server_id("$(serverId)".to_owned(), id, Path::new("x")).unwrap_err();

            assert!(error.to_string().contains("--server-id"), "{error}");
        }
    }
}
