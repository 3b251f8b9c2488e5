//! The command line of `boathook-init`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand};
use host_files::release_lock::ReleaseName;
use runtime_config::Engine;

use crate::layout::NODE_LABELS_PATH;
use crate::plugin_argument::PluginArgument;
use crate::recorded_options::EngineOptions;
use crate::service::Service;

/// Install the hook on a host, report its state, and remove it.
#[derive(Debug, Parser)]
#[command(name = "boathook-init", version, after_help = HELP_EXAMPLES)]
pub struct Cli {
    /// Where the host's / is mounted, such as /host in a container
    #[arg(long, global = true, value_name = "DIR", default_value = "/")]
    pub host_root: PathBuf,

    /// Also print each copied file, and Boathook's own files as diffs
    #[arg(short, long, global = true)]
    pub verbose: bool,

    /// Print the result as JSON, and a failure as {"error": ...}
    #[arg(long, global = true)]
    pub json: bool,

    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

const HELP_EXAMPLES: &str = "\
Examples:
  boathook-init install --dry-run                print what would change
  boathook-init install --engine docker,podman   configure these engines only
  boathook-init install --follow --cdi           with the services for USB devices and for CDI
  boathook-init install --prefix /data/boathook  where neither /opt nor /var/lib will do
  boathook-init install --as NAME                for `docker run --gpus all` and compose files
  boathook-init upgrade                          after another archive was unpacked
  boathook-init install --json                   what was done and what to do next, as JSON
  boathook-init --host-root /host status         in a container with the host mounted at /host

Exit codes:
  0  success, or there was nothing to do
  1  failure, and the host is unchanged; or status found something missing
  2  invalid command line";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Install the programs and configure the host's engines to call the hook
    Install(Install),
    /// Install this version in place of the installed one, for the same engines and with the
    /// same options; does nothing if nothing is installed
    Upgrade(Upgrade),
    /// Show what is installed, configured and loaded, and what is missing
    Status,
    /// Remove the programs and revert the engines' configuration
    Uninstall(Uninstall),
    /// Wait for SIGTERM; for a DaemonSet in which the init container does all the work
    Wait(Wait),
}

/// The options of `wait`.
#[derive(Debug, Args)]
pub struct Wait {
    /// Name of the release in the cluster, whose lock of the node is held meanwhile
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub release: Option<ReleaseName>,
}

