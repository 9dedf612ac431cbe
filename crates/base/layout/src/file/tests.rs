//! Tests of a file's layout: stripe numbers, pieces, sizes and missing objects.

use proptest::prelude::*;

use super::*;
use crate::composite::tests::{any_file, instantiate};
use crate::composite::{CompositeTemplate, TemplateComponent, Wanted};
use crate::{STRIPE_SIZE_UNIT, Template};

const FILE: Fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 0 };

fn plain(stripe_count: u16) -> Layout {
    Layout::plain(Fid::new(0x400, 1), STRIPE_SIZE_UNIT << 4, stripe_count)
}

#[test]
fn a_plain_layout_is_mapped_as_by_itself() {
    let (layout, file) = (plain(3), FileLayout::from(plain(3)));
    let extent = Extent::new(1 << 19, 9 << 20).expect("not empty");
    assert!(file.pieces(extent).eq(layout.pieces(extent)));
    assert_eq!(file.objects().collect::<Vec<_>>(), layout.objects().collect::<Vec<_>>());
    assert_eq!((file.stripes(), file.is_whole(), file.misses(u64::MAX)), (3, true, false));
    assert_eq!(file.stripe_of(5 << 20), Some(layout.stripe_of(5 << 20)));
    assert_eq!(file.end(), END_OF_FILE);
    assert!(file.has_base(layout.base) && !file.has_base(FILE));
    assert!(
        file.has_object(layout.base.stripe(1), 1) && !file.has_object(layout.base.stripe(1), 2)
    );
}

#[test]
fn a_layout_that_is_taken_over_keeps_its_objects() {
    let template = CompositeTemplate {
        components: vec![
            TemplateComponent { end: 1 << 16, wanted: Wanted::Mdt },
            TemplateComponent { end: END_OF_FILE, wanted: Wanted::Striped(Template::default()) },
        ],
    };
    let mut made = template.resolve(&Template::default()).expect("a layout");
    made.instantiate(1, Layout::plain(Fid::new(0x400, 9), 1 << 20, 1)).expect("it had none");
    let (before, other) = (FileLayout::composite(FILE, made), Fid::new(FILE.seq, 8));
    let taken = before.of_file(other);
    assert!(taken.objects().eq(before.objects()));
    assert!(taken.has_base(FILE) && !taken.has_base(other));
    assert!(taken.has_object(FILE, types::DOM_FIRST));
    assert_eq!(taken.mdt_object(), Some(FILE));
    let record = taken.encode();
    let read = crate::Striping::decode(other, &record);
    assert_eq!(read, Ok(crate::Striping::Layout(taken.clone())));
    for len in 0..record.len() {
        assert!(crate::Striping::decode(other, &record[..len.max(1)]).is_err(), "{len}");
    }
    assert_eq!(taken.of_file(FILE), before, "and back");
    let far = before.at_generation(70_000).expect("32 bits");
    assert_eq!((far.generation(), plain(1).generation), (70_000, 0));
    assert_eq!(FileLayout::from(plain(1)).at_generation(70_000), None, "16 bits");
}

