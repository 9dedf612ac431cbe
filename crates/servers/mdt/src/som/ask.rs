//! Asks the OSTs for the objects of several files. A request to an OST has all of its objects, or
//! as many as a request may have.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::Call;
use layout::FileLayout;
use tokio::sync::oneshot::{Receiver, channel};
use types::{Fid, Instant, Span, TargetId};
use wire::body::{ObjectRange, OstAttr, OstBatchReq};
use wire::{Opcode, decode_body, encode_body};
use zerocopy::IntoBytes;

use crate::target::Mdt;

/// Objects of one request.
const OBJECTS_MAX: usize = 1_024;

/// How long an OST may think.
const PATIENCE: Span = Span::secs(5);

/// An OST that did not answer is not asked for this long, because all files wait for an answer.
const AWAY_REST: Span = Span::secs(30);

/// OSTs that did not answer, and until when they are not asked.
#[derive(Debug, Default)]
pub(crate) struct Away(BTreeMap<u32, Instant>);

/// An object of one of the files.
#[derive(Clone, Copy)]
struct Object {
    file: usize,
    stripe: usize,
    range: ObjectRange,
}

/// The objects of each file in stripe order. None where an OST of the file does not answer.
pub(crate) async fn objects(
    mdt: &Rc<Mdt>,
    layouts: &[Option<&FileLayout>],
    away: &mut Away,
) -> Vec<Option<Vec<OstAttr>>> {
    let now = mdt.env.now();
    away.0.retain(|_, until| *until > now);
    let mut answers: Vec<Vec<Option<OstAttr>>> = layouts.iter().map(|of| unknown(*of)).collect();
    let mut asks = Vec::new();
    for (ost, objects) in by_ost(layouts) {
        if away.0.contains_key(&ost) {
            continue;
        }
        for some in objects.chunks(OBJECTS_MAX) {
            asks.push((ost, some.to_vec(), ask(mdt, ost, some)));
        }
    }
    for (ost, objects, asking) in asks {
        let Ok(Some(attrs)) = asking.await else {
            away.0.insert(ost, mdt.env.now() + AWAY_REST);
            continue;
        };
        for (object, attr) in objects.iter().zip(attrs) {
            answers[object.file][object.stripe] = Some(attr);
        }
    }
    answers.into_iter().map(|of_file| of_file.into_iter().collect()).collect()
}

fn unknown(layout: Option<&FileLayout>) -> Vec<Option<OstAttr>> {
    vec![None; layout.map_or(0, |layout| layout.stripes() as usize)]
}

/// By the OST, or the data target, that has them.
fn by_ost(layouts: &[Option<&FileLayout>]) -> BTreeMap<u32, Vec<Object>> {
    let mut by_ost = BTreeMap::<u32, Vec<Object>>::new();
    for (file, layout) in layouts.iter().enumerate() {
        for (stripe, object, ost) in layout.iter().flat_map(|layout| layout.objects()) {
            let base = Fid { ver: 0, ..object };
            let range = ObjectRange { base: base.into(), first: object.ver, count: 1 };
            by_ost.entry(ost.0).or_default().push(Object { file, stripe: stripe as usize, range });
        }
    }
    by_ost
}

/// Nothing where the OST does not answer as it should.
fn ask(mdt: &Rc<Mdt>, ost: u32, objects: &[Object]) -> Receiver<Option<Vec<OstAttr>>> {
    let (tell, told) = channel();
    let ranges: Vec<ObjectRange> = objects.iter().map(|object| object.range).collect();
    let mdt = mdt.clone();
    mdt.env.clone().spawn("mdt_som_ost", async move {
        let _gone = tell.send(ask_once(&mdt, ost, &ranges).await);
    });
    told
}

async fn ask_once(mdt: &Mdt, ost: u32, ranges: &[ObjectRange]) -> Option<Vec<OstAttr>> {
    let endpoint = mdt.osts.clone()?;
    let store = mdt.engine.state.borrow().number;
    let body = OstBatchReq { count: ranges.len() as u32, store, ..OstBatchReq::default() };
    let objects = Bytes::copy_from_slice(ranges.as_bytes());
    let mut call = Call::new(Opcode::OstGlimpse, vec![encode_body(&body), objects]);
    call.patience = Some(PATIENCE);
    match endpoint.remote(TargetId::ost(ost)).call(call).await {
        Ok(answer) => {
            let attrs = answer.reply.buf(1);
            let attrs = attrs.chunks_exact(size_of::<OstAttr>()).map(decode_body);
            let attrs: Vec<OstAttr> = attrs.take(ranges.len()).collect();
            (attrs.len() == ranges.len()).then_some(attrs)
        }
        Err(error) => {
            tracing::debug!(target: "mdt", target_id = %TargetId::ost(ost).name(mdt.engine.config.fsname), %error, "sizes of objects are not known");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use layout::Layout;

    use super::*;

    #[test]
    fn an_ost_is_asked_for_its_objects_of_all_files_together() {
        let of = |oid, osts: &[u32]| {
            let count = u16::try_from(osts.len()).expect("a few");
            let plain = Layout::plain(Fid::new(0x500, oid), 1 << 16, count);
            FileLayout::from(Layout { osts: osts.to_vec(), ..plain })
        };
        let (one, other) = (of(1, &[4, 2]), of(9, &[2]));
        let asked = by_ost(&[Some(&one), None, Some(&other)]);
        let of_ost = |ost: u32| {
            let objects = asked[&ost].iter();
            let object = |object: &Object| {
                let base = Fid::from(object.range.base);
                (object.file, object.stripe, base.oid, object.range.first)
            };
            objects.map(object).collect::<Vec<_>>()
        };
        assert_eq!(asked.len(), 2);
        assert_eq!(of_ost(4), [(0, 0, 1, 0)]);
        assert_eq!(of_ost(2), [(0, 1, 1, 1), (2, 0, 9, 0)]);
    }
}
