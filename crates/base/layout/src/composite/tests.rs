//! Tests of composite layouts: examples, refusals, Lustre's bytes, and a slower search.

use proptest::prelude::*;
use types::{Errno, Extent, Fid};

use super::*;
use crate::{LayoutError, POOL_BYTES, STRIPE_SIZE_UNIT, Template, lov};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const FILE: Fid = Fid { seq: 0x2_0000_0402, oid: 7, ver: 0 };

fn striped(stripe_size: u64, stripe_count: i32) -> Wanted {
    let stripe_size = stripe_size as u32;
    Wanted::Striped(Template { stripe_size, stripe_count, ..Template::default() })
}

fn template(components: &[(u64, Wanted)]) -> CompositeTemplate {
    let component =
        |(end, wanted): &(u64, Wanted)| TemplateComponent { end: *end, wanted: wanted.clone() };
    CompositeTemplate { components: components.iter().map(component).collect() }
}

fn made(components: &[(u64, Wanted)]) -> Result<Composite, ComponentError> {
    template(components).resolve(&Template::default())
}

/// Objects as the component at `index` asks for them; a default count is one.
fn objects_for(composite: &Composite, index: usize) -> Layout {
    let component = &composite.components[index];
    let (Place::Wanted(wanted) | Place::Extendable(wanted, _)) = &component.place else {
        panic!("it has its place, or gets none")
    };
    let count = u16::try_from(wanted.stripe_count.max(1)).expect("a count");
    Layout::plain(Fid::new(0x2_0001_0400, component.id), wanted.stripe_size, count)
}

/// A place for the component at `index`: objects, or all of an extension for those before it.
fn give(composite: &mut Composite, index: usize) -> Result<(), ComponentError> {
    let component = &composite.components[index];
    if let Place::Extension(_) = component.place {
        let to = component.extent.end();
        return composite.stretch(index, to);
    }
    let objects = objects_for(composite, index);
    composite.instantiate(index, objects)
}

pub(crate) fn instantiate(composite: &mut Composite, behind: u64) {
    loop {
        let Some(index) = composite.missing(behind).next() else { return };
        give(composite, index).expect("objects as wanted");
    }
}

fn at(composite: &Composite, offset: u64) -> Part {
    let extent = Extent::new(offset, offset + 1).expect("a byte");
    composite.parts(extent).next().expect("a part")
}

/// [0, 4M) of one stripe, [4M, 64M) of four, the rest of eight.
fn progressive() -> Composite {
    let ends = [(4 * MIB, 1), (64 * MIB, 4), (END_OF_FILE, 8)];
    made(&ends.map(|(end, count)| (end, striped(MIB, count)))).expect("a layout")
}

