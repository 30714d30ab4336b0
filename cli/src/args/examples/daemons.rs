//! Examples of `tombolo doctor` and `tombolo server`.

pub(in crate::args) const SERVER: &str = "\
Examples:
  tombolo server backup --out backup.redb
  tombolo server restore backup.redb";

pub(in crate::args) const SERVER_BACKUP: &str = "\
Examples:
  On the server's machine:
  tombolo server backup --out backup.redb
  From a server in a pod, by standard output:
  kubectl --namespace tombolo-system exec deploy/tunnel-server -- \\
      tombolo server backup --out - > backup.redb
  From another machine, as an operator:
  tombolo server backup --out backup.redb \\
      --server https://gateway.example:9443 --ca pki/server-ca.crt \\
      --cert pki/olga-admin.crt --key pki/olga-admin.key";

pub(in crate::args) const SERVER_RESTORE: &str = "\
Examples:
  On a new machine, before the first start of its server:
  tombolo server restore backup.redb
  From standard input:
  tombolo server restore - < backup.redb
  In place of the records that are there:
  systemctl stop tunnel-server
  tombolo server restore backup.redb --replace
  systemctl start tunnel-server";

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
