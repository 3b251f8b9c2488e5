//! What becomes of a panic: the reason goes into the log, and the process ends.
//!
//! A task that panics would otherwise be gone without a word, and with it the
//! server of a resource, or the watch for its devices. Whoever started the
//! process starts it again.

use std::panic::PanicHookInfo;

/// From now on a panic in any thread or task ends the process.
pub fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!("ending: {}", one_line(panic));
        std::process::abort();
    }));
}

fn one_line(panic: &PanicHookInfo<'_>) -> String {
    panic.to_string().lines().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use nix::sys::signal::Signal;

    use super::*;

    const HERE: &str = "last_words::tests::in_a_process_of_its_own";

    /// What the test below runs, and nobody else.
    #[test]
    #[ignore = "it ends the process"]
    fn in_a_process_of_its_own() {
        tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .init();
        end_on_panic();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let task = tokio::spawn(async { panic!("the server\nis lost") });
            // Nobody asks what became of it.
            drop(task);
            tokio::task::yield_now().await;
        });
        println!("still there");
    }

    #[test]
    fn a_panic_of_a_task_that_nobody_waits_for_ends_the_process_with_its_reason() {
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", HERE, "--ignored", "--nocapture"]);
        let output = process.output().unwrap();
        let [said, out] = [output.stderr, output.stdout].map(|t| String::from_utf8(t).unwrap());
        assert_eq!(
            output.status.signal(),
            Some(Signal::SIGABRT as i32),
            "{said}"
        );
        assert!(said.contains("ending: panicked at "), "{said}");
        assert!(said.contains(" the server is lost"), "{said}");
        assert!(!out.contains("still there"), "{out}");
    }
}
