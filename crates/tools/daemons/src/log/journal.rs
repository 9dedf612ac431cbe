//! Lines for systemd's journal: on stderr, each with its priority as `<N>` in front (sd-daemon(3)).
//!
//! This needs no socket and no library. Logs and a panic's last words leave the process by one
//! path, and a line is lost only if the journal is. The journal's own protocol would keep the
//! fields of an event apart; `--log-format json` does that.

use std::io;
use std::os::unix::fs::MetadataExt;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{DefaultFields, Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::OneLine;

/// Set by systemd for a service whose output the journal reads: device and inode of the stream.
const STREAM: &str = "JOURNAL_STREAM";

/// Whether stderr is the stream that the journal reads. A child that was given another stderr has
/// the variable too.
pub(super) fn reads_stderr() -> bool {
    let Ok(stream) = std::env::var(STREAM) else { return false };
    std::fs::metadata("/proc/self/fd/2")
        .is_ok_and(|meta| is_stream(&stream, meta.dev(), meta.ino()))
}

fn is_stream(stream: &str, dev: u64, ino: u64) -> bool {
    stream.split_once(':').is_some_and(|(a, b)| a.parse() == Ok(dev) && b.parse() == Ok(ino))
}

/// Starts logging to the journal.
pub(super) fn start(default: LevelFilter) {
    let (level, wrong) = super::level(default);
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .log_internal_errors(false) // its own complaint about stderr would panic
        .with_ansi(false)
        .event_format(Line::new());
    let _ = subscriber.try_init(); // there already: an embedded daemon logs where its host does
    super::complain(wrong);
}

/// An event as one line. A line end in it would begin a line with a priority of its own.
pub(super) struct Line(OneLine<Format<Full, ()>>);

impl Line {
    pub(super) fn new() -> Line {
        let format = Format::default().without_time().with_level(false);
        Line(OneLine(format.with_target(false).with_ansi(false)))
    }
}

impl<S> FormatEvent<S, DefaultFields> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    DefaultFields: for<'a> FormatFields<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, DefaultFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

/// As syslog(3) counts.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct To(Arc<Mutex<Vec<u8>>>);

    impl Write for To {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("whole").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_begins_with_its_priority() {
        let lines = To::default();
        let theirs = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || theirs.clone())
            .event_format(Line::new())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!("the store failed");
            tracing::warn!(clients = 3_u64, "recovery waits");
            tracing::info!("it serves");
        });
        let text = String::from_utf8(lines.0.lock().expect("whole").clone()).expect("text");
        assert_eq!(text, "<3>the store failed\n<4>recovery waits clients=3\n<6>it serves\n");
    }

    #[test]
    fn the_journal_reads_the_stream_that_it_names() {
        assert!(is_stream("9:4711", 9, 4_711));
        assert!(!is_stream("9:4711", 9, 4_712) && !is_stream("9:4711", 8, 4_711));
        assert!(!is_stream("", 9, 4_711) && !is_stream("9", 9, 4_711));
    }
}
