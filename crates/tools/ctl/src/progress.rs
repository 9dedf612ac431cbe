//! A line on the terminal that says how far a long command is.
//!
//! The line goes to stderr. It appears when the command has run for two seconds, and is erased when
//! the [`Progress`] is dropped. A thread draws it, so that time passes there while the command
//! waits. Where stderr is not a terminal, nothing is written and there is no thread.

use std::io::{IsTerminal, Write};
use std::os::unix::fs::FileTypeExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shorter commands show nothing.
const SHOWN_AFTER: Duration = Duration::from_secs(2);
const DRAWN_EVERY: Duration = Duration::from_millis(250);
/// Columns of the narrowest usual terminal. A line that wraps could not be replaced.
const COLUMNS: usize = 80;
/// Letters of a label; of a longer one, such as a path, the end is shown.
const LABEL_MAX: usize = 40;
const STDOUT: &str = "/proc/self/fd/1";

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    /// Many things of one kind: `records`.
    Count(&'static str),
    /// A few steps, one after the other: `phase`.
    Step(&'static str),
}

/// See the head of the file.
#[derive(Default)]
pub struct Progress(Option<Live>);

struct Live {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    ends: Condvar,
}

struct State {
    work: Work,
    terminal: Box<dyn Write + Send>,
    /// Letters of the line that is there.
    drawn: usize,
    is_over: bool,
}

/// A piece of work, and how far it is.
struct Work {
    label: String,
    unit: Unit,
    began: Instant,
    done: u64,
    /// Zero if it is unknown.
    all: u64,
    note: String,
}

impl Progress {
    /// Of a command that begins now with the work `label`.
    #[must_use]
    pub fn new(label: &str, unit: Unit) -> Progress {
        let terminal = std::io::stderr();
        let live = || Live::start(Work::new(label, unit), SHOWN_AFTER, Box::new(terminal));
        Progress(std::io::stderr().is_terminal().then(live))
    }

    /// The same of a command that prints what it finds. Where a pipe takes that, there is no line,
    /// because the program behind the pipe may use the terminal.
    #[must_use]
    pub fn unless_piped(label: &str, unit: Unit) -> Progress {
        if is_pipe(STDOUT) { Progress::default() } else { Progress::new(label, unit) }
    }

    /// The next piece of work of the same command: its rate begins anew.
    pub fn begin(&self, label: &str, unit: Unit) {
        self.change(|state| state.work = Work::new(label, unit));
    }

    /// `done` of `all` units are done; `all` is zero if their number is unknown. The note is at the
    /// end of the line. While the line is being drawn this does nothing, because a terminal that is
    /// stopped (Ctrl-S) must not stop the work.
    pub fn show(&self, done: u64, all: u64, note: &str) {
        let Some(Ok(mut state)) = self.0.as_ref().map(|live| live.shared.state.try_lock()) else {
            return;
        };
        let work = &mut state.work;
        (work.done, work.all) = (done, all);
        if work.note != note {
            note.clone_into(&mut work.note);
        }
    }

    /// Makes room for other output on the terminal; the line comes back by itself.
    pub fn erase(&self) {
        self.change(|state| state.draw(""));
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        if let Some(live) = &self.0 {
            change(&mut live.shared.lock());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let Some(Live { shared, thread }) = self.0.take() else { return };
        shared.lock().is_over = true;
        shared.ends.notify_all();
        if let Some(thread) = thread {
            let _panicked = thread.join();
        }
    }
}

impl Live {
    /// The line appears after `pause`.
    fn start(work: Work, pause: Duration, terminal: Box<dyn Write + Send>) -> Live {
        let state = Mutex::new(State { work, terminal, drawn: 0, is_over: false });
        let shared = Arc::new(Shared { state, ends: Condvar::new() });
        let drawing = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("progress".to_owned());
        let thread = thread.spawn(move || drawing.draw_until_it_ends(pause)).ok();
        Live { shared, thread }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw_until_it_ends(&self, mut pause: Duration) {
        let mut state = self.lock();
        loop {
            let waited = self.ends.wait_timeout_while(state, pause, |state| !state.is_over);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.is_over {
                return state.draw("");
            }
            let line = state.work.line(state.work.began.elapsed());
            let line: String = line.chars().take(COLUMNS - 1).collect();
            state.draw(&line);
            pause = DRAWN_EVERY;
        }
    }
}

impl State {
    /// Replaces the line on the terminal.
    fn draw(&mut self, line: &str) {
        if let Some(text) = redrawn(line, &mut self.drawn) {
            let _nobody_looks = self.terminal.write_all(text.as_bytes());
            let _nobody_looks = self.terminal.flush();
        }
    }
}

/// The bytes that replace a line of `drawn` letters, if anything is to be done.
fn redrawn(line: &str, drawn: &mut usize) -> Option<String> {
    let (before, width) = (*drawn, line.chars().count());
    *drawn = width;
    match (before, width) {
        (0, 0) => None,
        (_, 0) => Some(format!("\r{:before$}\r", "")),
        _ => Some(format!("\r{line:<before$}")),
    }
}

impl Work {
    fn new(label: &str, unit: Unit) -> Work {
        let (label, note) = (shortened(label), String::new());
        Work { label, unit, began: Instant::now(), done: 0, all: 0, note }
    }

    /// `f: 45% of 1.0G, 512.0M/s, 3 s left, round 1`.
    fn line(&self, took: Duration) -> String {
        let Work { label, unit, done, all, note, .. } = self;
        let share = (u128::from(*done) * 100).checked_div(u128::from(*all)).map(|it| it.min(100));
        let rate = per_second(*done, took);
        let mut parts = match (unit, share) {
            (Unit::Step(name), Some(_)) => {
                vec![format!("{name} {} of {all}", (done + 1).min(*all))]
            }
            (Unit::Step(name), None) => vec![format!("{name} {}", done + 1)],
            (Unit::Bytes, Some(share)) => vec![format!("{share}% of {}", human(*all, 1_024))],
            (Unit::Bytes, None) => vec![human(*done, 1_024)],
            (Unit::Count(name), Some(share)) => vec![format!("{share}% of {all} {name}")],
            (Unit::Count(name), None) => vec![format!("{done} {name}")],
        };
        match unit {
            Unit::Bytes => parts.push(format!("{}/s", human(rate, 1_024))),
            Unit::Count(_) => parts.push(format!("{rate}/s")),
            Unit::Step(_) => {}
        }
        parts.extend(left(*done, *all, took).map(|left| format!("{} left", spoken(left))));
        if !note.is_empty() {
            parts.push(note.clone());
        }
        format!("{label}: {}", parts.join(", "))
    }
}

fn is_pipe(path: &str) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

/// The end of a long label. Letters that would move the cursor are replaced.
fn shortened(label: &str) -> String {
    let plain = label.chars().map(|letter| if letter.is_control() { '?' } else { letter });
    let letters: Vec<char> = plain.collect();
    match letters.len().checked_sub(LABEL_MAX) {
        None | Some(0) => letters.into_iter().collect(),
        Some(cut) => "...".chars().chain(letters.into_iter().skip(cut + 3)).collect(),
    }
}

/// Units in a second.
#[must_use]
pub fn per_second(units: u64, took: Duration) -> u64 {
    let micros = took.as_micros().max(1);
    u64::try_from(u128::from(units) * 1_000_000 / micros).unwrap_or(u64::MAX)
}

/// Time that the rest takes at the rate so far; none if that cannot be said.
fn left(done: u64, all: u64, took: Duration) -> Option<Duration> {
    let rest = all.checked_sub(done).filter(|rest| *rest > 0)?;
    let millis = took.as_millis().saturating_mul(rest.into()).checked_div(done.into())?;
    Some(Duration::from_millis(u64::try_from(millis).ok()?))
}

/// `12 s`, `3 min 5 s`, `2 h 10 min`.
fn spoken(time: Duration) -> String {
    let secs = time.as_secs();
    match secs {
        0..60 => format!("{secs} s"),
        60..3_600 => format!("{} min {} s", secs / 60, secs % 60),
        _ => format!("{} h {} min", secs / 3_600, secs % 3_600 / 60),
    }
}

/// A number with a suffix, `100.0G`; `unit` is 1024, or 1000 for powers of ten.
#[must_use]
pub fn human(value: u64, unit: u64) -> String {
    let mut scaled = value as f64;
    let mut suffixes = ["", "K", "M", "G", "T", "P", "E"].into_iter();
    let mut suffix = suffixes.next().unwrap_or_default();
    for next in suffixes {
        if scaled < unit as f64 {
            break;
        }
        scaled /= unit as f64;
        suffix = next;
    }
    if suffix.is_empty() { format!("{value}") } else { format!("{scaled:.1}{suffix}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(unit: Unit, done: u64, all: u64, secs: u64, note: &str) -> String {
        let note = note.to_owned();
        let work = Work { done, all, note, ..Work::new("f", unit) };
        work.line(Duration::from_secs(secs))
    }

    #[test]
    fn the_line_has_share_rate_and_remaining_time() {
        let records = Unit::Count("records");
        for (found, wanted) in [
            (
                line(Unit::Bytes, 512 << 20, 1 << 30, 2, "round 1"),
                "f: 50% of 1.0G, 256.0M/s, 2 s left, round 1",
            ),
            (line(Unit::Bytes, 0, 1 << 30, 2, ""), "f: 0% of 1.0G, 0/s"),
            (line(Unit::Bytes, 3 << 30, 1 << 30, 3, "round 3"), "f: 100% of 1.0G, 1.0G/s, round 3"),
            (line(Unit::Bytes, 1 << 20, 0, 1, ""), "f: 1.0M, 1.0M/s"),
            (line(records, 10, 1_000, 2, ""), "f: 1% of 1000 records, 5/s, 3 min 18 s left"),
            (line(records, 30, 0, 2, "read"), "f: 30 records, 15/s, read"),
            (line(Unit::Step("phase"), 1, 4, 3_000, ""), "f: phase 2 of 4, 2 h 30 min left"),
            (line(Unit::Step("phase"), 4, 4, 9, ""), "f: phase 4 of 4"),
            (line(Unit::Step("phase"), 0, 0, 9, "File stat"), "f: phase 1, File stat"),
        ] {
            assert_eq!(found, wanted);
        }
        let huge = line(Unit::Bytes, u64::MAX - 1, u64::MAX, u64::MAX, "");
        assert!(huge.starts_with("f: 99% of 16.0E, "), "{huge}");
    }

    #[test]
    fn a_long_label_shows_its_end_and_moves_no_cursor() {
        let label = format!("{}end", "directory/".repeat(9));
        let short = shortened(&label);
        assert_eq!(short.chars().count(), LABEL_MAX);
        assert!(short.starts_with("...") && short.ends_with("/end"), "{short}");
        assert_eq!(shortened("a\r\x1b[2Jb"), "a??[2Jb");
        assert_eq!(shortened(&label[label.len() - LABEL_MAX..]).len(), LABEL_MAX);
    }

    #[test]
    fn a_shorter_line_leaves_nothing_of_the_longer_one() {
        let mut drawn = 0;
        assert_eq!(redrawn("", &mut drawn), None);
        assert_eq!(redrawn("é 10", &mut drawn).as_deref(), Some("\ré 10"));
        assert_eq!(redrawn("9", &mut drawn).as_deref(), Some("\r9   "));
        assert_eq!(redrawn("", &mut drawn).as_deref(), Some("\r \r"));
        assert_eq!((redrawn("", &mut drawn), drawn), (None, 0));
    }

    /// A terminal that keeps what is written.
    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("whole").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_line_is_drawn_while_the_command_waits_and_is_gone_at_the_end() {
        let screen = Screen::default();
        let text = || String::from_utf8(screen.0.lock().expect("whole").clone()).expect("text");
        let work = Work::new("f", Unit::Bytes);
        let live = Live::start(work, Duration::ZERO, Box::new(screen.clone()));
        let progress = Progress(Some(live));
        let start = Instant::now();
        while !text().contains("\rf: 50% of 2.0M, ") {
            progress.show(1 << 20, 2 << 20, "round 1");
            assert!(start.elapsed() < Duration::from_secs(60), "{}", text());
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(progress);
        let text = text();
        let last = text.strip_suffix('\r').and_then(|text| text.rsplit('\r').next());
        assert!(last.is_some_and(|last| last.len() > 10 && last.trim().is_empty()), "{text:?}");
    }

    #[test]
    fn without_a_terminal_nothing_is_kept() {
        let progress = Progress::default();
        progress.begin("f", Unit::Bytes);
        progress.show(1, 2, "x");
        progress.erase();
        assert!(progress.0.is_none());
    }

    #[test]
    fn a_pipe_and_a_file_differ() {
        use std::os::fd::AsRawFd;
        let (reads, writes) = std::io::pipe().expect("a pipe");
        let file = std::fs::File::open("/dev/null").expect("opens");
        let of = |number: i32| is_pipe(&format!("/proc/self/fd/{number}"));
        let all = [reads.as_raw_fd(), writes.as_raw_fd(), file.as_raw_fd()].map(of);
        assert_eq!(all, [true, true, false]);
        assert!(!is_pipe("/proc/self/nowhere"));
    }

    #[test]
    fn large_numbers_are_shortened() {
        assert_eq!(
            [human(100 << 30, 1024), human(1000, 1024), human(1500, 1000)],
            ["100.0G", "1000", "1.5K"]
        );
    }
}
