//! Finds the id of a group in the text of /etc/group (group(5)). Groups of LDAP, NIS or
//! systemd-userdb are not found, because Boathook does not ask name services.

/// The path of the file that lists the groups of a host.
pub const GROUP_FILE_PATH: &str = "/etc/group";

/// The maximum size in bytes of /etc/group. A larger file is an error.
pub(super) const MAX_GROUP_FILE_BYTES: usize = 1 << 20;

/// Returns the id of the group `name` from the text of /etc/group. If several lines have this name,
/// the first one counts, as for getgrnam(3).
pub(super) fn find_group_id(text: &str, name: &str) -> Option<u32> {
    let mut group_ids = text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let gid = (fields.next()? == name).then(|| fields.nth(1))??;
        // System calls use the largest gid to mean "no group" (chown(2)), so no group can have it.
        gid.parse().ok().filter(|gid| *gid != u32::MAX)
    });
    group_ids.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_that_of_the_first_line_with_the_name() {
        const TEXT: &str = "root:x:0:\n+@nis::\ndialout:x:20:alice,bob\n\n# video:x:1:\nvideo:x:44:\n\
            video:x:45:\nbroken:x\nlast:x:4294967295:\nminus:x:-1:\nrender:x:992";
        for (name, number) in [
            ("root", Some(0)),
            ("dialout", Some(20)),
            ("video", Some(44)),
            ("render", Some(992)),
            ("broken", None),
            ("last", None),
            ("minus", None),
            ("alice", None),
            ("vide", None),
            ("", None),
        ] {
            assert_eq!(find_group_id(TEXT, name), number, "{name}");
        }
    }
}
