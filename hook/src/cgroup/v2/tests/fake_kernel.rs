//! A fake kernel with cgroups and programs for tests. It can behave like kernels of different
//! versions, and fail on demand.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::cgroup::v2::evaluator;
use crate::cgroup::v2::kernel::{Kernel, PROGRAM_NAME};
use crate::cgroup::v2::request::AccessRequest;
use crate::sys::bpf::{
    BPF_F_ALLOW_MULTI, BPF_F_REPLACE, CgroupPrograms, Insn, MAX_ATTACHED_PROGRAMS,
    ProgramDescription, ProgramScope,
};

/// A call that changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Attach { program: u32, flags: u32 },
    Replace { old: u32, new: u32 },
    Detach { program: u32 },
}

#[derive(Default)]
pub(super) struct FakeKernel {
    pub(super) programs: RefCell<Vec<Vec<Insn>>>,
    pub(super) cgroups: RefCell<BTreeMap<PathBuf, CgroupPrograms>>,
    pub(super) changes: RefCell<Vec<Change>>,
    /// The ids of the programs that were loaded by the calls of [`Kernel`].
    pub(super) own_ids: RefCell<Vec<u32>>,
    /// Behaves like a kernel before Linux 5.6.
    pub(super) cannot_replace: bool,
    /// Shows zeros, as with `net.core.bpf_jit_harden=2`.
    pub(super) hides: bool,
    /// The number of maps that every program uses.
    pub(super) maps: u32,
    /// The errors with which calls fail.
    pub(super) query_fails: Option<Errno>,
    pub(super) open_fails: Option<Errno>,
    /// The number of loads that fail, and their error.
    pub(super) load_fails: Cell<Option<(usize, Errno)>>,
    pub(super) detach_fails: Option<Errno>,
    /// Whether the process has privileges. EPERM then has another cause.
    pub(super) is_privileged: bool,
    /// The number of times that another process exchanges the program just before it is
    /// replaced.
    pub(super) rivals: Cell<usize>,
    /// Requests that must be denied for `leaf` at every moment.
    pub(super) always_denied: RefCell<Vec<(PathBuf, AccessRequest)>>,
}

impl FakeKernel {
    /// Creates a cgroup with programs, and returns their ids.
    pub(super) fn with(&self, dir: &str, flags: u32, programs: &[Vec<Insn>]) -> Vec<u32> {
        let ids: Vec<u32> = programs.iter().map(|code| self.add(code)).collect();
        let attachments = CgroupPrograms {
            flags,
            ids: ids.clone(),
        };
        self.cgroups.borrow_mut().insert(dir.into(), attachments);
        ids
    }

    pub(super) fn add(&self, code: &[Insn]) -> u32 {
        let mut programs = self.programs.borrow_mut();
        programs.push(code.to_vec());
        programs.len() as u32
    }

    pub(super) fn code(&self, id: u32) -> Vec<Insn> {
        self.programs.borrow()[id as usize - 1].clone()
    }

    pub(super) fn attached(&self, dir: &str) -> Vec<u32> {
        self.cgroups.borrow()[Path::new(dir)].ids.clone()
    }

    /// Returns the effective programs, computed as in `compute_effective_progs` of the kernel.
    fn effective(&self, leaf: &Path) -> Vec<u32> {
        let cgroups = self.cgroups.borrow();
        let mut effective = Vec::new();
        for level in leaf.ancestors().filter_map(|dir| cgroups.get(dir)) {
            if effective.is_empty() || level.flags & BPF_F_ALLOW_MULTI != 0 {
                effective.extend(&level.ids);
            }
        }
        effective
    }

    /// Returns whether a process in `leaf` may make this request.
    pub(super) fn allows_request(&self, leaf: &Path, request: &AccessRequest) -> bool {
        let mut effective = self.effective(leaf).into_iter();
        effective.all(|id| evaluator::allows_request(&self.code(id), request).unwrap())
    }

    fn changed(&self, change: Change) {
        self.changes.borrow_mut().push(change);
        for (leaf, request) in self.always_denied.borrow().iter() {
            assert!(
                !self.allows_request(leaf, request),
                "{request:?} admitted after {change:?}"
            );
        }
    }
}

