//! Checks whether an API server's certificate covers a name, and how to add a name that is missing.

use std::net::IpAddr;

/// Tells whether a certificate with these names is valid for `name`, a DNS name or an address without brackets.
pub(crate) fn covers(names: &[String], name: &str) -> bool {
    if let Ok(address) = name.parse::<IpAddr>() {
        return names.iter().any(|one| one.parse() == Ok(address));
    }
    let name = name.trim_end_matches('.');
    let mut names = names.iter().filter(|one| one.parse::<IpAddr>().is_err());
    names.any(|one| {
        // A wildcard stands for exactly the first label (RFC 6125, section 6.4.3).
        let below = one.strip_prefix("*.").zip(name.split_once('.'));
        one.eq_ignore_ascii_case(name) || below.is_some_and(|(one, (_, rest))| one.eq_ignore_ascii_case(rest))
    })
}

/// Advice on how to add `name` to the certificate, for kubeadm, k3s, RKE2 and any other kube-apiserver.
pub(crate) fn how_to_add(name: &str) -> String {
    let flags = if name.parse::<IpAddr>().is_ok() {
        "--tls-cert-file"
    } else {
        "--tls-cert-file or --tls-sni-cert-key"
    };
    format!(
        "with kubeadm add it to apiServer.certSANs and run `kubeadm init phase certs apiserver` after moving the old one away; with k3s and \
         RKE2 start the server with --tls-san {name}; else give kube-apiserver a serving certificate that has it, by {flags}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other names and addresses cover themselves alone, in any spelling.
    #[test]
    fn a_wildcard_covers_one_label_and_no_address() {
        let names = ["kubernetes", "*.edge.example", "192.168.1.10", "fd00::1"].map(str::to_owned);
        for name in ["kubernetes", "Kubernetes.", "api.edge.example", "192.168.1.10", "fd00:0::1"] {
            assert!(covers(&names, name), "{name}");
        }
        for name in [
            "kubernetes.default",
            "edge.example",
            "a.b.edge.example",
            "192.168.1.1",
            "192.168.1.10.",
            "",
            "*",
        ] {
            assert!(!covers(&names, name), "{name}");
        }
        assert!(!covers(&["*.168.1.10".to_owned()], "192.168.1.10"), "a wildcard covers no address");
    }

    #[test]
    fn the_fix_names_flags_that_exist() {
        let (name, address) = (how_to_add("api.edge-a.example"), how_to_add("192.168.1.10"));
        for word in ["certSANs", "--tls-san api.edge-a.example", "--tls-cert-file", "--tls-sni-cert-key"] {
            assert!(name.contains(word), "{name}");
        }
        // A client that connects to an address sends no SNI, so kube-apiserver cannot choose a certificate by it.
        assert!(address.contains("--tls-san 192.168.1.10") && !address.contains("sni"), "{address}");
    }
}
