//! docker, and podman, which has the same commands.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Child, Command};
use std::sync::RwLock;

use anyhow::Result;
use harness::binaries;
use harness::demo_host::in_container;
use harness::engine_root::Generation;
use harness::image::Image;
use harness::probe;
use harness::rootfs::Rootfs;
use serde_json::{Value, json};

use super::case::Case;
use super::cdi;
use super::engine::{ContainerSettings, Engine, IMAGES, MAPPED_ROOT, Running, printed};
use super::machine::{self, Machine};

/// An engine with docker's commands.
pub(super) struct DockerLike {
    pub(super) machine: Machine,
    /// The words before the subcommand: program and options.
    client: fn(&Machine) -> Command,
    requests: Requests,
    /// More options of `run`.
    pub(super) options: Vec<String>,
    user_namespaces: UserNamespaces,
    /// Shared by who starts a container, and held alone by who ends one: docker 20.10 can
    /// deadlock if one is removed while others come and go (libnetwork, `getSvcRecords` and
    /// `DecEndpointCnt`).
    removing: RwLock<()>,
}

/// The way in which a container requests devices.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Requests {
    /// By the class's variable.
    Variable,
    /// By the names of CDI devices.
    Cdi,
}

/// The containers that are in user namespaces.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UserNamespaces {
    /// None of the daemon's.
    None,
    /// All of the daemon's.
    All,
    /// Containers for which `run` is configured so.
    ByOption,
}

pub(super) fn missing(generation: Generation) -> Option<String> {
    machine::missing(generation, &["dockerd", "docker", "containerd", "runc"])
}

/// A dockerd of its own, with the runtime in its daemon.json.
pub(super) fn engine(generation: Generation) -> Result<DockerLike> {
    with(generation, UserNamespaces::None, &json!({}))
}

/// A dockerd without Boathook's configuration: containers name devices of CDI
/// specifications.
pub(super) fn by_cdi(generation: Generation) -> Result<DockerLike> {
    let machine = bare(generation)?;
    cdi::generate(&machine, &[])?;
    DockerLike::new(machine, client, Requests::Cdi, &[], UserNamespaces::None)
}

/// A dockerd for which Boathook has the names of NVIDIA's container toolkit, as after
/// `boathook-init install --as nvidia`. A class has the variable that `--gpus` sets.
pub(super) fn with_gpus(generation: Generation) -> Result<DockerLike> {
    let machine = unconfigured(generation, UserNamespaces::None, &json!({}))?;
    machine.install_as(runtime_config::Engine::Docker, None, &["nvidia"])?;
    add_gpu_class(&machine, "test.com/gpu")?;
    start_with_links(
        &machine,
        &["nvidia-container-runtime-hook", "nvidia-cdi-hook"],
    )?;
    let (variable, no_namespaces) = (Requests::Variable, UserNamespaces::None);
    DockerLike::new(machine, client, variable, &[], no_namespaces)
}

/// A dockerd with only that program of NVIDIA's container toolkit by which newer versions see that
/// `--gpus` means CDI devices, and with generated specifications.
pub(super) fn with_gpus_by_cdi(generation: Generation) -> Result<DockerLike> {
    let machine = unconfigured(generation, UserNamespaces::None, &json!({}))?;
    add_gpu_class(&machine, "nvidia.com/gpu")?;
    cdi::generate(&machine, &[])?;
    start_with_links(&machine, &["nvidia-cdi-hook"])?;
    DockerLike::new(machine, client, Requests::Cdi, &[], UserNamespaces::None)
}

/// Adds a class of GPUs that has the variable which `--gpus` sets.
fn add_gpu_class(machine: &Machine, resource: &str) -> Result<()> {
    let class = format!(
        "version = 1\nresource = \"{resource}\"\n\
         request = {{ env = \"NVIDIA_VISIBLE_DEVICES\" }}\n\
         discover = [{{ path = \"/dev/dummy-npu{{index:number}}\" }}]\n\
         [device]\nid = \"gpu-{{index}}\"\nindex = \"{{index}}\"\n\
         nodes = [\"/dev/dummy-npu{{index}}\"]\n"
    );
    machine.devices.add_class("gpu", &class)
}

/// Starts a dockerd whose PATH has links with these names to the hook, in a directory that is not
/// the test machine's.
fn start_with_links(machine: &Machine, names: &[&str]) -> Result<()> {
    let links = machine.path("links");
    fs::create_dir(&links)?;
    for name in names {
        symlink(binaries::program("boathook-hook")?, links.join(name))?;
    }
    let mut daemon = machine.private.command("dockerd");
    let path = std::env::var("PATH").unwrap_or_default();
    daemon.env("PATH", format!("{}:{path}", links.display()));
    start_with(machine, &mut daemon).map(drop)
}

