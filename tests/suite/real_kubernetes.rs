//! A real Kubernetes: kubelet, API server, controller manager, scheduler and kube-proxy of
//! a release, with containerd and etcd of Debian's next one, on one node in namespaces of
//! its own, for `make test-kubernetes`. What is installed are the project's images and
//! manifests.

mod admission;
mod cases;
mod changes;
mod churn;
mod claims;
mod daemons;
mod engine;
mod live;
mod node;
mod overlay;
mod pod;
mod release;
mod scheduling;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use harness::binaries;
use harness::captured::Captured;
use harness::scratch;
use tempfile::TempDir;

use cases::{CASES, CHART_CASES};
use engine::Engine;
use node::Node;
use overlay::{Manifests, Overlay};
use release::MinorVersion;

/// The directory with Kubernetes' programs.
const PROGRAMS: &str = "BOATHOOK_KUBERNETES";

/// A release's directory, to use instead of images of the programs that the tests drive.
const RELEASE: &str = "BOATHOOK_RELEASE";

/// Parts of the names of the cases to run, after the first one, which installs. `|` is between parts.
const CASE: &str = "BOATHOOK_KUBERNETES_CASE";

/// The first release that has resource claims as docs/dra.md needs them.
const CLAIMS: MinorVersion = MinorVersion(34);

/// The first release that has the webhook's conditions.
const WEBHOOK: MinorVersion = MinorVersion(28);

