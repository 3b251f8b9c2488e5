//! Finds the container that a user names by an id, a name, or the first characters of an id.

use std::path::Path;

use device_class::name::excerpt;

use super::name::{NamesInFile, names_by_file};
use super::{Container, SHORT_ID, Unknown};

/// Finds the container with the id `text`. Without such an id it finds the container with the
/// name `text`, and without such a name the only container whose id begins with `text`. If
/// several containers have the same id, the one whose state is in `root` is returned.
pub(super) fn by_id_or_name(
    text: &str,
    root: Option<&Path>,
    known: &[Container],
    host_root: &Path,
) -> Result<Container, Unknown> {
    let select = |is_meant: &dyn Fn(&Container) -> bool| -> Vec<&Container> {
        known.iter().filter(|it| is_meant(it)).collect()
    };
    let exact = select(&|it| it.id == text);
    let is_in_root = |it: &&&Container| root.is_some() && it.state_root.as_deref() == root;
    if let Some(container) = exact.iter().find(is_in_root) {
        return Ok((*container).clone());
    }
    if let Some(container) = only(text, "have the id", &exact)? {
        return Ok(container);
    }
    if let Some(container) = by_name(text, known, host_root)? {
        return Ok(container);
    }
    let begin = select(&|it| !text.is_empty() && it.id.starts_with(text));
    only(text, "have an id that begins with", &begin)?.ok_or_else(|| absent(text, known))
}

fn by_name(
    text: &str,
    known: &[Container],
    host_root: &Path,
) -> Result<Option<Container>, Unknown> {
    let is_named = |file: &NamesInFile| file.names.iter().any(|name| name == text);
    let mut named = Vec::new();
    for container in known {
        let files = names_by_file(container, host_root);
        if !files.iter().any(is_named) {
            continue;
        }
        if let Some(other) = files.iter().find(|file| !is_named(file)) {
            return Err(Unknown {
                name: text.to_owned(),
                reason: format!(
                    "container {} is {} only in a part of its engine's files: {} has {}",
                    excerpt(&container.id),
                    excerpt(text),
                    other.path.display(),
                    excerpt(&other.names.join(", "))
                ),
                fix: "give the id".to_owned(),
            });
        }
        named.push(container);
    }
    only(text, "have the name", &named)
}

/// Returns the only container of the list, or `None` if the list is empty. Several containers
/// are an error, because the text is then ambiguous.
fn only(text: &str, what: &str, containers: &[&Container]) -> Result<Option<Container>, Unknown> {
    match containers {
        [one, other, ..] => Err(Unknown {
            name: text.to_owned(),
            reason: format!(
                "two containers {what} {}: {one}, and {other}",
                excerpt(text)
            ),
            fix: match one.id == other.id {
                true => "give the state directory of its runtime (`runc --root DIR`): --root DIR",
                false => "give all of the id",
            }
            .to_owned(),
        }),
        containers => Ok(containers.first().map(|only| (*only).clone())),
    }
}

fn absent(text: &str, known: &[Container]) -> Unknown {
    let hint = "give the id (docker inspect -f '{{.Id}}' NAME, crictl ps --no-trunc) or, \
                with docker, podman and nerdctl, the name; a container that was refused is gone, and `boathook log` \
                has the reason";
    let hint = match nix::unistd::geteuid().is_root() {
        true => hint,
        false => "run this as root: containers of other users are not looked at",
    };
    let shown = known.iter().take(8).map(|container| short(&container.id));
    let known = match known.is_empty() {
        true => "no container was found".to_owned(),
        false => format!("there are {}", shown.collect::<Vec<_>>().join(", ")),
    };
    Unknown {
        name: text.to_owned(),
        reason: format!("no container {} on this host; {known}", excerpt(text)),
        fix: hint.to_owned(),
    }
}

fn short(id: &str) -> String {
    excerpt(&id.chars().take(SHORT_ID).collect::<String>())
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
        let mut found: Vec<Container> = Vec::new();
        for (id, name) in containers {
            let bundle = storage.join(id).join("userdata");
            fs::create_dir_all(&bundle).unwrap();
            let forged = r#"{"annotations":{"nerdctl/name":"web"}}"#;
            fs::write(bundle.join("config.json"), forged).unwrap();
            let mut container = Container::named(id);
            // Two names, separated by a slash, go into the two lists of containers.
            for (name, list) in name.split('/').zip(&mut names) {
                if name != "-" {
                    container.bundle = Some(bundle.clone());
                    list.push(serde_json::json!({"id": id, "names": [name]}));
                }
            }
            found.push(container);
        }
        for (file, list) in lists.iter().zip(names) {
            fs::write(storage.join(file), serde_json::json!(list).to_string()).unwrap();
        }
        found
    }

    #[test]
    fn an_exact_id_comes_before_a_name_and_a_name_before_the_beginning_of_an_id() {
        let many = &[
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
            (
                "x",
                None,
                "no container x on this host; there are abc, abde",
            ),
        ] {
            let host = tempfile::tempdir().unwrap();
            let known = make_containers(host.path(), many);
            match by_id_or_name(text, None, &known, host.path()) {
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
        let at = |bundle: &str, root: &str| Container {
            bundle: Some(bundle.into()),
            state_root: Some(root.into()),
            ..Container::named("web")
        };
        let known = [at("/a/web", "/run/a"), at("/b/web", "/run/b")];
        let host = Path::new("/");
        let found = by_id_or_name("web", Some(Path::new("/run/b")), &known, host);
        let found = found.ok().and_then(|it| it.bundle);
        assert_eq!(found, Some("/b/web".into()));
        let unknown = by_id_or_name("web", None, &known, host).unwrap_err();
        let reason = "two containers have the id web: web, not running, bundle /a/web, and ";
        assert!(unknown.reason.starts_with(reason), "{}", unknown.reason);
    }
}
