//! The parameter tree. A value is computed when a caller asks for it.
//!
//! A parameter may be registered with a value of any type that can be printed. Its text is printed
//! from that value, and code of the same process takes the value itself ([`ParamTree::typed`]).
//!
//! Patterns have one shell glob for each part of the name: `*`, `?`, `[a-z]`, `[!x]` and `{a,b}`;
//! `/` is accepted for `.`. **A writer that refuses a value changes nothing** and gives the reason;
//! the error names the parameter and the value.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use types::{CounterTable, Errno};

use crate::{Pattern, PatternError};

/// Longest value that a write may carry, bytes.
pub const PARAM_VALUE_BYTES_MAX: usize = 64 << 10;

/// Parameters of one node at most: a registration behind it is a fault of the program.
pub const PARAMS_MAX: usize = 1 << 18;

/// Characters of a refused value that an error repeats.
const VALUE_CHARS_SHOWN: usize = 80;

type Read = Rc<dyn Fn() -> Result<String, ParamRefusal>>;
type ReadTyped = Rc<dyn Fn() -> Option<Box<dyn Any>>>;
type WriteNow = dyn Fn(&str) -> Result<(), ParamRefusal>;
type Written = Pin<Box<dyn Future<Output = Result<(), ParamRefusal>>>>;
type WriteWaits = dyn Fn(String) -> Written;

#[derive(Clone)]
enum Write {
    Now(Rc<WriteNow>),
    Waits(Rc<WriteWaits>),
}

#[derive(Clone)]
struct Leaf {
    read: Read,
    write: Option<Write>,
    /// Its value before it is printed, where it was registered with one.
    typed: Option<ReadTyped>,
}

impl Leaf {
    fn new(read: Read, write: Option<Write>) -> Leaf {
        Leaf { read, write, typed: None }
    }

    /// Its text is printed from what `read` gives, and empty where that is nothing.
    fn typed<T: Display + 'static>(
        read: impl Fn() -> Result<Option<T>, ParamRefusal> + 'static,
        write: Option<Write>,
    ) -> Leaf {
        let read = Rc::new(read);
        let prints = Rc::clone(&read);
        let text = move || -> Result<String, ParamRefusal> {
            Ok(prints()?.map_or_else(String::new, |value| value.to_string()))
        };
        let typed = move || -> Option<Box<dyn Any>> { Some(Box::new(read().ok()??)) };
        Leaf { typed: Some(Rc::new(typed)), ..Leaf::new(Rc::new(text), write) }
    }
}

/// Why a reader or writer refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamRefusal {
    /// What kind of refusal.
    pub errno: Errno,
    /// In words: names what is wrong.
    pub why: String,
}

impl ParamRefusal {
    /// `errno` because of `why`.
    #[must_use]
    pub fn new(errno: Errno, why: impl Into<String>) -> ParamRefusal {
        ParamRefusal { errno, why: why.into() }
    }

    /// EINVAL because of `why`.
    #[must_use]
    pub fn invalid(why: impl Into<String>) -> ParamRefusal {
        ParamRefusal::new(Errno::EINVAL, why)
    }
}

impl From<String> for ParamRefusal {
    fn from(why: String) -> ParamRefusal {
        ParamRefusal::invalid(why)
    }
}

/// One match of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Dotted: `ost.OSS.ost_io.threads_max`.
    pub name: String,
    /// Value as printed; may have several lines.
    pub value: String,
}

/// One match of a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ParamName {
    /// Dotted: `ost.OSS.ost_io.threads_max`.
    pub name: String,
    /// Whether it has parameters below it instead of a value.
    pub is_dir: bool,
    /// Whether it can be set.
    pub is_writable: bool,
}

