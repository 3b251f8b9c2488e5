{{- /* What the chart refuses before anything is applied. */ -}}

{{- /* A TOML text as JSON: with "root", "text" and "place", the value that has the text. An older Helm
cannot read TOML, or not all of TOML 1.1 that the nodes read, and has what findKeys finds; a template
that names a function which Helm lacks would not even be read, so it is a text here. */ -}}
{{- define "boathook.readToml" -}}
{{- $table := include "boathook.findKeys" .text | fromJson }}
{{- if semverCompare ">=3.20.0-0 <4.0.0-0 || >=4.1.0-0" .root.Capabilities.HelmVersion.Version }}
{{- $table = tpl "{{ fromToml .text | toJson }}" (dict "text" .text "Template" .root.Template) | fromJson }}
{{- with get $table "Error" }}
{{- fail (printf "%s is not TOML: %v" $.place .) }}
{{- end }}
{{- end }}
{{- toJson $table }}
{{- end }}

{{- /* What a TOML text says about who offers a class, as JSON: enabled and extends of a class file, and
the tables [class.NAME] of config with enabled and serve. Of config it also says whether it has the key classes,
the table [trust] and its key kubelet_checkpoint, without their values. It reads lines, and no table that
is a value. */ -}}
{{- define "boathook.findKeys" -}}
{{- $found := dict }}
{{- $table := "" }}
{{- $string := `"(?:\\.|[^"\\\n])*"|'[^'\n]*'` }}
{{- $name := `(?:"[^"\n]+"|'[^'\n]+'|[A-Za-z0-9_-]+)` }}
{{- $path := printf `[ \t]*%s(?:[ \t]*\.[ \t]*%s)*[ \t]*` $name $name }}
{{- /* A text over several lines, a comment and a table that is a value may have what looks like a key. */}}
{{- $texts := printf `"""(?s:(?:\\.|[^\\])*?)"""|'''(?s:.*?)'''|#[^\n]*|(%s)` $string }}
{{- $tables := printf `\{(?:%s|[^{}"'])*\}|(%s)` $string $string }}
{{- $text := regexReplaceAll $tables (regexReplaceAll $texts . "${1}") "${1}" }}
{{- range splitList "\n" $text }}
{{- $line := trim . }}
{{- $isHeader := regexMatch (printf `^\[{1,2}%s\]{1,2}$` $path) $line }}
{{- if $isHeader }}
{{- $table = trimAll "[]" $line }}
{{- end }}
{{- $key := regexFind (printf `^%s=` $path) $line }}
{{- if or $isHeader $key }}
{{- $names := list }}
{{- range regexFindAll $name (print $table "." $key) -1 }}
{{- $names = append $names (trimAll `"'` .) }}
{{- end }}
{{- $value := trimPrefix $key $line | trim }}
{{- $place := dict }}
{{- $last := last $names }}
{{- if and (eq (first $names) "class") (eq (len $names) ($isHeader | ternary 2 3)) }}
{{- $classes := get $found "class" | default dict }}
{{- $_ := set $found "class" $classes }}
{{- $place = get $classes (index $names 1) | default dict }}
{{- $_ := set $classes (index $names 1) $place }}
{{- else if eq (len $names) 1 }}
{{- $place = $found }}
{{- end }}
{{- if eq (first $names) "trust" }}
{{- $trust := get $found "trust" | default dict }}
{{- $_ := set $found "trust" $trust }}
{{- if and $key (eq $last "kubelet_checkpoint") }}
{{- $_ := set $trust $last "" }}
{{- end }}
{{- else if and $key (eq (len $names) 1) (eq $last "classes") }}
{{- $_ := set $found "classes" list }}
{{- end }}
{{- if and $key (has $last (list "enabled" "extends" "serve")) }}
{{- if regexMatch "^(?:true|false)$" $value }}
{{- $_ := set $place $last (eq $value "true") }}
{{- else if regexMatch (printf `^(?:%s)$` $string) $value }}
{{- $_ := set $place $last (trimAll `"'` $value) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $found }}
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
{{- $config := include "boathook.readToml" (dict "root" . "text" (.Values.config | default "") "place" "config") | fromJson }}
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

