{{- /* The pod of a server, of the Deployment and of the StatefulSet. */ -}}
{{- define "tombolo-server.pod" -}}
metadata:
  labels:
    {{- include "tombolo-server.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or .Values.podAnnotations (not .Values.existingConfigMap) }}
  annotations:
    {{- if not .Values.existingConfigMap }}
    # A changed configuration restarts the server, which reads it at its start. The policy is not in this sum.
    checksum/config: {{ include "tombolo-server.config" . | sha256sum }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  serviceAccountName: {{ .Values.serviceAccount.name }}
  enableServiceLinks: false
  # The time for running requests, and a reserve.
  terminationGracePeriodSeconds: {{ add .Values.drainGraceSeconds 15 }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if include "tombolo-server.isOneOfSeveral" . }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  containers:
  - name: tunnel-server
    image: {{ include "tombolo-server.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args: ["--config=/etc/tombolo/server.yaml"]
    env:
    {{- if include "tombolo-server.isOneOfSeveral" . }}
    # The pod's name is the server's ID. It replaces each $(serverId) in server.yaml.
    - name: TOMBOLO_SERVER_SERVER_ID
      valueFrom:
        fieldRef:
          fieldPath: metadata.name
    {{- end }}
    - name: TOMBOLO_SERVER_STATE_DIR
      value: /var/lib/tombolo/server
    # Not loopback, because the kubelet probes from outside of the pod. The NetworkPolicy lists the other clients. If pods have
    # only IPv6, use "[::]:9090", and the same in the configuration.
    - name: TOMBOLO_SERVER_PROBES_LISTEN
      value: {{ .Values.probesListen | quote }}
    - name: TOMBOLO_SERVER_DRAIN_GRACE
      value: {{ .Values.drainGraceSeconds | quote }}
    {{- with .Values.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    ports:
    {{- range include "tombolo-server.listeners" . | fromYamlArray }}
    - { name: {{ .name }}, containerPort: {{ .port }}, protocol: {{ .protocol }} }
    {{- end }}
    - { name: probes, containerPort: {{ include "tombolo-server.port" .Values.probesListen }}, protocol: TCP }
    startupProbe:
      httpGet:
        path: /livez
        port: probes
      periodSeconds: 1
      failureThreshold: 60
    livenessProbe:
      httpGet:
        path: /livez
        port: probes
      periodSeconds: 10
      failureThreshold: 3
    readinessProbe:
      httpGet:
        path: /readyz
        port: probes
      periodSeconds: 5
    {{- with .Values.resources }}
    # There is no CPU limit by default, because a throttled server is a slow link for everybody. docs/measuring.md has the memory of
    # tunnels and outages.
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: ["ALL"]
    volumeMounts:
    - name: told
      mountPath: /etc/tombolo
      readOnly: true
    # The server uses folders below these two, whose modes exclude other users. A mounted folder has no such mode.
    - name: state
      mountPath: /var/lib/tombolo
    - name: run
      mountPath: /run
  volumes:
  - name: told
    {{- include "tombolo-server.files" . | nindent 4 }}
  {{- if not (include "tombolo-server.isOneOfSeveral" .) }}
  - name: state
    {{- if .Values.storage.enabled }}
    persistentVolumeClaim:
      claimName: {{ .Values.storage.existingClaim | default "tunnel-server" }}
    {{- else }}
    emptyDir:
      sizeLimit: {{ .Values.storage.size }}
    {{- end }}
  {{- else if not .Values.storage.enabled }}
  - name: state
    emptyDir:
      sizeLimit: {{ .Values.storage.size }}
  {{- end }}
  - name: run
    emptyDir:
      medium: Memory
      sizeLimit: 1Mi
{{- end }}
