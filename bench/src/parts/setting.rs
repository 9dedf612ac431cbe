//! A setting that our own driver and a public one run alike.

/// Options that both drivers have, and what the rows have to reach.
#[derive(Clone, Copy)]
pub(super) struct Setting<B> {
    /// The part that the rows belong to.
    pub(super) part: &'static str,
    /// Processes.
    pub(super) tasks: &'static str,
    pub(super) options: &'static [&'static str],
    pub(super) bounds: B,
}
