//! The state that an MDT keeps in memory only: open files, id ranges, shared keys. A restart
//! rebuilds it from replays.

use std::collections::BTreeSet;
use std::rc::Rc;

use layout::Template;
use layout::composite::extend::Chosen;
use ldlm::grants::{Bits, HolderId};
use target::{Decided, Marks, OpError};
use types::{Fid, Timespec, Transno};

use crate::config::{Dirs, Lod, Split};
use crate::cross::Crossed;
use crate::effect::Effect;
use crate::fences::Fences;
use crate::grants::Grants;
use crate::hash::HashKey;
use crate::ids::Ids;
use crate::mdts::Mdts;
use crate::moves::Moves;
use crate::opens::Opens;
use crate::puts::{Bringing, Making};
use crate::share::Share;
use crate::som::Som;
use crate::spaces::{OstAt, Spaces};
use crate::tx::Here;

/// Memory of one instance.
pub(crate) struct State {
    /// Of the store, drawn when it was made.
    pub(crate) number: u64,
    pub(crate) hash_key: HashKey,
    pub(crate) opens: Opens,
    pub(crate) files: Ids,
    pub(crate) objects: Ids,
    pub(crate) share: Share,
    /// Operations of several MDTs.
    pub(crate) crossed: Crossed,
    pub(crate) grants: Grants,
    pub(crate) fences: Fences,
    pub(crate) spaces: Spaces,
    /// Directories and shards whose names move.
    pub(crate) moves: Moves,
    pub(crate) lod: Lod,
    pub(crate) dirs: Dirs,
    /// What its administrator said of this MDT.
    pub(crate) marks: Rc<Marks>,
    pub(crate) mdts: Mdts,
    pub(crate) split: Split,
    /// Files whose sizes are to be found out.
    pub(crate) som: Som,
    /// Number of the next record of the destroy log.
    pub(crate) destroy_next: u64,
    /// Highest transno ever applied.
    pub(crate) last_transno: Transno,
    /// Handles whose close was durable when this instance started, though the client may not have
    /// heard so.
    pub(crate) closed: BTreeSet<u64>,
    /// Everything up to here was durable when this instance started: a replay of it only rebuilds
    /// memory.
    pub(crate) boot_committed: Transno,
    /// First FID that this run gives out. An older file may have objects although it says that it
    /// was never written: the mark of an open or a truncate may have been lost with the client that
    /// wrote.
    pub(crate) first_file: Fid,
    /// Ids that files of earlier runs gave to others in this run: who reads all layouts one after
    /// the other may miss them.
    pub(crate) swapped: BTreeSet<(u64, u32)>,
    /// The operation that was applied last is durable before it is answered.
    pub(crate) is_stretched: bool,
    /// Files that are being made with all of their bytes.
    pub(crate) making: Making,
    /// Files whose bytes a close has brought, and which are being written.
    pub(crate) bringing: Bringing,
}

impl State {
    /// What stays the same for all operations of this run.
    pub(crate) fn here(&self) -> Here {
        let State { hash_key, first_file, .. } = *self;
        Here { mdt: self.crossed.here, hash_key, first_file }
    }

    pub(crate) fn draw_fid(&mut self) -> Decided<Fid> {
        self.files.draw().ok_or(OpError::CommitFirst)
    }

    /// The object of this file is about to be written. A replay has an id that a restart burnt.
    pub(crate) fn making_begins(&mut self, fid: Fid, replay: bool) {
        if !replay {
            self.making.begin(fid);
        }
    }

    /// A fresh object base.
    pub(crate) fn draw_object(&mut self) -> Decided<Fid> {
        self.objects.draw().ok_or(OpError::CommitFirst)
    }

    /// OSTs for a file, those with room for `bytes` each if there are such.
    pub(crate) fn place(
        &mut self,
        template: &Template,
        osts: &[OstAt],
        now: Timespec,
        bytes: u64,
    ) -> Decided<Chosen> {
        let now = u64::try_from(now.sec).unwrap_or(0);
        let chosen = self.spaces.place(template, osts, &self.lod.policy, now, bytes);
        chosen.map_err(|error| OpError::Refused(error.errno()))
    }

    /// Carries out what an applied operation decided.
    pub(crate) fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Opened { handle, file, epoch, prior } => {
                    self.opens.open(handle, file, epoch, prior)
                }
                Effect::Closed { handle, wrote, cleaned } => {
                    let dirty = self.opens.get(handle).filter(|open| open.write && !cleaned);
                    self.opens.close(handle, wrote, cleaned);
                    let is_left = |fid: &Fid| self.opens.writers(*fid) == 0;
                    if let Some(fid) = dirty.map(|open| open.fid).filter(is_left) {
                        self.som.found(fid);
                    }
                }
                Effect::Dirtied { fid, epoch } => self.opens.dirtied(fid, epoch),
                Effect::Cut { fid, by } => self.opens.cut(fid, by),
                Effect::CutEnded { fid, by } => {
                    self.opens.cut_ended(fid, by);
                    if self.opens.writers(fid) == 0 {
                        self.som.found(fid); // its size may not have been believed
                    }
                }
                Effect::Cleaned(fid) => self.opens.cleaned(fid),
                Effect::Gone(fid) => self.opens.cleaned(fid),
                Effect::DestroyLogged => self.destroy_next += 1,
                Effect::Leased { fid, client, from } => self.grants.give(fid, client, from),
                Effect::Given { gifts, number } => self.grants.called.give_all(&gifts, number),
                Effect::Swapped { bases, other } if other < self.first_file => {
                    self.swapped.extend(bases.iter().map(|base| (base.seq, base.oid)));
                }
                Effect::Stretched(file) => self.share.stretched(file),
                Effect::Put(file) => {
                    self.share.put(file);
                    self.making.end(file);
                }
                Effect::Swapped { .. } => {} // ids of this run are not swept
                Effect::NamesMoved { from, to, at } => self.grants.carry(from, to, at),
                Effect::Settles { fid, at } => self.grants.settle(fid, at),
                Effect::Resized { dir, bytes, has_grown } => {
                    self.moves.resized(dir, bytes, has_grown);
                }
                Effect::Moving { dir, is_on } => self.moves.set(dir, is_on),
                Effect::Keeps { session, fid } => {
                    self.grants.called.keep(HolderId(session), fid, Bits::WRITE);
                }
                Effect::KeepsNoMore { session, fid, at } => {
                    if self.opens.writers(fid) == 0 {
                        self.grants.called.drop_bits(HolderId(session), fid, Bits::WRITE, at);
                    }
                }
            }
        }
    }
}
