//! `tombolo cluster check`: checks whether a cluster's own kubeconfig reaches it by its control-plane address. The server's store, the
//! agents and the API server's certificate have to agree on it.

use policy::{NotATarget, Target, TargetEntry, may_advertise};
use proto::admin::{Cluster, ServedCertificate, Tunnel};

use crate::admin::{Admin, AdminError};
use crate::args::ClusterCheck;
use crate::certificate_names;
use crate::files::{self, ReadError};
use crate::kubeconfig::rewrite::{self, RewriteError};
use crate::runtime::{self, RuntimeError};

/// The error if the check could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Kubeconfig(#[from] RewriteError),
    #[error("the server of the kubeconfig is no address that callers can be connected to")]
    Target(#[from] NotATarget),
    #[error("this server knows no cluster {0}; make it with `tombolo cluster create {0}`")]
    UnknownCluster(String),
}

/// One line for each check, and whether the cluster is reached.
pub(crate) fn check(args: &ClusterCheck) -> Result<(Vec<String>, bool), CheckError> {
    let ClusterCheck { cluster, kubeconfig, context, server } = args;
    let text = files::read(kubeconfig)?;
    let target: Target = rewrite::api_server_address(&text, context.as_deref())?.as_str().parse()?;
    let name = rewrite::verified_name(&text, context.as_deref())?;
    let names = vec![cluster.to_string()];
    let found =
        runtime::run(async |scope| Admin::connect(server.endpoint(), scope).await?.list(names).await)??;
    let found = found.into_iter().next().ok_or_else(|| CheckError::UnknownCluster(cluster.to_string()))?;
    let (lines, is_reached) = check_all(&found, &target, name.as_deref());
    let head = format!("{} leads to {target}", kubeconfig.display());
    Ok(([head].into_iter().chain(lines).collect(), is_reached))
}

/// `verified_name` is the name that the API server's certificate has to have; `None` if the kubeconfig skips verification.
fn check_all(cluster: &Cluster, target: &Target, verified_name: Option<&str>) -> (Vec<String>, bool) {
    let name = &cluster.name;
    let wanted = TargetEntry::Exactly(target.clone());
    let allowed =
        cluster.description.as_ref().map_or(&[][..], |description| description.advertise.as_slice());
    let may = allowed.iter().any(|entry| may_advertise(entry, &wanted));
    let store = if may {
        format!("ok      store: {name} may advertise it")
    } else {
        // `--advertise` replaces the whole list.
        let all = allowed.iter().cloned().chain([target.to_string()]);
        let flags: Vec<String> = all.map(|one| format!("--advertise {one}")).collect();
        format!(
            "failed  store: {name} may not advertise it; tombolo cluster update {name} {}",
            flags.join(" ")
        )
    };
    let is_connected = !cluster.tunnels.is_empty();
    let agents = cluster.tunnels.iter().map(|tunnel| check_agent(tunnel, target));
    let (agents, advertised): (Vec<String>, Vec<bool>) = agents.unzip();
    let absent = (!is_connected)
        .then(|| format!("failed  agent: no agent of {name} is connected, so its addresses are unknown"));
    let certified = verified_name.into_iter().flat_map(|name| {
        let of_tunnel = |tunnel| check_certificates(tunnel, target, name);
        cluster.tunnels.iter().flat_map(of_tunnel).collect::<Vec<_>>()
    });
    let (certificates, verifies): (Vec<String>, Vec<bool>) = certified.unzip();
    let is_reached = may && is_connected && advertised.iter().chain(&verifies).all(|is_good| *is_good);
    ([store].into_iter().chain(agents).chain(certificates).chain(absent).collect(), is_reached)
}

fn check_agent(tunnel: &Tunnel, target: &Target) -> (String, bool) {
    let has = |entry: &String| entry.parse().is_ok_and(|entry: TargetEntry| entry.has(target));
    if tunnel.endpoints.iter().any(has) {
        return (format!("ok      agent {}: advertises it", tunnel.agent), true);
    }
    let advertised =
        if tunnel.endpoints.is_empty() { "nothing".to_owned() } else { tunnel.endpoints.join(", ") };
    let line = format!(
        "failed  agent {}: advertises {advertised}; if it is the cluster's, add \"{target}\" to `targets` in the agent's \
         configuration",
        tunnel.agent
    );
    (line, false)
}

/// Checks `name` against the API servers' certificates that the agent has seen: the one at `target` if it is among them, else
/// all.
fn check_certificates(tunnel: &Tunnel, target: &Target, name: &str) -> Vec<(String, bool)> {
    let is_at =
        |one: &&ServedCertificate| one.address.parse().is_ok_and(|address: Target| address == *target);
    let there: Vec<&ServedCertificate> = tunnel.certificates.iter().filter(is_at).collect();
    let relevant = if there.is_empty() { tunnel.certificates.iter().collect() } else { there };
    if relevant.is_empty() {
        let line = format!(
            "unknown agent {}: does not say which names its API server's certificate has",
            tunnel.agent
        );
        return vec![(line, true)];
    }
    relevant.into_iter().map(|one| check_certificate(&tunnel.agent, one, name)).collect()
}