proptest! {
    #[test]
    fn stripes_are_numbered_through_all_components(composite in any_file()) {
        let file = FileLayout::composite(FILE, composite.clone());
        prop_assert_eq!(file.check(), Ok(()));
        let mut all = Vec::new();
        for component in &composite.components {
            match &component.place {
                Place::Mdt => all.push((FILE, OstIndex(types::DOM_FIRST))),
                Place::Wanted(_) | Place::Extendable(..) | Place::Extension(_) => {}
                Place::Objects(layout) => {
                    all.extend(layout.objects().map(|(_, object, ost)| (object, ost)));
                }
            }
        }
        let found: Vec<_> = file.objects().map(|(_, object, ost)| (object, ost)).collect();
        prop_assert_eq!(&found, &all);
        for (object, ost) in all {
            prop_assert!(file.has_object(object, ost.0));
            let base = Fid { ver: 0, ..object };
            prop_assert!(file.has_base(base));
        }
    }

    #[test]
    fn pieces_and_offsets_agree(composite in any_file(), start in 0_u64..500 << 20, bytes in 1_u64..80 << 20) {
        let file = FileLayout::composite(FILE, composite.clone());
        let extent = Extent::new(start, start + bytes).expect("not empty");
        let mut covered = 0;
        for piece in file.pieces(extent) {
            prop_assert_eq!(file.stripe_of(piece.file_offset), Some(piece.stripe));
            prop_assert_eq!(file.object_offset(piece.stripe, piece.file_offset), piece.object_offset);
            prop_assert_eq!(file.file_offset(piece.stripe, piece.object_offset), Some(piece.file_offset));
            let (last, into) = (piece.file_offset + piece.len - 1, piece.len - 1);
            prop_assert_eq!(file.file_offset(piece.stripe, piece.object_offset + into), Some(last));
            covered += piece.len;
        }
        let holes: u64 = composite.parts(extent).filter(|part| part.at == At::Hole).map(|part| part.extent.end() - part.extent.start()).sum();
        prop_assert_eq!(covered + holes, (start + bytes).min(file.end()).saturating_sub(start));
        prop_assert_eq!(file.misses(start + bytes), composite.missing(start + bytes).next().is_some());
    }

    #[test]
    fn sizes_add_up_and_numbers_stay_when_objects_come(composite in any_file(), file_size in 1_u64..600 << 20) {
        let before: Vec<_> = FileLayout::composite(FILE, composite.clone()).objects().collect();
        let mut composite = composite;
        instantiate(&mut composite, file_size);
        let file = FileLayout::composite(FILE, composite);
        prop_assert!(file.objects().take(before.len()).eq(before));
        let file_size = file_size.min(file.end());
        let sizes: Vec<_> = (0..file.stripes()).map(|stripe| Some(file.object_size(stripe, file_size))).collect();
        prop_assert_eq!(file.file_size(&sizes), file_size);
        prop_assert!(!file.is_outgrown(&sizes));
        // the object of the last byte alone gives the size, as after a truncate that extends
        let last = file.stripe_of(file_size - 1).expect("it has a place");
        let alone: Vec<_> = sizes.iter().zip(0..).map(|(size, stripe)| size.filter(|_| stripe == last)).collect();
        prop_assert_eq!(file.file_size(&alone), file_size);
    }
}

#[test]
fn a_file_that_asks_for_no_objects_yet_has_none() {
    let wanted = Template { stripe_size: STRIPE_SIZE_UNIT, ..Template::default() };
    let component = crate::composite::TemplateComponent {
        end: END_OF_FILE,
        wanted: crate::composite::Wanted::Striped(wanted),
    };
    let template = crate::composite::CompositeTemplate { components: vec![component] };
    let composite = template.resolve(&Template::default()).expect("a layout");
    let file = FileLayout::composite(FILE, composite);
    assert_eq!((file.stripes(), file.stripe_of(0), file.misses(0)), (0, None, false));
    assert!(file.misses(1) && !file.is_whole());
    assert_eq!((file.file_size(&[]), file.object_size(0, 5)), (0, 0));
    assert_eq!(file.pieces(Extent::ALL).count(), 0);
}

#[test]
fn an_object_that_reaches_behind_its_component_tells_of_an_old_layout() {
    let unit = u64::from(STRIPE_SIZE_UNIT);
    let wanted = Template { stripe_size: STRIPE_SIZE_UNIT, stripe_count: 2, ..Template::default() };
    let wanted = Wanted::Extendable(wanted, 4 * unit);
    let components = vec![TemplateComponent { end: END_OF_FILE, wanted }];
    let template = CompositeTemplate { components };
    let mut composite = template.resolve(&Template::default()).expect("a layout");
    instantiate(&mut composite, 1);
    let file = FileLayout::composite(FILE, composite);
    assert!(file.misses(4 * unit + 1) && !file.misses(4 * unit) && !file.is_whole());
    assert_eq!((file.stripes(), file.stripe_of(4 * unit), file.end()), (2, None, END_OF_FILE));
    let outgrown = |sizes: [Option<u64>; 2]| file.is_outgrown(&sizes);
    assert!(!outgrown([Some(2 * unit), Some(2 * unit)]) && !outgrown([None, None]));
    assert!(outgrown([None, Some(2 * unit + 1)]));
    assert!(!FileLayout::from(plain(1)).is_outgrown(&[Some(u64::MAX)]));
}
