//! Tests of extension: steps, spill and repeat, Lustre's manual and bytes, and a slower search.

use proptest::prelude::*;
use types::OstIndex;

use super::*;
use crate::composite::steps::is_room;
use crate::composite::tests::any_wanted;
use crate::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use crate::lov::bytes::bytes_of;
use crate::{FileLayout, lov};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const FILE: Fid = Fid { seq: 0x2_0000_0402, oid: 7, ver: 0 };

/// OSTs with so much room; the first ones that have enough are taken.
#[derive(Clone, Debug)]
struct Osts {
    room: Vec<u64>,
    bases: u32,
}

impl Osts {
    fn new(room: impl IntoIterator<Item = u64>) -> Osts {
        Osts { room: room.into_iter().collect(), bases: 0 }
    }

    fn first(&self, count: i32, bytes: u64) -> Vec<u32> {
        let bytes = if self.room.iter().any(|room| *room >= bytes) { bytes } else { 0 };
        let count = usize::try_from(count).map_or(usize::MAX, |count| count.max(1));
        let enough = (0_u32..).zip(&self.room).filter(|(_, room)| **room >= bytes);
        enough.map(|(ost, _)| ost).take(count).collect()
    }

    fn take(&mut self, osts: &[u32], bytes: u64) {
        for ost in osts {
            let room = &mut self.room[*ost as usize];
            *room = room.saturating_sub(bytes);
        }
    }
}

impl Supply for Osts {
    type Error = ComponentError;

    fn choose(&mut self, wanted: &Template, bytes: u64) -> Result<Chosen, ComponentError> {
        if self.room.is_empty() {
            return Err(ComponentError::None);
        }
        Ok(Chosen { osts: self.first(wanted.stripe_count, bytes), pool: wanted.pool })
    }

    fn base(&mut self) -> Result<Fid, ComponentError> {
        self.bases += 1;
        Ok(Fid::new(0x2_0001_0400, self.bases))
    }

    fn fits(&self, osts: &[u32], bytes: u64) -> u64 {
        osts.iter().map(|ost| self.room[*ost as usize] / bytes.max(1)).min().unwrap_or(0)
    }

    fn promise(&mut self, osts: &[u32], bytes: u64, times: u64) {
        self.take(osts, bytes.saturating_mul(times));
    }

    fn is_lack(error: &ComponentError) -> bool {
        *error == ComponentError::None
    }

    fn refuse(&self, error: ComponentError) -> ComponentError {
        error
    }
}

fn extendable(stripe_size: u64, step: u64) -> Wanted {
    let template =
        Template { stripe_size: stripe_size as u32, stripe_count: 1, ..Template::default() };
    Wanted::Extendable(template, step)
}

fn made(components: &[(u64, Wanted)]) -> Result<Composite, ComponentError> {
    let component =
        |(end, wanted): &(u64, Wanted)| TemplateComponent { end: *end, wanted: wanted.clone() };
    let components = components.iter().map(component).collect();
    CompositeTemplate { components }.resolve(&Template::default())
}

/// `lfs setstripe -E 1G -z 64M -E -1 -z 256M`, the example of Lustre's manual.
fn manual() -> Composite {
    let parts = [(GIB, extendable(MIB, 64 * MIB)), (END_OF_FILE, extendable(MIB, 256 * MIB))];
    made(&parts).expect("a layout")
}

/// `ID:START-END@OSTS` of components with objects, `ID:START-END` of the others, in MiB.
fn shown(file: &Composite) -> String {
    let part = |part: &Component| {
        let (start, end) = (part.extent.start() / MIB, part.extent.end());
        let end = if end == END_OF_FILE { "eof".into() } else { (end / MIB).to_string() };
        let osts = part.objects().map_or(String::new(), |layout| format!("@{:?}", layout.osts));
        let rest = if is_room(Some(part)) { "+" } else { "" };
        format!("{}:{start}-{end}{rest}{osts}", part.id)
    };
    file.components.iter().map(part).collect::<Vec<_>>().join(" ")
}

fn after(file: &mut Composite, behind: u64, osts: &mut Osts) -> String {
    file.extend(behind, osts).expect("OSTs");
    shown(file)
}

