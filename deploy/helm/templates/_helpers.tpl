{{- /* Names and labels of a component. Each of these definitions takes a dictionary with
"root", the chart's top, and "name": follow, dra, scheduler or webhook, and none for the
plugin. */ -}}

{{- define "boathook.label" -}}
{{- $label := .root.Values.nameOverride | default .root.Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- $label }}{{ with .name }}-{{ . }}{{ end }}
{{- end }}

{{- define "boathook.component" -}}
{{- $values := .root.Values -}}
{{- $base := $values.nameOverride | default .root.Chart.Name -}}
{{- $full := printf "%s-%s" .root.Release.Name $base -}}
{{- if contains $base .root.Release.Name }}{{ $full = .root.Release.Name }}{{ end -}}
{{- $values.fullnameOverride | default $full | trunc 50 | trimAll "-." }}{{ with .name }}-{{ . }}{{ end }}
{{- end }}

{{- define "boathook.selector" -}}
app.kubernetes.io/name: {{ include "boathook.label" . }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- /* With "labels", those of the object's own, which are written beside these. */ -}}
{{- define "boathook.labels" -}}
{{ include "boathook.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: boathook
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- $own := .labels | default dict }}
{{- range $label, $value := .root.Values.commonLabels }}
{{- if not (hasKey $own $label) }}
{{ $label }}: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The metadata of an object of the cluster: with "labels" and "annotations", which are
added to those of all objects. */ -}}
{{- define "boathook.global" -}}
metadata:
  name: {{ include "boathook.component" . }}{{ .suffix }}
  labels:
    {{- include "boathook.labels" . | nindent 4 }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "boathook.metadata" -}}
{{ include "boathook.global" . }}
  namespace: {{ .root.Release.Namespace }}
{{- end }}

{{- define "boathook.fullname" -}}
{{ include "boathook.component" (dict "root" .) }}
{{- end }}

{{- define "boathook.serviceAccount" -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) }}
{{- fail "serviceAccount.create is false, and serviceAccount.name is empty: name the account that there is, or no pod is created" }}
{{- end -}}
{{ .Values.serviceAccount.name | default (include "boathook.fullname" .) }}
{{- end }}

