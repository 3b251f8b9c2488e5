//! Messages: a line each on stderr, and with its time in a file where one is
//! configured, because some runtimes throw a hook's stderr away.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

/// Sends messages of level info and above to stderr and to `file`. A file that
/// can't be opened is done without: a full disk must not stop a container.
pub fn start(file: Option<&Path>) {
    let file = file.and_then(|path| {
        let no_follow = nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK;
        File::options()
            .append(true)
            .create(true)
            .mode(0o640)
            .custom_flags(no_follow.bits())
            .open(path)
            .ok()
    });
    // Only a second call can fail, and it changes nothing.
    let _ = tracing_subscriber::fmt()
        .event_format(Line)
        .with_writer(Destinations { file })
        .try_init();
}

/// The time of a message (RFC 3339, UTC).
pub(crate) fn time() -> String {
    let mut time = String::new();
    // Writing to a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    time
}

/// `boathook: warning: message`.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        writer.write_str(match *event.metadata().level() {
            Level::ERROR => "boathook: ",
            Level::WARN => "boathook: warning: ",
            _ => "boathook: note: ",
        })?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

struct Destinations {
    file: Option<File>,
}

impl<'a> MakeWriter<'a> for Destinations {
    type Writer = Tee<'a>;

    fn make_writer(&'a self) -> Tee<'a> {
        Tee {
            file: self.file.as_ref(),
        }
    }
}

/// Writes whole lines to stderr and, with the time, to the file.
struct Tee<'a> {
    file: Option<&'a File>,
}

impl Write for Tee<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // Nobody may be listening, and there is nobody else to tell.
        let _ = io::stderr().write_all(line);
        if let Some(mut file) = self.file {
            let mut stamped = time();
            stamped.push(' ');
            stamped.push_str(&String::from_utf8_lossy(line));
            // One write, so that lines of several hooks do not mix.
            let _ = file.write_all(stamped.as_bytes());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
