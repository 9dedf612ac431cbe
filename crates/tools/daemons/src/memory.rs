//! Servers whose targets are in memory, for measurements that a disk would hide. A process has
//! OSTs, or the MGT and an MDT.
//!
//! Such a process prints where it is reached, and ends with its parent. Nothing of it lasts.

use std::io::{Read, Write};
use std::num::NonZeroU32;
use std::rc::Rc;

use anyhow::{Context, Result, anyhow};
use endpoint::{Call, Endpoint, EndpointConfig, ImportConfig, Resolve};
use env::{CptTable, Env};
use env_os::OsConfig;
use mdt::{Mdt, MdtConfig, OstAt};
use mgt::{Mgt, MgtConfig};
use osd::MetaStore;
use osd::mem::{MemDisk, MemDiskConfig, MemMeta, MemObjects};
use ost::{Ost, OstConfig};
use service::{Node, NodeConfig, Target};
use types::{ClientId, FsName, NidAddr, Span, TargetId};
use wire::Opcode;
use wire::config::{self, Register, TargetInfo};

/// Records of an MDT. 400,000 files of 160 stripes, with their objects' addresses, do not fit into
/// what a simulated disk has by default.
const MDT_RECORD_BYTES: u64 = 16 << 30;

/// What to serve.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// File system.
    #[arg(long)]
    pub fsname: FsName,
    /// Where to listen; port 0 takes a free one.
    #[arg(long)]
    pub listen: NidAddr,
    /// First OST that this process serves.
    #[arg(long, default_value_t = 0)]
    pub first: u32,
    /// OSTs that it serves; 0: the MGT and an MDT.
    #[arg(long, default_value_t = 0)]
    pub count: u32,
    /// Where each OST is, in the order of their indexes: what an MDT needs to know.
    #[arg(long, value_delimiter = ',')]
    pub osts: Vec<NidAddr>,
    /// Microseconds by which everything that this process sends arrives later.
    #[arg(long, default_value_t = 0)]
    pub delay_us: u64,
}

/// Serves until the parent ends.
pub fn run(options: Options) -> Result<()> {
    let config = OsConfig {
        delay: Span::micros(options.delay_us),
        trust_local_users: false,
        ..OsConfig::default()
    };
    env_os::run(config, move |env| async move {
        let addr = serve(&env, &options).await?;
        announce(addr)?;
        std::future::pending().await
    })
}

/// Prints the address, and ends the process with its parent.
fn announce(addr: NidAddr) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{addr}")?;
    out.flush()?;
    std::thread::spawn(|| {
        let _ends_with_the_parent = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    Ok(())
}

async fn serve(env: &Env, options: &Options) -> Result<NidAddr> {
    let listener = env.listen(options.listen).await?;
    let addr = listener.addr();
    let table =
        CptTable::new(NonZeroU32::MIN, NonZeroU32::MIN, 1, true).context("one partition")?;
    let node = Node::new(env, NodeConfig::new(table));
    let mut instance = 0;
    match options.count {
        0 => instance = serve_mdt(env, options, (&node, addr)).await?,
        count => {
            for index in options.first..options.first + count {
                let disk = MemDisk::default();
                let (meta, objects) = (MemMeta::open(env, &disk), MemObjects::open(env, &disk));
                let config = OstConfig::new(options.fsname, index);
                let ost = Ost::start(env, config, Rc::new(meta), Rc::new(objects)).await?;
                add(&node, ost);
            }
        }
    }
    node.serve(listener);
    if options.count == 0 {
        register_all(env, options, (addr, instance)).await?;
    }
    std::mem::forget(node); // for as long as the process lives
    Ok(addr)
}

/// The MGT and an MDT. Returns the MDT's instance.
async fn serve_mdt(
    env: &Env,
    options: &Options,
    (node, addr): (&Rc<Node>, NidAddr),
) -> Result<u64> {
    let meta = |disk: &MemDisk| -> Rc<dyn MetaStore> { Rc::new(MemMeta::open(env, disk)) };
    let mgt = Mgt::start(env, MgtConfig::default(), meta(&MemDisk::default())).await?;
    add(node, mgt);
    let endpoint = endpoint(env, options, addr);
    let osts: Vec<u32> = (0..).take(options.osts.len()).collect();
    let list: Rc<dyn Fn() -> Vec<OstAt>> =
        Rc::new(move || osts.iter().copied().map(OstAt::from).collect());
    let config = MdtConfig::new(options.fsname, 0);
    let disk = MemDiskConfig { record_bytes: MDT_RECORD_BYTES, ..MemDiskConfig::default() };
    let disk = MemDisk::new(disk);
    let mdt = Mdt::start(env, config, meta(&disk), Some(endpoint), list).await?;
    let instance = mdt.exports().instance().0;
    add(node, mdt);
    Ok(instance)
}

fn add(node: &Rc<Node>, target: Rc<dyn Target>) {
    target.exports().set_uuid(uuid_of(target.id()));
    target.exports().believe_servers(|_| true);
    node.add_target(target);
}

/// Identity of a target's storage.
fn uuid_of(id: TargetId) -> u128 {
    u128::from(id.to_u32()) + 1
}

fn endpoint(env: &Env, options: &Options, addr: NidAddr) -> Rc<Endpoint> {
    let client = ClientId((u128::from(env.random()) << 64) | u128::from(env.random()));
    let name = "memory".to_owned();
    let import = ImportConfig { client, name, is_server: true, ..ImportConfig::default() };
    let config = EndpointConfig { nid: Some(addr.nid), import, ..EndpointConfig::default() };
    let at = Places { own: addr, osts: options.osts.clone() };
    Endpoint::new(env, config, Rc::new(at))
}

/// Where the targets are: all but the OSTs are here.
struct Places {
    own: NidAddr,
    osts: Vec<NidAddr>,
}

impl Resolve for Places {
    fn addrs(&self, target: TargetId) -> Vec<NidAddr> {
        match target.is_ost() {
            true => self.osts.get(target.index as usize).copied().into_iter().collect(),
            false => vec![self.own],
        }
    }

    fn mdts(&self) -> Vec<u32> {
        vec![0]
    }
}

/// Tells the MGT of all targets, so that clients find them.
async fn register_all(env: &Env, options: &Options, (addr, of_mdt): (NidAddr, u64)) -> Result<()> {
    let endpoint = endpoint(env, options, addr);
    let mgs = endpoint.remote(TargetId::MGT);
    let osts = (0..).map(TargetId::ost).zip(options.osts.iter().copied());
    let osts = osts.map(|(id, at)| (id, at, 1));
    let targets = std::iter::once((TargetId::mdt(0), addr, of_mdt)).chain(osts);
    for (id, at, instance) in targets {
        let info = TargetInfo { id: id.to_u32(), nid: at.nid.0, port: at.port, instance };
        let fsname = options.fsname.to_string();
        let register = Register { fsname, target: info, uuid: uuid_of(id) };
        let mut call = Call::new(Opcode::MgsRegister, vec![config::encode(&register)]);
        call.patience = Some(Span::secs(10));
        mgs.call(call).await.map_err(|error| anyhow!("{id} is not registered: {error}"))?;
    }
    Ok(())
}
