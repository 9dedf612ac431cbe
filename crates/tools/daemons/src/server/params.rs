//! Parameters of a server node, under Lustre's names.

mod lod;

use std::rc::{Rc, Weak};

use params::{ParamTree, parse_within};
use service::{ServiceSpec, spec};
use types::Span;

use super::{Body, Running, Server};
use crate::permanent;

/// Highest `device_mibps`.
const DEVICE_MIBPS_MAX: u64 = 1 << 20;

/// Longest `commit_interval`, milliseconds: more than this is lost work, not batching.
const COMMIT_INTERVAL_MS_MAX: u64 = 60_000;

/// Registers those of the node, of its services and of each target.
pub(super) fn register(params: &ParamTree, server: &Rc<Server>) {
    let weak = Rc::downgrade(server);
    params.register("version", || env!("CARGO_PKG_VERSION").to_owned());
    params.register("health_check", of(&weak, health));
    params.register(
        "permanent",
        of(&weak, |server| permanent::render(&server.directory.permanent())),
    );
    server.machine.register(params);
    let set = weak.clone();
    params.register_rw(
        "portal_rotor",
        of(&weak, |server| server.node.portal_rotor().render()),
        move |value| {
            let mode = value.parse()?;
            if let Some(server) = set.upgrade() {
                server.node.set_portal_rotor(mode);
            }
            Ok(())
        },
    );
    selftest::register(params, std::slice::from_ref(&server.tester));
    server.node.register_params(params, &services(server));
    for service in services(server) {
        register_service(params, server, service);
    }
    for (index, target) in server.targets.iter().enumerate() {
        register_target(params, server, index, target);
    }
}

fn of(
    server: &Weak<Server>,
    read: impl Fn(&Server) -> String + 'static,
) -> impl Fn() -> String + 'static {
    let server = server.clone();
    move || server.upgrade().map_or_else(String::new, |server| read(&server))
}

fn health(server: &Server) -> String {
    let failed = server.failed.borrow().clone().unwrap_or_default();
    let ill = [failed, server.node.starved()].join("\n");
    if ill.trim().is_empty() { "healthy".into() } else { format!("NOT HEALTHY\n{}", ill.trim()) }
}

/// The services of the kinds of targets that are here.
fn services(server: &Server) -> Vec<&'static ServiceSpec> {
    let has = |kind: fn(&Body) -> bool| server.targets.iter().any(|target| kind(&target.body));
    let mut all = Vec::new();
    if has(|body| matches!(body, Body::Mgt(_))) {
        all.push(&spec::MGS);
    }
    if has(|body| matches!(body, Body::Mdt(_))) {
        all.extend([&spec::MDT, &spec::MDT_READPAGE, &spec::MDT_IO, &spec::MDT_OUT]);
    }
    if has(|body| matches!(body, Body::Ost(_))) {
        all.extend([&spec::OST, &spec::OST_IO, &spec::OST_CREATE]);
    }
    if has(|body| !matches!(body, Body::Mgt(_))) {
        all.extend([&spec::LDLM_CANCELD, &spec::LDLM_CBD]);
    }
    all
}

/// Beside those that the service registers itself.
fn register_service(params: &ParamTree, server: &Rc<Server>, service: &'static ServiceSpec) {
    let counts = of(&Rc::downgrade(server), move |server| {
        let counts: Vec<String> =
            server.node.served_by_cpt(service).iter().map(u64::to_string).collect();
        counts.join(" ")
    });
    params.register(format!("{}.requests_by_cpt", service.path), counts);
}

fn register_target(params: &ParamTree, server: &Rc<Server>, index: usize, target: &Running) {
    let kind = match target.body {
        Body::Mgt(_) => "mgs",
        Body::Mdt(_) => "mdt",
        Body::Ost(_) => "obdfilter",
    };
    let base = format!("{kind}.{}", target.name);
    let weak = Rc::downgrade(server);
    let add = |name: &str, read: fn(&Running) -> String| {
        params.register(
            format!("{base}.{name}"),
            of(&weak, move |server| read(&server.targets[index])),
        );
    };
    let uuid = format!("{}_UUID", target.name);
    params.register(format!("{base}.uuid"), move || uuid.clone());
    add("recovery_status", |target| target.body.exports().recovery_status());
    add("mntdev", |target| target.dir.display().to_string());
    add("num_exports", |target| target.body.exports().sessions().len().to_string());
    add("exports", exports);
    add("instance", |target| target.body.exports().instance().0.to_string());
    add("last_committed", |target| target.body.exports().last_committed().0.to_string());
    add("kbytestotal", |target| {
        target.store.space().map_or_else(String::new, |space| (space.bytes >> 10).to_string())
    });
    add("kbytesfree", |target| {
        target.store.space().map_or_else(String::new, |space| (space.bytes_free >> 10).to_string())
    });
    add("kbytesavail", |target| {
        target.store.space().map_or_else(String::new, |space| (space.bytes_free >> 10).to_string())
    });
    add("filestotal", |target| {
        target.store.space().map_or_else(String::new, |space| space.files.to_string())
    });
    add("filesfree", |target| {
        target.store.space().map_or_else(String::new, |space| space.files_free.to_string())
    });
    match &target.body {
        Body::Ost(_) => register_ost(params, &weak, &base, index),
        Body::Mdt(_) => register_mdt(params, &weak, &base, index, target),
        Body::Mgt(_) => {}
    }
}

/// Who is connected, a line each: client, session, address, name.
fn exports(target: &Running) -> String {
    let line = |session: &Rc<service::Session>| {
        format!("{} {:#x} {} {}\n", session.client, session.id, session.nid.get(), session.name)
    };
    target.body.exports().sessions().iter().map(line).collect()
}

