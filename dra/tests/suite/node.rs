//! A node for one test: its directories, a fake API server and the driver as a process.

use std::ffi::OsStr;
use std::fmt::{Debug, Display};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use harness::kubelet::dra::{DraDriver, registration_sockets};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::api_server::ApiServer;

pub(crate) const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// A class whose devices are files below /sys.
pub(crate) const NPUS: &str = "version = 1\nresource = 'dummy.com/npu'\n\
    request = { env = 'DUMMY_VISIBLE_DEVICES' }\n\
    discover = [{ path = '/sys/npu/npu{index:number}', attributes = [{ name = 'memory', file = 'memory' }] }]\n\
    [device]\nid = 'NPU.{index}'\nindex = '{index}'\nhealth = [{ file = 'state', equals = 'ok' }]\n\
    env = { NPU_MEMORY = '{memory}' }\n";

/// The path of the kubelet checkpoint.
pub(crate) const CHECKPOINT: &str = "kubelet/device-plugins/kubelet_internal_checkpoint";

/// The name of the driver's own pod.
pub(crate) const POD: &str = "boathook-dra-1";

/// How long a test waits on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The directories of a node, the fake API server, and the process of the driver.
pub(crate) struct Node {
    pub(crate) server: ApiServer,
    directory: TempDir,
    pub(crate) process: Option<Child>,
    /// The uid of the driver's pod.
    pub(crate) instance: String,
    /// The time between two rescans, in seconds.
    pub(crate) rescan: &'static str,
    /// Additional command-line options of the driver.
    pub(crate) options: Vec<String>,
    /// The command that starts the driver, such as `unshare` with its arguments.
    pub(crate) within: Vec<String>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Node {
    /// Makes a node with the class `npu` and `devices` devices. The driver does not run yet.
    pub(crate) async fn new(class: &str, devices: usize) -> Self {
        let server = ApiServer::start().await;
        let object = json!({"apiVersion": "v1", "kind": "Node"});
        server.put("/api/v1/nodes/worker", object);
        let node = Self {
            server,
            directory: tempfile::tempdir().unwrap(),
            process: None,
            instance: "11111111-0000-4000-8000-000000000001".to_owned(),
            rescan: "1",
            options: Vec::new(),
            within: Vec::new(),
        };
        for directory in [
            "classes",
            "kubelet/plugins_registry",
            "host/sys/npu",
            "host/dev",
        ] {
            fs::create_dir_all(node.path(directory)).unwrap();
        }
        node.write("classes/npu.toml", class);
        node.write_kubelet_claims(&[]);
        node.configure("[class.npu]\nserve = 'dra'\n");
        for number in 0..devices {
            node.device(number, "ok");
        }
        let client = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": node.server.url()}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        node.write("kubeconfig", &client.to_string());
        node
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }

    /// Writes the kubelet's record of claims, with one pod for each claim uid.
    pub(crate) fn write_kubelet_claims(&self, uids: &[&str]) {
        let claim = |uid: &&str| json!({"ClaimUID": uid, "PodUIDs": {"p-1": {}}});
        let claims: Vec<Value> = uids.iter().map(claim).collect();
        let data = json!({ "ClaimInfoStateList": claims }).to_string();
        let text = json!({"Data": data, "Checksum": 0}).to_string();
        self.write("kubelet/dra_manager_state", &text);
    }

    pub(crate) fn configure(&self, more: &str) {
        let (classes, host) = (self.path("classes"), self.path("host"));
        self.write(
            "config.toml",
            &format!("classes = [{classes:?}]\nhost_root = {host:?}\n{more}"),
        );
    }

    /// Adds a second class, `other`, with two devices.
    pub(crate) fn add_others(&self) {
        let other = "version = 1\nresource = 'dummy.com/other'\nrequest = { env = 'OTHERS' }\n\
            discover = [{ count = 2 }]\n[device]\nid = 'other-{index}'\n";
        self.write("classes/other.toml", other);
        self.configure("[class.npu]\nserve = 'dra'\n[class.other]\nserve = 'dra'\n");
    }

    /// Makes a device with the given state, or changes the state of an existing one.
    pub(crate) fn device(&self, number: usize, state: &str) {
        let directory = format!("host/sys/npu/npu{number}");
        self.write(&format!("{directory}/memory"), "64\n");
        self.write(&format!("{directory}/state"), state);
    }

    /// Returns the command that starts the driver.
    fn command(&self) -> Command {
        let driver = match std::env::var_os("BOATHOOK_TESTS_PROGRAMS") {
            Some(directory) => Path::new(&directory).join("boathook-dra"),
            None => env!("CARGO_BIN_EXE_boathook-dra").into(),
        };
        let mut words = self
            .within
            .iter()
            .map(OsStr::new)
            .chain([driver.as_os_str()]);
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .args(["run", "--node-name", "worker", "--rescan", self.rescan])
            .args(["--pod-uid", &self.instance, "--pod-name", POD])
            .args(&self.options)
            .arg("--kubelet-dir")
            .arg(self.path("kubelet"))
            .arg("--cdi")
            .arg(self.path("cdi"))
            .arg("--config")
            .arg(self.path("config.toml"))
            .env("KUBECONFIG", self.path("kubeconfig"))
            .stdin(Stdio::null());
        command
    }

    /// Starts the driver, and registers it as the kubelet does.
    pub(crate) async fn start(&mut self) -> DraDriver {
        self.kill();
        self.process = Some(self.command().spawn().unwrap());
        self.registered().await
    }

    /// Starts the driver as [`Node::start`] does, and writes its messages to the file `log`.
    pub(crate) async fn start_with_log(&mut self) -> DraDriver {
        self.kill();
        let log = fs::File::create(self.path("log")).unwrap();
        self.process = Some(self.command().stderr(log).spawn().unwrap());
        self.registered().await
    }

    /// Runs a driver that is expected to end by itself.
    pub(crate) fn run(&self) -> Output {
        self.command().output().unwrap()
    }

    /// Starts another instance, as a rolling update does, and returns the old one.
    pub(crate) fn replaced(&mut self) -> Option<Child> {
        self.instance = "22222222-0000-4000-8000-000000000002".to_owned();
        let new = self.command().spawn().unwrap();
        self.process.replace(new)
    }

    pub(crate) fn registration_sockets(&self) -> Vec<PathBuf> {
        registration_sockets(&self.path("kubelet"))
    }

    /// Registers the driver as the kubelet does, when its socket exists.
    pub(crate) async fn registered(&self) -> DraDriver {
        let start = Instant::now();
        loop {
            let sockets = self.registration_sockets();
            let own = sockets
                .iter()
                .find(|path| path.to_string_lossy().contains(&self.instance));
            if let Some(socket) = own
                && let Ok(driver) = DraDriver::register(socket).await
            {
                return driver;
            }
            assert!(start.elapsed() < PATIENCE, "the driver does not register");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the process id of the driver.
    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    /// Waits until the driver's process has ended.
    pub(crate) async fn wait_killed(&self) {
        let stat = format!("/proc/{}/stat", self.pid());
        let is_dead = || fs::read_to_string(&stat).unwrap().contains(") Z ");
        wait("it is killed", is_dead).await;
    }

    /// Kills the driver.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Returns the slices of the node, sorted by name.
    pub(crate) fn slices(&self) -> Vec<Value> {
        self.server.list(SLICES)
    }

    /// Returns the devices of all published slices.
    pub(crate) fn devices(&self) -> Vec<Value> {
        let slices = self.slices();
        let devices = slices
            .iter()
            .flat_map(|one| one["spec"]["devices"].as_array());
        devices.flatten().cloned().collect()
    }

    pub(crate) async fn wait_devices(&self, what: &str, wanted: impl Fn(&[Value]) -> bool) {
        wait(what, || wanted(&self.devices())).await;
    }

    /// Waits until `count` devices are published.
    pub(crate) async fn wait_count(&self, count: usize) {
        let what = format!("{count} devices");
        self.wait_devices(&what, |all| all.len() == count).await;
    }

    /// Allocates devices to a claim, as the scheduler does. `devices` has pairs of a request
    /// and a device.
    pub(crate) fn allocate(&self, name: &str, uid: &str, devices: &[(&str, &str)]) {
        let of_npus = |(request, device): &(&str, &str)| result(request, "npu", device);
        self.claim(name, uid, allocation(devices.iter().map(of_npus)));
    }

    pub(crate) fn claim(&self, name: &str, uid: &str, allocation: Value) {
        self.claim_of(&["p"], name, uid, allocation);
    }

    /// Creates a claim that the given pods may use.
    pub(crate) fn claim_of(&self, pods: &[&str], name: &str, uid: &str, allocation: Value) {
        let pod = |name: &&str| json!({"resource": "pods", "name": name, "uid": name});
        let reserved: Value = pods.iter().map(pod).collect();
        let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"uid": uid}, "spec": {},
            "status": {"allocation": allocation, "reservedFor": reserved}});
        self.server.put(&claim_path(name), object);
    }

