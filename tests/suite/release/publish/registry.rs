//! A publication to a real registry on this machine, by the real skopeo.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Publication;
use crate::release::{VERSION, printed};
use crate::said::assert_says;

/// The time in which the registry must accept connections.
const START: Duration = Duration::from_secs(30);

/// Runs skopeo so that the cache that it keeps in /var/lib/containers, or below the user's home, is
/// not left on this machine. `%d` is the directory of the test, `%s` is the real skopeo.
const SKOPEO: &str = r#"#!/bin/sh
set -eu
if [ "$(id -u)" != 0 ]; then
    export XDG_DATA_HOME="%d/skopeo-data"
    exec %s "$@"
fi
exec unshare --mount sh -c 'mount -t tmpfs none /var/lib && exec "$@"' sh %s "$@"
"#;

/// A process of the registry, which ends with this value.
struct Registry {
    process: Child,
    /// The address and a directory in the registry, such as `127.0.0.1:5000/team`.
    name: String,
}

impl Registry {
    fn start(directory: &Path) -> Self {
        // The port is free for the moment between the two programs.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let configuration = directory.join("registry.yml");
        let storage = directory.join("registry");
        let text = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {storage:?}}}}}\n\
             http: {{addr: \"{address}\"}}\nlog: {{level: error, accesslog: {{disabled: true}}}}\n"
        );
        fs::write(&configuration, text).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&configuration);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(start.elapsed() < START, "the registry does not listen");
            sleep(Duration::from_millis(20));
        }
        Registry {
            process,
            name: format!("{address}/team"),
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn skopeo(publication: &Publication, arguments: &str) -> String {
    let mut skopeo = Command::new(publication.path("bin/skopeo"));
    printed(skopeo.args(arguments.split(' ')))
}

/// Replaces the skopeo of the other tests, which copies to a directory, by the real one.
fn use_real_skopeo(publication: &Publication) {
    let program = printed(Command::new("sh").args(["-c", "command -v skopeo"]));
    let script = SKOPEO
        .replace("%d", &publication.path("").display().to_string())
        .replace("%s", program.trim());
    let file = publication.path("bin/skopeo");
    fs::write(&file, script).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The tag of the version is set, and the changelog has its date.
pub(super) fn publish_to_a_registry(publication: &Publication) {
    use_real_skopeo(publication);
    let registry = Registry::start(&publication.path(""));
    let arguments = format!(
        "--registry {} --plain-http --out {{}}/in-registry --key {{}}/release.key",
        registry.name
    );
    publication.publish(&arguments).success().unwrap();

    // Everybody gets what the list says, by tag and by digest.
    let out = publication.path("in-registry");
    let images = fs::read_to_string(out.join("files/images.txt")).unwrap();
    assert_eq!(images.lines().count(), 3, "{images}");
    for line in images.lines() {
        let (name, digest) = line.split_once(' ').unwrap();
        let inspected = skopeo(
            publication,
            &format!("inspect --tls-verify=false --raw docker://{name}"),
        );
        assert_eq!(digest_of(&publication.path("raw"), &inspected), digest);
        let (repository, _) = name.rsplit_once(':').unwrap();
        let copy = publication.path(&digest.replace("sha256:", "copy-"));
        skopeo(
            publication,
            &format!(
                "copy --quiet --all --src-tls-verify=false docker://{repository}@{digest} oci:{}:x",
                copy.display()
            ),
        );
        verify_signature(publication, repository, digest);
    }
    let manifest = fs::read_to_string(out.join("files/install.yaml")).unwrap();
    let image = manifest
        .lines()
        .find_map(|line| line.trim().strip_prefix("image: "))
        .unwrap();
    skopeo(
        publication,
        &format!("inspect --tls-verify=false --no-tags docker://{image}"),
    );

    // The commands of README.md and administration.md, for a registry of one's own.
    let archive = publication.path(&format!("out/boathook-{VERSION}-image.tar"));
    skopeo(
        publication,
        &format!(
            "copy --quiet --all --preserve-digests --dest-tls-verify=false oci-archive:{} \
         docker://{}/own:{VERSION}",
            archive.display(),
            registry.name
        ),
    );

    let again = publication.publish(&arguments).success().unwrap();
    assert_eq!(again.stderr.matches("is published already").count(), 8);
    // Another image has the name meanwhile.
    let chart = format!("docker://{}/charts/boathook:{VERSION}", registry.name);
    let own = format!("docker://{}/own:{VERSION}", registry.name);
    skopeo(
        publication,
        &format!("copy --quiet --src-tls-verify=false --dest-tls-verify=false {own} {chart}"),
    );
    let refused = publication.publish(&arguments);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert_says(&refused.stderr, &["nothing published is replaced"]);
}

/// Returns the digest of a manifest, which is written to `file`.
fn digest_of(file: &Path, manifest: &str) -> String {
    fs::write(file, manifest).unwrap();
    let sum = printed(Command::new("sha256sum").arg(file));
    format!("sha256:{}", sum.split(' ').next().unwrap())
}

/// Verifies the signature as cosign does with a key: the manifest of the tag that is named by the
/// digest has the signature as an annotation of its payload.
fn verify_signature(publication: &Publication, repository: &str, digest: &str) {
    let tag = format!("{}.sig", digest.replace(':', "-"));
    let directory = publication.path(&tag);
    skopeo(
        publication,
        &format!(
            "copy --quiet --src-tls-verify=false docker://{repository}:{tag} dir:{}",
            directory.display()
        ),
    );
    let manifest = fs::read_to_string(directory.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    let layer = &manifest["layers"][0];
    let payload_digest = layer["digest"].as_str().unwrap();
    let payload = directory.join(payload_digest.trim_start_matches("sha256:"));
    let text = fs::read_to_string(&payload).unwrap();
    assert_says(&text, &[digest, repository]);
    let signature = layer["annotations"]["dev.cosignproject.cosign/signature"].as_str();
    let signature_file = directory.join("signature");
    fs::write(&signature_file, signature.unwrap()).unwrap();
    let binary = directory.join("signature.bin");
    let mut decode = Command::new("openssl");
    decode
        .args(["base64", "-d", "-A", "-in"])
        .arg(&signature_file);
    printed(decode.arg("-out").arg(&binary));
    let mut verify = Command::new("openssl");
    verify.args(["dgst", "-sha256", "-verify"]);
    verify.arg(publication.repository.join("dist/release-key.pub"));
    verify.arg("-signature").arg(&binary).arg(&payload);
    assert_says(&printed(&mut verify), &["Verified OK"]);
}