/// Why a parameter was not read or set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// The pattern itself is wrong.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// Nothing has this name.
    #[error("param_path '{0}': No such file or directory")]
    NotFound(String),
    /// It cannot be set.
    #[error("setting {name}={value}: Permission denied: it is read-only")]
    ReadOnly {
        /// Its dotted name.
        name: String,
        /// What was to be written.
        value: String,
    },
    /// It has no value now.
    #[error("reading {name}: {}: {}", refusal.errno.text(), refusal.why)]
    Unreadable {
        /// Its dotted name.
        name: String,
        /// The writer's reason.
        refusal: ParamRefusal,
    },
    /// The writer refused.
    #[error("setting {name}={value}: {}: {}", refusal.errno.text(), refusal.why)]
    Refused {
        /// Its dotted name.
        name: String,
        /// What was to be written.
        value: String,
        /// What is wrong with it.
        refusal: ParamRefusal,
    },
}

impl ParamError {
    /// As an exit status.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            ParamError::NotFound(_) => Errno::ENOENT,
            ParamError::ReadOnly { .. } => Errno::EACCES,
            ParamError::Pattern(_) => Errno::EINVAL,
            ParamError::Unreadable { refusal, .. } | ParamError::Refused { refusal, .. } => {
                refusal.errno
            }
        }
    }
}

/// All parameters of a node; a cheap handle.
#[derive(Clone, Default)]
pub struct ParamTree(Rc<RefCell<BTreeMap<Vec<String>, Leaf>>>);

impl ParamTree {
    /// Without parameters.
    #[must_use]
    pub fn new() -> ParamTree {
        ParamTree::default()
    }

    /// Adds a parameter that can only be read. A second registration of a name replaces the first.
    pub fn register(&self, name: impl AsRef<str>, read: impl Fn() -> String + 'static) {
        self.register_fallible(name, move || Ok(read()));
    }

    /// Adds a parameter that can only be read, and not at all times.
    pub fn register_fallible(
        &self,
        name: impl AsRef<str>,
        read: impl Fn() -> Result<String, ParamRefusal> + 'static,
    ) {
        self.insert(name.as_ref(), Leaf::new(Rc::new(read), None));
    }

    /// Adds a parameter that can be set. `write` changes all or nothing and says what is wrong with
    /// a value it refuses.
    pub fn register_rw(
        &self,
        name: impl AsRef<str>,
        read: impl Fn() -> String + 'static,
        write: impl Fn(&str) -> Result<(), String> + 'static,
    ) {
        self.register_fallible_rw(name, move || Ok(read()), move |value| Ok(write(value)?));
    }

    /// Adds a parameter that can be set; reader and writer say why they refuse.
    pub fn register_fallible_rw(
        &self,
        name: impl AsRef<str>,
        read: impl Fn() -> Result<String, ParamRefusal> + 'static,
        write: impl Fn(&str) -> Result<(), ParamRefusal> + 'static,
    ) {
        self.insert(name.as_ref(), Leaf::new(Rc::new(read), Some(Write::Now(Rc::new(write)))));
    }

    /// The same, with a writer that may have to wait.
    pub fn register_waiting<W>(
        &self,
        name: impl AsRef<str>,
        read: impl Fn() -> Result<String, ParamRefusal> + 'static,
        write: impl Fn(String) -> W + 'static,
    ) where
        W: Future<Output = Result<(), ParamRefusal>> + 'static,
    {
        let write = move |value| -> Written { Box::pin(write(value)) };
        self.insert(name.as_ref(), Leaf::new(Rc::new(read), Some(Write::Waits(Rc::new(write)))));
    }

