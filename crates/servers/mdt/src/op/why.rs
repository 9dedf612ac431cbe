//! The reasons for a file's placement: the text of `lustre.lov.why`, for people (`lfs getstripe
//! --why`).
//!
//! A file's layout names the defaults that it was made of, and not their values. So the text also
//! says in which fields a new file beside it would get another layout.

use std::fmt::Write as _;

use layout::composite::{END_OF_FILE, Wanted};
use layout::{Asked, FileLayout, Origin, POOL_BYTES, Template};
use placement::Rule;
use target::Decided;
use types::Fid;

use crate::op::Op;
use crate::record::Inode;
use crate::spaces::Spaces;

/// OSTs of a striping that are named.
const OSTS_SHOWN: usize = 64;

/// A line for each thing that has a say, in the order in which they are asked.
pub(super) fn text(op: &mut Op<'_, '_>, inode: &Inode) -> Decided<String> {
    let dir =
        if inode.attr.is_dir() { Some(inode.clone()) } else { op.tx.find_here(inode.parent)? };
    let own = dir.as_ref().map_or(Ok(None), |dir| op.tx.template(dir))?;
    let root = op.tx.root_template()?;
    let lod = op.state.lod.template();
    let system = Asked::from(lod.clone());
    let (own, root) = (own.unwrap_or_default(), root.unwrap_or_default());
    let wanted = own.or(&root).or(&system);
    let made = made_of(op, &wanted);
    let mut out = String::new();
    if let Some(layout) = op.tx.layout(inode)? {
        let fields = differing(&op.state.spaces, &Asked::from_layout(&layout), &made);
        line(&mut out, "this file", &compared(&fields));
        if let Some(origin) = made_by(layout.origin()) {
            line(&mut out, "it was made by", &origin);
        }
    }
    line(&mut out, "default of the directory", &shown(&own));
    line(&mut out, "default of the root", &shown(&root));
    line(&mut out, "default of the file system", &shown(&system));
    line(&mut out, "a new file gets", &shown(&wanted));
    line(&mut out, "that is decided by", &decided_by(&own, &root, &lod));
    if let Asked::Composite(template) = &wanted
        && template.is_at_mdt()
    {
        let limit = op.state.lod.dom_stripesize;
        line(&mut out, "this MDT takes of a file", &format!("{limit} bytes at most"));
    }
    for name in wanted.templates().map(pool_of).filter(|name| !name.is_empty()) {
        let state = op.state.spaces.pool_state(&name);
        line(&mut out, &format!("pool {name}"), &state);
    }
    would_get(op, &made, &mut out);
    for (ost, why) in op.state.spaces.left_out(&(op.osts)()) {
        line(&mut out, &format!("OST{ost:04x}"), why);
    }
    Ok(out)
}

/// A field of a template, and whether one says what it is.
type Field = (&'static str, fn(&Template) -> bool);

/// Which default decides what of a new file.
fn decided_by(own: &Asked, root: &Asked, system: &Template) -> String {
    let components = |name: &str, default: &Asked| match default.needs(system) {
        true => format!("{name}; the file system what it leaves open"),
        false => format!("{name}, all of it"),
    };
    let (own, root) = match (own, root) {
        (Asked::Composite(_), _) => return components("the directory", own),
        (Asked::Plain(own), Asked::Plain(root)) => (own, Some(root)),
        (Asked::Plain(own), Asked::Composite(_)) if *own == Template::default() => {
            return components("the root", root);
        }
        (Asked::Plain(own), Asked::Composite(_)) => (own, None),
    };
    let layers =
        [("the directory", Some(own)), ("the root", root), ("the file system", Some(system))];
    let fields: [Field; 3] = [
        ("stripe count", |one| one.stripe_count != 0 || !one.osts.is_empty()),
        ("stripe size", |one| one.stripe_size != 0),
        ("OSTs", |one| one.start >= 0 || !one.osts.is_empty() || one.pool != [0; POOL_BYTES]),
    ];
    let first =
        |says: fn(&Template) -> bool| layers.iter().position(|(_, layer)| layer.is_some_and(says));
    let words = layers.iter().enumerate().filter_map(|(at, (name, _))| {
        let decided = fields.iter().filter(|(_, says)| first(*says) == Some(at));
        let decided: Vec<&str> = decided.map(|(field, _)| *field).collect();
        (!decided.is_empty()).then(|| format!("{name} ({})", decided.join(", ")))
    });
    words.collect::<Vec<_>>().join(", ")
}

/// A line for each striping: the rule that chooses its OSTs, and which they would be now.
fn would_get(op: &Op<'_, '_>, made: &Asked, out: &mut String) {
    let now = u64::try_from(op.tx.now.sec).unwrap_or(0);
    let (state, osts) = (&op.state, (op.osts)());
    let told = state.spaces.foretell(made.templates(), &osts, &state.lod.policy, now);
    for chosen in told {
        let value = match chosen {
            Err(error) => format!("none: {error}"),
            Ok((rule, osts)) => {
                let rule = match rule {
                    Rule::List => "as listed",
                    Rule::Start => "from the requested one on",
                    Rule::Space => "by free space",
                    Rule::RoundRobin => "in turn",
                };
                format!("{rule}: {}", named(&osts))
            }
        };
        line(out, "OSTs, if made now", &value);
    }
}

/// Names of the first ones, and how many others there are: the text is the value of an attribute.
fn named(osts: &[u32]) -> String {
    let names = osts.iter().take(OSTS_SHOWN).map(|ost| format!("OST{ost:04x}"));
    let names = names.collect::<Vec<_>>().join(" ");
    match osts.len().saturating_sub(OSTS_SHOWN) {
        0 => names,
        others => format!("{names} and {others} more"),
    }
}

fn line(out: &mut String, name: &str, value: &str) {
    let _ = writeln!(out, "{name:<27} {value}");
}

/// What it says of a new file, with what it leaves open.
fn made_of(op: &Op<'_, '_>, wanted: &Asked) -> Asked {
    let Asked::Composite(template) = wanted else { return wanted.clone() };
    let made = template
        .clone()
        .with_mdt_limit(op.state.lod.dom_stripesize)
        .and_then(|template| template.resolve(&op.state.lod.template()));
    let made = made.map(|made| FileLayout::composite(Fid::ZERO, made));
    made.map_or_else(|_| wanted.clone(), |made| Asked::from_layout(&made))
}

/// The fields in which a layout cannot have been made of `wanted` now. There may have been fewer
/// OSTs, and a pool may fill up.
fn differing(spaces: &Spaces, has: &Asked, wanted: &Asked) -> Vec<&'static str> {
    let (has, wanted) = (kinds(has), kinds(wanted));
    if has.len() != wanted.len() {
        return vec!["components"];
    }
    let pairs = || has.iter().zip(&wanted);
    let is_other_pool =
        |has: &str, wanted: &str| has != wanted && has != spaces.spilled(wanted.to_owned());
    let fields = [
        ("ends of components", pairs().any(|(has, wanted)| has.0 != wanted.0)),
        ("stripe count", pairs().any(|(has, wanted)| wanted.1 >= 0 && has.1 > wanted.1)),
        ("stripe size", pairs().any(|(has, wanted)| has.2 != wanted.2)),
        ("pool", pairs().any(|(has, wanted)| is_other_pool(&has.3, &wanted.3))),
    ];
    fields.into_iter().filter(|(_, is_other)| *is_other).map(|(name, _)| name).collect()
}

