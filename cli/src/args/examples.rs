//! The examples at the end of each command's help.

mod daemons;
mod tenants;

pub(super) use daemons::{
    DOCTOR, DOCTOR_AGENT, DOCTOR_NODE, DOCTOR_SERVER, NODE, NODE_JOIN, NODE_JOIN_COMMAND, NODE_RESET,
    NODE_ROTATE_CA, SERVER, SERVER_EXPORT, SERVER_IMPORT, SERVER_LIST, SERVER_REMOVE,
};

pub(super) use tenants::{
    TENANT, TENANT_BOOTSTRAP, TENANT_CERTIFICATES, TENANT_CERTIFICATES_RENEW, TENANT_CERTIFICATES_ROTATE_CA,
    TENANT_CREATE, TENANT_DELETE, TENANT_JOIN_COMMAND, TENANT_KUBECONFIG, TENANT_LIST, TENANT_REGISTER,
    TENANT_STATUS, TENANT_UPGRADE,
};

pub(super) const TOMBOLO: &str = "\
Examples:
  Certificates and a kubeconfig, for a server and an agent by hand:
  tombolo ca init --dir pki
  tombolo ca issue server --dir pki --name gateway.example
  tombolo ca issue agent --dir pki --cluster edge-1
  tombolo ca issue caller --dir pki --user alice \\
      --group tombolo:admins
  tombolo kubeconfig --gateway https://gateway.example:8443 \\
      --ca pki/server-ca.crt \\
      --cert pki/alice-caller.crt --key pki/alice-caller.key \\
      --cluster edge-1 --output kubeconfig";

pub(super) const PROXY: &str = "\
Examples:
  In one terminal:
  tombolo proxy --gateway https://gateway.example:8443 \\
      --ca pki/server-ca.crt \\
      --cert pki/alice-caller.crt --key pki/alice-caller.key \\
      --cluster edge-1 --kubeconfig admin.conf --output edge-1.conf
  In another terminal:
  export KUBECONFIG=edge-1.conf
  export KUBECACHEDIR=~/.kube/cache/tombolo/edge-1
  kubectl get nodes
  For a program that supports only SOCKS5:
  tombolo proxy --cluster edge-1 --kubeconfig admin.conf --socks5
  For all clusters of a network, by their addresses:
  tombolo proxy --network plant-7 --kubeconfig plant-7.conf";

pub(super) const SUMMARIZE: &str = "\
Examples:
  tombolo summarize pods --all-namespaces --by .status.phase
  The images in all clusters, at the gateway of the context:
  tombolo summarize pods -A --cluster-set global \\
      --by '.spec.containers[*].image'
  tombolo summarize deploy -A --sum .spec.replicas \\
      --where '.metadata.labels.tier=front'
  The three pods with the most restarts:
  tombolo summarize pods -A \\
      --top '3:.status.containerStatuses[*].restartCount'";

pub(super) const PASSTHROUGH: &str = "\
Examples:
  tombolo passthrough --server https://api.edge-a.example:6443 \\
      --kubeconfig admin.conf --output edge-a.conf
  Before DNS knows the name:
  tombolo passthrough --server https://api.edge-a.example:6443 \\
      --address 192.0.2.7:6443 \\
      --kubeconfig admin.conf --output edge-a.conf";

pub(super) const VIP: &str = "\
Examples:
  tombolo vip --server https://edge-a.tombolo.svc \\
      --kubeconfig admin.conf --output edge-a.conf
  By an address of the server's configuration:
  tombolo vip --server https://10.255.0.1 \\
      --kubeconfig admin.conf --output edge-a.conf";

pub(super) const CA: &str = "\
Examples:
  tombolo ca init --dir pki
  tombolo ca issue server --dir pki --name gateway.example
  tombolo ca show pki/server.crt";

pub(super) const CA_INIT: &str = "\
Examples:
  tombolo ca init --dir pki
  tombolo ca init --dir pki --trust-domain example.org
  On a machine without a network:
  tombolo ca init --dir roots --roots-only
  Add the root of the role peer to an authority of an earlier version:
  tombolo ca init --dir pki";

