{{- define "tenant.labels" -}}
app.kubernetes.io/part-of: tombolo-tenant
app.kubernetes.io/instance: {{ required "tenant is empty: `tombolo tenant create NAME` sets it" .Values.tenant }}
{{- end }}

{{- /* An image by its digest, or else by its tag. */ -}}
{{- define "tenant.image" -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end }}

{{- define "tenant.port" -}}
{{ add (int .root.Values.portBase) .offset }}
{{- end }}

{{- /* Keys of every pod: the host's network and no DNS, the chosen nodes, and no token of the host cluster. */ -}}
{{- define "tenant.pod" -}}
hostNetwork: true
dnsPolicy: Default
automountServiceAccountToken: false
enableServiceLinks: false
priorityClassName: system-cluster-critical
nodeSelector: {{- toYaml .Values.nodeSelector | nindent 2 }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "tenant.annotations" -}}
tombolo.dev/secrets: {{ .Values.secretsChecksum | quote }}
{{- end }}

{{- define "tenant.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: ["ALL"] }
  seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- /* The URLs of an etcd's members for clients. */ -}}
{{- define "tenant.etcdUrls" -}}
{{- $port := include "tenant.port" (dict "root" .root "offset" .offset) -}}
{{- range $index, $address := .addresses -}}
{{- if $index }}{{ $.separator }}{{ end -}}
https://{{ $address }}:{{ $port }}
{{- end -}}
{{- end }}
