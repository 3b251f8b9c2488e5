//! Class files with mistakes, or that a local user may change: only containers that request
//! their classes are stopped.

use harness::bundle::Bundle;
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;

use super::container_with_device;
use super::outcome::Outcome;
use crate::broken_classes::{Consequence, WAYS, add_broken_classes, set_mode, write};
use crate::lab::{Lab, STAGE, hook, on_each_cgroup_version, requesting};

on_each_cgroup_version!(
    broken_class_files_stop_only_containers_that_request_them,
    a_users_class_file_stops_no_container_that_does_not_request_it,
);

/// All shipped classes but the one that the container requests are broken at once.
fn broken_class_files_stop_only_containers_that_request_them(lab: &Lab) {
    let without_hook = Bundle::builder(Rootfs::Busybox).env("HOME", "/").args(LIST);
    let untouched = lab.run(&without_hook.build().unwrap());
    for (way, consequence, break_file) in WAYS {
        let host = DemoHost::new().unwrap();
        let classes = add_broken_classes(&host, break_file);
        let nothing = Bundle::builder(Rootfs::Busybox).hook(STAGE, hook(&host));
        let nothing = nothing.env("HOME", "/").args(LIST).build().unwrap();
        assert_eq!(lab.run(&nothing), untouched, "{way}");

        let other = container_with_device(&host, Rootfs::Busybox);
        let outcome = Outcome::run(lab, other);
        assert_eq!(outcome.devices(), Some(vec![3]), "{way}");

        let class = &classes[0];
        let requesting = requesting(&host, Rootfs::Busybox, class.variable(), "all");
        let outcome = Outcome::run(lab, requesting);
        match (consequence, outcome) {
            (Consequence::Refused, Outcome::Refused(said)) => {
                assert!(said.contains(&class.file.display().to_string()), "{said}");
            }
            (Consequence::LeftOut | Consequence::Disabled, Outcome::Started(_)) => {}
            (_, Outcome::Refused(said)) => panic!("{way}: refused: {said}"),
            (_, Outcome::Started(_)) => panic!("{way}: it started"),
        }
    }
}

/// The command that lists a container's own root and devices.
const LIST: [&str; 3] = [
    "/bin/sh",
    "-c",
    "ls -R /dev /etc /usr; cat /proc/mounts | wc -l; env",
];

/// A local user writes any variable that containers have into a class file of mode 0666.
fn a_users_class_file_stops_no_container_that_does_not_request_it(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let file = host.classes().join("thing.toml");
    for variable in ["PATH", "HOME", "MYSQL_DATABASE", DemoHost::VARIABLE] {
        let inline_env = "device = { env = { A = 'b' } }\n# \\u0041";
        write(
            &file,
            &format!("request.env = '{variable}'\n{inline_env}\n"),
        );
        set_mode(&file, 0o666);
        let container = container_with_device(&host, Rootfs::Busybox)
            .env("HOME", "/")
            .env("MYSQL_DATABASE", "app");
        let outcome = Outcome::run(lab, container);
        assert_eq!(outcome.devices(), Some(vec![3]), "{variable}");
    }
}
