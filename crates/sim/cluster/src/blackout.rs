//! Everything loses its power at once, clients included: defines what may be missing then, and what
//! may not.
//!
//! One MDT commits its history in order. So each user's tree must equal its state after some
//! operation since that user last made everything durable. This covers names, attributes and
//! extended attributes. Every file that was fsynced and not written since holds exactly its bytes.
//! Each block of every other file is as it was at its last sync, or has some of the changes since
//! then. A stripe whose object is lost with all its writes is EIO, and only if the stripe was
//! written since.

use std::collections::BTreeMap;

use client::Client;
use oracle::{BLOCK_BYTES, Mirror, Unsynced, read_file, read_summary, test_ctx};
use types::{Errno, Fid};

/// Compares what a fresh client finds below `base` with what the user knew.
pub(crate) async fn check(client: &Client, base: Fid, trail: Trail) -> Result<(), String> {
    let found = read_summary(client, base).await.map_err(|error| error.to_string())?;
    let lines: BTreeMap<_, _> =
        found.iter().map(|(path, (line, _))| (path.clone(), line.clone())).collect();
    if !trail.states.contains(&lines) {
        return Err(trail.describe(&lines));
    }
    let there: BTreeMap<Fid, _> = found.iter().map(|(path, (_, fid))| (*fid, path)).collect();
    for (fid, data) in &trail.synced {
        let Some(path) = there.get(fid) else {
            return Err(format!("{fid} was fsynced and is gone"));
        };
        let now = read_file(client, &test_ctx(), *fid)
            .await
            .map_err(|error| format!("{path:?}: {error}"))?;
        if now != data.as_slice() {
            let at = now.iter().zip(data).position(|(now, then)| now != then);
            return Err(format!(
                "{path:?} was fsynced with {} bytes and has {}; first difference {at:?}",
                data.len(),
                now.len()
            ));
        }
    }
    for (fid, contents) in &trail.contents {
        if let Some(path) = there.get(fid) {
            check_contents(client, *fid, contents)
                .await
                .map_err(|what| format!("{path:?} {fid}: {what}"))?;
        }
    }
    Ok(())
}

/// Read at once.
const PIECE: usize = 16 * BLOCK_BYTES;

async fn check_contents(client: &Client, fid: Fid, contents: &Unsynced) -> Result<(), String> {
    let (ctx, text) = (test_ctx(), |error: client::Error| error.to_string());
    let size = client.getattr(&ctx, fid, None).await.map_err(text)?.size as usize;
    contents.check_len(size)?;
    let file = client.open(&ctx, fid, 0).await.map_err(text)?;
    for at in (0..size).step_by(PIECE) {
        match file.read(at as u64, PIECE).await {
            Ok(found) => contents.check_data(at, &found)?,
            Err(error) if error.errno() == Errno::EIO && contents.is_changed() => {}
            Err(error) => return Err(text(error)),
        }
    }
    file.close().await.map_err(text)
}

type State = BTreeMap<oracle::Path, String>;

/// What must be there, taken from a user's mirror at the moment of the cut.
pub(crate) struct Trail {
    states: Vec<State>,
    synced: Vec<(Fid, Vec<u8>)>,
    /// Of every file that has a number.
    contents: Vec<(Fid, Unsynced)>,
}

impl Trail {
    pub(crate) fn of(mirror: &Mirror) -> Trail {
        let named = mirror.model.paths();
        let mut synced = BTreeMap::new();
        for (_, ino) in named {
            if let (Some(data), Some(fid)) = (&mirror.model.node(ino).synced, mirror.fids.get(&ino))
            {
                synced.insert(*fid, data.clone());
            }
        }
        let contents = mirror.fids.iter().filter_map(|(ino, fid)| {
            let contents = mirror.model.contents(*ino)?;
            Some((*fid, contents))
        });
        let (states, contents) = (mirror.trail.clone(), contents.collect());
        Trail { states, synced: synced.into_iter().collect(), contents }
    }

    /// The nearest state, and how it differs.
    fn describe(&self, found: &State) -> String {
        let difference = |state: &State| {
            let missing = state.iter().filter(|(path, line)| found.get(*path) != Some(*line));
            let foreign = found.iter().filter(|(path, line)| state.get(*path) != Some(*line));
            let missing: Vec<_> =
                missing.map(|(path, line)| format!("expected {path:?} {line}")).collect();
            let foreign: Vec<_> =
                foreign.map(|(path, line)| format!("found {path:?} {line}")).collect();
            [missing, foreign].concat()
        };
        let nearest =
            self.states.iter().enumerate().map(|(index, state)| (difference(state), index));
        let nearest = nearest.min_by_key(|(lines, _)| lines.len());
        let (lines, index) = nearest.expect("a trail begins with a state");
        format!(
            "the tree is none of the {} states since the last sync; nearest is {index}: {}",
            self.states.len(),
            lines.join("; ")
        )
    }
}
