//! Creates the files of a recorded host in a directory. The files, links, nodes and libraries of a
//! recording in `device-class/testdata` become real ones.
//!
//! Every device node has the number of one device of this machine, unless the test wants the
//! recorded numbers. Every library is a small one that reports the name by which it was requested.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Deref;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::alias_device::AliasDevice;
use crate::compile::{self, Libc};
use crate::demo_host::HostDirectory;
use crate::loader::LibraryCall;
use crate::rootfs::make_loader_cache;

/// The function that returns a library's soname.
const FUNCTION: &str = "recorded_library_name";

/// The directory of the files with driver facts.
const FACTS: &str = "/run/boathook/facts/";

/// A host that was created from a recording. Root is required to create one.
#[derive(Debug)]
pub struct RecordedHost {
    directory: HostDirectory,
    device: AliasDevice,
    own_numbers: bool,
}

impl RecordedHost {
    /// Creates the host of a recording, with one of the shipped classes.
    pub fn new(class: &str, recording: &str) -> Result<Self> {
        let host = Self::bare(recording)?;
        host.add_shipped_class(class)?;
        Ok(host)
    }

    /// Creates the host of a recording, without a class of the recorded driver.
    pub fn bare(recording: &str) -> Result<Self> {
        Self::from_recording(recording, false)
    }

    /// Creates the host of a recording with the recorded device numbers. Tests can look at its
    /// nodes, but not open them.
    pub fn with_own_numbers(recording: &str) -> Result<Self> {
        Self::from_recording(recording, true)
    }

    fn from_recording(recording: &str, own_numbers: bool) -> Result<Self> {
        let (device, _) = AliasDevice::pair()?;
        let directory = HostDirectory::new()?;
        let host = Self {
            directory,
            device,
            own_numbers,
        };
        host.make(recording)?;
        Ok(host)
    }

    /// Returns the device whose number every node has.
    pub fn device(&self) -> AliasDevice {
        self.device
    }

    /// Returns the call of a function of one of the libraries, which a probe in a container makes.
    pub fn wanted(soname: &str) -> LibraryCall {
        let (soname, function) = (soname.to_string(), FUNCTION.to_string());
        LibraryCall { soname, function }
    }

    /// Adds a program, a script, to the host.
    pub fn add_program(&self, path: &str, script: &str) -> Result<()> {
        self.directory.add_file(path, script)?;
        let program = self.root().join(path.trim_start_matches('/'));
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755))?;
        Ok(())
    }

    /// Creates all entries of a recording. Links are created first, because the paths of other
    /// entries may lead through them.
    fn make(&self, recording: &str) -> Result<()> {
        let entries = parse(recording)?;
        let (links, others): (Vec<_>, Vec<_>) =
            entries.iter().partition(|entry| entry.kind == "link");
        for entry in links.iter().chain(&others) {
            self.make_one(entry, &entries)
                .with_context(|| format!("cannot make {} {}", entry.kind, entry.path))?;
        }
        let directories: BTreeSet<_> = entries
            .iter()
            .filter(|entry| entry.is_cached())
            .filter_map(|entry| Path::new(&entry.value).parent())
            .collect();
        let directories: Vec<_> = directories
            .iter()
            .map(|d| d.display().to_string())
            .collect();
        fs::write(
            self.root().join("etc/ld.so.conf"),
            directories.join("\n") + "\n",
        )?;
        make_loader_cache(&self.root())
    }

    fn make_one(&self, entry: &Entry, all: &[Entry]) -> Result<()> {
        if entry.is_cached() {
            return Ok(());
        }
        let path = self.place(&entry.path)?;
        match entry.kind.as_str() {
            "dir" => fs::create_dir_all(path)?,
            "char" | "block" if self.own_numbers => entry.make_node(&path)?,
            "char" | "block" => self.device.make_node(&path)?,
            "link" => symlink(&entry.value, path)?,
            "socket" => drop(UnixListener::bind(path)?),
            "file" if entry.path.contains(".so") => library(&path, cached(entry, all), entry)?,
            "file" if entry.path.starts_with(FACTS) => {
                fs::write(path, written_now(&entry.content)?)?;
            }
            "file" => fs::write(path, &entry.content)?,
            kind => bail!("unknown kind `{kind}`"),
        }
        Ok(())
    }

    /// Returns where a path of the recording is below this host's root, and creates its directory.
    /// An absolute link on the path leads to files of this machine, so nothing is created through
    /// it.
    fn place(&self, path: &str) -> Result<PathBuf> {
        let path = self.root().join(path.trim_start_matches('/'));
        if let Some(parent) = path.parent() {
            make_directories(parent)?;
            let inside = parent
                .canonicalize()?
                .starts_with(self.root().canonicalize()?);
            ensure!(
                inside,
                "a directory of the path is a link to an absolute path"
            );
        }
        Ok(path)
    }
}

