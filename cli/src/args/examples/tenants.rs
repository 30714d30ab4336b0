//! Examples of `tombolo tenant` and of its subcommands.

pub(in crate::args) const TENANT: &str = "\
Examples:
  kubectl label node master-1 master-2 master-3 \\
      tombolo.dev/control-planes=true
  tombolo tenant create acme
  tombolo tenant join-command acme";

pub(in crate::args) const TENANT_CREATE: &str = "\
Examples:
  tombolo tenant create acme
  With ports, networks and volumes of your choice:
  tombolo tenant create acme --port-base 16450 \\
      --service-network 10.98.0.0/16 --pod-network 10.244.0.0/16 \\
      --storage-class local-path
  A site with one machine:
  tombolo tenant create acme --members 1
  With the CAs of a backup, after the host cluster was lost:
  tombolo tenant create acme --roots tenant-roots.yaml
  For GitOps; treat the files as passwords:
  tombolo tenant create acme --output acme";

pub(in crate::args) const TENANT_BOOTSTRAP: &str = "\
Examples:
  tombolo tenant bootstrap acme
  From a machine of the site:
  tombolo tenant bootstrap acme --server https://192.168.1.11:16440";

pub(in crate::args) const TENANT_LIST: &str = "\
Examples:
  tombolo tenant list
  tombolo tenant list --output json";

pub(in crate::args) const TENANT_STATUS: &str = "\
Examples:
  tombolo tenant status acme
  tombolo tenant status acme --output json";

pub(in crate::args) const TENANT_KUBECONFIG: &str = "\
Examples:
  tombolo tenant kubeconfig acme --output acme.conf
  For one person and one day:
  tombolo tenant kubeconfig acme --user olga --validity 1d \\
      --output olga.conf
  By another address:
  tombolo tenant kubeconfig acme --server https://acme.example:16440";

pub(in crate::args) const TENANT_JOIN_COMMAND: &str = "\
Examples:
  tombolo tenant join-command acme
  For kubeadm, and for ten minutes:
  tombolo tenant join-command acme --only-lb --ttl 10m";

pub(in crate::args) const TENANT_REGISTER: &str = "\
Examples:
  On the tunnel-server's machine, for the administrators of a tenant:
  tombolo tenant register acme \\
      --group tombolo:admins --cluster-role cluster-admin
  From another machine, with an image in your registry:
  tombolo tenant register acme --user alice --values image.yaml \\
      --server https://gateway.example:8445 --ca server-ca.crt \\
      --cert olga.crt --key olga.key";

pub(in crate::args) const TENANT_UPGRADE: &str = "\
Examples:
  tombolo tenant upgrade acme --kubernetes-version v1.37.2
  With images by digest:
  tombolo tenant upgrade acme --kubernetes-version v1.37.2 \\
      --values images.yaml";

pub(in crate::args) const TENANT_CERTIFICATES: &str = "\
Examples:
  tombolo tenant certificates renew acme
  tombolo tenant certificates rotate-ca acme --step trust";

pub(in crate::args) const TENANT_CERTIFICATES_RENEW: &str = "\
Examples:
  tombolo tenant certificates renew acme";

pub(in crate::args) const TENANT_CERTIFICATES_ROTATE_CA: &str = "\
Examples:
  tombolo tenant certificates rotate-ca acme --step trust
  Then, on every worker:
  tombolo node rotate-ca
  The same after the next step, and then the last one:
  tombolo tenant certificates rotate-ca acme --step issue
  tombolo tenant certificates rotate-ca acme --step finish";

pub(in crate::args) const TENANT_DELETE: &str = "\
Examples:
  tombolo tenant delete acme
  With everything that it has stored, and without a question:
  tombolo tenant delete acme --purge --yes acme";
