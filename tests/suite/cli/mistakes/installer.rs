//! `boathook-init`.

use super::{Mistake, Wrong};

const INSTALL: &[&str] = &[
    "boathook-init",
    "install",
    "--engine",
    "docker",
    "--source",
    "PROGRAMS",
    "--classes",
    "CLASSES",
];
const UNINSTALL: &[&str] = &["boathook-init", "uninstall"];

pub(super) const MISTAKES: [Mistake; 14] = [
    Mistake {
        name: "an engine is misspelled",
        wrong: Wrong::Command,
        run: &["boathook-init", "install", "--engine", "dokcer"],
        code: 2,
        printed: [
            "unknown engine \"dokcer\"",
            "--engine",
            "docker, podman, auto, none",
        ],
    },
    Mistake {
        name: "an engine that is not there is configured",
        wrong: Wrong::Command,
        run: &[
            "boathook-init",
            "install",
            "--dry-run",
            "--engine",
            "crio",
            "--source",
            "PROGRAMS",
            "--classes",
            "CLASSES",
        ],
        code: 0,
        printed: [
            "no program of it was found",
            "crio: ",
            "`boathook-init uninstall` reverts it",
        ],
    },
    Mistake {
        name: "boathook is installed twice",
        wrong: Wrong::After(INSTALL),
        run: INSTALL,
        code: 0,
        printed: [
            "nothing to do",
            "everything is installed and configured",
            "next:",
        ],
    },
    Mistake {
        name: "boathook is removed twice",
        wrong: Wrong::Command,
        run: UNINSTALL,
        code: 0,
        printed: ["nothing to do", "", ""],
    },
    Mistake {
        name: "boathook is removed twice, with a restart",
        wrong: Wrong::Command,
        run: &["boathook-init", "uninstall", "--restart"],
        code: 0,
        printed: ["nothing to do", "", ""],
    },
    Mistake {
        name: "boathook is removed under a running container",
        wrong: Wrong::Host(
            "/run/containerd/io.containerd.runtime.v2.task/moby/abc123/runtime",
            "/opt/boathook/current/bin/boathook-runtime",
        ),
        run: UNINSTALL,
        code: 1,
        printed: [
            "cannot be stopped without it",
            "abc123",
            "stop them first, or use --force",
        ],
    },
    Mistake {
        name: "boathook is removed under a stopped container",
        wrong: Wrong::Host(
            "/var/lib/docker/containers/abc123/hostconfig.json",
            "{\"Runtime\": \"boathook\"}",
        ),
        run: UNINSTALL,
        code: 0,
        printed: [
            "cannot be started without it",
            "abc123",
            "create them again",
        ],
    },
    Mistake {
        name: "an option of the installer is misspelled",
        wrong: Wrong::Command,
        run: &["boathook-init", "install", "--restrat"],
        code: 2,
        printed: ["unexpected argument", "'--restrat'", "'--restart'"],
    },
    Mistake {
        name: "a wrong config.toml is to be installed",
        wrong: Wrong::Host("/etc/bad.toml", "x = 1\n"),
        run: &[
            "boathook-init",
            "install",
            "--source",
            "PROGRAMS",
            "--classes",
            "CLASSES",
            "--config",
            "CLASSES/../root/etc/bad.toml",
        ],
        code: 1,
        printed: ["unknown key `x`", "bad.toml:1", "known keys here"],
    },
    Mistake {
        name: "a source without programs",
        wrong: Wrong::Command,
        run: &["boathook-init", "install", "--source", "CLASSES"],
        code: 1,
        printed: [
            "has no programs",
            "/classes",
            "use --source with the directory of a release",
        ],
    },
    Mistake {
        name: "a source without classes",
        wrong: Wrong::Command,
        run: &["boathook-init", "install", "--source", "PROGRAMS"],
        code: 1,
        printed: [
            "no class files",
            "classes.d",
            "name their directory with --classes",
        ],
    },
    Mistake {
        name: "another user installs",
        wrong: Wrong::User,
        run: INSTALL,
        code: 1,
        printed: ["must be run as root", "boathook-init: ", "sudo"],
    },
    Mistake {
        name: "another user removes",
        wrong: Wrong::User,
        run: UNINSTALL,
        code: 1,
        printed: ["must be run as root", "boathook-init: ", "sudo"],
    },
    Mistake {
        name: "nothing is installed",
        wrong: Wrong::Command,
        run: &["boathook-init", "status"],
        code: 1,
        printed: [
            "boathook is not installed",
            "docker",
            "boathook-init install",
        ],
    },
];
