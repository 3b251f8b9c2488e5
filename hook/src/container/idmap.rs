//! Parses the id maps of a user namespace. They map the user ids and group ids of a container to
//! those of the host.

/// One line of an id map, such as `0 100000 65536`: it maps the ids 0 to 65535 inside the user
/// namespace to the ids from 100000 outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    first_id_inside: u32,
    first_id_outside: u32,
    length: u32,
}

/// The content of `/proc/PID/uid_map` or `gid_map` (user_namespaces(7)).
///
/// The kernel translates the second number of each line for the process that reads the file. A
/// reader in another user namespace gets an id of its own namespace. A reader in the same namespace
/// as PID gets an id of the parent namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdMap(Vec<Extent>);

/// Whether the process that reads an id map is itself in the user namespace of the map. The kernel
/// shows other ids to such a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderNamespace {
    /// The reading process is in the user namespace to which the map belongs, like the hook of a
    /// rootless engine.
    Same,
    /// The reading process is in an ancestor of the user namespace to which the map belongs.
    Ancestor,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdMapError {
    #[error("line {line} is not three numbers")]
    Line {
        /// The number of the invalid line. The first line has the number 1.
        line: usize,
    },
    #[error(
        "the container's user namespace has no root: id 0 must be mapped for files to be created \
         in it"
    )]
    NoRoot,
}

impl IdMap {
    /// Parses the content of `/proc/PID/uid_map` or `gid_map`. Fails if a line does not have three
    /// numbers.
    pub fn parse(text: &str) -> Result<Self, IdMapError> {
        let extents = text
            .lines()
            .enumerate()
            .map(|(index, line)| parse_extent(line).ok_or(IdMapError::Line { line: index + 1 }));
        extents.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the id of the container's root user in the user namespace of this process. Fails if
    /// the map has no entry for the id 0.
    pub fn find_root_id(&self, reader: ReaderNamespace) -> Result<u32, IdMapError> {
        let outside_id = self.map_to_outside(0).ok_or(IdMapError::NoRoot)?;
        Ok(match reader {
            ReaderNamespace::Same => 0,
            ReaderNamespace::Ancestor => outside_id,
        })
    }

    fn map_to_outside(&self, id: u32) -> Option<u32> {
        self.0.iter().find_map(|extent| {
            let offset = id.checked_sub(extent.first_id_inside)?;
            (offset < extent.length).then(|| extent.first_id_outside.checked_add(offset))?
        })
    }
}

fn parse_extent(line: &str) -> Option<Extent> {
    let mut fields = line.split_ascii_whitespace().map(str::parse);
    let mut next_number = || fields.next()?.ok();
    let extent = Extent {
        first_id_inside: next_number()?,
        first_id_outside: next_number()?,
        length: next_number()?,
    };
    fields.next().is_none().then_some(extent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_containers_root_is_found() {
        let two_extents = "      1000     200000       1000\n         0       1000          1\n";
        for (text, root) in [
            ("         0          0 4294967295\n", Ok(0)),
            ("         0     100000      65536\n", Ok(100_000)),
            (two_extents, Ok(1000)),
            (
                "         1     100000      65536\n",
                Err(IdMapError::NoRoot),
            ),
            ("", Err(IdMapError::NoRoot)),
            ("0 4294967295 0\n", Err(IdMapError::NoRoot)),
        ] {
            let map = IdMap::parse(text).unwrap();
            assert_eq!(
                map.find_root_id(ReaderNamespace::Ancestor),
                root,
                "{text:?}"
            );
            let root_inside = root.map(|_| 0);
            assert_eq!(
                map.find_root_id(ReaderNamespace::Same),
                root_inside,
                "{text:?}"
            );
        }
    }

    #[test]
    fn ids_inside_an_extent_are_counted_from_its_start() {
        let map = IdMap::parse("0 1000 1\n1 200000 10\n").unwrap();
        for (inside, outside) in [
            (0, Some(1000)),
            (1, Some(200_000)),
            (10, Some(200_009)),
            (11, None),
        ] {
            assert_eq!(map.map_to_outside(inside), outside, "{inside}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for (text, line) in [
            ("0 0\n", 1),
            ("0 0 1\n0 0 1 1\n", 2),
            ("a 0 1\n", 1),
            ("0 0 -1\n", 1),
            ("0 0 4294967296\n", 1),
        ] {
            assert_eq!(
                IdMap::parse(text),
                Err(IdMapError::Line { line }),
                "{text:?}"
            );
        }
    }
}
