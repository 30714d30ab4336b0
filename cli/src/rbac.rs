//! `tombolo rbac`: the RBAC of an agent, generated from its own configuration, with a reason for each rule.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use daemon::config::LoadError;
use policy::ServiceName;
use proto::AllowList;
use proto::allow_list::AllowListError;
use serde::Deserialize;

use crate::args::{Profile, RbacArgs};

mod reasons;
mod yaml;

use yaml::{Role, Rules};

/// The prefix of a service account's user name. Its namespace and its own name follow.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The prefix of a node's user name.
const NODE: &str = "system:node:";

/// The keys of the agent's configuration that RBAC depends on. The agent itself refuses unknown keys.
#[derive(Debug, Deserialize)]
struct RbacAgentConfig {
    #[serde(default)]
    impersonation: RbacImpersonation,
    #[serde(default)]
    advertise: Vec<String>,
    #[serde(default)]
    targets: Vec<String>,
    #[serde(default)]
    tenants: Vec<Tenants>,
}

/// The Pods or Services among which API servers of tenants are found.
#[derive(Debug, Deserialize)]
struct Tenants {
    kind: TenantKind,
    namespace: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
enum TenantKind {
    Pod,
    Service,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RbacImpersonation {
    users: Option<Vec<String>>,
    groups: Option<Vec<String>>,
    system_names: Option<Vec<String>>,
}

/// The Services that the agent dials by name, grouped by namespace.
#[derive(Debug, Default)]
struct Services(BTreeMap<String, BTreeSet<String>>);

/// The error if no manifest was generated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RbacError {
    #[error(transparent)]
    Config(#[from] LoadError),
    #[error("{0}: impersonation.{1}")]
    AllowList(PathBuf, AllowListError),
    #[error(
        "{path}: impersonation.{list} has the pattern {pattern:?}, and RBAC knows no patterns: list the names in full, or \
         choose --profile open, by which the agent's token is worth as much as cluster-admin"
    )]
    Pattern { path: PathBuf, list: &'static str, pattern: String },
    #[error(
        "{0}: impersonation.systemNames has the node {1}, which no rule of the profile constrained can name: leave it out"
    )]
    Node(PathBuf, String),
}

/// The names of an allow-list, grouped by the RBAC resource that stands for them.
#[derive(Debug, Default)]
struct Names<'a> {
    users: Vec<&'a str>,
    groups: Vec<&'a str>,
    /// Service account names, grouped by namespace.
    service_accounts: BTreeMap<&'a str, Vec<&'a str>>,
}

/// Generates the manifest for an agent with this configuration.
pub(crate) fn manifest(args: &RbacArgs) -> Result<String, RbacError> {
    let path = &args.agent_config;
    let RbacAgentConfig { impersonation, advertise, targets, tenants } =
        daemon::config::load(path, "AgentConfig")?;
    let RbacImpersonation { users, groups, system_names } = impersonation;
    let list = AllowList::new(users, groups, system_names)
        .map_err(|fault| RbacError::AllowList(path.clone(), fault))?;
    if args.profile != Profile::Open {
        for (name, entries) in [("users", list.users()), ("groups", list.groups())] {
            if let Some(pattern) = entries.iter().find(|entry| entry.contains('*')) {
                let (path, pattern) = (path.clone(), pattern.clone());
                return Err(RbacError::Pattern { path, list: name, pattern });
            }
        }
    }
    let node = list.system_names().iter().find(|name| name.starts_with(NODE));
    if let (Profile::Constrained, Some(node)) = (args.profile, node) {
        return Err(RbacError::Node(path.clone(), node.clone()));
    }
    let services = Services::by_namespace(ServiceName::among(advertise.iter().chain(&targets)));
    Ok(yaml::manifest(
        args.profile,
        &roles(args.profile, &Names::from_allow_list(&list), &tenants, &services),
    ))
}

/// Generates the manifest for an agent that may impersonate these callers, by name each, and dials nothing by name.
pub(crate) fn manifest_for(callers: &AllowList) -> String {
    let names = Names::from_allow_list(callers);
    yaml::manifest(Profile::Named, &roles(Profile::Named, &names, &[], &Services::default()))
}

impl<'a> Names<'a> {
    fn from_allow_list(list: &'a AllowList) -> Self {
        let texts = |names: &'a [String]| names.iter().map(String::as_str).collect();
        let mut names = Self {
            users: texts(list.users()),
            groups: texts(list.groups()),
            service_accounts: BTreeMap::new(),
        };
        for name in list.system_names() {
            match name.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.split_once(':')) {
                Some((namespace, account)) => {
                    names.service_accounts.entry(namespace).or_default().push(account);
                }
                // The list does not tell users from groups, and the agent allows both.
                None => {
                    names.users.push(name);
                    names.groups.push(name);
                }
            }
        }
        names
    }
}

