//! A panic in any task ends the process, with its reason in the log.
//!
//! Otherwise a task that panics would end silently, and with it the server of a
//! resource or the watch for its devices. The service manager or the kubelet
//! restarts the process.

/// Installs the hook for all threads and tasks.
pub fn abort_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let panic = panic.to_string();
        let line = panic.lines().collect::<Vec<_>>().join(" ");
        tracing::error!("aborting: {line}");
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use nix::sys::signal::Signal;

    use super::*;

    const HERE: &str = "panic_hook::tests::in_a_separate_process";

    /// Run by the test below only.
    #[test]
    #[ignore = "it aborts the process"]
    fn in_a_separate_process() {
        tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .init();
        abort_on_panic();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let task = tokio::spawn(async { panic!("the server\nis lost") });
            // Nothing waits for its result.
            drop(task);
            tokio::task::yield_now().await;
        });
        println!("still running");
    }

    #[test]
    fn a_panic_in_a_detached_task_aborts_the_process_with_its_reason() {
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", HERE, "--ignored", "--nocapture"]);
        let output = process.output().unwrap();
        let [log, out] = [output.stderr, output.stdout].map(|t| String::from_utf8(t).unwrap());
        assert_eq!(
            output.status.signal(),
            Some(Signal::SIGABRT as i32),
            "{log}"
        );
        assert!(log.contains("aborting: panicked at "), "{log}");
        assert!(log.contains(" the server is lost"), "{log}");
        assert!(!out.contains("still running"), "{out}");
    }
}
