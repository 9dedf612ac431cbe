//! Permanent parameters (`lctl set_param -P`): kept by the MGS, taken over by every node that has a
//! parameter of that name, when it starts and within seconds of a change. A deleted one keeps its
//! value until its node starts again.

use std::cell::RefCell;
use std::collections::BTreeMap;

use params::{ParamError, ParamTree};

/// What a node has taken over.
#[derive(Default)]
pub(crate) struct Permanent {
    taken: RefCell<BTreeMap<String, String>>,
}

impl Permanent {
    /// Sets what is new among `wanted`, the whole list of patterns and values. A parameter that is
    /// not here may come later, with its target or policy: it is tried again with the next call.
    /// What is refused is told once.
    pub(crate) async fn apply(&self, params: &ParamTree, wanted: &[(String, String)]) {
        self.taken.borrow_mut().retain(|name, _| wanted.iter().any(|(known, _)| known == name));
        for (name, value) in wanted {
            if self.taken.borrow().get(name) == Some(value) {
                continue;
            }
            let outcome = params.set(name, value).await;
            if matches!(outcome, Err(ParamError::NotFound(_))) {
                continue;
            }
            for error in outcome.map_or_else(
                |error| vec![error],
                |done| done.into_iter().filter_map(Result::err).collect(),
            ) {
                tracing::warn!("permanent parameter: {error}");
            }
            self.taken.borrow_mut().insert(name.clone(), value.clone());
        }
    }
}

/// As `lctl get_param permanent` shows them: a line each.
pub(crate) fn render(wanted: &[(String, String)]) -> String {
    wanted.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::Future;
    use std::rc::Rc;
    use std::task::{Context, Waker};

    use super::*;

    fn apply(permanent: &Permanent, params: &ParamTree, wanted: &[(&str, &str)]) {
        let wanted: Vec<_> =
            wanted.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut done = std::pin::pin!(permanent.apply(params, &wanted));
        assert!(done.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }

    fn with(params: &ParamTree, name: &str) -> (Rc<RefCell<String>>, Rc<Cell<u32>>) {
        let (value, sets) = (Rc::new(RefCell::new("0".to_owned())), Rc::new(Cell::new(0)));
        let (read, write, count) = (value.clone(), value.clone(), sets.clone());
        let set = move |value: &str| {
            count.set(count.get() + 1);
            *write.borrow_mut() = value.to_owned();
            if value == "bad" { Err("no".to_owned()) } else { Ok(()) }
        };
        params.register_rw(name, move || read.borrow().clone(), set);
        (value, sets)
    }

    #[test]
    fn each_permanent_value_is_taken_once() {
        let (params, permanent) = (ParamTree::new(), Permanent::default());
        let (early, sets) = with(&params, "lod.a.stripecount");
        let wanted = [("lod.*.stripecount", "2"), ("osc.*.active", "0")];
        apply(&permanent, &params, &wanted);
        *early.borrow_mut() = "7".to_owned(); // by hand, afterwards: stays
        apply(&permanent, &params, &wanted);
        assert_eq!((early.borrow().as_str(), sets.get()), ("7", 1));
        let (late, _) = with(&params, "osc.b.active");
        apply(&permanent, &params, &wanted);
        assert_eq!(late.borrow().as_str(), "0");
        apply(&permanent, &params, &[("lod.*.stripecount", "bad")]);
        apply(&permanent, &params, &[("lod.*.stripecount", "bad")]);
        assert_eq!(sets.get(), 2, "what is refused is not tried for ever");
        apply(&permanent, &params, &[]);
        apply(&permanent, &params, &[("lod.*.stripecount", "3")]);
        assert_eq!((early.borrow().as_str(), sets.get()), ("3", 3));
    }
}
