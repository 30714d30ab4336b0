//! What `--help` says behind the flags.

pub(super) const AFTER: &str = "\
Examples:
  With /etc/tombolo/agent.yaml, in a pod of the cluster:
  tunnel-agent
  Beside the cluster, with a kubeconfig, and more to read in the log:
  tunnel-agent --config agent.yaml --kubeconfig admin.conf --log-level debug
  One file for many clusters, and what differs in the environment:
  TOMBOLO_AGENT_CLUSTER=edge-1 tunnel-agent --config agent.yaml

The least that a configuration file has to say:
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

The API server is asked 600 things at once, beyond which 4096 wait in turn for 10 s:
`limits: { requests: 600, queue: 4096, queueSeconds: 10 }`.

With serviceAccountTokenFile there too, a projected token of the pod with the
audience tombolo:TRUST-DOMAIN:CLUSTER and expirationSeconds 600, further pods of
the cluster need no token of their own.

`tombolo ca issue agent --cluster edge-1` makes certificate and key. Outside of a
pod, apiServer.kubeconfig or --kubeconfig says where the API server is. A flag
wins over its variable, which wins over the file. The first SIGTERM or SIGINT
lets what runs finish, a second ends it at once.

Exit codes:
  0  stopped by SIGTERM or SIGINT, and everything that ran was finished
  1  could not go on: a port in use, for example
  2  flags, environment or configuration file are wrong
  3  the grace period passed and what still ran was cut off
  4  a second signal cut off what ran
";
