//! Parameters of a mount, under Lustre's names for its parts: `llite` (the mount), `mdc` and `osc`
//! (its connectors).

use std::rc::Rc;

use client::{Client, KeptStats, Lru, OpenCacheStats, StataheadStats, TargetState};
use env::Env;
use fuse::{Jobids, Mounted};
use params::{Fields, Lines, ParamTree, Verdict};
use types::{Span, TargetKind};

use super::flags;
use crate::permanent::{self, Permanent};

/// How often connectors of new targets and permanent parameters are looked for.
const EVERY: Span = Span::secs(2);

/// Longest `unmount_wait`: weeks are as good as for ever.
pub(super) const UNMOUNT_WAIT_SECS_MAX: u64 = 10_000_000;

/// Largest `lru_size`.
const LRU_SIZE_MAX: u32 = 1 << 20;

/// Longest `lru_max_age`, milliseconds: a day is as good as for ever.
const LRU_MAX_AGE_MS_MAX: u64 = 86_400_000;

/// Longest `opencache_max_ms`: an hour. What rests keeps a place at the MDT.
const OPENCACHE_MS_MAX: u64 = 3_600_000;

/// What a mount keeps in flight to one target.
const IN_FLIGHT: u32 = endpoint::limits::RPCS_IN_FLIGHT_DEFAULT;
const MODIFYING_IN_FLIGHT: u32 = IN_FLIGHT;

/// Pages of 4 KiB in one data RPC.
const PAGES_PER_RPC: u32 = client::RPC_BYTES_DEFAULT >> 12;

/// What the mount was told with `-o`.
pub(super) const OPTIONS: &str = "mount_options";
/// How it keeps access times.
pub(super) const ACCESS_TIMES: &str = "access_times";

/// Registers those of `client`, which was mounted with `options`.
pub(super) fn register(params: &ParamTree, client: &Client, instance: &str, options: &str) {
    let fsname = client.fsname();
    let llite = format!("llite.{fsname}-{instance}");
    params.register("version", || env!("CARGO_PKG_VERSION").to_owned());
    let of = client.clone();
    params.register_typed("health_check", move || {
        Ok(Some(Verdict::health(&of.waiting_on().join("\n"))))
    });
    params.register(format!("{llite}.fstype"), || "nacre".to_owned());
    let options = options.to_owned();
    params.register(format!("{llite}.{OPTIONS}"), move || options.clone());
    let (read, write) = (client.clone(), client.clone());
    params.register_rw(
        format!("{llite}.{ACCESS_TIMES}"),
        move || flags::text(read.access_times()),
        move |value| {
            write.set_access_times(flags::parse(value)?);
            Ok(())
        },
    );
    let of = client.clone();
    params.register("permanent", move || permanent::render(&of.permanent_params()));
    let of = client.clone();
    params.register_typed(format!("{llite}.waiting_on"), move || {
        Ok(Some(Lines([of.waiting_on(), of.held_up_by()].concat())))
    });
    let of = client.clone();
    params.register_number(format!("{llite}.lost"), move || of.lost());
    let of = client.clone();
    params.register(format!("{llite}.unconfirmed"), move || {
        of.unconfirmed().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    });
    let (read, write) = (client.clone(), client.clone());
    params.register_rw(
        format!("{llite}.unmount_wait"),
        move || (read.unmount_wait().as_millis() / 1_000).to_string(),
        move |value| {
            let secs = ::params::parse_within(value, 0, UNMOUNT_WAIT_SECS_MAX)?;
            write.set_unmount_wait(Span::secs(secs));
            Ok(())
        },
    );
    on_open(params, client, &llite);
    page_cache(params, client, &llite);
    open_cache(params, client, &llite);
    statahead(params, client, &llite);
    requests(params, client, &llite);
    writeback(params, client, &llite);
    connectors(params, client, instance);
}

