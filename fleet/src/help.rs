//! The text of `--help` after the flags.

pub(super) const AFTER: &str = "\
Examples:
  In a pod of the host cluster, with a ServiceAccount token for the gateway:
  fleet-controller --gateway https://gateway.example:8443 \\
      --gateway-ca /etc/tombolo/ca.crt --token-file /var/run/tombolo/token
  From a terminal, with a client certificate:
  fleet-controller --gateway https://gateway.example:8443 \\
      --gateway-ca ca.crt --client-certificate fleet.crt \\
      --client-key fleet.key --kubeconfig host.conf --namespace fleet

The host cluster needs the CustomResourceDefinition of ClusterProfile
(kubernetes-sigs/cluster-inventory-api, v0.1.0 or newer of v1alpha1). A flag wins over
its variable.

Exit codes:
  0  stopped by SIGTERM or SIGINT
  1  cannot go on: a port is in use, for example
  2  flags or environment are wrong
  4  a second signal aborted it
";
