//! Containers whose processes change what `boathook refresh` is about to exchange.

use std::time::{Duration, Instant};

use harness::demo_host::DemoHost;

use super::live_containers::Victim;
use super::{STAGE, hook};
use crate::lab::{Lab, on_each_cgroup_version};
use crate::live::boathook;
use crate::live::refreshed::update;

on_each_cgroup_version!(what_was_planted_leads_nowhere);

/// With CAP_SYS_ADMIN they can also unmount and mount. Each is refused, or done beside what
/// was planted.
fn what_was_planted_leads_nowhere(lab: &Lab) {
    for plant in [
        "umount -l /usr/lib/boathook; mount --bind /volume/directory /usr/lib/boathook",
        "umount -l /usr/lib/boathook; rmdir /usr/lib/boathook; \
         ln -s /volume/directory /usr/lib/boathook",
        "umount -l /usr/lib/boathook; mount --bind /volume /usr/lib",
        "umount -l /usr/lib/boathook; rm -r /usr/lib; ln -s /volume/directory /usr/lib",
        "rm -f /etc/ld.so.cache; ln -s /volume/file /etc/ld.so.cache",
        "rm -f /etc/ld.so.cache; mkfifo /etc/ld.so.cache",
        "rm -rf /etc/ld.so.conf.d; ln -s /volume/directory /etc/ld.so.conf.d",
        "mkdir -p /etc/ld.so.conf.d; rm -f /etc/ld.so.conf.d/*; ln -s /volume/file /etc/ld.so.conf.d/00-boathook.conf",
        "rm -f /etc/ld-musl-*; ln -s /volume/file /etc/ld-musl-x86_64.path",
        "mount --bind /volume /etc",
        "mount -t tmpfs none /usr/lib/boathook; ln -s /volume/directory /usr/lib/boathook/lib",
    ] {
        let host = DemoHost::new().unwrap();
        let victim = Victim::new(":", |builder| {
            let builder = builder.hook(STAGE, hook(&host)).sys_admin();
            builder.env(DemoHost::VARIABLE, "npu-3")
        });
        let running = victim.start(lab);
        let there = running.output(&["ls", "/usr/lib/boathook/lib"]).unwrap();
        assert!(there.contains("libdummy-npu.so.1"), "{there}");
        update(&host);
        running.output(&["/bin/sh", "-c", plant]).unwrap();
        let since = Instant::now();
        let ran = boathook(lab, &host, &["refresh", victim.id()]);
        assert!(
            since.elapsed() < Duration::from_secs(14),
            "{plant}: {ran:?}"
        );
        assert!(!ran.stderr.contains("panicked"), "{plant}: {ran:?}");
        victim.assert_volume_unchanged(plant);
    }
}
