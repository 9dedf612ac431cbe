//! **fence**: a client loses all servers in the middle of an append and is evicted. Another client
//! appends. Then the OSTs can be reached again, and the first client's messages arrive late. No
//! record that was acknowledged to any client is overwritten. Once the first client reaches the MDT
//! too, it opens the file again and appends.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use client::Client;
use env_sim::{Cut, NodeHandle};
use layout::Template;
use oracle::test_ctx;
use types::{Fid, Span, TargetKind};

use super::{O_EXCL, O_RDWR, Stage};
use crate::run::PEACE_MAX;

/// Clients that vanish in one run.
const ROUNDS: u8 = 4;
/// Appends of each of them, until it is cut off.
const APPENDS: u8 = 12;
/// Values of the records of one round.
const VALUES: u8 = 16;
/// Each append is one record of so many bytes of one value.
const RECORD: usize = 3_000;

const O_APPEND: u32 = 0o2000;

/// Records by their value, and whether they were acknowledged.
type Told = BTreeMap<u8, bool>;

impl Stage<'_> {
    pub(super) fn fence(&mut self) -> Result<(), String> {
        let other = self.enter("other");
        let fid = self.ask(&other, "creating", async |client| {
            let one = Template { stripe_count: 1, ..Template::default() };
            let (attr, file) = client
                .create(&test_ctx(), Fid::ROOT, b"log", 0o666, O_RDWR | O_EXCL, Some(&one.into()))
                .await?;
            file.close().await?;
            Ok(attr.fid())
        })?;
        let mut told = Told::new();
        for round in 0..ROUNDS {
            self.vanish_while_appending(&other, fid, 1 + round * VALUES, &mut told)?;
            self.all_records_are_there(&other, fid, &told, round)?;
        }
        self.nothing_is_left(&other)
    }

    fn vanish_while_appending(
        &mut self,
        other: &(NodeHandle, Client),
        fid: Fid,
        first: u8,
        told: &mut Told,
    ) -> Result<(), String> {
        let writer = self.enter("writer");
        let file = self.ask(&writer, "opening", async move |client| {
            client.open(&test_ctx(), fid, O_RDWR | O_APPEND).await
        })?;
        let (answers, is_over) = (Rc::new(RefCell::new(Told::new())), Rc::new(Cell::new(false)));
        let (fill, over) = (answers.clone(), is_over.clone());
        writer.0.env().spawn("appends", async move {
            for value in first..first + APPENDS {
                let acked = file.write(0, record(value)).await.is_ok();
                fill.borrow_mut().insert(value, acked);
                if !acked {
                    break;
                }
            }
            over.set(true);
        });
        let cluster = self.cluster;
        if !cluster.sim.run_until(PEACE_MAX, || !answers.borrow().is_empty()) {
            return Err("the first append of a client never ends".to_owned());
        }
        self.pause(Span::micros(200 * u64::from(first))); // amid one of the others
        cluster.sim.narrate("cuts the writer off");
        for server in &cluster.servers {
            cluster.sim.partition(&writer.0, &server.node, Cut::BothWays);
        }
        self.append(other, fid, first + APPENDS)?;
        for server in &cluster.servers {
            if server.target.kind == TargetKind::Ost {
                cluster.sim.heal(&writer.0, &server.node);
            }
        }
        self.pause(Span::secs(30));
        self.append(other, fid, first + APPENDS + 1)?;
        cluster.sim.heal_all();
        if !cluster.sim.run_until(PEACE_MAX, || is_over.get()) {
            return Err("the append of the client that vanished never ends".to_owned());
        }
        // a client that was refused has given its session up, and begins another one
        self.append(&writer, fid, first + APPENDS + 2)?;
        told.extend((first + APPENDS..first + APPENDS + 3).map(|value| (value, true)));
        told.append(&mut answers.borrow_mut());
        writer.0.kill();
        Ok(())
    }

    fn append(&mut self, who: &(NodeHandle, Client), fid: Fid, value: u8) -> Result<(), String> {
        self.ask(who, "appending", async move |client| {
            let file = client.open(&test_ctx(), fid, O_RDWR | O_APPEND).await?;
            file.write(0, record(value)).await?;
            file.close().await
        })
    }

    fn all_records_are_there(
        &mut self,
        who: &(NodeHandle, Client),
        fid: Fid,
        told: &Told,
        round: u8,
    ) -> Result<(), String> {
        let most = RECORD * (usize::from(ROUNDS) * usize::from(VALUES) + 1);
        let found = self.ask(who, "reading", async move |client| {
            let file = client.open(&test_ctx(), fid, 0).await?;
            let found = file.read(0, most).await?;
            file.close().await?;
            Ok(found)
        })?;
        let mut counts = BTreeMap::new();
        for piece in found.chunks(RECORD) {
            if piece.len() < RECORD || piece.iter().any(|byte| *byte != piece[0]) {
                return Err(format!("round {round}: a record is mixed or cut"));
            }
            *counts.entry(piece[0]).or_insert(0) += 1;
        }
        for (value, acked) in told {
            let count = counts.remove(value).unwrap_or(0);
            if count > 1 || (*acked && count == 0) {
                return Err(format!(
                    "round {round}: record {value} is there {count} times; acknowledged: {acked}"
                ));
            }
        }
        match counts.keys().next() {
            Some(value) => Err(format!("round {round}: nobody wrote record {value}")),
            None => Ok(()),
        }
    }
}

const _: () = assert!(APPENDS + 3 <= VALUES && (ROUNDS as u32) * (VALUES as u32) < 255);

fn record(value: u8) -> Bytes {
    Bytes::from(vec![value; RECORD])
}
