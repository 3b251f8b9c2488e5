//! Calls bpf(2) to list, read, load and attach the device programs of cgroups.
//!
//! The layouts and numbers are those of the kernel's `include/uapi/linux/bpf.h`. Each attribute
//! structure in this module ends with zeros, which make it longer than the structure of any kernel.
//! A kernel accepts a longer structure if the rest is zero. A shorter one is dangerous: since Linux
//! 6.17, the kernel writes results past its end.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

/// An eBPF instruction of 8 bytes in the kernel's format (`struct bpf_insn`).
pub(crate) type Insn = [u8; 8];

/// The flag `BPF_F_ALLOW_MULTI`. A cgroup to which programs are attached with this flag can have
/// several device programs. All of them must allow an access.
pub(crate) const BPF_F_ALLOW_MULTI: u32 = 1 << 1;
/// The flag `BPF_F_REPLACE` (Linux 5.6), with which a new program replaces an attached one.
pub(crate) const BPF_F_REPLACE: u32 = 1 << 2;
/// The maximum number of programs that one cgroup can have (`BPF_CGROUP_MAX_PROGS`).
pub(crate) const MAX_ATTACHED_PROGRAMS: usize = 64;
/// The maximum number of instructions of one program (`BPF_COMPLEXITY_LIMIT_INSNS`).
pub(crate) const MAX_INSNS: usize = 1_000_000;

// The commands of bpf(2), from `enum bpf_cmd`.
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_ATTACH: libc::c_int = 8;
const BPF_PROG_DETACH: libc::c_int = 9;
const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_PROG_QUERY: libc::c_int = 16;

const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
const BPF_F_QUERY_EFFECTIVE: u32 = 1;

/// The zeros at the end of an attribute structure. They make the structure longer than the
/// `union bpf_attr` of any kernel.
type ZeroTail = [u64; 16];

/// Selects the device programs that [`query_programs`] lists for a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramScope {
    /// The programs that are attached to the cgroup itself.
    Attached,
    /// All programs that apply to the processes of the cgroup, including the programs of its
    /// ancestors.
    Effective,
}

/// The device programs of a cgroup, in the order and with the flag that bpf(2) reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CgroupPrograms {
    /// The flag with which the programs were attached: `BPF_F_ALLOW_OVERRIDE`,
    /// [`BPF_F_ALLOW_MULTI`] or 0. It is always 0 for [`ProgramScope::Effective`].
    pub(crate) flags: u32,
    /// The ids of the programs, in the order in which the kernel runs them.
    pub(crate) ids: Vec<u32>,
}

#[repr(C)]
#[derive(Default)]
struct QueryAttr {
    target_fd: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    prog_cnt: u32,
    pad: u32,
    prog_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    revision: u64,
    zero_tail: ZeroTail,
}

/// Lists the device programs of the cgroup with the open directory `cgroup`. The process needs
/// CAP_NET_ADMIN.
pub(crate) fn query_programs(
    cgroup: BorrowedFd<'_>,
    scope: ProgramScope,
) -> Result<CgroupPrograms, Errno> {
    // At most 64 programs are attached to a cgroup. But more may be effective, because the programs
    // of all its ancestors are effective too.
    let mut ids = vec![0u32; MAX_ATTACHED_PROGRAMS];
    loop {
        let mut attr = QueryAttr {
            target_fd: to_raw_fd(cgroup),
            attach_type: BPF_CGROUP_DEVICE,
            query_flags: match scope {
                ProgramScope::Attached => 0,
                ProgramScope::Effective => BPF_F_QUERY_EFFECTIVE,
            },
            prog_ids: ids.as_mut_ptr() as u64,
            prog_cnt: ids.len() as u32,
            ..QueryAttr::default()
        };
        // SAFETY: `prog_ids` points to `prog_cnt` writable ids that outlive the call.
        match unsafe { bpf(BPF_PROG_QUERY, &mut attr) } {
            Ok(_) => {
                ids.truncate(attr.prog_cnt as usize);
                let flags = attr.attach_flags;
                return Ok(CgroupPrograms { flags, ids });
            }
            // ENOSPC means that the buffer is too small. The buffer is doubled until it has space
            // for 64 nested cgroups with 64 programs each. After that, the error is returned.
            Err(Errno::ENOSPC) if ids.len() < MAX_ATTACHED_PROGRAMS * 64 => {
                ids.resize(ids.len() * 2, 0)
            }
            Err(errno) => return Err(errno),
        }
    }
}

