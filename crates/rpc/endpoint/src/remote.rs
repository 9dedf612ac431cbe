//! The remote.
use std::rc::Rc;
use types::{TargetId, Transno, Instance};
use crate::{Call, Answer, CallError};

/// One target.
pub struct Remote {}

impl Remote {
    /// Id.
    pub fn id(&self) -> TargetId { unimplemented!() }
    /// Call.
    pub async fn call(self: &Rc<Self>, _call: Call) -> Result<Answer, CallError> { unimplemented!() }
    /// Durable up to here.
    pub fn last_committed(&self) -> Transno { unimplemented!() }
    /// Instance.
    pub fn instance(&self) -> Instance { unimplemented!() }
    /// Connected.
    pub fn is_connected(&self) -> bool { unimplemented!() }
    /// State.
    pub fn state(&self) -> String { unimplemented!() }
    /// Unstable bytes.
    pub fn unstable_bytes(&self) -> u64 { unimplemented!() }
    /// Hook.
    pub fn on_evicted(&self, _hook: Rc<dyn Fn()>) {}
    /// Hook.
    pub fn on_recovery(&self, _hook: Rc<dyn Fn() -> Vec<Call>>) {}
    /// Active.
    pub fn set_active(&self, _active: bool) {}
    /// For whom it waits.
    pub fn waiting_on(&self) -> Option<String> { None }
    /// Sync call.
    pub fn set_commit_call(&self, _call: Call) {}
}
