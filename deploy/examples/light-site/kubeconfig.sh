#!/bin/sh
# Gives the agent of a light site its rights and its credential for the API server: /etc/tombolo/kubeconfig. Its token does not expire, because
# nobody is at the site to replace it. To end it, delete the Secret.
set -eu
umask 077
export KUBECONFIG=/etc/kubernetes/admin.conf
into=/etc/tombolo/kubeconfig

tombolo rbac --agent-config /etc/tombolo/agent.yaml | kubectl apply -f -
kubectl apply -f - <<'END'
apiVersion: v1
kind: Secret
metadata:
  name: tunnel-agent-token
  namespace: tombolo
  annotations: { kubernetes.io/service-account.name: tunnel-agent }
type: kubernetes.io/service-account-token
END
kubectl -n tombolo wait --for=jsonpath='{.data.token}' --timeout=60s secret/tunnel-agent-token
token=$(kubectl -n tombolo get secret tunnel-agent-token -o 'jsonpath={.data.token}' | base64 -d)

kubectl config view --raw --minify --flatten >"$into"
kubectl --kubeconfig "$into" config unset users
kubectl --kubeconfig "$into" config set-credentials tunnel-agent --token "$token"
kubectl --kubeconfig "$into" config set-context --current --user tunnel-agent
chown tombolo-agent: "$into" /etc/tombolo/token
