//! The arguments of `tombolo tenant`: control planes of other clusters as pods of a host cluster.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use policy::Network;
use proto::ClusterId;

use super::admin_endpoint::AdminServerArgs;
use super::examples;
use crate::names::{KubernetesVersion, PortBlock, RotationStep, Validity, WaitTime, host_and_port};

#[derive(Subcommand)]
pub(crate) enum TenantCommand {
    /// Make a control plane for a cluster of its own on the labelled nodes of the host cluster
    ///
    /// Makes the namespace NAME and its Services, then CAs and certificates with their addresses, and installs the chart
    /// tenant-control-plane, which this program has in it. That is an API server on each node with the label
    /// tombolo.dev/control-planes=true, controllers, a scheduler, and two etcds. Then it waits, and makes inside of the tenant what
    /// administrators and workers need. It uses your own kubectl and helm, so every login works.
    ///
    /// Refuses what cannot work before it writes anything. If it is interrupted, run it again: CAs are kept and never made anew.
    #[command(after_long_help = examples::TENANT_CREATE)]
    Create(TenantCreate),
    /// Make inside of a tenant what administrators and workers need to come in
    ///
    /// `tombolo tenant create` ends with this. Run it yourself after GitOps has installed the files of `tombolo tenant create --output`, or to
    /// repair these objects: RBAC of administrators, of API servers at kubelets and of machines that join, and kubeadm's ConfigMaps
    /// cluster-info, kubeadm-config and kubelet-config. Changes of others to kubelet-config are overwritten.
    #[command(after_long_help = examples::TENANT_BOOTSTRAP)]
    Bootstrap(TenantReached),
    /// List the tenants of the host cluster
    #[command(after_long_help = examples::TENANT_LIST)]
    List(TenantList),
    /// Show the parts of a tenant's control plane, its ports and networks, and the ends of its certificates
    ///
    /// The exit code is 1 if a part is not ready.
    #[command(after_long_help = examples::TENANT_STATUS)]
    Status(TenantStatus),
    /// Write a kubeconfig of an administrator of a tenant
    ///
    /// Issues a certificate of the group tombolo:tenant-admins, which a ClusterRoleBinding of the tenant makes cluster-admin. Delete the
    /// binding to revoke all of them. The kubeconfig has a context for each node that carries an API server, for use at the site. For the way
    /// through the gateway use `tombolo kubeconfig`, and for the control-plane address from elsewhere `tombolo proxy` with this file.
    #[command(after_long_help = examples::TENANT_KUBECONFIG)]
    Kubeconfig(TenantKubeconfig),
    /// Print the command by which a machine joins a tenant as a worker
    ///
    /// As `tombolo node join-command` for the tenant: it makes a bootstrap token there, and names the API servers at all nodes that carry
    /// one. Everybody who has the command can join a machine until the token ends, so treat it as a password.
    #[command(after_long_help = examples::TENANT_JOIN_COMMAND)]
    JoinCommand(TenantJoinCommand),
    /// Make a tenant a cluster of a tunnel-server, so that it is reached from the cloud
    ///
    /// Creates the cluster NAME at the tunnel-server's admin API, gives its agents their rights inside of the tenant, and installs them by
    /// the chart tombolo-agent as pods of the host cluster. The agents enroll by themselves: the host cluster vouches for their pods. Run it
    /// again after a change of the callers, or of the nodes that carry control planes.
    #[command(after_long_help = examples::TENANT_REGISTER)]
    Register(TenantRegister),
    /// Upgrade a tenant to another release of Kubernetes: the API servers first, then everything else
    ///
    /// Refuses a downgrade, and one that leaves out a minor release. Workers stay as they are: kubelet may be up to three minor releases older.
    #[command(after_long_help = examples::TENANT_UPGRADE)]
    Upgrade(TenantUpgrade),
    /// Renew the certificates of a tenant's control plane, or replace its CAs
    #[command(subcommand, after_long_help = examples::TENANT_CERTIFICATES)]
    Certificates(TenantCertificatesCommand),
    /// Remove a tenant's control plane; its volumes and CAs stay unless --purge is given
    ///
    /// Without --purge the namespace stays with its Services, CAs and volumes, and `tombolo tenant create NAME` brings the tenant back as it
    /// was. With --purge everything is gone, but for volumes of a StorageClass that retains them.
    #[command(after_long_help = examples::TENANT_DELETE)]
    Delete(TenantDelete),
}

