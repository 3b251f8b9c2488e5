//! The stage of a case: a host of its own, and what can be seen on it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use hook::container::{ContainerNamespace, ContainerRoot};
use hook::mount::{Attributes, MountDepth, MountSource, Mounter, SourceRoot, SyscallSupport};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, makedev, mknod, umask};
use nix::unistd::Uid;

use crate::container::{Container, Kind};
use crate::hidden::Calls;

const NONE: Option<&str> = None;

/// Where config.json has a new tmpfs.
const OWN_TMPFS: [&str; 3] = ["/dev", "/dev/shm", "/run"];

/// A private mount namespace with a tmpfs in it: `host` holds what is to be
/// mounted, `outside` what must not be reached, `rootfs` is the container's.
pub(crate) struct Scene {
    pub(crate) base: PathBuf,
    pub(crate) syscall_support: Calls,
    /// Stays in the host's namespace when the case enters the container's.
    witness: Container,
    /// Everything that was found below `outside` at first.
    outside: Vec<PathBuf>,
}

/// One line of `mountinfo`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mount {
    pub(crate) id: String,
    pub(crate) point: PathBuf,
    pub(crate) options: Vec<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) fs_type: String,
}

impl Scene {
    /// Why cases cannot run here, if they cannot.
    pub(crate) fn possible() -> Result<()> {
        ensure!(Uid::effective().is_root(), "mounting needs root");
        let status = fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let capabilities = u64::from_str_radix(line.unwrap_or_default().trim(), 16)?;
        // CAP_SYS_ADMIN is 21, CAP_MKNOD 27.
        for number in [21, 27] {
            ensure!(
                capabilities >> number & 1 == 1,
                "capability {number} is missing"
            );
        }
        Ok(())
    }

    pub(crate) fn new(base: &Path, syscall_support: Calls) -> Result<Self> {
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
        mount(
            Some("tmpfs"),
            base,
            Some("tmpfs"),
            MsFlags::empty(),
            Some("mode=755"),
        )?;
        // As systemd has it: what is mounted on the host appears in every
        // namespace that does not say otherwise.
        mount(NONE, base, NONE, MsFlags::MS_SHARED, NONE)?;
        for directory in ["host", "outside/deep", "rootfs"] {
            fs::create_dir_all(base.join(directory))?;
        }
        fs::write(base.join("outside/file"), "outside")?;
        fs::write(base.join("host/lib.so"), "a library")?;
        umask(Mode::from_bits_truncate(0o022));
        let mode = Mode::from_bits_truncate(0o666);
        mknod(
            &base.join("host/null0"),
            SFlag::S_IFCHR,
            mode,
            makedev(1, 3),
        )?;
        Ok(Self {
            base: base.to_owned(),
            syscall_support,
            witness: Container::witness()?,
            outside: below(&base.join("outside"))?,
        })
    }

    pub(crate) fn container(&self, kind: Kind) -> Result<Container> {
        Container::start(&self.base, kind)
    }

    /// A path of the container, as seen from outside.
    pub(crate) fn rootfs(&self, path: &str) -> PathBuf {
        self.base.join("rootfs").join(path)
    }

    /// Prepares what is needed on the host: from here on the calls are hidden.
    pub(crate) fn host(&self) -> Result<Host> {
        self.syscall_support.apply()?;
        let syscall_support = SyscallSupport::probe();
        Ok(Host {
            root: SourceRoot::open(&self.base.join("host"), syscall_support.resolver())?,
            syscall_support,
        })
    }

    pub(crate) fn namespace(&self, container: &Container) -> Result<ContainerNamespace> {
        let rootfs = self.base.join("rootfs");
        let resolver = SyscallSupport::probe().resolver();
        Ok(ContainerNamespace::from_pid(
            container.pid(),
            &rootfs,
            resolver,
        )?)
    }

    /// Enters the container.
    pub(crate) fn enter(
        &self,
        container: &Container,
        host: &Host,
    ) -> Result<(ContainerRoot, Mounter)> {
        let namespace = self.namespace(container)?;
        let root = namespace.enter(
            &OWN_TMPFS.map(PathBuf::from),
            host.syscall_support.resolver(),
        )?;
        let mounter = Mounter::new(&root, host.syscall_support);
        Ok((root, mounter))
    }

