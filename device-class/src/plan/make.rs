//! Making the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use oci_spec::OciSpecError;

use super::{
    Action, Authority, Grant, Granted, INJECTED, InjectionPlan, InjectionStep, LIBRARIES, oci,
    prepare,
};
use crate::DeviceClass;
use crate::class::{Access, PathTemplateError};
use crate::discover::{Device, FoundEdits, FoundNode, Inventory, OwnNode, Presence};
use crate::host::DeviceNumber;
use crate::request::{RefusedRequest, Request, RequestError, Selection};
use crate::requirement;

/// One request, with what the host has for it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The class.
    pub class: &'a DeviceClass,
    /// The request.
    pub request: &'a Request,
    /// The devices of its class.
    pub inventory: &'a Inventory,
    /// What its class gives once.
    pub edits: &'a FoundEdits,
    /// On whose word devices are given.
    pub authority: &'a Authority,
}

/// Why there is no plan: the container must not start.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A request that can't be met.
    #[error(transparent)]
    Request(#[from] RefusedRequest),
    /// Something that the class promises is not there.
    #[error("{whose}: {problem}")]
    Unfit {
        /// The device or class that lacks it.
        whose: String,
        /// What is wrong.
        problem: String,
    },
    /// Two things want to be in one place of the container.
    #[error("{} is to be both {first} and {second}; mend the class that says so", path.display())]
    Conflict {
        /// The place.
        path: PathBuf,
        /// What was there first.
        first: String,
        /// What came second.
        second: String,
    },
    /// What is wanted of a device that the container does not have.
    #[error("{env}={select}: the container has no further device of {class} like this")]
    NoPartner {
        /// The variable.
        env: String,
        /// Its value.
        select: String,
        /// The class.
        class: String,
    },
    /// A class's template can't be filled in for a device.
    #[error("{whose}: {error}")]
    Template {
        /// The device.
        whose: String,
        /// What is wrong.
        error: PathTemplateError,
    },
    /// A value that the OCI types refuse.
    #[error(transparent)]
    Oci(#[from] OciSpecError),
}

/// Makes the plan for all requests of a container. What the spec grants
/// already is left out.
///
/// # Errors
/// A request can't be met in full: no container starts with less than it was
/// promised.
pub fn plan(asked: &[Asked<'_>], granted: &Granted) -> Result<InjectionPlan, PlanError> {
    let mut draft = Draft::default();
    for asked in asked {
        draft.add(asked)?;
    }
    draft.finish(granted)
}

/// A node of the host on its way to a place in the container.
#[derive(Clone, PartialEq, Eq)]
struct PlannedNode {
    source: PathBuf,
    number: DeviceNumber,
    own: Option<OwnNode>,
}

/// What is collected over all requests, each place and device once.
#[derive(Default)]
struct Draft {
    grants: Vec<Grant>,
    warnings: Vec<String>,
    notes: Vec<String>,
    preparations: Vec<InjectionStep>,
    rules: BTreeMap<DeviceNumber, (Access, BTreeSet<String>)>,
    nodes: BTreeMap<PathBuf, (PlannedNode, BTreeSet<String>)>,
    directories: BTreeMap<PathBuf, (PathBuf, String)>,
    files: BTreeMap<PathBuf, (PathBuf, String)>,
    libraries: BTreeMap<String, (PathBuf, BTreeSet<String>, String)>,
    searched: Vec<(PathBuf, Vec<String>)>,
    /// What classes and devices do without, by their names.
    absent: BTreeMap<String, Vec<String>>,
}

impl Draft {
    fn add(&mut self, asked: &Asked<'_>) -> Result<(), PlanError> {
        let Asked {
            class: spec,
            request,
            inventory,
            edits,
            authority,
        } = asked;
        self.requirements(asked)?;
        let (devices, warning) = authority.choose(request, &inventory.devices)?;
        self.warnings.extend(warning);
        let class = request.class.to_string();
        self.notes.extend(
            inventory
                .warnings
                .iter()
                .map(|warning| format!("{class}: {warning}")),
        );
        let unknown = request.unknown_capabilities.iter();
        self.notes
            .extend(unknown.map(|name| format!("{class} has no capability {name}")));
        self.note_health(request, inventory, &devices);
        for (device, action) in prepare::actions(spec, request, &devices)? {
            let why = device.id.to_string();
            self.preparations.push(InjectionStep { action, why });
        }
        for device in &devices {
            for node in chosen(&device.nodes, request) {
                self.node(node, device.id.as_str())?;
            }
        }
        if !devices.is_empty() {
            for node in chosen(&edits.nodes, request) {
                self.node(node, &class)?;
            }
        }
        // `all` on a host without devices is no promise of files.
        if !devices.is_empty() || request.selection == Selection::FilesOnly {
            self.edits(edits, &class)?;
        }
        self.grants.push(Grant {
            devices: devices.iter().map(|device| device.id.to_string()).collect(),
            of: inventory.devices.len(),
            class,
            asked_by: request.source.to_string(),
            on_the_word_of: authority.to_string(),
        });
        Ok(())
    }

    /// Refuses what the image requires and the host does not have.
    fn requirements(&mut self, asked: &Asked<'_>) -> Result<(), PlanError> {
        let Some(spec) = &asked.class.spec.request.requirements else {
            return Ok(());
        };
        let known = &asked.inventory.host_attributes;
        let values = spec.values.iter().filter_map(|(name, value)| {
            let value = value.fill(known).ok()?;
            Some((name.clone(), value))
        });
        let values = values.collect();
        for (env, text) in &asked.request.requirements {
            let unknown = requirement::check(text, &values).map_err(|error| RefusedRequest {
                asked_by: asked.request.source.to_string(),
                error: RequestError::Requirement {
                    env: env.clone(),
                    text: text.clone(),
                    error,
                },
            })?;
            if !unknown.is_empty() {
                let unknown = unknown.join(", ");
                self.notes.push(format!(
                    "{env}: taken to be met, as it can't be told: {unknown}"
                ));
            }
        }
        Ok(())
    }

    fn note_health(&mut self, request: &Request, inventory: &Inventory, given: &[&Device]) {
        let ill = inventory
            .devices
            .iter()
            .filter(|device| !device.health.is_healthy());
        for device in ill {
            let is_given = given.iter().any(|other| other.id == device.id);
            if is_given {
                self.warnings.push(format!(
                    "{} is given although it is {}",
                    device.id, device.health
                ));
            } else if request.selection == Selection::All {
                self.notes
                    .push(format!("{} is left out: {}", device.id, device.health));
            }
        }
    }

    fn node(&mut self, node: &FoundNode, whose: &str) -> Result<(), PlanError> {
        let Some(number) = self.fit(&node.number, &node.host, whose)?.copied() else {
            return Ok(());
        };
        let (access, users) = self
            .rules
            .entry(number)
            .or_insert((node.access, BTreeSet::new()));
        access.read |= node.access.read;
        access.write |= node.access.write;
        access.mknod |= node.access.mknod;
        users.insert(whose.to_owned());
        let planned = PlannedNode {
            source: node.host.clone(),
            number,
            own: node.own,
        };
        let (before, users) = self
            .nodes
            .entry(node.container.clone())
            .or_insert((planned.clone(), BTreeSet::new()));
        if *before != planned {
            return Err(conflict(
                node.container.clone(),
                &before.source,
                &planned.source,
            ));
        }
        users.insert(whose.to_owned());
        Ok(())
    }

    fn edits(&mut self, edits: &FoundEdits, class: &str) -> Result<(), PlanError> {
        for library in &edits.libraries {
            let named = Path::new(&library.soname);
            let Some(source) = self.fit(&library.file, named, class)?.cloned() else {
                continue;
            };
            let name = source
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let (first, links, _) = self.libraries.entry(name).or_insert((
                source.clone(),
                BTreeSet::new(),
                class.to_owned(),
            ));
            if *first != source {
                let path = Path::new(INJECTED).join(LIBRARIES).join(&library.soname);
                return Err(conflict(path, first, &source));
            }
            links.extend(library.links.iter().cloned());
        }
        for file in &edits.files {
            if let Some(source) = self.fit(&file.file, &file.path, class)?.cloned() {
                place(&mut self.files, &file.container, source, class)?;
            }
        }
        for directory in &edits.directories {
            if let Some(source) = self
                .fit(&directory.directory, &directory.path, class)?
                .cloned()
            {
                place(&mut self.directories, &directory.container, source, class)?;
                if !directory.libraries.is_empty() {
                    self.searched
                        .push((directory.container.clone(), directory.libraries.clone()));
                }
            }
        }
        Ok(())
    }

    /// What was found, or nothing and a note when the class does without.
    fn fit<'a, T>(
        &mut self,
        presence: &'a Presence<T>,
        path: &Path,
        whose: &str,
    ) -> Result<Option<&'a T>, PlanError> {
        match presence {
            Presence::Found(found) => Ok(Some(found)),
            Presence::Optional => {
                let absent = self.absent.entry(whose.to_owned()).or_default();
                absent.push(path.display().to_string());
                Ok(None)
            }
            Presence::Unfit(problem) => Err(PlanError::Unfit {
                whose: whose.to_owned(),
                problem: problem.clone(),
            }),
        }
    }

    fn finish(self, granted: &Granted) -> Result<InjectionPlan, PlanError> {
        let mut steps = self.preparations;
        let mut notes = self.notes;
        notes.extend(self.absent.into_iter().map(|(whose, paths)| {
            let paths = paths.join(", ");
            format!("{whose}: optional and not on this host: {paths}")
        }));
        for (number, (access, users)) in self.rules {
            if granted.allows(number, access) {
                notes.push(format!("{number} is allowed by the spec already"));
                continue;
            }
            let action = Action::Allow {
                rule: oci::rule(number, access)?,
            };
            steps.push(InjectionStep {
                action,
                why: joined(users),
            });
        }
        for (path, (node, users)) in self.nodes {
            if granted.has_node(&path, node.number) {
                notes.push(format!("{} is made by the runtime already", path.display()));
                continue;
            }
            let action = Action::Node {
                device: oci::node(path, node.number, node.own)?,
                source: node.source,
            };
            steps.push(InjectionStep {
                action,
                why: joined(users),
            });
        }
        for (path, (source, why)) in self.directories {
            steps.push(InjectionStep {
                action: Action::Directory {
                    mount: oci::bind(&source, &path)?,
                },
                why,
            });
        }
        for (path, (source, why)) in self.files {
            steps.push(InjectionStep {
                action: Action::File {
                    mount: oci::bind(&source, &path)?,
                },
                why,
            });
        }
        let mut loader = Vec::new();
        let home = Path::new(INJECTED).join(LIBRARIES);
        for (name, (source, links, why)) in self.libraries {
            let path = home.join(&name);
            loader.extend(
                links
                    .iter()
                    .chain([&name])
                    .map(|link| (link.clone(), home.join(link))),
            );
            let mount = oci::bind(&source, &path)?;
            steps.push(InjectionStep {
                action: Action::Library { mount, links },
                why,
            });
        }
        let mut directories = Vec::new();
        if !loader.is_empty() {
            directories.push(home);
        }
        for (directory, names) in self.searched {
            loader.extend(
                names
                    .into_iter()
                    .map(|name| (name.clone(), directory.join(name))),
            );
            directories.push(directory);
        }
        if !directories.is_empty() {
            let why = "programs find the libraries".to_owned();
            steps.push(InjectionStep {
                action: Action::Loader {
                    directories,
                    libraries: loader,
                },
                why,
            });
        }
        notes.dedup();
        Ok(InjectionPlan {
            grants: self.grants,
            steps,
            warnings: self.warnings,
            notes,
        })
    }
}

/// The nodes that a container with the request's capabilities gets.
fn chosen<'a>(nodes: &'a [FoundNode], request: &'a Request) -> impl Iterator<Item = &'a FoundNode> {
    let asked = |name| request.capabilities.contains(name);
    nodes
        .iter()
        .filter(move |node| node.capability.as_ref().is_none_or(asked))
}

fn place(
    places: &mut BTreeMap<PathBuf, (PathBuf, String)>,
    path: &Path,
    source: PathBuf,
    class: &str,
) -> Result<(), PlanError> {
    let (first, _) = places
        .entry(path.into())
        .or_insert((source.clone(), class.to_owned()));
    if *first == source {
        Ok(())
    } else {
        Err(conflict(path.into(), first, &source))
    }
}

fn conflict(path: PathBuf, first: &Path, second: &Path) -> PlanError {
    let (first, second) = (first.display().to_string(), second.display().to_string());
    PlanError::Conflict {
        path,
        first,
        second,
    }
}

fn joined(users: BTreeSet<String>) -> String {
    users.into_iter().collect::<Vec<_>>().join(", ")
}
