//! Layouts of several components as text, as Lustre's `lfs getstripe` prints them.

use std::fmt::Write as _;

use layout::composite::END_OF_FILE;
use layout::lov::Lov;
use layout::lov::composite::{LovComposite, LovEntry};
use serde_json::{Value, json};

use super::Args;
use super::fields::{self, Values};
use super::shown::Shown;

/// `EOF`, or bytes.
pub(super) fn end_of(end: u64) -> String {
    if end == END_OF_FILE { "EOF".into() } else { end.to_string() }
}

/// `init`, `extension`, or 0.
pub(super) fn flags_of(entry: &LovEntry) -> String {
    match entry.extension_size() {
        Some(_) => "extension".into(),
        None if entry.is_instantiated() => "init".into(),
        None => "0".into(),
    }
}

/// The striping of one component. An extension has no stripes: the place of their size holds the
/// step.
pub(super) fn own(shown: &Shown, entry: &LovEntry) -> Shown {
    let stripe_size = if entry.extension_size().is_some() { 0 } else { entry.lov.stripe_size };
    shown.with(Lov { stripe_size, ..entry.lov.clone() })
}

/// The field of a stripe's size, or of a step's in an extension, without the prefix.
fn size_of(entry: &LovEntry, size: u32) -> (&'static str, u64) {
    match entry.extension_size() {
        Some(step) => ("extension_size:", step),
        None => ("stripe_size:", size.into()),
    }
}

/// Stripes of a component; an extension has none.
fn count_of(entry: &LovEntry, count: i32) -> i32 {
    if entry.extension_size().is_some() { 0 } else { count }
}

/// Head, and each component with its striping; as YAML too.
pub(super) fn text(args: &Args, shown: &Shown, parts: &LovComposite) -> String {
    let mut out = String::new();
    let generation = parts.generation;
    let mut head = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(out, "  {name:<18} {value}");
    };
    if args.verbose {
        head("lcm_magic:", &format!("0x{:08X}", layout::lov::MAGIC_COMPOSITE));
        head("lcm_size:", &parts.encode().len());
        head("lcm_flags:", &parts.flags);
    }
    head("lcm_layout_gen:", &generation);
    head("lcm_mirror_count:", &(u32::from(parts.mirrors) + 1));
    head("lcm_entry_count:", &parts.entries.len());
    if args.yaml {
        out.push_str("  components:\n");
    }
    let entries = parts.entries.iter().filter(|entry| args.fields.show(entry, shown.is_dir));
    let all: Vec<String> = entries.map(|entry| part(args, shown, entry)).collect();
    out.push_str(&all.join("\n"));
    out.push('\n');
    out
}

/// A field with its name, in the column where the whole layout has it.
pub(super) fn line(name: &str, value: &str) -> String {
    match name.split('_').next() {
        Some("lcm") => format!("  {name:<18} {value}\n"),
        Some("lcme") => format!("    {name:<20} {value}\n"),
        _ => format!("      {name:<18} {value}\n"),
    }
}

fn part(args: &Args, shown: &Shown, entry: &LovEntry) -> String {
    let mut out = String::new();
    let id = if shown.is_dir { "N/A".to_owned() } else { entry.id.to_string() };
    let mirror = if shown.is_dir { "N/A" } else { "0" };
    // in YAML a component is an element of a list
    let first = if args.yaml { "  - " } else { "    " };
    let _ = writeln!(out, "{first}{:<20} {id}", "lcme_id:");
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "    {name:<20} {value}");
    };
    line("lcme_mirror_id:", mirror);
    line("lcme_flags:", &flags_of(entry));
    line("lcme_extent.e_start:", &entry.start.to_string());
    line("lcme_extent.e_end:", &end_of(entry.end));
    let values = fields::values(&own(shown, entry), args.raw);
    if shown.is_dir && !args.yaml {
        out.push_str(&on_one_line(entry, &values));
    } else {
        out.push_str(&striping(args, entry, values));
    }
    out
}

