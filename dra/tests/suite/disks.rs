//! Tests with real parts: partitions of a loop device, which util-linux's addpart and delpart
//! make and remove.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::node::{NPUS, Node, refused, unprepare};

/// A Perl program for the requests LOOP_CTL_ADD and LOOP_CTL_REMOVE (linux/loop.h), because
/// util-linux can remove loop devices only since version 2.40.
const LOOP_CONTROL: &str = "open my $c, '+<', '/dev/loop-control' or die $!; defined ioctl($c, $ARGV[0], int $ARGV[1]) or die $!";
const ADD: u32 = 0x4C80;
const REMOVE: u32 = 0x4C81;

/// A class of disks with parts. Each slot has one mebibyte, which is 2048 sectors.
const CLASS: &str = "version = 1\nresource = 'example.com/disk'\nrequest = { env = 'DISKS' }\n\
    [[discover]]\npath = '/sys/block/DISK'\n\
    attributes = [{ name = 'id', value = 'DISK' }]\n\
    [[discover]]\nadditional = true\npath = '/sys/block/DISK/DISKp{partition:number}'\n\
    part_of = 'DISK'\n\
    attributes = [{ name = 'id', value = 'DISKp{partition}' }, { name = 'size', file = 'size' }]\n\
    [device]\nid = '{id}'\nnodes = ['/dev/{id}']\n";

const PROFILE: &str = "[[parts]]\nprofile = 'NAME'\nplacements = 'PLACES'\nslots = 'SLOTS'\n\
    attributes = [{ name = 'number', formula = '{placement} + 1' }, { name = 'start', formula = '{placement} * 2048' }, { name = 'sectors', formula = 'SLOTS * 2048' }]\n\
    found = { value = '{partition}-{size}', equals = '{number}-{sectors}' }\n\
    make = [['/usr/bin/addpart', '/dev/DISK', '{number}', '{start}', '{sectors}']]\n\
    remove = [['/usr/bin/delpart', '/dev/DISK', '{number}']]\n";

fn quietly(program: &str, arguments: &[&str]) -> Option<ExitStatus> {
    let mut command = Command::new(program);
    command.args(arguments).stderr(Stdio::null()).status().ok()
}

fn loop_control(request: u32, number: u32) -> bool {
    let arguments = [
        "-e",
        LOOP_CONTROL,
        &request.to_string(),
        &number.to_string(),
    ];
    quietly("perl", &arguments).is_some_and(|status| status.success())
}

/// A loop device of four mebibytes.
struct Disk {
    number: u32,
    name: String,
    file: PathBuf,
}

impl Disk {
    fn new(directory: &Path) -> Option<Self> {
        let number = 20_000 + std::process::id() % 10_000;
        if !loop_control(ADD, number) {
            return None;
        }
        let (name, file) = (format!("loop{number}"), directory.join("disk"));
        let disk = Disk { number, name, file };
        File::create(&disk.file).unwrap().set_len(4 << 20).unwrap();
        let file = disk.file.to_str().unwrap();
        let attached = quietly("losetup", &["-P", &disk.node(), file]);
        attached
            .is_some_and(|status| status.success())
            .then_some(disk)
    }

    fn node(&self) -> String {
        format!("/dev/{}", self.name)
    }

    fn partitions(&self) -> Vec<String> {
        let mut names = crate::node::names(&Path::new("/sys/block").join(&self.name));
        names.retain(|name| name.starts_with(&self.name));
        names
            .iter()
            .map(|name| name[self.name.len()..].to_owned())
            .collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        for number in 1..=4 {
            quietly("delpart", &[&self.node(), &number.to_string()]);
        }
        quietly("losetup", &["-d", &self.node()]);
        loop_control(REMOVE, self.number);
    }
}

#[tokio::test]
async fn partitions_of_a_disk_are_made_and_removed() {
    let needs = ["/usr/bin/addpart", "/usr/bin/delpart"];
    let is_there = needs.iter().all(|path| Path::new(path).exists());
    let mut node = Node::new(NPUS, 0).await;
    let disk = is_there.then(|| Disk::new(&node.path(""))).flatten();
    let Some(disk) = disk else {
        return skip::report(
            "partitions of a disk",
            "needs loop devices, perl and util-linux",
        );
    };
    let profile = |name: &str, places: &str, slots: &str| {
        PROFILE
            .replace("NAME", name)
            .replace("PLACES", places)
            .replace("SLOTS", slots)
    };
    let class =
        CLASS.to_owned() + &profile("one", "0, 1, 2, 3", "1") + &profile("two", "0, 2", "2");
    node.write("classes/disk.toml", &class.replace("DISK", &disk.name));
    let classes = node.path("classes");
    node.write(
        "config.toml",
        &format!("classes = [{classes:?}]\n[class.disk]\nserve = 'dra'\n"),
    );
    let driver = node.start().await;
    node.wait_count(7).await;
    let parts = ["-two-0", "-one-3", "-two-2", ""];
    let [two, one, other, whole] = &parts.map(|part| format!("{}{part}", disk.name));
    node.prepare(&driver, "disk", two).await.unwrap();
    node.prepare(&driver, "disk", one).await.unwrap();
    assert_eq!(disk.partitions(), ["p1", "p4"]);
    // Data that a container writes to its part is at the right place of the disk.
    let edits = &node.specified(&format!("u-{one}"))[0]["containerEdits"];
    let nodes = edits["deviceNodes"].as_array().unwrap();
    let path = nodes[0]["path"].as_str().unwrap();
    assert_eq!(
        (path, nodes.len()),
        (format!("{}p4", disk.node()).as_str(), 1)
    );
    let mut part = File::options().write(true).open(path).unwrap();
    part.write_all(&[b'x'; 4096]).unwrap();
    part.sync_all().unwrap();
    let mut written = File::open(&disk.file).unwrap();
    written.seek(SeekFrom::Start(3 << 20)).unwrap();
    let mut text = [0; 4];
    written.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"xxxx");
    // Both claims end while another process still has a part open.
    unprepare(&driver, two).await;
    unprepare(&driver, one).await;
    let wanted = "-one-3, which no claim has, is in the way";
    refused(node.prepare(&driver, "disk", whole), wanted).await;
    drop(part);
    node.prepare(&driver, "disk", whole).await.unwrap();
    assert_eq!(disk.partitions(), [""; 0]);
    unprepare(&driver, whole).await;
    // After a restart, the driver finds the parts that exist.
    node.prepare(&driver, "disk", other).await.unwrap();
    let third = format!("{}p3", disk.node());
    let made = || fs::metadata(&third).unwrap().modified().unwrap();
    let before = made();
    let driver = node.start().await;
    node.prepare(&driver, "disk", other).await.unwrap();
    unprepare(&driver, other).await;
    assert_eq!((disk.partitions(), made()), (vec!["p3".to_owned()], before));
}
