//! The files of a new site in a folder, to be carried there.

use std::path::Path;

use super::shell::start;
use super::{CONFIG_FILE, NewSite, TOKEN_FILE, agent_config};
use crate::args::SiteArgs;
use crate::files::{self, Existing, NewFile, WriteError};

/// Writes the token and the agent's configuration into `directory`, and returns the lines that say what to do next.
pub(crate) fn write(
    callers: &SiteArgs,
    site: &NewSite,
    directory: &Path,
    force: bool,
) -> Result<String, WriteError> {
    files::create_private_directory(directory)?;
    let existing = if force { Existing::Replace } else { Existing::Keep };
    let config = directory.join(CONFIG_FILE);
    let token = NewFile::private(directory.join(TOKEN_FILE), format!("{}\n", site.token));
    files::write_all(vec![token, NewFile::public(config, agent_config(callers, site))], existing)?;
    Ok(format!(
        "# Wrote {TOKEN_FILE} (private) and {CONFIG_FILE} into {}. Copy this folder to a machine of the site within {}, and run there, in it:\n{}",
        directory.display(),
        site.ttl,
        start(callers, CONFIG_FILE),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::tests::site;

    #[test]
    fn a_sites_folder_has_token_and_configuration_and_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("edge-1");

        let callers = SiteArgs::default();
        let write = |force| write(&callers, &site(), &folder, force);

        let next = write(false).unwrap();

        assert!(next.contains("\ntunnel-agent --config agent.yaml") && !next.contains("secret"), "{next}");
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(
            (read("token").as_str(), read("agent.yaml")),
            ("0f3c.secret\n", agent_config(&callers, &site()))
        );
        assert!(matches!(write(false), Err(WriteError::AlreadyThere(_))));
        assert!(write(true).is_ok());
    }
}