/// A component of a directory's default.
fn on_one_line(entry: &LovEntry, values: &Values) -> String {
    let Values { count, size, pattern, offset, pool, .. } = values;
    let tail =
        if pool.is_empty() { String::new() } else { format!("       pool:          {pool}") };
    let (name, size) = size_of(entry, *size);
    let count = count_of(entry, *count);
    format!(
        "      stripe_count:  {count}       {name:<14} {size}       pattern:       {pattern}       stripe_offset: {offset}{tail}\n"
    )
}

fn striping(args: &Args, entry: &LovEntry, values: Values) -> String {
    let lov = &entry.lov;
    let Values { count, size, pattern, generation, offset, pool } = values;
    let (size_name, size) = size_of(entry, size);
    let is_at_mdt = pattern == "mdt";
    let mut out = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(out, "      {name:<18} {value}");
    };
    if args.verbose {
        line("lmm_magic:", &format!("0x{:08X}", lov.magic));
        line("lmm_seq:", &format!("{:#x}", lov.seq));
        line("lmm_object_id:", &format!("{:#x}", lov.oid));
    }
    line("lmm_stripe_count:", &count_of(entry, count));
    line(&format!("lmm_{size_name}"), &size);
    line("lmm_pattern:", &pattern);
    // without objects its place holds the first OST
    line("lmm_layout_gen:", &if lov.stripes.is_empty() { 0 } else { generation });
    line("lmm_stripe_offset:", &if is_at_mdt { 0 } else { offset });
    if !pool.is_empty() {
        line("lmm_pool:", &pool);
    }
    if !lov.stripes.is_empty() {
        out.push_str("      lmm_objects:\n");
    }
    for (stripe, number) in lov.stripes.iter().zip(0..) {
        let fid = stripe.object.to_string();
        let ost = stripe.ost;
        let _ = if args.yaml {
            let fid = fid.trim_matches(['[', ']']);
            writeln!(out, "      - l_ost_idx: {ost}\n        l_fid:     {fid}")
        } else {
            writeln!(out, "      -{number:>4}: {{ l_ost_idx: {ost:>3}, l_fid: {fid} }}")
        };
    }
    out
}