/// Writes the images to the directory $2, of the programs in $1 without their symbols.
const IMAGES: &str = r#"
    mkdir "$2/programs" "$2/cluster"
    cp "$1"/boathook* "$2/programs"
    strip "$2"/programs/*
    initcontainer/image-files "$2/programs" "$2/node/boathook"
    cp "$2"/programs/boathook-{dra,scheduler,webhook} "$2/cluster"
    pack() {
        tar --create --owner=0 --group=0 --file "$2/$3.tar" --directory "$2/$4" .
        "$BOATHOOK_DIST" image "$2/$3" --name "$3:$1" --layer "amd64=$2/$3.tar" \
            --entrypoint "$5" --created 2026-01-01T00:00:00Z \
            --description "$3" --revision test
        tar --create --directory "$2/$3" --file "$2/$3-$1-image.tar" \
            blobs index.json manifest.json oci-layout
    }
    pack "$3" "$2" boathook node /boathook/bin/boathook-init
    pack "$3" "$2" boathook-cluster cluster /boathook-scheduler
"#;

/// The directory of the images.
struct Release {
    files: TempDir,
}

impl Release {
    fn new() -> Self {
        let files = scratch::directory("release").unwrap();
        if std::env::var_os(RELEASE).is_none() {
            let programs = binaries::program("boathook").unwrap();
            let mut script = Command::new("bash");
            script
                .args(["-euc", IMAGES, "images"])
                .args([programs.parent().unwrap(), files.path()])
                .arg(env!("CARGO_PKG_VERSION"))
                .env("BOATHOOK_DIST", binaries::program("boathook-dist").unwrap())
                .current_dir(binaries::source_tree());
            Captured::run(&mut script).unwrap().success().unwrap();
        }
        Self { files }
    }

    fn directory(&self) -> PathBuf {
        std::env::var_os(RELEASE).map_or_else(|| self.files.path().to_owned(), PathBuf::from)
    }
}

/// A line of the table, printed as soon as it is known.
struct Table {
    /// The subject of the case.
    subject: String,
    version: MinorVersion,
    failed: Vec<String>,
}

impl Table {
    fn new(subject: &str, version: MinorVersion) -> Self {
        println!("Kubernetes 1.{}\n", version.0);
        println!("| | case | outcome | s |\n|---|---|---|---|");
        Self {
            subject: subject.to_owned(),
            version,
            failed: Vec::new(),
        }
    }

    fn end(&self) {
        assert!(self.failed.is_empty(), "failed: {:?}", self.failed);
    }

    fn row(&mut self, case: &str, run: impl FnOnce() -> Result<()>) {
        if let Some(later) = self.version.find_later_version(case) {
            let subject = &self.subject;
            return println!("| {subject} | {case} | needs Kubernetes 1.{} | |", later.0);
        }
        let start = Instant::now();
        let outcome = run();
        let seconds = start.elapsed().as_secs_f64();
        let subject = &self.subject;
        match outcome {
            Ok(()) => println!("| {subject} | {case} | ok | {seconds:.1} |"),
            Err(error) => {
                println!("| {subject} | {case} | FAILED: {error:#} | {seconds:.1} |");
                self.failed.push(case.to_owned());
            }
        }
    }
}

fn programs() -> PathBuf {
    let named = std::env::var_os(PROGRAMS).expect("make test-kubernetes KUBERNETES=DIR");
    Path::new(&named).canonicalize().unwrap()
}

/// The cases with one overlay, on a node that never had Boathook.
fn each_case(overlay: Overlay, engine: Engine) {
    let release = Release::new();
    let node = Node::start(&programs(), &release.directory(), engine).unwrap();
    let files = node.files().unwrap();
    let mut table = Table::new(&format!("{engine:?}, {}", overlay.name()), node.version);
    for made_by in [Manifests::Kustomize, Manifests::Chart] {
        table.row(&format!("{made_by:?}: from apply to 64 devices"), || {
            overlay.install(&node, made_by)
        });
        let cases = match made_by {
            Manifests::Kustomize => CASES,
            Manifests::Chart => CHART_CASES,
        };
        for (name, case) in cases {
            table.row(name, || case(&node, overlay));
        }
        table.row("removal leaves the node's files as they were", || {
            overlay.remove(&node, made_by)?;
            let after = node.files()?;
            let before: Vec<&str> = files.lines().collect();
            let after: Vec<&str> = after.lines().collect();
            let more: Vec<_> = after.iter().filter(|line| !before.contains(line)).collect();
            let less: Vec<_> = before.iter().filter(|line| !after.contains(line)).collect();
            ensure!(
                more.is_empty() && less.is_empty(),
                "more {more:?}, less {less:?}"
            );
            Ok(())
        });
    }
    table.end();
}

/// What is tried beside the nodes, by its name.
type ClusterCase = (&'static str, fn(&Node) -> Result<()>);

/// Cases beside the nodes, on a cluster of their own.
fn each_of(subject: &str, engine: Engine, cases: &[ClusterCase]) {
    let release = Release::new();
    let node = Node::start(&programs(), &release.directory(), engine).unwrap();
    let mut table = Table::new(subject, node.version);
    let wanted = std::env::var(CASE).unwrap_or_default();
    for (position, (name, case)) in cases.iter().enumerate() {
        if position == 0 || wanted.split('|').any(|part| name.contains(part)) {
            table.row(name, || case(&node));
        }
    }
    table.end();
}

#[test]
#[ignore = "takes Kubernetes' programs and minutes: make test-kubernetes KUBERNETES=DIR"]
fn the_overlay_cdi() {
    each_case(Overlay::Cdi, Engine::Containerd);
}

#[test]
#[ignore = "takes Kubernetes' programs and minutes: make test-kubernetes KUBERNETES=DIR"]
fn the_overlay_of_a_handler() {
    each_case(Overlay::Containerd, Engine::Containerd);
}

/// Why CRI-O is not tried, if it is not.
fn no_cri_o() -> Option<&'static str> {
    let is_there = ["crio", "pinns"].map(|name| programs().join(name).exists());
    (is_there != [true; 2]).then_some("KUBERNETES has no crio and pinns")
}

/// Why a table is not tried, if the programs are of a release before `first`.
fn earlier_than(first: MinorVersion) -> Option<String> {
    let is_earlier = MinorVersion::read(&programs()).unwrap() < first;
    is_earlier.then(|| format!("needs Kubernetes 1.{}", first.0))
}

#[test]
#[ignore = "takes Kubernetes' programs and minutes: make test-kubernetes KUBERNETES=DIR"]
fn the_overlay_cdi_with_cri_o() {
    if let Some(reason) = no_cri_o() {
        return skip::report(module_path!(), reason);
    }
    each_case(Overlay::Cdi, Engine::CriO);
}

#[test]
#[ignore = "takes Kubernetes' programs and minutes: make test-kubernetes KUBERNETES=DIR"]
fn the_overlay_of_a_handler_of_cri_o() {
    if let Some(reason) = no_cri_o() {
        return skip::report(module_path!(), reason);
    }
    each_case(Overlay::Crio, Engine::CriO);
}

#[test]
#[ignore = "takes Kubernetes' programs and minutes: make test-kubernetes KUBERNETES=DIR"]
fn the_extender() {
    each_of(
        "extender",
        Engine::Containerd,
        &[
            ("five nodes, four of them objects", scheduling::nodes),
            (
                "installation, and kube-scheduler's configuration",
                scheduling::install,
            ),
            ("eight pods with one GPU are on one node", scheduling::packs),
            (
                "50 + 50 of 2 x 80 GB: 40 do not fit, 30 do",
                scheduling::knows_devices,
            ),
            (
                "its metrics count kube-scheduler's requests",
                scheduling::was_asked,
            ),
            ("without it pods are scheduled", scheduling::is_ignorable),
        ],
    );
}

#[test]
#[ignore = "takes Kubernetes' programs and minutes: make test-kubernetes KUBERNETES=DIR"]
fn the_webhook() {
    if let Some(reason) = earlier_than(WEBHOOK) {
        return skip::report(module_path!(), &reason);
    }
    each_of(
        "webhook",
        Engine::Containerd,
        &[
            ("installation, with create-certificate", admission::install),
            ("a friendly name is mapped", admission::maps),
            ("an unknown name is denied", admission::denies),
            (
                "objects against the schemas are refused",
                admission::schemas,
            ),
            (
                "the certificate is replaced",
                admission::certificate_replaced,
            ),
            ("while it is down other pods are admitted", admission::down),
            (
                "cert-manager's overlay, but for its objects",
                admission::cert_manager,
            ),
        ],
    );
}

#[test]
#[ignore = "takes Kubernetes' programs and minutes: make test-kubernetes KUBERNETES=DIR"]
fn a_cluster_under_change() {
    each_of("changes", Engine::Containerd, changes::CASES);
}

#[test]
#[ignore = "takes Kubernetes' programs and minutes: make test-kubernetes KUBERNETES=DIR"]
fn a_cluster_under_change_with_cri_o() {
    if let Some(reason) = no_cri_o() {
        return skip::report(module_path!(), reason);
    }
    each_of("changes, CRI-O", Engine::CriO, changes::CASES);
}

#[test]
#[ignore = "takes Kubernetes' programs and minutes: make test-kubernetes KUBERNETES=DIR"]
fn the_churn() {
    each_of("churn", Engine::Containerd, churn::CASES);
}

#[test]
#[ignore = "takes Kubernetes' programs and minutes: make test-kubernetes KUBERNETES=DIR"]
fn the_churn_with_cri_o() {
    if let Some(reason) = no_cri_o() {
        return skip::report(module_path!(), reason);
    }
    each_of("churn, CRI-O", Engine::CriO, churn::CASES);
}

#[test]
#[ignore = "takes Kubernetes' programs and minutes: make test-kubernetes KUBERNETES=DIR"]
fn the_claims() {
    if let Some(reason) = earlier_than(CLAIMS) {
        return skip::report(module_path!(), &reason);
    }
    each_of("claims", Engine::Containerd, claims::CASES);
}

#[test]
#[ignore = "takes Kubernetes' programs and minutes: make test-kubernetes KUBERNETES=DIR"]
fn the_claims_with_cri_o() {
    if let Some(reason) = no_cri_o() {
        return skip::report(module_path!(), reason);
    }
    if let Some(reason) = earlier_than(CLAIMS) {
        return skip::report(module_path!(), &reason);
    }
    each_of("claims, CRI-O", Engine::CriO, claims::CASES);
}

#[test]
#[ignore = "takes Kubernetes' programs and minutes: make test-kubernetes KUBERNETES=DIR"]
fn devices_of_pods_that_run() {
    each_of("containerd", Engine::Containerd, live::CASES);
}

#[test]
#[ignore = "takes Kubernetes' programs and minutes: make test-kubernetes KUBERNETES=DIR"]
fn devices_of_pods_that_run_with_cri_o() {
    if let Some(reason) = no_cri_o() {
        return skip::report(module_path!(), reason);
    }
    each_of("CRI-O", Engine::CriO, live::CASES);
}