#[test]
fn the_example_of_lustres_manual_goes_as_it_says() {
    let (mut file, mut osts) = (manual(), Osts::new([4 * GIB, 4 * GIB]));
    assert_eq!(shown(&file), "1:0-1024 3:1024-eof");
    assert_eq!(after(&mut file, 1, &mut osts), "1:0-64@[0] 2:64-1024+ 3:1024-eof");
    assert_eq!(after(&mut file, 64 * MIB, &mut osts), "1:0-64@[0] 2:64-1024+ 3:1024-eof");
    after(&mut file, 64 * MIB + 1, &mut osts);
    let extended = after(&mut file, 128 * MIB + 1, &mut osts);
    assert_eq!(extended, "1:0-192@[0] 2:192-1024+ 3:1024-eof");
    osts.room[0] = MIB;
    let spilled = after(&mut file, 192 * MIB + 1, &mut osts);
    assert_eq!(spilled, "1:0-192@[0] 3:192-448@[1] 4:448-eof+");
    osts.room = vec![4 * GIB, MIB];
    let repeated = after(&mut file, 448 * MIB + 1, &mut osts);
    assert_eq!(repeated, "1:0-192@[0] 3:192-448@[1] 5:448-704@[0] 4:704-eof+");
    osts.room = vec![MIB, MIB];
    let forced = after(&mut file, 704 * MIB + 1, &mut osts);
    assert_eq!(forced, "1:0-192@[0] 3:192-448@[1] 5:448-960@[0] 4:960-eof+");
    assert_eq!(file.check(), Ok(()));
}

#[test]
fn a_write_far_out_takes_the_room_that_there_is() {
    let parts = [(GIB, extendable(MIB, 64 * MIB)), (END_OF_FILE, extendable(MIB, 256 * MIB))];
    let mut file = made(&parts).expect("a layout");
    let mut osts = Osts::new([300 * MIB, 600 * MIB, GIB]);
    let far = after(&mut file, 1_500 * MIB, &mut osts);
    assert_eq!(far, "1:0-256@[0] 3:256-768@[1] 5:768-1536@[2] 4:1536-eof+");
    let whole = after(&mut manual(), 2 * GIB, &mut Osts::new([8 * GIB]));
    assert_eq!(
        whole, "1:0-1024@[0] 3:1024-2048@[0] 4:2048-eof+",
        "nothing is left of an extension"
    );
    let all = after(&mut manual(), u64::MAX, &mut Osts::new([u64::MAX]));
    assert_eq!(all, "1:0-1024@[0] 3:1024-eof@[0]");
}

#[test]
fn a_component_whose_osts_are_short_at_first_gives_all_to_the_next() {
    let mut file = manual();
    assert_eq!(after(&mut file, 1, &mut Osts::new([MIB])), "3:0-256@[0] 4:256-eof+");
    let fixed = Wanted::Striped(Template { stripe_count: 1, ..Template::default() });
    let parts = [(GIB, extendable(MIB, 64 * MIB)), (END_OF_FILE, fixed)];
    let mut file = made(&parts).expect("a layout");
    assert_eq!(after(&mut file, 1, &mut Osts::new([MIB])), "3:0-eof@[0]");
    let none = manual().extend(1, &mut Osts::new([]));
    assert_eq!(none, Err(ComponentError::None), "and an error is told where nothing is next");
}

#[test]
fn a_component_that_spilled_over_ends_behind_a_whole_stripe() {
    let parts =
        [(GIB, extendable(64 * KIB, 64 * KIB)), (END_OF_FILE, extendable(4 * MIB, 64 * KIB))];
    let mut file = made(&parts).expect("a layout");
    let mut osts = Osts::new([64 * KIB, GIB]);
    file.extend(1, &mut osts).expect("room");
    file.extend(64 * KIB + 1, &mut osts).expect("room elsewhere");
    let ends: Vec<u64> = file.components.iter().map(|part| part.extent.end()).collect();
    assert_eq!(ends, [64 * KIB, 8 * MIB, END_OF_FILE]);
}

