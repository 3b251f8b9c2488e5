//! Turns the collected parts of a plan into steps, in the order of their execution.

use device_class::inserted;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device_class::device::{Access, DeviceNumber, DeviceRule};
use device_class::discover::{NodeForm, has_only_links};
use device_class::host::Programs;

use super::builder::{PlanBuilder, PlannedLibrary, PlannedRule};
use super::optional_files;
use super::parts::library_dir;
use super::{Action, BindMount, InjectionPlan, InjectionStep, SpecDevices, StepUser};

impl PlanBuilder {
    pub(super) fn finish(self, spec: &SpecDevices) -> InjectionPlan {
        let mut steps = self.preparations;
        let mut notes = self.notes;
        let absent = self.absent.iter();
        notes.extend(absent.map(|(user, paths)| optional_files::describe(user, paths)));
        for (number, rule) in self.rules {
            steps.extend(allow_device(number, rule, spec));
        }
        for (path, mask) in self.masks {
            // The container has none of the devices whose links the kernel has in this directory.
            let shows_nothing = mask.links.is_empty() && mask.shown.is_empty();
            if has_only_links(&path) && shows_nothing {
                continue;
            }
            let make = !mask.texts.is_empty();
            let texts = mask
                .texts
                .into_iter()
                .map(|(path, (text, bits))| (path, text.with_bits(bits)));
            let files = inserted(mask.files.into_iter().chain(texts));
            let shown = mask
                .shown
                .into_iter()
                .map(|(at, from)| BindMount::shown(from, at));
            let action = Action::Mask {
                path,
                make,
                shown: shown.collect(),
                links: mask.links,
                files,
            };
            steps.push(InjectionStep::new(action, mask.users));
        }
        for (path, (node, users)) in self.nodes {
            if spec.has_node(&path, node.number) {
                notes.push(format!("{} is made by the runtime already", path.display()));
                continue;
            }
            let number = node.number;
            let bound = |own| Action::Node {
                mount: BindMount::device(node.source, path.clone()),
                number,
                own,
            };
            let action = match node.form {
                NodeForm::Bound => bound(None),
                NodeForm::Own(own) => bound(Some(own)),
                NodeForm::Made(made) => Action::MakeNode { path, number, made },
            };
            steps.push(InjectionStep::new(action, users));
        }
        for (path, (node, users)) in self.links {
            let target = relative_target(&path, &node);
            steps.push(InjectionStep::new(Action::Link { path, target }, users));
        }
        for (path, (source, users)) in self.directories {
            let writable = self.writable.contains(&path);
            let directory = BindMount::directory(source, path, writable);
            steps.push(InjectionStep::new(Action::Directory(directory), users));
        }
        for (path, (source, users)) in self.files {
            let file = Action::File(BindMount::file(source, path));
            steps.push(InjectionStep::new(file, users));
        }
        let mut loader = Vec::new();
        let mut libraries_32bit = Vec::new();
        for ((programs, name), library) in self.libraries {
            let PlannedLibrary {
                source,
                links,
                names: sonames,
                image_links,
                users,
            } = library;
            let directory = library_dir(programs);
            let path = directory.join(&name);
            let names = match programs {
                Programs::Native => &mut loader,
                Programs::Bits32 => &mut libraries_32bit,
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
            steps.push(InjectionStep::new(action, users));
        }
        let mut directories = Vec::new();
        if !loader.is_empty() {
            directories.push(library_dir(Programs::Native));
        }
        for (directory, names) in self.searched {
            loader.extend(
                names
                    .into_iter()
                    .map(|name| (name.clone(), directory.join(name))),
            );
            directories.push(directory);
        }
        let any_32bit = !libraries_32bit.is_empty();
        if !directories.is_empty() || any_32bit {
            let user_labels = "libraries".to_owned();
            steps.push(InjectionStep {
                action: Action::Loader {
                    directories,
                    libraries: loader,
                    image_libraries: self.image_libraries,
                    library_path: Vec::new(),
                    directory_32bit: any_32bit.then(|| library_dir(Programs::Bits32)),
                    libraries_32bit,
                },
                user_labels,
                users: Vec::new(),
            });
        }
        for (found, users) in self.net_interfaces {
            let action = Action::NetInterfaces {
                interfaces: found.on_host,
                search: found.search,
            };
            steps.push(InjectionStep::new(action, users));
        }
        notes.dedup();
        InjectionPlan {
            grants: self.grants,
            steps,
            env: inserted(
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

/// Returns the step that allows a device, with the access that all its users need together;
/// `None` without users.
fn allow_device(
    number: DeviceNumber,
    planned: PlannedRule,
    spec: &SpecDevices,
) -> Option<InjectionStep> {
    let PlannedRule { needed, host_node } = planned;
    let access = needed.values().copied().reduce(Access::union)?;
    let rule = DeviceRule { number, access };
    let mut users_by_access = BTreeMap::<Access, Vec<StepUser>>::new();
    for (user, access) in &needed {
        let users = users_by_access.entry(*access).or_default();
        users.push(user.clone());
    }
    let action = Action::Allow {
        rule,
        in_spec: spec.allows(&rule),
        users_by_access,
        host_node,
    };
    Some(InjectionStep::new(action, needed.into_keys()))
}

/// Returns the relative target text of a symbolic link at `link` that leads to `target`.
/// udev writes its links in the same way.
fn relative_target(link: &Path, target: &Path) -> PathBuf {
    let directory = link.parent().unwrap_or(link);
    let common = directory
        .iter()
        .zip(target)
        .take_while(|(a, b)| a == b)
        .count();
    let up = directory.iter().skip(common).map(|_| "..".as_ref());
    up.chain(target.iter().skip(common)).collect()
}
