//! The interface of a policy, and how a head gets a policy.

use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;

use types::{Errno, Instant};

use crate::{Id, Part, Queue, Request};

/// Why a command or a tunable was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}: {errno}")]
pub struct Refusal {
    /// For the caller's exit code.
    pub errno: Errno,
    /// For the caller's eyes: names the wrong word.
    pub text: String,
}

impl Refusal {
    /// `errno` because of `text`.
    #[must_use]
    pub fn new(errno: Errno, text: impl Into<String>) -> Refusal {
        Refusal { errno, text: text.into() }
    }

    /// EINVAL because of `text`.
    #[must_use]
    pub fn invalid(text: impl Into<String>) -> Refusal {
        Refusal::new(Errno::EINVAL, text)
    }
}

/// A policy that finds itself, or is found, broken: it is disabled and FIFO takes its requests.
/// Boxed, so that the answers which may be one fit two registers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(Box<Cow<'static, str>>);

impl Broken {
    /// Because of `text`.
    #[must_use]
    #[cold]
    pub fn new(text: impl Into<Cow<'static, str>>) -> Broken {
        Broken(Box::new(text.into()))
    }

    #[must_use]
    pub fn into_text(self) -> String {
        self.0.into_owned()
    }
}

/// Why a policy did not take a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Not one of its kind: FIFO takes it, and the policy stays.
    NotMine,
    /// It cannot go on.
    Broken(Broken),
}

/// A policy's answer to "which next".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This one; the policy has forgotten it.
    Take(Id),
    /// It holds requests, and none of them may leave before then. Never an answer under `force`.
    NotBefore(Instant),
    Empty,
    /// It cannot go on.
    Broken(Broken),
}

const _: () = assert!(size_of::<Next>() == 16, "in two registers");

/// Why a request is taken from a policy in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Its sender is gone, or it was aborted.
    Gone,
    /// It goes to the high-priority head.
    Promoted,
    /// It may not wait any longer and is handled now.
    Forced,
}

/// Whether a tunable is only checked or also set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Answer as if it were set, and change nothing.
    Check,
    /// Set it. Does not fail for a value that has just passed `Check`.
    Apply,
}

/// How a tunable is written and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `V`, `reg_LABEL:V`, `hp_LABEL:V`; read as one such line per head.
    Labelled,
    /// `[reg|hp] WORDS`; read as a block per head and partition.
    PerPartition,
}

/// Label of [`Tunable::reset`].
pub(crate) const RESET: &str = "reset";

/// A parameter of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunable {
    /// Its name in the parameter tree of a service, e.g. `nrs_crrn_quantum`.
    pub parameter: &'static str,
    /// What stands behind `reg_`, e.g. `quantum`; also its name for [`Policy::get`] and
    /// [`Policy::set`].
    pub label: &'static str,
    /// How it is written.
    pub form: Form,
    /// Whether it can be written at all.
    pub writable: bool,
}

impl Tunable {
    /// A writable `V | reg_LABEL:V | hp_LABEL:V`.
    #[must_use]
    pub const fn labelled(parameter: &'static str, label: &'static str) -> Tunable {
        Tunable { parameter, label, form: Form::Labelled, writable: true }
    }

    /// The one that sets all others of the policy back to what they were at its start: written as
    /// 1, read as 0.
    #[must_use]
    pub const fn reset(parameter: &'static str) -> Tunable {
        Tunable::labelled(parameter, RESET)
    }
}

/// Orders the requests that it takes.
///
/// The head keeps the requests; a policy keeps [`Id`]s, in structures of its own or in
/// [`crate::List`]s through the queue. `enqueue` makes it the holder of a request until it answers
/// `Take` with it or `remove` takes it away; ids mean nothing to it before and after. A call that
/// panics, answers `Broken`, names a request that the policy does not hold, or names none under
/// `force` ends the policy: it is dropped and FIFO goes on with its requests.
///
/// No call allocates per request, logs, or blocks.
pub trait Policy<R: Request> {
    /// Takes a request, or says that it is not its kind.
    fn enqueue(&mut self, queue: &mut Queue<R>, id: Id, now: Instant) -> Result<(), Refused>;

    /// The next request. Under `force` it names one if it holds any, whatever its limits say.
    fn dequeue(&mut self, queue: &mut Queue<R>, now: Instant, force: bool) -> Next;

