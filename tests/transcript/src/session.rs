//! One shell for many commands, as in a terminal: what a command leaves in the background goes on,
//! and its lines appear between those of the next commands.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::{Ended, Shell};

/// A command that runs longer hangs.
const COMMAND_MAX: Duration = Duration::from_secs(60);
/// A background command has started when it has printed something, and then nothing for this long.
const QUIET: Duration = Duration::from_millis(1_500);

/// A running `bash`.
pub struct Session {
    shell: Child,
    input: Option<ChildStdin>,
    output: Receiver<Vec<u8>>,
    masks: Vec<(String, String)>,
    count: u32,
}

impl Session {
    /// In the shell's directory, with its variables.
    ///
    /// # Panics
    /// `bash` does not start.
    #[must_use]
    pub fn new(shell: &Shell) -> Session {
        let mut command = shell.command("bash");
        // jobs of their own groups would outlive the session; messages about jobs are noise
        command.args(["-c", "exec 2>&1; set +m; exec bash --norc --noprofile -s"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("bash starts");
        let mut out = child.stdout.take().expect("piped");
        let (send, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(len @ 1..) = out.read(&mut bytes) {
                if send.send(bytes[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        Session { shell: child, input, output, masks: shell.masks().to_vec(), count: 0 }
    }

    /// Runs a command line; one that ends with `&` is waited for until it is quiet.
    ///
    /// # Panics
    /// The command does not end within a minute.
    pub fn run(&mut self, line: &str) -> Ended {
        self.count += 1;
        let mark = format!("end-of-command-{}", self.count);
        let script = format!("{line}\nprintf '%s %s\\n' {mark} $?\n");
        let input = self.input.as_mut().expect("it is open");
        input.write_all(script.as_bytes()).expect("the shell reads");
        let is_background = line.trim_end().ends_with('&');
        let (mut text, start) = (String::new(), Instant::now());
        loop {
            match self.output.recv_timeout(QUIET) {
                Ok(bytes) => text.push_str(&String::from_utf8_lossy(&bytes)),
                Err(RecvTimeoutError::Timeout) => {
                    let said = text.lines().any(|line| !line.starts_with(&mark));
                    if is_background && said && text.contains(&mark) {
                        break;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => panic!("{line}: the shell ended:\n{text}"),
            }
            if !is_background && text.contains(&mark) && text.ends_with('\n') {
                break;
            }
            assert!(start.elapsed() < COMMAND_MAX, "{line}: runs for a minute:\n{text}");
        }
        self.ended(&text, &mark)
    }

    fn ended(&self, text: &str, mark: &str) -> Ended {
        let (mut lines, mut status) = (Vec::new(), 0);
        for line in text.lines() {
            match line.strip_prefix(mark) {
                Some(code) => status = code.trim().parse().unwrap_or(-1),
                None => lines.push(line.trim_end()),
            }
        }
        let mut output = lines.join("\n").trim_end().to_owned();
        for (from, to) in &self.masks {
            output = output.replace(from, to);
        }
        Ended { output, status }
    }
}

impl Drop for Session {
    /// The shell ends its background commands in good order, and is waited for.
    fn drop(&mut self) {
        if let Some(mut input) = self.input.take() {
            let _gone = input.write_all(b"kill $(jobs -p) 2> /dev/null; wait\n");
        }
        let start = Instant::now();
        while start.elapsed() < COMMAND_MAX {
            if let Ok(Some(_)) = self.shell.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _gone = self.shell.kill();
        let _gone = self.shell.wait();
    }
}
