//! The checks of the owner of an object.

use service::Incoming;
use types::{Errno, Fid};

use crate::owners::{Known, known};
use crate::record::{NO_LAYOUT, ObjectRecord, Owner, object_record};
use crate::target::Ost;

impl Ost {
    /// The object's record is this from now on.
    pub(crate) fn note_record(&self, object: Fid, record: &ObjectRecord) {
        if let Some(known) = known(record) {
            self.owners.note(object, known);
        }
    }

    /// Refuses an object that is not `claimed`'s, and a layout that is older than the object was
    /// told: a replay is of the time before. Called under the object's lock.
    pub(crate) async fn check_owner(
        &self,
        incoming: &Incoming,
        object: Fid,
        claimed: Owner,
        layout_version: u32,
    ) -> Result<(), Errno> {
        let Some(known) = self.check_owned(incoming, object, claimed).await? else { return Ok(()) };
        let is_gone = known.layout_version == NO_LAYOUT;
        let is_refused = is_gone || layout_version < known.layout_version;
        // of a replay, the change itself sees whether the object is gone
        let is_passed = incoming.is_replay() || self.config.bugs.believe_old_layouts();
        if !is_refused || is_passed {
            return Ok(());
        }
        planted::reached("ost: an old layout was refused");
        Err(Errno::ESTALE)
    }

    /// Refuses an object that is not `claimed`'s.
    pub(crate) async fn check_owned(
        &self,
        incoming: &Incoming,
        object: Fid,
        claimed: Owner,
    ) -> Result<Option<Known>, Errno> {
        let known = match self.owners.get(object) {
            Some(known) => Some(known),
            None => {
                let record = self.store.look(|view| object_record(view, object)).await?;
                record.and_then(|record| known(&record))
            }
        };
        let Some(known) = known else { return Ok(None) };
        self.owners.note(object, known);
        let owner = known.owner;
        if known.is_of(&claimed) {
            return Ok(Some(known));
        }
        planted::reached("ost: an object of another file was refused");
        tracing::error!(
            %object,
            owner = %owner.parent,
            store = owner.store,
            claimed = %claimed.parent,
            by_store = claimed.store,
            client = %incoming.session.name,
            "refused: the object belongs to another file"
        );
        Err(Errno::EIO)
    }
}