pub(super) const CA_INTERMEDIATE: &str = "\
Examples:
  Before the old one expires:
  tombolo ca intermediate --dir pki --role server --force
  For a server that enrolls agents by itself:
  tombolo ca intermediate --dir roots --role agent \\
      --out agent.sealed --sealing-key sealing.key";

pub(super) const CA_ROTATE: &str = "\
Examples:
  tombolo ca rotate --dir pki --role server
  Months later, when every agent has been connected since:
  tombolo ca rotate --dir pki --role server --finish";

pub(super) const CA_SECRETS: &str = "\
Examples:
  tombolo ca secrets --dir pki | kubectl apply -f -
  In another namespace:
  tombolo ca secrets --dir pki --namespace edge | kubectl apply -f -
  For two servers of the chart that share their records in etcd:
  tombolo ca secrets --dir pki --id tunnel-server-0 \\
      --id tunnel-server-1 | kubectl apply -f -";

pub(super) const CA_ISSUE: &str = "\
Examples:
  tombolo ca issue server --dir pki --name gateway.example
  tombolo ca issue agent --dir pki --cluster edge-1
  tombolo ca issue caller --dir pki --user alice --group developers";

pub(super) const ISSUE_SERVER: &str = "\
Examples:
  tombolo ca issue server --dir pki --name g.example --name 192.0.2.7
  With a host name for each cluster, such as edge-1.clusters.example:
  tombolo ca issue server --dir pki --name gateway.example \\
      --suffix clusters.example
  Again, before the old one expires:
  tombolo ca issue server --dir pki --name gateway.example --force";

pub(super) const ISSUE_AGENT: &str = "\
Examples:
  tombolo ca issue agent --dir pki --cluster edge-1
  Two agents of one cluster:
  tombolo ca issue agent --dir pki --cluster edge-1 --id a
  tombolo ca issue agent --dir pki --cluster edge-1 --id b --out b";

pub(super) const ISSUE_CALLER: &str = "\
Examples:
  tombolo ca issue caller --dir pki --user alice --group dev --group ops
  tombolo ca issue caller --dir pki --user ci --validity 24h --out ci";

pub(super) const ISSUE_ADMIN: &str = "\
Examples:
  tombolo ca issue admin --dir pki --name olga";

pub(super) const ISSUE_PEER: &str = "\
Examples:
  tombolo ca issue peer --dir pki --id west
  Beside the certificate that the same server shows at its listeners:
  tombolo ca issue server --dir pki --id west --name west.example";

pub(super) const CA_SHOW: &str = "\
Examples:
  tombolo ca show pki/server.crt
  tombolo ca show /etc/tombolo/agent.crt
  tombolo ca show pki/trust.bundle";

pub(super) const KUBECONFIG: &str = "\
Examples:
  tombolo kubeconfig --gateway https://gateway.example:8443 \\
      --ca pki/server-ca.crt \\
      --cert pki/alice-caller.crt --key pki/alice-caller.key \\
      --cluster edge-1 --cluster edge-2 --output kubeconfig
  With a token, and files named in place of their contents:
  tombolo kubeconfig --gateway https://gateway.example:8443 \\
      --ca pki/server-ca.crt --token-file token \\
      --embed-certs=false --cluster edge-1 > kubeconfig
  With the credential read anew by each kubectl:
  tombolo kubeconfig --gateway https://gateway.example:8443 \\
      --ca pki/server-ca.crt --token-file token \\
      --exec --cluster edge-1 > kubeconfig
  With defaults in ~/.config/tombolo/config.yaml:
  tombolo kubeconfig --cluster edge-1 > kubeconfig
  kubectl --kubeconfig kubeconfig get namespaces";

pub(super) const CREDENTIAL: &str = "\
Examples:
  tombolo credential --cert pki/alice-caller.crt \\
      --key pki/alice-caller.key
  In a pod, with a projected token for the gateway:
  tombolo credential --token-file /var/run/secrets/gateway/token
  In an init container, for the other containers of its pod:
  tombolo credential --install /plugins/tombolo";

pub(super) const CLUSTERS: &str = "\
Examples:
  tombolo clusters
  The present spelling:
  tombolo cluster list";

