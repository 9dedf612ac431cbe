//! Layouts and templates: our records, and Lustre's binary form.

pub(crate) fn lovs() -> Vec<Vec<u8>> {
    let mut v1 = 0x0BD1_0BD0_u32.to_le_bytes().to_vec();
    v1.extend_from_slice(&1_u32.to_le_bytes());
    v1.extend_from_slice(&[0; 16]);
    v1.extend_from_slice(&(1_u32 << 20).to_le_bytes());
    v1.extend_from_slice(&2_u16.to_le_bytes());
    v1.extend_from_slice(&0xffff_u16.to_le_bytes());
    let mut v3 = v1.clone();
    v3[..4].copy_from_slice(&0x0BD3_0BD0_u32.to_le_bytes());
    v3.extend_from_slice(b"flash\0\0\0\0\0\0\0\0\0\0\0");
    let mut specific = v3.clone();
    specific[..4].copy_from_slice(&0x0BD5_0BD0_u32.to_le_bytes());
    specific.extend_from_slice(&[0; 48]);
    let composite = layout::lov::composite::LovComposite::of_file(&composite(), types::Fid::ROOT);
    vec![v1, v3, specific, composite.encode()]
}

/// Data at the MDT, then one stripe that grows in steps, then four.
fn composite() -> layout::composite::Composite {
    use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
    let of = |stripe_count| layout::Template { stripe_count, ..layout::Template::default() };
    let parts = [
        (1 << 16, Wanted::Mdt),
        (1 << 26, Wanted::Extendable(of(1), 1 << 20)),
        (END_OF_FILE, Wanted::Striped(of(4))),
    ];
    let component = |(end, wanted)| TemplateComponent { end, wanted };
    let template = CompositeTemplate { components: parts.map(component).to_vec() };
    template.resolve(&layout::Template::default()).expect("a layout")
}

fn lov_composite(input: &[u8]) -> bool {
    use layout::lov::composite::{LovComposite, decode, inspect};
    let seen = inspect(input);
    if let Ok(seen) = &seen {
        assert_eq!(inspect(&seen.encode()).as_ref(), Ok(seen));
    }
    let Ok(template) = decode(input) else { return false };
    assert!(seen.is_ok(), "a value that is taken can be shown");
    let shown = LovComposite::of_dir(&template).expect("it makes a layout");
    assert_eq!(decode(&shown.encode()).as_ref(), Ok(&template));
    true
}

pub(crate) fn lov(input: &[u8]) -> bool {
    let seen = layout::lov::inspect(input);
    if let Ok(lov) = &seen {
        assert_eq!(layout::lov::inspect(&lov.encode()).as_ref(), Ok(lov));
    }
    let Ok(template) = layout::lov::decode(input) else { return lov_composite(input) };
    assert!(seen.is_ok(), "a value that is taken can be shown");
    assert_eq!(layout::lov::decode(&layout::lov::encode_dir(&template)).as_ref(), Ok(&template));
    true
}

pub(crate) fn records() -> Vec<Vec<u8>> {
    let template =
        layout::Template { stripe_count: 2, osts: vec![1, 3], ..layout::Template::default() };
    let file = layout::Layout {
        stripe_size: 1 << 20,
        stripe_count: 2,
        pattern: layout::Raid0,
        generation: 0,
        base: types::Fid::new(0x2_0000_0401, 9),
        osts: vec![1, 3],
        pool: [0; 16],
        origin: layout::Origin::SYSTEM,
    };
    vec![template.encode(), file.encode(), composite().encode()]
}

pub(crate) fn record(input: &[u8]) -> bool {
    let file = layout::Layout::decode(input);
    let template = layout::Template::decode(input);
    if let Ok(file) = &file {
        assert_eq!(layout::Layout::decode(&file.encode()).as_ref(), Ok(file));
    }
    if let Ok(template) = &template {
        assert_eq!(layout::Template::decode(&template.encode()).as_ref(), Ok(template));
    }
    let composite = layout::composite::Composite::decode(input);
    if let Ok(composite) = &composite {
        assert_eq!(
            layout::composite::Composite::decode(&composite.encode()).as_ref(),
            Ok(composite)
        );
    }
    file.is_ok() || template.is_ok() || composite.is_ok()
}

pub(crate) fn lmvs() -> Vec<Vec<u8>> {
    use layout::dir::{Asked, HASH_CRUSH2, Leaving, Stripes};
    let shards = (0..4).map(|oid| types::Fid::new(0x2_0000_0401, oid)).collect();
    let stripes = Stripes { hash: HASH_CRUSH2, version: 1, master: 2, shards, leaving: None };
    let listed = Asked { count: 2, mdts: vec![1, 3], ..Asked::default() };
    let leaving = Leaving { hash: HASH_CRUSH2, shards: vec![types::Fid::new(0x2_0000_0401, 9)] };
    let moving = Stripes { leaving: Some(leaving), ..stripes.clone() };
    vec![Asked::default().encode(), listed.encode(), stripes.encode(), moving.encode()]
}

pub(crate) fn lmv(input: &[u8]) -> bool {
    use layout::dir::{Asked, Stripes};
    let (asked, stripes) = (Asked::decode(input), Stripes::decode(input));
    if let Ok(asked) = &asked {
        assert_eq!(Asked::decode(&asked.encode()).as_ref(), Ok(asked));
    }
    if let Ok(stripes) = &stripes {
        assert_eq!(Stripes::decode(&stripes.encode()).as_ref(), Ok(stripes));
        assert!(stripes.shard_of(input) < stripes.shards.len());
    }
    asked.is_ok() || stripes.is_ok()
}
