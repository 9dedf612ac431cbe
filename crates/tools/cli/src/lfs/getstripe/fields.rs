//! Single fields of a layout. For a plain layout the component fields have the values of one
//! component that covers everything.

use layout::lov::Lov;
use layout::lov::composite::{LovComposite, LovEntry};

use super::components;
use super::shown::Shown;

/// Which fields were asked for.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Fields {
    /// Number of stripes.
    #[arg(short = 'c', long = "stripe-count", visible_alias = "count")]
    pub(super) count: bool,
    /// Bytes of a stripe.
    #[arg(short = 'S', long = "stripe-size", visible_alias = "size")]
    pub(super) size: bool,
    /// OST of the first stripe.
    #[arg(short = 'i', long = "stripe-index", visible_alias = "index")]
    pub(super) index: bool,
    /// Pool.
    #[arg(short = 'p', long)]
    pub(super) pool: bool,
    /// Pattern: raid0, mdt.
    #[arg(short = 'L', long = "layout")]
    pub(super) pattern: bool,
    /// Generation of the layout.
    #[arg(short = 'g', long = "generation")]
    pub(super) generation: bool,
    /// FID of the file.
    #[arg(short = 'F', long = "fid")]
    pub(super) fid: bool,
    /// Index of the MDT.
    #[arg(short = 'm', long = "mdt-index")]
    pub(super) mdt: bool,
    /// Number of mirrors.
    #[arg(short = 'N', long = "mirror-count")]
    pub(super) mirrors: bool,
    /// Component id.
    #[arg(short = 'I', long = "component-id", visible_alias = "comp-id")]
    pub(super) component_id: bool,
    /// End of the component.
    #[arg(short = 'E', long = "component-end", visible_alias = "comp-end")]
    pub(super) component_end: bool,
    /// Bytes by which a component grows at a time; of the first one that does.
    #[arg(short = 'z', long = "extension-size", visible_alias = "ext-size")]
    pub(super) extension_size: bool,
    /// Number of components; 0 for a plain layout.
    #[arg(long = "component-count", visible_alias = "comp-count")]
    pub(super) component_count: bool,
    /// Start of the component.
    #[arg(long = "component-start", visible_alias = "comp-start")]
    pub(super) component_start: bool,
    /// Flags of the component.
    #[arg(long = "component-flags", visible_alias = "comp-flags")]
    pub(super) component_flags: bool,
}

/// What a directory's default gets where it leaves something open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fallback {
    count: i32,
    size: u32,
    offset: i32,
    overstriped: bool,
}

impl Default for Fallback {
    /// Of a file system on which nothing else was set.
    fn default() -> Fallback {
        let count = i32::from(layout::STRIPE_COUNT_DEFAULT);
        let size = layout::STRIPE_SIZE_DEFAULT;
        Fallback { count, size, offset: -1, overstriped: false }
    }
}

impl From<&Lov> for Fallback {
    fn from(lov: &Lov) -> Fallback {
        Fallback {
            count: lov.count(),
            size: lov.stripe_size,
            offset: ost_or_any(lov.generation),
            overstriped: lov.is_overstriped(),
        }
    }
}

/// As [`Lov::pattern_name`] has it.
const OVERSTRIPED: &str = "raid0,overstriped";

fn ost_or_any(index: u16) -> i32 {
    if index == u16::MAX { -1 } else { i32::from(index) }
}

/// Values of a layout as they are printed.
pub(super) struct Values {
    pub(super) count: i32,
    pub(super) size: u32,
    pub(super) pattern: String,
    pub(super) generation: u16,
    pub(super) offset: i32,
    pub(super) pool: String,
}

