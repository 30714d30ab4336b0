//! Whether a name stands in the serving certificate of an API server, and what puts it there where it does not.

use std::net::IpAddr;

/// Whether programs that ask for `name`, a DNS name or an address without brackets, take a certificate with these names.
pub(crate) fn is_for(names: &[String], name: &str) -> bool {
    if let Ok(address) = name.parse::<IpAddr>() {
        return names.iter().any(|one| one.parse() == Ok(address));
    }
    let name = name.trim_end_matches('.');
    let mut names = names.iter().filter(|one| one.parse::<IpAddr>().is_err());
    names.any(|one| {
        // A star stands for one whole label, the first (RFC 6125, section 6.4.3).
        let below = one.strip_prefix("*.").zip(name.split_once('.'));
        one.eq_ignore_ascii_case(name) || below.is_some_and(|(one, (_, rest))| one.eq_ignore_ascii_case(rest))
    })
}

/// What mends it, wherever the API server has its certificate from.
pub(crate) fn mending(name: &str) -> String {
    let else_by = if name.parse::<IpAddr>().is_ok() {
        "--tls-cert-file"
    } else {
        "--tls-cert-file or --tls-sni-cert-key"
    };
    format!(
        "with kubeadm add it to apiServer.certSANs and run `kubeadm init phase certs apiserver` after moving the old one away; with k3s and \
         RKE2 start the server with --tls-san {name}; else give kube-apiserver a serving certificate that has it, by {else_by}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_for_the_names_and_addresses_that_it_has_and_for_one_label_below_a_star() {
        let names = ["kubernetes", "*.edge.example", "192.168.1.10", "fd00::1"].map(str::to_owned);
        for name in ["kubernetes", "Kubernetes.", "api.edge.example", "192.168.1.10", "fd00:0::1"] {
            assert!(is_for(&names, name), "{name}");
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
            assert!(!is_for(&names, name), "{name}");
        }
        assert!(!is_for(&["*.168.1.10".to_owned()], "192.168.1.10"), "a star is no part of an address");
    }

    #[test]
    fn what_mends_it_names_the_flags_that_there_are() {
        let (name, address) = (mending("api.edge-a.example"), mending("192.168.1.10"));
        for word in ["certSANs", "--tls-san api.edge-a.example", "--tls-cert-file", "--tls-sni-cert-key"] {
            assert!(name.contains(word), "{name}");
        }
        // A program that asks for an address sends no server name by which one of several could be chosen.
        assert!(address.contains("--tls-san 192.168.1.10") && !address.contains("sni"), "{address}");
    }
}
