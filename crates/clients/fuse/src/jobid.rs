//! The label of the job that a caller belongs to (Lustre: `jobid_var`, `jobid_name`).
//!
//! | `jobid_var` | the label |
//! |---|---|
//! | `disable` (default) | none |
//! | `procname_uid` | `COMMAND.UID` |
//! | `nodelocal` | `jobid_name` with its `%` codes |
//! | `session` | `jobid_this_session`, or as `nodelocal` if that is empty |
//! | a name | that variable of the caller's environment, or as `nodelocal` where it is not set |
//!
//! Schedulers set, for example: SLURM_JOB_ID, PBS_JOBID, LSB_JOBID, JOB_ID (Grid Engine),
//! LOADL_STEP_ID, ALPS_APP_ID, OMPI_COMM_WORLD, FLUX_JOB_ID, COBALT_JOBID, JSM_NAMESPACE_RANK.
//!
//! An environment is read from `/proc` once per process and cached for [`JOBID_AGE`].

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;

use fusedev::Header;
use types::Instant;

use crate::limits::{CALLERS_MAX, JOBID_AGE};

/// Bytes of a label; 31 and a NUL on the wire.
pub const JOBID_BYTES_MAX: usize = 31;

/// Bytes of `jobid_var` and `jobid_name` at most.
const TEXT_BYTES_MAX: usize = 63;

/// What is known of a caller besides the request: asked only for what the label needs.
pub(crate) trait Process {
    fn command(&self, pid: u32) -> String;
    /// A variable of its environment.
    fn variable(&self, pid: u32, name: &str) -> Option<String>;
    fn hostname(&self) -> String;
}

pub(crate) struct Proc;

impl Process for Proc {
    fn command(&self, pid: u32) -> String {
        fusedev::command(pid)
    }
    fn variable(&self, pid: u32, name: &str) -> Option<String> {
        fusedev::environment(pid, name)
    }
    fn hostname(&self) -> String {
        fusedev::hostname()
    }
}

/// Process, user, group.
type Caller = (u32, u32, u32);

/// How the callers of a mount are labelled. Shared by the mount, which asks, and its parameters,
/// which set.
pub struct Jobids {
    var: RefCell<String>,
    name: RefCell<String>,
    session: RefCell<String>,
    enabled: Cell<bool>,
    known: RefCell<BTreeMap<Caller, (Instant, [u8; 32])>>,
}

impl Default for Jobids {
    fn default() -> Jobids {
        Jobids {
            var: RefCell::new("disable".to_owned()),
            name: RefCell::new("%e.%u".to_owned()),
            session: RefCell::default(),
            enabled: Cell::new(false),
            known: RefCell::default(),
        }
    }
}

impl fmt::Debug for Jobids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Jobids({}, {})", self.var(), self.name())
    }
}

impl Jobids {
    /// `jobid_var`.
    #[must_use]
    pub fn var(&self) -> String {
        self.var.borrow().clone()
    }

    /// `jobid_name`.
    #[must_use]
    pub fn name(&self) -> String {
        self.name.borrow().clone()
    }

    /// `jobid_this_session`.
    #[must_use]
    pub fn session(&self) -> String {
        self.session.borrow().clone()
    }

    /// Sets `jobid_var`.
    ///
    /// # Errors
    /// The text is no name of a variable.
    pub fn set_var(&self, text: &str) -> Result<(), String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if text.is_empty() || text.len() > TEXT_BYTES_MAX || !text.bytes().all(plain) {
            return Err(format!(
                "'{text}': a variable's name, procname_uid, nodelocal, session or disable is expected"
            ));
        }
        self.enabled.set(text != "disable");
        *self.var.borrow_mut() = text.to_owned();
        self.known.borrow_mut().clear();
        Ok(())
    }

    /// Sets `jobid_name`.
    ///
    /// # Errors
    /// It is empty, too long, or has an unknown `%` code.
    pub fn set_name(&self, text: &str) -> Result<(), String> {
        if text.is_empty() || text.len() > TEXT_BYTES_MAX {
            return Err(format!("'{text}': 1 to {TEXT_BYTES_MAX} bytes are expected"));
        }
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            let code = if char == '%' { chars.next().unwrap_or(' ') } else { '%' };
            if !"egHhjpu%".contains(code) {
                return Err(format!(
                    "'{text}': %{code} is not a code; %e %g %h %H %j %p %u and %% are"
                ));
            }
        }
        *self.name.borrow_mut() = text.to_owned();
        self.known.borrow_mut().clear();
        Ok(())
    }

    /// Sets `jobid_this_session`; cut to the bytes a label has.
    pub fn set_session(&self, text: &str) {
        *self.session.borrow_mut() = text.to_owned();
        self.known.borrow_mut().clear();
    }

    /// The label of a caller as requests carry it.
    pub(crate) fn of(&self, header: &Header, now: Instant, process: &impl Process) -> [u8; 32] {
        if !self.enabled.get() || header.pid == 0 {
            return [0; 32];
        }
        let key = (header.pid, header.uid, header.gid);
        let mut known = self.known.borrow_mut();
        if let Some((until, label)) = known.get(&key)
            && now < *until
        {
            return *label;
        }
        let label = wire_label(&self.label(header, process));
        if known.len() >= CALLERS_MAX {
            known.clear();
        }
        known.insert(key, (now + JOBID_AGE, label));
        label
    }

    fn label(&self, header: &Header, process: &impl Process) -> String {
        let var = self.var.borrow();
        match var.as_str() {
            "procname_uid" => expand("%e.%u", header, process, ""),
            "nodelocal" => expand(&self.name.borrow(), header, process, ""),
            "session" if !self.session.borrow().is_empty() => self.session(),
            "session" => expand(&self.name.borrow(), header, process, ""),
            var => match process.variable(header.pid, var).filter(|value| !value.is_empty()) {
                Some(value) if self.name.borrow().contains("%j") => {
                    expand(&self.name.borrow(), header, process, &value)
                }
                Some(value) => value,
                None => expand(&self.name.borrow(), header, process, ""),
            },
        }
    }
}

