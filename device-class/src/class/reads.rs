//! Lists the files of the host that the plugin reads for a class.

use std::collections::BTreeSet;

use super::attribute::{Origin, Text};
use super::condition::Condition;
use super::health::HealthTest;
use super::{AttributeSource, ClassSpec, DRIVERS, Ends, HealthCheck, Node};
use crate::host::GROUP_FILE;

impl ClassSpec {
    /// Returns whether a health check of the class reads the kernel's log.
    pub fn reads_kernel_log(&self) -> bool {
        let sources = self.discover.iter().flat_map(|source| &source.health);
        let mut checks = self.device.health.iter().chain(sources);
        checks.any(|check| matches!(check.test, HealthTest::Unlogged { .. }))
    }

    /// Returns the paths at which devices are searched for, each up to its first part that is
    /// not fixed. Sources that only add devices to others are not among them.
    pub fn searched_paths(&self) -> BTreeSet<String> {
        let mut paths = Paths::default();
        for source in self.discover.iter().filter(|source| !source.additional) {
            paths.add_all(&source.path);
        }
        paths.0
    }

    /// Returns the paths that are read to find the devices and to check their health, each up to its
    /// first part that is not fixed. Relative paths are not listed, because each of them is below a
    /// listed one.
    pub fn paths_read(&self) -> BTreeSet<String> {
        let mut paths = Paths::default();
        paths.add_all(&self.driver_path);
        paths.attributes(&self.attributes);
        for source in &self.discover {
            paths.add_all(&source.path);
            paths.attributes(&source.attributes);
            paths.conditions(&source.require);
            paths.nodes(&source.nodes);
            paths.health(&source.health);
        }
        for unclaimed in &self.unclaimed {
            paths.add(&unclaimed.path.to_string());
            paths.attributes(&unclaimed.attributes);
            paths.conditions(&unclaimed.require);
        }
        for parts in &self.parts {
            paths.conditions(&parts.require);
            let (common, of_place) = parts.attributes();
            paths.attributes(common);
            paths.attributes(of_place);
        }
        paths.add_all(&self.device.numa);
        if let Some(Ends::Files { for_each, .. }) = self.device.links.as_ref().map(|l| &l.ends) {
            paths.add(&for_each.to_string());
        }
        paths.nodes(&self.device.nodes);
        paths.add_all(self.device.netdev.iter().map(|netdev| &netdev.path));
        paths.health(&self.device.health);
        for edits in &self.edits {
            paths.nodes(&edits.nodes);
        }
        paths.0
    }
}

#[derive(Default)]
struct Paths(BTreeSet<String>);

impl Paths {
    fn add(&mut self, text: &str) {
        let fixed = text.find(['{', '*', '?', '[']).unwrap_or(text.len());
        let path = if fixed == text.len() {
            text
        } else {
            // The last component is only partly fixed, so the path ends before it.
            text[..fixed]
                .rsplit_once('/')
                .map_or("", |(above, _)| above)
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

    fn conditions(&mut self, conditions: &[Condition]) {
        for condition in conditions {
            match condition {
                Condition::Exists(pattern) | Condition::Absent(pattern) => {
                    self.add(&pattern.to_string());
                }
                Condition::Value { .. } => {}
            }
        }
    }

    fn attributes(&mut self, sources: &[AttributeSource]) {
        for source in sources {
            match &source.origin {
                Origin::Text { text, .. } => match text {
                    Text::File { file: path, .. } | Text::RealPath(path) => {
                        self.add(&path.to_string());
                    }
                    Text::Value(_) | Text::Formula(_) | Text::Fact(_) => {}
                },
                Origin::Link { link, .. } => self.add(&link.to_string()),
                Origin::Path { path, .. } => self.add(&path.to_string()),
            }
        }
    }

    fn nodes(&mut self, nodes: &[Node]) {
        for node in nodes {
            self.add(&node.path.template().to_string());
            if node.driver.is_some() {
                self.add(DRIVERS);
            }
            if node.has_named_group() {
                self.add(GROUP_FILE);
            }
            self.add_all(&node.for_each);
            self.add_all(node.links.iter().map(|link| link.template()));
        }
    }

    fn health(&mut self, checks: &[HealthCheck]) {
        for check in checks {
            match &check.test {
                HealthTest::Exists(pattern) => self.add(&pattern.to_string()),
                HealthTest::File { file, .. } => self.add(&file.to_string()),
                // The kernel's log is left out. Only a privileged container can read it, and the
                // plugin reports that.
                HealthTest::Unlogged { .. } => {}
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
        let found: Vec<String> = class.spec.paths_read().into_iter().collect();
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