/// The options of `install`.
#[derive(Debug, Args)]
pub struct Install {
    /// The engines to configure: auto, none, or names (containerd, k3s, rke2,
    /// k0s, microk8s, crio, docker, podman)
    #[arg(long, value_name = "NAME[,NAME]", default_value = "auto")]
    pub engine: EngineChoice,
    /// The directory of a release, or of a build, that contains the programs
    /// [default: that of this program]
    #[arg(long, value_name = "DIR")]
    pub source: Option<PathBuf>,
    /// The directory to install in, whose last name is boathook, if nothing is installed
    /// [default: the first of /opt/boathook, /home/kubernetes/bin/boathook and /var/lib/boathook
    /// that can be written to and whose file system is not mounted noexec]
    #[arg(long, value_name = "DIR")]
    pub prefix: Option<PathBuf>,
    /// The directory for config.toml and your own classes, whose last name is boathook, if nothing
    /// is installed [default: /etc/boathook, or /var/lib/boathook-config/boathook if that cannot
    /// be written to]
    #[arg(long, value_name = "DIR")]
    pub config_dir: Option<PathBuf>,
    /// The directory of the class files, or none; with this option there may be fewer than
    /// are installed [default: classes.d in the source]
    #[arg(long, value_name = "DIR")]
    pub classes: Option<PathBuf>,
    /// The directory of your own class files, such as a cluster's ConfigMap, which are
    /// installed beside the others; one with the name of another replaces it
    #[arg(long, value_name = "DIR")]
    pub own_classes: Option<PathBuf>,
    /// The configuration for /etc/boathook/config.toml, such as a cluster's ConfigMap; an
    /// existing file that boathook-init did not write is kept
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Make the runtime the engine's default; it then calls the runtime that was the
    /// default, and one that it cannot call is not replaced
    #[arg(long, overrides_with = "unsets_default")]
    pub set_default: bool,
    /// Restore the engine's earlier default runtime, if an installation with --set-default replaced it
    #[arg(long = "no-set-default", overrides_with = "set_default")]
    pub unsets_default: bool,
    /// Also offer it under the names of these vendors' toolkits, beside those of an earlier installation, so that `docker run --gpus`,
    /// `--runtime NAME` and `runtimeClassName: NAME` reach it; the names are those of
    /// the table `compatibility` in the class files, and refused while the toolkit itself is there
    #[arg(
        long = "as",
        value_name = "NAME[,NAME]",
        value_delimiter = ',',
        overrides_with = "removes_toolkits"
    )]
    pub toolkits: Vec<String>,
    /// Remove the names of vendors' toolkits that an earlier installation offered
    #[arg(long = "no-as", overrides_with = "toolkits")]
    pub removes_toolkits: bool,
    /// containerd: call the hook from this OCI spec (see "ctr oci spec")
    /// instead of the wrapper runtime
    #[arg(long, value_name = "FILE", overrides_with = "removes_base_spec")]
    pub base_spec: Option<PathBuf>,
    /// containerd: use the wrapper runtime, if an earlier installation used an OCI spec
    #[arg(long = "no-base-spec", overrides_with = "base_spec")]
    pub removes_base_spec: bool,
    /// Enable and start boathook-cdi.service, which writes CDI specifications at each boot and
    /// after devices have changed
    #[arg(long = "cdi")]
    pub enables_cdi: bool,
    /// Disable and stop boathook-cdi.service, if an earlier installation enabled it
    #[arg(long = "no-cdi", conflicts_with = "enables_cdi")]
    pub disables_cdi: bool,
    /// Enable and start boathook-facts.timer, which has the drivers' programs asked for facts at each
    /// boot, once an hour, and after a driver was loaded; a first installation for Docker or podman
    /// does so by itself if such a program and its devices are there
    #[arg(long = "facts")]
    pub enables_facts: bool,
    /// Disable and stop boathook-facts.timer, or do not enable it at a first installation
    #[arg(long = "no-facts", conflicts_with = "enables_facts")]
    pub disables_facts: bool,
    /// Enable and start boathook-follow.service, by which running containers follow devices that
    /// are unplugged and come back
    #[arg(long = "follow")]
    pub enables_follow: bool,
    /// Disable and stop boathook-follow.service, if an earlier installation enabled it
    #[arg(long = "no-follow", conflicts_with = "enables_follow")]
    pub disables_follow: bool,
    /// Install boathook-plugin too, as a service of the host that starts before the kubelet;
    /// it takes the place of the DaemonSet's container
    #[arg(long = "plugin-service")]
    pub enables_plugin: bool,
    /// Add an option to the command line of boathook-plugin.service, such as
    /// --plugin-arg=--http=127.0.0.1:9911; repeat --plugin-arg for each option
    #[arg(
        long = "plugin-arg",
        value_name = "OPTION",
        requires = "enables_plugin",
        allow_hyphen_values = true
    )]
    pub plugin_arguments: Vec<PluginArgument>,
    /// Name of the Helm release, or of the manifests, that runs this installation. It fails on a node
    /// that another release serves, and it does not keep --as, --set-default and --base-spec of
    /// earlier installations
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub release: Option<ReleaseName>,
    /// Print what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Restart (or reload) the engines now
    #[arg(long)]
    pub restart: bool,
}

impl Install {
    /// Returns the options with which an engine is configured. `requested` are the options of this
    /// command line. An option that it does not have keeps the value of `recorded`, with which an
    /// earlier installation configured the engine. The manifests of a cluster's release have every
    /// option, so nothing is kept there.
    pub fn complete_engine_options(
        &self,
        requested: &EngineOptions,
        recorded: Option<EngineOptions>,
    ) -> EngineOptions {
        let recorded = recorded
            .filter(|_| self.release.is_none())
            .unwrap_or_default();
        let mut options = requested.clone();
        options.set_default |= recorded.set_default && !self.unsets_default;
        if !self.removes_toolkits {
            let requested_toolkits = &requested.toolkits;
            let kept_toolkits = recorded.toolkits.into_iter();
            options
                .toolkits
                .extend(kept_toolkits.filter(|toolkit| !requested_toolkits.contains(toolkit)));
        }
        if options.base_spec.is_none() && !self.removes_base_spec {
            options.base_spec = recorded.base_spec;
        }
        options
    }

    /// Returns the services that options such as `--cdi` and `--follow` enable.
    pub fn enabled_services(&self) -> Vec<Service> {
        let services = [
            (self.enables_cdi, Service::Cdi),
            (self.enables_facts, Service::Facts),
            (self.enables_follow, Service::Follow),
            (self.enables_plugin, Service::Plugin),
        ];
        let enabled = services.into_iter().filter(|(is_enabled, _)| *is_enabled);
        enabled.map(|(_, service)| service).collect()
    }

    /// Returns whether a service that an earlier installation enabled stays enabled if its option
    /// is not given again. The plugin's service does not, because the DaemonSet's container takes
    /// its place.
    pub fn keeps_service(&self, service: Service) -> bool {
        match service {
            Service::Cdi => !self.disables_cdi,
            Service::Facts => !self.disables_facts,
            Service::Follow => !self.disables_follow,
            Service::Plugin => false,
        }
    }
}

