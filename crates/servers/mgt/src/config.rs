//! Settings of the MGT.

use types::Span;

/// Settings of the MGT. One MGT serves any number of file systems.
#[derive(Clone, Debug)]
pub struct MgtConfig {
    /// How long returning clients are waited for. The MGT commits before it answers, so nothing is
    /// ever replayed: zero.
    pub recovery_window: Span,
    /// Silence after which a session may be evicted.
    pub lease: Span,
}

impl Default for MgtConfig {
    fn default() -> MgtConfig {
        MgtConfig { recovery_window: Span::ZERO, lease: Span::secs(150) }
    }
}
