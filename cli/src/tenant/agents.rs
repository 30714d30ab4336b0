//! The agents of a tenant: their rights inside of it, and the values of their chart in the host cluster.

use serde_json::{Value, json};

use super::agent_token::{self, TOKEN};
use crate::args::{RoleSubject, TenantRegister};
use crate::rbac;
use crate::site::NewSite;

/// The Secret in the host cluster with the agents' kubeconfig for the tenant, and the file in it.
pub(super) const KUBECONFIG: (&str, &str) = ("tenant-api", "tenant.kubeconfig");

/// The names of callers cannot become rights.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallersError {
    #[error("--user or --group: {0}")]
    AllowList(#[from] proto::allow_list::AllowListError),
    #[error("--user or --group has the pattern {0:?}, and RBAC knows no patterns: name each one in full")]
    Pattern(String),
    #[error("the rights of the agents are no YAML")]
    Yaml(#[from] serde_saphyr::Error),
}

/// The objects inside of the tenant: the account of the agents with its rights and a token, and the role of the callers.
///
/// # Errors
/// [`CallersError`]
pub(super) fn inside(args: &TenantRegister) -> Result<Vec<Value>, CallersError> {
    let callers = proto::AllowList::new(Some(args.users.clone()), Some(args.groups.clone()), None)?;
    if let Some(pattern) = args.users.iter().chain(&args.groups).find(|name| name.contains('*')) {
        return Err(CallersError::Pattern(pattern.clone()));
    }
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&rbac::manifest_for(&callers))?;
    objects.push(agent_token::secret(TOKEN));
    if let Some(role) = &args.cluster_role {
        let api = "rbac.authorization.k8s.io";
        let subject = |subject: &RoleSubject<'_>| {
            let (kind, name) = match subject {
                RoleSubject::Group(name) => ("Group", name),
                RoleSubject::User(name) => ("User", name),
            };
            json!({ "apiGroup": api, "kind": kind, "name": name })
        };
        objects.push(json!({
            "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding",
            "metadata": { "name": format!("tombolo-callers-{role}") },
            "roleRef": { "apiGroup": api, "kind": "ClusterRole", "name": role },
            "subjects": RoleSubject::among(&args.users, &args.groups).iter().map(subject).collect::<Vec<_>>(),
        }));
    }
    Ok(objects)
}

/// The values of the chart tombolo-agent. The host cluster vouches for the pods, and gives them no rights.
pub(super) fn values(args: &TenantRegister, site: &NewSite) -> Value {
    let NewSite { cluster, servers, enrollment_server, pin, token, ttl: _ } = site;
    json!({
        "config": {
            "cluster": cluster.as_str(),
            "servers": servers,
            "enrollment": { "server": enrollment_server, "pin": pin, "hostCluster": {} },
            "apiServer": { "kubeconfig": KUBECONFIG.1, "discoverEndpoints": true },
            "impersonation": { "users": args.users, "groups": args.groups },
        },
        "enrollment": { "token": token },
        "extraFiles": [{ "secret": KUBECONFIG.0 }],
        "rbac": { "create": false },
    })
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches as _};

    use super::super::agent_token::NAMESPACE;
    use super::super::objects::SERVICE_ACCOUNT;
    use super::*;

    fn args(words: &str) -> TenantRegister {
        let command = TenantRegister::augment_args(Command::new("register"));
        let words = format!("register acme {words}");
        TenantRegister::from_arg_matches(&command.get_matches_from(words.split(' '))).unwrap()
    }

    #[test]
    fn agents_get_the_rights_of_the_named_callers_and_a_token() {
        let objects = inside(&args("--user alice --group tombolo:admins --cluster-role view")).unwrap();

        let of_kind = |kind: &str| objects.iter().filter(|object| object["kind"] == kind).collect::<Vec<_>>();
        assert_eq!(of_kind("ServiceAccount")[0]["metadata"]["name"], SERVICE_ACCOUNT);
        assert_eq!(of_kind("ServiceAccount")[0]["metadata"]["namespace"], NAMESPACE);
        assert_eq!(of_kind("Secret")[0]["type"], "kubernetes.io/service-account-token");
        let callers = of_kind("ClusterRoleBinding");
        let callers = callers.iter().find(|binding| binding["roleRef"]["name"] == "view").unwrap();
        assert_eq!(
            callers["subjects"],
            json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "tombolo:admins" }])
        );
        let rules: String = of_kind("ClusterRole").iter().map(|role| role["rules"].to_string()).collect();
        assert!(rules.contains("\"alice\"") && !rules.contains('*'), "{rules}");
    }

    #[test]
    fn a_pattern_would_let_the_agents_impersonate_anybody_and_is_refused() {
        let refused = inside(&args("--user al*")).unwrap_err().to_string();
        assert!(refused.contains("\"al*\""), "{refused}");
        assert!(inside(&args("--user system:masters")).is_err());
    }
}
