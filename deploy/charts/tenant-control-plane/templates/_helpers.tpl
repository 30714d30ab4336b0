{{- define "tenant.labels" -}}
{{ include "tenant.podLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* Without the version of the chart: a new one restarts no pod by itself. */ -}}
{{- define "tenant.podLabels" -}}
app.kubernetes.io/part-of: tombolo
tombolo.dev/tenant: {{ required "tenant is empty: `tombolo tenant create NAME` sets it" .Values.tenant }}
{{- end }}

{{- /* An image by its digest, or else by its tag. */ -}}
{{- define "tenant.image" -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end }}

{{- define "tenant.port" -}}
{{ add (int .root.Values.portBase) .offset }}
{{- end }}

{{- /* Values that the schema allows and that make no control plane. */ -}}
{{- define "tenant.check" -}}
{{- $services := .Values.services -}}
{{- if not $services.apiserver }}{{ fail "services.apiserver is empty: `tombolo tenant create` makes the Services first, and writes their addresses" }}{{ end -}}
{{- range $key := list "etcdData" "etcdEvent" }}
{{- $count := len (get $services $key) }}
{{- if not (has $count (list 1 3)) }}{{ fail (printf "services.%s has %d addresses: use 1 or 3, because two members are no more available than one" $key $count) }}{{ end }}
{{- end -}}
{{- $all := concat (list $services.apiserver) $services.etcdData $services.etcdEvent -}}
{{- if ne (len (uniq $all)) (len $all) }}{{ fail "services has an address twice: each Service has its own" }}{{ end -}}
{{- if mod (int .Values.portBase) 10 }}{{ fail (printf "portBase is %d: use a multiple of 10, so that the blocks of tenants do not overlap" (int .Values.portBase)) }}{{ end -}}
{{- end }}

{{- /* Keys of every pod: the host's network and no DNS, the chosen nodes, and no token of the host cluster. */ -}}
{{- define "tenant.pod" -}}
hostNetwork: true
dnsPolicy: Default
automountServiceAccountToken: false
enableServiceLinks: false
nodeSelector: {{- toYaml .Values.nodeSelector | nindent 2 }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  runAsUser: {{ int .Values.user }}
  runAsGroup: {{ int .Values.user }}
  runAsNonRoot: {{ ne (int .Values.user) 0 }}
  fsGroup: {{ int .Values.user }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "tenant.annotations" -}}
tombolo.dev/secrets: {{ .Values.secretsChecksum | quote }}
{{- end }}

{{- /* Nothing but the right to use a port below 1024, which the file of the official kube-apiserver asks for: without it, no process starts. */ -}}
{{- define "tenant.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: ["ALL"]{{ if .bindService }}, add: ["NET_BIND_SERVICE"]{{ end }} }
{{- end }}

{{- /* The URLs of an etcd's members for clients. */ -}}
{{- define "tenant.etcdUrls" -}}
{{- $port := include "tenant.port" (dict "root" .root "offset" .offset) -}}
{{- $urls := list -}}
{{- range .addresses }}{{ $urls = append $urls (printf "https://%s" (include "tenant.hostPort" (dict "host" . "port" $port))) }}{{ end -}}
{{ join .separator $urls }}
{{- end }}

{{- /* An address with a port: IPv6 in brackets. */ -}}
{{- define "tenant.hostPort" -}}
{{ if contains ":" .host }}[{{ .host }}]{{ else }}{{ .host }}{{ end }}:{{ .port }}
{{- end }}
