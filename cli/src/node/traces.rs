//! Takes away the traces of kubelet and kube-proxy in the kernel: mounts of volumes, and rules of the packet filter.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::machine::KUBELET_STATE;

/// The chains of kubelet and kube-proxy in iptables begin so.
const PREFIX: &str = "KUBE-";

/// The tables of kube-proxy in its mode `nftables`.
const NFTABLES: [&str; 2] = ["table ip kube-proxy", "table ip6 kube-proxy"];

/// A mount or a rule that stays.
#[derive(Debug, thiserror::Error)]
#[error("`{command}` failed: {output}")]
pub(crate) struct TraceError {
    command: String,
    output: String,
}

/// Unmounts everything below kubelet's folder, the deepest first.
pub(super) fn unmount_volumes(root: &Path) -> Result<(), TraceError> {
    let state = root.join(KUBELET_STATE);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut below: Vec<&str> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|path| Path::new(path).starts_with(&state) && Path::new(path) != state)
        .collect();
    below.reverse();
    below.into_iter().try_for_each(|path| run("umount", &[path]).map(drop))
}

/// Removes the rules and chains of kubelet and kube-proxy. A machine without the programs has none.
pub(super) fn remove_rules() -> Result<(), TraceError> {
    for (save, restore) in [("iptables-save", "iptables-restore"), ("ip6tables-save", "ip6tables-restore")] {
        if is_installed(save) {
            let removals = removals(&run(save, &[])?);
            feed(restore, &["--noflush", "--wait"], &removals)?;
        }
    }
    if is_installed("nft") {
        let tables = run("nft", &["list", "tables"])?;
        for table in NFTABLES.into_iter().filter(|table| tables.lines().any(|line| line == *table)) {
            run("nft", &[&["delete"], table.split(' ').collect::<Vec<_>>().as_slice()].concat())?;
        }
    }
    Ok(())
}

/// The input of `iptables-restore --noflush` that takes back what belongs to Kubernetes in the output of `iptables-save`: first the
/// rules of other chains that lead to its chains, then these. All other rules stay.
fn removals(saved: &str) -> String {
    let mut script = String::new();
    for table in saved.split_inclusive("COMMIT\n") {
        let lines = || table.lines().filter(|line| line.contains(PREFIX));
        let Some(name) = table.lines().find(|line| line.starts_with('*')) else { continue };
        // `:KUBE-FIREWALL - [0:0]`
        let chains: Vec<&str> =
            lines().filter_map(|line| line.strip_prefix(':')?.split(' ').next()).collect();
        let own = format!("-A {PREFIX}");
        let jumps =
            lines().filter(|line| !line.starts_with(&own)).filter_map(|line| line.strip_prefix("-A "));
        let jumps = jumps.map(|rule| format!("-D {rule}\n"));
        let emptied = chains.iter().map(|chain| format!("-F {chain}\n"));
        let removed = chains.iter().map(|chain| format!("-X {chain}\n"));
        let removals: Vec<String> = jumps.chain(emptied).chain(removed).collect();
        if !removals.is_empty() {
            script += &format!("{name}\n{}COMMIT\n", removals.concat());
        }
    }
    script
}

fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).exists())
}

fn run(program: &str, words: &[&str]) -> Result<String, TraceError> {
    feed(program, words, "")
}

/// Runs a program with this text at its standard input.
fn feed(program: &str, words: &[&str], text: &str) -> Result<String, TraceError> {
    let failed = |output: String| TraceError { command: [&[program], words].concat().join(" "), output };
    let output = || {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(text.as_bytes())?;
        }
        child.wait_with_output()
    };
    match output() {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        Err(error) => Err(failed(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kubernetes_rules_are_taken_back() {
        let saved = "# Generated\n*filter\n:INPUT ACCEPT [1:2]\n:DOCKER - [0:0]\n:KUBE-FIREWALL - [0:0]\n-A INPUT -p tcp --dport 22 -j ACCEPT\n\
                     -A INPUT -m comment --comment \"a b\" -j KUBE-FIREWALL\n-A KUBE-FIREWALL -j DROP\nCOMMIT\n*nat\n:OUTPUT ACCEPT [0:0]\n\
                     COMMIT\n*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n";
        let expected = "*filter\n-D INPUT -m comment --comment \"a b\" -j KUBE-FIREWALL\n-F KUBE-FIREWALL\n-X KUBE-FIREWALL\nCOMMIT\n\
                        *mangle\n-F KUBE-KUBELET-CANARY\n-X KUBE-KUBELET-CANARY\nCOMMIT\n";
        assert_eq!(removals(saved), expected);
        assert_eq!(removals(""), "");
    }
}
