//! A commit of the records: the changes that it covers, and the state in memory afterwards.

use osd::StoreError;
use types::Transno;

use crate::engine::Engine;
use crate::puts::Committing;

impl Engine {
    /// Makes everything applied so far durable and returns up to where history is now. The bytes of
    /// new files come first.
    pub(crate) async fn commit(&self) -> Result<Transno, StoreError> {
        let _keeps_their_order = Committing::begin(&self.puts);
        if let Err(error) = self.sync_new_files().await {
            self.wake_all();
            return Err(error);
        }
        let (upto, share, files, objects, destroys) = {
            let state = self.state.borrow();
            (
                state.last_transno,
                state.share.mark(),
                state.files.mark(),
                state.objects.mark(),
                state.destroy_next,
            )
        };
        if let Err(error) = self.store.commit().await {
            self.wake_all();
            return Err(error);
        }
        let mut state = self.state.borrow_mut();
        assert!(upto <= state.last_transno, "history grows while a commit is under way");
        assert!(destroys <= state.destroy_next, "so does the destroy log");
        state.share.committed(share);
        state.files.durable(files);
        state.objects.durable(objects);
        self.destroys_durable.set(self.destroys_durable.get().max(destroys));
        self.destroys_wanted.notify_one();
        Ok(upto)
    }
}