#[repr(C)]
#[derive(Default)]
struct IdAttr {
    id: u32,
    next_id: u32,
    open_flags: u32,
    pad: u32,
    zero_tail: ZeroTail,
}

/// Opens the program with the id `id`. The process needs CAP_SYS_ADMIN. Fails with ENOENT if the
/// program no longer exists.
pub(crate) fn open_program(id: u32) -> Result<OwnedFd, Errno> {
    let mut attr = IdAttr {
        id,
        ..IdAttr::default()
    };
    // SAFETY: the attribute holds no pointer.
    let fd = unsafe { bpf(BPF_PROG_GET_FD_BY_ID, &mut attr) }?;
    Ok(into_owned_fd(fd))
}

#[repr(C)]
#[derive(Default)]
struct InfoAttr {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
    zero_tail: ZeroTail,
}

/// The fields of `struct bpf_prog_info` in Linux 4.15. Later kernels have added fields only at the
/// end of the structure.
#[repr(C)]
#[derive(Default)]
struct BpfProgInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    jited_prog_len: u32,
    xlated_prog_len: u32,
    jited_prog_insns: u64,
    xlated_prog_insns: u64,
    load_time: u64,
    created_by_uid: u32,
    nr_map_ids: u32,
    map_ids: u64,
    name: [u8; 16],
}

/// Returns the instructions of an open program. If the kernel hides the instructions
/// (`net.core.bpf_jit_harden=2`), the result is empty or consists of zeros.
pub(crate) fn read_instructions(program: BorrowedFd<'_>) -> Result<Vec<Insn>, Errno> {
    let insn_count = read_info(program, &mut [])?.xlated_prog_len as usize / size_of::<Insn>();
    let mut insns: Vec<Insn> = vec![[0; 8]; insn_count.min(MAX_INSNS)];
    read_info(program, &mut insns)?;
    Ok(insns)
}

/// The properties of a program that the kernel shows even if it hides the program's instructions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProgramDescription {
    /// The name that the program got when it was loaded. It may be empty.
    pub(crate) name: String,
    pub(crate) map_count: u32,
}

/// Returns the properties of an open program, such as the name that bpftool shows. The kernel shows
/// them even if it hides the program's instructions.
pub(crate) fn describe_program(program: BorrowedFd<'_>) -> Result<ProgramDescription, Errno> {
    let info = read_info(program, &mut [])?;
    let name = info.name.split(|byte| *byte == 0).next();
    Ok(ProgramDescription {
        name: String::from_utf8_lossy(name.unwrap_or_default()).into_owned(),
        map_count: info.nr_map_ids,
    })
}

/// Reads the properties of a program. Also copies its instructions into `insns`, as many as fit.
fn read_info(program: BorrowedFd<'_>, insns: &mut [Insn]) -> Result<BpfProgInfo, Errno> {
    let mut info = BpfProgInfo {
        xlated_prog_len: size_of_val(insns) as u32,
        xlated_prog_insns: insns.as_mut_ptr() as u64,
        ..BpfProgInfo::default()
    };
    let mut attr = InfoAttr {
        bpf_fd: to_raw_fd(program),
        info_len: size_of::<BpfProgInfo>() as u32,
        info: std::ptr::from_mut(&mut info) as u64,
        ..InfoAttr::default()
    };
    // SAFETY: `info` points to `info_len` writable bytes, and `xlated_prog_insns`
    // in it to `xlated_prog_len` more; both outlive the call.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr) }?;
    Ok(info)
}

#[repr(C)]
#[derive(Default)]
struct LoadAttr {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    zero_tail: ZeroTail,
}

