//! The packages pass the distributions' linters, but for what the files `lintian-overrides` and
//! `rpmlint.toml` name with a reason.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;

use super::{CLUSTER_PROGRAMS, PROGRAMS, Release, VERSION};

/// A program that is linked statically, as those of a release are.
const STATIC_PROGRAM: &str = "/bin/busybox";

/// Returns what a linter printed, or `None` if it is not installed.
pub(super) fn lint(mut linter: Command) -> Option<String> {
    let ran = Captured::run(&mut linter).ok()?;
    Some(ran.stdout + &ran.stderr)
}

#[test]
fn packages_are_clean() {
    const TEST: &str = "linters of packages";
    if !Path::new(STATIC_PROGRAM).exists() {
        return skip::report(TEST, "needs busybox-static");
    }
    let release = Release::with_programs();
    let program = fs::read(STATIC_PROGRAM).unwrap();
    for name in PROGRAMS.iter().chain(&CLUSTER_PROGRAMS) {
        let file = release.path("programs").join(name);
        fs::write(&file, [&program, name.as_bytes()].concat()).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    release.make("out");

    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--tag-display-limit", "0"]);
    // busybox names the database of dpkg.
    lintian.args(["--suppress-tags", "uses-dpkg-database-directly"]);
    lintian.arg(release.file(&format!("boathook_{VERSION}_amd64.deb")));
    match lint(lintian) {
        Some(text) => {
            let tags = text.lines().filter(|line| line.starts_with(['E', 'W']));
            assert_eq!(tags.collect::<Vec<_>>(), Vec::<&str>::new());
        }
        None => skip::report(TEST, "needs lintian"),
    }

    let rpm = release.file(&format!("boathook-{VERSION}-1.x86_64.rpm"));
    let mut rpmlint = Command::new("rpmlint");
    rpmlint.arg("--config");
    rpmlint.arg(binaries::source_tree().join("dist/packages/rpmlint.toml"));
    rpmlint.arg(&rpm);
    match lint(rpmlint).filter(|_| rpm.exists()) {
        Some(text) => {
            // Unlike a release's programs, busybox is not position-independent.
            let of_busybox = |line: &&str| line.contains("position-independent-executable");
            let tags = text.lines();
            let tags = tags.filter(|line| line.contains(": E: ") || line.contains(": W: "));
            let tags = tags.filter(|line| !of_busybox(line));
            assert_eq!(tags.collect::<Vec<_>>(), Vec::<&str>::new());
            assert!(
                text.contains("1 packages and 0 specfiles checked"),
                "{text}"
            );
        }
        None => skip::report(TEST, "needs rpmbuild and rpmlint"),
    }
}