#[derive(Subcommand)]
pub(crate) enum TenantCertificatesCommand {
    /// Issue all certificates anew, and restart the pods one after the other
    ///
    /// Certificates hold for a year, and the CAs for ten years. The CAs stay. The new certificates also have the addresses of nodes that have
    /// got the label since.
    #[command(after_long_help = examples::TENANT_CERTIFICATES_RENEW)]
    Renew(TenantRenew),
    /// Replace all CAs and the ServiceAccount key of a tenant in three steps, in which nothing fails
    ///
    /// Use it before the CAs end, or if one of their keys may be in other hands. Each step is one command, restarts the pods one after the
    /// other, and says what has to be done before the next one:
    ///
    /// trust   makes the next CAs, and everything of the control plane trusts both; then run `tombolo node rotate-ca` on every worker, and
    /// write the kubeconfigs of administrators again
    ///
    /// issue   issues everything by the next CAs, and signs tokens with the next key; the old ones are still taken; then do the same again
    ///
    /// finish  takes nothing any more that the old ones have issued
    ///
    /// A step is refused before its predecessor is complete, or if it would cut off a worker, a pod or a token that can be found. An
    /// interrupted step goes on if you run it again. `tombolo tenant status` shows how far it is.
    #[command(after_long_help = examples::TENANT_CERTIFICATES_ROTATE_CA)]
    RotateCa(TenantRotateCa),
}

/// The host cluster, as kubectl and helm find it.
#[derive(Args)]
pub(crate) struct HostCluster {
    /// The kubeconfig of the host cluster [default: kubectl's]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of that kubeconfig [default: its current-context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// A tenant, and the URL of its API server.
#[derive(Args)]
pub(crate) struct TenantReached {
    /// The name of the tenant
    #[arg(value_name = "NAME")]
    pub(crate) name: ClusterId,
    /// The URL of the tenant's API server from here [default: by kubectl port-forward]
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    #[command(flatten)]
    pub(crate) host: HostCluster,
}

#[derive(Args)]
pub(crate) struct TenantCreate {
    #[command(flatten)]
    pub(crate) tenant: TenantReached,
    /// The members of each etcd: 3, or 1 for a site without high availability [default: 3]
    #[arg(long, value_name = "NUMBER", value_parser = members)]
    pub(crate) members: Option<u16>,
    /// The first of the tenant's ten ports on each node [default: the first free block from 16440]
    #[arg(long, value_name = "PORT")]
    pub(crate) port_base: Option<PortBlock>,
    /// The network of the tenant's Services [default: the first free one of 10.97.0.0/16 and those above]
    #[arg(long, value_name = "CIDR")]
    pub(crate) service_network: Option<Network>,
    /// The network of the tenant's pods [default: the first free one of 10.245.0.0/16 and those below]
    #[arg(long, value_name = "CIDR")]
    pub(crate) pod_network: Option<Network>,
    /// The StorageClass of both etcds' volumes [default: the host cluster's]
    #[arg(long, value_name = "NAME")]
    pub(crate) storage_class: Option<String>,
    /// The release of Kubernetes [default: that of the chart]
    #[arg(long, value_name = "VERSION")]
    pub(crate) kubernetes_version: Option<KubernetesVersion>,
    /// Values of the chart, such as images by digest; repeat for more, the last one counts
    #[arg(long = "values", value_name = "FILE")]
    pub(crate) values: Vec<PathBuf>,
    /// The chart tenant-control-plane [default: the one in this program]
    #[arg(long, value_name = "DIR")]
    pub(crate) chart: Option<PathBuf>,
    /// A backup of the Secret tenant-roots, whose CAs this tenant takes, in place of new ones
    #[arg(long, value_name = "FILE")]
    pub(crate) roots: Option<PathBuf>,
    /// Write chart, values and Secrets to this folder for GitOps, and install nothing. The Secrets have keys in plain text
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// The longest wait for the control plane
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub(crate) timeout: WaitTime,
}

#[derive(Args)]
pub(crate) struct TenantList {
    #[command(flatten)]
    pub(crate) host: HostCluster,
    /// The form of the output
    #[arg(long, short, value_name = "FORM")]
    pub(crate) output: Option<TenantOutput>,
}

#[derive(Args)]
pub(crate) struct TenantStatus {
    /// The name of the tenant
    #[arg(value_name = "NAME")]
    pub(crate) name: ClusterId,
    #[command(flatten)]
    pub(crate) host: HostCluster,
    /// The form of the output
    #[arg(long, short, value_name = "FORM")]
    pub(crate) output: Option<TenantOutput>,
}

/// The form in which tenants are printed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TenantOutput {
    Json,
    Yaml,
}

#[derive(Args)]
pub(crate) struct TenantKubeconfig {
    /// The name of the tenant
    #[arg(value_name = "NAME")]
    pub(crate) name: ClusterId,
    #[command(flatten)]
    pub(crate) host: HostCluster,
    /// The URL of the API server [default: a context for each node that carries one]
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// The name of the administrator in the certificate
    #[arg(long, value_name = "NAME", default_value = "admin")]
    pub(crate) user: String,
    /// The time for which the certificate is valid
    #[arg(long, value_name = "TIME", default_value = "365d")]
    pub(crate) validity: Validity,
    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args)]
