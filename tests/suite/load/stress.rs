//! Other work of the machine while containers are started.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Threads that calculate, and one that writes files to disk. They end when this is
/// dropped.
pub(super) struct Stress {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Stress {
    /// A thread for each processor, and one that writes below `directory`.
    pub(super) fn start(directory: &Path) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let mut threads: Vec<_> = (0..processors)
            .map(|_| {
                let ended = Arc::clone(&ended);
                thread::spawn(move || calculate(&ended))
            })
            .collect();
        let (file, end) = (directory.join("stress"), Arc::clone(&ended));
        threads.push(thread::spawn(move || write(&file, &end)));
        Self { ended, threads }
    }
}

impl Drop for Stress {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn calculate(ended: &AtomicBool) {
    let mut number = 1_u64;
    while !ended.load(Ordering::Relaxed) {
        for _ in 0..100_000 {
            number = std::hint::black_box(number.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1);
        }
    }
}

fn write(path: &Path, ended: &AtomicBool) {
    let block = vec![0x5a_u8; 1 << 20];
    while !ended.load(Ordering::Relaxed) {
        let mut file = File::create(path).unwrap();
        for _ in 0..16 {
            file.write_all(&block).unwrap();
        }
        file.sync_all().unwrap();
    }
    fs::remove_file(path).unwrap();
}