/// The options of `upgrade`.
#[derive(Debug, Args)]
pub struct Upgrade {
    /// The directory of a release, or of a build, that contains the programs
    /// [default: that of this program]
    #[arg(long, value_name = "DIR")]
    pub source: Option<PathBuf>,
    /// Do nothing unless the installation was made from this directory; packages use it, so that
    /// they change no installation of an archive or of a cluster
    #[arg(long, value_name = "DIR")]
    pub installed_from: Option<PathBuf>,
    /// Print what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Restart (or reload) the engines now, if their configuration has changed
    #[arg(long)]
    pub restart: bool,
}

/// The options of `uninstall`.
#[derive(Debug, Args)]
pub struct Uninstall {
    /// Revert these engines even if there is no record of their configuration
    #[arg(long, value_name = "NAME[,NAME]")]
    pub engine: Option<EngineNames>,
    /// Do nothing unless the installation was made from this directory; packages use it, so that
    /// they remove no installation of an archive or of a cluster
    #[arg(long, value_name = "DIR")]
    pub installed_from: Option<PathBuf>,
    /// Print what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Restart (or reload) the engines now
    #[arg(long)]
    pub restart: bool,
    /// Name of the release in the cluster; a node that another release serves is refused
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub release: Option<ReleaseName>,
    /// The file with labels of the node that the plugin wrote
    #[arg(long, value_name = "FILE", default_value = NODE_LABELS_PATH)]
    pub node_labels: PathBuf,
    /// Continue even if containers cannot be stopped or started afterwards
    #[arg(long)]
    pub force: bool,
}

/// The engines that `install` configures, as `--engine` names them: `auto`, `none`, or names such
/// as `docker,podman`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineChoice {
    /// All engines that are found on the host.
    Auto,
    /// The named engines, whether or not they are found on the host.
    Engines(Vec<Engine>),
}

/// The engines that the command line names, such as `docker,podman`. A name that occurs twice is an
/// error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineNames(pub Vec<Engine>);

impl FromStr for EngineChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXCLUSIVE_WORDS: [&str; 2] = ["auto", "none"];
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::Engines(Vec::new())),
            names => match names.split(',').find(|name| EXCLUSIVE_WORDS.contains(name)) {
                Some(name) => Err(format!("\"{name}\" must stand alone")),
                None => match names.parse() {
                    Ok(EngineNames(engines)) => Ok(Self::Engines(engines)),
                    Err(error) => Err(format!("{error}, auto, none")),
                },
            },
        }
    }
}

impl FromStr for EngineNames {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut engines = Vec::new();
        for name in text.split(',') {
            let known_names = Engine::ALL.map(Engine::name).join(", ");
            if name.trim().is_empty() {
                return Err(format!(
                    "the name of an engine is missing; one of {known_names}"
                ));
            }
            let engine: Engine = name.parse().map_err(|e| format!("{e}"))?;
            if engines.contains(&engine) {
                return Err(format!(
                    "{engine} is named twice; name each once, of {known_names}"
                ));
            }
            engines.push(engine);
        }
        Ok(Self(engines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_named_once_each() {
        use Engine::{Containerd, Crio, Docker};
        for (text, expected) in [
            ("docker", Ok(vec![Docker])),
            ("cri-o,containerd", Ok(vec![Crio, Containerd])),
            ("", Err("is missing; one of k3s, ")),
            ("containerd,", Err("is missing; one of k3s, ")),
            (",containerd", Err("is missing")),
            ("docker,,containerd", Err("is missing")),
            ("docker, ", Err("is missing")),
            ("docker,docker", Err("docker is named twice")),
            ("crio,docker,cri-o", Err("crio is named twice")),
            ("dokcer", Err("unknown engine \"dokcer\"; one of k3s, ")),
            ("docker,runc", Err("runc is a runtime")),
        ] {
            let choice = text.parse::<EngineChoice>();
            match (text.parse().map(|EngineNames(engines)| engines), expected) {
                (Ok(engines), Ok(expected)) => {
                    assert_eq!(engines, expected, "{text}");
                    assert_eq!(choice, Ok(EngineChoice::Engines(expected)), "{text}");
                }
                (Err(error), Err(expected)) => {
                    assert!(error.contains(expected), "{text}: {error}");
                    let error = choice.unwrap_err();
                    assert!(error.contains(expected), "{text}: {error}");
                }
                (found, expected) => panic!("{text}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn auto_and_none_stand_alone() {
        assert_eq!("auto".parse(), Ok(EngineChoice::Auto));
        assert_eq!("none".parse(), Ok(EngineChoice::Engines(Vec::new())));
        for text in ["auto,docker", "docker,none", "none,none"] {
            let error = text.parse::<EngineChoice>().unwrap_err();
            assert!(error.contains("must stand alone"), "{text}: {error}");
            assert!(text.parse::<EngineNames>().is_err(), "{text}");
        }
    }
}