{{- /* Refuses an update strategy that the API server refuses, or that leaves a node with two instances
which the kubelet cannot tell apart. Without a value Kubernetes takes 1 for maxUnavailable and 0 for
maxSurge. */ -}}
{{- define "boathook.checkUpdateStrategy" -}}
{{- $update := get .Values.updateStrategy "rollingUpdate" | default dict }}
{{- if and $update (ne (get .Values.updateStrategy "type") "OnDelete") }}
{{- $isNone := list "0" "0%" "00%" }}
{{- $isSurge := not (has (toString (get $update "maxSurge" | default 0)) $isNone) }}
{{- $isUnavailable := not (has (toString (hasKey $update "maxUnavailable" | ternary (get $update "maxUnavailable") 1)) $isNone) }}
{{- if eq $isSurge $isUnavailable }}
{{- fail (printf "updateStrategy.rollingUpdate has maxSurge and maxUnavailable (1 if it is left out) both %s, and Kubernetes wants one of them to be 0" ($isSurge | ternary "above 0" "0")) }}
{{- end }}
{{- if and $isSurge (eq .Values.register "watcher") }}
{{- fail "updateStrategy has maxSurge, and register is watcher: the kubelet's plugin watcher takes the end of the earlier pod for that of both; set maxUnavailable" }}
{{- end }}
{{- if and $isSurge .Values.plugin.hostService .Values.monitoring.enabled (not .Values.uninstall) }}
{{- fail "updateStrategy has maxSurge, and plugin.hostService serves the metrics at a port of the node, which two pods cannot have: set maxUnavailable" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Refuses a directory for CDI specifications that the plugin's container has for something else. */ -}}
{{- define "boathook.checkCdiDir" -}}
{{- $directory := printf "%s/" .Values.cdiDir }}
{{- range $value, $other := dict "kubeletDir" .Values.kubeletDir "installDir" .Values.installDir "configDir" .Values.configDir }}
{{- if hasPrefix (printf "%s/" $other) $directory }}
{{- fail (printf "cdiDir is in %s, which has other files: name the directory from which the engine reads CDI specifications, such as /var/run/cdi" $value) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Refuses other directories than those of a running release that has its own: nobody would remove
these, and the nodes' record, which a pod with the default directories does not see, would go on
naming them. With "root" and "set", the DaemonSet of the cluster, which is empty without a cluster. */ -}}
{{- define "boathook.checkMove" -}}
{{- $values := .root.Values }}
{{- $isUsed := gt (int (dig "status" "numberReady" 0 .set)) 0 }}
{{- range dig "spec" "template" "spec" "initContainers" list .set }}
{{- $arguments := get . "args" | default list }}
{{- if and $isUsed (eq .name "install") (has "install" $arguments) }}
{{- range $value, $option := dict "installDir" "--prefix=" "configDir" "--config-dir=" }}
{{- range $arguments }}
{{- if and (hasPrefix $option .) (ne (trimPrefix $option .) (get $values $value)) }}
{{- fail (printf "%s is %s on the nodes, which would keep it and go on reading it: first set uninstall to true with this value, and wait until the pods are ready" $value (trimPrefix $option .)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Refuses a RuntimeClass that would get another handler, which the API server does not change.
With "name", "handler" and "class", the RuntimeClass of the cluster: empty without a cluster. */ -}}
{{- define "boathook.checkHandler" -}}
{{- $present := get .class "handler" | default .handler }}
{{- if ne $present .handler }}
{{- fail (printf "the RuntimeClass %s of the cluster has the handler %s, which cannot be changed to %s: delete it first with kubectl delete runtimeclass %s, which ends no pod" .name $present .handler .name) }}
{{- end }}
{{- end }}

{{- /* Refuses two variables of one name: with "variables", the value of extraEnv, "own", the names that
the chart sets, and "place". */ -}}
{{- define "boathook.checkVariables" -}}
{{- $seen := .own }}
{{- range .variables }}
{{- if has .name $seen }}
{{- fail (printf "%s has the variable %s, which the container has already: leave it out" $.place .name) }}
{{- end }}
{{- $seen = append $seen .name }}
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