/// The same with a user namespace for every container.
pub(super) fn remapped(generation: Generation) -> Result<DockerLike> {
    with(generation, UserNamespaces::All, &json!({}))
}

/// The same with images in containerd's store.
pub(super) fn with_containerd_store(generation: Generation) -> Result<DockerLike> {
    let more = json!({"features": {"containerd-snapshotter": true}});
    with(generation, UserNamespaces::None, &more)
}

/// The same with `more` in its daemon.json.
pub(super) fn with(
    generation: Generation,
    user_namespaces: UserNamespaces,
    more: &Value,
) -> Result<DockerLike> {
    by_runtime(
        configured(generation, user_namespaces, more)?,
        user_namespaces,
    )
}

fn by_runtime(machine: Machine, user_namespaces: UserNamespaces) -> Result<DockerLike> {
    let options = ["--runtime", "boathook"];
    DockerLike::new(
        machine,
        client,
        Requests::Variable,
        &options,
        user_namespaces,
    )
}

/// A machine with a dockerd that has the runtime, without images.
pub(super) fn configured(
    generation: Generation,
    user_namespaces: UserNamespaces,
    more: &Value,
) -> Result<Machine> {
    let machine = unconfigured(generation, user_namespaces, more)?;
    machine.install(runtime_config::Engine::Docker, None)?;
    start_daemon(&machine)?;
    Ok(machine)
}

/// A machine with a dockerd without Boathook's configuration.
pub(super) fn bare(generation: Generation) -> Result<Machine> {
    let machine = unconfigured(generation, UserNamespaces::None, &json!({}))?;
    start_daemon(&machine)?;
    Ok(machine)
}

/// A machine with docker's own settings.
pub(super) fn unconfigured(
    generation: Generation,
    user_namespaces: UserNamespaces,
    more: &Value,
) -> Result<Machine> {
    let machine = Machine::new(generation, "runc")?;
    let mut settings = json!({
        "data-root": machine.path("data"),
        "exec-root": machine.path("exec"),
        "pidfile": machine.path("pid"),
        "hosts": [socket(&machine)],
        "cgroup-parent": machine.parent.path(),
        "bridge": "none",
        "iptables": false,
        "ip-forward": false,
    });
    if user_namespaces == UserNamespaces::All {
        // A user that every machine has; root itself is refused.
        settings["userns-remap"] = json!("daemon");
        let ids = format!("daemon:{MAPPED_ROOT}:65536\n");
        machine.write("/etc/subuid", &ids)?;
        machine.write("/etc/subgid", &ids)?;
    }
    for (key, value) in more.as_object().into_iter().flatten() {
        settings[key] = value.clone();
    }
    machine.write("/etc/docker/daemon.json", &format!("{settings:#}\n"))?;
    Ok(machine)
}

/// Starts dockerd, which is not running.
pub(super) fn start_daemon(machine: &Machine) -> Result<Child> {
    start_with(machine, &mut machine.private.command("dockerd"))
}

fn start_with(machine: &Machine, daemon: &mut Command) -> Result<Child> {
    let ready = || printed(client(machine).arg("version")).is_ok();
    machine.start("dockerd", daemon, ready)
}

/// Gives a running dockerd the pid file and the socket that it has unless it is configured
/// otherwise.
pub(super) fn place_as_by_default(machine: &Machine) -> Result<()> {
    let pid_file = machine.private.file("/run/docker.pid");
    fs::copy(machine.path("pid"), pid_file)?;
    let bind = "touch /run/docker.sock && mount --bind \"$0\" /run/docker.sock";
    let mut bound = machine.private.command("sh");
    bound.args(["-c", bind]).arg(machine.path("socket"));
    printed(&mut bound).map(drop)
}

pub(super) fn socket(machine: &Machine) -> String {
    format!("unix://{}", machine.path("socket").display())
}

pub(super) fn client(machine: &Machine) -> Command {
    let mut command = machine.private.command("docker");
    command.arg("--host").arg(socket(machine));
    command
}

