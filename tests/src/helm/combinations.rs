//! Combinations of values that the charts document, each with what sites change.

/// Values of one chart, with a name.
#[derive(Debug, Clone, Copy)]
pub struct Combination {
    /// The name in messages of tests.
    pub name: &'static str,
    /// The name of the chart.
    pub chart: &'static str,
    /// The text of the values, as YAML.
    pub values: &'static str,
}

const SERVER: &str = "tombolo-server";
const AGENT: &str = "tombolo-agent";
const TENANT: &str = "tenant-control-plane";

/// Every value of the charts changes what at least one of them renders, but for those that the charts hand on as they are. Tests
/// say so.
pub const COMBINATIONS: &[Combination] = &[
    Combination { name: "a server with its least values", chart: SERVER, values: "host: gateway.example\n" },
    Combination { name: "an image by digest", chart: SERVER, values: SERVER_IMAGE },
    Combination { name: "every listener", chart: SERVER, values: LISTENERS },
    Combination { name: "several servers", chart: SERVER, values: SEVERAL_SERVERS },
    Combination {
        name: "the example of several servers",
        chart: SERVER,
        values: include_str!("../../../deploy/examples/etcd/values.yaml"),
    },
    Combination { name: "several servers without volumes", chart: SERVER, values: SEVERAL_WITHOUT_VOLUMES },
    Combination { name: "UDP apart", chart: SERVER, values: UDP_APART },
    Combination { name: "ports of nodes", chart: SERVER, values: NODE_PORTS },
    Combination { name: "no volume, no enrollment, no extras", chart: SERVER, values: LEAST },
    Combination { name: "existing objects", chart: SERVER, values: EXISTING },
    Combination { name: "the host cluster's tokens", chart: SERVER, values: HOST_CLUSTER },
    Combination { name: "a server's place and monitoring", chart: SERVER, values: SERVER_PLACE },
    Combination { name: "an agent with its least values", chart: AGENT, values: AGENT_LEAST },
    Combination { name: "a token and rights of callers", chart: AGENT, values: TOKEN },
    Combination { name: "a DaemonSet", chart: AGENT, values: DAEMON_SET },
    Combination { name: "certificates in place of enrollment", chart: AGENT, values: CERTIFICATES },
    Combination { name: "an agent's existing objects", chart: AGENT, values: AGENT_EXISTING },
    Combination { name: "an agent's place and monitoring", chart: AGENT, values: AGENT_PLACE },
    Combination { name: "agents of a tenant in the host cluster", chart: AGENT, values: TENANT_AGENTS },
    Combination { name: "constrained impersonation", chart: AGENT, values: CONSTRAINED },
    Combination { name: "the profile open", chart: AGENT, values: OPEN },
    Combination { name: "a tenant with its least values", chart: TENANT, values: TENANT_LEAST },
    Combination { name: "a tenant with images by digest", chart: TENANT, values: TENANT_IMAGES },
    Combination {
        name: "a tenant of one member, with everything changed",
        chart: TENANT,
        values: TENANT_CHANGED,
    },
];

/// As `tombolo tenant register` installs them.
const TENANT_AGENTS: &str = "\
config:
  cluster: acme
  servers: [gateway.example:8443]
  enrollment:
    server: gateway.example:8444
    pin: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    hostCluster: {}
  apiServer: { kubeconfig: tenant.kubeconfig, discoverEndpoints: true }
  impersonation: { users: [alice] }
enrollment: { token: a.b }
extraFiles: [{ secret: tenant-api }]
rbac: { create: false }
";

/// The least values of a tenant: three members of each etcd.
pub const TENANT_LEAST: &str = "\
tenant: acme
services:
  apiserver: 10.96.0.7
  etcdData: [10.96.0.11, 10.96.0.12, 10.96.0.13]
  etcdEvent: [10.96.0.21, 10.96.0.22, 10.96.0.23]
";

const TENANT_IMAGES: &str = "\
tenant: acme
images:
  apiserver: { digest: 'sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef' }
  controllerManager: { digest: 'sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef' }
  scheduler: { digest: 'sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef' }
  etcd: { tag: 3.7.4-0 }