pub(super) const RBAC: &str = "\
Examples:
  tombolo rbac --agent-config agent.yaml > rbac.yaml
  tombolo rbac --agent-config agent.yaml | kubectl apply -f -
  Then a kubeconfig with no other rights, for an agent outside of pods:
  (umask 077
  kubectl config view --raw --minify --flatten > kubeconfig)
  kubectl --kubeconfig kubeconfig config unset users
  kubectl --kubeconfig kubeconfig config set-credentials tunnel-agent \\
      --token \"$(kubectl -n tombolo create token tunnel-agent \\
      --duration 8760h)\"
  kubectl --kubeconfig kubeconfig config set-context --current \\
      --user tunnel-agent
  For more callers than can be listed, if the token is kept safe:
  tombolo rbac --agent-config agent.yaml --profile open > rbac.yaml";

pub(super) const CLUSTER: &str = "\
Examples:
  tombolo cluster create edge-1 --label region=north
  tombolo cluster list
  tombolo cluster delete edge-1";

pub(super) const CLUSTER_LIST: &str = "\
Examples:
  tombolo cluster list
  tombolo cluster list edge-1 --output wide
  By labels, those first that were away for the longest time:
  tombolo cluster list -l 'stage=live,region in (north,south)' \\
      --show-labels --sort-by last-seen
  As they come and go:
  tombolo cluster list --watch
  For programs; times are RFC 3339:
  tombolo cluster list --output json
  tombolo cluster list edge-1 --output yaml
  At a server with another socket:
  tombolo cluster list --socket /run/tombolo/b/admin.sock
  From another machine, as an administrator:
  tombolo cluster list --server https://server.example:9443 \\
      --ca server-ca.crt --cert olga-admin.crt --key olga-admin.key";

pub(super) const CLUSTER_CREATE: &str = "\
Examples:
  tombolo cluster create edge-1
  tombolo cluster create edge-1 --label region=north --label tier=gold \\
      --network plant-7 --advertise 192.168.1.10:6443
  Print the command that installs its agents, with a token:
  tombolo cluster create edge-1 --print helm \\
      --user alice --group tombolo:admins --cluster-role cluster-admin
  Run it at once, with a kubeconfig of that cluster, and wait:
  tombolo cluster create edge-1 --print helm --wait | \\
      KUBECONFIG=edge-1.conf sh";

pub(super) const CLUSTER_LABEL: &str = "\
Examples:
  tombolo cluster label edge-1 region=north tier=gold
  Remove a label:
  tombolo cluster label edge-1 tier-";

pub(super) const CLUSTER_UPDATE: &str = "\
Examples:
  tombolo cluster update edge-1 --network plant-7 --network lab
  tombolo cluster update edge-1 --advertise 192.168.1.0/24
  Let it advertise nothing:
  tombolo cluster update edge-1 --advertise ''";

pub(super) const CLUSTER_CHECK: &str = "\
Examples:
  tombolo cluster check edge-1 --kubeconfig admin.conf";

pub(super) const CLUSTER_ATTESTATION: &str = "\
Examples:
  tombolo cluster attestation show edge-1
  After `tombolo agent revoke --cluster edge-1`:
  tombolo cluster attestation reopen edge-1";

pub(super) const ATTESTATION_SHOW: &str = "\
Examples:
  tombolo cluster attestation show edge-1";

pub(super) const ATTESTATION_SET_KEYS: &str = "\
Examples:
  With a kubeconfig of that cluster that bypasses the tunnel:
  kubectl get --raw /openid/v1/jwks > jwks.json
  tombolo cluster attestation set-keys edge-1 --keys jwks.json";

pub(super) const ATTESTATION_FORGET: &str = "\
Examples:
  After the cluster or the agents' ServiceAccount was recreated:
  tombolo cluster attestation forget edge-1
  tombolo token create --cluster edge-1";

pub(super) const ATTESTATION_REOPEN: &str = "\
Examples:
  tombolo cluster attestation reopen edge-1";

pub(super) const CLUSTER_DELETE: &str = "\
Examples:
  tombolo cluster delete edge-1
  In a script, where nobody can be asked:
  tombolo cluster delete edge-1 --yes
  It was a mistake:
  tombolo cluster undelete edge-1";