fn fail_with(errno: Option<Errno>) -> Result<(), Errno> {
    errno.map_or(Ok(()), Err)
}

impl Kernel for FakeKernel {
    type Cgroup = PathBuf;
    type Program = u32;

    fn open_cgroup(&self, dir: &Path) -> io::Result<PathBuf> {
        Ok(dir.to_owned())
    }

    fn query(&self, cgroup: &PathBuf, scope: ProgramScope) -> Result<CgroupPrograms, Errno> {
        fail_with(self.query_fails)?;
        Ok(match scope {
            ProgramScope::Attached => {
                let cgroups = self.cgroups.borrow();
                cgroups.get(cgroup).cloned().unwrap_or_default()
            }
            ProgramScope::Effective => CgroupPrograms {
                flags: 0,
                ids: self.effective(cgroup),
            },
        })
    }

    fn open(&self, id: u32) -> Result<u32, Errno> {
        fail_with(self.open_fails)?;
        Ok(id)
    }

    fn dump(&self, program: &u32) -> Result<Vec<Insn>, Errno> {
        let code = self.code(*program);
        Ok(if self.hides {
            vec![[0; 8]; code.len()]
        } else {
            code
        })
    }

    fn describe_program(&self, program: &u32) -> Result<ProgramDescription, Errno> {
        Ok(ProgramDescription {
            name: if self.own_ids.borrow().contains(program) {
                PROGRAM_NAME.to_owned()
            } else {
                format!("program_{program}")
            },
            map_count: self.maps,
        })
    }

    fn load(&self, program: &[Insn], log: &mut [u8]) -> Result<u32, Errno> {
        if let Some((times, errno)) = self.load_fails.get()
            && times > 0
        {
            self.load_fails.set(Some((times - 1, errno)));
            for (to, from) in log.iter_mut().zip(b"unknown opcode 9c\n") {
                *to = *from;
            }
            return Err(errno);
        }
        let id = self.add(program);
        self.own_ids.borrow_mut().push(id);
        Ok(id)
    }

    /// Attaches a program, as `__cgroup_bpf_attach` of the kernel does.
    fn attach(
        &self,
        cgroup: &PathBuf,
        program: &u32,
        flags: u32,
        replace: Option<&u32>,
    ) -> Result<(), Errno> {
        if flags & BPF_F_REPLACE != 0 && self.cannot_replace {
            return Err(Errno::EINVAL);
        }
        if self.rivals.get() > 0 {
            self.rivals.set(self.rivals.get() - 1);
            let first = self.attached(cgroup.to_str().unwrap())[0];
            let rival = self.add(&self.code(first));
            self.cgroups.borrow_mut().get_mut(cgroup).unwrap().ids[0] = rival;
        }
        let change = {
            let mut cgroups = self.cgroups.borrow_mut();
            let level = cgroups.entry(cgroup.clone()).or_default();
            if !level.ids.is_empty() && level.flags != flags & !BPF_F_REPLACE {
                return Err(Errno::EPERM);
            }
            if level.ids.len() >= MAX_ATTACHED_PROGRAMS {
                return Err(Errno::E2BIG);
            }
            level.flags = flags & !BPF_F_REPLACE;
            match replace {
                Some(old) => {
                    let place = level.ids.iter_mut().find(|id| *id == old);
                    *place.ok_or(Errno::ENOENT)? = *program;
                    Change::Replace {
                        old: *old,
                        new: *program,
                    }
                }
                None => {
                    if flags & BPF_F_ALLOW_MULTI == 0 {
                        level.ids.clear();
                    }
                    level.ids.push(*program);
                    Change::Attach {
                        program: *program,
                        flags,
                    }
                }
            }
        };
        self.changed(change);
        Ok(())
    }

    fn detach(&self, cgroup: &PathBuf, program: &u32) -> Result<(), Errno> {
        fail_with(self.detach_fails)?;
        {
            let mut cgroups = self.cgroups.borrow_mut();
            let level = cgroups.get_mut(cgroup).ok_or(Errno::ENOENT)?;
            let place = level.ids.iter().position(|id| id == program);
            level.ids.remove(place.ok_or(Errno::ENOENT)?);
        }
        self.changed(Change::Detach { program: *program });
        Ok(())
    }

    fn is_privileged(&self) -> bool {
        self.is_privileged
    }
}
