//! The engines that an installation configures without `--engine`.

use crate::site::{Site, complaint, fixture, said};

const CONTAINERD: &str = "etc/containerd/config.toml";

/// Docker's containers do not read containerd's configuration.
#[test]
fn a_containerd_of_docker_alone_is_left_out() {
    let note = "containerd: left out: Docker uses it, and nothing on this host starts pods";
    for (sign, is_configured) in [
        (None, false),
        (Some("var/lib/kubelet/config.yaml"), true),
        (Some("usr/bin/kubelet"), true),
        (Some("etc/kubernetes/kubelet.conf"), true),
        (Some("etc/crictl.yaml"), true),
    ] {
        let site = Site::with_containerd();
        site.add_program("dockerd");
        let before = site.read(CONTAINERD);
        if let Some(file) = sign {
            site.write(file, "");
        }
        let text = said(&site.run(&["install"]));
        assert_eq!(text.contains(note), !is_configured, "{sign:?}: {text}");
        assert_eq!(site.read(CONTAINERD) != before, is_configured, "{sign:?}");
        assert!(site.read("etc/docker/daemon.json").contains("boathook"));
    }
}

#[test]
fn a_containerd_that_is_named_or_was_configured_is_configured() {
    let site = Site::with_containerd();
    said(&site.run(&["install"]));
    site.add_program("dockerd");
    let configured = site.read(CONTAINERD);
    said(&site.run(&["install"]));
    assert_eq!(site.read(CONTAINERD), configured);
    assert!(configured.contains("boathook"));

    let site = Site::with_containerd();
    site.add_program("dockerd");
    said(&site.run(&["install", "--engine=containerd"]));
    assert_eq!(site.read(CONTAINERD), configured);
}

#[test]
fn a_docker_that_is_a_snap_is_named() {
    let reason = "it is a snap (/snap/docker/current/bin/dockerd)";
    let site = Site::new(&fixture("docker/missing"));
    site.write("snap/docker/current/bin/dockerd", "");
    let text = said(&site.run(&["install"]));
    assert!(
        text.contains(&format!("docker: left out: {reason}")),
        "{text}"
    );
    let message = complaint(&site.run(&["install", "--engine=docker"]));
    assert!(message.contains(&format!("docker: {reason}")), "{message}");
    assert!(!site.path("etc/docker").exists());

    // Beside a Docker of the host, the snap does not count.
    site.add_program("dockerd");
    said(&site.run(&["install"]));
    assert!(site.path("etc/docker/daemon.json").is_file());
}
