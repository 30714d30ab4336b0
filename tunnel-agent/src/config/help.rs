//! The text of `--help` after the flags.

pub(super) const AFTER: &str = "\
Examples:
  With /etc/tombolo/agent.yaml, in a pod of the cluster:
  tunnel-agent
  Beside the cluster, with a kubeconfig, and more to read in the log:
  tunnel-agent --config agent.yaml --kubeconfig admin.conf --log-level debug
  One file for many clusters, and what differs in the environment:
  TOMBOLO_AGENT_CLUSTER=edge-1 tunnel-agent --config agent.yaml

The least that a configuration file has to contain:
  apiVersion: tombolo.dev/v1alpha1
  kind: AgentConfig
  cluster: edge-1
  servers: [\"gateway.example:8443\"]
  tls:
    certificateFile: edge-1-agent.crt
    keyFile: edge-1-agent.key
    serverCAFile: server-ca.crt

Or, in place of tls, with a token of `tombolo token create --cluster edge-1`:
  enrollment:
    server: gateway.example:8444
    pin: sha256:...
    tokenFile: token

At most 600 requests are at the API server at once. 4096 more wait for up to 10 s:
`limits: { requests: 600, queue: 4096, queueSeconds: 10 }`.

With enrollment.serviceAccountTokenFile, too, further pods of the cluster need no
token of their own. It is a projected token of the pod with the audience
tombolo:TRUST-DOMAIN:CLUSTER and expirationSeconds 600.

`tombolo ca issue agent --cluster edge-1` makes certificate and key. Outside of a
pod, apiServer.kubeconfig or --kubeconfig names the API server. A flag wins over
its variable, which wins over the file. After the first SIGTERM or SIGINT running
requests finish, a second one ends them at once.

Exit codes:
  0  stopped by SIGTERM or SIGINT, and all running requests have finished
  1  cannot go on: a port is in use, for example
  2  flags, environment or configuration file are wrong
  3  the grace period passed, and running requests were cut off
  4  a second signal cut off running requests
";
