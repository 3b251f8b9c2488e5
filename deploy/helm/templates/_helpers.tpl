{{- define "boathook.labels" -}}
app.kubernetes.io/name: boathook
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: boathook
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "boathook.selector" -}}
app.kubernetes.io/name: boathook
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "boathook.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* The directories of each engine, by the name of the volume: one with its
configuration, and those with its state. */ -}}
{{- define "boathook.engine" -}}
cdi: {}
containerd:
  engine-config: {path: /etc/containerd, type: DirectoryOrCreate}
  engine-state: {path: /run/containerd, type: Directory}
crio:
  engine-config: {path: /etc/crio, type: DirectoryOrCreate}
  engine-state: {path: /run/crio, type: Directory}
  bundles: {path: /run/containers, type: DirectoryOrCreate}
k3s:
  engine-config: {path: /var/lib/rancher/k3s/agent/etc/containerd, type: DirectoryOrCreate}
  engine-state: {path: /run/k3s/containerd, type: Directory}
rke2:
  engine-config: {path: /var/lib/rancher/rke2/agent/etc/containerd, type: DirectoryOrCreate}
  engine-state: {path: /run/k3s/containerd, type: Directory}
{{- end }}

{{- /* The config.toml of the nodes. */ -}}
{{- define "boathook.config" -}}
# The configuration of the nodes, of the plugin and of the hook. Paths are the node's.
{{- /* Keys without a table come before all tables. */}}
{{- $parts := regexSplit "(?m)^[ \\t]*\\[" .Values.config 2 }}
{{- with first $parts | trim }}
{{ . }}
{{- end }}
{{- $tables := dict }}
{{- range .Values.classes.disabled }}
{{- $_ := set $tables . (list "enabled = false") }}
{{- end }}
{{- range .Values.classes.enabled }}
{{- $_ := set $tables . (list "enabled = true") }}
{{- end }}
{{- range .Values.dra.classes }}
{{- $_ := set $tables . (append (get $tables . | default list) "serve = \"dra\"") }}
{{- end }}
{{- range $class, $count := .Values.replicas }}
{{- $_ := set $tables $class (append (get $tables $class | default list) (printf "replicas = %d" (int $count))) }}
{{- end }}
{{- range .Values.classes.disabled }}
{{- if has . $.Values.classes.enabled }}
{{- fail (printf "class %s is in classes.enabled and in classes.disabled: leave it in one of them" .) }}
{{- end }}
{{- end }}
{{- if and $tables (regexMatch "(?m)^[ \\t]*\\[[ \\t]*[\"']?class[\"']?[ \\t]*\\]" .Values.config) }}
{{- fail "config has the table [class] beside classes, replicas or dra.classes, which write tables of it: write [class.NAME] for each class" }}
{{- end }}
{{- range $class, $lines := $tables }}
{{- /* TOML allows spaces and quotes in the header of a table. */}}
{{- if regexMatch (printf "(?m)^[ \\t]*\\[[ \\t]*[\"']?class[\"']?[ \\t]*\\.[ \\t]*[\"']?%s[\"']?[ \\t]*\\]" $class) $.Values.config }}
{{- fail (printf "config has the table [class.%s], which classes, replicas or dra.classes write: set all of this class in config" $class) }}
{{- end }}

[class.{{ $class }}]
{{ join "\n" $lines }}
{{- end }}
{{- if ne .Values.kubeletDir "/var/lib/kubelet" }}
{{- if not (contains "[trust]" .Values.config) }}

[trust]
kubelet_checkpoint = "{{ .Values.kubeletDir }}/device-plugins/kubelet_internal_checkpoint"
{{- else if not (contains "kubelet_checkpoint" .Values.config) }}
{{- fail "kubeletDir is set: set kubelet_checkpoint in the table [trust] of config, too" }}
{{- end }}
{{- end }}
{{- if gt (len $parts) 1 }}

[{{ index $parts 1 }}
{{- end }}
{{- end }}