/// Of a file, or of a directory's default; `raw` leaves zeros where the file system's default
/// stands in.
pub(super) fn values(shown: &Shown, raw: bool) -> Values {
    let open = Fallback { count: 0, size: 0, offset: -1, overstriped: false };
    let fallback = if raw { open } else { shown.fallback };
    let Some(lov) = shown.lov() else {
        let Fallback { count, size, offset, overstriped } = fallback;
        let pattern = if overstriped { OVERSTRIPED } else { "raid0" }.to_owned();
        return Values { count, size, pattern, generation: 0, offset, pool: String::new() };
    };
    // the count and this belong together
    let overstriped_by_default =
        shown.is_dir && lov.is_raid0() && lov.count() == 0 && fallback.overstriped;
    let or_default = |count: i32| if count == 0 { fallback.count } else { count };
    Values {
        count: if shown.is_dir { or_default(lov.count()) } else { lov.count() },
        size: if shown.is_dir && lov.stripe_size == 0 { fallback.size } else { lov.stripe_size },
        pattern: if overstriped_by_default { OVERSTRIPED.into() } else { lov.pattern_name() },
        generation: if shown.is_dir { 0 } else { lov.generation },
        offset: if shown.is_dir {
            match ost_or_any(lov.generation) {
                -1 if names_no_place(lov) => fallback.offset,
                own => own,
            }
        } else {
            lov.stripes.first().map_or(-1, |stripe| stripe.ost.cast_signed())
        },
        pool: lov.pool_name(),
    }
}

/// Whether a directory's default leaves open which OSTs, so that the next default says it.
fn names_no_place(lov: &Lov) -> bool {
    lov.pool_name().is_empty() && lov.stripes.is_empty()
}

/// Names and values of the fields asked for, in the order in which a whole layout shows them. What
/// components have of their own is told of each, in their order.
pub(super) fn asked(fields: &Fields, shown: &Shown, raw: bool) -> Vec<(&'static str, String)> {
    let whole = [
        (
            fields.component_count,
            "lcm_entry_count:",
            shown.components().map_or(0, |parts| parts.entries.len()).to_string(),
        ),
        (fields.mirrors, "lcm_mirror_count:", "1".into()),
    ];
    let only = |asked: &[(bool, &'static str, String)]| {
        let asked = asked.iter().filter(|(asked, ..)| *asked);
        asked.map(|(_, name, value)| (*name, value.clone())).collect::<Vec<_>>()
    };
    let mut all = only(&whole);
    let of_components =
        [fields.component_id, fields.component_flags, fields.component_start, fields.component_end];
    match shown.components().filter(|_| of_components.contains(&true)) {
        None => {
            let first =
                |parts: &LovComposite| parts.entries.iter().find_map(LovEntry::extension_size);
            let step = shown.components().and_then(first).unwrap_or(0);
            let whole = ["0", "0", "0", "EOF"].map(str::to_owned);
            all.extend(only(&extent(fields, whole, step)));
            all.extend(only(&striping(fields, shown, raw)));
        }
        Some(parts) => {
            for entry in &parts.entries {
                let id = if shown.is_dir { "N/A".to_owned() } else { entry.id.to_string() };
                let (start, end) = (entry.start.to_string(), components::end_of(entry.end));
                let part = [id, components::flags_of(entry), start, end];
                all.extend(only(&extent(fields, part, entry.extension_size().unwrap_or(0))));
                all.extend(only(&striping(fields, &components::own(shown, entry), raw)));
            }
        }
    }
    all
}

type Field = (bool, &'static str, String);

fn extent(fields: &Fields, part: [String; 4], step: u64) -> [Field; 5] {
    let [id, flags, start, end] = part;
    [
        (fields.component_id, "lcme_id:", id),
        (fields.component_flags, "lcme_flags:", flags),
        (fields.component_start, "lcme_extent.e_start:", start),
        (fields.component_end, "lcme_extent.e_end:", end),
        (fields.extension_size, "lmm_extension_size:", step.to_string()),
    ]
}

fn striping(fields: &Fields, shown: &Shown, raw: bool) -> [Field; 8] {
    let values = values(shown, raw);
    [
        (fields.fid, "lmm_fid:", shown.fid.map_or_else(String::new, |fid| fid.to_string())),
        (fields.count, "lmm_stripe_count:", values.count.to_string()),
        (fields.size, "lmm_stripe_size:", values.size.to_string()),
        (fields.pattern, "lmm_pattern:", values.pattern),
        (fields.generation, "lmm_layout_gen:", values.generation.to_string()),
        (fields.index, "lmm_stripe_offset:", values.offset.to_string()),
        (fields.pool, "lmm_pool:", values.pool),
        (fields.mdt, "lmm_mdt_index:", shown.mdt().to_string()),
    ]
}
