//! Checks whether the host has the libraries and files that a class mounts into containers.

use std::path::Path;

use device_class::HostView;
use device_class::class::DeviceClass;
use device_class::discover;
use device_class::host::Entry;

/// Describes the first library or file of the class that is missing on the host. Returns `None` if
/// nothing is missing. Also returns `None` if this process does not see the host's loader cache.
/// The plugin's container usually has only the directories that a scan reads. A file that is
/// missing in the container may then exist on the host.
pub(crate) fn describe_missing_file(class: &DeviceClass, host: &dyn HostView) -> Option<String> {
    let cache = host.entry(Path::new("/etc/ld.so.cache"));
    match cache {
        Ok(Some(Entry::File)) => discover::find_refusal_reason(class, host),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Instant;

    use device_class::discover::Health;
    use device_class::host::RealHost;
    use device_class::ld_cache::{Abi, LdCache, NewEntry};

    use crate::host_inventory::{ScanState, scan_host};

    use super::*;

    #[test]
    fn a_device_whose_library_is_missing_is_unhealthy_where_the_host_is_seen() {
        let text = "version = 1\nresource = 'x.com/x'\nrequest = { env = 'X' }\n\
                    device = { id = 'x-{index}' }\ndiscover = [{ count = 1 }]\n\
                    edits = [{ libraries = ['libx.so.1'] }]\n";
        let name = "x".to_owned().try_into().unwrap();
        let class = [DeviceClass::parse(name, "x.toml".as_ref(), text).unwrap()];
        let root = tempfile::tempdir().unwrap();
        let library = Path::new("/usr/lib/libx.so.1");
        let health = || {
            let host = RealHost::open(root.path()).unwrap();
            let scan = scan_host(&class, &host, &mut ScanState::new(), Instant::now());
            scan.classes[0].inventory.devices[0].health.clone()
        };
        // The plugin's container has no loader cache of the host.
        assert_eq!(health(), Health::Healthy);

        let entry = NewEntry::new("libx.so.1", library).unwrap();
        let cache = LdCache::merge(None, &[entry], Abi::NATIVE);
        fs::create_dir(root.path().join("etc")).unwrap();
        let cache = cache.to_bytes().unwrap();
        fs::write(root.path().join("etc/ld.so.cache"), cache).unwrap();
        let reason = "libx.so.1 is in the host's ld.so.cache as /usr/lib/libx.so.1, which cannot \
                      be used; run ldconfig"
            .to_owned();
        assert_eq!(health(), Health::Unhealthy { reason });

        fs::create_dir_all(root.path().join("usr/lib")).unwrap();
        fs::write(root.path().join("usr/lib/libx.so.1"), "").unwrap();
        assert_eq!(health(), Health::Healthy);
    }
}