impl Deref for RecordedHost {
    type Target = HostDirectory;

    fn deref(&self) -> &HostDirectory {
        &self.directory
    }
}

/// Returns the text of driver facts as if they had been written now. Programs compare their time
/// with the time since this machine's boot.
fn written_now(facts: &str) -> Result<String> {
    let now = fs::read_to_string("/proc/uptime")?;
    let now = now.split('.').next().unwrap_or_default();
    let lines = facts.lines().map(|line| match line.split_once('\t') {
        Some((key @ "boathook uptime", _)) => format!("{key}\t{now}\n"),
        _ => format!("{line}\n"),
    });
    Ok(lines.collect())
}

/// Creates a directory, and the targets of links in its path.
fn make_directories(path: &Path) -> Result<()> {
    if let Some(parent) = path.parent()
        && !parent.exists()
    {
        make_directories(parent)?;
    }
    match fs::read_link(path) {
        Ok(target) if !path.exists() => {
            let parent = path.parent().context("the root is a link")?;
            make_directories(&parent.join(target))
        }
        Ok(_) => Ok(()),
        Err(_) if path.is_dir() => Ok(()),
        Err(_) => Ok(fs::create_dir(path)?),
    }
}

/// An entry of a recording: one line, with the content of a file.
#[derive(Debug)]
struct Entry {
    kind: String,
    path: String,
    value: String,
    content: String,
}

fn parse(recording: &str) -> Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in recording.lines() {
        if let Some(content) = line.strip_prefix('|') {
            let file = entries.last_mut().context("content without a file")?;
            file.content += content.strip_prefix(' ').unwrap_or(content);
            file.content.push('\n');
            continue;
        }
        let mut words = line.split_whitespace().map(ToString::to_string);
        let Some(kind) = words.next().filter(|kind| !kind.starts_with('#')) else {
            continue;
        };
        entries.push(Entry {
            kind,
            path: words.next().context("an entry without a path")?,
            value: words.next().unwrap_or_default(),
            content: String::new(),
        });
    }
    Ok(entries)
}

impl Entry {
    /// Creates a device node with the recorded number.
    fn make_node(&self, path: &Path) -> Result<()> {
        let (major, minor) = self.value.split_once(':').context("no device number")?;
        let kind = match self.kind.as_str() {
            "block" => SFlag::S_IFBLK,
            _ => SFlag::S_IFCHR,
        };
        let number = makedev(major.parse()?, minor.parse()?);
        Ok(mknod(path, kind, Mode::S_IRWXU, number)?)
    }

    /// Returns whether the entry is in the loader's cache.
    fn is_cached(&self) -> bool {
        matches!(self.kind.as_str(), "lib" | "lib32")
    }
}

/// Returns the entry of the loader's cache for the file of a library. The entry may name the file
/// itself or a link in the same directory.
fn cached<'a>(file: &Entry, all: &'a [Entry]) -> Option<&'a Entry> {
    let file = Path::new(&file.path);
    let leads_here = |entry: &&Entry| {
        let at = Path::new(&entry.value);
        let link = |other: &Entry| {
            let link = Path::new(&other.path);
            other.kind == "link"
                && Some(other.value.as_ref()) == file.file_name()
                && link.parent() == file.parent()
                && link.file_name() == at.file_name()
        };
        // In the loader's cache a directory may have another name, such as /lib for /usr/lib.
        let beside =
            at.parent().and_then(Path::file_name) == file.parent().and_then(Path::file_name);
        entry.is_cached() && beside && (at.file_name() == file.file_name() || all.iter().any(link))
    };
    all.iter().find(leads_here)
}

/// Creates a library that reports its name in the loader's cache, or the name of its file if the
/// cache lacks it.
fn library(path: &Path, cached: Option<&Entry>, file: &Entry) -> Result<()> {
    let own = file.path.rsplit('/').next().unwrap_or_default();
    let soname = cached.map_or(own, |entry| &entry.path);
    let mut arguments = vec![
        "-shared".to_string(),
        "-fPIC".to_string(),
        "-nostdlib".to_string(),
        format!("-Wl,-soname,{soname}"),
        format!("-DVERSION_FUNCTION={FUNCTION}"),
        format!("-DVERSION=\"{soname}\""),
    ];
    if cached.is_some_and(|entry| entry.kind == "lib32") {
        arguments.push("-m32".to_string());
    }
    let built = compile::program("vendor-library.c", Libc::Glibc, &arguments)?;
    fs::copy(&built, path)?;
    Ok(())
}
