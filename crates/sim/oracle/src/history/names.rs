//! Answers about names: a few places for names, in a few directories, and the files that they lead
//! to. One server decides all of it, in one transaction per call, so it is one thing.
//!
//! Each create has a number of its own, which identifies the file. So a file that was made twice
//! would be detected.

use std::collections::BTreeMap;
use std::fmt;

use super::Spec;

/// A name: the number of a place.
type Place = u8;
/// A file: the number of the create that made it.
type Id = u32;

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    pub links: u32,
    pub mode: u32,
}

/// How a change ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Done,
    /// The name is taken.
    Taken,
    /// There is no such name or file.
    Absent,
}

/// Names and files; every place is free at first.
#[derive(Clone, Debug)]
pub struct Names {
    /// How many places each directory has, from place 0 on.
    pub dirs: Vec<Place>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamesCall {
    /// Exclusive.
    Create {
        place: Place,
        id: Id,
        mode: u32,
        told: Told,
    },
    Unlink {
        place: Place,
        told: Told,
    },
    Rename {
        from: Place,
        to: Place,
        how: RenameHow,
        told: Told,
    },
    /// Another name for a file that was found before.
    Link {
        id: Id,
        place: Place,
        told: Told,
    },
    Chmod {
        id: Id,
        mode: u32,
        told: Told,
    },
    Lookup {
        place: Place,
        found: Option<(Id, Seen)>,
    },
    /// Only which file it is.
    Find {
        place: Place,
        found: Option<Id>,
    },
    /// Asks for a file without a name; nothing where it is gone.
    Stat {
        id: Id,
        found: Option<Seen>,
    },
    /// Asks for a directory: each place there is a bit, set where it stands for a file.
    Taken {
        dir: usize,
        found: u64,
    },
    /// All names of a directory.
    List {
        dir: usize,
        found: BTreeMap<Place, Id>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameHow {
    Replace,
    /// RENAME_NOREPLACE.
    Keep,
    /// RENAME_EXCHANGE.
    Exchange,
}

/// Which file each place stands for, and all files that ever were.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tree {
    places: BTreeMap<Place, Id>,
    files: BTreeMap<Id, Seen>,
}

impl fmt::Debug for Tree {
    /// Without files that have no name any more.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named: BTreeMap<_, _> = self.files.iter().filter(|(_, file)| file.links > 0).collect();
        write!(f, "{:?} of {named:?}", self.places)
    }
}

impl Tree {
    fn link(mut self, place: Place, id: Id) -> Tree {
        self.places.insert(place, id);
        self.count(id, 1)
    }

    fn unlink(mut self, place: Place) -> Tree {
        match self.places.remove(&place) {
            Some(id) => self.count(id, -1),
            None => self,
        }
    }

    fn count(mut self, id: Id, by: i32) -> Tree {
        let file = self.files.get_mut(&id).expect("a file with a name was made");
        file.links = file.links.checked_add_signed(by).expect("names are counted both ways");
        self
    }

    /// Whether the file has a name. One that has none may live on while it is open.
    fn is_named(&self, id: Id) -> bool {
        self.files.get(&id).is_some_and(|file| file.links > 0)
    }

    fn rename(&self, from: Place, to: Place, how: RenameHow) -> (Vec<Told>, Option<Tree>) {
        let (source, target) = (self.places.get(&from).copied(), self.places.get(&to).copied());
        let mut told = Vec::new();
        if source.is_none() || (how == RenameHow::Exchange && target.is_none()) {
            told.push(Told::Absent);
        }
        if how == RenameHow::Keep && target.is_some() {
            told.push(Told::Taken);
        }
        let Some(source) = source.filter(|_| told.is_empty()) else { return (told, None) };
        let after = match (how, target) {
            _ if target == Some(source) => self.clone(), // two names of one file stay
            (RenameHow::Exchange, Some(target)) => {
                let mut after = self.clone();
                after.places.extend([(from, target), (to, source)]);
                after
            }
            _ => self.clone().unlink(to).link(to, source).unlink(from),
        };
        (vec![Told::Done], Some(after))
    }
}

impl Names {
    fn range(&self, dir: usize) -> std::ops::Range<Place> {
        let start = self.dirs[..dir].iter().sum();
        start..start + self.dirs[dir]
    }

