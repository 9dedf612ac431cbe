//! Directories on a wanted MDT.

use client::{Client, Ctx};
use layout::dir::Asked;
use types::{Errno, Fid};
use wire::Attr;

/// An MDT that is away is asked for so often: each time the answer takes some seconds.
const TRIES: u32 = 100;

/// Makes a directory with this name on MDT `mdt`. One that is away is waited for.
///
/// # Errors
/// As the client's call.
pub async fn mkdir_at(
    client: &Client,
    ctx: &Ctx,
    at: (Fid, &[u8]),
    mode: u32,
    mdt: u32,
) -> client::Result<Attr> {
    mkdir_striped(client, ctx, at, mode, (mdt, 1)).await
}

/// Makes a directory whose names are spread over `count` MDTs from `mdt` on. One that is away is
/// waited for.
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
    for _ in 1..TRIES {
        match client.mkdir_spread(ctx, parent, name, mode, Some(&spread)).await {
            Err(error) if error.errno() == Errno::ENODEV => {}
            answer => return answer,
        }
    }
    client.mkdir_spread(ctx, parent, name, mode, Some(&spread)).await
}