/// The components as JSON.
pub(super) fn json(args: &Args, shown: &Shown, parts: &LovComposite) -> Value {
    let one = |entry: &LovEntry| {
        let own = own(shown, entry);
        let Values { count, size, pattern, offset, pool, .. } = fields::values(&own, args.raw);
        let (size_name, size) = size_of(entry, size);
        let size_name = format!("lmm_{}", size_name.trim_end_matches(':'));
        let object = |stripe: &layout::lov::Stripe| json!({"l_ost_idx": stripe.ost, "l_fid": stripe.object.to_string()});
        json!({
            "lcme_id": entry.id,
            "lcme_flags": flags_of(entry),
            "lcme_extent.e_start": entry.start,
            "lcme_extent.e_end": end_of(entry.end),
            "lmm_stripe_count": count_of(entry, count),
            size_name: size,
            "lmm_pattern": pattern,
            "lmm_stripe_offset": offset,
            "lmm_pool": pool,
            "lmm_objects": entry.lov.stripes.iter().map(object).collect::<Vec<_>>(),
        })
    };
    parts.entries.iter().filter(|entry| args.fields.show(entry, shown.is_dir)).map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use layout::composite::{CompositeTemplate, TemplateComponent, Wanted};
    use layout::lov::LovAny;
    use layout::{Layout, Template};
    use types::Fid;

    use super::*;
    use crate::lfs::getstripe::{render, spelled};
    use crate::testing::parse;

    fn check(options: &str, shown: Shown) -> String {
        let words: Vec<OsString> = options.split_whitespace().map(OsString::from).collect();
        let words = [vec!["getstripe".into()], spelled(&words), vec!["x".into()]].concat();
        render::all(&parse::<Args>(words).expect("options"), &[shown])
    }

    /// Bytes at the MDT, and a component in the pool `disk` behind them.
    fn wanted() -> CompositeTemplate {
        let disk = Template {
            stripe_size: 1 << 20,
            stripe_count: 1,
            pool: *b"disk\0\0\0\0\0\0\0\0\0\0\0\0",
            ..Template::default()
        };
        let parts = [(64 << 10, Wanted::Mdt), (END_OF_FILE, Wanted::Striped(disk))];
        let components = parts.map(|(end, wanted)| TemplateComponent { end, wanted });
        CompositeTemplate { components: components.into() }
    }

    fn file(instantiates: bool) -> Shown {
        let mut made = wanted().resolve(&Template::default()).expect("a layout");
        made.generation = 2;
        if instantiates {
            let objects =
                Layout { osts: vec![3], ..Layout::plain(Fid::new(0x1_0003_0000, 2), 1 << 20, 1) };
            made.instantiate(1, objects).expect("it had none");
        }
        let layout = LovComposite::of_file(&made, Fid::new(0x2_0000_0401, 7));
        let layout = Some(LovAny::Composite(layout));
        let fallback = Default::default();
        Shown { path: "/mnt/testfs/g".into(), is_dir: false, layout, fallback, fid: None }
    }

    fn dir() -> Shown {
        let layout = LovComposite::of_dir(&wanted()).expect("a default");
        Shown { is_dir: true, layout: Some(LovAny::Composite(layout)), ..file(false) }
    }

    #[test]
    fn a_file_of_two_components_looks_as_scripts_expect() {
        let expected = "/mnt/testfs/g
  lcm_layout_gen:    2
  lcm_mirror_count:  1
  lcm_entry_count:   2
    lcme_id:             1
    lcme_mirror_id:      0
    lcme_flags:          init
    lcme_extent.e_start: 0
    lcme_extent.e_end:   65536
      lmm_stripe_count:  0
      lmm_stripe_size:   65536
      lmm_pattern:       mdt
      lmm_layout_gen:    0
      lmm_stripe_offset: 0

    lcme_id:             2
    lcme_mirror_id:      0
    lcme_flags:          0
    lcme_extent.e_start: 65536
    lcme_extent.e_end:   EOF
      lmm_stripe_count:  1
      lmm_stripe_size:   1048576
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: -1
      lmm_pool:          disk

";
        assert_eq!(check("", file(false)), expected);
        let made = check("", file(true));
        let objects = "      lmm_objects:
      -   0: { l_ost_idx:   3, l_fid: [0x100030000:0x2:0x0] }
";
        assert!(made.contains(objects), "{made}");
        assert!(made.contains("lcm_layout_gen:    3\n"), "{made}");
    }

    #[test]
    fn a_default_of_components_has_no_ids() {
        let shown = check("-d", dir());
        assert!(shown.contains("    lcme_id:             N/A\n    lcme_mirror_id:      N/A\n"));
        let line = "      stripe_count:  1       stripe_size:   1048576       pattern:       raid0       stripe_offset: -1       pool:          disk\n";
        assert!(shown.contains(line), "{shown}");
    }

    #[test]
    fn a_field_is_that_of_the_last_component_with_objects_or_of_each() {
        assert_eq!(check("-c", file(false)), "0\n");
        assert_eq!(
            (check("-c", file(true)), check("-i", file(true))),
            ("1\n".into(), "3\n".into())
        );
        assert_eq!(check("--component-count", file(true)), "2\n");
        assert_eq!(check("-E", file(true)), "65536\nEOF\n");
        assert_eq!(check("-I", dir()), "N/A\nN/A\n");
    }

    #[test]
    fn a_value_chooses_components() {
        let dom = "    lcme_extent.e_end:   65536\n      lmm_pattern:       mdt\n";
        assert_eq!(check("-I1 -L -E", file(true)), dom);
        assert_eq!(check("-I2 --component-start", file(true)), "65536\n");
        assert_eq!(check("-I3 --component-start", file(true)), "");
        for (options, ids) in [
            ("-E64K", "1\n"),
            ("-E+64K", "2\n"),
            ("-E-1", "2\n"),
            ("--component-start=-1", "1\n"),
            ("--comp-start=64k", "2\n"),
            ("--component-flags=init,^stale", "1\n2\n"),
            ("--component-flags=^init", ""),
        ] {
            assert_eq!(check(&format!("{options} -I"), file(true)), ids, "{options}");
        }
        let whole = check("-I2", file(true));
        assert!(whole.contains("lcm_entry_count:   2\n    lcme_id:             2\n"), "{whole}");
        assert!(!whole.contains("mdt"), "{whole}");
        assert_eq!(check("-I1 -L", dir()), "", "a default has no ids");
        let value: Value = serde_json::from_str(&check("--json -I2", file(true))).expect("JSON");
        assert_eq!(value[0]["components"][0]["lcme_id"], 2);
    }

    /// `lfs setstripe -E 1G -z 64M -E -1 -z 256M` after the first write, the example of Lustre's
    /// manual.
    fn extended(is_dir: bool) -> Shown {
        let part = |(end, step)| {
            let stripe_count = 1;
            let template = Template { stripe_size: 1 << 20, stripe_count, ..Template::default() };
            TemplateComponent { end, wanted: Wanted::Extendable(template, step) }
        };
        let components = [(1 << 30, 64 << 20), (END_OF_FILE, 256 << 20)].map(part).into();
        let wanted = CompositeTemplate { components };
        let mut made = wanted.resolve(&Template::default()).expect("a layout");
        let objects = Layout::plain(Fid::new(0x1_0000_0000, 5), 1 << 20, 1);
        made.instantiate(0, objects).expect("it had none");
        let layout = match is_dir {
            true => LovComposite::of_dir(&wanted).expect("a default"),
            false => LovComposite::of_file(&made, Fid::new(0x2_0000_0401, 7)),
        };
        Shown { is_dir, layout: Some(LovAny::Composite(layout)), ..file(false) }
    }

    #[test]
    fn an_extension_shows_its_step() {
        let expected = "    lcme_id:             2
    lcme_mirror_id:      0
    lcme_flags:          extension
    lcme_extent.e_start: 67108864
    lcme_extent.e_end:   1073741824
      lmm_stripe_count:  0
      lmm_extension_size: 67108864
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: -1

    lcme_id:             3
    lcme_mirror_id:      0
    lcme_flags:          0
    lcme_extent.e_start: 1073741824
    lcme_extent.e_end:   1073741824
      lmm_stripe_count:  1
      lmm_stripe_size:   1048576
";
        let shown = check("", extended(false));
        assert!(shown.contains(expected), "{shown}");
        let default = check("-d", extended(true));
        let line =
            "      stripe_count:  0       extension_size: 67108864       pattern:       raid0";
        assert!(default.contains(line), "{default}");
        assert_eq!(check("-z", extended(false)), "67108864\n");
        assert_eq!(check("-z", file(false)), "0\n");
        let flags = check("--component-flags", extended(false));
        assert_eq!(flags, "init\nextension\n0\nextension\n");
        let value: Value = serde_json::from_str(&check("--json", extended(false))).expect("JSON");
        assert_eq!(value[0]["components"][3]["lmm_extension_size"], 256 << 20);
    }

    #[test]
    fn scripts_may_have_yaml_or_json_of_components() {
        let shown = check("-y", file(true));
        assert!(shown.contains("  components:\n  - lcme_id:             1\n"), "{shown}");
        assert!(shown.contains("      - l_ost_idx: 3\n        l_fid:     0x100030000:0x2:0x0\n"));
        let value: Value = serde_json::from_str(&check("--json", file(true))).expect("JSON");
        assert_eq!(value[0]["components"][1]["lmm_objects"][0]["l_ost_idx"], 3);
    }
}
