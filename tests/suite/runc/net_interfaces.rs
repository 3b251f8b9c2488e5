//! Network interfaces of devices, which the hook moves into the container's network namespace.
//! Each test has a network namespace of its own, with virtual Ethernet interfaces for those of
//! hardware.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use harness::binaries;
use harness::bundle::{Bundle, BundleBuilder, HookCommand, Stage};
use harness::captured::Captured;
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;
use harness::runc::Container;
use harness::surroundings::leave_mount_namespace;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;

use crate::lab::{Lab, on_each_cgroup_version, requesting};
use crate::said::assert_says;

on_each_cgroup_version!(
    an_interface_is_moved_as_it_is,
    an_interface_gets_the_name_of_its_class,
    a_name_that_the_container_has_is_refused,
    one_container_at_a_time_has_an_interface,
    in_the_hosts_network_nothing_is_moved,
    containers_of_a_pod_share_the_interface,
    the_interfaces_of_a_device_that_a_pod_has_in_part_are_set_up,
    an_interface_that_a_pod_has_is_set_up,
    an_interface_that_cannot_be_set_up_is_moved_with_a_warning,
    the_hook_may_be_called_twice,
    a_container_with_a_user_namespace_gets_it,
    a_device_without_interface_is_refused,
    an_interface_that_comes_back_is_waited_for,
    another_interface_with_its_name_is_not_moved,
    a_running_container_does_not_get_it,
);

const VARIABLE: &str = "BUS";

/// A host with adapters, whose network namespace and view of it in /sys are those of this thread.
struct Host {
    demo: DemoHost,
    sys: PathBuf,
}

impl Host {
    /// The class is one of a bus, on which an adapter is also found while a container has its
    /// interface.
    fn new(netdev: &str, adapters: &[&str]) -> Self {
        let demo = DemoHost::new().unwrap();
        let class = format!(
            "version = 1\nresource = 'bus.com/adapter'\nrequest = {{ env = '{VARIABLE}' }}\n\
             discover = [{{ path = '/etc/adapters/{{name}}' }}]\n\
             [device]\nid = 'adapter-{{name}}'\nnetdev = {netdev}\n"
        );
        demo.add_class("bus", &class).unwrap();
        for adapter in adapters {
            demo.add_file(&format!("/etc/adapters/{adapter}"), "")
                .unwrap();
            ip(&[
                "link",
                "add",
                adapter,
                "type",
                "veth",
                "peer",
                "name",
                &format!("{adapter}p"),
            ]);
        }
        let sys = demo.root().join("sys");
        fs::create_dir(&sys).unwrap();
        let none = None::<&str>;
        mount(Some("sysfs"), &sys, Some("sysfs"), MsFlags::empty(), none).unwrap();
        Self { demo, sys }
    }

    fn plain(adapters: &[&str]) -> Self {
        Self::new("'/sys/class/net/{name}'", adapters)
    }

    fn wanting(&self, devices: &str) -> BundleBuilder {
        requesting(&self.demo, Rootfs::Busybox, VARIABLE, devices)
    }

    fn has_interface(&self, interface: &str) -> bool {
        self.sys.join("class/net").join(interface).exists()
    }

    /// The log's last line about a container that is not created.
    fn refusal(&self, lab: &Lab, bundle: &Bundle) -> String {
        let ran = lab.runc.run(bundle).unwrap();
        assert!(!ran.status.success());
        let log = self.demo.log();
        log.lines().last().unwrap_or_default().to_owned()
    }

    fn boathook(&self, arguments: &[&str]) -> Captured {
        let mut command = Command::new(binaries::program("boathook").unwrap());
        command.arg("--config").arg(self.demo.config_file());
        Captured::run(command.args(arguments)).unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        umount2(&self.sys, MntFlags::MNT_DETACH).unwrap();
    }
}

fn ip(arguments: &[&str]) {
    let mut command = Command::new("ip");
    Captured::run(command.args(arguments))
        .and_then(Captured::success)
        .unwrap();
}

/// Runs a test in a thread with namespaces of its own.
fn in_private_network(lab: &Lab, body: impl FnOnce(&Lab) + Send) {
    let run = || {
        leave_mount_namespace().unwrap();
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        body(lab);
    };
    thread::scope(|scope| scope.spawn(run).join()).unwrap();
}

