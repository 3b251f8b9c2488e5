//! The programs of a release with `/` as the host's root, which is the default: this
//! machine's own `/sys`, `/proc` and `/dev`, and each recorded host as a root of its own.
//! Needs root, and strace.

mod facts;
mod followed;
mod hot_added;
mod live;
mod looked_at;
mod net_interfaces;
mod recorded;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::captured::Captured;
use harness::{binaries, scratch};
use serde_json::Value;
use tempfile::TempDir;

/// Class files of a test's own, for this machine. Its configuration has no `host_root`.
struct ThisHost {
    classes: TempDir,
    /// For nodes and files that are not of this machine: only root may write beside them.
    own: TempDir,
}

impl ThisHost {
    fn new() -> Self {
        let host = Self {
            classes: scratch::directory("classes").unwrap(),
            own: scratch::directory_in(Path::new("/dev"), "own").unwrap(),
        };
        let config = format!("classes = [{:?}]\n", host.classes.path());
        fs::write(host.config_file(), config).unwrap();
        host
    }

    /// The path of a file of the test's own.
    fn own_path(&self, name: &str) -> PathBuf {
        self.own.path().join(name)
    }

    /// The text with that directory as `@own@`.
    fn with_own(&self, text: &str) -> String {
        text.replace("@own@", &self.own.path().display().to_string())
    }

    /// The same host with a class.
    fn class(self, name: &str, text: &str) -> Self {
        let text = self.with_own(text);
        fs::write(self.classes.path().join(format!("{name}.toml")), text).unwrap();
        self
    }

    /// Not a class file.
    fn config_file(&self) -> PathBuf {
        self.classes.path().join("config")
    }

    /// `boathook`, which must succeed. It would wait for a pipe for ever.
    fn boathook(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("timeout");
        let program = binaries::program("boathook").unwrap();
        command.arg("20").arg(program);
        command.arg("--config").arg(self.config_file());
        let ran = Captured::run(command.args(arguments)).unwrap();
        ran.success().unwrap().stdout
    }

    /// Returns the devices of `boathook list`.
    fn devices(&self) -> Vec<Value> {
        let listed = self.boathook(&["list", "--all", "--json"]);
        let listed: Value = serde_json::from_str(&listed).unwrap();
        listed["devices"].as_array().unwrap().clone()
    }

    /// Returns the devices of `boathook-plugin list`.
    fn devices_of_plugin(&self) -> Vec<Value> {
        let mut command = Command::new(binaries::program("boathook-plugin").unwrap());
        command.args(["list", "--json", "--config"]);
        let listed = Captured::run(command.arg(self.config_file()));
        let listed = listed.and_then(Captured::success).unwrap();
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
        listed["devices"].as_array().unwrap().clone()
    }

    /// The ids of the devices, sorted.
    fn ids(&self) -> Vec<String> {
        let id = |device: &Value| device["id"].as_str().unwrap().to_owned();
        let mut ids: Vec<_> = self.devices().iter().map(id).collect();
        ids.sort();
        ids
    }
}