    /// Adds a parameter that can only be read and whose text is printed from a value. Where there
    /// is none now, the text is empty.
    pub fn register_typed<T: Display + 'static>(
        &self,
        name: impl AsRef<str>,
        read: impl Fn() -> Result<Option<T>, ParamRefusal> + 'static,
    ) {
        self.insert(name.as_ref(), Leaf::typed(read, None));
    }

    /// The same, and it can be set.
    pub fn register_typed_rw<T: Display + 'static>(
        &self,
        name: impl AsRef<str>,
        read: impl Fn() -> Result<Option<T>, ParamRefusal> + 'static,
        write: impl Fn(&str) -> Result<(), ParamRefusal> + 'static,
    ) {
        self.insert(name.as_ref(), Leaf::typed(read, Some(Write::Now(Rc::new(write)))));
    }

    /// Adds a number that can only be read.
    pub fn register_number(&self, name: impl AsRef<str>, read: impl Fn() -> u64 + 'static) {
        self.register_typed(name, move || Ok(Some(read())));
    }

    /// Adds a parameter that shows counters; writing anything calls `clear`, where there is one.
    /// Its text is the table's.
    pub fn register_table(
        &self,
        name: impl AsRef<str>,
        read: impl Fn() -> Result<CounterTable, ParamRefusal> + 'static,
        clear: Option<Rc<dyn Fn() -> Result<(), ParamRefusal>>>,
    ) {
        let clears = clear.map(|clear| Write::Now(Rc::new(move |_: &str| clear())));
        self.insert(name.as_ref(), Leaf::typed(move || Ok(Some(read()?)), clears));
    }

    /// Removes `prefix` and everything below it: a target or mount is gone.
    pub fn remove(&self, prefix: &str) {
        let prefix = parts(prefix);
        self.0.borrow_mut().retain(|name, _| !name.starts_with(&prefix));
    }

    /// Values of all leaves that match and have one now; an error if none has.
    pub fn get(&self, pattern: &str) -> Result<Vec<Param>, ParamError> {
        read_all(self.leaves(pattern, false)?)
    }

    /// Values of all leaves that match or stand below a match, as [`ParamTree::get`].
    pub fn get_below(&self, pattern: &str) -> Result<Vec<Param>, ParamError> {
        read_all(self.leaves(pattern, true)?)
    }

    /// Values of all leaves that match, were registered with a value of this type and have one now,
    /// by name.
    #[must_use]
    pub fn typed<T: 'static>(&self, pattern: &str) -> Vec<(String, T)> {
        let leaves = self.leaves(pattern, false).unwrap_or_default().into_iter();
        let value = |leaf: Leaf| (leaf.typed?)()?.downcast::<T>().ok();
        leaves.filter_map(|(name, leaf)| Some((name, *value(leaf)?))).collect()
    }

    /// Names that match: leaves and the levels above them; with `recursive` also all below them.
    pub fn list(&self, pattern: &str, recursive: bool) -> Result<Vec<ParamName>, ParamError> {
        let matcher = Pattern::new(pattern)?;
        let tree = self.0.borrow();
        let mut found = BTreeSet::new();
        for (name, leaf) in tree.iter() {
            let depths = (1..=name.len()).filter(|depth| {
                matcher.matches(&name[..*depth])
                    || (recursive && matcher.matches_above(&name[..*depth]))
            });
            for depth in depths {
                let is_dir = depth < name.len();
                let is_writable = !is_dir && leaf.write.is_some();
                found.insert(ParamName { name: name[..depth].join("."), is_dir, is_writable });
            }
        }
        if found.is_empty() { Err(not_found(pattern)) } else { Ok(found.into_iter().collect()) }
    }

    /// Sets every leaf that matches, one after the other; one answer for each, with the value as it
    /// reads afterwards.
    pub async fn set(
        &self,
        pattern: &str,
        value: &str,
    ) -> Result<Vec<Result<Param, ParamError>>, ParamError> {
        let mut answers = Vec::new();
        for (name, leaf) in self.leaves(pattern, false)? {
            answers.push(set_leaf(name, &leaf, value).await);
        }
        Ok(answers)
    }

    /// The same for whoever cannot wait: leaves whose writer would have to are refused.
    pub fn set_now(
        &self,
        pattern: &str,
        value: &str,
    ) -> Result<Vec<Result<Param, ParamError>>, ParamError> {
        let mut answers = Vec::new();
        for (name, leaf) in self.leaves(pattern, false)? {
            let mut done = std::pin::pin!(set_leaf(name.clone(), &leaf, value));
            answers.push(match done.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => answer,
                Poll::Pending => {
                    let refusal = ParamRefusal::new(Errno::EAGAIN, "it takes a while");
                    Err(ParamError::Refused {
                        name,
                        value: value.chars().take(VALUE_CHARS_SHOWN).collect(),
                        refusal,
                    })
                }
            });
        }
        Ok(answers)
    }

    fn insert(&self, name: &str, leaf: Leaf) {
        let name = parts(name);
        assert!(name.iter().all(|part| !part.is_empty()), "a parameter's name has no empty part");
        let mut tree = self.0.borrow_mut();
        tree.insert(name, leaf);
        assert!(tree.len() <= PARAMS_MAX, "parameters are bounded");
    }

    /// Cloned out, so that a reader or writer may register parameters itself.
    fn leaves(&self, pattern: &str, below: bool) -> Result<Vec<(String, Leaf)>, ParamError> {
        let matcher = Pattern::new(pattern)?;
        let tree = self.0.borrow();
        let fits =
            |name: &[String]| matcher.matches(name) || (below && matcher.matches_above(name));
        let found: Vec<_> = tree
            .iter()
            .filter(|(name, _)| fits(name))
            .map(|(name, leaf)| (name.join("."), leaf.clone()))
            .collect();
        if found.is_empty() { Err(not_found(pattern)) } else { Ok(found) }
    }
}

