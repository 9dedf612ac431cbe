//! Simulation's hooks in the code: bugs that it must find, and marks of rare branches that it must
//! reach.
//!
//! - [`bugs!`] defines a crate's switches. Each switch breaks one promise at one place. If no run
//!   notices a switch, no run tests that promise.
//! - [`reached`] counts a rare branch. If no seed gets there, the branch is tested in name only.
//!
//! Without the feature `on`, every switch is `false` at compile time and a mark does nothing. So an
//! optimised binary contains neither the code of a bug nor its name. Only simulation and tests turn
//! the feature on.
//!
//! Counters belong to a thread, because a simulated world does too. Only the harness reads them.

use std::collections::BTreeMap;

/// Whether the feature `on` is: for a mark whose condition costs something to know.
pub const ON: bool = cfg!(feature = "on");

/// The planted bug that is on, if one is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bug(#[cfg(feature = "on")] Option<&'static str>);

#[cfg(feature = "on")]
impl Bug {
    /// Switches on the one called `name`, which is one of `names`.
    ///
    /// # Panics
    /// If there is no such bug.
    #[must_use]
    pub fn plant(name: &'static str, names: &[&str]) -> Bug {
        assert!(names.contains(&name), "no planted bug is called '{name}'");
        Bug(Some(name))
    }

    /// Whether `name` is on. Not inlined: a comparison with a constant would leave pieces of the
    /// name in a binary, and the search for whole names would miss them.
    #[inline(never)]
    #[must_use]
    pub fn is(self, name: &str) -> bool {
        self.0 == Some(name)
    }
}

#[cfg(not(feature = "on"))]
impl Bug {
    /// No bug is ever on.
    #[inline(always)]
    #[must_use]
    pub const fn is(self, _name: &str) -> bool {
        false
    }
}

/// Declares the switches of a crate:
///
/// ```
/// planted::bugs! {
///     /// Planted bugs of this crate.
///     pub struct Bugs in "mdt" {
///         /// The reply record is not written.
///         skip_reply_record,
///     }
/// }
/// assert!(!Bugs::default().skip_reply_record());
/// assert_eq!(Bugs::NAMES, ["mdt.skip_reply_record"]);
/// ```
///
/// With the feature `on`, `Bugs::plant("mdt.skip_reply_record")` switches one on.
#[macro_export]
macro_rules! bugs {
    (
        $(#[$doc:meta])*
        pub struct $bugs:ident in $part:literal {
            $($(#[$bug_doc:meta])* $bug:ident,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $bugs($crate::Bug);

        impl $bugs {
            /// All of them.
            pub const NAMES: &[&str] = &[$(concat!($part, ".", stringify!($bug)),)*];

            $crate::plant!();

            $($(#[$bug_doc])*
            #[inline]
            #[must_use]
            pub fn $bug(self) -> bool {
                self.0.is(concat!($part, ".", stringify!($bug)))
            })*
        }
    };
}

/// The part of [`bugs!`] that depends on the feature.
#[cfg(feature = "on")]
#[doc(hidden)]
#[macro_export]
macro_rules! plant {
    () => {
        /// Switches one on.
        ///
        /// # Panics
        /// If there is no such bug.
        #[must_use]
        pub fn plant(name: &'static str) -> Self {
            Self($crate::Bug::plant(name, Self::NAMES))
        }
    };
}

/// The part of [`bugs!`] that depends on the feature.
#[cfg(not(feature = "on"))]
#[doc(hidden)]
#[macro_export]
macro_rules! plant {
    () => {};
}

#[cfg(feature = "on")]
std::thread_local! {
    static COUNTS: std::cell::RefCell<BTreeMap<&'static str, u64>> = const {
        std::cell::RefCell::new(BTreeMap::new())
    };
}

/// This thread has come to the rare branch that is called `mark`.
#[cfg(feature = "on")]
pub fn reached(mark: &'static str) {
    COUNTS.with_borrow_mut(|counts| *counts.entry(mark).or_default() += 1);
}

/// Nothing, without the feature `on`.
#[cfg(not(feature = "on"))]
#[inline(always)]
pub const fn reached(_mark: &'static str) {}

/// How often this thread has come to each mark since it was last asked.
#[must_use]
pub fn take_counts() -> BTreeMap<&'static str, u64> {
    #[cfg(feature = "on")]
    return COUNTS.take();
    #[cfg(not(feature = "on"))]
    BTreeMap::new()
}

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macro declares a public type, as a crate needs it")]
mod tests {
    bugs! {
        /// Two of them.
        pub struct Bugs in "part" {
            /// One.
            forget_one,
            /// Another.
            forget_other,
        }
    }

    #[test]
    fn without_a_choice_no_bug_is_on() {
        assert!(!Bugs::default().forget_one() && !Bugs::default().forget_other());
        assert_eq!(Bugs::NAMES, ["part.forget_one", "part.forget_other"]);
    }

    #[test]
    #[cfg(feature = "on")]
    fn one_bug_is_on_at_a_time() {
        let bugs = Bugs::plant("part.forget_other");
        assert!(!bugs.forget_one() && bugs.forget_other());
    }

    #[test]
    #[cfg(feature = "on")]
    #[should_panic(expected = "no planted bug is called 'part.unknown'")]
    fn an_unknown_bug_is_refused() {
        let _no_such = Bugs::plant("part.unknown");
    }

    #[test]
    #[cfg(feature = "on")]
    fn marks_are_counted_until_they_are_taken() {
        super::reached("a rare branch");
        super::reached("a rare branch");
        assert_eq!(super::take_counts().get("a rare branch"), Some(&2));
        assert!(super::take_counts().is_empty());
    }

    #[test]
    #[cfg(not(feature = "on"))]
    fn a_binary_for_use_counts_nothing() {
        super::reached("a rare branch");
        assert!(super::take_counts().is_empty() && size_of::<Bugs>() == 0);
    }
}
