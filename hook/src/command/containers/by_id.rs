//! The container that a user means by an id, the first characters of it, or a name.

use std::collections::BTreeMap;
use std::path::Path;

use device_class::name::excerpt;

use super::{Container, SHORT_ID, Unknown, name};

pub(super) fn by_id_or_name(
    text: &str,
    known: &BTreeMap<String, Container>,
    host_root: &Path,
) -> Result<Container, Unknown> {
    by_id(text, known).or_else(|unknown| {
        let mut called = known
            .values()
            .filter(|one| name::names(one, host_root).iter().any(|it| it == text));
        match (called.next(), called.next()) {
            (Some(only), None) => Ok(only.clone()),
            _ => Err(unknown),
        }
    })
}

fn by_id(id: &str, known: &BTreeMap<String, Container>) -> Result<Container, Unknown> {
    let unknown = |reason: String, fix: &str| Unknown {
        name: id.to_owned(),
        reason,
        fix: fix.to_owned(),
    };
    if let Some(container) = known.get(id) {
        return Ok(container.clone());
    }
    let begins = |container: &&Container| !id.is_empty() && container.id.starts_with(id);
    let mut found = known.values().filter(begins);
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only.clone()),
        (Some(one), Some(other)) => Err(unknown(
            format!(
                "both {} and {} begin with {}",
                excerpt(&one.id),
                excerpt(&other.id),
                excerpt(id)
            ),
            "give more characters of the id",
        )),
        (None, _) => {
            let hint = "give the id (docker inspect -f '{{.Id}}' NAME, crictl ps --no-trunc) or, \
                        with docker, podman and nerdctl, the name; a container that was refused is gone, and `boathook log` \
                        has the reason";
            let hint = match nix::unistd::geteuid().is_root() {
                true => hint,
                false => "run this as root: containers of other users are not looked at",
            };
            let shown = known.keys().take(8).map(|id| short(id));
            let known = match known.is_empty() {
                true => "no container was found".to_owned(),
                false => format!("there are {}", shown.collect::<Vec<_>>().join(", ")),
            };
            let reason = format!("no container {} on this host; {known}", excerpt(id));
            Err(unknown(reason, hint))
        }
    }
}

fn short(id: &str) -> String {
    excerpt(&id.chars().take(SHORT_ID).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(ids: &[&str]) -> BTreeMap<String, Container> {
        let named = ids
            .iter()
            .map(|id| ((*id).to_owned(), Container::named(id)));
        named.collect()
    }

    #[test]
    fn an_id_is_found_by_its_beginning_if_that_is_unique() {
        for (id, found, reason) in [
            ("abc", Some("abc"), ""),
            ("abd", Some("abde"), ""),
            ("ab", None, "both abc and abde begin with ab"),
            (
                "x",
                None,
                "no container x on this host; there are abc, abde",
            ),
            ("", None, "no container"),
        ] {
            match by_id(id, &known(&["abc", "abde"])) {
                Ok(container) => assert_eq!(Some(container.id.as_str()), found, "{id}"),
                Err(unknown) => assert!(
                    found.is_none() && unknown.reason.starts_with(reason),
                    "{id}: {}",
                    unknown.reason
                ),
            }
        }
    }
}
