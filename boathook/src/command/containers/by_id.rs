//! Finds the container for an id, a name, or the first characters of an id that a user gave.

use std::path::Path;

use device_class::name::{excerpt, shorten_container_id};

use super::name::{ContainerNamesFile, read_names_by_file};
use super::{Container, ContainerLookupError};

/// Selects a container. Compares `id_or_name` first with the ids, then with the names, then with
/// the beginnings of the ids, and finally with the service names of compose. If several containers
/// have the same id, selects the one whose state is stored in the directory `state_root`.
pub(super) fn select_by_id_or_name(
    id_or_name: &str,
    state_root: Option<&Path>,
    containers: &[Container],
    host_root: &Path,
) -> Result<Container, ContainerLookupError> {
    let filter_containers = |predicate: &dyn Fn(&Container) -> bool| -> Vec<&Container> {
        containers
            .iter()
            .filter(|container| predicate(container))
            .collect()
    };
    let exact_matches = filter_containers(&|container| container.id == id_or_name);
    let has_state_in_root = |container: &&&Container| {
        state_root.is_some() && container.state_root.as_deref() == state_root
    };
    if let Some(container) = exact_matches.iter().find(has_state_in_root) {
        return Ok((*container).clone());
    }
    if let Some(container) = require_single(id_or_name, "have the id", &exact_matches)? {
        return Ok(container);
    }
    if let Some(container) = find_by_name(id_or_name, containers, host_root)? {
        return Ok(container);
    }
    let prefix_matches = filter_containers(&|container| {
        !id_or_name.is_empty() && container.id.starts_with(id_or_name)
    });
    if let Some(container) =
        require_single(id_or_name, "have an id that begins with", &prefix_matches)?
    {
        return Ok(container);
    }
    let service_matches =
        filter_containers(&|container| belongs_to_service(container, id_or_name, host_root));
    require_single(id_or_name, "are of the service", &service_matches)?
        .ok_or_else(|| create_unknown_container(id_or_name, containers))
}

/// Returns whether the container belongs to the compose service `service`. The container's name in
/// each of the engine's files must say so. The labels of compose are not read, because an image can
/// set them.
fn belongs_to_service(container: &Container, service: &str, host_root: &Path) -> bool {
    let names_by_file = read_names_by_file(container, host_root);
    let has_name = |file: &ContainerNamesFile| {
        let mut names = file.names.iter();
        names.any(|name| is_name_of_service(name, service))
    };
    !names_by_file.is_empty() && names_by_file.iter().all(has_name)
}

/// Returns whether `name` is `PROJECT-SERVICE-NUMBER`, or `PROJECT_SERVICE_NUMBER` as earlier
/// versions of compose and podman-compose name containers.
fn is_name_of_service(name: &str, service: &str) -> bool {
    ['-', '_'].into_iter().any(|separator| {
        let Some((name, number)) = name.rsplit_once(separator) else {
            return false;
        };
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let project = name.strip_suffix(service);
        let project = project.and_then(|project| project.strip_suffix(separator));
        is_number && !service.is_empty() && project.is_some_and(|project| !project.is_empty())
    })
}

fn find_by_name(
    name: &str,
    containers: &[Container],
    host_root: &Path,
) -> Result<Option<Container>, ContainerLookupError> {
    let is_named = |file: &ContainerNamesFile| file.names.iter().any(|file_name| file_name == name);
    let mut named_containers = Vec::new();
    for container in containers {
        let names_by_file = read_names_by_file(container, host_root);
        if !names_by_file.iter().any(is_named) {
            continue;
        }
        if let Some(other_file) = names_by_file.iter().find(|file| !is_named(file)) {
            return Err(ContainerLookupError {
                name: name.to_owned(),
                reason: format!(
                    "container {} is {} only in a part of its engine's files: {} has {}",
                    excerpt(&container.id),
                    excerpt(name),
                    other_file.path.display(),
                    excerpt(&other_file.names.join(", "))
                ),
                fix: "give the id".to_owned(),
            });
        }
        named_containers.push(container);
    }
    require_single(name, "have the name", &named_containers)
}

/// Returns the only container in `containers`, or `None` if the list is empty. Returns an error if
/// there are several containers, because `id_or_name` is then ambiguous.
fn require_single(
    id_or_name: &str,
    match_description: &str,
    containers: &[&Container],
) -> Result<Option<Container>, ContainerLookupError> {
    match containers {
        [first, second, ..] => Err(ContainerLookupError {
            name: id_or_name.to_owned(),
            reason: format!(
                "two containers {match_description} {}: {first}, and {second}",
                excerpt(id_or_name)
            ),
            fix: if first.id == second.id {
                "give the state directory of its runtime (`runc --root DIR`): --root DIR"
            } else {
                "give all of the id"
            }
            .to_owned(),
        }),
        containers => Ok(containers.first().map(|container| (*container).clone())),
    }
}