/// Whether opens bring the bytes of small files, and how many reads had them.
fn on_open(params: &ParamTree, client: &Client, llite: &str) {
    let (read, write) = (client.clone(), client.clone());
    params.register_rw(
        format!("{llite}.read_on_open"),
        move || u8::from(read.read_on_open()).to_string(),
        move |value| {
            write.set_read_on_open(::params::parse_within(value, 0, 1)? == 1);
            Ok(())
        },
    );
    let of = client.clone();
    params.register(format!("{llite}.read_on_open_hits"), move || {
        of.on_open_stats().hits.to_string()
    });
    let of = client.clone();
    params.register(format!("{llite}.read_on_open_misses"), move || {
        of.on_open_stats().misses.to_string()
    });
}

/// Whether the kernel keeps data of files that are read.
fn page_cache(params: &ParamTree, client: &Client, llite: &str) {
    let (read, write) = (client.clone(), client.clone());
    params.register_rw(
        format!("{llite}.page_cache"),
        move || u8::from(read.page_cache()).to_string(),
        move |value| {
            write.set_page_cache(::params::parse_within(value, 0, 1)? == 1);
            Ok(())
        },
    );
}

/// How long handles for reading rest after their close, and how many opens used one.
fn open_cache(params: &ParamTree, client: &Client, llite: &str) {
    let (read, write) = (client.clone(), client.clone());
    params.register_rw(
        format!("{llite}.opencache_max_ms"),
        move || read.open_cache_age().as_millis().to_string(),
        move |value| {
            let ms = ::params::parse_within(value, 0, OPENCACHE_MS_MAX)?;
            write.set_open_cache_age(Span::millis(ms));
            Ok(())
        },
    );
    let of = client.clone();
    params.register_typed(format!("{llite}.opencache_stats"), move || {
        let OpenCacheStats { opens, closes, resting } = of.open_cache_stats();
        let fields = vec![("opens", opens), ("closes", closes), ("resting", resting as u64)];
        Ok(Some(Fields(fields)))
    });
}

/// What is asked for ahead of its use, and how sizes are asked for.
fn statahead(params: &ParamTree, client: &Client, llite: &str) {
    let (read, write) = (client.clone(), client.clone());
    params.register_rw(
        format!("{llite}.statahead_max"),
        move || read.statahead_max().to_string(),
        move |value| {
            let names = ::params::parse_within(value, 0, client::limits::STATAHEAD_MAX)?;
            write.set_statahead_max(names);
            Ok(())
        },
    );
    let (read, write) = (client.clone(), client.clone());
    params.register_rw(
        format!("{llite}.statahead_agl"),
        move || u8::from(read.statahead_agl()).to_string(),
        move |value| {
            write.set_statahead_agl(::params::parse_within(value, 0, 1)? == 1);
            Ok(())
        },
    );
    let (read, write) = (client.clone(), client.clone());
    params.register_typed_rw(
        format!("{llite}.statahead_stats"),
        move || Ok(Some(statahead_fields(read.statahead_stats()))),
        move |_| {
            write.clear_statahead_stats();
            Ok(())
        },
    );
    let (read, write) = (client.clone(), client.clone());
    params.register_rw(
        format!("{llite}.glimpse_batch"),
        move || read.glimpse_batch().to_string(),
        move |value| {
            let objects = ::params::parse_within(value, 1, client::limits::GLIMPSE_BATCH_MAX)?;
            write.set_glimpse_batch(objects);
            Ok(())
        },
    );
    let (read, write) = (client.clone(), client.clone());
    params.register_rw(
        format!("{llite}.glimpse_in_flight"),
        move || read.glimpse_in_flight().to_string(),
        move |value| {
            let glimpses = ::params::parse_within(value, 1, client::limits::BATCH_RPCS_MAX)?;
            write.set_glimpse_in_flight(glimpses);
            Ok(())
        },
    );
    let (read, write) = (client.clone(), client.clone());
    params.register_rw(
        format!("{llite}.som"),
        move || u8::from(read.som()).to_string(),
        move |value| {
            write.set_som(::params::parse_within(value, 0, 1)? == 1);
            Ok(())
        },
    );
}