fn register_ost(params: &ParamTree, server: &Weak<Server>, base: &str, index: usize) {
    let read = of(server, move |server| match &server.targets[index].body {
        Body::Ost(ost) => ost.commit_interval().as_millis().to_string(),
        _ => String::new(),
    });
    let to_set = server.clone();
    let write = move |value: &str| {
        let ms = parse_within(value, 1, COMMIT_INTERVAL_MS_MAX)?;
        if let Some(Body::Ost(ost)) =
            to_set.upgrade().map(|server| server.targets[index].body.clone())
        {
            ost.set_commit_interval(Span::millis(ms));
        }
        Ok(())
    };
    params.register_rw(format!("{base}.commit_interval_ms"), read, write);
    let dirty = of(server, move |server| match &server.targets[index].body {
        Body::Ost(ost) => ost.dirty_data_bytes().to_string(),
        _ => String::new(),
    });
    params.register(format!("{base}.dirty_data_bytes"), dirty);
    register_device(params, server, base, index);
    register_tallies(params, server, base, index);
}

/// `stats`, `export_stats`, `job_stats`: writing anything clears them.
fn register_tallies(params: &ParamTree, server: &Weak<Server>, base: &str, index: usize) {
    register_tally(
        params,
        server,
        &format!("{base}.stats"),
        index,
        ost::Ost::stats,
        ost::Ost::clear_stats,
    );
    register_tally(
        params,
        server,
        &format!("{base}.export_stats"),
        index,
        ost::Ost::export_stats,
        ost::Ost::clear_export_stats,
    );
    register_tally(
        params,
        server,
        &format!("{base}.job_stats"),
        index,
        ost::Ost::job_stats,
        ost::Ost::clear_job_stats,
    );
}

fn register_tally(
    params: &ParamTree,
    server: &Weak<Server>,
    name: &str,
    index: usize,
    render: fn(&ost::Ost) -> String,
    clear: fn(&ost::Ost),
) {
    let read = of(server, move |server| match &server.targets[index].body {
        Body::Ost(ost) => render(ost),
        _ => String::new(),
    });
    let to_clear = server.clone();
    let write = move |_: &str| {
        if let Some(Body::Ost(ost)) =
            to_clear.upgrade().map(|server| server.targets[index].body.clone())
        {
            clear(&ost);
        }
        Ok(())
    };
    params.register_rw(name, read, write);
}

/// `device_mibps`: a rate below what the machine can do makes requests wait, so that schedulers can
/// be compared.
fn register_device(params: &ParamTree, server: &Weak<Server>, base: &str, index: usize) {
    let read = of(server, move |server| match &server.targets[index].body {
        Body::Ost(ost) => (ost.device_bytes_per_sec() >> 20).to_string(),
        _ => String::new(),
    });
    let to_set = server.clone();
    let write = move |value: &str| {
        let mib = parse_within(value, 0, DEVICE_MIBPS_MAX)?;
        if let Some(Body::Ost(ost)) =
            to_set.upgrade().map(|server| server.targets[index].body.clone())
        {
            ost.set_device_bytes_per_sec(mib << 20);
        }
        Ok(())
    };
    params.register_rw(format!("{base}.device_mibps"), read, write);
}

fn register_mdt(
    params: &ParamTree,
    server: &Weak<Server>,
    base: &str,
    index: usize,
    target: &Running,
) {
    let add = |name: &str, read: fn(&mdt::Mdt) -> String| {
        let read = of(server, move |server| match &server.targets[index].body {
            Body::Mdt(mdt) => read(mdt),
            _ => String::new(),
        });
        params.register(format!("{base}.{name}"), read);
    };
    add("open_handles", |mdt| mdt.counts().open_handles.to_string());
    add("locks_held", |mdt| mdt.counts().locks_held.to_string());
    add("locks_waiting", |mdt| mdt.counts().locks_waiting.to_string());
    add("leases_held", |mdt| mdt.counts().leases_held.to_string());
    add("lease_waits", |mdt| mdt.counts().lease_waits.to_string());
    register_short_leases(params, server, base, index);
    register_md_stats(params, server, base, index);
    let interval = server.upgrade().map_or(0, |server| server.commit_interval.as_millis());
    params.register(format!("{base}.commit_interval_ms"), move || interval.to_string());
    lod::register(params, server, &format!("lod.{}-mdtlov", target.name), index);
}

/// `short_leases`: whether clients may believe attributes and names for a moment.
fn register_short_leases(params: &ParamTree, server: &Weak<Server>, base: &str, index: usize) {
    let read = of(server, move |server| match &server.targets[index].body {
        Body::Mdt(mdt) => u32::from(mdt.short_leases()).to_string(),
        _ => String::new(),
    });
    let to_set = server.clone();
    let write = move |value: &str| {
        let enabled = parse_within(value, 0, 1)? == 1;
        if let Some(Body::Mdt(mdt)) =
            to_set.upgrade().map(|server| server.targets[index].body.clone())
        {
            mdt.set_short_leases(enabled);
        }
        Ok(())
    };
    params.register_rw(format!("{base}.short_leases"), read, write);
}

/// `md_stats`: writing anything clears it.
fn register_md_stats(params: &ParamTree, server: &Weak<Server>, base: &str, index: usize) {
    let read = of(server, move |server| match &server.targets[index].body {
        Body::Mdt(mdt) => mdt.md_stats(),
        _ => String::new(),
    });
    let to_clear = server.clone();
    let write = move |_: &str| {
        if let Some(Body::Mdt(mdt)) =
            to_clear.upgrade().map(|server| server.targets[index].body.clone())
        {
            mdt.clear_md_stats();
        }
        Ok(())
    };
    params.register_rw(format!("{base}.md_stats"), read, write);
}
