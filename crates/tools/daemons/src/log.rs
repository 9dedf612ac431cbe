//! Log lines on stderr or in a file. `NACRE_LOG` sets the level (error, warn, info, debug, trace),
//! `--log-format` the format of a line.
//!
//! A log file is bounded: at [`LOG_BYTES_MAX`] it is renamed to `FILE.1` and replaces the previous
//! one. On a signal a process reopens its file ([`reopen`]), for other programs that rotate logs.
//! Output to stderr that bypasses the log (a panic's last words) follows the log file. Under
//! systemd a line on stderr carries its priority (`journal`).

mod journal;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer, format};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

/// A log file that has grown so far is put aside.
pub(crate) const LOG_BYTES_MAX: u64 = 64 << 20;

/// What a line of the log looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// An object of JSON a line: time, level, message, and what belongs to it.
    Json,
}

/// Starts logging to stderr; the first call of a process counts. Where the journal of systemd reads
/// it, lines of text begin with their priority and without a time, which the journal has itself.
pub(crate) fn init(default: LevelFilter, format: LogFormat) {
    if format == LogFormat::Text && journal::reads_stderr() {
        return journal::start(default);
    }
    start(default, format, io::stderr);
}

/// Starts logging to a file, which SIGUSR1 opens again. A daemon's stderr goes there too, and
/// SIGHUP opens it again as well.
pub(crate) fn init_file(
    default: LevelFilter,
    format: LogFormat,
    path: &Path,
    is_daemon: bool,
) -> Result<()> {
    let file = LogFile::open(path, LOG_BYTES_MAX, is_daemon);
    let file = file.with_context(|| {
        format!("log {}: its directory must exist and be writable", path.display())
    })?;
    HAS_FILE.store(true, Ordering::Relaxed);
    IS_OF_DAEMON.store(is_daemon, Ordering::Relaxed);
    start(default, format, Arc::new(file));
    Ok(())
}

fn start<W>(default: LevelFilter, format: LogFormat, writer: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (level, wrong) = level(default);
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(writer)
        .log_internal_errors(false) // its own complaint about stderr would panic
        .with_ansi(false);
    // there already: an embedded daemon logs where its host does
    let _ = match format {
        LogFormat::Text => subscriber.event_format(text()).try_init(),
        LogFormat::Json => subscriber.event_format(Json).try_init(),
    };
    complain(wrong);
}

/// The level, and the text that is none.
fn level(default: LevelFilter) -> (LevelFilter, Option<String>) {
    let Ok(text) = std::env::var("NACRE_LOG") else { return (default, None) };
    match text.parse() {
        Ok(level) => (level, None),
        Err(_) => (default, Some(text)),
    }
}

fn complain(wrong: Option<String>) {
    if let Some(text) = wrong {
        tracing::warn!("NACRE_LOG={text} is not a level: error, warn, info, debug or trace");
    }
}

/// The log is a file of this process.
static HAS_FILE: AtomicBool = AtomicBool::new(false);
/// It is a daemon's.
static IS_OF_DAEMON: AtomicBool = AtomicBool::new(false);
/// It shall be opened again with the next line.
static WANTED: AtomicBool = AtomicBool::new(false);

/// Whether the log is the file of a daemon: SIGHUP opens it again, and does not end the process.
pub(crate) fn is_of_daemon() -> bool {
    IS_OF_DAEMON.load(Ordering::Relaxed)
}

/// Has the log opened again because of `signal`, if it is a file of this process.
pub(crate) fn reopen(signal: &str) {
    if HAS_FILE.load(Ordering::Relaxed) {
        WANTED.store(true, Ordering::Relaxed);
        tracing::info!("{signal}: the log is opened again");
    }
}

/// A file of log lines.
struct LogFile {
    path: PathBuf,
    bytes_max: u64,
    has_stderr: bool,
    open: Mutex<Open>,
}

struct Open {
    file: File,
    bytes: u64,
}

impl LogFile {
    fn open(path: &Path, bytes_max: u64, has_stderr: bool) -> io::Result<LogFile> {
        let open = Mutex::new(open(path, has_stderr)?);
        Ok(LogFile { path: path.to_owned(), bytes_max, has_stderr, open })
    }

    /// Opens it again where that is wanted, and puts aside what is full. One that cannot be opened
    /// goes on as it is.
    fn renew(&self, now: &mut Open) {
        if now.bytes >= self.bytes_max {
            let mut older = self.path.clone().into_os_string();
            older.push(".1");
            let _stays_then = std::fs::rename(&self.path, older);
            now.bytes = 0; // not again with each line, if that failed
        } else if !WANTED.swap(false, Ordering::Relaxed) {
            return;
        }
        if let Ok(fresh) = open(&self.path, self.has_stderr) {
            *now = fresh;
        }
    }
}

