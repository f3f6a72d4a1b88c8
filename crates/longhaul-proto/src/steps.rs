//! The steps of the machines' states: each is taken here, and told to whom audits them.
//!
//! In: a state and the next one. Out: the state, moved on; under `audit`, the set of steps that
//! this thread took, by which simulators hold the tables in the doc comments of the states. Knows
//! no state and no rule.

use std::fmt;

/// Moves a state on to the next one.
pub(crate) fn step<S: fmt::Debug>(state: &mut S, next: S) {
    drop(replace(state, next));
}

/// Moves a state on to the next one, and gives the one before.
pub(crate) fn replace<S: fmt::Debug>(state: &mut S, next: S) -> S {
    note(Some(&*state), Some(&next));
    std::mem::replace(state, next)
}

/// Notes the first state of a thing.
pub(crate) fn begin<S: fmt::Debug>(first: &S) {
    note(None, Some(first));
}

/// Notes the last state of a thing, which has none from now on.
pub(crate) fn end<S: fmt::Debug>(last: &S) {
    note(Some(last), None);
}

#[cfg(not(any(test, feature = "audit")))]
fn note<S: fmt::Debug>(_: Option<&S>, _: Option<&S>) {}

#[cfg(any(test, feature = "audit"))]
use audited::note;
#[cfg(any(test, feature = "audit"))]
pub use audited::{Step, taken};

#[cfg(any(test, feature = "audit"))]
mod audited {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::fmt::{self, Write};

    /// A step of a state.
    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Step {
        /// The name of the state's type.
        pub table: &'static str,
        /// The name of the state before. `None` if it is the first one.
        pub from: Option<String>,
        /// The name of the state after. `None` if there is none.
        pub to: Option<String>,
    }

    thread_local! {
        static TAKEN: RefCell<BTreeSet<Step>> = const { RefCell::new(BTreeSet::new()) };
    }

    /// The steps that machines took on this thread since this was asked last.
    pub fn taken() -> BTreeSet<Step> {
        TAKEN.with_borrow_mut(std::mem::take)
    }

    /// Notes a step. `None`: the thing does not exist before, or after.
    pub(super) fn note<S: fmt::Debug>(from: Option<&S>, to: Option<&S>) {
        let table = std::any::type_name::<S>().rsplit("::").next().unwrap_or_default();
        let step = Step { table, from: from.map(name), to: to.map(name) };
        TAKEN.with_borrow_mut(|taken| taken.insert(step));
    }

    /// The name of a variant, without what it holds.
    fn name<S: fmt::Debug>(state: &S) -> String {
        let mut name = FirstWord(String::new());
        // It stops with an error behind the first word.
        let _ = write!(name, "{state:?}");
        name.0
    }

    struct FirstWord(String);

    impl Write for FirstWord {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
            self.0.push_str(&text[..end]);
            if end == text.len() { Ok(()) } else { Err(fmt::Error) }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::super::{begin, end, step};
        use super::*;

        #[test]
        fn a_step_is_known_by_the_names_of_its_states() {
            #[derive(Debug)]
            enum Door {
                Open,
                Shut { _by: &'static str },
            }
            let _ = taken();
            let mut door = Door::Open;
            begin(&door);
            step(&mut door, Door::Shut { _by: "wind" });
            end(&door);
            let name = |name: &str| Some(name.to_owned());
            let of = |from, to| Step { table: "Door", from, to };
            let want = [of(None, name("Open")), of(name("Open"), name("Shut")), of(name("Shut"), None)];
            assert_eq!(taken(), BTreeSet::from(want));
            assert_eq!(taken(), BTreeSet::new());
        }
    }
}
