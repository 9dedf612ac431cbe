//! Information from `/proc` about the thread that waits for an answer.

use std::sync::{OnceLock, mpsc};
use std::time::Duration;

/// Bytes of an environment that are looked through.
const ENVIRONMENT_BYTES_MAX: u64 = 1 << 20;

/// How long an environment is waited for.
const ENVIRONMENT_WAIT: Duration = Duration::from_millis(5);

/// Whether a signal that kills waits for this thread, or the thread is gone. The kernel marks every
/// thread of a process that a signal will end with SIGKILL, whatever the signal was. A caller in
/// another PID namespace cannot be looked up and counts as living.
#[must_use]
pub fn fatal_signal_pending(pid: u32) -> bool {
    const SIGKILL_BIT: u64 = 1 << 8;
    if pid == 0 {
        return false;
    }
    let status = match std::fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => status,
        Err(error) => return error.kind() == std::io::ErrorKind::NotFound,
    };
    status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:")))
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .any(|mask| mask & SIGKILL_BIT != 0)
}

/// How many bytes the write call is of that this thread waits in; nothing for a call of another
/// kind, and where it cannot be looked up.
#[must_use]
pub fn write_length(pid: u32) -> Option<u64> {
    if pid == 0 {
        return None;
    }
    write_length_of(&std::fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?)
}

/// Number of the call, then its arguments: descriptor, buffer, length.
fn write_length_of(syscall: &str) -> Option<u64> {
    let mut words = syscall.split_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let length = words.nth(2)?.strip_prefix("0x")?;
    let writes = [libc::SYS_write, libc::SYS_pwrite64].contains(&number);
    u64::from_str_radix(length, 16).ok().filter(|_| writes)
}

/// Supplementary groups of a thread; none where it cannot be looked up.
#[must_use]
pub fn supplementary_groups(pid: u32) -> Vec<u32> {
    if pid == 0 {
        return Vec::new();
    }
    std::fs::read_to_string(format!("/proc/{pid}/status"))
        .map_or_else(|_| Vec::new(), |status| types::Creds::groups_in(&status))
}

/// Asks for a variable of a process.
struct Question {
    pid: u32,
    name: String,
    tell: mpsc::Sender<Option<String>>,
}

/// A variable of a process's environment as it was when the process began; none where it cannot be
/// looked up in time.
///
/// A thread of its own reads it. The kernel may make the reader wait for a lock that the process
/// holds while it waits for this daemon (`execve` closes files, `mmap` waits for writes).
#[must_use]
pub fn environment(pid: u32, name: &str) -> Option<String> {
    static READER: OnceLock<Option<mpsc::SyncSender<Question>>> = OnceLock::new();
    let reader = READER.get_or_init(start_reader).as_ref()?;
    let (tell, told) = mpsc::channel();
    // full: the reader waits, and the process before goes on when it is answered without a label
    reader.try_send(Question { pid, name: name.to_owned(), tell }).ok()?;
    told.recv_timeout(ENVIRONMENT_WAIT).ok().flatten()
}

fn start_reader() -> Option<mpsc::SyncSender<Question>> {
    let (ask, questions) = mpsc::sync_channel::<Question>(1);
    let answer = move || {
        for Question { pid, name, tell } in questions {
            let _nobody_waits_any_more = tell.send(read_environment(pid, &name));
        }
    };
    std::thread::Builder::new().name("environ".to_owned()).spawn(answer).ok()?;
    Some(ask)
}

fn read_environment(pid: u32, name: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(format!("/proc/{pid}/environ")).ok()?;
    std::io::Read::read_to_end(&mut std::io::Read::take(file, ENVIRONMENT_BYTES_MAX), &mut bytes)
        .ok()?;
    variable_of(&bytes, name)
}

fn variable_of(environment: &[u8], name: &str) -> Option<String> {
    let value =
        |line: &[u8]| line.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
    let value = environment.split(|byte| *byte == 0).find_map(value)?;
    Some(String::from_utf8_lossy(&value).into_owned())
}

/// The name of a process's command, empty where it cannot be looked up.
#[must_use]
pub fn command(pid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned()
}

#[must_use]
pub fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| String::new(), |name| name.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_thread_counts_as_killed_a_living_one_not() {
        assert!(!fatal_signal_pending(std::process::id()));
        assert!(fatal_signal_pending(u32::MAX / 2));
    }

    #[test]
    fn a_thread_that_writes_tells_how_much() {
        let of = |number: i64| {
            write_length_of(&format!("{number} 0x3 0x7f1c 0x400000 0x0 0x0 0x0 0x7ffd 0x7f1d\n"))
        };
        assert_eq!((of(libc::SYS_write), of(libc::SYS_pwrite64)), (Some(4 << 20), Some(4 << 20)));
        assert_eq!((of(libc::SYS_writev), of(-1)), (None, None));
        assert_eq!((write_length_of("running\n"), write_length_of("")), (None, None));
        // SAFETY: it takes nothing and always has a number
        let this_thread = unsafe { libc::gettid() } as u32;
        assert_eq!(write_length(this_thread), None, "this thread does not wait");
    }

    #[test]
    fn a_process_tells_its_environment_and_its_command() {
        let environment = b"A=1\0SLURM_JOB_ID=42\0SLURM_JOB_IDS=7\0EMPTY=\0";
        let of = |name| variable_of(environment, name);
        assert_eq!(of("SLURM_JOB_ID").as_deref(), Some("42"));
        assert_eq!((of("SLURM_JOB"), of("EMPTY").as_deref()), (None, Some("")));
        let path = environment_of_this_process("PATH");
        assert_eq!(path, std::env::var("PATH").ok());
        assert!(!command(std::process::id()).is_empty() && !hostname().is_empty());
        assert_eq!(super::environment(u32::MAX / 2, "PATH"), None);
    }

    /// A busy machine may not let the reader answer in time.
    fn environment_of_this_process(name: &str) -> Option<String> {
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        let mut found = None;
        while found.is_none() && std::time::Instant::now() < deadline {
            found = super::environment(std::process::id(), name);
        }
        found
    }

    /// Fuzz target: what `/proc` tells of a caller is the caller's own text.
    #[test]
    fn proc_files() {
        bolero::check!()
            .with_iterations(20_000)
            .with_test_time(std::time::Duration::from_secs(1))
            .for_each(|input: &[u8]| {
                let text = String::from_utf8_lossy(input);
                let status = format!("Name:\t{text}\nGroups:\t4 {text}\n");
                let groups = types::Creds::groups_in(&status);
                assert!(groups.len() <= status.len());
                let environment = [b"A=1\0", input, b"\0JOB=42\0"].concat();
                let found = variable_of(&environment, "JOB");
                assert!(found.is_some(), "a variable behind others is found");
                let _ = write_length_of(&text);
            });
    }
}