/// What the mount has asked of servers since it was made.
fn requests(params: &ParamTree, client: &Client, llite: &str) {
    let of = client.clone();
    params.register(format!("{llite}.rpcs"), move || {
        let rows = of.requests().into_iter();
        let rows = rows.map(|(opcode, count)| format!("{} {count}", opcode.name()));
        rows.collect::<Vec<_>>().join("\n")
    });
}

/// Under Lustre's names.
fn statahead_fields(stats: StataheadStats) -> Fields {
    Fields(vec![
        ("statahead total", stats.total),
        ("statahead wrong", stats.wrong),
        ("agl total", stats.agl_total),
        ("fname_total", stats.fname_total),
        ("hit_total", stats.hit_total),
        ("miss_total", stats.miss_total),
    ])
}

/// Whether small writes are acknowledged before they are sent, and how many were.
fn writeback(params: &ParamTree, client: &Client, llite: &str) {
    let (read, write) = (client.clone(), client.clone());
    params.register_rw(
        format!("{llite}.writeback"),
        move || u8::from(read.writeback()).to_string(),
        move |value| {
            write.set_writeback(::params::parse_within(value, 0, 1)? == 1);
            Ok(())
        },
    );
    let of = client.clone();
    params.register_number(format!("{llite}.writeback_bytes"), move || of.kept_bytes() as u64);
    let of = client.clone();
    params.register_typed(format!("{llite}.writeback_stats"), move || {
        let KeptStats { writes, bytes, runs, no_room, setattrs } = of.kept_stats();
        Ok(Some(Fields(vec![
            ("writes", writes),
            ("bytes", bytes),
            ("runs", runs),
            ("no_room", no_room),
            ("setattrs", setattrs),
        ])))
    });
}

/// Registers the counts of the kernel's requests, which any write clears.
pub(super) fn register_stats(params: &ParamTree, llite: &str, env: &Env, mounted: &Mounted) {
    let (read, cleared, env) = (mounted.tally(), mounted.tally(), env.clone());
    let clear = move || {
        cleared.clear();
        Ok(())
    };
    let table = move || Ok(read.table(env.wall()));
    params.register_table(format!("{llite}.stats"), table, Some(Rc::new(clear)));
}

/// Registers how callers are labelled, under Lustre's names: for all of the mount.
pub(super) fn register_jobids(params: &ParamTree, jobids: &Rc<Jobids>) {
    let (read, write) = (jobids.clone(), jobids.clone());
    params.register_rw("jobid_var", move || read.var(), move |value| write.set_var(value));
    let (read, write) = (jobids.clone(), jobids.clone());
    params.register_rw("jobid_name", move || read.name(), move |value| write.set_name(value));
    let (read, write) = (jobids.clone(), jobids.clone());
    params.register_rw(
        "jobid_this_session",
        move || read.session(),
        move |value| {
            write.set_session(value);
            Ok(())
        },
    );
}

/// Adds connectors of targets that came later, and takes over what is permanent, for as long as the
/// mount lives.
pub(super) async fn refresh(
    env: Env,
    params: ParamTree,
    client: Client,
    instance: String,
    permanent: Rc<Permanent>,
) {
    let mut known = 0;
    loop {
        env.sleep(EVERY).await;
        permanent.apply(&params, &client.permanent_params()).await;
        let now = connected(&client).count();
        if now != known {
            connectors(&params, &client, &instance);
        }
        known = now;
    }
}

/// Targets with a connector: MDTs, OSTs, and data targets that were used.
fn connected(client: &Client) -> impl Iterator<Item = TargetState> {
    client.mdts().into_iter().chain(client.osts()).chain(client.data_targets())
}

fn connectors(params: &ParamTree, client: &Client, instance: &str) {
    for target in connected(client) {
        connector(params, client, instance, &target);
    }
}