services: { apiserver: 10.96.0.7, etcdData: [10.96.0.11], etcdEvent: [10.96.0.21] }
";

const TENANT_CHANGED: &str = "\
tenant: acme
images:
  apiserver: { repository: registry.example/apiserver, tag: v1.36.2 }
  controllerManager: { repository: registry.example/manager, tag: v1.36.2 }
  scheduler: { repository: registry.example/scheduler, tag: v1.36.2 }
  etcd: { repository: registry.example/etcd, digest: 'sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef' }
imagePullPolicy: Never
imagePullSecrets: [{ name: registry }]
nodeSelector: { tenants: 'yes' }
tolerations: [{ key: masters, operator: Exists }]
priorityClassName: system-cluster-critical
user: 0
portBase: 16450
services: { apiserver: 'fd00::7', etcdData: ['fd00::11'], etcdEvent: ['fd00::21'] }
serviceNetwork: 10.98.0.0/16
podNetwork: 10.244.0.0/16
etcd:
  data: { storage: 1Gi, storageClassName: quick, quotaBytes: 536870912, resources: { limits: { memory: 1Gi } } }
  event: { storage: 1Gi, storageClassName: slow, quotaBytes: 268435456, resources: { limits: { memory: 1Gi } } }
apiserver: { extraArgs: [--v=2], resources: { limits: { memory: 2Gi } } }
controllerManager: { replicas: 1, extraArgs: [--v=3], resources: { limits: { memory: 1Gi } } }
scheduler: { replicas: 1, extraArgs: [--v=4], resources: { limits: { memory: 1Gi } } }
secretsChecksum: '0123456789abcdef'
";

const SERVER_IMAGE: &str = "\
host: gateway.example
image:
  repository: registry.example/tombolo/tunnel-server
  digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
  pullPolicy: Always
imagePullSecrets: [{ name: registry }]
namespace: { create: true }
";

const LISTENERS: &str = "\
host: 192.0.2.7
config:
  tunnel: { listen: '0.0.0.0:9443' }
  directory:
    etcd: { endpoints: ['https://etcd:2379'], caFile: etcd-ca.crt, certificateFile: etcd.crt, keyFile: etcd.key }
  peering: { address: 'west:8446', certificateFile: peer.crt, keyFile: peer.key, peerCAFile: peer-ca.crt, serverCAFile: server-ca.crt }
  proxy: { listen: '0.0.0.0:8445', certificateFile: proxy.crt, keyFile: proxy.key }
  socks: { listen: '0.0.0.0:1080', insecureNonLoopback: true }
  passthrough:
    name: sni
    listen: '0.0.0.0:6443'
    sources: [any]
    servers: [{ name: api.edge-a.example, cluster: edge-a, target: '192.168.1.10:6443' }]
  admin:
    tcp: { listen: '0.0.0.0:9444', adminCAFile: admin-ca.crt, roles: [{ name: olga, role: operator }] }
  egress:
  - { name: host-a, cluster: edge-a, tcp: { listen: '0.0.0.0:8131', clientCAFile: egress-ca.crt, clientName: egress } }
  - { name: host-b, cluster: edge-b, uds: { path: /run/host-b.sock, uids: [0] } }
service:
  expose: [gateway, tunnel, enrollment, proxy, socks, passthrough, admin, egress]
  ports: { gateway: 443, tunnel: 8443, enrollment: 8445, proxy: 444, socks: 1081, passthrough: 6444, admin: 9445 }
  annotations: { balancer.example/kind: network }
  loadBalancerClass: balancer.example/network
  loadBalancerSourceRanges: [10.0.0.0/8]
  ipFamilyPolicy: PreferDualStack
networkPolicy:
  from:
    admin: [{ ipBlock: { cidr: 10.8.0.0/16, except: [10.8.1.0/24] } }]
    proxy: [{ namespaceSelector: {}, podSelector: { matchExpressions: [{ key: app, operator: In, values: [ci] }] } }]
    gateway: [{ ipBlock: { cidr: 0.0.0.0/0 } }]
    tunnel: [{ ipBlock: { cidr: 0.0.0.0/0 } }]
    enrollment: [{ ipBlock: { cidr: 0.0.0.0/0 } }]
    socks: [{ podSelector: {} }]
    passthrough: [{ ipBlock: { cidr: 10.0.0.0/8 } }]
    egress: [{ ipBlock: { cidr: 10.9.0.0/16 } }]
  metricsFrom: [{ namespaceSelector: { matchLabels: { team: watchers } } }]