/// The interfaces that a container has.
fn interfaces(container: &Container<'_>) -> Vec<String> {
    let names = container.output(&["ls", "/sys/class/net"]).unwrap();
    names.split_whitespace().map(str::to_owned).collect()
}

fn is_up(container: &Container<'_>, interface: &str) -> bool {
    let path = format!("/sys/class/net/{interface}/flags");
    let flags = container.output(&["cat", &path]).unwrap();
    let flags = flags.trim().trim_start_matches("0x");
    u32::from_str_radix(flags, 16).unwrap() & 1 == 1
}

fn an_interface_is_moved_as_it_is(lab: &Lab) {
    in_private_network(lab, |lab| {
        let host = Host::plain(&["bus0", "bus1", "bus2"]);
        ip(&["link", "set", "bus0", "up"]);
        let explained = |devices: &str| {
            let bundle = host.wanting(devices).build().unwrap();
            let directory = bundle.directory().display().to_string();
            let explained = host.boathook(&["explain", "--bundle", &directory]);
            explained.success().unwrap().stdout
        };
        assert_says(
            &explained("adapter-bus0"),
            &["netdev     adapter-bus0  bus0"],
        );
        let bundle = host.wanting("adapter-bus0,adapter-bus1").build().unwrap();
        let running = lab.start(&bundle);
        assert_eq!(interfaces(&running), ["bus0", "bus1", "lo"]);
        assert!(is_up(&running, "bus0"));
        assert!(!is_up(&running, "bus1"));
        assert!(
            !host.has_interface("bus0")
                && !host.has_interface("bus1")
                && host.has_interface("bus2")
        );
        // A moved interface is still a device of the host.
        let listed = host.boathook(&["list", "bus"]).success().unwrap().stdout;
        assert_says(&listed, &["adapter-bus0", "adapter-bus1", "adapter-bus2"]);
        assert!(!listed.contains("unhealthy"), "{listed}");
        let of = |id: &str| listed.lines().find(|line| line.contains(id)).unwrap();
        assert!(of("adapter-bus2").contains(" bus2"), "{listed}");
        assert!(!of("adapter-bus1").contains(" bus1"), "{listed}");
        let doctor = host.boathook(&[
            "explain",
            "--bundle",
            &bundle.directory().display().to_string(),
        ]);
        assert_says(
            &doctor.success().unwrap().stdout,
            &["/sys/class/net/bus0 matches nothing in the host's network namespace now"],
        );
        drop(running);
        lab.assert_nothing_left(&bundle);
    });
}

fn an_interface_gets_the_name_of_its_class(lab: &Lab) {
    in_private_network(lab, |lab| {
        let host = Host::new(
            "{ path = '/sys/class/net/{name}', name = 'can0' }",
            &["bus0"],
        );
        let bundle = host.wanting("all").build().unwrap();
        let running = lab.start(&bundle);
        assert_eq!(interfaces(&running), ["can0", "lo"]);
        assert!(!host.has_interface("bus0"));
    });
}

fn a_name_that_the_container_has_is_refused(lab: &Lab) {
    in_private_network(lab, |lab| {
        let taken = "the container has a network interface lo already";
        let host = Host::new("{ path = '/sys/class/net/{name}', name = 'lo' }", &["bus0"]);
        let bundle = host.wanting("all").build().unwrap();
        let refused = host.refusal(lab, &bundle);
        assert!(refused.contains(taken), "{refused}");
        assert!(host.has_interface("bus0"));
        drop(host);
        // Two devices cannot have one name.
        let two = "{ path = '/sys/class/net/{name}', name = 'can0' }";
        let host = Host::new(two, &["two0", "two1"]);
        let refused = host.refusal(lab, &host.wanting("all").build().unwrap());
        let taken = "adapter-two1: the container has a network interface can0 already";
        assert!(refused.contains(taken), "{refused}");
        assert!(host.has_interface("two0") && host.has_interface("two1"));
    });
}

