//! Tests which library `ldconfig` uses with the generated `ld.so.conf`, in a root directory of
//! its own.

use super::*;

const LDCONFIG: &str = "/sbin/ldconfig";

#[test]
fn ldconfig_takes_our_library_before_any_other() {
    let tools = can_run("cc", &["--version"]) && can_run(LDCONFIG, &["--version"]);
    if !tools {
        return;
    }
    for existing in [
        None,
        Some(""),
        Some("include /etc/ld.so.conf.d/*.conf\n"),
        Some("/opt/stale\ninclude /etc/ld.so.conf.d/*.conf\n"),
        Some("/opt/stale"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(at("/etc/ld.so.conf.d")).unwrap();
        fs::write(
            at("/etc/ld.so.conf.d/libc.conf"),
            "/opt/stale\n/usr/local/lib\n",
        )
        .unwrap();
        for (directory, name) in [
            ("/opt/ours", "ours"),
            ("/opt/stale", "stale"),
            ("/usr/lib", "stale"),
        ] {
            compile_library("cc", &at(directory), name);
        }

        let ours = glibc::generate_drop_in(&[directory("/opt/ours")]);
        fs::write(at(glibc::DROP_IN_PATH), ours).unwrap();
        let conf = glibc::update_ld_so_conf(existing.map(str::as_bytes));
        let conf = conf.as_deref().or(existing.map(str::as_bytes)).unwrap();
        fs::write(at(glibc::LD_SO_CONF_PATH), conf).unwrap();

        text(
            Command::new(LDCONFIG)
                .args(["-X", "-r"])
                .arg(root.path())
                .output()
                .unwrap(),
        );
        let cache = at("/etc/ld.so.cache");
        let printed = text(
            Command::new(LDCONFIG)
                .args(["-p", "-C"])
                .arg(cache)
                .output()
                .unwrap(),
        );
        let first = printed.lines().find(|line| line.contains(SONAME)).unwrap();
        assert!(
            first.ends_with(&format!("=> /opt/ours/{SONAME}")),
            "{existing:?}: {printed}"
        );
    }
}