fn read_all(leaves: Vec<(String, Leaf)>) -> Result<Vec<Param>, ParamError> {
    let mut found = Vec::new();
    let mut first = None;
    for (name, leaf) in leaves {
        match (leaf.read)() {
            Ok(value) => found.push(Param { name, value }),
            Err(refusal) => {
                first.get_or_insert(ParamError::Unreadable { name, refusal });
            }
        }
    }
    first.filter(|_| found.is_empty()).map_or(Ok(found), Err)
}

async fn set_leaf(name: String, leaf: &Leaf, value: &str) -> Result<Param, ParamError> {
    let shown: String = value.chars().take(VALUE_CHARS_SHOWN).collect();
    let Some(write) = &leaf.write else { return Err(ParamError::ReadOnly { name, value: shown }) };
    let done = match write {
        _ if value.len() > PARAM_VALUE_BYTES_MAX => {
            Err(ParamRefusal::invalid(format!("longer than {PARAM_VALUE_BYTES_MAX} bytes")))
        }
        Write::Now(write) => write(value),
        Write::Waits(write) => write(value.to_owned()).await,
    };
    match done {
        Ok(()) => (leaf.read)()
            .map(|value| Param { name: name.clone(), value })
            .map_err(|refusal| ParamError::Unreadable { name, refusal }),
        Err(refusal) => Err(ParamError::Refused { name, value: shown, refusal }),
    }
}

fn parts(name: &str) -> Vec<String> {
    name.split('.').map(str::to_owned).collect()
}

fn not_found(pattern: &str) -> ParamError {
    ParamError::NotFound(
        pattern.chars().take(200).map(|c| if c == '.' { '/' } else { c }).collect(),
    )
}

