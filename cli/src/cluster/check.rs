//! `tombolo cluster check`: whether a kubeconfig of a cluster's own reaches it, by the lists that have to agree.

use policy::{NotATarget, Target, TargetEntry, may_advertise};
use proto::admin::{Cluster, ServedCertificate, Tunnel};

use crate::admin::{Admin, AdminError};
use crate::args::ClusterCheck;
use crate::files::{self, ReadError};
use crate::proxy::{self, NotRewritten};
use crate::runtime::{self, NoRuntime};
use crate::served;

/// Why nothing was checked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error(transparent)]
    Runtime(#[from] NoRuntime),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Kubeconfig(#[from] NotRewritten),
    #[error("the server of the kubeconfig cannot be dialed for callers")]
    Target(#[from] NotATarget),
    #[error("this server knows no cluster {0}; make it with `tombolo cluster create {0}`")]
    Unknown(String),
}

/// What each list says, and whether all agree.
pub(crate) fn check(order: &ClusterCheck) -> Result<(Vec<String>, bool), CheckError> {
    let ClusterCheck { cluster, kubeconfig, context, server } = order;
    let text = files::read(kubeconfig)?;
    let target: Target = proxy::asked(&text, context.as_deref())?.as_str().parse()?;
    let name = proxy::verified(&text, context.as_deref())?;
    let names = vec![cluster.to_string()];
    let found = runtime::run(async |scope| Admin::connect(server.place(), scope).await?.list(names).await)??;
    let found = found.into_iter().next().ok_or_else(|| CheckError::Unknown(cluster.to_string()))?;
    let (lines, is_reached) = judged(&found, &target, name.as_deref());
    let head = format!("{} asks for {target}", kubeconfig.display());
    Ok(([head].into_iter().chain(lines).collect(), is_reached))
}

/// `asked` is the name that is looked for in the API server's certificate, if any is.
fn judged(cluster: &Cluster, target: &Target, asked: Option<&str>) -> (Vec<String>, bool) {
    let name = &cluster.name;
    let wanted = TargetEntry::Exactly(target.clone());
    let said = cluster.description.as_ref().map_or(&[][..], |description| description.advertise.as_slice());
    let may = said.iter().any(|said| may_advertise(said, &wanted));
    let store = if may {
        format!("ok      store: {name} may advertise it")
    } else {
        // What is given replaces all that was there.
        let all = said.iter().cloned().chain([target.to_string()]);
        let flags: Vec<String> = all.map(|one| format!("--advertise {one}")).collect();
        format!(
            "failed  store: {name} may not advertise it; tombolo cluster update {name} {}",
            flags.join(" ")
        )
    };
    let is_here = !cluster.tunnels.is_empty();
    let agents = cluster.tunnels.iter().map(|tunnel| agent(tunnel, target));
    let (agents, advertised): (Vec<String>, Vec<bool>) = agents.unzip();
    let absent = (!is_here)
        .then(|| format!("failed  agent: no agent of {name} is connected, so that nothing is known of it"));
    let certified = asked.into_iter().flat_map(|asked| {
        let of_tunnel = |tunnel| certificates(tunnel, target, asked);
        cluster.tunnels.iter().flat_map(of_tunnel).collect::<Vec<_>>()
    });
    let (certificates, verifies): (Vec<String>, Vec<bool>) = certified.unzip();
    let is_reached = may && is_here && advertised.iter().chain(&verifies).all(|is_good| *is_good);
    ([store].into_iter().chain(agents).chain(certificates).chain(absent).collect(), is_reached)
}

fn agent(tunnel: &Tunnel, target: &Target) -> (String, bool) {
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

/// What the API servers' certificates say to who asks for `name`: of the one at `target` that one's, where the agent has asked it there,
/// else of all.
fn certificates(tunnel: &Tunnel, target: &Target, name: &str) -> Vec<(String, bool)> {
    let is_at =
        |one: &&ServedCertificate| one.address.parse().is_ok_and(|address: Target| address == *target);
    let there: Vec<&ServedCertificate> = tunnel.certificates.iter().filter(is_at).collect();
    let asked = if there.is_empty() { tunnel.certificates.iter().collect() } else { there };
    if asked.is_empty() {
        let line = format!(
            "unknown agent {}: does not say which names its API server's certificate has",
            tunnel.agent
        );
        return vec![(line, true)];
    }
    asked.into_iter().map(|one| certificate(&tunnel.agent, one, name)).collect()
}

fn certificate(agent: &str, certificate: &ServedCertificate, name: &str) -> (String, bool) {
    let ServedCertificate { address, names, cut } = certificate;
    if served::is_for(names, name) {
        return (format!("ok      agent {agent}: the certificate at {address} is for {name}"), true);
    }
    if *cut {
        let line = format!("unknown agent {agent}: the certificate at {address} has more names than it says");
        return (line, true);
    }
    let has =
        if names.is_empty() { "for no name at all".to_owned() } else { format!("for {}", names.join(", ")) };
    let line = format!(
        "failed  agent {agent}: the certificate that it was shown at {address} is not for {name}, but {has}, so that the kubeconfig would \
         not verify, unless the API server has another for that name alone: {}",
        served::mending(name)
    );
    (line, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::admin::Description;

    fn cluster(said: &[&str], advertised: &[&[&str]]) -> Cluster {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>();
        let tunnel = |(number, endpoints): (usize, &&[&str])| Tunnel {
            agent: format!("agent-{number}"),
            endpoints: texts(endpoints),
            ..Tunnel::default()
        };
        Cluster {
            name: "edge-a".to_owned(),
            description: Some(Description { advertise: texts(said), ..Description::default() }),
            tunnels: advertised.iter().enumerate().map(tunnel).collect(),
            ..Cluster::default()
        }
    }

    #[test]
    fn the_list_that_lacks_it_is_named_with_what_mends_it() {
        let (address, name) = ("192.168.1.10:6443", "api.site.example:6443");
        for (said, advertised, target, is_reached, words) in [
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
            let judged = judged(&cluster(said, advertised), &target.parse().unwrap(), None);

            assert_eq!(judged.1, is_reached, "{judged:?}");
            assert!(judged.0.join("\n").contains(words), "{words}: {judged:?}");
        }
    }

    #[test]
    fn a_name_that_the_certificate_does_not_have_is_told_with_what_puts_it_there() {
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
            // The one that is asked for is known itself.
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
            // Nobody looks.
            (vec![served("10.96.0.1:443", lacks, false)], None, true, "advertises it"),
        ] {
            let address = target.to_string();
            let mut cluster = cluster(&[&address], &[&[&address]]);
            cluster.tunnels[0].certificates = certificates;

            let (lines, found) = judged(&cluster, &target, asked);

            assert_eq!(found, is_reached, "{lines:?}");
            assert!(lines.join("\n").contains(words), "{words}: {lines:?}");
        }
    }
}