impl DockerLike {
    /// An engine that answers by now.
    pub(super) fn new(
        machine: Machine,
        client: fn(&Machine) -> Command,
        requests: Requests,
        options: &[&str],
        user_namespaces: UserNamespaces,
    ) -> Result<Self> {
        let engine = Self {
            machine,
            client,
            requests,
            options: options.iter().map(ToString::to_string).collect(),
            user_namespaces,
            removing: RwLock::default(),
        };
        for rootfs in IMAGES {
            let image = Image::new(rootfs)?;
            let mut command = engine.command("import");
            printed(command.arg(image.layer()).arg(name_of(rootfs)))?;
        }
        Ok(engine)
    }

    /// The devices of a running container.
    #[track_caller]
    pub(super) fn devices(&self, name: &str) -> Vec<usize> {
        let exec = |asked: &[String]| printed(self.command("exec").arg(name).args(asked));
        in_container::devices_by(exec).unwrap()
    }

    /// Starts a container of this name, which waits.
    #[track_caller]
    pub(super) fn run_waiting(&self, name: &str, options: &[&str]) {
        let mut run = self.command("run");
        run.args(["--detach", "--stop-timeout=0", "--name", name]);
        run.args(options).arg(name_of(Rootfs::Busybox));
        printed(run.args([probe::PATH, probe::PAUSE])).unwrap();
    }

    /// A command of its client.
    pub(super) fn command(&self, subcommand: &str) -> Command {
        let mut command = (self.client)(&self.machine);
        command.arg(subcommand);
        command
    }
}

impl Engine for DockerLike {
    fn lacks(&self, case: Case) -> Option<&'static str> {
        match case {
            Case::UserNamespace if self.user_namespaces == UserNamespaces::None => {
                Some("the daemon has no user namespaces; the one with userns-remap has")
            }
            Case::UserNamespace if self.requests == Requests::Cdi => {
                Some("runc binds the host's node of the same path, and the test's is elsewhere")
            }
            Case::NoneOfThem if self.requests == Requests::Cdi => Some(cdi::NO_FILES_ALONE),
            Case::UnknownDevice if self.requests == Requests::Cdi => Some(cdi::ENGINE_REFUSES),
            _ => None,
        }
    }

    fn start(&self, wanted: &ContainerSettings) -> Result<Box<dyn Running + '_>> {
        let number = harness::scratch::number();
        let container = Container {
            engine: self,
            name: format!("test-{number}"),
        };
        let mut command = self.command("run");
        // The container's only process does not listen to SIGTERM.
        command.args(["--detach", "--stop-timeout=0", "--name", &container.name]);
        command.arg("--network=none").args(&self.options);
        if let Some(devices) = &wanted.devices {
            match self.requests {
                Requests::Variable => {
                    command.arg(format!("--env=DUMMY_VISIBLE_DEVICES={devices}"));
                }
                Requests::Cdi => {
                    let devices = devices.split(',');
                    command.args(devices.map(|name| format!("--device=dummy.com/npu={name}")));
                }
            }
        }
        if wanted.readonly {
            command.arg("--read-only");
        }
        if let Some(user) = wanted.user {
            command.arg(format!("--user={user}"));
        }
        if wanted.user_namespace && self.user_namespaces == UserNamespaces::ByOption {
            command.arg(format!("--uidmap=0:{MAPPED_ROOT}:65536"));
            command.arg(format!("--gidmap=0:{MAPPED_ROOT}:65536"));
        }
        command.arg(name_of(wanted.image));
        {
            let _starting = self.removing.read();
            printed(command.args([probe::PATH, probe::PAUSE]))?;
        }
        Ok(Box::new(container))
    }
}

/// A container of a name.
pub(super) struct Container<'a> {
    pub(super) engine: &'a DockerLike,
    pub(super) name: String,
}

impl Running for Container<'_> {
    fn exec(&self, args: &[String]) -> Result<String> {
        printed(self.engine.command("exec").arg(&self.name).args(args))
    }

    fn restart(&self) -> Result<()> {
        let _alone = self.engine.removing.write();
        let mut command = self.engine.command("restart");
        printed(command.arg(&self.name)).map(drop)
    }

    fn changes(&self) -> Result<String> {
        printed(self.engine.command("diff").arg(&self.name))
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let _alone = self.engine.removing.write();
        let mut command = self.engine.command("rm");
        if let Err(error) = printed(command.args(["--force", &self.name])) {
            // Called while dropping: there is nobody to return it to.
            eprintln!("{error:#}");
        }
    }
}

/// An image's name there.
pub(super) fn name_of(image: Rootfs) -> String {
    format!("boathook-test-{}", image.name())
}
