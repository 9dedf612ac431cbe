//! `--yaml`: reads the output of `lfs getstripe -y` as a requested layout. It parses only this
//! subset of YAML: lines of `key: value`, some behind a dash.

use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use layout::{Asked, Template};

/// One component, or the whole file.
#[derive(Default)]
struct Part {
    end: Option<u64>,
    is_at_mdt: bool,
    template: Template,
    /// It is room for the one before it, which gets so much of it at a time.
    extension: Option<u64>,
}

/// Reads one layout.
pub(super) fn parse(text: &str) -> Result<Asked, String> {
    let mut parts: Vec<Part> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim().trim_start_matches("- ").trim();
        let Some((key, value)) = line.split_once(':').filter(|_| !line.starts_with('#')) else {
            continue;
        };
        let value = value.trim();
        if key == "lcme_id" || (parts.is_empty() && key.starts_with("lmm_")) {
            parts.push(Part::default());
        }
        if let Some(part) = parts.last_mut() {
            part.take(key, value).map_err(|why| format!("line {number}: {key}: {why}"))?;
        }
    }
    match &parts[..] {
        [] => Err("no layout is in this file; lfs getstripe -y writes one".to_owned()),
        [one] if one.end.is_none() => Ok(one.template.clone().into()),
        _ => {
            let mut components = Vec::new();
            for part in parts {
                part.add_to(&mut components)?;
            }
            Ok(Asked::Composite(CompositeTemplate { components }))
        }
    }
}

impl Part {
    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        let number = || value.parse::<i64>().map_err(|_| format!("'{value}' is not a number"));
        let small = || number().and_then(|n| i32::try_from(n).map_err(|error| error.to_string()));
        match key {
            "lcme_extent.e_end" if value == "EOF" => self.end = Some(END_OF_FILE),
            "lcme_extent.e_end" => {
                let end =
                    value.parse().map_err(|_| format!("'{value}' is neither bytes nor EOF"))?;
                self.end = Some(end);
            }
            "lmm_pattern" => {
                self.is_at_mdt = value == "mdt";
                self.template.overstriped = value.split(',').any(|one| one == "overstriped");
            }
            "lmm_stripe_count" => self.template.stripe_count = small()?,
            "lmm_stripe_size" => {
                let size = number()?;
                self.template.stripe_size =
                    u32::try_from(size).map_err(|_| format!("'{value}' is not a stripe size"))?;
            }
            "lmm_extension_size" => {
                let size = value.parse().map_err(|_| format!("'{value}' is not a number"))?;
                self.extension = Some(size);
            }
            "lmm_stripe_offset" => self.template.start = small()?,
            "lmm_pool" if value == "ignore" => self.template.pool = layout::pool::IGNORE,
            "lmm_pool" => {
                self.template.pool =
                    layout::pool::padded(value).map_err(|error| error.to_string())?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A component more; an extension is the rest of the one before it.
    fn add_to(self, components: &mut Vec<TemplateComponent>) -> Result<(), String> {
        let end = self.end.ok_or("a component has no lcme_extent.e_end")?;
        let wanted = match (self.extension, components.pop()) {
            (None, before) => {
                components.extend(before);
                if self.is_at_mdt { Wanted::Mdt } else { Wanted::Striped(self.template) }
            }
            (Some(step), Some(TemplateComponent { wanted: Wanted::Striped(template), .. })) => {
                Wanted::Extendable(template, step)
            }
            (Some(_), _) => return Err("an extension follows no component on OSTs".to_owned()),
        };
        components.push(TemplateComponent { end, wanted });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_getstripe_prints_is_read_back() {
        let text = "  lcm_layout_gen:    2
  lcm_mirror_count:  1
  lcm_entry_count:   2
  components:
  - lcme_id:             1
    lcme_flags:          init
    lcme_extent.e_start: 0
    lcme_extent.e_end:   65536
      lmm_stripe_count:  0
      lmm_pattern:       mdt
      lmm_stripe_offset: 0

  - lcme_id:             2
    lcme_extent.e_end:   EOF
      lmm_stripe_count:  2
      lmm_stripe_size:   1048576
      lmm_pattern:       raid0
      lmm_stripe_offset: -1
      lmm_pool:          disk
      lmm_objects:
      - l_ost_idx: 3
        l_fid:     0x100030000:0x2:0x0
";
        let disk = Template {
            stripe_size: 1 << 20,
            stripe_count: 2,
            pool: *b"disk\0\0\0\0\0\0\0\0\0\0\0\0",
            ..Template::default()
        };
        let parts = [(64 << 10, Wanted::Mdt), (END_OF_FILE, Wanted::Striped(disk.clone()))];
        let components = parts.map(|(end, wanted)| TemplateComponent { end, wanted });
        let want = CompositeTemplate { components: components.into() };
        assert_eq!(parse(text), Ok(Asked::Composite(want)));
        let plain = "lmm_stripe_count:  2\nlmm_stripe_size:   1048576\nlmm_pool: disk\n";
        assert_eq!(parse(plain), Ok(Asked::Plain(disk.clone())));
        let over = Template { stripe_count: -2, overstriped: true, ..Template::default() };
        let text = "lmm_stripe_count: -2\nlmm_pattern: raid0,overstriped\n";
        assert_eq!(parse(text), Ok(Asked::Plain(over)));
        let none = Template { pool: layout::pool::IGNORE, ..Template::default() };
        assert_eq!(parse("lmm_stripe_count: 0\nlmm_pool: ignore\n"), Ok(Asked::Plain(none)));
        let extended = "- lcme_id: 1
lcme_flags: init
lcme_extent.e_end: 67108864
lmm_stripe_count: 2
lmm_stripe_size: 1048576
lmm_pool: disk
- lcme_id: 2
lcme_flags: extension
lcme_extent.e_end: EOF
lmm_stripe_count: 0
lmm_extension_size: 67108864
";
        let wanted = Wanted::Extendable(disk.clone(), 64 << 20);
        let components = vec![TemplateComponent { end: END_OF_FILE, wanted }];
        assert_eq!(parse(extended), Ok(Asked::Composite(CompositeTemplate { components })));
        for (wrong, part) in [
            ("", "no layout"),
            (
                "- lcme_id: 1\nlcme_extent.e_end: EOF\nlmm_extension_size: 65536",
                "follows no component on OSTs",
            ),
            ("lmm_stripe_count: many", "line 1: lmm_stripe_count: 'many' is not a number"),
            ("- lcme_id: 1\n- lcme_id: 2", "no lcme_extent.e_end"),
            ("lmm_pool: a/b", "lmm_pool: a pool's name"),
        ] {
            let error = parse(wrong).expect_err(wrong);
            assert!(error.contains(part), "{wrong}: {error}");
        }
    }
}
