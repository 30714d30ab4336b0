{{- define "tombolo-server.labels" -}}
app.kubernetes.io/name: tunnel-server
app.kubernetes.io/part-of: tombolo
{{- end }}

{{- /* Not empty if servers share their records in etcd, so that there can be several. */ -}}
{{- define "tombolo-server.isOneOfSeveral" -}}
{{- if dig "directory" "etcd" "" .Values.config }}true
{{- else if ne (int .Values.replicas) 1 }}
{{- fail "replicas is not 1: several servers share their records in etcd, so set config.directory.etcd too" }}
{{- end -}}
{{- end }}

{{- define "tombolo-server.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- /* The port of an address such as 0.0.0.0:8443. */ -}}
{{- define "tombolo-server.port" -}}
{{- regexFind "[0-9]+$" (. | toString) -}}
{{- end }}

{{- define "tombolo-server.isLoopback" -}}
{{- if regexMatch "^(127\\.|\\[::1\\]|localhost:)" (. | toString) }}true{{ end -}}
{{- end }}

{{- /* Every listener that `config` opens beyond loopback, as a YAML list of { name, listener, port, protocol }. */ -}}
{{- define "tombolo-server.listeners" -}}
{{- $config := .Values.config -}}
{{- $gateway := dig "gateway" "listen" "0.0.0.0:8443" $config -}}
{{- $tunnel := dig "tunnel" "listen" "0.0.0.0:8443" $config -}}
- { name: gateway, listener: gateway, port: {{ include "tombolo-server.port" $gateway }}, protocol: TCP }
- { name: tunnel, listener: tunnel, port: {{ include "tombolo-server.port" $tunnel }}, protocol: UDP }
{{- if ne (include "tombolo-server.port" $gateway) (include "tombolo-server.port" $tunnel) }}
- { name: tunnel-tcp, listener: tunnel, port: {{ include "tombolo-server.port" $tunnel }}, protocol: TCP }
{{- end }}
{{- if or $config.peering (include "tombolo-server.isOneOfSeveral" .) }}
{{- $peering := dig "peering" "listen" "0.0.0.0:8446" $config }}
{{- if not (include "tombolo-server.isLoopback" $peering) }}
- { name: peering, listener: peering, port: {{ include "tombolo-server.port" $peering }}, protocol: UDP }
- { name: peering-tcp, listener: peering, port: {{ include "tombolo-server.port" $peering }}, protocol: TCP }
{{- end }}
{{- end }}
{{- range $name := list "enrollment" "proxy" "socks" "passthrough" }}
{{- $listen := dig $name "listen" "" $config }}
{{- if and $listen (not (include "tombolo-server.isLoopback" $listen)) }}
- { name: {{ $name }}, listener: {{ $name }}, port: {{ include "tombolo-server.port" $listen }}, protocol: TCP }
{{- end }}
{{- end }}
{{- $admin := dig "admin" "tcp" "listen" "" $config }}
{{- if and $admin (not (include "tombolo-server.isLoopback" $admin)) }}
- { name: admin, listener: admin, port: {{ include "tombolo-server.port" $admin }}, protocol: TCP }
{{- end }}
{{- range $index, $entry := $config.egress }}
{{- $listen := dig "tcp" "listen" "" $entry }}
{{- if and $listen (not (include "tombolo-server.isLoopback" $listen)) }}
- { name: egress-{{ $index }}, listener: egress, port: {{ include "tombolo-server.port" $listen }}, protocol: TCP }
{{- end }}
{{- end }}
{{- end }}

{{- /* The port at which others reach a listener: the node's, if the Service has the type NodePort and the port is fixed. */ -}}
{{- define "tombolo-server.outerPort" -}}
{{- $service := .root.Values.service -}}
{{- $port := dig .listener (include "tombolo-server.port" .listen) $service.ports -}}
{{- if and $service.enabled (eq $service.type "NodePort") }}{{ dig .listener $port $service.nodePorts }}{{ else }}{{ $port }}{{ end -}}
{{- end }}

{{- /* The host and port that the server tells agents for their renewals. */ -}}
{{- define "tombolo-server.enrollmentAddress" -}}
{{- $port := include "tombolo-server.outerPort" (dict "root" . "listener" "enrollment" "listen" .Values.config.enrollment.listen) -}}
{{- $host := required "host is empty: set it to the DNS name or address at which agents reach the server, or set config.enrollment.address" .Values.host -}}
{{- if contains ":" $host }}[{{ $host }}]{{ else }}{{ $host }}{{ end }}:{{ $port }}
{{- end }}

{{- /* The host and port that the server tells new agents for their tunnels. */ -}}
{{- define "tombolo-server.tunnelAddress" -}}
{{- $port := include "tombolo-server.outerPort" (dict "root" . "listener" "tunnel" "listen" .Values.config.tunnel.listen) -}}
{{- if contains ":" .Values.host }}[{{ .Values.host }}]{{ else }}{{ .Values.host }}{{ end }}:{{ $port }}
{{- end }}

{{- /* The text of server.yaml. */ -}}
{{- define "tombolo-server.config" -}}
apiVersion: tombolo.dev/v1alpha1
kind: ServerConfig
{{- $config := deepCopy .Values.config }}
{{- if $config.enrollment }}
{{- if not $config.enrollment.address }}
{{- $_ := set $config.enrollment "address" (include "tombolo-server.enrollmentAddress" .) }}
{{- end }}
{{- end }}
{{- if and .Values.host (not $config.tunnel.addresses) }}
{{- $_ := set $config.tunnel "addresses" (list (include "tombolo-server.tunnelAddress" .)) }}
{{- end }}
{{- if include "tombolo-server.isOneOfSeveral" . }}
{{- if eq (dig "tls" "certificateFile" "" $config) "server.crt" }}
{{- $_ := set $config "tls" (dict "certificateFile" "$(serverId)-server.crt" "keyFile" "$(serverId)-server.key") }}
{{- end }}
{{- $port := include "tombolo-server.port" (dig "peering" "listen" "0.0.0.0:8446" $config) }}
{{- $address := printf "$(serverId).tunnel-server-peers.%s.svc:%s" .Release.Namespace $port }}
{{- $peering := dict "address" $address "certificateFile" "$(serverId)-peer.crt" "keyFile" "$(serverId)-peer.key" "peerCAFile" "peer-ca.crt" "serverCAFile" "server-ca.crt" }}
{{- $_ := set $config "peering" (merge ($config.peering | default dict) $peering) }}
{{- end }}
{{- $_ := set $config "policy" (merge (dict "file" "policy.yaml") ($config.policy | default dict)) }}
{{ toYaml $config }}
{{- end }}

{{- /* The files of /etc/tombolo, which the server's pod and the doctor's have. */ -}}
{{- define "tombolo-server.files" -}}
projected:
  defaultMode: 0440
  sources:
  - configMap:
      name: {{ .Values.existingConfigMap | default "tunnel-server" }}
  # policy.yaml. The kubelet renews it in the running pod, within 90 s by default.
  - configMap:
      name: {{ .Values.existingPolicyConfigMap | default "tunnel-server-policy" }}
  # server.crt, server.key, caller-ca.crt, agent-ca.crt, agent-intermediate.sealed and trust.bundle; `tombolo ca secrets` writes them.
  # For several servers: ID-server.crt, ID-server.key, ID-peer.crt and ID-peer.key of each, peer-ca.crt and server-ca.crt.
  - secret:
      name: {{ .Values.secrets.server }}
{{- if .Values.config.enrollment }}
  # sealing.key, which decrypts the intermediate of the other Secret.
  - secret:
      name: {{ .Values.secrets.sealingKey }}
{{- end }}
{{- range .Values.extraFiles }}
{{- if .secret }}
  - secret:
      name: {{ .secret }}
{{- else }}
  - configMap:
      name: {{ .configMap }}
{{- end }}
{{- end }}
{{- end }}
