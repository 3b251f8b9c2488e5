//! Two versions of the package, one after the other, in clean roots in which Docker runs a container
//! with a device.

use harness::clean_root::Distribution;

use super::clean::Clean;
use super::printed;
use super::upgrade::{NEW, OLD, Packages};

const RUN: &str = "docker run --runtime boathook --network none -e FUSE_VISIBLE_DEVICES=all";

/// The commands with which a package is installed in a root and upgraded there.
#[derive(Clone, Copy)]
enum Format {
    Deb,
    /// The program `rpm` is this machine's: no root of a distribution with RPM can be made from
    /// Debian's packages.
    Rpm,
}

impl Format {
    fn install(self, clean: &Clean, packages: &Packages, version: &str, option: &str) {
        let extension = match self {
            Format::Deb => "deb",
            Format::Rpm => "rpm",
        };
        let package = packages.find(version, extension).unwrap();
        match self {
            Format::Deb => {
                let name = format!("boathook-{version}.deb");
                std::fs::copy(package, clean.file("/root").join(&name)).unwrap();
                clean.run(&format!("dpkg --install {name}"));
            }
            Format::Rpm => {
                printed(clean.rpm().args([option, "--nodeps"]).arg(package));
            }
        }
    }
}

#[test]
#[ignore = "long: make test-dist"]
fn a_container_of_docker_keeps_its_device_and_the_next_has_the_new_hook() {
    let packages = Packages::new();
    for (distribution, format) in [
        (Distribution::Debian, Format::Deb),
        (Distribution::Ubuntu22, Format::Deb),
        (Distribution::Ubuntu24, Format::Deb),
        (Distribution::Debian, Format::Rpm),
    ] {
        let test = format!("an upgrade with Docker on {distribution:?}");
        let Some(clean) = Clean::without_release(&test, distribution.root()) else {
            continue;
        };
        let _daemon = clean.start_docker();
        let installed_version = || {
            clean
                .run("readlink /opt/boathook/current")
                .trim()
                .to_owned()
        };
        format.install(&clean, &packages, OLD, "--install");
        clean.run("boathook-init install --engine docker --restart");
        assert_eq!(installed_version(), OLD, "{test}");
        clean.run(&format!("{RUN} --detach --name first busybox sleep 1000"));
        let open = |container: &str| {
            let opened = format!("docker exec {container} sh -c ': </dev/fuse && echo opened'");
            assert_eq!(clean.run(&opened), "opened\n", "{test}");
        };
        open("first");
        let configuration = clean.run("cat /etc/docker/daemon.json");

        format.install(&clean, &packages, NEW, "--upgrade");
        assert_eq!(installed_version(), NEW, "{test}");
        assert_eq!(clean.run("cat /etc/docker/daemon.json"), configuration);
        open("first");
        // Nothing needs the earlier version: dockerd was not started again.
        clean.run(&format!("mv /opt/boathook/{OLD} /root/earlier"));
        open("first");
        clean.run("docker restart --time 0 first");
        open("first");
        clean.run(&format!("{RUN} --detach --name second busybox sleep 1000"));
        open("second");
        // Without the new hook there is no device.
        clean.run(&format!("rm /opt/boathook/{NEW}/bin/boathook-hook"));
        clean.run(&format!("! {RUN} --rm busybox true"));
        clean.run("docker rm --force first second");
        println!("{test}: {OLD} was replaced by {NEW}");
    }
}
