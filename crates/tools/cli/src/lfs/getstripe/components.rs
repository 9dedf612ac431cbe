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

/// `init`, or 0.
pub(super) fn flags_of(entry: &LovEntry) -> String {
    if entry.is_instantiated() { "init".into() } else { "0".into() }
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
    let all: Vec<String> = parts.entries.iter().map(|entry| part(args, shown, entry)).collect();
    out.push_str(&all.join("\n"));
    out.push('\n');
    out
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
    let own = shown.with(entry.lov.clone());
    if shown.is_dir && !args.yaml {
        out.push_str(&on_one_line(&fields::values(&own, args.raw)));
    } else {
        out.push_str(&striping(args, &own, &entry.lov));
    }
    out
}

/// A component of a directory's default.
fn on_one_line(values: &Values) -> String {
    let Values { count, size, pattern, offset, pool, .. } = values;
    let tail =
        if pool.is_empty() { String::new() } else { format!("       pool:          {pool}") };
    format!(
        "      stripe_count:  {count}       stripe_size:   {size}       pattern:       {pattern}       stripe_offset: {offset}{tail}\n"
    )
}

fn striping(args: &Args, own: &Shown, lov: &Lov) -> String {
    let Values { count, size, pattern, generation, offset, pool } = fields::values(own, args.raw);
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
    line("lmm_stripe_count:", &count);
    line("lmm_stripe_size:", &size);
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
        let own = shown.with(entry.lov.clone());
        let Values { count, size, pattern, offset, pool, .. } = fields::values(&own, args.raw);
        let object = |stripe: &layout::lov::Stripe| json!({"l_ost_idx": stripe.ost, "l_fid": stripe.object.to_string()});
        json!({
            "lcme_id": entry.id,
            "lcme_flags": flags_of(entry),
            "lcme_extent.e_start": entry.start,
            "lcme_extent.e_end": end_of(entry.end),
            "lmm_stripe_count": count,
            "lmm_stripe_size": size,
            "lmm_pattern": pattern,
            "lmm_stripe_offset": offset,
            "lmm_pool": pool,
            "lmm_objects": entry.lov.stripes.iter().map(object).collect::<Vec<_>>(),
        })
    };
    parts.entries.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use layout::composite::{CompositeTemplate, TemplateComponent, Wanted};
    use layout::lov::LovAny;
    use layout::{Layout, Template};
    use types::Fid;

    use super::*;
    use crate::lfs::getstripe::render;
    use crate::testing::parse;

    fn check(options: &str, shown: Shown) -> String {
        let words = format!("getstripe {options} x");
        render::all(&parse::<Args>(words.split_whitespace()).expect("options"), &[shown])
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
        Shown { path: "/mnt/testfs/g".into(), is_dir: false, layout, fid: None }
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
        assert_eq!(check("-E", file(true)), "lcme_extent.e_end: 65536\nlcme_extent.e_end: EOF\n");
        assert_eq!(check("-I", dir()), "lcme_id:           N/A\nlcme_id:           N/A\n");
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