pub(crate) struct TenantJoinCommand {
    #[command(flatten)]
    pub(crate) tenant: TenantReached,
    /// Print the command for kubeadm's own join, through the load balancer
    #[arg(long)]
    pub(crate) only_lb: bool,
    /// The time in which a machine can join with the token
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub(crate) ttl: Validity,
}

#[derive(Args)]
pub(crate) struct TenantRegister {
    /// The name of the tenant, and of the cluster
    #[arg(value_name = "NAME")]
    pub(crate) name: ClusterId,
    /// A user that the agents may impersonate; repeat for more
    #[arg(long = "user", value_name = "USER", required_unless_present = "groups")]
    pub(crate) users: Vec<String>,
    /// A group that the agents may impersonate; repeat for more
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// A ClusterRole of the tenant to which the groups are bound, or the users if no group is given
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_role: Option<String>,
    /// The server's address for agents; repeat for more [default: the addresses that the server tells]
    #[arg(long = "servers", value_name = "HOST:PORT", value_parser = host_and_port)]
    pub(crate) servers: Vec<String>,
    /// Values of the chart, such as the image of the agents; repeat for more, the last one counts
    #[arg(long = "values", value_name = "FILE")]
    pub(crate) values: Vec<PathBuf>,
    /// The chart tombolo-agent [default: the one in this program]
    #[arg(long, value_name = "DIR")]
    pub(crate) chart: Option<PathBuf>,
    /// The time in which the first agent can enroll
    #[arg(long, value_name = "TIME", default_value = "15m")]
    pub(crate) token_ttl: Validity,
    /// The longest wait for the agents
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pub(crate) timeout: WaitTime,
    #[command(flatten)]
    pub(crate) host: HostCluster,
    #[command(flatten)]
    pub(crate) admin: AdminServerArgs,
}

#[derive(Args)]
pub(crate) struct TenantUpgrade {
    #[command(flatten)]
    pub(crate) tenant: TenantReached,
    /// The release of Kubernetes to which the tenant is upgraded
    #[arg(long, value_name = "VERSION")]
    pub(crate) kubernetes_version: KubernetesVersion,
    /// Values of the chart, such as images by digest; repeat for more, the last one counts
    #[arg(long = "values", value_name = "FILE")]
    pub(crate) values: Vec<PathBuf>,
    /// The chart tenant-control-plane [default: the one in this program]
    #[arg(long, value_name = "DIR")]
    pub(crate) chart: Option<PathBuf>,
    /// The longest wait for each of both steps
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub(crate) timeout: WaitTime,
}

#[derive(Args)]
pub(crate) struct TenantRenew {
    /// The name of the tenant
    #[arg(value_name = "NAME")]
    pub(crate) name: ClusterId,
    #[command(flatten)]
    pub(crate) host: HostCluster,
    /// The chart tenant-control-plane [default: the one in this program]
    #[arg(long, value_name = "DIR")]
    pub(crate) chart: Option<PathBuf>,
    /// The longest wait for the restart of all pods
    #[arg(long, value_name = "TIME", default_value = "15m")]
    pub(crate) timeout: WaitTime,
}

#[derive(Args)]
pub(crate) struct TenantRotateCa {
    #[command(flatten)]
    pub(crate) tenant: TenantReached,
    /// The step to take now or to go on with
    #[arg(long, value_name = "STEP")]
    pub(crate) step: RotationStep,
    /// Go on although workers, pods or tokens are cut off. Without it they are listed, and nothing is changed
    #[arg(long)]
    pub(crate) leave_behind: bool,
    /// The name of the tenant once more, in place of the question about kubeconfigs outside of the tenant
    #[arg(long, value_name = "NAME")]
    pub(crate) yes: Option<ClusterId>,
    /// The chart tenant-control-plane [default: the one in this program]
    #[arg(long, value_name = "DIR")]
    pub(crate) chart: Option<PathBuf>,
    /// The longest wait for the restart of all pods
    #[arg(long, value_name = "TIME", default_value = "15m")]
    pub(crate) timeout: WaitTime,
}

#[derive(Args)]
pub(crate) struct TenantDelete {
    /// The name of the tenant
    #[arg(value_name = "NAME")]
    pub(crate) name: ClusterId,
    #[command(flatten)]
    pub(crate) host: HostCluster,
    /// Also delete the namespace with its CAs and volumes, which nobody can bring back
    #[arg(long)]
    pub(crate) purge: bool,
    /// The name of the tenant once more, in place of the question for it
    #[arg(long, value_name = "NAME")]
    pub(crate) yes: Option<ClusterId>,
}

/// Parses the number of members of an etcd.
fn members(text: &str) -> Result<u16, NotAMemberCount> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        _ => Err(NotAMemberCount),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("use 3 or 1, because two members are no more available than one")]
struct NotAMemberCount;
