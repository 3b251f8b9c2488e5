//! The file with the driver facts of a class. The plugin or `boathook facts` writes it from the
//! output of the driver's programs, and discovery reads it.
//!
//! Each line is a key, a tab and a value. The file is in a directory below /run, which is empty
//! after a boot.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use crate::class::DeviceClass;
use crate::host::HostView;
use crate::name::ClassName;

/// The directory of the files, on the host.
pub const DIRECTORY: &str = "/run/boathook/facts";

/// The maximum size in bytes of a file with driver facts. A larger file is not read.
const MAX_FILE: usize = 1 << 20;

/// The maximum length in bytes of a key, and of a value.
const MAX_TEXT: usize = 256;

/// The age in seconds from which on driver facts are ignored. The plugin renews them every few
/// minutes, but it may not run for some hours, for example during an upgrade.
const MAX_AGE: u64 = 24 * 60 * 60;

/// The keys that every file has: the time of writing in seconds since the boot, the version of
/// Boathook, and the programs whose output was read. A program reports its own version by a fact
/// with the key `version`.
const UPTIME: &str = "boathook uptime";
const VERSION: &str = "boathook version";
const PROGRAM: &str = "boathook program";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts(BTreeMap<String, Vec<String>>);

pub fn file(class: &ClassName) -> PathBuf {
    Path::new(DIRECTORY).join(class.as_str())
}

impl Facts {
    /// Collects the keys and values that a program printed. A pair with control characters, or with
    /// a key or value that is too long, is left out.
    pub fn from_pairs(facts: impl IntoIterator<Item = (String, String)>) -> Self {
        let fits = |text: &str| {
            let odd = |c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER;
            !text.is_empty() && text.len() <= MAX_TEXT && !text.contains(odd)
        };
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut length = 0;
        for (key, value) in facts {
            length += key.len() + value.len() + 2;
            if fits(&key) && fits(&value) && length < MAX_FILE / 2 {
                let values = all.entry(key).or_default();
                if !values.contains(&value) {
                    values.push(value);
                }
            }
        }
        Facts(all)
    }

    /// Returns the facts of a class that were written in this boot, however old they are, and
    /// the programs that reported them. Returns no facts if others than root can change them.
    pub fn read_facts_of_this_boot(
        class: &DeviceClass,
        host: &dyn HostView,
    ) -> (Self, Vec<String>) {
        let path = file(&class.name);
        let text = host.read(&path, MAX_FILE).unwrap_or_default();
        let mut facts = Self::parse(&String::from_utf8_lossy(&text));
        if facts.age(host).is_none() || host.check_root_only(&path).is_err() {
            return Default::default();
        }
        let programs = facts.0.remove(PROGRAM).unwrap_or_default();
        facts
            .0
            .retain(|key, _| ![UPTIME, VERSION].contains(&key.as_str()));
        (facts, programs)
    }

    /// Adds earlier facts whose keys these facts lack, if `is_kept` returns true for the key.
    pub fn keep_earlier(&mut self, earlier: Self, is_kept: impl Fn(&str) -> bool) {
        for (key, values) in earlier.0 {
            if is_kept(&key) {
                self.0.entry(key).or_insert(values);
            }
        }
    }

    /// Returns a note for the administrator if the host has a program that reports facts of the
    /// class, and no facts of this boot exist because the program was not run.
    pub fn describe_absence(class: &DeviceClass, host: &dyn HostView) -> Option<String> {
        let is_there = |path: &Path| matches!(host.entry(path), Ok(Some(_)));
        let mut programs = class.spec.facts.iter();
        let program = programs.find_map(|program| Some(program.program.first()?.to_string()))?;
        let is_absent = class.settings.uses_facts()
            && is_there(Path::new(&program))
            && !is_there(&file(&class.name));
        is_absent.then(|| {
            format!(
                "what {program} reports is not known yet: run `boathook facts {}`",
                class.name
            )
        })
    }

    /// Reads the facts of a class. Facts that are too old, or that others than root can change, are
    /// not used, and a warning reports that.
    pub(crate) fn read(
        class: &DeviceClass,
        host: &dyn HostView,
        warnings: &mut Vec<String>,
    ) -> Self {
        if class.spec.facts.is_empty() || !class.settings.uses_facts() {
            return Self::default();
        }
        let path = file(&class.name);
        let text = match host.read(&path, MAX_FILE) {
            Ok(text) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::default(),
            Err(error) => {
                warnings.push(format!("{} cannot be read: {error}", path.display()));
                return Self::default();
            }
        };
        let facts = Self::parse(&text);
        let fault = match host.check_root_only(&path) {
            Err(error) => Some(error.to_string()),
            Ok(()) if facts.age(host).is_none_or(|age| age > MAX_AGE) => {
                Some(format!("is too old; run `boathook facts {}`", class.name))
            }
            Ok(()) => None,
        };
        match fault {
            None => facts,
            Some(fault) => {
                warnings.push(format!("{} is not used: {fault}", path.display()));
                Self::default()
            }
        }
    }

    /// Returns the seconds since the facts were written in this boot.
    fn age(&self, host: &dyn HostView) -> Option<u64> {
        host.uptime()?
            .checked_sub(self.first(UPTIME)?.parse().ok()?)
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        Self::from_pairs(lines.map(|(key, value)| (key.to_owned(), value.to_owned())))
    }

    pub fn first(&self, key: &str) -> Option<&str> {
        self.values(key).first().map(String::as_str)
    }

    pub fn values(&self, key: &str) -> &[String] {
        self.0.get(key).map_or(&[], Vec::as_slice)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the text of a file with these facts. `programs` are the programs whose output they
    /// were read from, and the present uptime of the host is written as their age.
    pub fn text(&self, host: &dyn HostView, programs: &[String]) -> String {
        let mut text = String::new();
        let programs = programs.iter().map(|program| (PROGRAM, program.as_str()));
        let uptime = host.uptime().unwrap_or_default().to_string();
        let head = [
            (UPTIME, uptime.as_str()),
            (VERSION, env!("CARGO_PKG_VERSION")),
        ];
        let facts = self.0.iter();
        let facts =
            facts.flat_map(|(key, values)| values.iter().map(|v| (key.as_str(), v.as_str())));
        for (key, value) in head.into_iter().chain(programs).chain(facts) {
            let _ = writeln!(text, "{key}\t{value}");
        }
        text
    }
}
