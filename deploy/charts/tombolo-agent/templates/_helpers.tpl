{{- define "tombolo-agent.labels" -}}
app.kubernetes.io/name: tunnel-agent
app.kubernetes.io/part-of: tombolo
{{- end }}

{{- /* An image by its digest, or else by its tag. */ -}}
{{- define "tombolo-agent.image" -}}
{{- with .image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.root.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- define "tombolo-agent.port" -}}
{{- regexFind "[0-9]+$" (. | toString) -}}
{{- end }}

{{- /* True if the address and the pin of the enrollment are in the Secret and not in `config`. */ -}}
{{- define "tombolo-agent.enrollmentInSecret" -}}
{{- if and (not .Values.config.tls) (not (dig "enrollment" "server" "" .Values.config)) }}true{{ end -}}
{{- end }}

{{- define "tombolo-agent.cluster" -}}
{{- required "config.cluster is empty: set it to the name of this cluster, as in `tombolo cluster create`" .Values.config.cluster -}}
{{- end }}

{{- /* The text of agent.yaml. */ -}}
{{- define "tombolo-agent.config" -}}
apiVersion: tombolo.dev/v1alpha1
kind: AgentConfig
{{- $config := deepCopy .Values.config }}
{{- $_ := include "tombolo-agent.cluster" . }}
{{- if not $config.servers }}
{{- fail "config.servers is empty: set it to the servers' addresses for agents, such as gateway.example:8443" }}
{{- end }}
{{- if or $config.tls (include "tombolo-agent.enrollmentInSecret" .) }}
{{- $_ := unset $config "enrollment" }}
{{- else }}
{{- $_ := required "config.enrollment.pin is empty: set it to the pin that `tombolo token create` prints" $config.enrollment.pin }}
{{- $_ := set $config.enrollment "tokenFile" "enrollment-token" }}
{{- $_ := set $config.enrollment "serviceAccountTokenFile" "pod-token" }}
{{- end }}
{{ toYaml $config }}
{{- end }}

{{- /* The files of /etc/tombolo, which the agent's pods and the doctor's have. */ -}}
{{- define "tombolo-agent.files" -}}
projected:
  defaultMode: 0440
  sources:
  - configMap:
      name: {{ .Values.existingConfigMap | default "tunnel-agent" }}
      items:
      - key: agent.yaml
        path: agent.yaml
{{- if not .Values.config.tls }}
  - secret:
      name: {{ .Values.enrollment.secret }}
      {{- if not (include "tombolo-agent.enrollmentInSecret" .) }}
      # Pods after the first need no token.
      optional: true
      {{- end }}
      items:
      - key: token
        path: enrollment-token
  # The token by which the pod authenticates. No other service accepts a token for this audience, and 10 minutes is the
  # shortest lifetime that Kubernetes issues.
  - serviceAccountToken:
      path: pod-token
      audience: {{ printf "tombolo:%s:%s" (.Values.config.trustDomain | default "tombolo") (include "tombolo-agent.cluster" .) | quote }}
      expirationSeconds: 600
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
