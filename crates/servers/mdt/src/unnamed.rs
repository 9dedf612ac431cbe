//! Objects that no file names, and their removal.
//!
//! An MDT that was made from an export does not know the files that were made after it. Their
//! objects stay on the OSTs until an administrator has them removed.
//!
//! An object counts as unnamed only if all of these hold:
//! - This MDT's store made it.
//! - The store has already given its id.
//! - The file of its record has no layout of that id.
//! - The file is not about to be made with all of its bytes: that one has its object before its
//!   layout.
//!
//! No id is given twice, so no file that is made meanwhile names it. During recovery a replay may
//! still bring a name back, so the MDT refuses to answer.
//!
//! Objects go by the destroy log, like those of removed files. Looking at names and writing the log
//! are one step. An OST is asked when that and everything before it are durable. So no crash leaves
//! a name whose object is gone.

use std::collections::BTreeMap;
use std::rc::Rc;

use endpoint::{Call, Endpoint};
use layout::{FileLayout, STRIPE_COUNT_MAX};
use osd::{Table, View, WriteSet};
use service::Target;
use target::{Decided, OpError};
use types::{Errno, Fid, Span, TargetId};
use wire::body::{OstListReq, OstListed};
use wire::{Opcode, encode_body};
use zerocopy::FromBytes;

use crate::engine::Engine;
use crate::named::{layout_of, names_base};
use crate::record::DestroyRecord;
use crate::target::Mdt;

/// Objects that an OST is asked for at once, and the most that one set removes.
const OBJECTS_AT_ONCE: u32 = 256;
/// An OST that does not answer for so long is away.
const PATIENCE: Span = Span::secs(10);

/// An object that no file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unnamed {
    pub object: Fid,
    /// The file for which it was made.
    pub file: Fid,
    pub size: u64,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnnamedError {
    #[error("the MDT is in recovery: clients may still bring names back")]
    Recovering,
    #[error("the MDT is older than {object}: it may give this id again")]
    Younger { object: Fid },
    #[error("it has no way to its OSTs")]
    Alone,
    #[error("the OST does not list its objects: {0}")]
    Ost(String),
    #[error("{}", .0.text())]
    Store(Errno),
}

impl UnnamedError {
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            UnnamedError::Recovering => Errno::EAGAIN,
            UnnamedError::Younger { .. } => Errno::ESTALE,
            UnnamedError::Alone => Errno::ENODEV,
            UnnamedError::Ost(_) => Errno::EIO,
            UnnamedError::Store(errno) => *errno,
        }
    }
}

/// A page of an OST's objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnnamedPage {
    pub objects: Vec<Unnamed>,
    /// The last object that was looked at; none behind the end.
    pub last: Option<Fid>,
}

/// Objects that an OST has, from `from` on, in the order of their FIDs: none behind the last one.
pub async fn list_objects(
    endpoint: &Rc<Endpoint>,
    ost: u32,
    from: Fid,
) -> Result<Vec<OstListed>, UnnamedError> {
    let body = OstListReq { from: from.into(), count: OBJECTS_AT_ONCE, reserved: 0 };
    let mut call = Call::new(Opcode::OstList, vec![encode_body(&body)]);
    call.patience = Some(PATIENCE);
    let answer = endpoint.remote(TargetId::ost(ost)).call(call).await;
    let answer = answer.map_err(|error| UnnamedError::Ost(error.to_string()))?;
    let array = answer.reply.buf(1);
    let entries = array.chunks_exact(size_of::<OstListed>());
    Ok(entries.map(|entry| OstListed::read_from_bytes(entry).expect("its size")).collect())
}

impl Mdt {
    /// The unnamed objects of a page, which are put into the destroy log with `remove`.
    pub async fn unnamed(
        &self,
        ost: u32,
        from: Fid,
        remove: bool,
    ) -> Result<UnnamedPage, UnnamedError> {
        let endpoint = self.osts.as_ref().ok_or(UnnamedError::Alone)?;
        let listed = list_objects(endpoint, ost, from).await?;
        let last = listed.last().map(|last| Fid::from(last.object));
        if self.exports().is_recovering() {
            return Err(UnnamedError::Recovering);
        }
        let found = self.persist(|| self.engine.unnamed((ost, &listed), remove)).await;
        let objects = found.map_err(UnnamedError::Store)??;
        Ok(UnnamedPage { objects, last })
    }
}

impl Engine {
    /// Changes nothing where it fails.
    pub(crate) fn unnamed(
        &self,
        (ost, listed): (u32, &[OstListed]),
        remove: bool,
    ) -> Decided<Result<Vec<Unnamed>, UnnamedError>> {
        let view = self.store.meta().running()?;
        let mut state = self.state.borrow_mut();
        let mut found = Vec::new();
        let nameless = nameless(&*view)?;
        for one in listed.iter().filter(|one| one.store == state.number) {
            let (object, file) = (Fid::from(one.object), Fid::from(one.parent));
            let base = object.stripe(0);
            let ids = if TargetId::ost(ost).is_dom() { &state.files } else { &state.objects };
            if !ids.may_have_given(base) {
                return Ok(Err(UnnamedError::Younger { object }));
            }
            let is_theirs = || nameless.iter().any(|layout| layout.has_base(base));
            if object.ver < u32::from(STRIPE_COUNT_MAX)
                && !state.making.has(file)
                && is_unnamed(&*view, file, base)?
                && !is_theirs()
            {
                found.push(Unnamed { object, file, size: one.size });
            }
        }
        drop(view);
        if remove && !found.is_empty() {
            let mut set = WriteSet::new();
            let mut number = state.destroy_next;
            for record in records(ost, &found) {
                set.put(Table::Destroys, number.to_be_bytes(), record.encode());
                number += 1;
            }
            self.apply_own(&set)?;
            state.destroy_next = number;
        }
        Ok(Ok(found))
    }
}

/// Layouts of files without a name: their objects may have been made for the file that will take
/// them over.
fn nameless(view: &dyn View) -> Decided<Vec<FileLayout>> {
    let mut files = Vec::new();
    view.scan(Table::Orphans, &[0], &mut |key, _| {
        files.extend(Fid::from_key(key));
        true
    })?;
    let mut layouts = Vec::new();
    for file in files {
        layouts.extend(layout_of(view, file)?);
    }
    Ok(layouts)
}

/// A record whose file cannot be read is no reason to destroy anything.
fn is_unnamed(view: &dyn View, file: Fid, base: Fid) -> Decided<bool> {
    match names_base(view, file, base) {
        Ok(is_named) => Ok(!file.is_zero() && !is_named),
        Err(OpError::Broken(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// For the destroy log: of each id all stripes up to the highest that was found, on this OST. None
/// of them has a name, because the id has none.
fn records(ost: u32, found: &[Unnamed]) -> Vec<DestroyRecord> {
    let mut stripes: BTreeMap<Fid, u32> = BTreeMap::new();
    for Unnamed { object, .. } in found {
        let upto = stripes.entry(object.stripe(0)).or_default();
        *upto = (*upto).max(object.ver + 1);
        assert!(*upto <= u32::from(STRIPE_COUNT_MAX), "only stripes that a file can have go");
    }
    let record = |(base, upto): (Fid, u32)| DestroyRecord { base, osts: vec![ost; upto as usize] };
    stripes.into_iter().map(record).collect()
}
