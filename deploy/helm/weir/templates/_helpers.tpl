{{- define "weir.name" -}}
{{- if contains "weir" .Release.Name }}{{ .Release.Name | trunc 53 | trimSuffix "-" }}{{ else }}{{ printf "%s-weir" (.Release.Name | trunc 48 | trimSuffix "-") }}{{ end -}}
{{- end }}

{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "weir.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "weir.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- /* Counters in memory are counted by each instance for itself, and without rules Weir would serve its sample. */ -}}
{{- define "weir.checkStore" -}}
{{- $shared := or .Values.store.secret.name (and .Values.store.url (ne .Values.store.url "memory")) }}
{{- $several := ternary (gt (int .Values.autoscaling.maxReplicas) 1) (gt (int .Values.replicas) 1) .Values.autoscaling.enabled }}
{{- if and $several (not $shared) }}
{{- fail "several instances need a store that they share: set store.url=redis://… or store.secret.name, or one instance by autoscaling.enabled=false and replicas=1" }}
{{- end }}
{{- if not (or .Values.rules .Values.sources) }}
{{- fail "there are no rules: set rules or sources" }}
{{- end }}
{{- end }}