    /// Enters a container in which nothing of the host is mounted.
    pub(crate) fn entered(&self, kind: Kind) -> Result<(ContainerRoot, Container)> {
        let container = self.container(kind)?;
        let (root, _) = self.enter(&container, &self.host()?)?;
        Ok((root, container))
    }

    /// The mounts that this process sees at a path of the container, the last
    /// one on top.
    pub(crate) fn mounts_at(&self, path: &str) -> Result<Vec<Mount>> {
        let point = self.rootfs(path);
        let all = mounts("self")?;
        Ok(all
            .into_iter()
            .filter(|mount| mount.point == point)
            .collect())
    }

    /// The one mount at a path of the container.
    pub(crate) fn mount_at(&self, path: &str) -> Result<Mount> {
        match self.mounts_at(path)?.as_slice() {
            [mount] => Ok(mount.clone()),
            other => bail!("there are {} mounts at {path}", other.len()),
        }
    }

    /// Whether the one mount there has exactly these restrictions, and spreads nowhere.
    pub(crate) fn expect(&self, path: &str, restrictions: &[&str]) -> Result<()> {
        let mount = self.mount_at(path)?;
        for option in ["ro", "nosuid", "nodev", "noexec"] {
            let has = mount.options.iter().any(|have| have == option);
            ensure!(has == restrictions.contains(&option), "{option}: {mount:?}");
        }
        ensure!(mount.tags.is_empty(), "not private: {mount:?}");
        Ok(())
    }

    /// Checks that the host is as it was: nothing was made or mounted outside
    /// the container's root, in either namespace.
    pub(crate) fn host_is_untouched(&self) -> Result<()> {
        let outside = self.base.join("outside");
        ensure!(
            below(&outside)? == self.outside,
            "something was made outside: {:?}",
            below(&outside)?
        );
        let content = fs::read_to_string(outside.join("file"))?;
        ensure!(content == "outside", "a file outside now holds {content:?}");
        for mount in mounts("self")? {
            let reached = mount.point.starts_with(&outside);
            ensure!(!reached, "mounted outside: {mount:?}");
        }
        for mount in mounts(&self.witness.pid().to_string())? {
            let inside = mount.point.starts_with(self.rootfs(""));
            let reached = inside || mount.point.starts_with(&outside);
            ensure!(!reached, "mounted on the host: {mount:?}");
        }
        Ok(())
    }
}

/// The host's side of a case, with the calls that it may use.
pub(crate) struct Host {
    pub(crate) root: SourceRoot,
    pub(crate) syscall_support: SyscallSupport,
}

impl Host {
    pub(crate) fn source(&self, path: &str, attributes: Attributes) -> Result<MountSource> {
        self.source_of(path, attributes, MountDepth::Single)
    }

    pub(crate) fn source_of(
        &self,
        path: &str,
        attributes: Attributes,
        depth: MountDepth,
    ) -> Result<MountSource> {
        let file = self.root.open_file_without_links(Path::new(path))?;
        Ok(MountSource::new(
            &file,
            attributes,
            depth,
            self.syscall_support,
        )?)
    }
}

/// The mounts of a process' namespace.
pub(crate) fn mounts(pid: &str) -> Result<Vec<Mount>> {
    let text = fs::read_to_string(format!("/proc/{pid}/mountinfo"))?;
    text.lines()
        .map(|line| {
            let (front, back) = line.split_once(" - ").context("no separator")?;
            let fields: Vec<&str> = front.split(' ').collect();
            Ok(Mount {
                id: fields[0].to_owned(),
                point: fields[4].into(),
                options: fields[5].split(',').map(str::to_owned).collect(),
                tags: fields[6..].iter().map(|&tag| tag.to_owned()).collect(),
                fs_type: back.split(' ').next().unwrap_or_default().to_owned(),
            })
        })
        .collect()
}

fn below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        found.push(entry.path());
        if entry.file_type()?.is_dir() {
            found.extend(below(&entry.path())?);
        }
    }
    found.sort();
    Ok(found)
}