fn one_container_at_a_time_has_an_interface(lab: &Lab) {
    in_private_network(lab, |lab| {
        let host = Host::plain(&["bus0"]);
        let bundle = host.wanting("all").build().unwrap();
        let running = lab.start(&bundle);
        let second = host.wanting("adapter-bus0").build().unwrap();
        let refused = host.refusal(lab, &second);
        let line = "adapter-bus0: none of its network interfaces is in the host's network namespace \
                    (/sys/class/net/bus0): it is in that of process ";
        assert!(refused.contains(line), "{refused}");
        assert!(refused.ends_with("until the container ends"), "{refused}");
        assert_eq!(interfaces(&running), ["bus0", "lo"]);
    });
}

fn in_the_hosts_network_nothing_is_moved(lab: &Lab) {
    in_private_network(lab, |lab| {
        let host = Host::plain(&["bus0"]);
        let own = format!("{}/task/{}", std::process::id(), gettid());
        let bundle = host.wanting("all").network_of(own).build().unwrap();
        let running = lab.start(&bundle);
        assert!(host.has_interface("bus0"));
        assert_eq!(interfaces(&running), ["bus0", "bus0p", "lo"]);
    });
}

fn containers_of_a_pod_share_the_interface(lab: &Lab) {
    in_private_network(lab, |lab| {
        let host = Host::plain(&["bus0"]);
        let pause = Bundle::builder(Rootfs::Busybox).build().unwrap();
        let pause = lab.start(&pause);
        let pid = pause.pid().unwrap();
        let bundle = host.wanting("all").network_of(pid).build().unwrap();
        for round in 0..2 {
            let running = lab.start(&bundle);
            assert_eq!(interfaces(&running), ["bus0", "lo"], "{round}");
            assert!(!host.has_interface("bus0"), "{round}");
        }
    });
}

/// A start that failed between two interfaces of one device has set up neither.
fn the_interfaces_of_a_device_that_a_pod_has_in_part_are_set_up(lab: &Lab) {
    in_private_network(lab, |lab| {
        let host = Host::new("'/sys/class/net/{name}{port:number}'", &[]);
        host.demo.add_file("/etc/adapters/bus", "").unwrap();
        ip(&[
            "link", "add", "bus0", "type", "veth", "peer", "name", "bus1",
        ]);
        ip(&["link", "set", "bus1", "up"]);
        let pause = Bundle::builder(Rootfs::Busybox).build().unwrap();
        let pause = lab.start(&pause);
        let pid = pause.pid().unwrap();
        ip(&["link", "set", "bus0", "netns", &pid.to_string()]);
        let bundle = host.wanting("all").network_of(pid).build().unwrap();
        let running = lab.start(&bundle);
        assert_eq!(interfaces(&running), ["bus0", "bus1", "lo"]);
        assert!(is_up(&running, "bus0") && is_up(&running, "bus1"));
    });
}

/// An earlier start of the container failed after the interface was moved.
fn an_interface_that_a_pod_has_is_set_up(lab: &Lab) {
    in_private_network(lab, |lab| {
        let host = Host::plain(&["bus0"]);
        let pause = Bundle::builder(Rootfs::Busybox).build().unwrap();
        let pause = lab.start(&pause);
        let pid = pause.pid().unwrap();
        ip(&["link", "set", "bus0", "netns", &pid.to_string()]);
        let bundle = host.wanting("all").network_of(pid).build().unwrap();
        let running = lab.start(&bundle);
        assert_eq!(interfaces(&running), ["bus0", "lo"]);
        assert!(is_up(&running, "bus0"));
    });
}

fn the_hook_may_be_called_twice(lab: &Lab) {
    in_private_network(lab, |lab| {
        let host = Host::plain(&["bus0"]);
        let again = HookCommand::boathook(Stage::Prestart, &host.demo.config_file()).unwrap();
        let bundle = host.wanting("all").hook(Stage::Prestart, again);
        let bundle = bundle.build().unwrap();
        let running = lab.start(&bundle);
        assert_eq!(interfaces(&running), ["bus0", "lo"]);
    });
}