#[test]
fn a_layout_that_can_take_no_more_components_grows_as_it_is() {
    let mut file = made(&[(END_OF_FILE, extendable(MIB, MIB))]).expect("a layout");
    let mut osts = Osts::new([MIB, MIB, MIB]);
    file.extend(1, &mut osts).expect("room");
    file.last_id = crate::composite::COMPONENT_ID_MAX;
    assert_eq!(after(&mut file, 5 * MIB, &mut osts), "1:0-5@[0] 2:5-eof+");
}

#[test]
fn wrong_extensions_are_refused() {
    let refused = |wanted| made(&[(END_OF_FILE, wanted)]).expect_err("no layout");
    assert_eq!(refused(extendable(MIB, 0)), ComponentError::Step(0));
    assert_eq!(refused(extendable(MIB, 65_537)), ComponentError::Step(65_537));
    assert_eq!(refused(extendable(MIB, 8 << 40)), ComponentError::Step(8 << 40));
    let mut file = manual();
    file.components[0].place = Place::Extension(64 * MIB);
    assert_eq!(file.check(), Err(ComponentError::Extension), "of nothing");
    let mut file = manual();
    file.extend(1, &mut Osts::new([GIB])).expect("room");
    let objects = Layout::plain(Fid::new(9, 9), MIB as u32, 1);
    assert_eq!(file.instantiate(1, objects.clone()), Err(ComponentError::Extension));
    assert_eq!(file.instantiate(2, objects), Err(ComponentError::Extension), "out of turn");
    assert_eq!(ComponentError::Extension.errno(), types::Errno::EINVAL);
}

#[test]
fn a_file_asks_for_what_it_was_made_of() {
    let mut file = manual();
    let asked =
        |file: &Composite| crate::Asked::from_layout(&FileLayout::composite(FILE, file.clone()));
    let wanted = asked(&file);
    file.extend(100 * MIB, &mut Osts::new([4 * GIB])).expect("room");
    assert_eq!(asked(&file), wanted);
    let value = lov::composite::LovComposite::of_file(&file, FILE).encode();
    assert_eq!(lov::composite::decode(&value).map(crate::Asked::Composite), Ok(wanted));
}

/// Field by field as `lov_comp_md_entry_v1` of Lustre's `lustre_user.h` has them: the flag
/// `LCME_FL_EXTENSION` is 0x40, and the step is in units of 1 KiB (`SEL_UNIT_SIZE`).
#[test]
fn the_entries_of_an_extendable_component_are_lustres() {
    let of = |file: &Composite| lov::composite::LovComposite::of_file(file, FILE);
    type Entry = (u32, u32, u64, u64, u32);
    let entries = |file: &Composite| -> Vec<Entry> {
        let entries = of(file).entries.into_iter();
        let entry = |entry: lov::composite::LovEntry| {
            (entry.id, entry.flags, entry.start / MIB, entry.end / MIB, entry.lov.stripe_size)
        };
        entries.map(entry).collect()
    };
    let (mut file, eof) = (manual(), END_OF_FILE / MIB);
    let rest: [Entry; 2] = [(3, 0, 1024, 1024, 1 << 20), (4, 0x40, 1024, eof, 256 << 10)];
    let fresh: [Entry; 2] = [(1, 0, 0, 0, 1 << 20), (2, 0x40, 0, 1024, 64 << 10)];
    assert_eq!(entries(&file), [&fresh[..], &rest[..]].concat());
    assert_eq!(bytes_of(&file.components), of(&file).encode().len() + 2 * 24);
    file.extend(1, &mut Osts::new([GIB])).expect("room");
    let begun: [Entry; 2] = [(1, 0x10, 0, 64, 1 << 20), (2, 0x40, 64, 1024, 64 << 10)];
    assert_eq!(entries(&file), [&begun[..], &rest[..]].concat());
    assert_eq!(bytes_of(&file.components), of(&file).encode().len() + 24);
    let sizes: Vec<_> = of(&file).entries.iter().map(|entry| entry.extension_size()).collect();
    assert_eq!(sizes, [None, Some(64 * MIB), None, Some(256 * MIB)]);
}