/// The text with its `%` codes replaced.
fn expand(text: &str, header: &Header, process: &impl Process, job: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '%' {
            out.push(char);
            continue;
        }
        match chars.next() {
            Some('e') => out.push_str(&process.command(header.pid)),
            Some('g') => out.push_str(&header.gid.to_string()),
            Some('h') => out.push_str(&process.hostname()),
            Some('H') => out.push_str(process.hostname().split('.').next().unwrap_or_default()),
            Some('j') => out.push_str(job),
            Some('p') => out.push_str(&header.pid.to_string()),
            Some('u') => out.push_str(&header.uid.to_string()),
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

/// At most [`JOBID_BYTES_MAX`] bytes of whole characters; blanks and control characters, which
/// would break lists of labels, become `?`.
fn wire_label(text: &str) -> [u8; 32] {
    let mut label = [0; 32];
    let mut len = 0;
    for char in text.trim().chars() {
        let char = if char.is_whitespace() || char.is_control() { '?' } else { char };
        if len + char.len_utf8() > JOBID_BYTES_MAX {
            break;
        }
        char.encode_utf8(&mut label[len..]);
        len += char.len_utf8();
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Span;

    struct Fake(Cell<u32>);

    impl Process for Fake {
        fn command(&self, _pid: u32) -> String {
            "dd".to_owned()
        }
        fn variable(&self, pid: u32, name: &str) -> Option<String> {
            self.0.set(self.0.get() + 1);
            (pid == 77).then(|| format!("{name}-value"))
        }
        fn hostname(&self) -> String {
            "node7.cluster.example".to_owned()
        }
    }

    fn label(jobids: &Jobids, pid: u32, now: Instant, fake: &Fake) -> String {
        let header = Header { opcode: 0, unique: 0, nodeid: 1, uid: 500, gid: 5, pid };
        let label = jobids.of(&header, now, fake);
        String::from_utf8(label.into_iter().take_while(|byte| *byte != 0).collect()).expect("UTF-8")
    }

    #[test]
    fn each_mode_labels_as_lustre_does() {
        let (jobids, fake) = (Jobids::default(), Fake(Cell::new(0)));
        let of = |pid| label(&jobids, pid, Instant(0), &fake);
        assert_eq!(of(77), "", "disabled");
        jobids.set_var("procname_uid").expect("a mode");
        assert_eq!(of(77), "dd.500");
        jobids.set_var("SLURM_JOB_ID").expect("a variable");
        assert_eq!((of(77), of(78)), ("SLURM_JOB_ID-value".to_owned(), "dd.500".to_owned()));
        jobids.set_name("%j@%H").expect("known codes");
        assert_eq!((of(77), of(78)), ("SLURM_JOB_ID-value@node7".to_owned(), "@node7".to_owned()));
        jobids.set_var("nodelocal").expect("a mode");
        jobids.set_name("%e:%g:%p:%u%%").expect("known codes");
        assert_eq!(of(77), "dd:5:77:500%");
        jobids.set_name("%h and a very long rest of the label").expect("known codes");
        assert_eq!(of(77), "node7.cluster.example?and?a?ver");
        jobids.set_var("session").expect("a mode");
        jobids.set_session("login");
        assert_eq!(of(77), "login");
        assert_eq!(of(0), "", "the kernel itself");
    }

    #[test]
    fn an_environment_is_read_once_and_again_when_it_is_old() {
        let (jobids, fake) = (Jobids::default(), Fake(Cell::new(0)));
        jobids.set_var("PBS_JOBID").expect("a variable");
        label(&jobids, 77, Instant(0), &fake);
        label(&jobids, 77, Instant(0) + Span(JOBID_AGE.0 - 1), &fake);
        assert_eq!(fake.0.get(), 1);
        label(&jobids, 77, Instant(0) + JOBID_AGE, &fake);
        assert_eq!(fake.0.get(), 2);
    }

    #[test]
    fn what_is_no_mode_or_format_is_refused() {
        let jobids = Jobids::default();
        for text in ["", "A B", "a=b", "x/y", &"V".repeat(64)] {
            assert!(jobids.set_var(text).is_err(), "{text}");
        }
        for text in ["", "%x", "100%", &"n".repeat(64)] {
            assert!(jobids.set_name(text).is_err(), "{text}");
        }
        assert_eq!((jobids.var().as_str(), jobids.name().as_str()), ("disable", "%e.%u"));
    }
}