/// Loads a device program into the kernel. The process needs CAP_SYS_ADMIN, or CAP_BPF with
/// CAP_NET_ADMIN.
///
/// bpftool shows the first 15 bytes of `name`. The kernel's verifier writes its messages to `log`,
/// unless `log` is empty.
pub(crate) fn load_program(insns: &[Insn], name: &str, log: &mut [u8]) -> Result<OwnedFd, Errno> {
    let mut prog_name = [0; 16];
    for (name_byte, byte) in prog_name.iter_mut().zip(name.bytes().take(15)) {
        *name_byte = byte;
    }
    // The kernel's verifier fails with EAGAIN while a signal is pending for this process. So the
    // call is tried up to five times.
    for _ in 0..5 {
        let mut attr = LoadAttr {
            prog_type: BPF_PROG_TYPE_CGROUP_DEVICE,
            insn_cnt: insns.len() as u32,
            insns: insns.as_ptr() as u64,
            // The licence need not be compatible with the GPL. The kernel requires this only for
            // programs that call GPL-only helper functions, and device programs call none.
            license: c"Apache-2.0".as_ptr() as u64,
            prog_name,
            ..LoadAttr::default()
        };
        if !log.is_empty() {
            attr.log_level = 1;
            attr.log_size = log.len() as u32;
            attr.log_buf = log.as_mut_ptr() as u64;
        }
        // SAFETY: `insns` and `log_buf` point to as many bytes as their length fields say,
        // `license` points to a C string, and all of them outlive the call.
        match unsafe { bpf(BPF_PROG_LOAD, &mut attr) } {
            Ok(fd) => return Ok(into_owned_fd(fd)),
            Err(Errno::EAGAIN) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EAGAIN)
}

#[repr(C)]
#[derive(Default)]
struct AttachAttr {
    target_fd: u32,
    attach_bpf_fd: u32,
    attach_type: u32,
    attach_flags: u32,
    replace_bpf_fd: u32,
    pad: u32,
    zero_tail: ZeroTail,
}

/// Attaches `program` to a cgroup. If `flags` contains [`BPF_F_REPLACE`], `program` replaces the
/// attached program `replaced_program`. The process needs CAP_NET_ADMIN.
pub(crate) fn attach_program(
    cgroup: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
    flags: u32,
    replaced_program: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let mut attr = AttachAttr {
        target_fd: to_raw_fd(cgroup),
        attach_bpf_fd: to_raw_fd(program),
        attach_type: BPF_CGROUP_DEVICE,
        attach_flags: flags,
        replace_bpf_fd: replaced_program.map(to_raw_fd).unwrap_or_default(),
        ..AttachAttr::default()
    };
    // SAFETY: the attribute holds no pointer.
    unsafe { bpf(BPF_PROG_ATTACH, &mut attr) }?;
    Ok(())
}

/// Detaches `program` from a cgroup. Fails with ENOENT if `program` is not attached to this cgroup.
pub(crate) fn detach_program(cgroup: BorrowedFd<'_>, program: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut attr = AttachAttr {
        target_fd: to_raw_fd(cgroup),
        attach_bpf_fd: to_raw_fd(program),
        attach_type: BPF_CGROUP_DEVICE,
        ..AttachAttr::default()
    };
    // SAFETY: the attribute holds no pointer.
    unsafe { bpf(BPF_PROG_DETACH, &mut attr) }?;
    Ok(())
}

/// Calls bpf(2).
///
/// # Safety
///
/// `A` must be the attribute structure of `command`, without padding. Each address in it must
/// be null, or valid for as many bytes as the length field that belongs to it says.
unsafe fn bpf<A>(command: libc::c_int, attr: &mut A) -> Result<RawFd, Errno> {
    // SAFETY: `attr` is writable for `size_of::<A>()` bytes; the caller guarantees the rest.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            size_of::<A>() as libc::c_uint,
        )
    };
    Errno::result(result).map(|value| value as RawFd)
}

fn into_owned_fd(fd: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just returned this descriptor, which has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn to_raw_fd(fd: BorrowedFd<'_>) -> u32 {
    // The cast keeps the value, because a borrowed descriptor is never negative.
    fd.as_raw_fd() as u32
}
