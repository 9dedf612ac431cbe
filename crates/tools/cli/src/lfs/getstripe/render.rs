//! Layouts as text, as Lustre's `lfs getstripe` prints them, because scripts parse it.

use std::fmt::Write as _;

use layout::lov::{Lov, Stripe};
use serde_json::{Value, json};

use super::Args;
use super::components;
use super::fields::{self, Values};
use super::shown::Shown;

/// Everything that was asked for.
pub(super) fn all(args: &Args, shown: &[Shown]) -> String {
    let shown: Vec<&Shown> = shown.iter().filter(|shown| args.fields.show_some(shown)).collect();
    if args.json {
        let layouts: Vec<Value> = shown.iter().map(|shown| as_json(args, shown)).collect();
        return format!("{:#}\n", Value::Array(layouts));
    }
    let is_document = args.yaml && shown.len() > 1;
    shown
        .iter()
        .map(|shown| if is_document { document(args, shown) } else { one(args, shown) })
        .collect()
}

/// One of several layouts in YAML: a document that says whose it is.
fn document(args: &Args, shown: &Shown) -> String {
    let path = Value::from(path_of(shown)); // a string of JSON is one of YAML
    format!("---\nlmm_path:          {path}\n{}", one(args, shown))
}

fn one(args: &Args, shown: &Shown) -> String {
    let asked = fields::asked(&args.fields, shown, args.raw);
    match (args.fields.number(), shown.components()) {
        (0, Some(parts)) => {
            let head = if args.yaml { String::new() } else { format!("{}\n", path_of(shown)) };
            head + &components::text(args, shown, parts)
        }
        (0, None) if args.yaml => yaml(args, shown),
        (0, None) if shown.is_dir => directory(args, shown),
        (0, None) => file(args, shown),
        (1, _) => asked.iter().map(|(_, value)| format!("{value}\n")).collect(),
        (_, parts) => {
            let line = if parts.is_some() { components::line } else { line };
            asked.iter().map(|(name, value)| line(name, value)).collect()
        }
    }
}

/// A field of a plain layout with its name.
fn line(name: &str, value: &str) -> String {
    format!("{name:<18} {value}\n")
}

fn path_of(shown: &Shown) -> String {
    shown.path.display().to_string()
}

/// `stripe_count:  1 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1`
fn directory(args: &Args, shown: &Shown) -> String {
    let path = path_of(shown);
    let Values { count, size, pattern, offset, pool, .. } = fields::values(shown, args.raw);
    let tail = if pool.is_empty() { String::new() } else { format!(" pool:          {pool}") };
    format!(
        "{path}\nstripe_count:  {count} stripe_size:   {size} pattern:       {pattern} stripe_offset: {offset}{tail}\n\n"
    )
}

fn file(args: &Args, shown: &Shown) -> String {
    let path = path_of(shown);
    let Some(lov) = shown.lov() else { return format!("{path} has no stripe info\n") };
    let mut out = format!("{path}\n");
    if !args.quiet {
        out.push_str(&header(args, shown, lov));
    }
    out.push_str("\tobdidx\t\t objid\t\t objid\t\t group\n");
    for Stripe { object, ost } in &lov.stripes {
        let (oid, seq) = (object.oid, object.seq);
        let _ = writeln!(
            out,
            "\t{:>6}\t{oid:>14}\t{:>13}\t{:>14}",
            ost,
            alternate(u64::from(oid)),
            alternate(seq)
        );
    }
    out.push('\n');
    out
}

/// As C's `%#llx`: zero has no prefix.
fn alternate(number: u64) -> String {
    if number == 0 { "0".into() } else { format!("{number:#x}") }
}

/// The `name: value` lines above the objects; in YAML too.
fn header(args: &Args, shown: &Shown, lov: &Lov) -> String {
    let Values { count, size, pattern, generation, offset, pool } = fields::values(shown, args.raw);
    let mut out = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(out, "{name:<18} {value}");
    };
    if args.verbose {
        line("lmm_magic:", &format!("0x{:08X}", lov.magic));
        line("lmm_seq:", &format!("{:#x}", lov.seq));
        line("lmm_object_id:", &format!("{:#x}", lov.oid));
    }
    line("lmm_stripe_count:", &count);
    line("lmm_stripe_size:", &size);
    line("lmm_pattern:", &pattern);
    line("lmm_layout_gen:", &generation);
    line("lmm_stripe_offset:", &offset);
    if !pool.is_empty() {
        line("lmm_pool:", &pool);
    }
    out
}

