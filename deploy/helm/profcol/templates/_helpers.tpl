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

{{/* The service whose name has the address of each ready pod. */}}
{{- define "profcol.headlessName" -}}
{{- printf "%s-headless" (include "profcol.fullname" . | trunc 54 | trimSuffix "-") }}
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

{{/* Whether an annotation of the pods changes with the configuration. */}}
{{- define "profcol.restartsOnChange" -}}
{{- if and .Values.configMap.create .Values.enableConfigChecksumAnnotation }}true{{ end }}
{{- end }}

{{- define "profcol.watchesConfig" -}}
{{- if kindIs "bool" .Values.reload.watch | ternary .Values.reload.watch (eq (include "profcol.restartsOnChange" .) "") }}true{{ end }}
{{- end }}

{{- define "profcol.isAgent" -}}
{{- if eq .Values.mode "daemonset" }}true{{ end }}
{{- end }}

{{- define "profcol.isSidecar" -}}
{{- if eq .Values.mode "sidecar" }}true{{ end }}
{{- end }}

{{- define "profcol.isGateway" -}}
{{- if not (or (include "profcol.isAgent" .) (include "profcol.isSidecar" .)) }}true{{ end }}
{{- end }}

{{/* Whether k8s_attributes is in the pipeline. */}}
{{- define "profcol.namesPods" -}}
{{- $enabled := .Values.presets.kubernetesAttributes.enabled }}
{{- if kindIs "bool" $enabled }}
{{- if $enabled }}true{{ end }}
{{- else }}
{{- include "profcol.isAgent" . }}
{{- end }}
{{- end }}

{{- define "profcol.mountsToken" -}}
{{- $mounts := .Values.serviceAccount.automountServiceAccountToken }}
{{- if kindIs "bool" $mounts }}
{{- $mounts }}
{{- else }}
{{- or (ne (include "profcol.namesPods" .) "") (gt (len .Values.clusterRole.rules) 0) }}
{{- end }}
{{- end }}

{{/* The configuration of the mode, with or without k8s_attributes. */}}
{{- define "profcol.presets" -}}
{{- $config := fromYaml (.Files.Get (printf "files/%s.yaml" .Values.mode)) }}
{{- $pipeline := $config.service.pipelines.profiles }}
{{- $others := without $pipeline.processors "k8s_attributes" }}
{{- if not (include "profcol.namesPods" .) }}
{{- $_ := unset $config.processors "k8s_attributes" }}
{{- $_ := set $pipeline "processors" $others }}
{{- else }}
{{- $attributes := default dict $config.processors.k8s_attributes }}
{{- $extract := dict }}
{{- $all := list (dict "key_regex" ".*") }}
{{- with .Values.presets.kubernetesAttributes }}
{{- if .extractAllPodLabels }}{{ $_ := set $extract "labels" $all }}{{ end }}
{{- if .extractAllPodAnnotations }}{{ $_ := set $extract "annotations" $all }}{{ end }}
{{- end }}
{{- with $extract }}{{ $_ := set $attributes "extract" . }}{{ end }}
{{- $_ := set $config.processors "k8s_attributes" $attributes }}
{{- if not (has "k8s_attributes" $pipeline.processors) }}
{{- /* After memory_limiter. */}}
{{- $_ := set $pipeline "processors" (concat (list (first $others) "k8s_attributes") (rest $others)) }}
{{- end }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- define "profcol.config" -}}
{{- if .Values.alternateConfig }}
{{- toYaml .Values.alternateConfig }}
{{- else }}
{{- if not (or .Values.backend (.Values.config).exporters) }}
{{- fail "set `backend` to the destination of the profiles, such as --set backend=otel-collector:4317" }}
{{- end }}
{{- toYaml (mergeOverwrite (fromYaml (include "profcol.presets" .)) (deepCopy .Values.config)) }}
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
httpGet: {path: /, port: {{ .port }}}
{{- with .settings }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The ports in use, by name. Only a gateway has those of OTLP without being asked. */}}
{{- define "profcol.ports" -}}
{{- $ports := dict }}
{{- $sidecar := include "profcol.isSidecar" . }}
{{- range $name, $port := .Values.ports }}
{{- $default := or (not (hasPrefix "otlp-" $name)) (ne (include "profcol.isGateway" $) "") }}
{{- if kindIs "bool" $port.enabled | ternary $port.enabled $default }}
{{- if not $port.containerPort }}
{{- if ne $name "metrics" }}
{{- fail (printf "set ports.%s.containerPort" $name) }}
{{- end }}
{{- /* 8888 may be the port of a sidecar's application. */}}
{{- $port = merge (dict "containerPort" (ternary 18888 8888 (ne $sidecar ""))) $port }}
{{- end }}
{{- /* The ports of all containers of a pod share their names. */}}
{{- $_ := set $ports (ternary (printf "profcol-%s" $name) $name (ne $sidecar "")) $port }}
{{- end }}
{{- end }}
{{- toYaml $ports }}
{{- end }}

{{- define "profcol.resources" -}}
{{- $memory := ternary "256Mi" "128Mi" (eq .Values.mode "daemonset") }}
{{- $default := dict "requests" (dict "cpu" "50m" "memory" $memory) "limits" (dict "memory" "512Mi") }}
{{- if include "profcol.isSidecar" . }}
{{- $default = dict "requests" (dict "cpu" "10m" "memory" "32Mi") "limits" (dict "memory" "96Mi") }}
{{- end }}
{{- toYaml (mergeOverwrite $default (deepCopy .Values.resources)) }}
{{- end }}

{{- define "profcol.pod" -}}
metadata:
  labels:
    {{- include "profcol.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or .Values.podAnnotations (include "profcol.restartsOnChange" .) }}
  annotations:
    {{- if include "profcol.restartsOnChange" . }}
    checksum/config: {{ include "profcol.config" . | sha256sum }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  serviceAccountName: {{ include "profcol.serviceAccountName" . }}
  {{- $agent := include "profcol.isAgent" . }}
  automountServiceAccountToken: {{ include "profcol.mountsToken" . }}
  {{- if kindIs "bool" .Values.hostPID | ternary .Values.hostPID (ne $agent "") }}
  # See all processes of the node.
  hostPID: true
  {{- end }}
  {{- if .Values.shareProcessNamespace }}
  shareProcessNamespace: true
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
    {{- if eq .Values.mode "statefulset" }}
    # Of the volume.
    fsGroup: 10001
    {{- end }}
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
    - {{ include "profcol.container" . | indent 6 | trim }}
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