/// A part of a file, as the slow way knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slow {
    start: u64,
    end: u64,
    stripe_size: u64,
    count: i32,
    /// Of an extendable one, and of the room behind it.
    step: Option<u64>,
    /// Of one with objects; the MDT is none.
    osts: Option<Vec<u32>>,
    is_room: bool,
}

impl Slow {
    fn of(part: &Component) -> Slow {
        let (count, step) = match &part.place {
            Place::Wanted(wanted) => (wanted.stripe_count, None),
            Place::Extendable(wanted, step) => (wanted.stripe_count, Some(*step)),
            Place::Extension(step) => (0, Some(*step)),
            Place::Mdt | Place::Objects(_) => (0, None),
        };
        let osts = match &part.place {
            Place::Mdt => Some(Vec::new()),
            _ => part.objects().map(|layout| layout.osts.clone()),
        };
        let (start, end) = (part.extent.start(), part.extent.end());
        let (stripe_size, is_room) = (part.stripe_size(), is_room(Some(part)));
        Slow { start, end, stripe_size, count, step, osts, is_room }
    }

    /// What a comparison sees.
    fn seen(&self) -> (u64, u64, Option<Vec<u32>>, bool) {
        (self.start, self.end, self.osts.clone(), self.is_room)
    }
}

/// One step behind `start`, stripe by stripe.
fn one_step(start: u64, step: u64, stripe_size: u64, end: u64) -> (u64, u64) {
    let mut unit = stripe_size;
    while unit < step {
        unit += stripe_size;
    }
    let mut at = start;
    while !at.is_multiple_of(stripe_size) {
        at += 64 * KIB;
    }
    (unit, (at + unit).min(end))
}

/// The next one gets all of it.
fn spill(parts: &mut Vec<Slow>, index: usize) {
    parts[index + 1].start = parts[index].start;
    parts.remove(index);
}

/// Gives places the slow way: a step after the other.
fn slowly(parts: &mut Vec<Slow>, behind: u64, osts: &mut Osts) {
    loop {
        let needs = |part: &Slow| part.osts.is_none() && part.start < behind;
        let Some(index) = parts.iter().position(needs) else { return };
        let has_next = index + 1 < parts.len();
        let part = parts[index].clone();
        let Some(step) = part.step else {
            parts[index].osts = Some(osts.first(part.count, 0));
            continue;
        };
        if !part.is_room {
            let (unit, to) = one_step(part.start, step, part.stripe_size, part.end);
            let least = if part.count < 0 { 0 } else { unit.div_ceil(part.count.max(1) as u64) };
            let chosen = osts.first(part.count, least);
            let share = unit.div_ceil(chosen.len() as u64);
            if has_next && osts.fits(&chosen, share) == 0 {
                spill(parts, index);
                continue;
            }
            osts.take(&chosen, share);
            let rest = Slow { start: to, is_room: true, ..part.clone() };
            parts[index] = Slow { end: to, osts: Some(chosen), ..part };
            if rest.start < rest.end {
                parts.insert(index + 1, rest);
            }
            continue;
        }
        let before = parts[index - 1].clone();
        let held = before.osts.clone().expect("objects");
        let (unit, to) = one_step(part.start, step, before.stripe_size, part.end);
        let share = unit.div_ceil(held.len() as u64);
        let has_room = osts.fits(&held, share) > 0;
        if !has_room && has_next {
            spill(parts, index);
            continue;
        }
        let others = osts.first(held.len() as i32, share);
        let others_share = unit.div_ceil(others.len() as u64);
        parts[index].start = to;
        if has_room {
            osts.take(&held, share);
            parts[index - 1].end = to;
        } else if osts.fits(&others, others_share) > 0 {
            osts.take(&others, others_share);
            let more = Slow { start: part.start, end: to, osts: Some(others), ..before };
            parts.insert(index, more);
        } else {
            parts[index - 1].end = to;
        }
        parts.retain(|part| part.start < part.end);
    }
}