    /// Forgets a request that it holds.
    fn remove(
        &mut self,
        queue: &mut Queue<R>,
        id: Id,
        now: Instant,
        why: Removal,
    ) -> Result<(), Broken>;

    /// Whether it orders reads by where they lie on the device: then each is located before it is
    /// queued.
    fn wants_places(&self) -> bool {
        false
    }

    /// One of the requests that it gave out has been handled.
    fn finished(&mut self, now: Instant) {
        let _ = now;
    }

    /// The value of a tunable of its descriptor.
    fn get(&self, label: &str, now: Instant) -> Result<String, Refusal> {
        let _ = now;
        Err(Refusal::invalid(format!("'{label}' is not a tunable")))
    }

    /// Commands that set a fresh instance as this one is set, each with its tunable's label, in
    /// order. What its labelled tunables show is not among them.
    fn commands(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Sets a tunable; all or nothing.
    fn set(
        &mut self,
        queue: &mut Queue<R>,
        label: &str,
        value: &str,
        mode: Mode,
        now: Instant,
    ) -> Result<(), Refusal> {
        let _ = (queue, value, mode, now);
        Err(Refusal::invalid(format!("'{label}' is not a tunable")))
    }

    /// Sets all tunables back to what they were at its start; for a policy that lists
    /// [`Tunable::reset`].
    fn reset(&mut self, queue: &mut Queue<R>, now: Instant) {
        let _ = (queue, now);
    }

    /// What `nrs_stats` shows of it beside the head's counters: lines of `  name: value`.
    fn stats(&self, out: &mut String) {
        let _ = out;
    }

    /// The line of the request log for `id`, which it has just given out and which is still queued.
    fn log(&self, queue: &Queue<R>, id: Id) -> String;
}

/// Which of the two heads of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HeadKind {
    Reg,
    Hp,
}

impl HeadKind {
    /// As parameters write it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            HeadKind::Reg => "reg",
            HeadKind::Hp => "hp",
        }
    }
}

/// What a policy is started with.
#[derive(Clone, Debug)]
pub struct Start<'a> {
    /// Its argument, empty if none was given; at most [`crate::ARG_CHARS_MAX`] characters.
    pub arg: &'a str,
    /// On which head of each partition.
    pub head: HeadKind,
    /// The partitions: one instance for each is made.
    pub partitions: &'a [Part],
    /// Chance for those who need some.
    pub seed: u64,
    pub now: Instant,
}

/// Makes the instances of one start, one per partition and in their order: what they share, they
/// share from here.
pub type Make<R> = dyn Fn(&Start<'_>) -> Result<Vec<Box<dyn Policy<R>>>, Refusal>;

/// A kind of policy, registered before the heads are made.
pub struct Descriptor<R> {
    /// As `nrs_policies` names it; at most [`crate::NAME_CHARS_MAX`] characters.
    pub name: &'static str,
    /// The only service that may run it, if it is not for all.
    pub service: Option<&'static str>,
    pub tunables: &'static [Tunable],
    pub make: Rc<Make<R>>,
}

impl<R: Request> Descriptor<R> {
    /// A policy without argument whose instances share nothing. `new` makes one from the seed of
    /// its start.
    pub fn plain<P: Policy<R> + 'static>(
        name: &'static str,
        tunables: &'static [Tunable],
        new: fn(seed: u64) -> P,
    ) -> Descriptor<R> {
        let make = move |start: &Start<'_>| {
            if !start.arg.is_empty() {
                return Err(Refusal::invalid(format!(
                    "{name} takes no argument, not '{}'",
                    start.arg
                )));
            }
            let one = |_: &Part| Box::new(new(start.seed)) as Box<dyn Policy<R>>;
            Ok(start.partitions.iter().map(one).collect())
        };
        Descriptor { name, service: None, tunables, make: Rc::new(make) }
    }

    /// The same, for one service only.
    #[must_use]
    pub fn only_for(self, service: &'static str) -> Descriptor<R> {
        Descriptor { service: Some(service), ..self }
    }
}

impl<R> Clone for Descriptor<R> {
    fn clone(&self) -> Descriptor<R> {
        Descriptor { make: self.make.clone(), ..*self }
    }
}

impl<R> fmt::Debug for Descriptor<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Descriptor({})", self.name)
    }
}
