//! Why each rule is there, as a comment before it.

pub(super) const NAMED: &str = "\
Each request is sent in its caller's name, so that the cluster's own rules and audit log see the caller and not the
agent. These are the names of impersonation.users in the agent's file, and nobody else's: whoever steals the agent's
token can be one of them.";
pub(super) const GROUPS: &str = "The same for impersonation.groups.";
pub(super) const OPEN: &str = "\
Each request is sent in its caller's name, so that the cluster's own rules and audit log see the caller and not the
agent. RBAC knows no patterns, so that this lets the agent be anybody, system:masters too: only the agent's own file
limits it, and whoever steals its token is as good as cluster-admin. Give nobody else the right to create pods or
tokens in this namespace.";
pub(super) const CONSTRAINED: &str = "\
Each request is sent in its caller's name, so that the cluster's own rules and audit log see the caller and not the
agent. These are the names of impersonation.users in the agent's file, by constrained impersonation (KEP-5284; on by
default from Kubernetes 1.36 on), by which nobody can be a node, a service account or in system:masters.";
pub(super) const ACCOUNTS: &str = "\
The service accounts of this namespace that impersonation.systemNames in the agent's file lists.";
pub(super) const ACTS: &str = "\
What may be done under those names, as far as their own rights go. Each verb is written out, since '*' would be verbs
of the agent's own, too.";
pub(super) const ACCOUNTS_ACTS: &str = "The same under the names of service accounts.";
pub(super) const SLICE: &str = "\
The slice \"kubernetes\" lists the addresses of the cluster's API servers, which the agent reports to the server. A list
that asks for this name alone is allowed, and no other.";
pub(super) const CLUSTER_INFO: &str = "\
By which name or address kubeadm lets nodes find the control plane: what stands in an admin.conf, and is reported, too.
Where kubeadm did not make the cluster, there is none.";
pub(super) const KUBEADM_CONFIG: &str = "\
The same as kubeadm was told it, controlPlaneEndpoint. There is no secret in this object.";
pub(super) const TENANTS: &str = "\
Where API servers of tenants are, as tenants in the agent's file says. RBAC knows no labels, so that this reads every one
of these in the namespace, and the secrets of none.";
pub(super) const SERVICES: &str = "\
The Services that targets in the agent's file names, to which it connects callers. A list that asks for one of these names
alone is allowed, and no other.";
pub(super) const SERVICE_SLICES: &str = "\
Where those lead. RBAC knows no labels and nobody knows the slices' names, so that this reads every EndpointSlice of the
namespace: addresses of pods, and nothing else.";
pub(super) const SECRET: &str = "\
The Secret with which the agent begins: the pin of its server's CA, and its first token.
By what further pods prove themselves, the issuer's keys at /openid/v1/jwks, every ServiceAccount may read already, by
the ClusterRole system:service-account-issuer-discovery; where somebody has unbound that, bind it to this account.";