/// A number within `min..=max`, for writers.
pub fn parse_within<T>(value: &str, min: T, max: T) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    match value.trim().parse::<T>() {
        Ok(number) if number >= min && number <= max => Ok(number),
        _ => Err(format!("expected a number from {min} to {max}")),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::Lines;

    fn tree() -> (ParamTree, Rc<Cell<u32>>) {
        let tree = ParamTree::new();
        let threads = Rc::new(Cell::new(128));
        tree.register("version", || "0.1.0".to_owned());
        for service in ["ost", "ost_io"] {
            let (shown, set) = (threads.clone(), threads.clone());
            tree.register_rw(
                format!("ost.OSS.{service}.threads_max"),
                move || shown.get().to_string(),
                move |value| parse_within(value, 2, 512).map(|value| set.set(value)),
            );
        }
        for index in 0..3 {
            tree.register(format!("obdfilter.testfs-OST000{index}.kbytesfree"), move || {
                (index * 100).to_string()
            });
        }
        (tree, threads)
    }

    fn names(found: Result<Vec<Param>, ParamError>) -> String {
        found
            .expect("found")
            .into_iter()
            .map(|param| format!("{}={}", param.name, param.value))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn globs_find_leaves_in_name_order() {
        let (tree, _) = tree();
        assert_eq!(names(tree.get("version")), "version=0.1.0");
        assert_eq!(
            names(tree.get("obdfilter.*OST000[02].kbytesfree")),
            "obdfilter.testfs-OST0000.kbytesfree=0 obdfilter.testfs-OST0002.kbytesfree=200"
        );
        assert_eq!(
            names(tree.get("ost/OSS/{ost_io,none}/threads_ma?")),
            "ost.OSS.ost_io.threads_max=128"
        );
        assert_eq!(
            names(tree.get_below("obdfilter.*1")),
            "obdfilter.testfs-OST0001.kbytesfree=100"
        );
    }

    #[test]
    fn what_is_not_there_is_told_as_a_path() {
        let (tree, _) = tree();
        assert_eq!(
            tree.get("a.b").map_err(|error| error.to_string()),
            Err("param_path 'a/b': No such file or directory".into())
        );
        assert!(tree.get("ost.OSS").is_err(), "a level above leaves has no value");
    }

    #[test]
    fn a_refused_write_changes_nothing_and_names_the_value() {
        let (tree, threads) = tree();
        let answers = tree.set_now("ost.OSS.*.threads_max", "1000").expect("found");
        assert_eq!(answers.len(), 2);
        let text = answers[1].clone().map_err(|error| error.to_string());
        let expected = "setting ost.OSS.ost_io.threads_max=1000: Invalid argument: expected a number from 2 to 512";
        assert_eq!(text, Err(expected.into()));
        assert_eq!(threads.get(), 128);
        assert!(matches!(
            &tree.set_now("version", "2").expect("found")[0],
            Err(ParamError::ReadOnly { .. })
        ));
    }

    #[test]
    fn a_write_answers_with_the_value_as_it_reads_afterwards() {
        let (tree, threads) = tree();
        let answers = tree.set_now("ost.OSS.ost_io.threads_max", " 64").expect("found");
        assert_eq!(answers[0].as_ref().map(|param| param.value.as_str()), Ok("64"));
        assert_eq!(threads.get(), 64);
    }

    #[test]
    fn a_listing_shows_levels_and_what_is_writable() {
        let (tree, _) = tree();
        let shown = |pattern: &str, recursive| {
            let found = tree.list(pattern, recursive).expect("found");
            let mark = |name: &ParamName| {
                if name.is_dir {
                    "/"
                } else if name.is_writable {
                    "="
                } else {
                    ""
                }
            };
            found
                .iter()
                .map(|name| format!("{}{}", name.name, mark(name)))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(shown("*", false), "obdfilter/ ost/ version");
        assert_eq!(shown("ost.OSS.*", false), "ost.OSS.ost/ ost.OSS.ost_io/");
        assert_eq!(
            shown("ost.OSS", true),
            "ost.OSS/ ost.OSS.ost/ ost.OSS.ost.threads_max= ost.OSS.ost_io/ ost.OSS.ost_io.threads_max="
        );
    }

    #[test]
    fn a_target_that_is_gone_takes_its_parameters_with_it() {
        let (tree, _) = tree();
        tree.remove("obdfilter.testfs-OST0001");
        assert_eq!(tree.get("obdfilter.*.kbytesfree").map(|found| found.len()), Ok(2));
        tree.remove("obdfilter");
        assert!(tree.get("obdfilter.*.*").is_err());
    }

    #[test]
    fn what_has_no_value_now_is_left_out_of_a_glob_and_told_by_name() {
        let tree = ParamTree::new();
        tree.register("a.here", || "1".to_owned());
        tree.register_fallible_rw(
            "a.stopped",
            || Err(ParamRefusal::new(Errno::ENODEV, "crrn is stopped")),
            |_| Err(ParamRefusal::new(Errno::ERANGE, "too many")),
        );
        tree.register_waiting("a.waits", || Ok("2".to_owned()), |_| async { Ok(()) });
        assert_eq!(names(tree.get("a.*")), "a.here=1 a.waits=2");
        let error = tree.get("a.stopped").expect_err("no value");
        assert_eq!(
            (error.errno(), error.to_string()),
            (Errno::ENODEV, "reading a.stopped: No such device: crrn is stopped".into())
        );
        let answers = tree.set_now("a.{stopped,waits}", "9").expect("found");
        let texts: Vec<_> = answers
            .iter()
            .map(|answer| {
                answer.as_ref().map_or_else(|error| error.to_string(), |param| param.value.clone())
            })
            .collect();
        assert_eq!(texts, ["setting a.stopped=9: Numerical result out of range: too many", "2"]);
    }

    #[test]
    fn a_table_is_read_as_it_is_and_as_text_and_cleared_by_any_value() {
        let (tree, shown) = (ParamTree::new(), Rc::new(RefCell::new(vec![5, 7])));
        let (reads, clears) = (Rc::clone(&shown), Rc::clone(&shown));
        let read = move || Ok(CounterTable::Numbers(reads.borrow().clone()));
        let clear = move || {
            clears.borrow_mut().clear();
            Ok(())
        };
        tree.register_table("ost.a.stats", read, Some(Rc::new(clear)));
        tree.register_table(
            "ost.b.stats",
            || Err(ParamRefusal::new(Errno::ESHUTDOWN, "it is gone")),
            None,
        );
        tree.register("ost.c.stats", || "5 7".to_owned());
        let numbers = |numbers: &[u64]| CounterTable::Numbers(numbers.to_vec());
        let tables = |pattern| tree.typed::<CounterTable>(pattern);
        assert_eq!(tables("ost.*.stats"), [("ost.a.stats".to_owned(), numbers(&[5, 7]))]);
        assert_eq!(tree.get("ost.a.stats").expect("it is there")[0].value, "5 7");
        let answers = tree.set_now("ost.a.stats", "0").expect("it is there");
        assert!(answers[0].is_ok());
        assert_eq!(tables("ost.a.stats"), [("ost.a.stats".to_owned(), numbers(&[]))]);
        assert!(tables("nothing.*").is_empty());
        let refused = tree.set_now("ost.b.stats", "0").expect("it is there");
        assert!(matches!(refused[0], Err(ParamError::ReadOnly { .. })));
    }

    #[test]
    fn a_typed_value_is_read_as_it_is_and_as_text() {
        let (tree, bytes) = (ParamTree::new(), Rc::new(Cell::new(4_096_u64)));
        let (reads, sets) = (Rc::clone(&bytes), Rc::clone(&bytes));
        tree.register_typed_rw(
            "a.bytes",
            move || Ok(Some(reads.get())),
            move |value| {
                sets.set(parse_within(value, 1, 8_192)?);
                Ok(())
            },
        );
        tree.register_number("b.bytes", || 7);
        tree.register_typed("c.bytes", || Ok(None::<u64>));
        tree.register_typed("d.bytes", || Ok(Some(Lines(vec!["9".to_owned()]))));
        tree.register("e.bytes", || "11".to_owned());
        let numbers = || tree.typed::<u64>("*.bytes");
        assert_eq!(numbers(), [("a.bytes".to_owned(), 4_096), ("b.bytes".to_owned(), 7)]);
        assert_eq!(
            names(tree.get("*.bytes")),
            "a.bytes=4096 b.bytes=7 c.bytes= d.bytes=9 e.bytes=11"
        );
        assert!(tree.set_now("a.bytes", "5").expect("it is there")[0].is_ok());
        assert!(tree.set_now("a.bytes", "0").expect("it is there")[0].is_err());
        assert_eq!((numbers()[0].1, bytes.get()), (5, 5));
    }
}