    fn change(tree: &Tree, call: &NamesCall) -> (Vec<Told>, Option<Tree>) {
        let fails = |told| (vec![told], None);
        let done = |tree| (vec![Told::Done], Some(tree));
        match call {
            NamesCall::Create { place, id, mode, .. } => {
                if tree.places.contains_key(place) || tree.files.contains_key(id) {
                    return fails(Told::Taken);
                }
                let mut tree = tree.clone();
                tree.files.insert(*id, Seen { links: 0, mode: *mode });
                (vec![Told::Done, Told::Absent], Some(tree.link(*place, *id)))
            }
            NamesCall::Unlink { place, .. } if tree.places.contains_key(place) => {
                done(tree.clone().unlink(*place))
            }
            NamesCall::Unlink { .. } => fails(Told::Absent),
            NamesCall::Rename { from, to, how, .. } => tree.rename(*from, *to, *how),
            NamesCall::Link { id, place, .. } => {
                match (tree.is_named(*id), tree.places.contains_key(place)) {
                    (true, false) => done(tree.clone().link(*place, *id)),
                    (true, true) => fails(Told::Taken),
                    (false, true) => (vec![Told::Absent, Told::Taken], None),
                    (false, false) => fails(Told::Absent),
                }
            }
            NamesCall::Chmod { id, mode, .. } => {
                let mut after = tree.clone();
                let Some(file) = after.files.get_mut(id) else { return fails(Told::Absent) };
                file.mode = *mode;
                let open = if tree.is_named(*id) { vec![] } else { vec![Told::Absent] };
                ([vec![Told::Done], open].concat(), Some(after))
            }
            _ => unreachable!("reads change nothing"),
        }
    }

    /// Whether a call that was answered like this has its effect. A file is made and then gone
    /// where its create is answered with ENOENT.
    fn acts(call: &NamesCall, told: Told) -> bool {
        told == Told::Done || (told == Told::Absent && matches!(call, NamesCall::Create { .. }))
    }

    fn told(call: &NamesCall) -> Option<Told> {
        match call {
            NamesCall::Create { told, .. }
            | NamesCall::Unlink { told, .. }
            | NamesCall::Rename { told, .. }
            | NamesCall::Link { told, .. }
            | NamesCall::Chmod { told, .. } => Some(*told),
            _ => None,
        }
    }

    fn sees(&self, tree: &Tree, call: &NamesCall) -> bool {
        match call {
            NamesCall::Lookup { place, found } => {
                tree.places.get(place).map(|id| (*id, tree.files[id])) == *found
            }
            NamesCall::Find { place, found } => tree.places.get(place) == found.as_ref(),
            NamesCall::Stat { id, found: Some(found) } => tree.files.get(id) == Some(found),
            NamesCall::Stat { id, found: None } => !tree.is_named(*id),
            NamesCall::Taken { dir, found } => {
                let range = self.range(*dir);
                let bit = |place: &Place| 1 << (place - range.start);
                tree.places.range(range.clone()).map(|(place, _)| bit(place)).sum::<u64>() == *found
            }
            NamesCall::List { dir, found } => {
                let range = self.range(*dir);
                tree.places.range(range).eq(found)
            }
            _ => unreachable!("the caller has asked whether it is a read"),
        }
    }
}

impl Spec for Names {
    type State = Tree;
    type Call = NamesCall;

    fn start(&self) -> Tree {
        Tree::default()
    }

    fn step(&self, tree: &Tree, call: &NamesCall) -> Option<Tree> {
        let Some(wanted) = Names::told(call) else {
            return self.sees(tree, call).then(|| tree.clone());
        };
        let (told, after) = Names::change(tree, call);
        if !told.contains(&wanted) {
            return None;
        }
        if Names::acts(call, wanted) { after } else { Some(tree.clone()) }
    }

    fn is_read(&self, call: &NamesCall) -> bool {
        Names::told(call).is_none_or(|told| !Names::acts(call, told))
    }
}
