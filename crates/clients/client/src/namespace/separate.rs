//! Attributes of one file as clients without batches ask for them. One request goes to the MDT,
//! then one to each object, even if the MDT knows the size. It serves to measure the gain of
//! batches.

use types::Fid;

use crate::client::Client;
use crate::data::{Question, settle};
use crate::stat::Stat;
use crate::{Attr, Ctx, Result};

/// A file whose objects have not been asked yet.
pub struct Looked(Stat);

/// How the objects of a file are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objects {
    /// One after another.
    InTurn,
    /// All at the same time.
    Together,
}

impl Client {
    /// Attributes of a name by the MDT's word, in one request.
    ///
    /// # Errors
    /// As [`Client::lookup`].
    pub async fn look(&self, ctx: &Ctx, parent: Fid, name: &[u8]) -> Result<Looked> {
        self.0.look_up_once(ctx, parent, name).await.map(|(stat, _)| Looked(stat))
    }

    /// The same with the word of all its objects, in one request each where
    /// [`Client::set_glimpse_batch`] was 1.
    ///
    /// # Errors
    /// Those of an OST.
    pub async fn ask_objects(&self, ctx: &Ctx, looked: Looked, objects: Objects) -> Result<Attr> {
        let Looked(Stat { mut attr, layout, mtime_set, stripes, .. }) = looked;
        let Some(layout) = layout else { return Ok(attr) };
        let all = Question::all(&layout);
        let mut found = crate::data::Told::new();
        let questions: Vec<Question> = match objects {
            Objects::Together => vec![all],
            Objects::InTurn => {
                let one = |stripe| Question { layout: layout.clone(), stripes: vec![stripe] };
                all.stripes.into_iter().map(one).collect()
            }
        };
        for question in questions {
            found.extend(self.0.glimpse(ctx, &[question]).await?.into_iter().flatten());
        }
        settle(&mut attr, mtime_set, &stripes, &layout, &found);
        Ok(attr)
    }
}