/// None where it is not known, even if the file has grown into another pool since.
fn made_by(origin: Origin) -> Option<String> {
    let layers = [
        (Origin::ASKED, "a request"),
        (Origin::DIRECTORY, "the directory's default"),
        (Origin::ROOT, "the root's default"),
        (Origin::SYSTEM, "the file system's default"),
    ];
    let words = layers.iter().filter(|(layer, _)| origin.has(*layer)).map(|(_, word)| *word);
    let words: Vec<&str> = words.collect();
    if words.is_empty() {
        return None;
    }
    let mut out = words.join(", ");
    if origin.has(Origin::SPILLED) {
        out.push_str("; a pool was filling up, so objects are in another one");
    }
    Some(out)
}

fn compared(fields: &[&str]) -> String {
    if fields.is_empty() {
        return "as a new file beside it would have".to_owned();
    }
    let fields = fields.join(", ");
    format!(
        "other than a new file beside it would have ({fields}): it was asked for, a default has \
         changed, or OSTs were short of room"
    )
}

/// Pool of files, empty if none.
fn pool_of(template: &Template) -> String {
    template.clone().settled().pool_name()
}

/// End, stripe count, stripe size, pool.
type Kind = (u64, i32, u32, String);

/// The fields of a layout that a default decides.
fn kinds(asked: &Asked) -> Vec<Kind> {
    let kind = |end, one: &Template| (end, one.stripe_count, one.stripe_size, pool_of(one));
    match asked {
        Asked::Plain(template) => vec![kind(END_OF_FILE, template)],
        Asked::Composite(template) => template
            .components
            .iter()
            .map(|part| match &part.wanted {
                Wanted::Mdt => (part.end, 0, 0, String::new()),
                Wanted::Striped(template) | Wanted::Extendable(template, _) => {
                    kind(part.end, template)
                }
            })
            .collect(),
    }
}

fn shown(asked: &Asked) -> String {
    match asked {
        _ if asked.is_default() => "none".to_owned(),
        Asked::Plain(template) => striping(template),
        Asked::Composite(template) => {
            let part = |part: &layout::composite::TemplateComponent| {
                let end = match part.end {
                    END_OF_FILE => "the end".to_owned(),
                    end => end.to_string(),
                };
                match &part.wanted {
                    Wanted::Mdt => format!("to {end} at the MDT"),
                    Wanted::Striped(template) => format!("to {end} {}", striping(template)),
                    Wanted::Extendable(template, step) => {
                        format!("to {end} {} in steps of {step} bytes", striping(template))
                    }
                }
            };
            template.components.iter().map(part).collect::<Vec<_>>().join("; ")
        }
    }
}

/// What is left open is not told.
fn striping(template: &Template) -> String {
    let mut words = Vec::new();
    match template.stripe_count {
        0 => {}
        -1 => words.push("a stripe on every OST".to_owned()),
        1 => words.push("1 stripe".to_owned()),
        count if count < 0 => {
            words.push(format!("{} stripes on every OST", count.unsigned_abs()));
        }
        count if template.overstriped => {
            words.push(format!("{count} stripes, if need be several on an OST,"));
        }
        count => words.push(format!("{count} stripes")),
    }
    if template.stripe_size != 0 {
        words.push(format!("of {} bytes", template.stripe_size));
    }
    if template.start >= 0 {
        words.push(format!("from OST{:04x}", template.start));
    }
    if !template.osts.is_empty() {
        words.push(format!("on the OSTs {:?}", template.osts));
    }
    if template.ignores_pool() {
        words.push("in no pool".to_owned());
    } else if !template.pool_name().is_empty() {
        words.push(format!("in pool {}", template.pool_name()));
    }
    if words.is_empty() { "as the next default says".to_owned() } else { words.join(" ") }
}
