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
{{- $values.fullnameOverride | default $full | trunc 50 | trimSuffix "-" }}{{ with .name }}-{{ . }}{{ end }}
{{- end }}

{{- define "boathook.selector" -}}
app.kubernetes.io/name: {{ include "boathook.label" . }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- define "boathook.labels" -}}
{{ include "boathook.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: boathook
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
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
{{ .Values.serviceAccount.name | default (include "boathook.fullname" .) }}
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
{{- with concat .Values.tolerations .Values.extraTolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $built := list
    (dict "key" "kubernetes.io/os" "operator" "In" "values" (list "linux"))
    (dict "key" "kubernetes.io/arch" "operator" "In" "values" (list "amd64" "arm64")) }}
{{- $affinity := deepCopy .Values.affinity }}
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

{{- define "boathook.updateStrategy" -}}
updateStrategy:
  {{- with .root.Values.updateStrategy }}
  {{- toYaml . | nindent 2 }}
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

{{- /* Labels and annotations of the pods of the plugin and of the follower. */ -}}
{{- define "boathook.podMetadata" -}}
metadata:
  labels:
    {{- include "boathook.labels" . | nindent 4 }}
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

{{- /* A TOML text as JSON: with "root", "text" and "place", the value that has the text. An older Helm
cannot read TOML, or not all of TOML 1.1 that the nodes read, and has an empty table; a template that
names a function which Helm lacks would not even be read, so it is a text here. */ -}}
{{- define "boathook.readToml" -}}
{{- $table := dict }}
{{- if semverCompare ">=3.20.0-0 <4.0.0-0 || >=4.1.0-0" .root.Capabilities.HelmVersion.Version }}
{{- $table = tpl "{{ fromToml .text | toJson }}" (dict "text" .text "Template" .root.Template) | fromJson }}
{{- with get $table "Error" }}
{{- fail (printf "%s is not TOML: %v" $.place .) }}
{{- end }}
{{- end }}
{{- toJson $table }}
{{- end }}

{{- /* Refuses a key that a table cannot have: with "table", "known", the keys that it can have, and
"place". */ -}}
{{- define "boathook.checkKeys" -}}
{{- range $key, $value := .table }}
{{- if not (has $key $.known) }}
{{- fail (printf "%s has the key %s, which is unknown: correct it; the keys are %s" $.place $key (join ", " $.known)) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Refuses a key that a table cannot have, and a value of another type: with "table", "types", the
type of each key, and "place". */ -}}
{{- define "boathook.checkTable" -}}
{{- include "boathook.checkKeys" (dict "table" .table "known" (keys .types | sortAlpha) "place" .place) }}
{{- range $key, $value := .table }}
{{- $type := get $.types $key }}
{{- if not (include "boathook.fits" (dict "value" $value "type" $type)) }}
{{- fail (printf "%s has %s = %s, which has to be %s: correct it" $.place $key (toJson $value) $type) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Whether a value of a JSON text has a type of keys.json, such as `array of strings or tables of
strings`: an array's items have what follows, and else alternatives are separated by `or`. */ -}}
{{- define "boathook.fits" -}}
{{- $type := .type }}
{{- $fits := true }}
{{- $inner := regexReplaceAll "^(array|table)s? of " $type "" }}
{{- if regexMatch "^arrays? of " $type }}
{{- $fits = kindIs "slice" .value }}
{{- range $fits | ternary .value list }}
{{- $fits = and $fits (include "boathook.fits" (dict "value" . "type" $inner)) }}
{{- end }}
{{- else if contains " or " $type }}
{{- $fits = false }}
{{- range splitList " or " $type }}
{{- $fits = or $fits (include "boathook.fits" (dict "value" $.value "type" .)) }}
{{- end }}
{{- else if hasPrefix "table" $type }}
{{- $fits = kindIs "map" .value }}
{{- if ne $inner $type }}
{{- range $fits | ternary .value dict }}
{{- $fits = and $fits (include "boathook.fits" (dict "value" . "type" $inner)) }}
{{- end }}
{{- end }}
{{- else if hasPrefix "integer" $type }}
{{- $fits = kindIs "float64" .value }}
{{- if $fits }}
{{- $bounds := regexFindAll "[0-9]+" $type -1 }}
{{- $fits = and (eq (floor .value) .value) (ge .value (first $bounds | float64)) (le .value (last $bounds | float64)) }}
{{- end }}
{{- else if hasPrefix "boolean" $type }}
{{- $fits = kindIs "bool" .value }}
{{- else if hasPrefix "string" $type }}
{{- $fits = kindIs "string" .value }}
{{- else }}
{{- $fits = eq $type (toJson .value) }}
{{- end }}
{{- if $fits }}true{{ end }}
{{- end }}

{{- /* Refuses what no node could read of config and of the class files in classes.own. keys.json has
the keys of this version, and the types of those of config. Returns the table of config as JSON. */ -}}
{{- define "boathook.checkToml" -}}
{{- $keys := .Files.Get "keys.json" | fromJson }}
{{- range $name, $text := .Values.classes.own }}
{{- $place := print "classes.own." $name }}
{{- $table := include "boathook.readToml" (dict "root" $ "text" $text "place" $place) | fromJson }}
{{- include "boathook.checkKeys" (dict "table" $table "known" $keys.file "place" $place) }}
{{- end }}
{{- $config := include "boathook.readToml" (dict "root" . "text" .Values.config "place" "config") | fromJson }}
{{- with $config.class }}
{{- if not (kindIs "map" .) }}
{{- fail "config has class, which is no table: write [class.NAME] for each class" }}
{{- end }}
{{- end }}
{{- include "boathook.checkTable" (dict "table" $config "types" $keys.config "place" "config") }}
{{- range $name := list "runtime" "trust" }}
{{- include "boathook.checkTable" (dict "table" (get $config $name | default dict) "types" (get $keys $name) "place" (printf "[%s] of config" $name)) }}
{{- end }}
{{- range $name, $table := $config.class }}
{{- if not (kindIs "map" $table) }}
{{- fail (printf "config has %s in [class], which is no table: write [class.NAME] for each class" $name) }}
{{- end }}
{{- include "boathook.checkTable" (dict "table" $table "types" $keys.class "place" (printf "[class.%s] of config" $name)) }}
{{- end }}
{{- toJson $config }}
{{- end }}

{{- /* The names of the image's classes as JSON, and those of them that are offered only if they are
enabled, in classes.txt with the word `off`. */ -}}
{{- define "boathook.imageClasses" -}}
{{- $known := list }}
{{- $off := list }}
{{- range .Files.Get "classes.txt" | trim | splitList "\n" }}
{{- $words := splitList " " . }}
{{- $known = append $known (first $words) }}
{{- if has "off" $words }}
{{- $off = append $off (first $words) }}
{{- end }}
{{- end }}
{{- dict "known" $known "off" $off | toJson }}
{{- end }}

{{- /* Refuses what would leave the devices of dra.classes to nobody: a class that is not offered, or
a driver without an engine that does its part. */ -}}
{{- define "boathook.checkClaims" -}}
{{- $classes := .Values.classes }}
{{- $config := (include "boathook.checkToml" . | fromJson).class | default dict }}
{{- if .Values.dra.classes }}
{{- if ne .Values.engine "cdi" }}
{{- fail (printf "dra.classes needs the engine cdi, and engine is %s: only CDI gives the devices of a claim to a container; leave dra.classes empty, or give the nodes with CDI a release of their own" .Values.engine) }}
{{- end }}
{{- $off := (include "boathook.imageClasses" . | fromJson).off }}
{{- range .Values.dra.classes }}
{{- $own := include "boathook.readToml" (dict "root" $ "text" (get $classes.own . | default "") "place" (print "classes.own." .)) | fromJson }}
{{- $isOff := has (get $own "extends" | default .) $off }}
{{- if hasKey $own "enabled" }}
{{- $isOff = not $own.enabled }}
{{- else if and (hasKey $classes.own .) (not (hasKey $own "extends")) }}
{{- $isOff = false }}
{{- end }}
{{- $table := get $config . | default dict }}
{{- if or (has . $classes.disabled) (eq (toJson (get $table "enabled")) "false") }}
{{- fail (printf "the class %s is in dra.classes and disabled: nobody would offer its devices; leave it out of one of them" .) }}
{{- end }}
{{- if and $isOff (not (or (has . $classes.enabled) (get $table "enabled"))) }}
{{- fail (printf "dra.classes names the class %s, which is offered only if it is enabled: add it to classes.enabled" .) }}
{{- end }}
{{- end }}
{{- else }}
{{- range $name, $table := $config }}
{{- if eq (toString (get $table "serve")) "dra" }}
{{- fail (printf "config leaves the class %s to the driver of claims, which runs only with dra.classes: nobody would offer its devices; add %s to dra.classes" $name $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Refuses the name of a class that no node will have: the pods would only log it.
classes.txt has the classes of the image. */ -}}
{{- define "boathook.checkClasses" -}}
{{- $classes := .Values.classes }}
{{- $known := (include "boathook.imageClasses" . | fromJson).known }}
{{- $known = concat $known (keys $classes.own) $classes.onNodes }}
{{- $named := dict }}
{{- range $place, $names := dict
    "classes.enabled" $classes.enabled
    "classes.disabled" $classes.disabled
    "dra.classes" .Values.dra.classes
    "replicas" (keys .Values.replicas) }}
{{- range $names }}
{{- $_ := set $named . $place }}
{{- end }}
{{- end }}
{{- range $name, $table := (include "boathook.checkToml" . | fromJson).class }}
{{- $_ := set $named $name "config" }}
{{- end }}
{{- /* For a Helm that cannot read TOML, which allows spaces and quotes in the header of a table. */}}
{{- range regexFindAll "(?m)^[ \\t]*\\[[ \\t]*[\"']?class[\"']?[ \\t]*\\.[ \\t]*(\"[^\"]+\"|'[^']+'|[a-z0-9-]+)" .Values.config -1 }}
{{- $_ := set $named (regexFind "(\"[^\"]+\"|'[^']+'|[a-z0-9-]+)$" . | trimAll "\"'") "config" }}
{{- end }}
{{- range $name, $place := $named }}
{{- if contains "/" $name }}
{{- fail (printf "%s has %s, which is a resource: name its class, such as nvidia-gpu for nvidia.com/gpu" $place $name) }}
{{- end }}
{{- /* Of the classes for the same hardware, one may be offered. Those on the left are offered only if
they are enabled. */}}
{{- $sameHardware := dict
    "amd-gpu-parts" (list "amd-gpu")
    "aws-neuroncore" (list "aws-neuron")
    "gpu-share" (list "nvidia-gpu")
    "pci-function" (list "sriov-vfio")
    "vfio" (list "google-tpu" "intel-qat" "pci-function" "sriov-vfio")
    "intel-fpga-region" (list "intel-fpga-af")
    "intel-fpga-regiondevel" (list "intel-fpga-af" "intel-fpga-region")
    "sriov-vfio-parts" (list "sriov-vfio")
    "xilinx-card" (list "xilinx-fpga") }}
{{- $enabled := concat $classes.enabled $.Values.dra.classes }}
{{- if has $name $enabled }}
{{- range $other := get $sameHardware $name | default list }}
{{- $isLeftOut := and (hasKey $sameHardware $other) (not (has $other $enabled)) }}
{{- if not (or $isLeftOut (has $other $classes.disabled) (eq (get $named $other) "config")) }}
{{- fail (printf "the class %s offers the devices of %s a second time: two pods would get the same device; add %s to classes.disabled" $name $other $other) }}
{{- end }}
{{- end }}
{{- end }}
{{- if not (has $name $known) }}
{{- fail (printf "%s names the class %s, which the image does not have: correct it, add its class file to classes.own, or name it in classes.onNodes if the nodes or an image of your own have it" $place $name) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Refuses what the cluster's version of Kubernetes lacks. An older API server drops the fields
that it does not know, and says nothing. Without a cluster the version is Helm's own, or the one of
--kube-version. */ -}}
{{- define "boathook.checkVersion" -}}
{{- $wanted := dict
    "dra.classes" (list (not (empty .Values.dra.classes)) "1.34" "the plugin would leave these classes to a driver that cannot run")
    "follow.enabled" (list .Values.follow.enabled "1.30" "the pods would keep the AppArmor profile that forbids what they do")
    "webhook.enabled" (list .Values.webhook.enabled "1.28" "the webhook would be asked about every pod of the cluster") }}
{{- range $value, $need := $wanted }}
{{- $oldest := index $need 1 }}
{{- if and (first $need) (semverCompare (printf "<%s.0-0" $oldest) $.Capabilities.KubeVersion.Version) }}
{{- fail (printf "%s needs Kubernetes %s, and this is %s, where %s: leave it out, or name the cluster's version with --kube-version if it is another one" $value $oldest $.Capabilities.KubeVersion.Version (last $need)) }}
{{- end }}
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
  image: {{ include "boathook.image" . }}
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
    - {name: crio-run, mountPath: /host/run/crio, readOnly: true, mountPropagation: HostToContainer}
{{- end }}

{{- define "boathook.checkEngineVolumes" -}}
# A node has one of these. The others are made, because a volume cannot be optional.
- name: containerd-run
  hostPath: {path: /run/containerd, type: DirectoryOrCreate}
- name: k3s-run
  hostPath: {path: /run/k3s/containerd, type: DirectoryOrCreate}
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

{{- /* Whether the programs or the configuration are at places of their own. What calls the programs
at their usual place cannot be used then. */ -}}
{{- define "boathook.moved" -}}
{{- if or (ne .Values.installDir "/opt/boathook") (ne .Values.configDir "/etc/boathook") -}}
{{- range $value, $isSet := dict
    "engine" (ne .Values.engine "cdi")
    "follow.enabled" .Values.follow.enabled
    "plugin.hostService" .Values.plugin.hostService }}
{{- if $isSet }}
{{- fail (printf "installDir and configDir can be set with the engine cdi, the plugin in its pod and claims alone: leave out %s" $value) }}
{{- end }}
{{- end -}}
true
{{- end -}}
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
# The configuration of the nodes, of the plugin and of the hook. Paths are the node's.
{{- /* Keys without a table come before all tables. */}}
{{- $parts := regexSplit "(?m)^[ \\t]*\\[" .Values.config 2 }}
{{- with first $parts | trim }}
{{ . }}
{{- end }}
{{- if and (include "boathook.moved" .) (not (regexMatch "(?m)^[ \\t]*classes[ \\t]*=" (first $parts))) }}
classes = ["{{ .Values.installDir }}/current/classes.d", "{{ .Values.configDir }}/classes.d"]
{{- end }}
{{- $tables := dict }}
{{- range .Values.classes.disabled }}
{{- $_ := set $tables . (list "enabled = false") }}
{{- end }}
{{- range .Values.classes.enabled }}
{{- $_ := set $tables . (list "enabled = true") }}
{{- end }}
{{- $config := (include "boathook.checkToml" . | fromJson).class | default dict }}
{{- range .Values.dra.classes }}
{{- /* A table in config, which has more than serve, can have it too. */}}
{{- if ne (toString (get (get $config . | default dict) "serve")) "dra" }}
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
{{- if and $tables (regexMatch "(?m)^[ \\t]*\\[[ \\t]*[\"']?class[\"']?[ \\t]*\\]" .Values.config) }}
{{- fail "config has the table [class] beside classes, replicas or dra.classes, which write tables of it: write [class.NAME] for each class" }}
{{- end }}
{{- range $class, $lines := $tables }}
{{- /* TOML allows spaces and quotes in the header of a table. */}}
{{- if regexMatch (printf "(?m)^[ \\t]*\\[[ \\t]*[\"']?class[\"']?[ \\t]*\\.[ \\t]*[\"']?%s[\"']?[ \\t]*\\]" $class) $.Values.config }}
{{- fail (printf "config has the table [class.%s], which classes, replicas or dra.classes write: set all of this class in config%s" $class (has $class $.Values.dra.classes | ternary ", with serve = \"dra\"" "")) }}
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