{{- /* Of a pod, also where it has a ServiceAccount that the chart does not create. */ -}}
{{- define "boathook.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "boathook.priorityClass" -}}
{{ .Values.priorityClassName | default (include "boathook.fullname" .) }}
{{- end }}

{{- /* The name by which the node's lock knows the pods of this release. */ -}}
{{- define "boathook.release" -}}
{{ .Release.Namespace }}/{{ include "boathook.fullname" . }}
{{- end }}

{{- /* Which nodes have the pods: Linux on the processors that the image is built for, and of
these those that the values choose. Terms are alternatives, so each gets the requirement. */ -}}
{{- define "boathook.nodes" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat (.Values.tolerations | default list) (.Values.extraTolerations | default list) }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $built := list
    (dict "key" "kubernetes.io/os" "operator" "In" "values" (list "linux"))
    (dict "key" "kubernetes.io/arch" "operator" "In" "values" (list "amd64" "arm64")) }}
{{- $affinity := deepCopy (.Values.affinity | default dict) }}
{{- $node := get $affinity "nodeAffinity" | default dict }}
{{- $required := get $node "requiredDuringSchedulingIgnoredDuringExecution" | default dict }}
{{- $terms := list }}
{{- range get $required "nodeSelectorTerms" | default (list dict) }}
{{- $own := get . "matchExpressions" | default list }}
{{- $terms = append $terms (merge (dict "matchExpressions" (concat $built $own)) .) }}
{{- end }}
{{- $_ := set $required "nodeSelectorTerms" $terms }}
{{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" $required }}
{{- $_ := set $affinity "nodeAffinity" $node }}
affinity:
  {{- toYaml $affinity | nindent 2 }}
{{- end }}

{{- /* The capabilities of the follower; deploy/components/follow says what each is for. */ -}}
{{- define "boathook.followCapabilities" -}}
SYS_ADMIN SYS_CHROOT SYS_PTRACE NET_ADMIN MKNOD CHOWN DAC_OVERRIDE FOWNER SETGID SETUID
{{- end }}

{{- /* After an upgrade with --reuse-values the defaults are those of the earlier chart, which may have
no such key. */ -}}
{{- define "boathook.runtimeClass" -}}
{{- dig "name" "" (.Values.runtimeClass | default dict) | default "boathook" }}
{{- end }}

{{- /* The nodes on which the pods of a RuntimeClass are placed. */ -}}
{{- define "boathook.runtimeClassNodes" -}}
{{- with .Values.runtimeClass.nodeSelector }}
scheduling:
  nodeSelector:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{- /* The pods of an uninstallation replace the earlier ones by themselves, and begin when these have
ended, whatever strategy the updates have. */ -}}
{{- define "boathook.updateStrategy" -}}
updateStrategy:
  {{- if and .root.Values.updateStrategy (not .root.Values.uninstall) }}
  {{- toYaml .root.Values.updateStrategy | nindent 2 }}
  {{- else }}
  type: RollingUpdate
  rollingUpdate:
    {{- if .surge }}
    # The new instance serves the kubelet before the earlier one ends.
    maxSurge: {{ .maxSurge | default .root.Values.maxUnavailable }}
    maxUnavailable: 0
    {{- else }}
    maxUnavailable: {{ .root.Values.maxUnavailable }}
    {{- end }}
  {{- end }}
{{- end }}

{{- /* The options of the plugin that are the same in its pod and in its service of the host. */ -}}
{{- define "boathook.pluginOptions" -}}
{{- if ne .Values.kubeletDir "/var/lib/kubelet" }}
- --kubelet-dir={{ .Values.kubeletDir }}
{{- end }}
{{- if ne .Values.register "kubelet" }}
- --register={{ .Values.register }}
{{- end }}
{{- if .Values.takeOver }}
- --take-over
{{- end }}
{{- if ne .Values.logLevel "info" }}
- --log-level={{ .Values.logLevel }}
{{- end }}
{{- if ne .Values.logFormat "text" }}
- --log-format={{ .Values.logFormat }}
{{- end }}
{{- if .Values.nodeLabels }}
- --node-labels={{ .Values.plugin.hostService | ternary .Values.nodeLabelsDir "/node-labels" }}/boathook
{{- end }}
{{- if ne .Values.cdiDir "/var/run/cdi" }}
- --cdi={{ .Values.cdiDir }}
{{- end }}
{{- /* The pod has an address of its own, and the service that of the node. */}}
- --probes={{ .Values.plugin.hostService | ternary "127.0.0.1" "[::]" }}:9910
{{- if .Values.monitoring.enabled }}
- --http=[::]:{{ .Values.monitoring.port }}
{{- end }}
{{- end }}

{{- /* Labels and annotations of the pods of the plugin and of the follower. */ -}}
{{- define "boathook.podMetadata" -}}
metadata:
  labels:
    {{- include "boathook.labels" (merge (dict "labels" .root.Values.podLabels) .) | nindent 4 }}
    {{- with .root.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # The plugin reads its configuration when it starts, and classes are installed
    # before.
    checksum/config: {{ print (include "boathook.config" .root) .root.Values.classes.own | sha256sum }}
    {{- with .root.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
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

{{- /* The init container that asks the node's engine whether it reads CDI, and its volumes. */ -}}
{{- define "boathook.checkEngine" -}}
# An engine that ignores CDI would start containers without their devices: then no device is
# offered.
- name: check-engine
  image: {{ include "boathook.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [/boathook/bin/boathook-plugin]
  args: [check-engine, --host-root=/host]
  securityContext:
    # The engine's socket belongs to root.
    runAsUser: 0
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
    seccompProfile:
      type: RuntimeDefault
    seLinuxOptions:
      type: spc_t
  resources:
    {{- toYaml .Values.resources.install | nindent 4 }}
  volumeMounts:
    # The directories in which engines have their sockets, and no others of /run: a
    # socket answers also where it is mounted read-only. What is unmounted on the host
    # meanwhile is not to be kept.
    - {name: containerd-run, mountPath: /host/run/containerd, readOnly: true, mountPropagation: HostToContainer}
    - {name: k3s-run, mountPath: /host/run/k3s/containerd, readOnly: true, mountPropagation: HostToContainer}
    - {name: k0s-run, mountPath: /host/run/k0s, readOnly: true, mountPropagation: HostToContainer}
    - {name: crio-run, mountPath: /host/run/crio, readOnly: true, mountPropagation: HostToContainer}
{{- end }}

{{- define "boathook.checkEngineVolumes" -}}
# A node has one of these. The others are made, because a volume cannot be optional.
- name: containerd-run
  hostPath: {path: /run/containerd, type: DirectoryOrCreate}
- name: k3s-run
  hostPath: {path: /run/k3s/containerd, type: DirectoryOrCreate}
- name: k0s-run
  hostPath: {path: /run/k0s, type: DirectoryOrCreate}
- name: crio-run
  hostPath: {path: /run/crio, type: DirectoryOrCreate}
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

{{- /* Whether the pods see the nodes' /etc/group: a class in the values names a group of nodes. The
group of devices on one board, in [device], is a template with braces. A node without the file would
not start the pods. */ -}}
{{- define "boathook.readsGroups" -}}
{{- $wanted := toString .Values.hostGroups }}
{{- $text := concat (list (.Values.config | default "")) (values .Values.classes.own) | join "\n" }}
{{- $namesGroup := regexMatch `(?m)^[^#\n]*\b(?:node_)?group["']?[ \t]*=[ \t]*["'][^"'{\n]+["']` $text }}
{{- if or (eq $wanted "true") (and (ne $wanted "false") $namesGroup) }}true{{ end }}
{{- end }}

{{- /* Whether the programs or the configuration are at places of their own. boathook-init records them in
/var/lib/boathook.toml on the node, by which the hook, the wrapper runtime, units and `boathook follow`
find them. */ -}}
{{- define "boathook.moved" -}}
{{- if or (ne .Values.installDir "/opt/boathook") (ne .Values.configDir "/etc/boathook") -}}
{{- $directories := dict "installDir" .Values.installDir "configDir" .Values.configDir }}
{{- range $value, $directory := $directories }}
{{- range list "/tmp" "/var/tmp" "/run" "/var/run" "/dev/shm" }}
{{- if hasPrefix (printf "%s/" .) $directory }}
{{- fail (printf "%s is in %s, which nodes empty when they boot, or by a timer: choose another directory, such as /var/lib/boathook" $value .) }}
{{- end }}
{{- end }}
{{- range $other, $otherDirectory := $directories }}
{{- if and (ne $value $other) (hasPrefix (printf "%s/" $otherDirectory) (printf "%s/" $directory)) }}
{{- fail (printf "%s is in %s, and an uninstallation would remove both: choose another directory, such as /var/lib/boathook-config/boathook for configDir" $value $other) }}
{{- end }}
{{- end }}
{{- end -}}
true
{{- end -}}
{{- end }}

{{- /* The directories of the node that the init container has at the same paths below /host, by the
names of their volumes, of which the first may contain the others. For an uninstallation those above,
where empty directories can be removed: a volume's own directory cannot. A directory in another one is
mounted with that. */ -}}
{{- define "boathook.installDirectories" -}}
{{- if not .Values.uninstall }}
programs: {{ .Values.installDir }}
config: {{ .Values.configDir }}
{{- if include "boathook.moved" . }}
boathook-record: /var/lib
{{- end }}
{{- else }}
{{- $directories := dict "opt" (dir .Values.installDir) "etc" (dir .Values.configDir) }}
{{- if include "boathook.moved" . }}
{{- $_ := set $directories "boathook-record" "/var/lib" }}
{{- end }}
{{- $mounted := list }}
{{- range $directory := values $directories | uniq | sortAlpha }}
{{- $isMounted := false }}
{{- range $mounted }}
{{- if hasPrefix (printf "%s/" .) $directory }}{{ $isMounted = true }}{{ end }}
{{- end }}
{{- if not $isMounted }}
{{- $mounted = append $mounted $directory }}
{{- end }}
{{- end }}
{{- range $name, $directory := $directories }}
{{- if has $directory $mounted }}
{{- $mounted = without $mounted $directory }}
{{ $name }}: {{ $directory }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The config.toml of the nodes. It is read once more as a whole, since the tables of config and
those that other values write may not fit together. */ -}}
{{- define "boathook.config" -}}
{{- include "boathook.checkClasses" . -}}
{{- $text := include "boathook.configText" . }}
{{- $_ := include "boathook.readToml" (dict "root" . "text" $text "place" "config, with what classes, replicas, dra.classes and directories add to it,") }}
{{- $text }}
{{- end }}

{{- define "boathook.configText" -}}
{{- $config := include "boathook.checkToml" . | fromJson -}}
# The configuration of the nodes, of the plugin and of the hook. Paths are the node's.
{{- /* Keys without a table come before all tables. */}}
{{- $parts := regexSplit "(?m)^[ \\t]*\\[" (.Values.config | default "") 2 }}
{{- with first $parts | trim }}
{{ . }}
{{- end }}
{{- if and (include "boathook.moved" .) (not (hasKey $config "classes")) }}
classes = ["{{ .Values.installDir }}/current/classes.d", "{{ .Values.configDir }}/classes.d"]
{{- end }}
{{- $tables := dict }}
{{- range .Values.classes.disabled }}
{{- $_ := set $tables . (list "enabled = false") }}
{{- end }}
{{- range .Values.classes.enabled }}
{{- $_ := set $tables . (list "enabled = true") }}
{{- end }}
{{- $classes := $config.class | default dict }}
{{- range .Values.dra.classes }}
{{- /* A table in config, which has more than serve, can have it too. */}}
{{- if ne (toString (get (get $classes . | default dict) "serve")) "dra" }}
{{- $_ := set $tables . (append (get $tables . | default list) "serve = \"dra\"") }}
{{- end }}
{{- end }}
{{- range $class, $count := .Values.replicas }}
{{- $_ := set $tables $class (append (get $tables $class | default list) (printf "replicas = %d" (int $count))) }}
{{- end }}
{{- range .Values.classes.disabled }}
{{- if has . $.Values.classes.enabled }}
{{- fail (printf "class %s is in classes.enabled and in classes.disabled: leave it in one of them" .) }}
{{- end }}
{{- end }}
{{- if and $tables (regexMatch "(?m)^[ \\t]*\\[[ \\t]*[\"']?class[\"']?[ \\t]*\\]" (.Values.config | default "")) }}
{{- fail "config has the table [class] beside classes, replicas or dra.classes, which write tables of it: write [class.NAME] for each class" }}
{{- end }}
{{- range $class, $lines := $tables }}
{{- if hasKey $classes $class }}
{{- fail (printf "config has the table [class.%s], which classes, replicas or dra.classes write: set all of this class in config%s" $class (has $class $.Values.dra.classes | ternary ", with serve = \"dra\"" "")) }}
{{- end }}

[class.{{ $class }}]
{{ join "\n" $lines }}
{{- end }}
{{- if ne .Values.kubeletDir "/var/lib/kubelet" }}
{{- if not (hasKey $config "trust") }}

[trust]
kubelet_checkpoint = "{{ .Values.kubeletDir }}/device-plugins/kubelet_internal_checkpoint"
{{- else if not (hasKey $config.trust "kubelet_checkpoint") }}
{{- fail "kubeletDir is set: set kubelet_checkpoint in the table [trust] of config, too" }}
{{- end }}
{{- end }}
{{- if gt (len $parts) 1 }}

[{{ index $parts 1 }}
{{- end }}
{{- end }}