fn create_unknown_container(id_or_name: &str, containers: &[Container]) -> ContainerLookupError {
    let hint = "give the id (docker inspect -f '{{.Id}}' NAME, crictl ps --no-trunc) or, \
                with docker, podman and nerdctl, the name; for a container of a rootless engine run \
                this as its user; a container that was refused is gone, and `boathook log` has the \
                reason";
    let fix = if nix::unistd::geteuid().is_root() {
        hint
    } else {
        "containers of other users are not looked at: run this as root, and for a container of a \
         rootless engine as its user"
    };
    let short_ids = containers
        .iter()
        .take(8)
        .map(|container| excerpt(&shorten_container_id(&container.id)));
    let existing_hint = if containers.is_empty() {
        "no container was found".to_owned()
    } else {
        format!("there are {}", short_ids.collect::<Vec<_>>().join(", "))
    };
    ContainerLookupError {
        name: id_or_name.to_owned(),
        reason: format!(
            "no container {} on this host; {existing_hint}",
            excerpt(id_or_name)
        ),
        fix: fix.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Creates the files of podman containers with these ids and names. The name `-` creates a
    /// container of runc, which has no name.
    fn make_containers(host: &Path, containers: &[(&str, &str)]) -> Vec<Container> {
        let storage = host.join("storage");
        let lists = ["containers.json", "volatile-containers.json"];
        let mut names = vec![Vec::new(); 2];
        let mut created: Vec<Container> = Vec::new();
        for (id, name) in containers {
            let bundle = storage.join(id).join("userdata");
            fs::create_dir_all(&bundle).unwrap();
            let forged = r#"{"annotations":{"nerdctl/name":"web"}}"#;
            fs::write(bundle.join("config.json"), forged).unwrap();
            let mut container = Container::from_id(id);
            // Two names, separated by a slash, go into the two lists of containers.
            for (name, list) in name.split('/').zip(&mut names) {
                if name != "-" {
                    container.bundle = Some(bundle.clone());
                    list.push(serde_json::json!({"id": id, "names": [name]}));
                }
            }
            created.push(container);
        }
        for (file, list) in lists.iter().zip(names) {
            fs::write(storage.join(file), serde_json::json!(list).to_string()).unwrap();
        }
        created
    }

    #[test]
    fn an_exact_id_comes_before_a_name_and_a_name_before_the_beginning_of_an_id() {
        let containers_with_names = &[
            ("abc", "-"),
            ("abde", "-"),
            ("web-evil", "-"),
            ("0001", "web"),
            ("0002", "abc"),
            ("0003", "0004"),
            ("0004", "other"),
            ("0005", "twin"),
            ("0006", "twin"),
            ("0007", "left/right"),
            ("0008", "same/same"),
            ("0009", "home-zigbee-1"),
            ("0010", "home_mqtt_1"),
            ("0011", "home-worker-1"),
            ("0012", "home-worker-2"),
            ("0013", "home-zigbee-x"),
            ("0014", "home-0004-1"),
            ("0015", "home-half-1/other"),
        ];
        for (text, found, reason) in [
            ("abc", Some("abc"), ""),
            ("abd", Some("abde"), ""),
            (
                "ab",
                None,
                "two containers have an id that begins with ab: abc",
            ),
            ("web", Some("0001"), ""),
            ("web-", Some("web-evil"), ""),
            ("0004", Some("0004"), ""),
            ("twin", None, "two containers have the name twin: 0005"),
            ("left", None, "container 0007 is left only in a part of"),
            ("right", None, "container 0007 is right only in a part of"),
            ("same", Some("0008"), ""),
            ("", None, "no container "),
            // A service of compose, whose name comes after all others.
            ("zigbee", Some("0009"), ""),
            ("mqtt", Some("0010"), ""),
            (
                "worker",
                None,
                "two containers are of the service worker: 0011",
            ),
            ("home", None, "no container home"),
            ("half", None, "no container half"),
            (
                "x",
                None,
                "no container x on this host; there are abc, abde",
            ),
        ] {
            let host = tempfile::tempdir().unwrap();
            let containers = make_containers(host.path(), containers_with_names);
            match select_by_id_or_name(text, None, &containers, host.path()) {
                Ok(container) => assert_eq!(Some(container.id.as_str()), found, "{text}"),
                Err(unknown) => assert!(
                    found.is_none() && unknown.reason.starts_with(reason),
                    "{text}: {}",
                    unknown.reason
                ),
            }
        }
    }

    /// Two runtimes, or two namespaces of containerd, may use the same id.
    #[test]
    fn an_id_of_two_containers_means_neither() {
        let make_container = |bundle: &str, state_root: &str| Container {
            bundle: Some(bundle.into()),
            state_root: Some(state_root.into()),
            ..Container::from_id("web")
        };
        let containers = [
            make_container("/a/web", "/run/a"),
            make_container("/b/web", "/run/b"),
        ];
        let host = Path::new("/");
        let found = select_by_id_or_name("web", Some(Path::new("/run/b")), &containers, host);
        let found = found.ok().and_then(|it| it.bundle);
        assert_eq!(found, Some("/b/web".into()));
        let unknown = select_by_id_or_name("web", None, &containers, host).unwrap_err();
        let reason = "two containers have the id web: web, not running, bundle /a/web, and ";
        assert!(unknown.reason.starts_with(reason), "{}", unknown.reason);
    }
}
