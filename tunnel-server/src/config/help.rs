//! The text that `--help` prints after the flags.

pub(super) const AFTER: &str = "\
Examples:
  With /etc/tombolo/server.yaml:
  tunnel-server
  With another file, and more to read in the log:
  tunnel-server --config server.yaml --log-level debug
  Behind a balancer, in a container:
  TOMBOLO_SERVER_PROBES_LISTEN=0.0.0.0:9090 tunnel-server

The least that a configuration file has to say:
  apiVersion: tombolo.dev/v1alpha1
  kind: ServerConfig
  tls: { certificateFile: server.crt, keyFile: server.key }
  gateway:
    authentication:
      clientCertificate: { caFile: caller-ca.crt, usernamePrefix: '', groupsPrefix: '' }
  tunnel: { agentCAFile: agent-ca.crt }
  policy: { file: policy.yaml }

Certificates and CA files are read again when they change: new connections use
them, and open ones go on. A bad file changes nothing.

The policy is a file of its own, of kind Policy, and is read again when it
changes; `tombolo policy check` says what is wrong in it. What it allows another
cluster's RBAC may forbid: `policy: { file: policy.yaml, delegation: { server:
https://HOST:6443, caFile: host-ca.crt, tokenFile: host-token } }`.

Requests for a cluster that is away wait up to 15 s for its return, 256 for each
cluster, unless `parking: { limitSeconds: 30, perCluster: 100 }` says otherwise.
The header Tombolo-Park-Limit of a request shortens that: whole seconds, 0 for none.
It lengthens it too, up to `callerLimitSeconds: 120`, which is limitSeconds unless
said otherwise; never beyond the request's own timeout.

An API server has 75 s for its answer, or the request's own timeout and 15 s, unless
the first entry that matches its cluster gives it more: `clusters: [{ name: edge-a,
requestTimeoutSeconds: 300, impersonation: { users: ['tombolo:*'] } }]`, up to 3600.

A watch whose tunnel was lost waits up to 10 min for its cluster, and goes on where
it was: `watches: { resume: true, limitSeconds: 600, perCluster: 1000,
eventBytesMax: 2097152 }`; `resume: false` ends it with its tunnel.

One caller has at most 100 requests under way, asks 200 times a second, and has 250
watches of a cluster, 20 shells and 1000 connections with a certificate; a cluster has
400 requests under way, beyond which 100 wait in turn for a second: `limits: { caller:
{ requests: 100, requestsPerSecond: 200, burst: 400, watchesPerCluster: 250, upgrades:
20, connections: 1000 }, cluster: { requests: 400, watches: 1000, upgrades: 200, queue:
100, queueSeconds: 1 } }`.

One address without certificates has 200 connections, 50 new ones a second, and 20
failed logins a minute: `limits: { source: { connections: 200, newPerSecond: 50,
failedLoginsPerMinute: 20 } }`; they do not apply to client certificates.

What is asked and how it ended is written to audit/ in the state directory, or
nothing is served: `audit: { sink: file, directory: DIR, maxFileBytes: 67108864,
filesKept: 8, sync: interval }`; sink may be stdout or off, sync may be always.

Those who run the server ask it at a Unix socket, /run/tombolo/admin.sock unless
`admin: { socket: PATH }` names another; `admin: { enabled: false }` does without.
From other machines too with a certificate of a CA of its own, and a role (viewer,
enroller, operator): `admin: { tcp: { listen: 0.0.0.0:9443, adminCAFile:
admin-ca.crt, roles: [{ name: olga, role: operator }] } }`. Roles, and certificates
that are `revoked`, are read again when the file changes.

The egress of API servers elsewhere goes through here to a cluster, by HTTP CONNECT:
`egress: [{ name: host-a, cluster: edge-a, tcp: { listen: 0.0.0.0:8131,
clientCAFile: egress-ca.crt, clientName: kube-apiserver-egress } }]`, or on this
machine with `uds: { path: PATH, uids: [0] }`. Policy has to name `entry-point:host-a`.

TLS passes through untouched to the API server that its server name says, for
programs that know nothing of this gateway, from these networks alone:
`passthrough: { name: sni, listen: 0.0.0.0:6443, sources: [10.0.0.0/8], servers:
[{ name: api.edge-a.example, cluster: edge-a, target: 192.168.1.10:6443 }] }`.
Clients do not authenticate here. Policy has to name `entry-point:sni`.

Clusters' own addresses may be this host's (Linux, CAP_NET_ADMIN), so that an
admin.conf works as it is from these networks; --dry-run prints what is changed:
`vip: { entryPoints: [{ name: office-a, sources: [10.8.1.0/24], addresses: [{ listen:
192.168.1.10:6443, cluster: edge-a }] }] }`. Policy has to name `entry-point:office-a`.
With `range: { network: 100.100.0.0/24, clusters: [edge-a] }` in place of `addresses`
each cluster is given one that it keeps; `publish` beside `entryPoints` makes it a Service of
the cluster at `server`, by `caFile` and `tokenFile`.

`tombolo ca init` and `tombolo ca issue server` make the files. A flag wins over
its variable, which wins over the file. The first SIGTERM or SIGINT lets what
runs finish, a second ends it at once.

Exit codes:
  0  stopped by SIGTERM or SIGINT, and everything that ran was finished
  1  could not go on: a port in use, for example
  2  flags, environment or configuration file are wrong
  3  the grace period passed and what still ran was cut off
  4  a second signal cut off what ran
";
