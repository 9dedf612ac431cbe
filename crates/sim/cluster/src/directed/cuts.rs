//! **cuts**: two clients cut a file of several objects at the same moment, each to a length of its
//! own. For all clients, the file then has one of the two lengths. Its bytes are there up to the
//! shorter one, and zeros behind it. Servers die in some of the rounds.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, SetAttr};
use env_sim::NodeHandle;
use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use layout::{Asked, Template};
use oracle::test_ctx;
use types::{Fid, Span};

use super::{O_EXCL, O_RDWR, Stage};
use crate::run::PEACE_MAX;

const ROUNDS: u32 = 16;
/// From here on files have their first bytes at the MDT.
const AT_MDT_FROM: u32 = 12;
const STRIPE: u32 = 64 << 10;
/// Bytes of the file before the cuts; a cut may make it half as long again.
const BYTES: u64 = 8 * STRIPE as u64;
const O_TRUNC: u32 = 0o1000;

type Told = Rc<RefCell<Option<client::Result<()>>>>;

impl Stage<'_> {
    pub(super) fn cuts(&mut self) -> Result<(), String> {
        let cutters = [self.enter("cutter"), self.enter("cutter")];
        let reader = self.enter("reader");
        for round in 0..ROUNDS {
            self.cut_twice(round, &cutters, &reader)
                .map_err(|why| format!("round {round}: {why}"))?;
        }
        self.nothing_is_left(&reader)
    }

    fn cut_twice(
        &mut self,
        round: u32,
        cutters: &[(NodeHandle, Client); 2],
        reader: &(NodeHandle, Client),
    ) -> Result<(), String> {
        let name = format!("cut{round}");
        let fid = self.ask(reader, "making the file", async move |client| {
            let (flags, asked) = (O_RDWR | O_EXCL, layout(round));
            let (attr, file) = client
                .create(&test_ctx(), Fid::ROOT, name.as_bytes(), 0o666, flags, Some(&asked))
                .await?;
            file.write(0, Bytes::from(vec![1; BYTES as usize])).await?;
            file.close().await?;
            Ok(attr.fid())
        })?;
        let lengths = [(); 2].map(|()| self.draw_length());
        let told: [Told; 2] = Default::default();
        for (((node, client), to), told) in cutters.iter().zip(lengths).zip(&told) {
            let (client, told) = (client.clone(), told.clone());
            node.env().spawn("cuts", async move {
                let done = cut(&client, fid, to).await;
                *told.borrow_mut() = Some(done);
            });
            self.pause(Span::micros(300));
        }
        if self.rng.chance(250_000) {
            self.restart_one();
        }
        self.ops += 2;
        let is_over = || told.iter().all(|told| told.borrow().is_some());
        if !self.cluster.sim.run_until(PEACE_MAX, is_over) {
            return Err(format!("a cut to one of {lengths:?} is never answered"));
        }
        for told in told {
            let told = told.borrow_mut().take().expect("it is over");
            told.map_err(|error| format!("a cut: {error}"))?;
        }
        let fresh = self.enter("fresh");
        for who in [&cutters[0], &cutters[1], reader, &fresh] {
            self.see_one_order(who, fid, lengths)?;
        }
        fresh.0.kill();
        Ok(())
    }

    /// One of four is empty: such a cut may come with an open.
    fn draw_length(&mut self) -> u64 {
        if self.rng.chance(250_000) { 0 } else { self.rng.below(BYTES * 3 / 2) }
    }

    fn see_one_order(
        &mut self,
        who: &(NodeHandle, Client),
        fid: Fid,
        lengths: [u64; 2],
    ) -> Result<(), String> {
        let (size, read) = self.ask(who, "looking", async move |client| {
            let size = client.getattr(&test_ctx(), fid, None).await?.size;
            let file = client.open(&test_ctx(), fid, 0).await?;
            let read = file.read(0, 2 * BYTES as usize).await?;
            file.close().await?;
            Ok((size, read))
        })?;
        let (count, kept) = (read.len() as u64, lengths[0].min(lengths[1]).min(BYTES) as usize);
        if !lengths.contains(&size) || count != size {
            return Err(format!("after cuts to {lengths:?} the size is {size}; {count} are read"));
        }
        let wrong = (0..read.len()).find(|at| read[*at] != u8::from(*at < kept));
        match wrong {
            Some(at) => Err(format!("after cuts to {lengths:?} byte {at} is {}", read[at])),
            None => Ok(()),
        }
    }
}

fn layout(round: u32) -> Asked {
    let striped = Template { stripe_size: STRIPE, stripe_count: -1, ..Template::default() };
    if round < AT_MDT_FROM {
        return striped.into();
    }
    let component = |end, wanted| TemplateComponent { end, wanted };
    let at_mdt = component(u64::from(STRIPE), Wanted::Mdt);
    let components = vec![at_mdt, component(END_OF_FILE, Wanted::Striped(striped))];
    Asked::Composite(CompositeTemplate { components })
}

async fn cut(client: &Client, fid: Fid, to: u64) -> client::Result<()> {
    if to == 0 && fid.oid.is_multiple_of(2) {
        return client.open(&test_ctx(), fid, O_RDWR | O_TRUNC).await?.close().await;
    }
    let set = SetAttr { size: Some(to), ..SetAttr::default() };
    client.setattr(&test_ctx(), fid, &set, None).await.map(drop)
}