    /// Prepares a claim for one device of a class, with the device's name.
    pub(crate) async fn prepare(
        &self,
        driver: &DraDriver,
        class: &str,
        device: &str,
    ) -> Result<(), String> {
        let uid = uid_for(device);
        self.claim(device, &uid, allocation([result("r", class, device)]));
        let prepared = driver.prepare_one(["n", device, &uid]).await;
        prepared.map(drop).map_err(|error| error.to_string())
    }

    /// Writes a kubelet checkpoint in which a container has the given devices from the device
    /// plugin.
    pub(crate) fn by_plugin(&self, resource: &str, ids: &[&str]) {
        let entry = json!({"PodUID": "p", "ContainerName": "c", "ResourceName": resource,
            "DeviceIDs": {"-1": ids}});
        let entries: Vec<Value> = ids.first().map(|_| entry).into_iter().collect();
        let record = json!({"Data": {"PodDeviceEntries": entries}, "Checksum": 1});
        self.write(CHECKPOINT, &record.to_string());
    }

    /// Makes the cgroups of the driver's own pod and of the given pods, and of no others.
    pub(crate) fn set_pod_cgroups(&self, pods: &[&str]) {
        let directory = self.path("host/sys/fs/cgroup/kubepods");
        _ = fs::remove_dir_all(&directory);
        for pod in pods.iter().chain([&&*self.instance]) {
            fs::create_dir_all(directory.join(format!("pod{pod}/container"))).unwrap();
        }
    }

