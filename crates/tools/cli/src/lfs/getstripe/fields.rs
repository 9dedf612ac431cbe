//! Single fields of a layout. For a plain layout the component fields have the values of one
//! component that covers everything.

use layout::composite::END_OF_FILE;
use layout::lov::Lov;
use layout::lov::composite::{FLAG_INIT, LovComposite, LovEntry};

use super::components;
use super::filter::Flags;
use super::shown::Shown;
use crate::lfs::find::number::Bound;

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
    /// Component id; with ID only the component that has it.
    #[arg(
        short = 'I',
        long = "component-id",
        visible_alias = "comp-id",
        value_name = "ID",
        require_equals = true,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub(super) component_id: Option<Option<u32>>,
    /// End of the component; with N only the components that end there, behind or before it.
    #[arg(
        short = 'E',
        long = "component-end",
        visible_alias = "comp-end",
        value_name = "[+-]N[kMG]",
        require_equals = true,
        value_parser = Bound::end
    )]
    pub(super) component_end: Option<Option<Bound>>,
    /// Bytes by which a component grows at a time; of the first one that does.
    #[arg(short = 'z', long = "extension-size", visible_alias = "ext-size")]
    pub(super) extension_size: bool,
    /// Number of components; 0 for a plain layout.
    #[arg(long = "component-count", visible_alias = "comp-count")]
    pub(super) component_count: bool,
    /// Start of the component; with N only the components that start there, behind or before it.
    #[arg(
        long = "component-start",
        visible_alias = "comp-start",
        value_name = "[+-]N[kMG]",
        require_equals = true,
        value_parser = Bound::bytes
    )]
    pub(super) component_start: Option<Option<Bound>>,
    /// Flags of the component; with FLAGS only the components that have them: init,^extension.
    #[arg(
        long = "component-flags",
        visible_alias = "comp-flags",
        value_name = "FLAGS",
        require_equals = true,
        value_parser = Flags::parse
    )]
    pub(super) component_flags: Option<Option<Flags>>,
}

impl Fields {
    /// How many fields were asked for.
    pub(super) fn number(&self) -> usize {
        let Fields { count, size, index, pool, pattern, generation, fid, mdt, mirrors, .. } = self;
        let Fields { extension_size, component_count, .. } = self;
        let [id, flags, start, end] = self.of_components();
        let whole = [count, size, index, pool, pattern, generation, fid, mdt, mirrors];
        let whole = whole.into_iter().chain([extension_size, component_count]);
        whole.chain([&id, &flags, &start, &end]).filter(|asked| **asked).count()
    }

    /// Whether a component is shown. Those of a directory's default have no ids.
    pub(super) fn show(&self, entry: &LovEntry, is_dir: bool) -> bool {
        self.fit((!is_dir).then_some(entry.id), entry.flags, entry.start, entry.end)
    }

    /// Whether anything of a path is shown: of several components at least their head. A plain
    /// layout is one component without an id.
    pub(super) fn show_some(&self, shown: &Shown) -> bool {
        let flags = if shown.is_dir { 0 } else { FLAG_INIT };
        let is_plain = shown.layout.is_some() && shown.components().is_none();
        !is_plain || self.fit(None, flags, 0, END_OF_FILE)
    }

    fn fit(&self, id: Option<u32>, flags: u32, start: u64, end: u64) -> bool {
        self.component_id.flatten().is_none_or(|wanted| id == Some(wanted))
            && self.component_flags.flatten().is_none_or(|wanted| wanted.fit(flags))
            && self.component_start.flatten().is_none_or(|bound| bound.holds_up(start))
            && self.component_end.flatten().is_none_or(|bound| bound.holds_up(end))
    }

    /// Of id, flags, start and end of components those that were asked for.
    fn of_components(&self) -> [bool; 4] {
        [
            is_field(self.component_id),
            is_field(self.component_flags),
            is_field(self.component_start),
            is_field(self.component_end),
        ]
    }

    /// Whether values of each component were asked for, or of some.
    fn is_of_components(&self) -> bool {
        self.component_id.is_some()
            || self.component_flags.is_some()
            || self.component_start.is_some()
            || self.component_end.is_some()
    }
}

/// With a value the option chooses components, and is no field.
fn is_field<T>(option: Option<Option<T>>) -> bool {
    matches!(option, Some(None))
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
    match shown.components().filter(|_| fields.is_of_components()) {
        None => {
            let first =
                |parts: &LovComposite| parts.entries.iter().find_map(LovEntry::extension_size);
            let step = shown.components().and_then(first).unwrap_or(0);
            let flags = if shown.is_dir || shown.layout.is_none() { "0" } else { "init" };
            let whole = ["0", flags, "0", "EOF"].map(str::to_owned);
            all.extend(only(&extent(fields, whole, step)));
            all.extend(only(&striping(fields, shown, raw)));
        }
        Some(parts) => {
            for entry in parts.entries.iter().filter(|entry| fields.show(entry, shown.is_dir)) {
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
    let [wants_id, wants_flags, wants_start, wants_end] = fields.of_components();
    [
        (wants_id, "lcme_id:", id),
        (wants_flags, "lcme_flags:", flags),
        (wants_start, "lcme_extent.e_start:", start),
        (wants_end, "lcme_extent.e_end:", end),
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
