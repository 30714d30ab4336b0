//! Takes away the traces of kubelet and kube-proxy in the kernel: mounts of volumes, and rules of the packet filter.

use std::fs;
use std::path::Path;

use super::machine::KUBELET_STATE;
use super::programs::{ProgramError, feed, is_installed, run};

/// The chains of kubelet and kube-proxy in iptables begin so.
const PREFIX: &str = "KUBE-";

/// The tables of kube-proxy in its mode `nftables`.
const NFTABLES: [&str; 2] = ["table ip kube-proxy", "table ip6 kube-proxy"];

/// Unmounts everything below kubelet's folder, the deepest first.
pub(super) fn unmount_volumes(root: &Path) -> Result<(), ProgramError> {
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
pub(super) fn remove_rules() -> Result<(), ProgramError> {
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
