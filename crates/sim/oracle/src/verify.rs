//! Reads a whole tree through a client and compares it with the model, as a user would see it.

use std::collections::BTreeMap;

use client::{Client, Ctx};
use types::Fid;

use crate::check::{compare_attr, compare_data};
use crate::model::{Body, Model, ROOT};
use crate::op::{Path, xattr_name};
use crate::run::{read_names, test_ctx};

/// Everything that the model has must be below `base`, and nothing else.
pub async fn verify_tree(client: &Client, base: Fid, model: &Model) -> Result<(), String> {
    let ctx = test_ctx();
    let mut fids = BTreeMap::from([(Path(Vec::new()), base)]);
    let paths = model.paths();
    for (path, ino) in &paths {
        let fid = fids[path];
        let wrong = |what: String| format!("{path:?} {fid}: {what}");
        if *ino != ROOT {
            let attr =
                client.getattr(&ctx, fid, None).await.map_err(|error| wrong(error.to_string()))?;
            compare_attr(model.node(*ino), &attr).map_err(wrong)?;
        }
        verify_xattrs(client, &ctx, fid, model, *ino).await.map_err(wrong)?;
        match &model.node(*ino).body {
            Body::Dir { entries, .. } => {
                let found = read_names(client, &ctx, fid, 1 << 16)
                    .await
                    .map_err(|error| wrong(error.to_string()))?;
                let mut names: Vec<_> = found.iter().map(|(name, _)| name.clone()).collect();
                names.sort();
                if !names.iter().eq(entries.keys()) {
                    return Err(wrong(format!("names {names:?}, expected {:?}", entries.keys())));
                }
                for (name, attr) in found {
                    fids.insert(path.join(&name), attr.fid());
                }
            }
            Body::File { data } => verify_data(client, &ctx, fid, data).await.map_err(wrong)?,
            Body::Symlink { target } => {
                let found =
                    client.readlink(&ctx, fid).await.map_err(|error| wrong(error.to_string()))?;
                compare_data(target.as_bytes(), &found).map_err(wrong)?;
            }
            Body::Fifo => {}
        }
    }
    verify_identities(&fids, &paths)
}

/// Two paths have one FID exactly where the model has one node.
fn verify_identities(fids: &BTreeMap<Path, Fid>, paths: &[(Path, u64)]) -> Result<(), String> {
    let (mut by_ino, mut by_fid) = (BTreeMap::new(), BTreeMap::new());
    for (path, ino) in paths {
        let fid = fids[path];
        if *by_ino.entry(*ino).or_insert(fid) != fid || *by_fid.entry(fid).or_insert(*ino) != *ino {
            return Err(format!("{path:?} is {fid}: links and files are mixed up"));
        }
    }
    Ok(())
}

async fn verify_xattrs(
    client: &Client,
    ctx: &Ctx,
    fid: Fid,
    model: &Model,
    ino: u64,
) -> Result<(), String> {
    for (name, value) in &model.node(ino).xattrs {
        let name = xattr_name(*name);
        let found = client
            .getxattr(ctx, fid, name.as_bytes())
            .await
            .map_err(|error| format!("{name}: {error}"))?;
        compare_data(value, &found).map_err(|what| format!("{name}: {what}"))?;
    }
    Ok(())
}

/// The whole file, through an open of its own.
pub async fn read_file(
    client: &Client,
    ctx: &Ctx,
    fid: Fid,
) -> Result<bytes::Bytes, client::Error> {
    let file = client.open(ctx, fid, 0).await?;
    let data = file.read(0, 64 << 20).await;
    file.close().await?;
    data
}

async fn verify_data(client: &Client, ctx: &Ctx, fid: Fid, data: &[u8]) -> Result<(), String> {
    let found = read_file(client, ctx, fid).await.map_err(|error| error.to_string())?;
    compare_data(data, &found)
}

/// The tree below `base` as [`Model::summary`] writes it, and the FID of each path.
pub async fn read_summary(
    client: &Client,
    base: Fid,
) -> Result<BTreeMap<Path, (String, Fid)>, client::Error> {
    let ctx = test_ctx();
    let mut out = BTreeMap::new();
    let mut todo = vec![(Path(Vec::new()), base)];
    while let Some((path, fid)) = todo.pop() {
        let attr = client.getattr(&ctx, fid, None).await?;
        let target = if attr.file_type() == wire::attr::S_IFLNK {
            client.readlink(&ctx, fid).await?
        } else {
            bytes::Bytes::new()
        };
        let mut xattrs = Vec::new();
        for name in 0..=u8::MAX {
            if !attr.flags.contains(wire::attr::AttrFlags::HAS_XATTR) || name > 3 {
                break;
            }
            if let Ok(value) = client.getxattr(&ctx, fid, xattr_name(name).as_bytes()).await {
                xattrs.push((name, crate::digest(&value)));
            }
        }
        let target = String::from_utf8_lossy(&target).into_owned();
        let line =
            crate::summary_line(attr.mode, attr.nlink, (attr.uid, attr.gid), &target, &xattrs);
        if attr.is_dir() {
            let names = read_names(client, &ctx, fid, 1 << 16).await?;
            todo.extend(names.into_iter().map(|(name, attr)| (path.join(&name), attr.fid())));
        }
        out.insert(path, (line, fid));
    }
    Ok(out)
}
