//! Tests of the owners of cgroups, and helpers for tests on a real kernel.

pub(in crate::cgroup) mod prober;

use super::*;

#[test]
fn levels_have_their_paths_in_the_hierarchy() {
    // The directory is shorter than the path, as in a cgroup namespace or a mount of a part of
    // the hierarchy.
    let cgroup = CgroupDir {
        mount: "/m".into(),
        dir: "/m/b.slice/c.scope".into(),
        path: "/a.slice/b.slice/c.scope".into(),
    };
    let levels: Vec<_> = cgroup
        .self_and_ancestors()
        .map(|it| (it.dir, it.path))
        .collect();
    let expected = [
        ("/m/b.slice/c.scope", "/a.slice/b.slice/c.scope"),
        ("/m/b.slice", "/a.slice/b.slice"),
        ("/m", "/a.slice"),
    ]
    .map(|(dir, path)| (Path::new(dir), Path::new(path)));
    assert_eq!(levels, expected);
}

/// Paths of cgroups, and the owners of their levels.
const OWNERS: &str = "
/crun-1.scope/container: Container Container Enclosing
/a.slice/docker-1.scope: Container Unit Enclosing
# A container in a container, by the cgroup driver of the outer one.
/docker-1.scope/docker/2: Container Enclosing Enclosing Enclosing
/docker-1.scope/a.slice/docker-2.scope: Container Unit Enclosing Enclosing
/docker/1/2: Container Enclosing Enclosing Enclosing
/a.scope/b/c: Container Enclosing Enclosing Enclosing
/a.scope/b.scope: Container Enclosing Enclosing
/a.scope/b.service: Container Enclosing Enclosing
/system.slice/quadlet.service/libpod-payload-1: Container Unit Unit Enclosing
/kubepods/pod1/c: Container Enclosing Enclosing Enclosing
/: Enclosing
";

#[test]
fn owners_of_the_levels() {
    let lines = OWNERS.trim().lines().filter(|line| !line.starts_with('#'));
    for (path, owners) in lines.map(|line| line.split_once(": ").unwrap()) {
        let cgroup = CgroupDir {
            mount: "/cg".into(),
            dir: Path::new("/cg").join(path.trim_start_matches('/')),
            path: path.into(),
        };
        let found = cgroup
            .self_and_ancestors()
            .map(|level| format!("{:?}", level.owner));
        assert_eq!(found.collect::<Vec<_>>().join(" "), owners, "{path}");
    }
}