    /// Returns the names in a directory.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        names(&self.path(path))
    }

    /// Waits for a claim's CDI specification, which the driver writes after its start.
    pub(crate) async fn wait_specification(&self, uid: &str) {
        let name = format!("boathook.dev-claim-{uid}.json");
        wait("a specification", || self.names("cdi") == [&*name]).await;
    }

    /// Returns the devices of a claim's CDI specification.
    pub(crate) fn specified(&self, uid: &str) -> Vec<Value> {
        let path = self.path(&format!("cdi/boathook.dev-claim-{uid}.json"));
        let text = fs::read_to_string(path).unwrap();
        let specification: Value = serde_json::from_str(&text).unwrap();
        specification["devices"].as_array().unwrap().clone()
    }
}

pub(crate) fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub(crate) fn claim_path(name: &str) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/n/resourceclaims/{name}")
}

/// Returns the allocation result for a request: a device of a class of this node.
pub(crate) fn result(request: &str, class: &str, device: &str) -> Value {
    json!({"request": request, "driver": "boathook.dev", "pool": format!("worker/{class}"),
        "device": device})
}

/// Returns an allocation result with `adminAccess` for a device of the class `npu`. Such a
/// claim does not reserve the device.
pub(crate) fn watched(device: &str) -> Value {
    let mut result = result("r", "npu", device);
    result["adminAccess"] = true.into();
    result
}

pub(crate) fn allocation(results: impl IntoIterator<Item = Value>) -> Value {
    let results: Vec<Value> = results.into_iter().collect();
    json!({"devices": {"results": results}})
}

/// Checks that a preparation fails with an error that contains `wanted`.
pub(crate) async fn refused<T: Debug, E: Display>(
    prepared: impl Future<Output = Result<T, E>>,
    wanted: &str,
) {
    let error = match prepared.await {
        Ok(devices) => panic!("{devices:?} in place of {wanted:?}"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains(wanted), "{error}, not {wanted:?}");
}

/// Returns the uid of the claim for a device. It has the last 24 characters of the device's
/// name only, because a uid has at most 36 characters.
fn uid_for(device: &str) -> String {
    format!("u-{}", &device[device.len().saturating_sub(24)..])
}

/// Ends a claim that `Node::prepare` prepared.
pub(crate) async fn unprepare(driver: &DraDriver, device: &str) {
    driver
        .unprepare(["n", device, &uid_for(device)])
        .await
        .unwrap();
}

/// Waits until a condition is true.
pub(crate) async fn wait(what: &str, is_true: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < PATIENCE, "not in {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
