//! Makes the steps of an injection plan from the nodes, rules and files that the builder has
//! collected. The steps are in the order in which they are executed.

use device_class::collect_by_insertion;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device_class::device::{Access, DeviceNumber, DeviceRule};
use device_class::discover::{NodeInjectionMethod, is_sysfs_link_directory};
use device_class::host::ProgramAbi;

use super::builder::{PlanBuilder, PlannedLibrary, PlannedRule};
use super::class_edits::library_dir_path;
use super::{Action, BindMount, InjectionPlan, InjectionStep, Note, SpecDevices, StepOwner};

impl PlanBuilder {
    pub(super) fn finish(self, spec: &SpecDevices) -> InjectionPlan {
        let mut steps = self.preparations;
        let mut notes: Vec<Note> = self.notes.into_iter().map(Note::Text).collect();
        let missing_files = self.missing_files.into_iter();
        notes.extend(missing_files.map(|(owner, paths)| Note::MissingFiles { owner, paths }));
        for (number, rule) in self.rules {
            steps.extend(make_allow_step(number, rule, spec));
        }
        for (path, mask) in self.masks {
            // Some directories of /sys have only links to devices. Such a directory is hidden only
            // if the container has at least one of these devices, and stays unchanged otherwise.
            let has_no_visible_paths = mask.links.is_empty() && mask.visible_host_paths.is_empty();
            if is_sysfs_link_directory(&path) && has_no_visible_paths {
                continue;
            }
            let should_create = !mask.bit_masks.is_empty();
            let texts = mask
                .bit_masks
                .into_iter()
                .map(|(path, (text, bits))| (path, text.fill_bitmask(bits)));
            let files = collect_by_insertion(mask.files.into_iter().chain(texts));
            let visible_mounts = mask
                .visible_host_paths
                .into_iter()
                .map(|(path, source)| BindMount::new_visible_file(source, path));
            let action = Action::Mask {
                path,
                should_create,
                visible_mounts: visible_mounts.collect(),
                links: mask.links,
                files,
            };
            steps.push(InjectionStep::new(action, mask.owners));
        }
        // A request can place a node at the path of a symbolic link. The node then replaces the
        // link.
        let mut links = self.links;
        links.retain(|path, _| !self.nodes.contains_key(path));
        for (path, (node, owners)) in self.nodes {
            if spec.has_node(&path, node.number) {
                let text = format!("{} is made by the runtime already", path.display());
                notes.push(Note::Text(text));
                continue;
            }
            let number = node.number;
            let make_node_action = |created_node_permissions| Action::Node {
                mount: BindMount::device(node.source, path.clone()),
                number,
                created_node_permissions,
            };
            let action = match node.form {
                NodeInjectionMethod::BindMount => make_node_action(None),
                NodeInjectionMethod::NodeCopy(created_node_permissions) => {
                    make_node_action(Some(created_node_permissions))
                }
                NodeInjectionMethod::CreatedNode(created_node) => Action::MakeNode {
                    path,
                    number,
                    created_node,
                },
            };
            steps.push(InjectionStep::new(action, owners));
        }
        for (path, (node, owners)) in links {
            let target = make_relative_target(&path, &node);
            steps.push(InjectionStep::new(Action::Link { path, target }, owners));
        }
        for (path, (source, owners)) in self.directories {
            let is_writable = self.writable_directories.contains(&path);
            let directory = BindMount {
                is_optional: !self.required_directories.contains(&path),
                ..BindMount::directory(source, path, is_writable)
            };
            steps.push(InjectionStep::new(Action::Directory(directory), owners));
        }
        for (path, (source, owners)) in self.files {
            let is_optional = !self.required_files.contains(&path);
            let file = Action::File(BindMount {
                is_optional,
                ..BindMount::file(source, path)
            });
            steps.push(InjectionStep::new(file, owners));
        }
        let mut libraries = Vec::new();
        let mut libraries_32bit = Vec::new();
        for ((programs, name), library) in self.libraries {
            let PlannedLibrary {
                source,
                links,
                names: sonames,
                image_links,
                owners,
            } = library;
            let directory = library_dir_path(programs);
            let path = directory.join(&name);
            let names = match programs {
                ProgramAbi::Native => &mut libraries,
                ProgramAbi::Bits32 => &mut libraries_32bit,
            };
            names.extend(
                links
                    .iter()
                    .chain([&name])
                    .map(|link| (link.clone(), directory.join(link))),
            );
            let mount = BindMount::library(source, path);
            let action = Action::Library {
                mount,
                links,
                names: sonames,
                image_links,
            };
            steps.push(InjectionStep::new(action, owners));
        }
        let mut directories = Vec::new();
        if !libraries.is_empty() {
            directories.push(library_dir_path(ProgramAbi::Native));
        }
        for (directory, names) in self.library_directories {
            libraries.extend(
                names
                    .into_iter()
                    .map(|name| (name.clone(), directory.join(name))),
            );
            directories.push(directory);
        }
        let has_32bit = !libraries_32bit.is_empty();
        if !directories.is_empty() || has_32bit {
            let owner_labels = "libraries".to_owned();
            steps.push(InjectionStep {
                action: Action::Loader {
                    directories,
                    libraries,
                    image_libraries: self.image_libraries,
                    library_path_dirs: Vec::new(),
                    directory_32bit: has_32bit.then(|| library_dir_path(ProgramAbi::Bits32)),
                    libraries_32bit,
                },
                owner_labels,
                owners: Vec::new(),
            });
        }
        for (device_interfaces, owners) in self.net_interfaces {
            let action = Action::NetInterfaces {
                interfaces: device_interfaces.host_interfaces,
                search: device_interfaces.search,
            };
            steps.push(InjectionStep::new(action, owners));
        }
        notes.dedup();
        InjectionPlan {
            grants: self.grants,
            steps,
            env: collect_by_insertion(
                self.env
                    .into_iter()
                    .map(|(name, values)| (name, values.join(","))),
            ),
            needs: self.needs,
            warnings: self.warnings,
            notes,
        }
    }
}

/// Returns the step that adds a device rule. The rule allows all access that its owners need.
/// Returns `None` if the rule has no owners.
fn make_allow_step(
    number: DeviceNumber,
    planned_rule: PlannedRule,
    spec: &SpecDevices,
) -> Option<InjectionStep> {
    let PlannedRule {
        access_by_owner,
        host_node_path,
    } = planned_rule;
    let access = access_by_owner.values().copied().reduce(Access::union)?;
    let rule = DeviceRule { number, access };
    let mut owners_by_access = BTreeMap::<Access, Vec<StepOwner>>::new();
    for (owner, access) in &access_by_owner {
        let owners = owners_by_access.entry(*access).or_default();
        owners.push(owner.clone());
    }
    let action = Action::Allow {
        rule,
        is_in_spec: spec.allows(&rule),
        owners_by_access,
        host_node_path,
    };
    Some(InjectionStep::new(action, access_by_owner.into_keys()))
}

/// Returns the relative path from the directory of the symbolic link `link` to `target`, as udev
/// writes its links.
fn make_relative_target(link: &Path, target: &Path) -> PathBuf {
    let directory = link.parent().unwrap_or(link);
    let common_length = directory
        .iter()
        .zip(target)
        .take_while(|(a, b)| a == b)
        .count();
    let parents = directory.iter().skip(common_length).map(|_| "..".as_ref());
    parents.chain(target.iter().skip(common_length)).collect()
}
