//! Tests of libraries that a host has in several files of one name.

use device_class::host::RecordedHost;
use injection_plan::plan::Action;
use injection_plan::request::Request;

use crate::planning::{asker, parse, plan};

const CLASS: &str = r#"
version = 1
resource = "example.com/chip"
request = { env = "CHIPS" }
discover = [{ count = 1 }]
device = { id = "chip-{index}" }
[[edits]]
library_version = "2.0"
libraries = ["libchip.so.1"]
[[edits]]
libraries = ["libchip.so.1", "libother.so.1"]
"#;

/// The loader's cache lists the file of another version first, and one table of the class has no
/// version.
#[test]
fn a_name_leads_to_one_file() {
    let host = "file /opt/old/libchip.so.1.0\nfile /usr/lib/libchip.so.2.0\n\
        lib libchip.so.1 /opt/old/libchip.so.1.0\nlib libchip.so.1 /usr/lib/libchip.so.2.0\n\
        file /usr/lib/libother.so.1.7\nlib libother.so.1 /usr/lib/libother.so.1.7\n";
    let host = RecordedHost::parse(host).unwrap();
    let class = parse("chip", CLASS).unwrap();
    let env = vec!["CHIPS=all".to_owned()];
    let request = Request::find(&class, &env.into(), |_| None);
    let plan = plan(&class, &request.unwrap().unwrap(), &host, &asker()).unwrap();
    let files = plan.steps.iter().filter_map(|step| match &step.action {
        Action::Library { mount, .. } => mount.source.to_str(),
        _ => None,
    });
    let files: Vec<&str> = files.collect();
    assert_eq!(
        files,
        ["/usr/lib/libchip.so.2.0", "/usr/lib/libother.so.1.7"]
    );
    assert_eq!(
        plan.warnings,
        [
            "chip: libchip.so.1 is /usr/lib/libchip.so.2.0 and /opt/old/libchip.so.1.0 on the host; \
          the second one is left out"
        ]
    );
}
