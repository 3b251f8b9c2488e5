//! `boathook class test`: a container that opens a device of a class.

use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::privilege::missing_for_root;
use harness::runc;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use super::ThisHost;
use crate::said::assert_says;

const RANDOM: &str = "version = 1
resource = \"live.com/random\"
request = { env = \"LIVE_RANDOM\" }
discover = [{ path = \"/dev/random\" }]
[device]
id = \"random\"
nodes = [{ path = \"/dev/random\", container_path = \"/dev/chance\" }, \"@own@/refused\"]
";

fn class_test(host: &ThisHost) -> Captured {
    let mut command = Command::new(binaries::program("private-run").unwrap());
    command.args([
        "sh",
        "-c",
        "\"$@\"; code=$?; cat /run/boathook/log; exit $code",
        "sh",
    ]);
    command.arg(binaries::program("boathook").unwrap());
    command.arg("--config").arg(host.config_file());
    command.args(["class", "test"]);
    command.arg(host.classes.path().join("random.toml"));
    Captured::run(&mut command).unwrap()
}

#[test]
fn a_class_is_tried_in_a_container() {
    let runc = runc::program().is_none().then(|| "needs runc".to_owned());
    if let Some(reason) = missing_for_root().or(runc) {
        return skip::report("class test", &reason);
    }
    let host = ThisHost::new().class("random", RANDOM);
    let own = host.own_path("refused");
    // A node of a driver that this machine does not have.
    mknod(&own, SFlag::S_IFCHR, Mode::S_IRUSR, makedev(241, 0)).unwrap();
    // The hook has the configuration that the command has.
    let text = std::fs::read_to_string(host.config_file()).unwrap();
    std::fs::write(host.config_file(), format!("log_level = \"info\"\n{text}")).unwrap();
    let ran = class_test(&host);
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    assert_says(
        &ran.stdout,
        &[
            "class random: a container with random",
            "/dev/chance",
            "the container has opened it",
            "not opened: ENXIO",
            "boathook: info: ",
            "random of random, by the rules of this host",
        ],
    );
}