fn open(path: &Path, has_stderr: bool) -> io::Result<Open> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let bytes = file.metadata()?.len();
    crate::mount::logs::keep(&file);
    if has_stderr {
        rustix::stdio::dup2_stderr(&file)?;
    }
    Ok(Open { file, bytes })
}

impl Write for &LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.renew(&mut open);
        let count = open.file.write(bytes)?;
        open.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An event as one line of text.
fn text() -> OneLine<Format<Full>> {
    OneLine(format().with_target(false).with_ansi(false))
}

/// An event as its format has it, in which nothing ends the line or acts on a terminal. Much of
/// what is logged was said by somebody else: names, addresses, errors, labels of jobs.
struct OneLine<F>(F);

impl<S, N, F> FormatEvent<S, N> for OneLine<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        writeln!(writer, "{}", types::printable(line.trim_end_matches('\n')))
    }
}

/// An event as one line of JSON.
struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = Fields::default();
        fields.set("time", time.into());
        fields.set("level", event.metadata().level().as_str().into());
        event.record(&mut fields);
        writeln!(writer, "{}", serde_json::Value::Object(fields.0))
    }
}

#[derive(Default)]
struct Fields(serde_json::Map<String, serde_json::Value>);

impl Fields {
    fn set(&mut self, name: &str, value: serde_json::Value) {
        self.0.insert(name.to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.set(field.name(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::fmt::format::DefaultFields;

    use super::*;

    #[test]
    fn a_log_file_is_bounded_and_opened_again_when_asked() {
        let dir = std::env::temp_dir().join(format!("nacre-log-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let path = dir.join("x.log");
        let log = LogFile::open(&path, 100, false).expect("opens");
        let text = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
        for number in 0..12 {
            (&log).write_all(format!("line {number}..\n").as_bytes()).expect("writes");
        }
        assert!(text("x.log.1").ends_with("line 10..\n") && text("x.log") == "line 11..\n");
        std::fs::rename(&path, dir.join("moved")).expect("moves");
        (&log).write_all(b"still there\n").expect("writes");
        WANTED.store(true, Ordering::Relaxed);
        (&log).write_all(b"here\n").expect("writes");
        assert!(text("moved").ends_with("still there\n"), "{}", text("moved"));
        assert_eq!(text("x.log"), "here\n");
        std::fs::remove_dir_all(&dir).expect("cleaned up");
    }

    /// What `say` writes to a log of this format.
    fn logged<F>(form: F, say: impl FnOnce()) -> String
    where
        F: FormatEvent<tracing_subscriber::Registry, DefaultFields> + Send + Sync + 'static,
    {
        let lines = Arc::new(Mutex::new(Vec::<u8>::new()));
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
        let theirs = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || To(theirs.clone()))
            .event_format(form)
            .finish();
        tracing::subscriber::with_default(subscriber, say);
        String::from_utf8(lines.lock().expect("whole").clone()).expect("text")
    }

    /// Job ids, names of targets, addresses and errors come from others.
    #[test]
    fn what_a_peer_says_forges_no_line_of_the_log() {
        let said = "x\nERROR the storage of testfs-MDT0000 is damaged\r\u{1b}[2J\u{202e}";
        let say = || tracing::warn!(name = said, error = %said, job = ?said, "refused: {said}");
        let journal = || logged(journal::Line::new(), say);
        for (text, level) in
            [(logged(text(), say), "WARN"), (logged(Json, say), "WARN"), (journal(), "<4>refused")]
        {
            assert_eq!(text.lines().count(), 1, "{text}");
            let line = text.strip_suffix('\n').expect("a whole line");
            assert!(!line.chars().any(char::is_control), "{line}");
            assert!(!line.starts_with("ERROR") && line.contains(level), "{line}");
        }
        assert!(![logged(text(), say), journal()].concat().contains('\u{202e}'));
    }

    #[test]
    fn a_line_of_json_has_time_level_message_and_fields() {
        let text = logged(Json, || {
            tracing::warn!(clients = 3_u64, name = "a \"b\"", "recovery waits");
        });
        let line: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&line["level"], &line["message"]), (&"WARN".into(), &"recovery waits".into()));
        assert_eq!((&line["clients"], &line["name"]), (&3.into(), &"a \"b\"".into()));
        assert!(line["time"].as_str().is_some_and(|time| time.starts_with("20")), "{text}");
    }
}
