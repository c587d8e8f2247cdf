{{- define "profcol.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "profcol.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "profcol.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "profcol.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "profcol.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- define "profcol.selectorLabels" -}}
app.kubernetes.io/name: {{ include "profcol.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "profcol.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "profcol.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "profcol.metadata" -}}
name: {{ include "profcol.fullname" . }}
namespace: {{ include "profcol.namespace" . }}
labels:
  {{- include "profcol.labels" . | nindent 2 }}
{{- end }}

{{- define "profcol.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "profcol.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "profcol.configMapName" -}}
{{- if .Values.configMap.create }}
{{- include "profcol.fullname" . }}
{{- else }}
{{- required "configMap.existingName is required if configMap.create is false" .Values.configMap.existingName }}
{{- end }}
{{- end }}

{{- define "profcol.isAgent" -}}
{{- if eq .Values.mode "daemonset" }}true{{ end }}
{{- end }}

{{- define "profcol.config" -}}
{{- if .Values.alternateConfig }}
{{- toYaml .Values.alternateConfig }}
{{- else }}
{{- if not (or .Values.backend (.Values.config).exporters) }}
{{- fail "set `backend` to the destination of the profiles, such as --set backend=otel-collector:4317" }}
{{- end }}
{{- $file := printf "files/%s.yaml" .Values.mode }}
{{- toYaml (mergeOverwrite (fromYaml (.Files.Get $file)) (deepCopy .Values.config)) }}
{{- end }}
{{- end }}

{{- define "profcol.image" -}}
{{- with .Values.image }}
{{- if .digest }}
{{- printf "%s@%s" .repository .digest }}
{{- else }}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "profcol.probe" -}}
httpGet: {path: /, port: health}
{{- with . }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "profcol.resources" -}}
{{- $memory := ternary "256Mi" "128Mi" (eq .Values.mode "daemonset") }}
{{- $default := dict "requests" (dict "cpu" "50m" "memory" $memory) "limits" (dict "memory" "512Mi") }}
{{- toYaml (mergeOverwrite $default (deepCopy .Values.resources)) }}
{{- end }}

{{- define "profcol.pod" -}}
metadata:
  labels:
    {{- include "profcol.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or .Values.podAnnotations (and .Values.configMap.create .Values.enableConfigChecksumAnnotation) }}
  annotations:
    {{- if and .Values.configMap.create .Values.enableConfigChecksumAnnotation }}
    checksum/config: {{ include "profcol.config" . | sha256sum }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  serviceAccountName: {{ include "profcol.serviceAccountName" . }}
  {{- $agent := include "profcol.isAgent" . }}
  {{- if $agent }}
  # See all processes of the node.
  hostPID: true
  {{- else }}
  automountServiceAccountToken: false
  {{- end }}
  {{- if .Values.hostNetwork }}
  hostNetwork: true
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .Values.podSecurityContext }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- else if not $agent }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  {{- end }}
  {{- if .Values.tolerations }}
  tolerations:
    {{- toYaml .Values.tolerations | nindent 4 }}
  {{- else if $agent }}
  tolerations:
    - operator: Exists
  {{- end }}
  {{- range $key := list "nodeSelector" "affinity" "topologySpreadConstraints" "dnsConfig" "initContainers" }}
  {{- with index $.Values $key }}
  {{ $key }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- range $key := list "priorityClassName" "runtimeClassName" "dnsPolicy" }}
  {{- with index $.Values $key }}
  {{ $key }}: {{ . }}
  {{- end }}
  {{- end }}
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  containers:
    - name: profcol
      image: {{ include "profcol.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - --config=/etc/profcol/config.yaml
        {{- with .Values.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      env:
        - name: K8S_NODE_NAME
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
        - name: POD_IP
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        {{- if not $agent }}
        - name: LISTEN
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        {{- end }}
        {{- with .Values.backend }}
        - name: BACKEND
          value: {{ . | quote }}
        {{- end }}
        {{- with .Values.extraEnvs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .Values.extraEnvsFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        {{- if not $agent }}
        - {name: otlp-grpc, containerPort: 4317, protocol: TCP}
        - {name: otlp-http, containerPort: 4318, protocol: TCP}
        {{- end }}
        - {name: metrics, containerPort: 8888, protocol: TCP}
        - {name: health, containerPort: 13133, protocol: TCP}
      securityContext:
        {{- if .Values.securityContext }}
        {{- toYaml .Values.securityContext | nindent 8 }}
        {{- else }}
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
          {{- if $agent }}
          add: [BPF, PERFMON, SYS_PTRACE, CHECKPOINT_RESTORE, DAC_READ_SEARCH, SYSLOG]
          {{- end }}
        {{- end }}
      readinessProbe:
        {{- include "profcol.probe" .Values.readinessProbe | nindent 8 }}
      livenessProbe:
        {{- include "profcol.probe" .Values.livenessProbe | nindent 8 }}
      resources:
        {{- include "profcol.resources" . | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/profcol, readOnly: true}
        {{- if $agent }}
        # Identifies the host, to tell whether a process is local.
        - {name: machine-id, mountPath: /etc/machine-id, readOnly: true}
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ include "profcol.configMapName" . }}}
    {{- if $agent }}
    - name: machine-id
      hostPath: {path: /etc/machine-id, type: File}
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
