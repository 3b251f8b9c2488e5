//! How long the mounts of a typical device take.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use hook::container::{FileKind, Name};
use hook::mount::Attributes;
use nix::mount::{MsFlags, mount};

use crate::cases::OPTIONS;
use crate::container::Kind;
use crate::scene::Scene;

const DEVICES: usize = 5;
const FILES: usize = 40;

/// Five device nodes, and forty libraries on a tmpfs with a link to each.
pub(crate) fn timing(scene: &Scene) -> Result<()> {
    for number in 0..FILES {
        std::fs::write(
            scene.base.join(format!("host/lib{number}.so.1")),
            "a library",
        )?;
    }
    // As many mounts as a busy node has.
    let none = None::<&str>;
    let node = scene.base.join("node");
    std::fs::create_dir(&node)?;
    mount(Some("tmpfs"), &node, Some("tmpfs"), MsFlags::empty(), none)?;
    for number in 0..1000 {
        let point = node.join(number.to_string());
        std::fs::create_dir_all(&point)?;
        mount(Some("tmpfs"), &point, Some("tmpfs"), MsFlags::empty(), none)?;
    }
    let container = scene.container(Kind::Plain)?;
    let start = Instant::now();
    let host = scene.host()?;
    let names: Vec<String> = (0..FILES)
        .map(|number| format!("lib{number}.so.1"))
        .collect();
    let mut lap = Lap(start);
    let probe = lap.time();

    let mut devices = Vec::new();
    for _ in 0..DEVICES {
        devices.push(host.source("null0", Attributes::DEVICE)?);
    }
    let mut libraries = Vec::new();
    for name in &names {
        libraries.push(host.source(name, Attributes::FILE)?);
    }
    let sources = lap.time();

    let (root, mut mounter) = scene.enter(&container, &host)?;
    let enter = lap.time();

    let dev = root.create_dir_all(Path::new("/dev"), OPTIONS.mode)?;
    for (number, device) in devices.into_iter().enumerate() {
        let name = format!("null{number}");
        let target = dev.mount_point(Name::new(&name)?, device.kind())?;
        mounter.attach(device, &target)?;
    }
    let nodes = lap.time();

    let target = root.mount_point(Path::new("/usr/lib/v"), FileKind::Directory)?;
    let staged = mounter.tmpfs(target, &OPTIONS)?;
    let mut targets = Vec::new();
    for (name, library) in names.iter().zip(&libraries) {
        let directory = staged.directory();
        targets.push(directory.mount_point(Name::new(name)?, library.kind())?);
        let link = name.trim_end_matches(".1");
        directory.symlink(Name::new(link)?, Path::new(name))?;
    }
    let tmpfs = staged.attach(&mut mounter)?;
    for (library, target) in libraries.into_iter().zip(&targets) {
        mounter.attach(library, target)?;
    }
    drop(targets);
    tmpfs.set_read_only(&mounter)?;
    let files = lap.time();

    let all = start.elapsed().as_micros();
    print!(
        " {all} us: probe {probe}, sources {sources}, enter {enter}, {DEVICES} nodes {nodes}, \
         {FILES} files and links {files}"
    );
    Ok(())
}

/// A stop watch for one step after another, in microseconds.
struct Lap(Instant);

impl Lap {
    fn time(&mut self) -> u128 {
        let took: Duration = self.0.elapsed();
        self.0 = Instant::now();
        took.as_micros()
    }
}
