//! The life of a policy on a head, and the meaning of a start command in each of its states.
//!
//! ```text
//!  STOPPED --start--> STARTING --ok--> STARTED --replaced, restarted--> STOPPING --last request done--> STOPPED
//!     ^------------------- failed --------|                                ^
//!     '------------------------------------------------ broken ------------'  (at once if none is being handled)
//! ```

use types::Errno;

use crate::{ARG_CHARS_MAX, Head, Refusal, Request};

/// State of a policy on a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyState {
    /// Registered, does not run.
    Stopped,
    /// Being made.
    Starting,
    /// Takes requests.
    Started,
    /// Replaced; its requests leave, new ones do not come.
    Stopping,
}

impl PolicyState {
    /// As `nrs_policies` prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PolicyState::Stopped => "stopped",
            PolicyState::Starting => "starting",
            PolicyState::Started => "started",
            PolicyState::Stopping => "stopping",
        }
    }
}

/// Argument of the fallback: what replaced policies hold back leaves at once.
pub(crate) const NOW: &str = "now";

/// What a start command means for one head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// It is the fallback: the primary stops.
    Fallback,
    /// It runs with that argument.
    Unchanged,
    /// It does not run.
    Fresh,
    /// It runs with another argument.
    Restart,
}

impl<R: Request> Head<R> {
    /// The name of a policy that was replaced and has not given all its requests away.
    #[must_use]
    pub fn draining(&self) -> Option<&'static str> {
        let is_stopping = |at: &usize| self.state(*at) == PolicyState::Stopping;
        (0..self.instances.len()).find(is_stopping).map(|at| self.name(at))
    }

    /// What `NAME ARG` would do here; changes nothing.
    pub(crate) fn plan(&self, name: &str, arg: &str) -> Result<(usize, Plan), Refusal> {
        let at = self.index_of(name).ok_or_else(|| {
            Refusal::new(
                Errno::ENOENT,
                format!("there is no policy '{name}': nrs_policies lists them"),
            )
        })?;
        if arg.chars().count() > ARG_CHARS_MAX {
            return Err(Refusal::invalid(format!(
                "argument '{arg}' is longer than {ARG_CHARS_MAX} characters"
            )));
        }
        if at == 0 {
            return match arg {
                "" | NOW => Ok((0, Plan::Fallback)),
                _ => Err(Refusal::invalid(format!("{name} takes '{NOW}' or nothing, not '{arg}'"))),
            };
        }
        if self.starting.is_some() {
            return Err(Refusal::new(Errno::EAGAIN, "another policy is being started"));
        }
        match self.state(at) {
            PolicyState::Started if self.arg(at) == arg => Ok((at, Plan::Unchanged)),
            PolicyState::Started => Ok((at, Plan::Restart)),
            PolicyState::Stopped => Ok((at, Plan::Fresh)),
            PolicyState::Starting => {
                Err(Refusal::new(Errno::EAGAIN, format!("{name} is being started")))
            }
            PolicyState::Stopping => {
                Err(Refusal::new(Errno::EAGAIN, format!("{name} still drains")))
            }
        }
    }

    /// Whether a tunable of policy `at` can be read and written now.
    pub(crate) fn tunable_here(&self, at: usize) -> Result<(), Refusal> {
        let name = self.name(at);
        match self.state(at) {
            PolicyState::Started => Ok(()),
            PolicyState::Stopped => Err(Refusal::new(
                Errno::ENODEV,
                format!("{name} is stopped: start it with nrs_policies={name}"),
            )),
            PolicyState::Starting => {
                Err(Refusal::new(Errno::EAGAIN, format!("{name} is being started")))
            }
            PolicyState::Stopping => {
                Err(Refusal::new(Errno::EAGAIN, format!("{name} still drains")))
            }
        }
    }
}