fn yaml(args: &Args, shown: &Shown) -> String {
    let path = path_of(shown);
    let Some(lov) = shown.lov() else {
        return if shown.is_dir {
            directory_yaml(args, shown)
        } else {
            format!("# {path} has no stripe info\nlmm_objects: []\n")
        };
    };
    if shown.is_dir {
        return directory_yaml(args, shown);
    }
    let mut out = header(args, shown, lov);
    out.push_str("lmm_objects:\n");
    for Stripe { object, ost } in &lov.stripes {
        let fid = object.to_string();
        let _ = writeln!(
            out,
            "      - l_ost_idx: {}\n        l_fid:     {}",
            ost,
            fid.trim_matches(['[', ']'])
        );
    }
    out.push('\n');
    out
}

fn directory_yaml(args: &Args, shown: &Shown) -> String {
    let Values { count, size, pattern, offset, pool, .. } = fields::values(shown, args.raw);
    let tail = if pool.is_empty() { String::new() } else { format!("lmm_pool:          {pool}\n") };
    format!(
        "lmm_stripe_count:  {count}\nlmm_stripe_size:   {size}\nlmm_pattern:       {pattern}\nlmm_stripe_offset: {offset}\n{tail}\n"
    )
}

fn as_json(args: &Args, shown: &Shown) -> Value {
    let Values { count, size, pattern, generation, offset, pool } = fields::values(shown, args.raw);
    let object =
        |stripe: &Stripe| json!({"l_ost_idx": stripe.ost, "l_fid": stripe.object.to_string()});
    let objects: Vec<Value> =
        shown.lov().into_iter().flat_map(|lov| &lov.stripes).map(object).collect();
    json!({
        "path": path_of(shown),
        "is_directory": shown.is_dir,
        "has_layout": shown.layout.is_some(),
        "lmm_fid": shown.fid.map(|fid| fid.to_string()),
        "lmm_stripe_count": count,
        "lmm_stripe_size": size,
        "lmm_pattern": pattern,
        "lmm_layout_gen": generation,
        "lmm_stripe_offset": offset,
        "lmm_pool": pool,
        "lmm_objects": objects,
        "components": shown.components().map(|parts| components::json(args, shown, parts)),
    })
}

#[cfg(test)]
mod tests {
    use layout::lov::LovAny;
    use types::Fid;

    use super::*;
    use crate::testing::parse;

    fn check(options: &str, shown: Shown) -> String {
        let words = format!("getstripe {options} x");
        all(&parse::<Args>(words.split_whitespace()).expect("options"), &[shown])
    }

    fn lov(pool: &str) -> Lov {
        let pool = format!("{pool:\0<16}");
        Lov {
            magic: 0x0BD3_0BD0,
            pattern: 1,
            oid: 0x1f,
            seq: 0x2_0000_0402,
            stripe_size: 1 << 20,
            stripe_count: 2,
            generation: 0,
            pool: *pool.as_bytes().first_chunk().expect("a padded name"),
            stripes: vec![
                Stripe { ost: 1, object: Fid { seq: 0, oid: 9, ver: 0 } },
                Stripe { ost: 0, object: Fid { seq: 0, oid: 8, ver: 1 } },
            ],
        }
    }

    fn file(pool: &str) -> Shown {
        Shown {
            path: "/mnt/testfs/f".into(),
            is_dir: false,
            layout: Some(LovAny::Plain(lov(pool))),
            fallback: Default::default(),
            fid: None,
        }
    }

    fn dir(lov: Option<Lov>) -> Shown {
        let layout = lov.map(LovAny::Plain);
        let fallback = Default::default();
        Shown { path: "d".into(), is_dir: true, layout, fallback, fid: None }
    }

    #[test]
    fn a_plain_file_looks_as_scripts_expect() {
        let expected = "/mnt/testfs/f
lmm_stripe_count:  2
lmm_stripe_size:   1048576
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: 1
lmm_pool:          disk
\tobdidx\t\t objid\t\t objid\t\t group
\t     1\t             9\t          0x9\t             0
\t     0\t             8\t          0x8\t             0

";
        assert_eq!(check("", file("disk")), expected);
        assert!(!check("", file("")).contains("lmm_pool"));
    }

    #[test]
    fn several_layouts_in_yaml_are_a_document_each() {
        let args: Args = parse(["getstripe", "-y", "x"]).expect("options");
        let bare = Shown { path: "no \"layout\"".into(), layout: None, ..file("") };
        let text = all(&args, &[file(""), bare]);
        let documents: Vec<&str> = text.split("---\n").skip(1).collect();
        assert_eq!(documents.len(), 2, "{text}");
        assert!(
            documents[0]
                .starts_with("lmm_path:          \"/mnt/testfs/f\"\nlmm_stripe_count:  2\n")
        );
        assert!(documents[1].starts_with("lmm_path:          \"no \\\"layout\\\"\"\n"), "{text}");
        for document in documents {
            let keys: Vec<_> = document
                .lines()
                .filter(|line| line.starts_with("lmm_"))
                .filter_map(|line| line.split(':').next())
                .collect();
            let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
            assert_eq!(keys.len(), distinct.len(), "{document}");
        }
        assert!(!check("-y", file("")).contains("---"), "one alone looks as Lustre's");
    }

