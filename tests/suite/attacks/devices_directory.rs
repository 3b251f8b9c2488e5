//! Containers with a hostile /dev.

use std::fs;

use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;

use super::outcome::{Outcome, node};
use super::volume::{DATA, Volume, put_link};
use super::{KINDS, container, host_with_tools};
use crate::lab::{Lab, on_each_cgroup_version, requesting};

on_each_cgroup_version!(
    a_directory_of_the_host_as_dev,
    a_directory_of_the_host_below_dev,
    a_node_that_is_there_already,
    an_image_whose_dev_is_a_link,
);

/// Without keys the node is the host's, with them one of the container's own.
const KEYS: [&str; 2] = ["", ", mode = '0666'"];

/// A host with a class whose nodes are below a directory of /dev.
fn host_with_nodes_in(directory: &str, keys: &str) -> DemoHost {
    let host = DemoHost::new().unwrap();
    let class = format!(
        "version = 1\nresource = 'deep.com/npu'\nrequest = {{ env = 'DEEP_VISIBLE_DEVICES' }}\n\
         [[discover]]\npath = '/dev/dummy-npu{{index:number}}'\n\
         [device]\nid = 'deep-{{index}}'\n\
         nodes = [{{ path = '/dev/dummy-npu{{index}}', \
         container_path = '{directory}/deep{{index}}'{keys} }}]\n"
    );
    host.add_class("deep", &class).unwrap();
    host
}

fn asking_for_the_deep_one(host: &DemoHost) -> harness::bundle::BundleBuilder {
    requesting(host, Rootfs::Busybox, "DEEP_VISIBLE_DEVICES", "deep-3")
}

/// It is not the container's own: nothing is made in it.
fn a_directory_of_the_host_as_dev(lab: &Lab) {
    for keys in KEYS {
        let host = host_with_nodes_in("/dev", keys);
        for (name, kind) in KINDS {
            let volume = Volume::with_nodes();
            let builder = asking_for_the_deep_one(&host).bind(volume.path(), "/dev");
            Outcome::run(lab, kind(builder));
            volume.assert_untouched(&format!("{name}{keys}"));
        }
    }
}

fn a_directory_of_the_host_below_dev(lab: &Lab) {
    for keys in KEYS {
        for place in ["/dev/npu", "/dev/shm/npu"] {
            let host = host_with_nodes_in(place, keys);
            let volume = Volume::full();
            let builder = asking_for_the_deep_one(&host).bind(volume.path(), place);
            Outcome::run(lab, builder);
            volume.assert_untouched(&format!("{place}{keys}"));
        }
    }
}

/// A file or a directory of the host is where the node belongs.
fn a_node_that_is_there_already(lab: &Lab) {
    let host = host_with_tools();
    for name in ["shadow", "npu"] {
        let volume = Volume::full();
        let builder = container(&host, Rootfs::Busybox).bind(&volume.path().join(name), &node(3));
        Outcome::run(lab, builder).assert_whole_or_refused(3, name);
        volume.assert_untouched(name);
    }
}

/// runc mounts its tmpfs wherever the link leads; a node that belongs in another
/// directory of the image finds a link to the volume there.
fn an_image_whose_dev_is_a_link(lab: &Lab) {
    for keys in KEYS {
        let host = host_with_nodes_in("/devices", keys);
        for target in [DATA, "/proc/self/root/data", "../../../../data/npu", "/sys"] {
            let volume = Volume::full();
            let builder = volume.mounted(asking_for_the_deep_one(&host));
            let bundle = builder.build().unwrap();
            put_link(&bundle, "/devices", target);
            drop(lab.runc.create(&bundle));
            volume.assert_untouched(&format!("{target}{keys}"));
            lab.assert_nothing_left(&bundle);
        }
        assert!(!fs::exists("/sys/deep3").unwrap());
    }
}
