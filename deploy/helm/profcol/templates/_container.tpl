{{- define "profcol.container" -}}
{{- $agent := include "profcol.isAgent" . }}
{{- $sidecar := include "profcol.isSidecar" . -}}
name: profcol
{{- if $sidecar }}
# Starts before the application and ends after it.
restartPolicy: Always
{{- end }}
image: {{ include "profcol.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.command.name }}
command: [{{ . | quote }}]
{{- end }}
args:
  - --config=/etc/profcol/config.yaml
  {{- if include "profcol.watchesConfig" . }}
  - --set=service.reload.watch=true
  {{- end }}
  {{- with .Values.command.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  {{- if $sidecar }}
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  {{- end }}
  - name: K8S_NODE_NAME
    valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
  - name: POD_IP
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  {{- if include "profcol.isGateway" . }}
  - name: LISTEN
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  {{- end }}
  {{- with .Values.backend }}
  - name: BACKEND
    value: {{ . | quote }}
  {{- end }}
  {{- with .Values.extraEnvs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.extraEnvsFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  {{- range $name, $port := fromYaml (include "profcol.ports" .) }}
  - name: {{ $name }}
    containerPort: {{ $port.containerPort }}
    protocol: {{ default "TCP" $port.protocol }}
    {{- with $port.hostPort }}
    hostPort: {{ . }}
    {{- end }}
  {{- end }}
securityContext:
  {{- if .Values.securityContext }}
  {{- toYaml .Values.securityContext | nindent 2 }}
  {{- else }}
  {{- if $sidecar }}
  {{- /* The pod's is the application's. */}}
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
  {{- end }}
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
    {{- if $agent }}
    add: [BPF, PERFMON, SYS_PTRACE, CHECKPOINT_RESTORE, DAC_READ_SEARCH, SYSLOG]
    {{- end }}
  {{- end }}
{{- $port := ternary "profcol-health" "health" (ne $sidecar "") }}
{{- /* The application starts once its sidecar listens. */}}
{{- $startup := .Values.startupProbe | default (ternary (dict "periodSeconds" 1 "failureThreshold" 30) dict (ne $sidecar "")) }}
{{- with $startup }}
startupProbe:
  {{- include "profcol.probe" (dict "port" $port "settings" .) | nindent 2 }}
{{- end }}
{{- if or (not $sidecar) .Values.readinessProbe }}
readinessProbe:
  {{- include "profcol.probe" (dict "port" $port "settings" .Values.readinessProbe) | nindent 2 }}
{{- end }}
livenessProbe:
  {{- include "profcol.probe" (dict "port" $port "settings" .Values.livenessProbe) | nindent 2 }}
{{- with .Values.lifecycleHooks }}
lifecycle:
  {{- toYaml . | nindent 2 }}
{{- end }}
resources:
  {{- include "profcol.resources" . | nindent 2 }}
volumeMounts:
  - {name: {{ ternary "profcol" "config" (ne $sidecar "") }}, mountPath: /etc/profcol, readOnly: true}
  {{- if $agent }}
  # Identifies the host, to tell whether a process is local.
  - {name: machine-id, mountPath: /etc/machine-id, readOnly: true}
  {{- end }}
  {{- if eq .Values.mode "statefulset" }}
  - name: {{ (first .Values.statefulset.volumeClaimTemplates).metadata.name }}
    mountPath: /var/lib/profcol
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