/// Where a byte is.
fn place_of(file: &Composite, offset: u64) -> Option<(Fid, OstIndex, u64)> {
    let layout = FileLayout::composite(FILE, file.clone());
    let piece = layout.pieces(Extent::new(offset, offset + 1)?).next()?;
    let (object, ost) = layout.object(piece.stripe);
    Some((object, ost, piece.object_offset))
}

proptest! {
    #[test]
    fn bytes_get_the_places_that_the_slow_way_finds(
        wanted in any_wanted(),
        room in proptest::collection::vec(0_u64..60, 1..6),
        writes in proptest::collection::vec(1_u64..300 * MIB, 1..6),
    ) {
        let mut file = wanted.resolve(&Template::default()).expect("a layout");
        let mut parts: Vec<Slow> = file.components.iter().map(Slow::of).collect();
        let mut osts = Osts::new(room.into_iter().map(|mib| mib * MIB));
        let mut slow_osts = osts.clone();
        for behind in writes {
            let behind = behind.min(file.end());
            let before = file.clone();
            prop_assert_eq!(file.extend(behind, &mut osts), Ok(()));
            slowly(&mut parts, behind, &mut slow_osts);
            prop_assert_eq!(&osts.room, &slow_osts.room);
            let found: Vec<_> = file.components.iter().map(|part| Slow::of(part).seen()).collect();
            let slow: Vec<_> = parts.iter().map(Slow::seen).collect();
            prop_assert_eq!(found, slow);
            prop_assert_eq!(file.check(), Ok(()));
            prop_assert_eq!(file.missing(behind).count(), 0);
            prop_assert_eq!(file.generation == before.generation, file == before);
            prop_assert!(file.grew_from(&before));
            prop_assert_eq!(Composite::decode(&file.encode()), Ok(file.clone()));
            let borders = before.components.iter().chain(&file.components);
            for border in borders.map(|part| part.extent.start()) {
                for offset in [border.saturating_sub(1), border, border + 100 * KIB] {
                    let was = place_of(&before, offset);
                    prop_assert!(was.is_none() || was == place_of(&file, offset), "{}", offset);
                }
            }
        }
    }
}

#[test]
fn a_layout_that_took_something_away_did_not_grow() {
    let before = {
        let mut file = manual();
        file.extend(1, &mut Osts::new([GIB])).expect("room");
        file
    };
    let mut after = before.clone();
    after.extend(2 * GIB, &mut Osts::new([512 * MIB, 8 * GIB])).expect("room");
    assert!(after.grew_from(&before) && after.stretches(&before) && !before.grew_from(&after));
    let with = |change: fn(&mut Composite)| {
        let mut forged = after.clone();
        change(&mut forged);
        forged.grew_from(&before)
    };
    assert!(with(|_| ()));
    assert!(!with(|file| file.components[0].id = 9));
    assert!(!with(|file| file.components[0].place = Place::Mdt));
    assert!(!with(|file| drop(file.components.pop())));
    assert!(!with(|file| file.last_id = 1));
    assert!(!with(|file| file.mdt_object = Some(FILE)));
}

#[test]
fn components_on_all_osts_share_the_bytes_of_a_layout() {
    let all = Template { stripe_count: -1, ..Template::default() };
    let parts = [
        (GIB, Wanted::Striped(all.clone())),
        (2 * GIB, Wanted::Extendable(all.clone(), 64 * MIB)),
        (END_OF_FILE, Wanted::Striped(all)),
    ];
    let mut file = made(&parts).expect("a layout");
    file.extend(u64::MAX, &mut Osts::new(vec![GIB; 2_000])).expect("each has its share");
    assert_eq!((file.check(), file.missing(u64::MAX).count()), (Ok(()), 0));
    let counts: Vec<usize> =
        file.components.iter().filter_map(|part| Some(part.objects()?.osts.len())).collect();
    assert!(counts.len() == 3 && counts.iter().all(|count| (800..1_000).contains(count)));
    let mut one = made(&parts[..1]).expect("a layout");
    one.extend(1, &mut Osts::new(vec![GIB; 2_000])).expect("room");
    assert_eq!(one.components[0].objects().map(|objects| objects.osts.len()), Some(2_000));
}
