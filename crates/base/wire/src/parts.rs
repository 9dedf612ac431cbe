//! The payload of a frame: one run of bytes, which needs no list, or several.

use bytes::{Bytes, BytesMut};

/// One run, or parts that are sent behind one another.
#[derive(Clone, Debug)]
pub enum Parts {
    /// In one run: every frame as it is received, and most as they are sent.
    One(Bytes),
    /// In several.
    Many(Vec<Bytes>),
}

impl Parts {
    /// In the order in which they are sent.
    #[must_use]
    pub fn as_slice(&self) -> &[Bytes] {
        match self {
            Parts::One(part) => std::slice::from_ref(part),
            Parts::Many(parts) => parts,
        }
    }

    /// Sum of the lengths of all parts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Parts::One(part) => part.len(),
            Parts::Many(parts) => parts.iter().map(Bytes::len).sum(),
        }
    }

    /// One run of bytes; copies only where there are several.
    #[must_use]
    pub fn join(self) -> Bytes {
        match self {
            Parts::One(part) => part,
            Parts::Many(mut parts) if parts.len() == 1 => parts.swap_remove(0),
            Parts::Many(parts) => {
                let mut out = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
                parts.iter().for_each(|part| out.extend_from_slice(part));
                out.freeze()
            }
        }
    }
}

impl From<Bytes> for Parts {
    fn from(part: Bytes) -> Parts {
        Parts::One(part)
    }
}

impl From<Vec<Bytes>> for Parts {
    fn from(parts: Vec<Bytes>) -> Parts {
        Parts::Many(parts)
    }
}

impl PartialEq for Parts {
    fn eq(&self, other: &Parts) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Parts {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_the_same_bytes_in_one_run_or_several() {
        let several =
            Parts::from(vec![Bytes::from_static(b"ab"), Bytes::new(), Bytes::from_static(b"c")]);
        let one = Parts::from(Bytes::from_static(b"abc"));
        assert_eq!((several.bytes(), one.bytes()), (3, 3));
        assert_eq!((several.as_slice().len(), one.as_slice().len()), (3, 1));
        assert_eq!(several.join(), one.join());
        assert_eq!(Parts::from(Vec::new()).join(), Bytes::new());
        assert_eq!(
            Parts::from(vec![Bytes::from_static(b"a")]),
            Parts::One(Bytes::from_static(b"a"))
        );
    }
}