    #[test]
    fn one_field_is_printed_alone_and_several_with_their_names() {
        assert_eq!(check("-c", file("")), "2\n");
        assert_eq!(check("-i", file("")), "1\n");
        assert_eq!(
            check("--stripe-size -c", file("")),
            "lmm_stripe_count:  2\nlmm_stripe_size:   1048576\n"
        );
        assert_eq!(check("-L", file("")), "raid0\n");
        assert_eq!(check("--component-count", file("")), "0\n");
        assert_eq!(check("-E", file("")), "EOF\n");
        assert_eq!(check("--component-flags=init -c", file("")), "2\n");
        assert_eq!(check("--component-flags=^init", file("")), "");
    }

    #[test]
    fn a_directory_shows_its_default_on_one_line() {
        let line =
            "d\nstripe_count:  1 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1\n\n";
        assert_eq!(check("-d", dir(None)), line);
        let set = Lov { stripe_count: 4, stripe_size: 2 << 20, generation: 3, ..lov("") };
        let set = Shown { fallback: (&set).into(), ..dir(None) };
        let line =
            "d\nstripe_count:  4 stripe_size:   2097152 pattern:       raid0 stripe_offset: 3\n\n";
        assert_eq!(check("-D", set), line, "the file system has another default");
        let two =
            |pool| Lov { generation: 0xffff, stripe_size: 0, stripes: Vec::new(), ..lov(pool) };
        for (pool, offset) in [("", "stripe_offset: 3\n"), ("disk", "stripe_offset: -1 pool:")] {
            let system = Lov { generation: 3, ..lov("") };
            let own = Shown { fallback: (&system).into(), ..dir(Some(two(pool))) };
            let shown = check("-d", own);
            assert!(shown.contains(offset), "{shown}");
        }
        let raw = "d\nstripe_count:  0 stripe_size:   0 pattern:       raid0 stripe_offset: -1\n\n";
        assert_eq!(check("-R", dir(None)), raw);
        let all = Lov {
            stripe_count: 0xffff,
            generation: 0xffff,
            stripe_size: 0,
            stripes: Vec::new(),
            ..lov("disk")
        };
        let shown = check("-d", dir(Some(all)));
        assert!(shown.contains("stripe_count:  -1 stripe_size:   1048576 "), "{shown}");
        assert!(shown.contains("stripe_offset: -1 pool:          disk\n"), "{shown}");
    }

    #[test]
    fn a_directory_without_a_count_shows_the_pattern_of_the_count_that_it_gets() {
        let wide = Lov { pattern: 0x201, stripe_count: 0xfffe, generation: 0xffff, ..lov("") };
        let sized = Lov {
            stripe_count: 0,
            stripe_size: 4 << 20,
            generation: 0xffff,
            stripes: Vec::new(),
            ..lov("")
        };
        let counted = Lov { stripe_count: 1, ..sized.clone() };
        let under = |own: Option<Lov>| Shown { fallback: (&wide).into(), ..dir(own) };
        for (own, expected) in [
            (None, "-2 raid0,overstriped"),
            (Some(sized.clone()), "-2 raid0,overstriped"),
            (Some(counted), "1 raid0"),
        ] {
            let [count, pattern] =
                ["-d -c", "-d -L"].map(|options| check(options, under(own.clone())));
            assert_eq!(format!("{} {}", count.trim(), pattern.trim()), expected);
        }
        assert_eq!(check("-R -L", under(Some(sized))).trim(), "raid0", "it says no more itself");
    }

    #[test]
    fn scripts_may_have_yaml_or_json() {
        let shown = check("-y", file(""));
        assert!(
            shown.contains("lmm_objects:\n      - l_ost_idx: 1\n        l_fid:     0x0:0x9:0x0\n"),
            "{shown}"
        );
        let value: Value = serde_json::from_str(&check("--json", file(""))).expect("JSON");
        assert_eq!(value[0]["lmm_objects"][1]["l_ost_idx"], 0);
    }

    #[test]
    fn a_file_without_layout_says_so() {
        assert_eq!(
            check("", Shown { layout: None, ..file("") }),
            "/mnt/testfs/f has no stripe info\n"
        );
    }
}
