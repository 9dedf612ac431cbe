//! States that an administrator gives a target: degraded, closed for new files, read-only.
//!
//! They are in memory only. A restarted target has none of them, unless they are permanent
//! parameters, which its server sets again.

use std::cell::Cell;

use params::parse_within;
use wire::body::StatfsState;

use crate::Leaves;

/// The states of one target.
#[derive(Debug, Default)]
pub struct Marks(Cell<StatfsState>);

impl Marks {
    /// All of them, as statfs reports them.
    #[must_use]
    pub fn all(&self) -> StatfsState {
        self.0.get()
    }

    /// Whether the target has this state.
    #[must_use]
    pub fn has(&self, mark: StatfsState) -> bool {
        self.0.get().contains(mark)
    }

    /// Gives the target this state, or takes it away.
    pub fn set(&self, mark: StatfsState, on: bool) {
        let others = self.0.get().difference(mark);
        self.0.set(others | mark.when(on));
    }
}

/// Registers a parameter for each of these states; `1` gives it to the target, `0` takes it away.
pub fn register_marks<T: 'static>(
    leaves: &Leaves<'_, T>,
    states: &[(&str, StatfsState)],
    marks: fn(&T) -> &Marks,
) {
    for (name, mark) in states.iter().copied() {
        leaves.set(
            name,
            move |of| u8::from(marks(of).has(mark)).to_string(),
            move |of, value| {
                marks(of).set(mark, parse_within(value, 0, 1)? == 1);
                Ok(())
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use params::ParamTree;

    use super::*;

    #[test]
    fn each_state_is_set_and_taken_back_alone() {
        let (tree, marks) = (ParamTree::new(), Rc::new(Marks::default()));
        let leaves = Leaves::new(&tree, "obdfilter.t-OST0000".to_owned(), &marks);
        let states = [("degraded", StatfsState::DEGRADED), ("no_create", StatfsState::NO_CREATE)];
        register_marks(&leaves, &states, |marks| marks);
        let set = |name: &str, value| {
            let done = tree.set_now(&format!("obdfilter.*.{name}"), value).expect("it is there");
            done.into_iter().all(|done| done.is_ok())
        };
        assert!(set("degraded", "1") && set("no_create", "1") && set("degraded", "0"));
        assert_eq!(marks.all(), StatfsState::NO_CREATE);
        let shown = tree.get("obdfilter.*.no_create").map(|found| found[0].value.clone());
        assert_eq!(shown, Ok("1".to_owned()));
        assert!(!set("no_create", "2"));
        assert!(marks.has(StatfsState::NO_CREATE) && !marks.has(StatfsState::DEGRADED));
    }
}
