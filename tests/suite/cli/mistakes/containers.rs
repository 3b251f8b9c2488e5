//! What a container asks for, and which container is meant.

use super::{DOCTOR, Mistake, Wrong};

pub(super) const MISTAKES: [Mistake; 20] = [
    Mistake {
        name: "`--runtime boathook` is forgotten",
        wrong: Wrong::Container("DUMMY_VISIBLE_DEVICES=0"),
        run: DOCTOR,
        code: 13,
        printed: [
            "config.json has no boathook hook",
            "error  hook",
            "add the hook to config.json",
        ],
    },
    Mistake {
        name: "with a runtime handler, `runtimeClassName: boathook` is forgotten",
        wrong: Wrong::Pod("trusted_pods = ['training/job']"),
        run: DOCTOR,
        code: 13,
        printed: [
            "config.json has no boathook hook",
            "error  hook",
            "set `runtimeClassName: boathook`",
        ],
    },
    Mistake {
        name: "the pod has no limit",
        wrong: Wrong::Pod("kubelet_checkpoint = '/nowhere'"),
        run: DOCTOR,
        code: 16,
        printed: [
            "no device of dummy-npu",
            "granted",
            "limits: dummy.com/npu: 1",
        ],
    },
    Mistake {
        name: "the variable is misspelled",
        wrong: Wrong::Container("DUMMY_VISIBLE_DEVICE=0"),
        run: DOCTOR,
        code: 12,
        printed: [
            "DUMMY_VISIBLE_DEVICE is set but belongs to no class",
            "error  request",
            "set DUMMY_VISIBLE_DEVICES instead of",
        ],
    },
    Mistake {
        name: "no variable is set",
        wrong: Wrong::Container("PATH=/bin"),
        run: DOCTOR,
        code: 11,
        printed: [
            "sets no variable of any class",
            "error  request",
            "-e DUMMY_VISIBLE_DEVICES=all",
        ],
    },
    Mistake {
        name: "a capability is misspelled",
        wrong: Wrong::Container("THINGS=0;THINGS_CAPABILITIES=mroe"),
        run: &["explain", "--bundle", "BUNDLE"],
        code: 0,
        printed: ["has no capability mroe", "warning", "did you mean more?"],
    },
    Mistake {
        name: "`all` leaves out a device that is not well",
        wrong: Wrong::Container("THINGS=all"),
        run: &["explain", "--bundle", "BUNDLE"],
        code: 0,
        printed: ["thing-1", "state is `hot`", "is left out: it is unhealthy"],
    },
    Mistake {
        name: "the device does not exist",
        wrong: Wrong::Container("DUMMY_VISIBLE_DEVICES=64"),
        run: DOCTOR,
        code: 5,
        printed: [
            "has no device `64`",
            "env DUMMY_VISIBLE_DEVICES=64",
            "there are 64, from npu-0 to npu-63",
        ],
    },
    Mistake {
        name: "a device is named by what it is not called by",
        wrong: Wrong::Container("DUMMY_VISIBLE_DEVICES=0001abcd"),
        run: DOCTOR,
        code: 5,
        printed: [
            "has no device `0001abcd`",
            "env DUMMY_VISIBLE_DEVICES=0001abcd",
            "from npu-0 to npu-63",
        ],
    },
    Mistake {
        name: "`all` is misspelled",
        wrong: Wrong::Container("DUMMY_VISIBLE_DEVICES=al"),
        run: DOCTOR,
        code: 5,
        printed: [
            "has no device `al`",
            "env DUMMY_VISIBLE_DEVICES=al",
            "from npu-0 to npu-63",
        ],
    },
    Mistake {
        name: "devices are separated by blanks",
        wrong: Wrong::Container("DUMMY_VISIBLE_DEVICES=0 1"),
        run: DOCTOR,
        code: 5,
        printed: [
            "`0 1` is neither a device nor a range",
            "env DUMMY_VISIBLE_DEVICES=0 1",
            "separate several with commas",
        ],
    },
    Mistake {
        name: "a range is written backwards",
        wrong: Wrong::Container("DUMMY_VISIBLE_DEVICES=1-0"),
        run: DOCTOR,
        code: 5,
        printed: [
            "`1-0` ends before it begins",
            "env DUMMY_VISIBLE_DEVICES=1-0",
            "write 0-1",
        ],
    },
    Mistake {
        name: "the driver is not loaded",
        wrong: Wrong::Container("ABSENT=all"),
        run: DOCTOR,
        code: 15,
        printed: [
            "no device on this host",
            "class absent",
            "its driver is loaded",
        ],
    },
    Mistake {
        name: "the container's id is wrong",
        wrong: Wrong::Command,
        run: &["doctor", "--container", "no-such-container"],
        code: 10,
        printed: [
            "no container no-such-container",
            "error  container",
            "give the id",
        ],
    },
    Mistake {
        name: "the process is gone",
        wrong: Wrong::Command,
        run: &["doctor", "--pid", "4194305"],
        code: 10,
        printed: [
            "no process 4194305",
            "error  container",
            "give the id of a process",
        ],
    },
    Mistake {
        name: "the pod is on another node",
        wrong: Wrong::Command,
        run: &["doctor", "--pod", "training/job"],
        code: 10,
        printed: [
            "no container of pod training/job on this node",
            "error  container",
            "run this on the pod's node",
        ],
    },
    Mistake {
        name: "`doctor` is given no bundle",
        wrong: Wrong::Command,
        run: &["doctor", "--bundle", "/proc"],
        code: 4,
        printed: [
            "cannot be read: No such file",
            "/proc/config.json",
            "which is in each container's bundle",
        ],
    },
    Mistake {
        name: "`explain` is given no bundle",
        wrong: Wrong::Command,
        run: &["explain", "--bundle", "/proc"],
        code: 4,
        printed: [
            "cannot be read: No such file",
            "/proc/config.json",
            "which is in each container's bundle",
        ],
    },
    Mistake {
        name: "`explain` is given nothing",
        wrong: Wrong::Command,
        run: &["explain"],
        code: 2,
        printed: [
            "arguments were not provided",
            "Usage: boathook explain",
            "--bundle <DIR>",
        ],
    },
    Mistake {
        name: "the hook is run by hand",
        wrong: Wrong::Command,
        run: &["create-runtime"],
        code: 4,
        printed: [
            "contains no container state",
            "stdin",
            "only a container runtime runs this command",
        ],
    },
];