impl Services {
    fn by_namespace(all: BTreeSet<ServiceName>) -> Self {
        let mut services = Self::default();
        for service in all {
            let names = services.0.entry(service.namespace().to_owned()).or_default();
            names.insert(service.name().to_owned());
        }
        services
    }

    fn roles(&self) -> impl Iterator<Item = Role<'_>> {
        self.0.iter().map(|(namespace, names)| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut rules = Rules::default();
            rules.add(reasons::SERVICES, "\"\"", "services", &["list", "watch"], Some(&names));
            rules.add(
                reasons::SERVICE_SLICES,
                "discovery.k8s.io",
                "endpointslices",
                &["list", "watch"],
                None,
            );
            Role { name: "tunnel-agent-services", namespace: Some(namespace.as_str()), rules }
        })
    }
}

/// All roles of the agent.
fn roles<'a>(
    profile: Profile,
    names: &Names<'a>,
    tenants: &'a [Tenants],
    services: &'a Services,
) -> Vec<Role<'a>> {
    let impersonation =
        Role { name: "tunnel-agent", namespace: None, rules: impersonation_rules(profile, names) };
    let accounts = names.service_accounts.iter().map(|(namespace, accounts)| Role {
        name: "tunnel-agent-accounts",
        namespace: Some(*namespace),
        rules: account_rules(profile, accounts),
    });
    let read = [
        (
            reasons::SLICE,
            "discovery.k8s.io",
            "endpointslices",
            &["get", "list", "watch"][..],
            "kubernetes",
            "default",
        ),
        (reasons::CLUSTER_INFO, "\"\"", "configmaps", &["get"], "cluster-info", "kube-public"),
        (reasons::KUBEADM_CONFIG, "\"\"", "configmaps", &["get"], "kubeadm-config", "kube-system"),
        (reasons::SECRET, "\"\"", "secrets", &["get"], "tunnel-agent", "tombolo"),
    ];
    let read = read.map(|(reason, group, resources, verbs, name, namespace)| {
        let mut rules = Rules::default();
        rules.add(reason, group, resources, verbs, Some(&[name]));
        Role { name: "tunnel-agent", namespace: Some(namespace), rules }
    });
    let impersonation = [impersonation].into_iter().filter(|role| !role.rules.is_empty());
    impersonation.chain(accounts).chain(read).chain(tenant_roles(tenants)).chain(services.roles()).collect()
}

/// The roles that read Pods and Services of tenants: one for each namespace, or one for all.
fn tenant_roles(tenants: &[Tenants]) -> impl Iterator<Item = Role<'_>> {
    let mut kinds: BTreeMap<Option<&str>, BTreeSet<TenantKind>> = BTreeMap::new();
    for Tenants { kind, namespace } in tenants {
        kinds.entry(namespace.as_deref()).or_default().insert(*kind);
    }
    kinds.into_iter().map(|(namespace, kinds)| {
        let kinds = kinds.into_iter().map(|kind| match kind {
            TenantKind::Pod => "pods",
            TenantKind::Service => "services",
        });
        let mut rules = Rules::default();
        let resources = kinds.collect::<Vec<_>>().join(", ");
        rules.add(reasons::TENANTS, "\"\"", &resources, &["list", "watch"], None);
        Role { name: "tunnel-agent-tenants", namespace, rules }
    })
}

/// The rules that allow impersonation in the whole cluster.
fn impersonation_rules(profile: Profile, names: &Names<'_>) -> Rules {
    let mut rules = Rules::default();
    let (users, groups) = (names.users.as_slice(), names.groups.as_slice());
    match profile {
        Profile::Named => {
            rules.add(reasons::NAMED, "\"\"", "users", &["impersonate"], Some(users));
            rules.add(reasons::GROUPS, "\"\"", "groups", &["impersonate"], Some(groups));
        }
        Profile::Open => rules.add(reasons::OPEN, "\"\"", "users, groups", &["impersonate"], None),
        Profile::Constrained => {
            let (group, verbs) = ("authentication.k8s.io", ["impersonate:user-info"]);
            rules.add(reasons::CONSTRAINED, group, "users", &verbs, Some(users));
            rules.add(reasons::GROUPS, group, "groups", &verbs, Some(groups));
            rules.add_acts(reasons::ACTS, "user-info");
            if !names.service_accounts.is_empty() {
                rules.add_acts(reasons::ACCOUNTS_ACTS, "serviceaccount");
            }
        }
    }
    rules
}

/// The rules that allow impersonation of service accounts in one namespace.
fn account_rules(profile: Profile, accounts: &[&str]) -> Rules {
    let mut rules = Rules::default();
    let (group, verb) = match profile {
        Profile::Named | Profile::Open => ("\"\"", "impersonate"),
        Profile::Constrained => ("authentication.k8s.io", "impersonate:serviceaccount"),
    };
    rules.add(reasons::ACCOUNTS, group, "serviceaccounts", &[verb], Some(accounts));
    rules
}
