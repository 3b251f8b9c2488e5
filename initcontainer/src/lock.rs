//! One installer at a time.
//!
//! The lock is flock(2) on a directory, so it leaves no file behind and ends
//! with the process that holds it, however that ends.

use std::fs::{File, TryLockError};
use std::path::Path;

use runtime_config::{Error as HostError, HostRoot};

use crate::error::Error;
use crate::layout::ROOT;

/// The right to change a host, until it is dropped.
#[derive(Debug)]
pub struct Lock {
    held: Vec<File>,
}

impl Lock {
    /// Takes the lock on a host: on the installation's directory, or on the
    /// nearest directory above it that exists.
    pub fn take(host: &HostRoot) -> Result<Self, Error> {
        let root = Path::new(ROOT);
        let nearest = root
            .ancestors()
            .find(|dir| host.exists(dir))
            .unwrap_or(root);
        Ok(Self {
            held: vec![lock(host, nearest)?],
        })
    }

    /// Takes the lock on the installation's directory too, once it was made,
    /// for that is where another installer will look from now on.
    pub fn extend(&mut self, host: &HostRoot) -> Result<(), Error> {
        self.held.push(lock(host, Path::new(ROOT))?);
        Ok(())
    }
}

fn lock(host: &HostRoot, dir: &Path) -> Result<File, Error> {
    let place = host.place(dir)?;
    let file = place.open_dir()?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Busy {
            path: place.shown(),
        }),
        Err(TryLockError::Error(cause)) => Err(HostError::io("lock", &place.shown())(cause).into()),
    }
}