pub(super) const CLUSTER_UNDELETE: &str = "\
Examples:
  tombolo cluster undelete edge-1
  Its agents then enroll again:
  tombolo token create --cluster edge-1";

pub(super) const AGENT: &str = "\
Examples:
  tombolo agent revoke edge-1/0f3c9a7e
  tombolo agent restore edge-1/0f3c9a7e
  tombolo agent revoke --cluster edge-1";

pub(super) const AGENT_LIST: &str = "\
Examples:
  tombolo agent list
  tombolo agent list edge-1 --output wide
  For programs; times are RFC 3339:
  tombolo agent list --output json";

pub(super) const TOKEN: &str = "\
Examples:
  tombolo token create --cluster edge-1
  tombolo token list
  tombolo token revoke 0f3c9a7e12b4d856";

pub(super) const TOKEN_CREATE: &str = "\
Examples:
  Print commands to be pasted at the site, which start an agent:
  tombolo token create --cluster edge-1
  The same, with rights for the callers of the cluster:
  tombolo token create --cluster edge-1 --user alice \\
      --group tombolo:admins --cluster-role cluster-admin
  The Helm command of `tombolo cluster create --print helm`, again:
  tombolo token create --cluster edge-1 -o helm --user alice
  Straight to the site's machine, if you reach it by ssh:
  tombolo token create --cluster edge-1 | ssh edge-1 sh
  A folder to be carried to the site, by somebody who has to travel:
  tombolo token create --cluster edge-1 --ttl 1h --dir edge-1
  Apply it to the cluster as a Secret, for agents in pods:
  tombolo token create --cluster edge-1 -o manifest | kubectl apply -f -";

pub(super) const TOKEN_LIST: &str = "\
Examples:
  tombolo token list";

pub(super) const TOKEN_REVOKE: &str = "\
Examples:
  tombolo token revoke 0f3c9a7e12b4d856";

pub(super) const AGENT_REVOKE: &str = "\
Examples:
  One agent, by the name in `tombolo cluster list edge-1 -o wide`:
  tombolo agent revoke edge-1/0f3c9a7e
  All agents that the cluster has now; new ones may enroll:
  tombolo agent revoke --cluster edge-1
  In a script, where nobody can be asked:
  tombolo agent revoke --cluster edge-1 --yes
  One certificate:
  tombolo agent revoke --serial 4f:a2:09:c3
  An agent that is neither enrolled nor connected:
  tombolo agent revoke edge-1/0f3c9a7e --unseen";

pub(super) const AGENT_RESTORE: &str = "\
Examples:
  tombolo agent restore edge-1/0f3c9a7e
  One certificate:
  tombolo agent restore --serial 4f:a2:09:c3";

pub(super) const USER: &str = "\
Examples:
  tombolo user token create --user ci --out ci.token
  tombolo user revoke --name alice
  tombolo user list
  tombolo user restore --name alice";

pub(super) const USER_REVOKE: &str = "\
Examples:
  A user, with every credential:
  tombolo user revoke --name alice
  A lost certificate; its user may get another:
  tombolo user revoke --serial 4f:a2:09:c3
  Credentials issued before a time, of alice and of everyone:
  tombolo user revoke --name alice --issued-before 2026-01-31T12:00:00Z
  tombolo user revoke --issued-before 2026-01-31T12:00:00Z";

pub(super) const USER_LIST: &str = "\
Examples:
  tombolo user list";

pub(super) const USER_RESTORE: &str = "\
Examples:
  tombolo user restore --name alice
  tombolo user restore --everyone";

pub(super) const MAN: &str = "\
Examples:
  tombolo man share/man/man1";

pub(super) const AUDIT: &str = "\
Examples:
  Every line, and the end, by checkpoints that were kept elsewhere:
  tombolo audit verify /var/lib/tombolo/server/audit \\
      --key /var/lib/tombolo/server/audit-chain.key \\
      --checkpoints seen.jsonl --public-key audit.pub";

