//! Names, lists and patterns that administrators write.

pub(crate) fn names() -> Vec<Vec<u8>> {
    [
        "[0x200000401:0x1:0x0]",
        "10.0.0.1:988@tcp",
        "testfs-OST0002_UUID",
        "172.18.1.128@o2ib3",
        "0@lo",
        "MGS",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub(crate) fn name(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let fid = text.parse::<types::Fid>();
    let nid = text.parse::<types::NidAddr>();
    let target = text.parse::<types::TargetId>();
    if let Ok(fid) = &fid {
        assert_eq!(fid.to_string().parse().as_ref(), Ok(fid));
    }
    if let Ok(nid) = &nid {
        assert_eq!(nid.to_string().parse().as_ref(), Ok(nid));
    }
    fid.is_ok() || nid.is_ok() || target.is_ok()
}

pub(crate) fn nid_lists() -> Vec<Vec<u8>> {
    [
        "192.168.1.[1-253/2]@o2ib 192.168.*.[0-9,20]@tcp 0@lo",
        "10.1.0.0/16@tcp1 *@o2ib",
        "*",
        "10.0.0.[8,10,12-16]@tcp",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// A list contains the NIDs that it enumerates, and prints as a list that is equal.
pub(crate) fn nid_list(input: &[u8]) -> bool {
    let Ok(list) = String::from_utf8_lossy(input).parse::<types::NidList>() else { return false };
    assert_eq!(list.to_string().parse().as_ref(), Ok(&list));
    if let Ok(nids) = list.nids() {
        assert!(nids.iter().take(64).all(|nid| list.contains(*nid)));
    }
    true
}

pub(crate) fn parameters() -> Vec<Vec<u8>> {
    [
        "ost.OSS.*.nrs_policies=fifo",
        "{test,b}.num?e[a-z]=17",
        "*.*=9",
        "test.number=12",
        "test/number=1",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// A refused write changes nothing.
pub(crate) fn parameter(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let (pattern, value) = text.split_once('=').unwrap_or((text, ""));
    let tree = params::ParamTree::new();
    let number = std::rc::Rc::new(std::cell::Cell::new(5_u32));
    let (read, write) = (number.clone(), number.clone());
    tree.register_rw("ost.OSS.ost_io.nrs_policies", || "fifo".to_owned(), |_| Ok(()));
    tree.register_rw(
        "test.number",
        move || read.get().to_string(),
        move |value| {
            write.set(params::parse_within(value, 1_u32, 100)?);
            Ok(())
        },
    );
    let accepted = tree.set_now(pattern, value).is_ok_and(|all| all.iter().any(Result::is_ok));
    assert!(accepted || number.get() == 5, "a refused value was stored");
    assert!((1..=100).contains(&number.get()), "a value out of range was stored");
    let _ = (tree.get(pattern), tree.get_below(pattern), tree.list(pattern, true));
    accepted
}