fn connector(params: &ParamTree, client: &Client, instance: &str, target: &TargetState) {
    let kind = match target.id {
        id if id.is_dom() => "mdc_data",
        id if id.kind == TargetKind::Mdt => "mdc",
        _ => "osc",
    };
    let base = format!("{kind}.{}-{kind}-{instance}", target.name);
    let (of, id, name) = (client.clone(), target.id, format!("{}-{kind}-{instance}", target.name));
    params.register(format!("{base}.import"), move || {
        now(&of, id).map_or_else(String::new, |state| import(&name, &state))
    });
    let (of, id) = (client.clone(), target.id);
    params.register(format!("{base}.active"), move || {
        now(&of, id).map_or("0", |state| if state.active { "1" } else { "0" }).into()
    });
    let (of, id) = (client.clone(), target.id);
    params.register_typed(format!("{base}.state"), move || {
        let verdict = |now: TargetState| Verdict { is_well: now.connected, text: now.state };
        Ok(now(&of, id).map(verdict))
    });
    params.register(format!("{base}.max_rpcs_in_flight"), || IN_FLIGHT.to_string());
    match target.id.kind {
        TargetKind::Mdt => params
            .register(format!("{base}.max_mod_rpcs_in_flight"), || MODIFYING_IN_FLIGHT.to_string()),
        _ => params.register(format!("{base}.max_pages_per_rpc"), || PAGES_PER_RPC.to_string()),
    }
    let locks = format!("ldlm.namespaces.{}-{kind}-{instance}", target.name);
    match target.id.kind {
        TargetKind::Mdt => grants(params, client, &locks),
        _ => {
            params.register_number(format!("{locks}.lock_count"), || 0);
            params.register_rw(format!("{locks}.lru_size"), || "0".to_owned(), clear);
        }
    }
}

/// What a mount holds of the MDT between calls.
fn grants(params: &ParamTree, client: &Client, locks: &str) {
    let of = client.clone();
    params.register_number(format!("{locks}.lock_count"), move || of.grants_held() as u64);
    let of = client.clone();
    params.register_number(format!("{locks}.grant_hits"), move || of.grant_hits());
    let (read, write) = (client.clone(), client.clone());
    params.register_rw(
        format!("{locks}.lru_size"),
        move || read.lru().size.to_string(),
        move |value| {
            let size = match value.trim() {
                "clear" => {
                    write.drop_grants();
                    return Ok(());
                }
                "0" => Lru::default().size,
                size => ::params::parse_within(size, 1, LRU_SIZE_MAX)
                    .map_err(|error| format!("{error}, 0 for the default, or clear"))?,
            };
            write.set_lru(Lru { size, ..write.lru() });
            Ok(())
        },
    );
    let (read, write) = (client.clone(), client.clone());
    params.register_rw(
        format!("{locks}.lru_max_age"),
        move || read.lru().max_age.as_millis().to_string(),
        move |value| {
            let ms = ::params::parse_within(value, 1, LRU_MAX_AGE_MS_MAX)?;
            write.set_lru(Lru { max_age: Span::millis(ms), ..write.lru() });
            Ok(())
        },
    );
}

/// `lru_size=clear` drops what a client keeps between calls. Of an OST it keeps nothing, so that is
/// done already.
fn clear(value: &str) -> Result<(), String> {
    match value.trim() {
        "clear" | "0" => Ok(()),
        _ => Err("expected clear or 0: no locks of an OST are kept between calls".to_owned()),
    }
}

fn now(client: &Client, id: types::TargetId) -> Option<TargetState> {
    connected(client).find(|state| state.id == id)
}

/// As Lustre's `import`: YAML.
fn import(name: &str, state: &TargetState) -> String {
    format!(
        "import:\n    name: {name}\n    target: {}_UUID\n    state: {}\n    connection:\n        current_connection: {}\n",
        state.name, state.state, state.nid
    )
}