extraFiles: [{ secret: egress }, { configMap: more }]
env: [{ name: TOMBOLO_LOG, value: debug }]
";

const SEVERAL_SERVERS: &str = "\
host: gateway.example
replicas: 3
config:
  tunnel: { addresses: ['$(serverId).gateway.example:8443'] }
  directory:
    etcd:
      endpoints: ['https://etcd-0.etcd:2379', 'https://etcd-1.etcd:2379', 'https://etcd-2.etcd:2379']
      caFile: etcd-ca.crt
      certificateFile: etcd-client.crt
      keyFile: etcd-client.key
extraFiles: [{ secret: tombolo-etcd-client }]
service:
  perServer: { enabled: true, annotations: { balancer.example/kind: network } }
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: DoNotSchedule
  minDomains: 3
  labelSelector:
    matchLabels: { app.kubernetes.io/name: tunnel-server }
    matchExpressions: [{ key: app.kubernetes.io/part-of, operator: In, values: [tombolo] }]
storage: { storageClassName: fast, size: 4Gi, keep: false, accessModes: [ReadWriteOncePod] }
";

const SEVERAL_WITHOUT_VOLUMES: &str = "\
host: gateway.example
replicas: 2
config:
  tls: { certificateFile: own.crt, keyFile: own.key }
  directory: { etcd: { endpoints: ['https://etcd:2379'], caFile: ca.crt, certificateFile: c.crt, keyFile: c.key } }
  peering: { listen: '0.0.0.0:9446', address: '$(serverId).example:9446' }
storage: { enabled: false }
service: { type: ClusterIP, perServer: { enabled: true } }
";

const UDP_APART: &str = "\
host: '2001:db8::7'
service:
  externalTrafficPolicy: Cluster
  separateUDP: { enabled: true, annotations: { balancer.example/protocol: udp } }
";

const NODE_PORTS: &str = "\
host: gateway.example
image: { tag: 0.2.0 }
config:
  proxy: { listen: '0.0.0.0:8445', certificateFile: proxy.crt, keyFile: proxy.key }
  socks: { listen: '0.0.0.0:1080', insecureNonLoopback: true }
  passthrough:
    name: sni
    listen: '0.0.0.0:6443'
    sources: [any]
    servers: [{ name: api.edge-a.example, cluster: edge-a, target: '192.168.1.10:6443' }]
  admin: { tcp: { listen: '0.0.0.0:9444', adminCAFile: admin-ca.crt, roles: [{ name: olga, role: operator }] } }
service:
  type: NodePort
  expose: [gateway, tunnel, enrollment, proxy, socks, passthrough, admin]
  # Those of listeners that are not open have no effect.
  nodePorts:
    { gateway: 30443, tunnel: 30443, enrollment: 30444, proxy: 30445, socks: 30446, passthrough: 30447, admin: 30448 }
";

const LEAST: &str = "\
config: { enrollment: null }
storage: { enabled: false }
service: { enabled: false }
networkPolicy: { enabled: false }
disruptionBudget: { enabled: false }
resources: {}
";

const EXISTING: &str = "\
existingConfigMap: mine
existingPolicyConfigMap: my-policy
secrets: { server: my-files, sealingKey: my-key }
storage: { existingClaim: my-claim }
service: { type: ClusterIP }
";

const HOST_CLUSTER: &str = "\
host: gateway.example
config:
  gateway:
    authentication:
      tokenReview:
        name: host
        server: https://kubernetes.default.svc
        caFile: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
        tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
        audiences: [tombolo]
        usernamePrefix: 'host:'
        groupsPrefix: 'host:'
serviceAccount: { name: my-server, annotations: { a.example/b: c }, authDelegator: true }
";

const SERVER_PLACE: &str = "\
host: gateway.example
nodeSelector: { kubernetes.io/os: linux }
tolerations: [{ key: dedicated, operator: Equal, value: tunnels, effect: NoSchedule }]
affinity:
  nodeAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - { weight: 1, preference: { matchExpressions: [{ key: disk, operator: In, values: [ssd] }] } }
