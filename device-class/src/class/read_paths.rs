//! Lists the paths on the host that the plugin reads for a class.

use std::collections::BTreeSet;

use super::attribute::{AttributeOrigin, TextSource};
use super::condition::Condition;
use super::health::HealthTest;
use super::{AttributeSource, ClassSpec, HealthCheck, LinkPeers, Node, PROC_DEVICES_PATH};
use crate::host::GROUP_FILE_PATH;

impl ClassSpec {
    /// Returns whether a health check of the class reads the kernel's log (/dev/kmsg), for which a
    /// process may need CAP_SYSLOG.
    pub fn reads_kernel_log(&self) -> bool {
        let sources = self.discover.iter().flat_map(|source| &source.health);
        let mut checks = self.device.health.iter().chain(sources);
        checks.any(|check| matches!(check.test, HealthTest::NoLoggedFault { .. }))
    }

    /// Returns the paths in which the class searches its devices. Each path ends before its first
    /// component with a capture or a wildcard. Entries of `[[discover]]` with `additional` are left
    /// out, because they only add devices to those of other entries.
    pub fn list_searched_paths(&self) -> BTreeSet<String> {
        let mut paths = PathSet::default();
        for source in self.discover.iter().filter(|source| !source.is_additional) {
            paths.add_all(&source.path);
        }
        paths.0
    }

    /// Returns the paths that are read to find the devices and to check their health. Each path
    /// ends before its first component with a capture or a wildcard. Relative paths are left out,
    /// because each of them is below one of the returned paths.
    pub fn list_read_paths(&self) -> BTreeSet<String> {
        let mut paths = PathSet::default();
        paths.add_all(&self.driver_path);
        paths.add_attributes(&self.attributes);
        for source in &self.discover {
            paths.add_all(&source.path);
            paths.add_attributes(&source.attributes);
            paths.add_conditions(&source.require);
            paths.add_nodes(&source.nodes);
            paths.add_health_checks(&source.health);
        }
        for unclaimed in &self.unclaimed_hardware {
            paths.add(&unclaimed.path.to_string());
            paths.add_attributes(&unclaimed.attributes);
            paths.add_conditions(&unclaimed.require);
        }
        for parts in &self.parts {
            paths.add_conditions(&parts.require);
            let (common_sources, placement_sources) = parts.split_attributes();
            paths.add_attributes(common_sources);
            paths.add_attributes(placement_sources);
        }
        paths.add_all(&self.device.numa);
        if let Some(LinkPeers::Files { path_pattern, .. }) =
            self.device.links.as_ref().map(|links| &links.peers)
        {
            paths.add(&path_pattern.to_string());
        }
        paths.add_nodes(&self.device.nodes);
        paths.add_all(self.device.netdev.iter().map(|netdev| &netdev.path));
        paths.add_health_checks(&self.device.health);
        for edits in &self.edits {
            paths.add_nodes(&edits.nodes);
        }
        paths.0
    }
}

#[derive(Default)]
struct PathSet(BTreeSet<String>);

impl PathSet {
    fn add(&mut self, text: &str) {
        let fixed_length = text.find(['{', '*', '?', '[']).unwrap_or(text.len());
        let path = if fixed_length == text.len() {
            text
        } else {
            // A component with a capture or wildcard may begin with fixed characters. The path must
            // end at a whole component, so it ends at the slash before this component.
            text[..fixed_length]
                .rsplit_once('/')
                .map_or("", |(directory, _)| directory)
        };
        if path.len() > 1 && path.starts_with('/') {
            self.0.insert(path.to_owned());
        }
    }

    fn add_all<'a, T: ToString + 'a>(&mut self, texts: impl IntoIterator<Item = &'a T>) {
        texts
            .into_iter()
            .for_each(|text| self.add(&text.to_string()));
    }

    fn add_conditions(&mut self, conditions: &[Condition]) {
        for condition in conditions {
            match condition {
                Condition::PathExists(pattern) | Condition::PathAbsent(pattern) => {
                    self.add(&pattern.to_string());
                }
                Condition::Value { .. } => {}
            }
        }
    }

    fn add_attributes(&mut self, sources: &[AttributeSource]) {
        for source in sources {
            match &source.origin {
                AttributeOrigin::Text { text, .. } => match text {
                    TextSource::File { file: path, .. } | TextSource::RealPath(path) => {
                        self.add(&path.to_string());
                    }
                    TextSource::Value(_)
                    | TextSource::Formula(_)
                    | TextSource::DriverProperty(_) => {}
                },
                AttributeOrigin::Link { link, .. } => self.add(&link.to_string()),
                AttributeOrigin::Path { pattern, .. } => self.add(&pattern.to_string()),
            }
        }
    }

    fn add_nodes(&mut self, nodes: &[Node]) {
        for node in nodes {
            self.add(&node.path.template().to_string());
            if node.driver.is_some() {
                self.add(PROC_DEVICES_PATH);
            }
            if node.has_named_group() {
                self.add(GROUP_FILE_PATH);
            }
            self.add_all(&node.path_pattern);
            self.add_all(node.links.iter().map(|link| link.template()));
        }
    }

    fn add_health_checks(&mut self, checks: &[HealthCheck]) {
        for check in checks {
            match &check.test {
                HealthTest::PathExists(pattern) => self.add(&pattern.to_string()),
                HealthTest::File { file, .. } => self.add(&file.to_string()),
                // The kernel's log is not in the list, because the plugin itself reports if it may
                // not read the log.
                HealthTest::NoLoggedFault { .. } => {}
                HealthTest::Program(_) | HealthTest::Value { .. } => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::DeviceClass;

    #[test]
    fn every_place_that_discovery_reads_is_named() {
        let text = r#"version = 1
resource = "x.com/x"
driver_path = "/sys/module/x"
[request]
env = "X"
[[attributes]]
name = "version"
file = "/run/x/version"
[[discover]]
path = "/dev/x{number:number}"
attributes = [{ name = "serial", file = "/var/lib/x/{number}/serial" }]
require = [{ absent = "/etc/x/off{number}" }]
[device]
id = "x-{serial}"
nodes = ["/dev/x{number}"]
health = [{ file = "/run/x/state-{number}", equals = "up" }]
[[edits]]
nodes = ["/dev/xctl"]
libraries = ["libx.so.1"]
"#;
        let name = "x".to_owned().try_into().unwrap();
        let class = DeviceClass::parse(name, "x.toml".as_ref(), text).unwrap();
        let found: Vec<String> = class.spec.list_read_paths().into_iter().collect();
        let expected = [
            "/dev",
            "/dev/xctl",
            "/etc/x",
            "/run/x",
            "/run/x/version",
            "/sys/module/x",
            "/var/lib/x",
        ];
        assert_eq!(found, expected);
    }
}
