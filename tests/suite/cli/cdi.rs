//! `boathook cdi generate`.

use std::fs;

use harness::demo_host::HostDirectory;

use super::succeeds;

/// A class that is not enabled is written if it is named, and updated from then on.
#[test]
fn what_was_named_once_stays_until_it_is_disabled() {
    let host = HostDirectory::new().unwrap();
    let class = "version = 1\nresource = 'example.com/spare'\nenabled = false\n\
        request = { env = 'SPARE' }\ndiscover = [{ path = '/etc/spare' }]\n\
        [device]\nid = 'spare'\nnodes = []\n[[edits]]\nfiles = ['/etc/spare']\n";
    host.add_class("spare", class).unwrap();
    let directory = host.path().join("cdi");
    let output = directory.to_str().unwrap().to_owned();
    let file = directory.join("boathook-example.com-spare.json");
    let generate = |names: &[&str]| {
        let arguments = [&["cdi", "generate", "--output", &output], names].concat();
        succeeds(&host, &arguments)
    };
    host.add_file("/etc/spare", "").unwrap();
    generate(&[]);
    assert!(!file.exists());
    let named = generate(&["spare"]);
    assert!(named.stderr.contains("spare is not enabled"), "{named:?}");
    let written = fs::read(&file).unwrap();
    fs::write(
        &file,
        String::from_utf8_lossy(&written).replace("npu1", "npu9"),
    )
    .unwrap();
    generate(&[]);
    assert_eq!(fs::read(&file).unwrap(), written);
    host.write_config("[class.spare]\nenabled = false\n")
        .unwrap();
    let removed = generate(&[]).stdout;
    assert!(removed.contains("removed"), "{removed}");
    assert!(!file.exists());
}
