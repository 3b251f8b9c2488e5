//! A hook that is started in a hostile environment: the container gets all that it
//! requested for, or does not start.

use std::path::Path;

use harness::bundle::HookCommand;
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;

use super::outcome::Outcome;
use super::{container_with_hook, hook, host_with_tools};
use crate::lab::{Lab, on_each_cgroup_version};
use crate::tree::{assert_unchanged, listing};

on_each_cgroup_version!(a_hostile_start_gives_all_or_nothing);

/// Each ends with the hook, whose command line is the arguments.
const STARTS: [&str; 30] = [
    "exec \"$@\"",
    "exec \"$@\" <&-",
    "exec \"$@\" >&-",
    "exec \"$@\" 2>&-",
    "exec \"$@\" >&- 2>&-",
    "exec \"$@\" 2>/dev/full",
    "umask 0; exec \"$@\"",
    "umask 777; exec \"$@\"",
    "ulimit -n 3; exec \"$@\"",
    "ulimit -n 8; exec \"$@\"",
    "ulimit -n 12; exec \"$@\"",
    "ulimit -n 20; exec \"$@\"",
    "ulimit -f 0; exec \"$@\"",
    "ulimit -s 1024; exec \"$@\"",
    "ulimit -v 100000; exec \"$@\"",
    "ulimit -l 0; exec \"$@\"",
    "ulimit -u 1; exec \"$@\"",
    "mkdir /tmp/boathook-gone.$$; cd /tmp/boathook-gone.$$; rmdir /tmp/boathook-gone.$$; exec \"$@\"",
    "trap '' PIPE TERM HUP INT CHLD USR1 ALRM; exec \"$@\"",
    "x=$(head -c 100000 /dev/zero | tr '\\0' x); for n in 1 2 3 4 5 6 7 8 9 10; do export V$n=$x; done; exec \"$@\"",
    "export 'LD_PRELOAD=/x' 'RUST_BACKTRACE=full' 'RUST_LOG=trace' 'TZ=/etc/shadow' 'IFS=/'; exec \"$@\"",
    "exec 3</etc/passwd 4</proc 5<> /dev/null 6</ 7</sys; exec \"$@\"",
    "exec setpriv --no-new-privs \"$@\"",
    "exec setpriv --reuid 1000 --regid 1000 --clear-groups \"$@\"",
    "exec setpriv --bounding-set -sys_admin --inh-caps -sys_admin \"$@\"",
    "exec setpriv --bounding-set -mknod --inh-caps -mknod \"$@\"",
    "exec setpriv --bounding-set -dac_override --inh-caps -dac_override \"$@\"",
    "exec unshare --mount --propagation private \"$@\"",
    "exec unshare --net --uts --ipc \"$@\"",
    "exec setarch --addr-no-randomize \"$@\"",
];

fn a_hostile_start_gives_all_or_nothing(lab: &Lab) {
    let host = host_with_tools();
    let before = listing(&host.root());
    for start in STARTS {
        let outcome = started(lab, &host, start);
        outcome.assert_whole_or_refused(3, start);
        assert_unchanged(&host.root(), &before, start);
    }
    // It is the start that is hostile.
    if let Outcome::Refused(said) = started(lab, &host, STARTS[0]) {
        panic!("{said}");
    }
}

fn started(lab: &Lab, host: &DemoHost, start: &str) -> Outcome {
    let shell = HookCommand::new(Path::new("/bin/sh")).arg("-c").arg(start);
    let hook = hook(host).behind(shell.arg("sh")).with_private_run();
    Outcome::run(lab, container_with_hook(hook.unwrap(), Rootfs::Glibc))
}
