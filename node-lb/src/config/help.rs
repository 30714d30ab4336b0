//! The text of `--help` after the flags.

pub(super) const AFTER: &str = "\
Examples:
  With /etc/tombolo/node-lb.yaml, on a worker:
  node-lb
  Another file, and more to read in the log:
  node-lb --config node-lb.yaml --log-level debug

The least that a configuration file has to contain:
  apiVersion: tombolo.dev/v1alpha1
  kind: NodeLBConfig
  apiServers: [\"192.168.1.11:6443\", \"192.168.1.12:6443\"]
  caFile: /etc/kubernetes/pki/ca.crt

With the kubelet's certificate it follows the cluster's own list of API servers:
  clientCertificateFile: /var/lib/kubelet/pki/kubelet-client-current.pem

Callers use https://127.0.0.1:7443 or https://[::1]:7443, and verify the API server
themselves: TLS passes through. A flag wins over its variable, which wins over the
file. After the first SIGTERM or SIGINT each connection ends in its next moment
without a byte, a second one ends all at once.

Exit codes:
  0  stopped by SIGTERM or SIGINT, and all connections have ended
  1  cannot go on: a port is in use, for example
  2  flags, environment or configuration file are wrong
  3  the grace period passed, and connections were cut off
  4  a second signal cut off connections
";
