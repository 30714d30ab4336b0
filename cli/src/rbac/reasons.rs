//! The reason of each rule, which becomes the comment before it.

pub(super) const NAMED: &str = "\
Each request is sent in its caller's name, so that the cluster's own rules and audit log see the caller and not the
agent. These are the names of impersonation.users in the agent's file, and nobody else's: somebody who steals the
agent's token can impersonate them.";
pub(super) const GROUPS: &str = "The same for impersonation.groups.";
pub(super) const OPEN: &str = "\
Each request is sent in its caller's name, so that the cluster's own rules and audit log see the caller and not the
agent. RBAC knows no patterns, so this lets the agent impersonate anybody, system:masters too. Only the agent's own
file limits it, and somebody who steals its token has the rights of cluster-admin. Give nobody else the right to create pods or
tokens in this namespace.";
pub(super) const CONSTRAINED: &str = "\
Each request is sent in its caller's name, so that the cluster's own rules and audit log see the caller and not the
agent. These are the names of impersonation.users in the agent's file, by constrained impersonation (KEP-5284; on by
default from Kubernetes 1.36 on), by which nobody can be a node, a service account or in system:masters.";
pub(super) const ACCOUNTS: &str = "\
The service accounts of this namespace that impersonation.systemNames in the agent's file lists.";
pub(super) const ACTS: &str = "\
What may be done under those names, within their own rights. Each verb is written out, because '*' would include verbs
of the agent itself.";
pub(super) const ACCOUNTS_ACTS: &str = "The same under the names of service accounts.";
pub(super) const SLICE: &str = "\
The slice \"kubernetes\" lists the addresses of the cluster's API servers, which the agent reports to the server. It may
list this object by its name, and no other.";
pub(super) const CLUSTER_INFO: &str = "\
The name or address by which kubeadm lets nodes find the control plane, as in an admin.conf. The agent reports it to the
server. A cluster that kubeadm did not make has none.";
pub(super) const KUBEADM_CONFIG: &str = "\
The same from kubeadm's configuration, controlPlaneEndpoint. There is no secret in this object.";
pub(super) const TENANTS: &str = "\
The Pods or Services in which API servers of tenants are found, by tenants in the agent's file. RBAC knows no labels, so
this reads all of them in the namespace, and no Secrets.";
pub(super) const SERVICES: &str = "\
The Services that targets in the agent's file names, to which it connects callers. It may list each of them
by its name, and no other.";
pub(super) const SERVICE_SLICES: &str = "\
The EndpointSlices of those Services. RBAC knows no labels and the slices' names are not known in advance, so this reads
every EndpointSlice of the namespace: addresses of pods, and nothing else.";
pub(super) const SECRET: &str = "\
The Secret with which the agent enrolls: the pin of its server's CA, and its first token.
Further pods prove themselves by the issuer's keys at /openid/v1/jwks, which every ServiceAccount may read by the
ClusterRole system:service-account-issuer-discovery. If your cluster has unbound that role, bind it to this account.";