fn a_container_with_a_user_namespace_gets_it(lab: &Lab) {
    in_private_network(lab, |lab| {
        let host = Host::plain(&["bus0"]);
        ip(&["link", "set", "bus0", "up"]);
        let bundle = host.wanting("all").user_namespace().build().unwrap();
        let running = lab.start(&bundle);
        assert_eq!(interfaces(&running), ["bus0", "lo"]);
        assert!(is_up(&running, "bus0"));
    });
}

fn a_device_without_interface_is_refused(lab: &Lab) {
    in_private_network(lab, |lab| {
        let host = Host::plain(&["bus0"]);
        host.demo.add_file("/etc/adapters/none", "").unwrap();
        let refused = host.refusal(lab, &host.wanting("all").build().unwrap());
        let line = "adapter-none: none of its network interfaces is in the host's network namespace \
                    (/sys/class/net/none): another container has it, or its driver has made none";
        assert!(refused.contains(line), "{refused}");
        assert!(host.has_interface("bus0"));
    });
}

/// The kernel moves an interface back some time after its container has ended.
fn an_interface_that_comes_back_is_waited_for(lab: &Lab) {
    in_private_network(lab, |lab| {
        let host = Host::plain(&[]);
        host.demo.add_file("/etc/adapters/bus0", "").unwrap();
        let bundle = host.wanting("all").build().unwrap();
        let back = "sleep 0.5; ip link add bus0 type veth peer name bus0p";
        let mut kernel = Command::new("sh").args(["-c", back]).spawn().unwrap();
        let running = lab.start(&bundle);
        assert_eq!(interfaces(&running), ["bus0", "lo"]);
        kernel.wait().unwrap();
    });
}

/// Udev gives the name to another interface between the look at /sys and the move.
fn another_interface_with_its_name_is_not_moved(lab: &Lab) {
    in_private_network(lab, |lab| {
        let host = Host::plain(&["bus0", "bus1"]);
        let number = |interface: &str| host.sys.join("class/net").join(interface).join("ifindex");
        let (from, to, none) = (number("bus1"), number("bus0"), None::<&str>);
        mount(Some(&from), &to, none, MsFlags::MS_BIND, none).unwrap();
        let refused = host.refusal(lab, &host.wanting("adapter-bus0").build().unwrap());
        let line =
            "adapter-bus0: none of its network interfaces is in the host's network namespace";
        assert!(refused.contains(line), "{refused}");
        assert!(host.has_interface("bus0") && host.has_interface("bus1"));
        let bundle = host.wanting("adapter-bus1").build().unwrap();
        let running = lab.start(&bundle);
        assert_eq!(interfaces(&running), ["bus1", "lo"]);
    });
}

fn an_interface_that_cannot_be_set_up_is_moved_with_a_warning(lab: &Lab) {
    in_private_network(lab, |lab| {
        let host = Host::plain(&["bus0"]);
        host.demo.add_file("/etc/adapters/vx0", "").unwrap();
        // To be set up, vx0 joins a group on bus0. With so small an MTU bus0 has no IPv6 any more.
        for command in [
            "link set bus0 up",
            "link add vx0 type vxlan id 5 group ff05::1 dev bus0 dstport 4789",
            "link set vx0 up",
            "link set bus0 mtu 1000",
        ] {
            ip(&command.split(' ').collect::<Vec<_>>());
        }
        let bundle = host.wanting("adapter-vx0").build().unwrap();
        let running = lab.start(&bundle);
        assert_eq!(interfaces(&running), ["lo", "vx0"]);
        assert!(!is_up(&running, "vx0"));
        let warning = "adapter-vx0: the network interface vx0 cannot be set up in the container, as it \
                       was on the host";
        assert_says(&host.demo.log(), &[warning]);
    });
}

fn a_running_container_does_not_get_it(lab: &Lab) {
    in_private_network(lab, |lab| {
        let host = Host::plain(&["bus0"]);
        let bundle = host.wanting("none").build().unwrap();
        let running = lab.start(&bundle);
        let root = lab.runc.state_directory().display().to_string();
        let attached = host.boathook(&["attach", "--root", &root, bundle.id(), "bus=adapter-bus0"]);
        assert_says(
            &attached.stderr,
            &[
                "adapter-bus0 has a network interface, which a container gets only when it is started",
            ],
        );
        assert!(host.has_interface("bus0"));
        drop(running);
    });
}