#[test]
fn the_worked_examples_hold() {
    let mut file = progressive();
    assert_eq!(at(&file, 3 * MIB).at, At::Hole);
    instantiate(&mut file, END_OF_FILE);
    assert_eq!(file.generation, 3);
    let object = |offset| match at(&file, offset) {
        Part { component, at: At::Object(piece), .. } => {
            (component, piece.stripe, piece.object_offset)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(object(3 * MIB), (0, 0, 3 * MIB));
    assert_eq!(object(4 * MIB), (1, 0, MIB));
    assert_eq!(object(5 * MIB), (1, 1, MIB));
    assert_eq!(object(64 * MIB), (2, 0, 8 * MIB));
    assert_eq!(object(128 * MIB - 1), (2, 7, 16 * MIB - 1));

    let mut small = made(&[(64 * KIB, Wanted::Mdt), (END_OF_FILE, striped(MIB, 1))]).expect("DoM");
    assert_eq!(at(&small, 65_535).at, At::Mdt);
    assert_eq!(small.missing(64 * KIB).count(), 0, "a small file has no object");
    instantiate(&mut small, 64 * KIB + 1);
    let Part { component: 1, at: At::Object(piece), .. } = at(&small, 65_536) else { panic!() };
    assert_eq!((piece.stripe, piece.object_offset), (0, 65_536));
    assert_eq!(small.object_size(1, 0, 64 * KIB), 0);
    assert_eq!(small.object_size(0, 0, 5), 5);
}

#[test]
fn a_write_gives_objects_to_all_that_it_skipped_and_nothing_behind() {
    let file = progressive();
    assert_eq!(file.missing(1).collect::<Vec<_>>(), [0]);
    assert_eq!(file.missing(4 * MIB).collect::<Vec<_>>(), [0]);
    assert_eq!(file.missing(4 * MIB + 1).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(file.missing(u64::MAX).count(), 3);
}

#[test]
fn who_comes_second_is_told_and_changes_nothing() {
    let mut file = progressive();
    instantiate(&mut file, 1);
    let before = file.clone();
    assert!(file.grew_from(&progressive()) && !progressive().grew_from(&file));
    let late = Layout::plain(Fid::new(9, 9), MIB as u32, 1);
    assert_eq!(file.instantiate(0, late.clone()), Err(ComponentError::Instantiated(1)));
    // stripes that cross the end
    let wide = Layout { stripe_size: 64 * MIB as u32 - STRIPE_SIZE_UNIT, ..late };
    assert!(matches!(file.instantiate(1, wide), Err(ComponentError::Stripe { .. })));
    assert_eq!(file, before);
}

#[test]
fn wrong_components_are_refused_as_lustre_does() {
    let refused = |components: &[(u64, Wanted)]| made(components).expect_err("no layout");
    assert_eq!(refused(&[]), ComponentError::None);
    assert_eq!(refused(&[(4097, striped(0, 1))]), ComponentError::Border(4097));
    let stripe = ComponentError::Stripe { end: MIB, stripe_size: 4 * MIB };
    assert_eq!(refused(&[(MIB, striped(4 * MIB, 1))]), stripe);
    let twice = [(MIB, striped(MIB, 1)), (MIB, striped(MIB, 1))];
    assert_eq!(refused(&twice), ComponentError::Gap { start: MIB, end: MIB });
    let late = [(MIB, striped(MIB, 1)), (2 * MIB, Wanted::Mdt)];
    assert_eq!(refused(&late), ComponentError::MdtNotFirst);
    assert_eq!(refused(&[(END_OF_FILE, Wanted::Mdt)]), ComponentError::MdtEnd(END_OF_FILE));
    assert_eq!(refused(&[(2 << 30, Wanted::Mdt)]), ComponentError::MdtEnd(2 << 30));
    let count = LayoutError::StripeCount(2_001);
    assert_eq!(refused(&[(END_OF_FILE, striped(MIB, 2_001))]), ComponentError::Layout(count));
    let many: Vec<_> = (1..=1_000).map(|n| (n * MIB, striped(MIB, 1))).collect();
    assert!(matches!(refused(&many), ComponentError::TooLarge(_)));
    assert_eq!(ComponentError::None.errno(), Errno::EINVAL);
    let two = [(MIB, striped(MIB, 1_500)), (END_OF_FILE, striped(MIB, 1_500))];
    assert!(matches!(refused(&two), ComponentError::TooLarge(_)));
    made(&[(END_OF_FILE, striped(MIB, 2_000))]).expect("as wide as a file may be");
}

#[test]
fn a_stripe_size_that_is_left_open_divides_the_end() {
    let of = |end, default: u32| {
        let default = Template { stripe_size: default, ..Template::default() };
        let made =
            template(&[(end, striped(0, 1)), (END_OF_FILE, striped(0, 1))]).resolve(&default);
        made.expect("a layout").components.iter().map(Component::stripe_size).collect::<Vec<_>>()
    };
    assert_eq!(of(64 * KIB, 0), [64 * KIB, MIB]);
    assert_eq!(of(3 * MIB, 0), [MIB, MIB]);
    assert_eq!(of(6 * MIB, 4 << 20), [2 * MIB, 4 * MIB]);
    assert_eq!(of(8 * MIB, 4 << 20), [4 * MIB, 4 * MIB]);
}

#[test]
fn a_component_in_no_pool_is_so_in_a_default_and_names_none_in_a_file() {
    let pool = *b"flash\0\0\0\0\0\0\0\0\0\0\0";
    let none = Template { pool: crate::pool::IGNORE, ..Template::default() };
    let asked = template(&[(END_OF_FILE, Wanted::Striped(none))]);
    let value = crate::lov::composite::LovComposite::of_dir(&asked).expect("a default").encode();
    assert_eq!(crate::lov::composite::decode(&value), Ok(asked.clone()));
    let made = asked.resolve(&Template { pool, ..Template::default() }).expect("a layout");
    let Place::Wanted(wanted) = &made.components[0].place else { panic!("no objects yet") };
    assert_eq!(wanted.pool_name(), "");
}

#[test]
fn the_bound_of_an_mdt_shortens_and_never_refuses_what_has_another_place() {
    let asked = template(&[(4 * MIB, Wanted::Mdt), (END_OF_FILE, striped(MIB, 1))]);
    let limited = |limit| asked.clone().with_mdt_limit(limit);
    let first = |limit| limited(limit).map(|template| template.components[0].end);
    assert_eq!(first(u64::MAX), Ok(4 * MIB));
    assert_eq!(first(MIB), Ok(MIB));
    assert_eq!(first(MIB + 5), Ok(MIB), "a multiple of 64 KiB");
    assert_eq!(limited(0).map(|template| template.components.len()), Ok(1));
    let only = template(&[(4 * MIB, Wanted::Mdt)]).with_mdt_limit(0);
    assert_eq!(only, Err(ComponentError::MdtRefused));
    assert_eq!(ComponentError::MdtRefused.errno(), Errno::EFBIG);
}

#[test]
fn components_are_added_behind_and_taken_from_behind() {
    let mut file = made(&[(4 * MIB, striped(MIB, 1))]).expect("an end");
    instantiate(&mut file, 1);
    let more = template(&[(8 * MIB, striped(MIB, 2)), (END_OF_FILE, striped(MIB, 4))]);
    file.add(&more, &Template::default()).expect("there is room");
    assert_eq!((file.end(), file.last_id, file.generation), (END_OF_FILE, 3, 2));
    let full = file.clone();
    assert!(matches!(file.add(&more, &Template::default()), Err(ComponentError::Gap { .. })));
    assert_eq!(file.cut_from(1), Err(ComponentError::Id(1)), "a file keeps its first component");
    assert_eq!(file.cut_from(4), Err(ComponentError::Id(4)));
    assert_eq!(file, full);
    assert_eq!(file.cut_from(2).map(|gone| gone.len()), Ok(2));
    file.add(&more, &Template::default()).expect("there is room again");
    let ids: Vec<u32> = file.components.iter().map(|component| component.id).collect();
    assert_eq!(ids, [1, 4, 5], "an id names one component for ever");
}

#[test]
fn a_truncate_cuts_what_reaches_behind_it_and_holds_something() {
    let mut file = progressive();
    instantiate(&mut file, 5 * MIB);
    assert_eq!(file.cut_by(5 * MIB).collect::<Vec<_>>(), [1]);
    assert_eq!(file.cut_by(4 * MIB).collect::<Vec<_>>(), [1]);
    assert_eq!(file.cut_by(0).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(file.cut_by(64 * MIB).count(), 0);
}

/// Field by field as `lov_comp_md_v1`, `lov_comp_md_entry_v1` and `lov_user_md_v1` of Lustre's
/// `lustre_user.h` have them.
#[test]
fn the_bytes_of_a_composite_layout_are_lustres() {
    let mut file =
        made(&[(64 * KIB, Wanted::Mdt), (MIB, striped(MIB, 1)), (END_OF_FILE, striped(MIB, 3))])
            .expect("a layout");
    instantiate(&mut file, 64 * KIB + 1);
    #[rustfmt::skip]
    let golden = [
        0xd0, 0x0b, 0xd6, 0x0b,  0x28, 1, 0, 0,  1, 0, 0, 0,  0, 0, 3, 0,
        0, 0, 0, 0, 0, 0, 0, 0,  0, 0, 0, 0, 0, 0, 0, 0,
        1, 0, 0, 0,  0x10, 0, 0, 0,  0, 0, 0, 0, 0, 0, 0, 0,  0, 0, 1, 0, 0, 0, 0, 0,
        0xb0, 0, 0, 0,  0x20, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0, 0, 0, 0, 0,  0, 0, 0, 0,
        2, 0, 0, 0,  0x10, 0, 0, 0,  0, 0, 1, 0, 0, 0, 0, 0,  0, 0, 0x10, 0, 0, 0, 0, 0,
        0xd0, 0, 0, 0,  0x38, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0, 0, 0, 0, 0,  0, 0, 0, 0,
        3, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0x10, 0, 0, 0, 0, 0,  255, 255, 255, 255, 255, 255, 255, 255,
        0x08, 1, 0, 0,  0x20, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0, 0, 0, 0, 0,  0, 0, 0, 0,
        // at the MDT: pattern 0x100, its stripe size is its end, no stripes
        0xd0, 0x0b, 0xd1, 0x0b,  0, 1, 0, 0,  7, 0, 0, 0, 0, 0, 0, 0,  2, 4, 0, 0, 2, 0, 0, 0,
        0, 0, 1, 0,  0, 0,  0, 0,
        // one stripe
        0xd0, 0x0b, 0xd1, 0x0b,  1, 0, 0, 0,  7, 0, 0, 0, 0, 0, 0, 0,  2, 4, 0, 0, 2, 0, 0, 0,
        0, 0, 0x10, 0,  1, 0,  0, 0,
        0, 4, 1, 0, 2, 0, 0, 0,  2, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,
        // three stripes, no objects yet: any OST
        0xd0, 0x0b, 0xd1, 0x0b,  1, 0, 0, 0,  7, 0, 0, 0, 0, 0, 0, 0,  2, 4, 0, 0, 2, 0, 0, 0,
        0, 0, 0x10, 0,  3, 0,  255, 255,
    ];
    let shown = lov::composite::LovComposite::of_file(&file, FILE);
    assert_eq!(shown.encode(), golden);
    assert_eq!(lov::composite::inspect(&golden), Ok(shown));
    let asked = lov::composite::decode(&golden).expect("what a user may set");
    let ends: Vec<u64> = asked.components.iter().map(|component| component.end).collect();
    assert_eq!(
        (ends, &asked.components[0].wanted),
        (vec![64 * KIB, MIB, END_OF_FILE], &Wanted::Mdt)
    );
    // the objects that it will have are counted too
    assert_eq!(bytes_of(&file.components), golden.len() + 3 * 24);
}

#[test]
fn values_that_mean_more_than_is_known_are_refused_by_name() {
    use lov::LovError;
    let file = progressive();
    let shown = lov::composite::LovComposite::of_file(&file, FILE);
    let with = |change: &dyn Fn(&mut lov::composite::LovComposite)| {
        let mut value = shown.clone();
        change(&mut value);
        lov::composite::decode(&value.encode())
    };
    assert_eq!(with(&|value| value.mirrors = 1), Err(LovError::Unsupported("mirrored")));
    let extension = with(&|value| value.entries[0].flags = lov::composite::FLAG_EXTENSION);
    assert_eq!(extension, Err(LovError::Component(ComponentError::Extension)), "of nothing");
    assert_eq!(with(&|value| value.entries[1].flags = 1), Err(LovError::Pattern(1)));
    let gap = ComponentError::Gap { start: 5 * MIB, end: 4 * MIB };
    assert_eq!(with(&|value| value.entries[1].start = 5 * MIB), Err(LovError::Component(gap)));
    assert!(with(&|_| ()).is_ok());
}

pub(crate) fn any_wanted() -> impl Strategy<Value = CompositeTemplate> {
    let part = (1_u64..40, 0_u32..5, -1_i32..9, any::<bool>());
    (proptest::bool::ANY, proptest::collection::vec(part, 1..6), any::<bool>()).prop_map(
        |(mdt, parts, to_the_end)| {
            let (mut end, last, mut components) = (0, parts.len() - 1, Vec::new());
            for (index, (units, shift, stripe_count, pooled)) in parts.into_iter().enumerate() {
                let stripe_size = STRIPE_SIZE_UNIT << shift;
                end += units * u64::from(STRIPE_SIZE_UNIT << 4);
                let pool = *b"flash\0\0\0\0\0\0\0\0\0\0\0";
                let pool = if pooled { pool } else { [0; POOL_BYTES] };
                let striped = Template { stripe_size, stripe_count, pool, ..Template::default() };
                let at_mdt = mdt && index == 0 && (last > 0 || !to_the_end);
                let step = (units % 3) * 48 * u64::from(STRIPE_SIZE_UNIT);
                let wanted = match step {
                    _ if at_mdt => Wanted::Mdt,
                    0 => Wanted::Striped(striped),
                    step => Wanted::Extendable(striped, step),
                };
                let end = if index == last && to_the_end { END_OF_FILE } else { end };
                components.push(TemplateComponent { end, wanted });
            }
            CompositeTemplate { components }
        },
    )
}

pub(crate) fn any_file() -> impl Strategy<Value = Composite> {
    (any_wanted(), 0_u64..400 * MIB).prop_map(|(wanted, written)| {
        let mut file = wanted.resolve(&Template::default()).expect("a layout");
        instantiate(&mut file, written);
        file
    })
}

/// Where a byte is, found the slow way: a component after the other, a stripe after the other.
fn slowly(file: &Composite, offset: u64) -> Option<(usize, Option<(u32, u64)>)> {
    let holds = |component: &Component| {
        component.extent.start() <= offset && offset < component.extent.end()
    };
    let index = file.components.iter().position(holds)?;
    let layout = file.components[index].objects();
    Some((
        index,
        layout.map(|layout| {
            let (size, count) = (u64::from(layout.stripe_size), u64::from(layout.stripe_count));
            let (mut stripe, mut row, mut start) = (0, 0, offset - offset % (size * count));
            row += start / (size * count);
            while start + size <= offset {
                (start, stripe) = (start + size, stripe + 1);
            }
            (stripe, row * size + offset - start)
        }),
    ))
}

proptest! {
    #[test]
    fn parts_are_where_the_slow_way_finds_them(file in any_file(), start in 0_u64..500 * MIB, bytes in 1_u64..80 * MIB) {
        let extent = Extent::new(start, start + bytes).expect("not empty");
        let mut next = start;
        for part in file.parts(extent) {
            prop_assert_eq!(part.extent.start(), next);
            next = part.extent.end();
            for offset in [part.extent.start(), part.extent.end() - 1] {
                let into = offset - part.extent.start();
                let found = match part.at {
                    At::Object(piece) => Some((piece.stripe, piece.object_offset + into)),
                    At::Mdt | At::Hole => None,
                };
                prop_assert_eq!(Some((part.component, found)), slowly(&file, offset));
            }
            let at_mdt = file.components[part.component].place == Place::Mdt;
            prop_assert_eq!(part.at == At::Mdt, at_mdt);
        }
        prop_assert_eq!(next, (start + bytes).min(file.end()).max(start));
    }

    #[test]
    fn object_sizes_and_file_size_agree(wanted in any_wanted(), file_size in 1_u64..600 * MIB) {
        let mut file = wanted.resolve(&Template::default()).expect("a layout");
        instantiate(&mut file, file_size);
        let file_size = file_size.min(file.end());
        let end = |index: usize| {
            let stripes = file.components[index].objects().map_or(1, |layout| layout.osts.len() as u32);
            let sizes: Vec<_> = (0..stripes).map(|stripe| Some(file.object_size(index, stripe, file_size))).collect();
            file.end_of(index, &sizes)
        };
        prop_assert_eq!((0..file.components.len()).map(end).max(), Some(file_size));
    }

    #[test]
    fn records_and_lustres_form_go_there_and_back(file in any_file(), wanted in any_wanted(), cut in 1_usize..200) {
        let record = file.encode();
        prop_assert_eq!(Composite::decode(&record), Ok(file.clone()));
        prop_assert!(Composite::decode(&record[..record.len().saturating_sub(cut)]).is_err());
        let template = wanted.encode();
        prop_assert_eq!(CompositeTemplate::decode(&template), Ok(wanted.clone()));
        prop_assert!(CompositeTemplate::decode(&template[..template.len().saturating_sub(cut)]).is_err());
        let shown = lov::composite::LovComposite::of_file(&file, FILE);
        prop_assert_eq!(lov::composite::inspect(&shown.encode()), Ok(shown));
        let default = lov::composite::LovComposite::of_dir(&wanted).expect("a template").encode();
        prop_assert_eq!(lov::composite::decode(&default), Ok(wanted));
    }

    #[test]
    fn changes_leave_a_layout_or_nothing_changed(wanted in any_wanted(), more in any_wanted(), steps in proptest::collection::vec((0_u8..3, 0_u32..12), 0..12)) {
        let mut file = wanted.resolve(&Template::default()).expect("a layout");
        let mut given = file.last_id;
        for (step, number) in steps {
            let before = file.clone();
            let done = match step {
                0 => match file.missing(u64::from(number) * 16 * MIB).last() {
                    Some(index) => give(&mut file, index),
                    None => Ok(()),
                },
                1 => file.add(&more, &Template::default()),
                _ => file.cut_from(number).map(drop),
            };
            prop_assert_eq!(file.check(), Ok(()));
            if done.is_err() {
                prop_assert_eq!(&file, &before);
            }
            let fresh = |component: &&Component| component.id > before.last_id;
            prop_assert!(file.components.iter().filter(fresh).all(|component| component.id > given));
            given = given.max(file.last_id);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(file in any_file(), changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6)) {
        for mut bytes in [file.encode(), lov::composite::LovComposite::of_file(&file, FILE).encode()] {
            for (at, value) in &changes {
                *at.get_mut(&mut bytes) = *value;
            }
            if let Ok(read) = Composite::decode(&bytes) {
                prop_assert_eq!(read.check(), Ok(()));
                let _parts = read.parts(Extent::ALL).take(100).count();
            }
            if let Ok(template) = lov::composite::decode(&bytes) {
                prop_assert_eq!(template.check(), Ok(()));
            }
        }
    }
}
