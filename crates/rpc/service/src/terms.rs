//! The parts that all requests of a node share: its environment, the account of pulled bytes, and
//! the time settings.

use std::cell::Cell;
use std::rc::Rc;

use env::Env;
use ptlrpc::AtConfig;
use types::{ClientId, CptIndex};

use crate::account::{Account, Share};
use crate::limits;

/// Shared by all requests of a node.
pub(crate) struct Terms {
    pub(crate) env: Env,
    /// Data up to this size rides in a reply.
    pub(crate) inline_bytes: u32,
    pub(crate) at: Cell<AtConfig>,
    /// Pulled bytes that each CPT may still hold, in units of [`limits::BULK_UNIT`].
    per_cpt: Vec<Account>,
}

impl Terms {
    pub(crate) fn new(env: &Env, cpts: usize, inline_bytes: u32, bulk_bytes_max: u64) -> Rc<Terms> {
        assert!(cpts > 0, "a node has a CPT");
        let units =
            u32::try_from(bulk_bytes_max / limits::BULK_UNIT as u64).unwrap_or(u32::MAX).max(1);
        let per_cpt = (0..cpts).map(|_| Account::new(units)).collect();
        Rc::new(Terms { env: env.clone(), inline_bytes, at: Cell::default(), per_cpt })
    }

    /// Waits until `len` more bytes of `client` may be pulled on `cpt`. A bulk larger than the
    /// whole account takes all of it.
    pub(crate) async fn reserve(&self, cpt: CptIndex, client: ClientId, len: usize) -> Share {
        let units = u32::try_from(len.div_ceil(limits::BULK_UNIT)).expect("a bulk is bounded");
        self.per_cpt[cpt.0 as usize].take(client, units).await
    }
}
