//! Runs the programs of this crate as processes, as in a cluster.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::api_server::ApiServer;
use crate::client::{exchange, split_answer};

/// The name of the file with a program's messages. It is in the directory of the program's
/// configuration.
const LOG: &str = "log";

/// A running program. Dropping this value kills the process.
pub(crate) struct Program {
    process: Child,
    pub(crate) requests: SocketAddr,
    pub(crate) pages: SocketAddr,
    files: TempDir,
}

impl Drop for Program {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the program's log:\n{}", self.log());
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Program {
    /// Starts the extender.
    pub(crate) fn scheduler(server: &ApiServer, limit: Option<&MemoryLimit>) -> Self {
        Self::scheduler_at(server, limit, [free_address(), free_address()])
    }

    fn scheduler_at(
        server: &ApiServer,
        limit: Option<&MemoryLimit>,
        addresses: [SocketAddr; 2],
    ) -> Self {
        let files = tempfile::tempdir().unwrap();
        let config = files.path().join("scheduler.toml");
        fs::write(&config, crate::extender::CONFIG).unwrap();
        let arguments = ["--config", config.to_str().unwrap()];
        let name = "boathook-scheduler";
        Self::start(server, name, &arguments, files, limit, addresses)
    }

    /// Starts the webhook with the certificate in the directory `tls`.
    pub(crate) fn webhook(server: &ApiServer, tls: &Path, limit: Option<&MemoryLimit>) -> Self {
        let arguments = ["--tls-dir", tls.to_str().unwrap()];
        let files = tempfile::tempdir().unwrap();
        let addresses = [free_address(), free_address()];
        let name = "boathook-webhook";
        Self::start(server, name, &arguments, files, limit, addresses)
    }

    fn start(
        server: &ApiServer,
        program: &str,
        arguments: &[&str],
        files: TempDir,
        limit: Option<&MemoryLimit>,
        [requests, pages]: [SocketAddr; 2],
    ) -> Self {
        let kubeconfig = files.path().join("kubeconfig");
        let client = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server.url()}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        fs::write(&kubeconfig, client.to_string()).unwrap();
        let members = limit.map_or("/dev/null".into(), MemoryLimit::members);
        let process = Command::new("sh")
            .args(["-c", "ulimit -Sn 1024 && echo $$ > \"$0\" && exec \"$@\""])
            .arg(members)
            .arg(executable(program))
            .arg("run")
            .args(arguments)
            .args(["--listen", &requests.to_string()])
            .args(["--http", &pages.to_string()])
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stderr(File::create(files.path().join(LOG)).unwrap())
            .spawn()
            .unwrap();
        Self {
            process,
            requests,
            pages,
            files,
        }
    }

    /// Returns the text that the program has written to stderr.
    fn log(&self) -> String {
        fs::read_to_string(self.files.path().join(LOG)).unwrap()
    }

    pub(crate) async fn wait_ready(&self) {
        let start = Instant::now();
        let page = b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        while start.elapsed() < Duration::from_secs(120) {
            if TcpStream::connect(self.pages).await.is_ok() {
                let answer = exchange(self.pages, page, false).await;
                if split_answer(&answer).0 == 200 {
                    println!("ready after {:.1} s", start.elapsed().as_secs_f64());
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("not ready in two minutes");
    }

    /// Returns a figure of /proc/PID/status, in bytes.
    pub(crate) fn status(&self, key: &str) -> u64 {
        let path = format!("/proc/{}/status", self.process.id());
        let text = fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let line = line.unwrap_or_else(|| panic!("no {key}: the program has ended"));
        let digits = line.trim_matches(|c: char| !c.is_ascii_digit());
        digits.parse::<u64>().unwrap() << 10
    }
}

/// Returns the path of a program: in the directory of the variable BOATHOOK_TESTS_PROGRAMS, if
/// it is set, or as Cargo has built it.
fn executable(name: &str) -> PathBuf {
    match std::env::var_os("BOATHOOK_TESTS_PROGRAMS") {
        Some(directory) => Path::new(&directory).join(name),
        None if name == "boathook-webhook" => env!("CARGO_BIN_EXE_boathook-webhook").into(),
        None => env!("CARGO_BIN_EXE_boathook-scheduler").into(),
    }
}

/// Returns a free port of a loopback address that no other program and no client uses. A port
/// of 127.0.0.1 could be given to a client before the program binds it.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    let address = Ipv4Addr::new(127, high | 64, low, NEXT.fetch_add(1, Ordering::Relaxed));
    let listener = std::net::TcpListener::bind((address, 0)).unwrap();
    listener.local_addr().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_in_use_is_named() {
    let server = ApiServer::start().await;
    for is_taken in [[true, false], [false, true]] {
        let [requests, pages] = [free_address(), free_address()];
        let taken = if is_taken[0] { requests } else { pages };
        let _taken = std::net::TcpListener::bind(taken).unwrap();
        let mut program = Program::scheduler_at(&server, None, [requests, pages]);
        assert_eq!(program.process.wait().unwrap().code(), Some(1));
        let log = program.log();
        let said = format!("cannot listen on {taken}: ");
        assert!(log.contains(&said), "{log}");
        assert!(!log.contains("panicked"), "{log}");
    }
}

/// A cgroup with a memory limit, like that of a container. This value must outlive the
/// programs in the cgroup.
pub(crate) struct MemoryLimit(PathBuf);

impl MemoryLimit {
    /// Makes a cgroup. Returns `None` and prints the reason if no cgroup can be made.
    pub(crate) fn new(program: &str, bytes: u64) -> Option<Self> {
        let name = format!("boathook-{program}-{}", std::process::id());
        let limit = ["memory/memory.limit_in_bytes", "memory.max"]
            .iter()
            .find_map(|file| {
                let cgroup = Path::new("/sys/fs/cgroup").join(file).with_file_name(&name);
                fs::create_dir(&cgroup).ok()?;
                let file = cgroup.join(Path::new(file).file_name()?);
                let limited = file.exists() && fs::write(file, bytes.to_string()).is_ok();
                if !limited {
                    let _ = fs::remove_dir(&cgroup);
                }
                limited.then_some(cgroup)
            });
        if limit.is_none() {
            skip::report("limits of memory", "needs root and a memory controller");
        }
        limit.map(Self)
    }

    fn members(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    /// Returns the peak of the memory in use, in bytes.
    pub(crate) fn peak(&self) -> u64 {
        let files = ["memory.max_usage_in_bytes", "memory.peak"];
        let mut files = files.iter();
        let text = files.find_map(|file| fs::read_to_string(self.0.join(file)).ok());
        text.unwrap().trim().parse().unwrap()
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
