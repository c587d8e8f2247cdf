{{/* What a chart adds to its own pods, with `.Subcharts.profcol` as the scope. */}}

{{- define "profcol.sidecar.labels" -}}
profcol-sidecar: {{ include "profcol.fullname" . }}
{{- end }}

{{- define "profcol.sidecar.annotations" -}}
checksum/profcol: {{ include "profcol.config" . | sha256sum }}
{{- end }}

{{/* An entry of `initContainers`. */}}
{{- define "profcol.sidecar.container" -}}
{{- include "profcol.sidecar.check" . -}}
- {{ include "profcol.container" . | indent 2 | trim }}
{{- end }}

{{/* Entries of `volumes`. */}}
{{- define "profcol.sidecar.volumes" -}}
- name: profcol
  configMap: {name: {{ include "profcol.configMapName" . }}}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A strategic merge patch of a workload. */}}
{{- define "profcol.sidecar.patch" -}}
spec:
  template:
    metadata:
      labels:
        {{- include "profcol.sidecar.labels" . | nindent 8 }}
      {{- if include "profcol.restartsOnChange" . }}
      annotations:
        {{- include "profcol.sidecar.annotations" . | nindent 8 }}
      {{- end }}
    spec:
      {{- if .Values.shareProcessNamespace }}
      shareProcessNamespace: true
      {{- end }}
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      initContainers:
        {{- include "profcol.sidecar.container" . | nindent 8 }}
      volumes:
        {{- include "profcol.sidecar.volumes" . | nindent 8 }}
{{- end }}

{{- define "profcol.sidecar.check" -}}
{{- if not (include "profcol.isSidecar" .) }}
{{- fail "set `mode: sidecar`" }}
{{- end }}
{{- if semverCompare "<1.29.0-0" .Capabilities.KubeVersion.Version }}
{{- fail (printf "mode: sidecar needs Kubernetes 1.29, which starts a sidecar before the application and ends it after; this is %s" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- range list "affinity" "dnsConfig" "dnsPolicy" "extraContainers" "hostNetwork" "hostPID" "initContainers" "nodeSelector" "podAnnotations" "podLabels" "podSecurityContext" "priorityClassName" "runtimeClassName" "tolerations" "topologySpreadConstraints" "updateStrategy" }}
{{- if index $.Values . }}
{{- fail (printf "mode: sidecar: set `%s` in the application's pods, not here" .) }}
{{- end }}
{{- end }}
{{- if .Values.networkPolicy.enabled }}
{{- fail "mode: sidecar: a network policy selects pods, which are the application's: write it there" }}
{{- end }}
{{- if or (include "profcol.namesPods" .) .Values.clusterRole.rules }}
{{- fail "mode: sidecar: a sidecar gets no rights in the cluster; set `presets.kubernetesAttributes` and `clusterRole.rules` at the gateway" }}
{{- end }}
{{- end }}
