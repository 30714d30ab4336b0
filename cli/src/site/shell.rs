//! Shell commands that join a site to the server, to be pasted at the site.

use super::{CONFIG_FILE, NewSite, TOKEN_FILE, agent_config};

/// The line that ends a text in the commands. No token and no configuration has it.
const END: &str = "END-OF-FILE";

/// Commands for a POSIX shell, which write the token and the configuration and start the agent.
pub(crate) fn commands(site: &NewSite) -> String {
    let NewSite { cluster, token, ttl, .. } = site;
    format!(
        "# One agent of cluster {cluster}. The token is valid for {ttl}, enrolls once, and is shown once. Paste these lines into a shell,\n\
         # in an empty folder of a machine that has tunnel-agent and a kubeconfig of the cluster.\n\
         (umask 077; cat > {TOKEN_FILE}) <<'{END}'\n\
         {token}\n\
         {END}\n\
         cat > {CONFIG_FILE} <<'{END}'\n\
         {}{END}\n\
         {}",
        agent_config(site),
        start(CONFIG_FILE),
    )
}

/// The command that starts the agent with this configuration file, and what to know of it.
pub(super) fn start(config: &str) -> String {
    format!(
        "# The agent has the rights of this kubeconfig. To give it no more than it needs: tombolo rbac --help\n\
         tunnel-agent --config {config} --kubeconfig \"${{KUBECONFIG:-$HOME/.kube/config}}\"\n"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use super::*;
    use crate::site::tests::site;

    /// The agent is a script that prints its arguments.
    #[test]
    fn the_printed_commands_write_both_files_and_start_the_agent() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("tunnel-agent"), "#!/bin/sh\necho \"$@\"\n").unwrap();
        std::fs::set_permissions(path("tunnel-agent"), std::fs::Permissions::from_mode(0o755)).unwrap();

        let output = Command::new("sh")
            .args(["-euc", &commands(&site())])
            .current_dir(directory.path())
            .env("PATH", format!("{}:/usr/bin:/bin", directory.path().display()))
            .env("KUBECONFIG", "a b.conf")
            .output()
            .unwrap();

        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said, "--config agent.yaml --kubeconfig a b.conf\n");
        assert_eq!(std::fs::read_to_string(path("token")).unwrap(), "0f3c.secret\n");
        assert_eq!(std::fs::read_to_string(path("agent.yaml")).unwrap(), agent_config(&site()));
        assert_eq!(std::fs::metadata(path("token")).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
