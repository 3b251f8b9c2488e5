//! A thread that simulates a driver of the kernel.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A simulated driver. Every 3 ms, its thread reads its orders and the files that the tested
/// program writes.
pub(crate) struct Kernel<O> {
    orders: Arc<Mutex<O>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<O: Default + Send + 'static> Kernel<O> {
    pub(crate) fn start(mut step: impl FnMut(&mut O) + Send + 'static) -> Self {
        let (orders, ends) = (Arc::<Mutex<O>>::default(), Arc::<AtomicBool>::default());
        let (told, stopped) = (Arc::clone(&orders), Arc::clone(&ends));
        let thread = Some(thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                step(&mut told.lock().unwrap());
                thread::sleep(Duration::from_millis(3));
            }
        }));
        Kernel {
            orders,
            ends,
            thread,
        }
    }

    /// Returns the orders for the thread. The thread does nothing while the guard is held.
    pub(crate) fn orders(&self) -> MutexGuard<'_, O> {
        self.orders.lock().unwrap()
    }
}

impl<O> Drop for Kernel<O> {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // An error means that the thread panicked. It is ignored, because a panic in `drop`
        // could abort the whole test process.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
