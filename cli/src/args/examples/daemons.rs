//! Examples of `tombolo doctor` and `tombolo server`.

pub(in crate::args) const SERVER: &str = "\
Examples:
  tombolo server list
  tombolo server export --out records.jsonl
  tombolo server import records.jsonl";

pub(in crate::args) const SERVER_LIST: &str = "\
Examples:
  tombolo server list
  tombolo server list --output wide
  The worst first:
  tombolo server list --sort-by state
  From another machine:
  tombolo server list --server https://gateway.example:9443 \\
      --ca pki/server-ca.crt --cert pki/olga-admin.crt \\
      --key pki/olga-admin.key";

pub(in crate::args) const SERVER_REMOVE: &str = "\
Examples:
  tombolo server remove west";

pub(in crate::args) const SERVER_EXPORT: &str = "\
Examples:
  On the server's machine:
  tombolo server export --out records.jsonl
  From a server in a pod, by standard output:
  kubectl --namespace tombolo-system exec deploy/tunnel-server -- \\
      tombolo server export --out - > records.jsonl
  From another machine, as an operator:
  tombolo server export --out records.jsonl \\
      --server https://gateway.example:9443 --ca pki/server-ca.crt \\
      --cert pki/olga-admin.crt --key pki/olga-admin.key";

pub(in crate::args) const SERVER_IMPORT: &str = "\
Examples:
  Into the store that the configuration names, etcd or a file:
  tombolo server import records.jsonl --config server.yaml
  Only look at what would be written:
  tombolo server import records.jsonl --config server.yaml --dry-run
  Into the state directory of one server, from standard input:
  tombolo server import - --state-dir state < records.jsonl
  From one server into etcd, if it has not run since the export:
  tombolo server import records.jsonl --config server.yaml \\
      --keep-tokens";

pub(in crate::args) const DOCTOR: &str = "\
Examples:
  tombolo doctor
  tombolo doctor --kubeconfig kubeconfig --context edge-1
  tombolo doctor server --config /etc/tombolo/server.yaml
  tombolo doctor agent --config /etc/tombolo/agent.yaml
  For programs (failed, exitCode, checks):
  tombolo doctor --output json

Exit codes:
  0  no check failed; there may be warnings
  1  a check failed
  2  nothing to check: wrong usage, or a file that cannot be read";

pub(in crate::args) const DOCTOR_SERVER: &str = "\
Examples:
  tombolo doctor server
  tombolo doctor server --config server.yaml --output json
  The daemon's own look at its whole configuration:
  tunnel-server --config server.yaml --dry-run

Exit codes:
  0  no check failed; there may be warnings
  1  a check failed
  2  nothing to check: wrong usage, or a file that cannot be read";

pub(in crate::args) const NODE: &str = "\
Examples:
  On an administrator's machine:
  tombolo node join-command --kubeconfig admin.conf
  On the new worker the command that was printed, and to undo it:
  tombolo node reset";

pub(in crate::args) const NODE_JOIN_COMMAND: &str = "\
Examples:
  tombolo node join-command --kubeconfig admin.conf
  tombolo node join-command --ttl 15m --api-server 192.168.1.11:6443
  With kubeadm's own join:
  tombolo node join-command --only-lb";

pub(in crate::args) const NODE_JOIN: &str = "\
Examples:
  tombolo node join --token-file token --ca-hash sha256:HASH \\
      --api-server 192.168.1.11:6443 --api-server 192.168.1.12:6443
  All files that it would write:
  tombolo node join --dry-run --token-file token \\
      --ca-hash sha256:HASH --api-server 192.168.1.11:6443
  The load balancer alone; kubeadm does the rest:
  tombolo node join --only-lb --token-file token \\
      --ca-hash sha256:HASH --api-server 192.168.1.11:6443";

pub(in crate::args) const NODE_ROTATE_CA: &str = "\
Examples:
  tombolo node rotate-ca";

pub(in crate::args) const NODE_RESET: &str = "\
Examples:
  tombolo node reset
  tombolo node reset --root image";

pub(in crate::args) const DOCTOR_NODE: &str = "\
Examples:
  tombolo doctor node
  tombolo doctor node --config node-lb.yaml --output json

Exit codes:
  0  no check failed; there may be warnings
  1  a check failed
  2  nothing to check: wrong usage, or a file that cannot be read";

pub(in crate::args) const DOCTOR_AGENT: &str = "\
Examples:
  tombolo doctor agent
  tombolo doctor agent --config agent.yaml --output json
  With the flags of an agent that `tombolo token create` set up:
  tombolo doctor agent --config agent.yaml --kubeconfig ~/.kube/config

Exit codes:
  0  no check failed; there may be warnings
  1  a check failed
  2  nothing to check: wrong usage, or a file that cannot be read";
