//! Devices that a test adds to this machine and removes again.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use harness::captured::Captured;

/// The kernel's interface for zram (Documentation/admin-guide/blockdev/zram.rst).
const ZRAM_CONTROL: &str = "/sys/class/zram-control";
/// LOOP_CTL_ADD and LOOP_CTL_REMOVE (linux/loop.h); util-linux removes only since 2.40.
const LOOP_CONTROL: &str = "open my $c, '+<', '/dev/loop-control' or die $!; defined ioctl($c, $ARGV[0], int $ARGV[1]) or die $!";
const ADD: u32 = 0x4C80;
const REMOVE: u32 = 0x4C81;

pub(super) struct HotAdded {
    kind: &'static str,
    number: u32,
    /// The interface with which a tap goes.
    link: String,
}

impl HotAdded {
    /// A loop device, if one can be added.
    pub(super) fn disk() -> Option<Self> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let number = 200 + 10 * (std::process::id() % 1000) + number;
        loop_control(ADD, number).ok()?;
        let added = Self {
            kind: "loop",
            number,
            link: String::new(),
        };
        fs::exists(added.node()).unwrap().then_some(added)
    }

    /// A block device in compressed memory, if one can be added.
    pub(super) fn memory() -> Option<Self> {
        let number = fs::read_to_string(format!("{ZRAM_CONTROL}/hot_add")).ok()?;
        let number = number.trim().parse().ok()?;
        Some(Self {
            kind: "zram",
            number,
            link: String::new(),
        })
    }

    /// An interface for packets as a character device, if one can be added.
    pub(super) fn tap() -> Option<Self> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let [link, peer, tap] =
            ["l", "p", "t"].map(|kind| format!("bh{kind}{}-{number}", std::process::id()));
        ip(&format!("link add {link} type veth peer name {peer}")).ok()?;
        let Ok(number) = add_tap(&link, &tap) else {
            ip(&format!("link delete {link}")).unwrap();
            return None;
        };
        Some(Self {
            kind: "tap",
            number,
            link,
        })
    }

    /// Returns the text by which a class discovers it, whatever its number, with its node's name.
    pub(super) fn discovered(&self) -> String {
        match self.kind {
            "tap" => format!(
                "path = '/sys/class/net/{}/macvtap/{{name}}'",
                self.tap_name()
            ),
            kind => format!(
                "path = '/sys/block/{{name}}', require = [{{ value = '{{name}}', equals = '{kind}{}' }}]",
                self.number
            ),
        }
    }

    /// The interface of a tap.
    fn tap_name(&self) -> String {
        self.link.replacen('l', "t", 1)
    }

    /// Removes it, to come back. Only a tap and a loop device can.
    pub(super) fn unplug(&self) {
        match self.kind {
            "tap" => ip(&format!("link delete {}", self.tap_name())).unwrap(),
            _ => loop_control(REMOVE, self.number).unwrap(),
        }
    }

    /// Adds it again: a tap has another number then.
    pub(super) fn plug_in(&mut self) {
        if self.kind != "tap" {
            return loop_control(ADD, self.number).unwrap();
        }
        self.number = add_tap(&self.link, &self.tap_name()).unwrap();
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Its node on the host and, for the class of the test, in the container.
    pub(super) fn node(&self) -> String {
        format!("/dev/{}{}", self.kind, self.number)
    }

    /// Its major and minor number.
    pub(super) fn device(&self) -> (u64, u64) {
        let number = fs::metadata(self.node()).unwrap().rdev();
        (nix::sys::stat::major(number), nix::sys::stat::minor(number))
    }
}

impl Drop for HotAdded {
    fn drop(&mut self) {
        let number = self.number.to_string();
        let removed = match self.kind {
            "loop" => loop_control(REMOVE, self.number),
            "tap" => ip(&format!("link delete {}", self.link)),
            _ => fs::write(format!("{ZRAM_CONTROL}/hot_remove"), number).map_err(Into::into),
        };
        // A panic after another one would end all tests.
        if let Err(error) = removed {
            eprintln!("cannot remove {}: {error:#}", self.node());
        }
    }
}

fn loop_control(request: u32, number: u32) -> anyhow::Result<()> {
    let mut perl = Command::new("perl");
    perl.args(["-e", LOOP_CONTROL])
        .args([request, number].map(|n| n.to_string()));
    Captured::run(&mut perl)?.success().map(drop)
}

/// Adds a tap on this interface; its number.
fn add_tap(link: &str, name: &str) -> anyhow::Result<u32> {
    ip(&format!("link add link {link} name {name} type macvtap"))?;
    let number = fs::read_to_string(format!("/sys/class/net/{name}/ifindex"))?;
    Ok(number.trim().parse()?)
}

fn ip(arguments: &str) -> anyhow::Result<()> {
    let mut ip = Command::new("ip");
    let ran = Captured::run(ip.args(arguments.split(' ')))?;
    ran.success().map(drop)
}
