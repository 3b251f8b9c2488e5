//! PreStartContainer: devices are prepared, as their class defines, before each start
//! of a container that has them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use device_class::name::{ClassName, DeviceId, ResourceName};
use device_class::ownership;
use injection_plan::prepare::{Preparation, PrepareError};
use nix::unistd::Pid;
use tokio::sync::OwnedMutexGuard;
use tokio::task::{JoinError, JoinSet};
use tonic::{Code, Status};

use super::allocate::{AllocateError, named};
use crate::catalog::Resource;
use crate::host_program;

/// The time limit of an answer. The kubelet waits 30 s
/// ([`device_class::class::MAX_PRE_START`]), and should receive the reason.
const ANSWER_WITHIN: Duration = Duration::from_secs(28);

/// Why a container cannot be started yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PreStartError {
    /// The ids are not those of devices.
    #[error(transparent)]
    Devices(#[from] AllocateError),
    #[error("{id} of {resource} is not prepared: {fault}")]
    Device {
        resource: ResourceName,
        id: DeviceId,
        fault: Fault,
    },
}

/// Why a device is not prepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Program(#[from] PrepareError),
    #[error("an earlier preparation is still running")]
    Busy,
    /// The task ended.
    #[error(transparent)]
    Task(#[from] JoinError),
}

impl PreStartError {
    fn code(&self) -> Code {
        let fault = match self {
            PreStartError::Devices(error) => return error.code(),
            PreStartError::Device { fault, .. } => fault,
        };
        match fault {
            Fault::Program(PrepareError::Run { .. } | PrepareError::Ownership { .. }) => {
                Code::FailedPrecondition
            }
            Fault::Program(PrepareError::Timeout { .. }) | Fault::Busy => Code::DeadlineExceeded,
            Fault::Program(PrepareError::Failed { .. } | PrepareError::NotDone { .. })
            | Fault::Task(_) => Code::Internal,
        }
    }
}

impl From<PreStartError> for Status {
    fn from(error: PreStartError) -> Self {
        Status::new(error.code(), error.to_string())
    }
}

/// A device: devices of two classes may have the same id.
type Key = (ClassName, DeviceId);

type Turn = Arc<tokio::sync::Mutex<()>>;

/// Prepares devices of all resources, each by one program at a time.
#[derive(Debug)]
pub(crate) struct Preparer {
    host_root: PathBuf,
    turns: Mutex<BTreeMap<Key, Turn>>,
}

impl Preparer {
    /// For the host whose root is at `host_root`.
    pub(crate) fn new(host_root: PathBuf) -> Self {
        Preparer {
            host_root,
            turns: Mutex::default(),
        }
    }

    /// Prepares the devices that `ids` name, at the same time. Unhealthy
    /// devices are prepared, too, since the preparation may be what they need.
    ///
    /// # Errors
    /// An id is unknown, or a device could not be prepared in time;
    /// for several devices, the first one's reason.
    pub(crate) async fn prepare(
        &self,
        resource: &Resource,
        ids: &[String],
    ) -> Result<(), PreStartError> {
        let deadline = Instant::now() + ANSWER_WITHIN;
        // Preparations that wait for their turn end with this call.
        let mut under_way = JoinSet::new();
        for device in named(resource, ids)? {
            if let Some(preparation) = &device.preparation {
                let turn = self.turn((resource.terms.class.clone(), device.id.clone()));
                let (preparation, root) = (Arc::clone(preparation), self.host_root.clone());
                let id = device.id.clone();
                under_way.spawn(async move { (id, one(preparation, root, turn, deadline).await) });
            }
        }
        let mut faults = BTreeMap::new();
        while let Some(ended) = under_way.join_next().await {
            // A task of its own returns nothing but the result of `one`.
            if let Ok((id, Err(fault))) = ended {
                faults.insert(id, fault);
            }
        }
        match faults.pop_first() {
            None => Ok(()),
            Some((id, fault)) => {
                let resource = resource.name.clone();
                Err(PreStartError::Device {
                    resource,
                    id,
                    fault,
                })
            }
        }
    }

    fn turn(&self, key: Key) -> Turn {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(key).or_default())
    }
}

/// Prepares one device, after earlier preparations of it.
async fn one(
    preparation: Arc<Preparation>,
    root: PathBuf,
    turn: Turn,
    deadline: Instant,
) -> Result<(), Fault> {
    let turn = tokio::time::timeout_at(deadline.into(), turn.lock_owned()).await;
    let turn = turn.map_err(|_| Fault::Busy)?;
    let run = move || run(&preparation, &root, deadline, turn);
    Ok(tokio::task::spawn_blocking(run).await??)
}

/// Runs the program, unless there is nothing to do. Later preparations wait
/// until it ends, even if the call has ended.
fn run(
    preparation: &Preparation,
    root: &Path,
    deadline: Instant,
    _turn: OwnedMutexGuard<()>,
) -> Result<(), PrepareError> {
    if preparation.is_done(root) {
        return Ok(());
    }
    let left = deadline.saturating_duration_since(Instant::now());
    let limit = Duration::from_secs(preparation.timeout).min(left);
    let Preparation {
        program, arguments, ..
    } = preparation;
    ownership::program(root, program).map_err(|error| PrepareError::Ownership {
        program: program.clone(),
        error,
    })?;
    let command = host_program::command(root, program, arguments);
    preparation.run(command, Pid::from_raw(0), limit, root)
}
