{{- /* What the programs beside the nodes have in common. Each definition takes a
dictionary with "root", the chart's top, and "name", scheduler or webhook. */ -}}

{{- define "boathook.cluster.image" -}}
{{- with .root.Values.clusterImage -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.root.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Binds a role to the program's ServiceAccount: with "kind", Role or ClusterRole. */ -}}
{{- define "boathook.cluster.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
{{ include (eq .kind "Role" | ternary "boathook.metadata" "boathook.global") . }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ include "boathook.component" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "boathook.component" . }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{- /* ServiceAccount, Deployment, Service, PodDisruptionBudget and NetworkPolicy: with
"args", "port" (its name, its number in the pod and in the Service), and perhaps "volume",
which is mounted under its name. */ -}}
{{- define "boathook.cluster.program" -}}
{{- $values := index .root.Values .name }}
{{- if not $values.allowFrom }}
{{- fail (printf "set %s.allowFrom to the addresses of the control plane" .name) }}
{{- end }}
{{- $name := include "boathook.component" . }}
{{- if not (regexMatch "^[a-z][a-z0-9-]*$" $name) }}
{{- fail (printf "%s.enabled makes a Service, which cannot have the name %s: it begins with a letter, and has no dot; set fullnameOverride" .name $name) }}
{{- end }}
apiVersion: v1
kind: ServiceAccount
{{ include "boathook.metadata" . }}
{{- include "boathook.pullSecrets" .root }}
---
apiVersion: apps/v1
kind: Deployment
{{ include "boathook.metadata" . }}
spec:
  replicas: {{ $values.replicas }}
  selector:
    matchLabels:
      {{- include "boathook.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "boathook.labels" . | nindent 8 }}
      {{- with .podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "boathook.component" . }}
      {{- include "boathook.pullSecrets" .root | nindent 6 }}
      priorityClassName: system-cluster-critical
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      # The nodes for which the image is built.
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions:
                  - key: kubernetes.io/os
                    operator: In
                    values: [linux]
                  - key: kubernetes.io/arch
                    operator: In
                    values: [amd64, arm64]
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        seccompProfile:
          type: RuntimeDefault
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "boathook.selector" . | nindent 14 }}
      containers:
        - name: {{ .name }}
          image: {{ include "boathook.cluster.image" . | quote }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          command: [/boathook-{{ .name }}]
          args:
            {{- toYaml .args | nindent 12 }}
          ports:
            - {name: {{ .port.name }}, containerPort: {{ .port.pod }}}
            - {name: http, containerPort: 8081}
          livenessProbe:
            httpGet: {path: /healthz, port: http}
          readinessProbe:
            httpGet: {path: /readyz, port: http}
            periodSeconds: 5
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          {{- with .volume }}
          volumeMounts:
            - {name: {{ .name }}, mountPath: /{{ .name }}, readOnly: true}
          {{- end }}
      {{- with .volume }}
      volumes:
        {{- toYaml (list .) | nindent 8 }}
      {{- end }}
---
apiVersion: v1
kind: Service
{{ include "boathook.metadata" . }}
spec:
  {{- with $values.clusterIP }}
  clusterIP: {{ . | quote }}
  {{- end }}
  selector:
    {{- include "boathook.selector" . | nindent 4 }}
  ports:
    - {name: {{ .port.name }}, port: {{ .port.service }}, targetPort: {{ .port.name }}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
{{ include "boathook.metadata" . }}
spec:
  minAvailable: 1
  selector:
    matchLabels:
      {{- include "boathook.selector" . | nindent 6 }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
{{ include "boathook.metadata" . }}
spec:
  podSelector:
    matchLabels:
      {{- include "boathook.selector" . | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    - from:
        {{- range $values.allowFrom }}
        - ipBlock: {cidr: {{ . | quote }}}
        {{- end }}
      ports:
        - {port: {{ .port.name }}}
    # Prometheus; kubelets' probes are always let in.
    - ports:
        - {port: http}
{{- end }}
