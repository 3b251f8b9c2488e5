//! Lines of `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).

/// The fields of one line that anybody here needs, as they are written:
/// blanks and backslashes in paths as `\040` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MountLine<'a> {
    /// The mount's id.
    pub(crate) id: u64,
    /// The id of the mount that it is attached in.
    pub(crate) parent: u64,
    /// What of its file system is seen at the mount point.
    pub(crate) root: &'a [u8],
    /// The mount point.
    pub(crate) point: &'a [u8],
    /// What is mounted in it is mounted in its peers as well.
    pub(crate) shared: bool,
    /// The file system's type.
    pub(crate) fs_type: &'a [u8],
    /// The file system's own options.
    pub(crate) super_options: &'a [u8],
}

impl<'a> MountLine<'a> {
    /// Splits `ID PARENT DEV ROOT POINT OPTIONS [TAG[:VALUE]]... - TYPE SOURCE SUPER`.
    pub(crate) fn split(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = number(fields.next()?)?;
        let parent = number(fields.next()?)?;
        let (root, point) = (fields.nth(1)?, fields.next()?);
        let mut shared = false;
        let mut tags = fields.by_ref().skip(1);
        loop {
            match tags.next()? {
                b"-" => break,
                tag => shared |= tag.starts_with(b"shared:"),
            }
        }
        Some(MountLine {
            id,
            parent,
            root,
            point,
            shared,
            fs_type: fields.next()?,
            super_options: fields.nth(1)?,
        })
    }
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}