pub(super) const AUDIT_VERIFY: &str = "\
Examples:
  Every line, and the end, by checkpoints that were kept elsewhere:
  tombolo audit verify /var/lib/tombolo/server/audit \\
      --key /var/lib/tombolo/server/audit-chain.key \\
      --checkpoints seen.jsonl --public-key audit.pub
  Where no copy of the checkpoints was kept, by those beside the log:
  tombolo audit verify /var/lib/tombolo/server/audit \\
      --key /var/lib/tombolo/server/audit-chain.key \\
      --public-key /var/lib/tombolo/server/audit/audit.pub
  On another machine, without the secret key:
  tombolo audit verify copy/audit --checkpoints seen.jsonl \\
      --public-key audit.pub
  For programs:
  tombolo audit verify copy/audit --public-key audit.pub -o json";

pub(super) const COMPLETION: &str = "\
Examples:
  tombolo completion bash > /etc/bash_completion.d/tombolo
  tombolo completion zsh > ~/.zfunc/_tombolo
  tombolo completion fish > ~/.config/fish/completions/tombolo.fish";

pub(super) const USER_TOKEN: &str = USER_TOKEN_CREATE;

pub(super) const USER_TOKEN_CREATE: &str = "\
Examples:
  tombolo user token create --user bob --group tombolo:admins \\
      --out bob.token >> /etc/tombolo/tokens.csv
  tombolo kubeconfig --gateway https://gateway.example:8443 \\
      --ca server-ca.crt --token-file bob.token --cluster edge-1";

pub(super) const USER_TOKEN_HASH: &str = "\
Examples:
  tombolo user token hash tokens.csv > tokens-hashed.csv";

pub(super) const DIAL_TOKEN: &str = "\
Examples:
  tombolo user dial-token create --user alice --cluster edge-1 \\
      --out alice.dial
  tombolo user dial-token list
  tombolo user dial-token revoke 0f3c9a7e12b4d856";

pub(super) const DIAL_TOKEN_CREATE: &str = "\
Examples:
  For a day:
  tombolo user dial-token create --user alice --cluster edge-1 \\
      --out alice.dial
  For a program, and two clusters:
  tombolo user dial-token create --user ci --cluster edge-1 \\
      --cluster edge-2 --ttl 30d --out ci.dial
  For the clusters that are in a network when it is used:
  tombolo user dial-token create --user ci --network plant-7 \\
      --out plant-7.dial";

pub(super) const DIAL_TOKEN_KUBECONFIG: &str = "\
Examples:
  tombolo user dial-token kubeconfig --user alice \\
      --dial-token-file alice.dial --kubeconfig admin.conf \\
      --proxy https://gateway.example:8445 --ca pki/proxy-ca.crt \\
      --output edge-1.conf";

pub(super) const ISSUE_PROXY: &str = "\
Examples:
  tombolo ca issue proxy --dir pki --name gateway.example";

pub(super) const DIAL_TOKEN_LIST: &str = "\
Examples:
  tombolo user dial-token list";

pub(super) const DIAL_TOKEN_REVOKE: &str = "\
Examples:
  tombolo user dial-token revoke 0f3c9a7e12b4d856";

pub(super) const VERSION: &str = "\
Examples:
  tombolo version";

pub(super) const POLICY: &str = "\
Examples:
  tombolo policy check policy.yaml
  tombolo policy explain --policy policy.yaml \\
      --method client-certificate --user alice --group tombolo:admins \\
      --cluster edge-1 --verb list --resource pods --namespace shop";

pub(super) const POLICY_CHECK: &str = "\
Examples:
  tombolo policy check /etc/tombolo/policy.yaml";

pub(super) const POLICY_EXPLAIN: &str = "\
Examples:
  tombolo policy explain --policy policy.yaml \\
      --method client-certificate --user alice --group tombolo:admins \\
      --cluster edge-1 --verb connect --resource pods/exec \\
      --namespace shop
  tombolo policy explain --policy policy.yaml \\
      --method token --user token:bob --cluster edge-1 \\
      --labels stage=live --path /apis/apps/v1/deployments?watch=1
  tombolo policy explain --policy policy.yaml \\
      --method token --user token:bob --cluster edge-1 \\
      --target 10.0.0.7:5432 --output json";