priorityClassName: system-cluster-critical
podLabels: { team: edge }
podAnnotations: { a.example/b: c }
drainGraceSeconds: 100
probesListen: '[::]:9190'
storage: { storageClassName: fast, size: 10Gi, accessModes: [ReadWriteOncePod], keep: false }
monitoring:
  podMonitor: { enabled: true, labels: { release: prometheus }, interval: 15s }
  rules: { enabled: true, labels: { release: prometheus }, runbookURL: 'https://docs.example/operate/monitoring.html' }
";

const AGENT_LEAST: &str = "\
config: { cluster: edge-a, servers: ['gateway.example:8443'] }
";

const TOKEN: &str = "\
config:
  cluster: edge-a
  servers: ['gateway.example:8443']
  enrollment:
    server: gateway.example:8444
    pin: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
  impersonation: { users: [alice], groups: ['tombolo:admins'], systemNames: ['system:serviceaccount:ci:deployer'] }
  targets: ['hook.shop.svc:443', '10.96.0.0/12:443']
  tenants: [{ kind: Pod, namespace: tenant-a, port: 6443 }]
enrollment: { token: secret }
# The pod of `helm test` is there only if it has what an agent needs.
doctor: { image: { repository: registry.example/tombolo/tunnel-server, tag: 0.2.0 } }
callerRoles:
- { group: 'tombolo:admins', clusterRole: cluster-admin }
- { user: alice, clusterRole: view }
namespace: { create: true }
";

const DAEMON_SET: &str = "\
config: { cluster: edge-a, servers: ['gateway.example:8443'] }
kind: DaemonSet
image: { tag: 0.2.0, pullPolicy: Never }
networkPolicy: { metricsFrom: [] }
tolerations: [{ operator: Exists }]
";

const CERTIFICATES: &str = "\
config:
  cluster: edge-a
  servers: ['gateway.example:8443']
  tls: { certificateFile: tls.crt, keyFile: tls.key, serverCAFile: ca.crt }
extraFiles: [{ secret: agent-tls }, { configMap: more }]
doctor:
  image: { digest: 'sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef' }
";

const AGENT_EXISTING: &str = "\
config: { cluster: edge-a }
existingConfigMap: mine
enrollment: { secret: my-token }
rbac: { create: false }
networkPolicy: { enabled: false }
disruptionBudget: { enabled: false }
resources: {}
env: [{ name: HTTPS_PROXY, valueFrom: { secretKeyRef: { name: proxy, key: url, optional: true } } }]
";

const AGENT_PLACE: &str = "\
config: { cluster: edge-a, servers: ['gateway.example:8443'] }
image:
  repository: registry.example/tombolo/tunnel-agent
  digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
imagePullSecrets: [{ name: registry }]
replicas: 3
topologySpread: [{ topologyKey: example.com/rack, maxSkew: 2, whenUnsatisfiable: DoNotSchedule }]
nodeSelector: { kubernetes.io/os: linux }
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
    - { labelSelector: { matchLabels: { app.kubernetes.io/name: tunnel-agent } }, topologyKey: kubernetes.io/hostname }
priorityClassName: system-cluster-critical
podLabels: { team: edge }
podAnnotations: { a.example/b: c }
drainGraceSeconds: 100
probesListen: '[::]:9191'
serviceAccount: { annotations: { a.example/b: c } }
monitoring:
  podMonitor: { enabled: true, labels: { release: prometheus }, interval: 15s }
  rules: { enabled: true, labels: { release: prometheus }, runbookURL: 'https://docs.example/operate/monitoring.html' }
";

const CONSTRAINED: &str = "\
config:
  cluster: edge-a
  servers: ['gateway.example:8443']
  impersonation: { users: [alice], groups: [], systemNames: ['system:serviceaccount:ci:deployer'] }
rbac: { profile: constrained }
";

const OPEN: &str = "\
config:
  cluster: edge-a
  servers: ['gateway.example:8443']
  impersonation: { users: ['*'], groups: ['tombolo:*'] }
rbac: { profile: open }
";
