//! The programs of a node and of a control plane, and their configuration.

use std::path::Path;

use super::engine::Engine;
use super::release::MinorVersion;

/// The file that says how to reach the API server, as an administrator.
pub(super) const CONFIG: &str = "/etc/kubernetes/admin.conf";

/// A program that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Daemon {
    Containerd,
    CriO,
    Etcd,
    ApiServer,
    ControllerManager,
    Scheduler,
    Proxy,
    Kubelet,
}

impl Daemon {
    /// Those that are started after the engine, in this order.
    pub(super) const OF_KUBERNETES: [Self; 6] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Proxy,
        Self::Kubelet,
    ];

    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::CriO => "crio",
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Proxy => "kube-proxy",
            Self::Kubelet => "kubelet",
        }
    }

    pub(super) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Containerd | Self::CriO => &[],
            Self::Etcd => &["--data-dir=/run/etcd", "--unsafe-no-fsync"],
            Self::ApiServer => &[
                "--etcd-servers=http://127.0.0.1:2379",
                "--cert-dir=/etc/kubernetes/pki",
                "--advertise-address=10.99.0.1",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--token-auth-file=/etc/kubernetes/tokens",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-account-key-file=/etc/kubernetes/pki/sa.key",
                "--service-account-signing-key-file=/etc/kubernetes/pki/sa.key",
                "--authorization-mode=RBAC",
                "--allow-privileged",
                "--kubelet-preferred-address-types=InternalIP",
            ],
            Self::ControllerManager => &[
                "--kubeconfig=/etc/kubernetes/admin.conf",
                "--service-account-private-key-file=/etc/kubernetes/pki/sa.key",
                "--root-ca-file=/etc/kubernetes/pki/apiserver.crt",
                "--leader-elect=false",
                // Nodes that are objects alone do not report.
                "--node-monitor-grace-period=24h",
            ],
            Self::Scheduler => &["--config=/etc/kubernetes/scheduler.yaml"],
            Self::Proxy => &[
                "--kubeconfig=/etc/kubernetes/admin.conf",
                "--proxy-mode=iptables",
                "--cluster-cidr=10.88.0.0/16",
                "--hostname-override=node-0",
                "--conntrack-max-per-core=0",
            ],
            Self::Kubelet => &[
                "--config=/etc/kubernetes/kubelet.yaml",
                "--kubeconfig=/etc/kubernetes/admin.conf",
                "--hostname-override=node-0",
                "--node-ip=10.99.0.1",
            ],
        }
    }

    /// A script that succeeds when it answers; empty: nobody waits for it.
    pub(super) fn ready(self) -> &'static str {
        match self {
            Self::Containerd => "ctr --connect-timeout 1s version",
            Self::CriO => "crio status info",
            Self::ApiServer => "kubectl get --raw /readyz",
            Self::Kubelet => "kubectl get --raw /api/v1/nodes/node-0/proxy/healthz",
            _ => "",
        }
    }
}

/// Addresses, mounts and keys. `/` is a shared mount, as systemd makes it. The kubelet sets
/// some of the machine's settings, which are hidden from it; a /proc without anything over
/// it is what the kernel requires before it mounts one in a user namespace. What idmapped
/// mounts and overlays lie on must not be an overlay itself.
pub(super) const PREPARATION: &str = "
    ip link set lo up
    ip link add ext type bridge
    ip address add 10.99.0.1/24 dev ext
    ip link set ext up
    ip route add default via 10.99.0.254
    mount --make-rshared /
    for directory in containerd containers kubelet; do
        mkdir -p /var/lib/$directory
        mount -t tmpfs tmpfs /var/lib/$directory
    done
    mkdir -p /run/settings /run/proc
    mount -t proc proc /run/proc
    for name in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \\
            kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
        copy=/run/settings/$(basename $name)
        cat /proc/sys/$name >$copy
        mount --bind $copy /proc/sys/$name
    done
    mkdir -p /opt/cni /etc/kubernetes/pki
    ln -s /usr/lib/cni /opt/cni/bin
    echo 1 >/proc/sys/net/ipv4/ip_forward
    openssl genrsa -out /etc/kubernetes/pki/sa.key 2048
";

/// By path: the files of configuration. The node's cgroups are below `cgroup`.
pub(super) fn configuration(
    engine: Engine,
    cgroup: &Path,
    version: MinorVersion,
) -> [(&'static str, String); 6] {
    let (path, of_engine) = engine.configuration();
    let mut kubelet = format!(
        "cgroupRoot: {}\ncontainerRuntimeEndpoint: unix://{}\n{KUBELET}",
        cgroup.display(),
        engine.socket()
    );
    // An earlier kubelet does not know the key, and refuses its file.
    if version >= MinorVersion(31) {
        kubelet.push_str("failCgroupV1: false\n");
    }
    [
        (path, of_engine.to_owned()),
        ("/etc/cni/net.d/10-bridge.conflist", NETWORK.to_owned()),
        (
            "/etc/kubernetes/tokens",
            "administrator,admin,0,system:masters\n".to_owned(),
        ),
        (CONFIG, ADMINISTRATOR.to_owned()),
        ("/etc/kubernetes/scheduler.yaml", SCHEDULER.to_owned()),
        ("/etc/kubernetes/kubelet.yaml", kubelet),
    ]
}

const NETWORK: &str = r#"{"cniVersion": "1.0.0", "name": "pods", "plugins": [{
    "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}]],
             "routes": [{"dst": "0.0.0.0/0"}]}}]}
"#;

const ADMINISTRATOR: &str = "apiVersion: v1
kind: Config
clusters:
- name: cluster
  cluster: {server: 'https://10.99.0.1:6443', certificate-authority: /etc/kubernetes/pki/apiserver.crt}
users:
- name: admin
  user: {token: administrator}
contexts:
- name: cluster
  context: {cluster: cluster, user: admin}
current-context: cluster
";

const SCHEDULER: &str = "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: /etc/kubernetes/admin.conf}
leaderElection: {leaderElect: false}
";

const KUBELET: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
evictionHard: {memory.available: '0%', nodefs.available: '0%', imagefs.available: '0%', nodefs.inodesFree: '0%'}
imageGCHighThresholdPercent: 100
failSwapOn: false
# As many pods as a case starts at once, images included.
serializeImagePulls: false
";
