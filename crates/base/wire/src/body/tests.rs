//! The fields of every body are where version 1 had them.

use super::{BODIES, GRANT_BODIES, MANY_BODIES};

/// The layout of version 1, one line a body: name, bytes, field@offset. A line may grow at its
/// end, never change.
const GOLDEN: &str = include_str!("../../golden/bodies-v1.txt");

#[test]
fn no_field_has_moved_since_version_1() {
    let line = |(name, bytes, fields): &(&str, usize, &[(&str, usize)])| {
        let fields: Vec<_> =
            fields.iter().map(|(field, offset)| format!("{field}@{offset}")).collect();
        format!("{name} {bytes} {}\n", fields.join(" "))
    };
    let now: String = BODIES.iter().chain(GRANT_BODIES).chain(MANY_BODIES).map(line).collect();
    assert_eq!(
        now, GOLDEN,
        "messages of version 1 have changed: append fields and raise the version instead"
    );
}
