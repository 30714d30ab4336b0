//! `tombolo cluster check`: whether a kubeconfig of a cluster's own reaches it, by the lists that have to agree.

use policy::{NotATarget, Target, TargetEntry, may_advertise};
use proto::admin::{Cluster, Tunnel};

use crate::admin::{Admin, AdminError};
use crate::args::ClusterCheck;
use crate::files::{self, ReadError};
use crate::proxy::{self, NotRewritten};
use crate::runtime::{self, NoRuntime};

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
    let names = vec![cluster.to_string()];
    let found = runtime::run(async |scope| Admin::connect(server.place(), scope).await?.list(names).await)??;
    let found = found.into_iter().next().ok_or_else(|| CheckError::Unknown(cluster.to_string()))?;
    let (lines, is_reached) = judged(&found, &target);
    let head = format!("{} asks for {target}", kubeconfig.display());
    Ok(([head].into_iter().chain(lines).collect(), is_reached))
}

fn judged(cluster: &Cluster, target: &Target) -> (Vec<String>, bool) {
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
    let is_reached = may && is_here && advertised.iter().all(|advertised| *advertised);
    ([store].into_iter().chain(agents).chain(absent).collect(), is_reached)
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
            let judged = judged(&cluster(said, advertised), &target.parse().unwrap());

            assert_eq!(judged.1, is_reached, "{judged:?}");
            assert!(judged.0.join("\n").contains(words), "{words}: {judged:?}");
        }
    }
}
