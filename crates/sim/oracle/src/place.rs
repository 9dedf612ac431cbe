//! Directories on a wanted MDT.

use client::{Client, Ctx};
use layout::dir::Asked;
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
    mdt: u32,
) -> client::Result<Attr> {
    let index = i32::try_from(mdt).expect("there are few MDTs");
    let spread = Asked { index, ..Asked::default() };
    client.mkdir_spread(ctx, parent, name, mode, Some(&spread)).await
}

/// Makes a directory whose names are spread over `count` MDTs from `mdt` on.
///
/// # Errors
/// As the client's call.
pub async fn mkdir_striped(
    client: &Client,
    ctx: &Ctx,
    (parent, name): (Fid, &[u8]),
    mode: u32,
    (mdt, count): (u32, u32),
) -> client::Result<Attr> {
    let index = i32::try_from(mdt).expect("there are few MDTs");
    let spread = Asked { index, count, ..Asked::default() };
    client.mkdir_spread(ctx, parent, name, mode, Some(&spread)).await
}
