//! The macro that defines bodies. A body is a struct without padding, and a golden file holds the
//! size of each body and the place of each field.

macro_rules! bodies {
    ($($(#[$doc:meta])* $name:ident ($bytes:literal) { $($(#[$fdoc:meta])* $field:ident: $ty:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub struct $name { $($(#[$fdoc])* pub $field: $ty,)* }
            const _: () = assert!(size_of::<$name>() == $bytes);
        )*

        /// Every body with its size and the place of each field: what the golden layout is held
        /// against.
        pub const BODIES: &[(&str, usize, &[(&str, usize)])] =
            &[$((stringify!($name), $bytes, &[$((stringify!($field), std::mem::offset_of!($name, $field)),)*]),)*];
    };
}