fn check_certificate(agent: &str, certificate: &ServedCertificate, name: &str) -> (String, bool) {
    let ServedCertificate { address, names, cut } = certificate;
    if certificate_names::covers(names, name) {
        return (format!("ok      agent {agent}: the certificate at {address} is for {name}"), true);
    }
    if *cut {
        let line = format!("unknown agent {agent}: the certificate at {address} has more names than it says");
        return (line, true);
    }
    let has =
        if names.is_empty() { "for no name at all".to_owned() } else { format!("for {}", names.join(", ")) };
    let line = format!(
        "failed  agent {agent}: the certificate that it was shown at {address} is not for {name}, but {has}, so the kubeconfig would \
         fail to verify it, unless the API server has another certificate for that name: {}",
        certificate_names::how_to_add(name)
    );
    (line, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::admin::Description;

    fn cluster(allowed: &[&str], advertised: &[&[&str]]) -> Cluster {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>();
        let tunnel = |(number, endpoints): (usize, &&[&str])| Tunnel {
            agent: format!("agent-{number}"),
            endpoints: texts(endpoints),
            ..Tunnel::default()
        };
        Cluster {
            name: "edge-a".to_owned(),
            description: Some(Description { advertise: texts(allowed), ..Description::default() }),
            tunnels: advertised.iter().enumerate().map(tunnel).collect(),
            ..Cluster::default()
        }
    }

    #[test]
    fn the_list_without_the_address_is_named_with_its_fix() {
        let (address, name) = ("192.168.1.10:6443", "api.site.example:6443");
        for (allowed, advertised, target, is_reached, words) in [
            (&["192.168.1.0/24"][..], &[&[address][..]][..], address, true, "ok      store"),
            (&[address], &[&["192.168.0.0/16:6443"]], address, true, "ok      agent agent-0"),
            (
                &["10.0.0.0/8"],
                &[&[address]],
                address,
                false,
                "tombolo cluster update edge-a --advertise 10.0.0.0/8 --advertise 192.168.1.10:6443",
            ),
            (&["192.168.1.0/24"], &[&[name]], name, false, "--advertise api.site.example:6443"),
            (&[name], &[&[address]], name, false, "add \"api.site.example:6443\" to `targets`"),
            (&[name], &[&[name], &[]], name, false, "agent agent-1: advertises nothing"),
            (&[name], &[], name, false, "no agent of edge-a is connected"),
        ] {
            let checked = check_all(&cluster(allowed, advertised), &target.parse().unwrap(), None);

            assert_eq!(checked.1, is_reached, "{checked:?}");
            assert!(checked.0.join("\n").contains(words), "{words}: {checked:?}");
        }
    }

    /// An agent that has seen no certificate, or not all of its names, is reported as unknown.
    #[test]
    fn a_name_missing_from_the_certificate_is_named_with_its_fix() {
        let target: Target = "192.168.1.10:6443".parse().unwrap();
        let served = |address: &str, names: &[&str], cut| ServedCertificate {
            address: address.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            cut,
        };
        let (has, lacks) = (&["kubernetes", "192.168.1.10"][..], &["kubernetes"][..]);
        let asked = Some("192.168.1.10");
        for (certificates, asked, is_reached, words) in [
            (
                vec![served("10.96.0.1:443", has, false)],
                asked,
                true,
                "ok      agent agent-0: the certificate at 10.96",
            ),
            (
                vec![served("10.96.0.1:443", lacks, false)],
                asked,
                false,
                "is not for 192.168.1.10, but for kubernetes,",
            ),
            (vec![served("10.96.0.1:443", lacks, false)], asked, false, "--tls-san 192.168.1.10"),
            (vec![served("10.96.0.1:443", &[], false)], asked, false, "but for no name at all"),
            // The agent has seen the certificate at the very target.
            (
                vec![served("192.168.1.10:6443", has, false), served("192.168.1.11:6443", lacks, false)],
                asked,
                true,
                "at 192.168.1.10:6443 is for",
            ),
            (
                vec![served("10.96.0.1:443", lacks, true)],
                asked,
                true,
                "unknown agent agent-0: the certificate",
            ),
            (vec![], asked, true, "unknown agent agent-0: does not say"),
            (vec![served("10.96.0.1:443", lacks, false)], Some("kubernetes"), true, "is for kubernetes"),
            // The kubeconfig skips verification.
            (vec![served("10.96.0.1:443", lacks, false)], None, true, "advertises it"),
        ] {
            let address = target.to_string();
            let mut cluster = cluster(&[&address], &[&[&address]]);
            cluster.tunnels[0].certificates = certificates;

            let (lines, found) = check_all(&cluster, &target, asked);

            assert_eq!(found, is_reached, "{lines:?}");
            assert!(lines.join("\n").contains(words), "{words}: {lines:?}");
        }
    }
}
