{{/* Labels of everything; the argument is the component, or "". */}}
{{- define "palisade.labels" -}}
app.kubernetes.io/name: palisade
{{- with . }}
app.kubernetes.io/component: {{ . }}
{{- end }}
app.kubernetes.io/part-of: palisade
{{- end }}

{{/* What the agent's pods are selected by. It must never change: a DaemonSet cannot be updated to another. */}}
{{- define "palisade.selector" -}}
app.kubernetes.io/name: palisade
app.kubernetes.io/component: agent
{{- end }}

{{- define "palisade.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* The address that the kubelet probes: the node's loopback, unless the agent listens at another address only. */}}
{{- define "palisade.probeHost" -}}
{{- if has .Values.metrics.address (list "0.0.0.0" "[::]") -}}
127.0.0.1
{{- else -}}
{{ .Values.metrics.address | trimPrefix "[" | trimSuffix "]" }}
{{- end -}}
{{- end }}

{{/* Whether only the node itself can connect. */}}
{{- define "palisade.isLocal" -}}
{{- if or (hasPrefix "127." .Values.metrics.address) (eq .Values.metrics.address "[::1]") -}}yes{{- end -}}
{{- end }}
