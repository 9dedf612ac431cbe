//! Parameters of a server node, under Lustre's names.

use std::rc::{Rc, Weak};

use params::{ParamTree, Verdict};
use service::{ServiceSpec, spec};
use target::Place;
use types::CounterTable;

use super::{Body, Running, Server, scrub};
use crate::permanent;

/// Registers those of the node, of its services and of each target.
pub(super) fn register(params: &ParamTree, server: &Rc<Server>) {
    let weak = Rc::downgrade(server);
    params.register("version", || env!("CARGO_PKG_VERSION").to_owned());
    let ill = weak.clone();
    params.register_typed("health_check", move || Ok(ill.upgrade().map(|server| health(&server))));
    params.register("permanent", of(&weak, |server| permanent::render(&server.peers.permanent())));
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

fn health(server: &Server) -> Verdict {
    let ended = server.ended.borrow().as_ref().map_or_else(String::new, ToString::to_string);
    let down: Vec<_> = server.down.borrow().iter().map(|(_, line)| line.clone()).collect();
    Verdict::health(&[ended, down.join("\n"), server.node.starved()].join("\n"))
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
    if has(|body| body.id().is_ost()) {
        all.extend([&spec::OST, &spec::OST_IO, &spec::OST_CREATE]);
    }
    if has(|body| !matches!(body, Body::Mgt(_))) {
        all.extend([&spec::LDLM_CANCELD, &spec::LDLM_CBD]);
    }
    all
}

/// Beside those that the service registers itself.
fn register_service(params: &ParamTree, server: &Rc<Server>, service: &'static ServiceSpec) {
    let server = Rc::downgrade(server);
    let read = move || {
        let counts = server.upgrade().map(|server| server.node.served_by_cpt(service));
        Ok(CounterTable::Numbers(counts.unwrap_or_default()))
    };
    params.register_table(format!("{}.requests_by_cpt", service.path), read, None);
}

fn register_target(params: &ParamTree, server: &Rc<Server>, index: usize, target: &Running) {
    let weak = Rc::downgrade(server);
    let place = Place {
        kind: target.body.kind(),
        name: target.name.clone(),
        dir: target.dir.display().to_string(),
        space: Rc::new(move || weak.upgrade()?.targets[index].store.space()),
    };
    scrub::register(params, place.base(), &target.store.disk);
    match &target.body {
        Body::Mgt(mgt) => mgt.register_params(params, &place),
        Body::Mdt(mdt) => mdt.register_params(params, &place),
        Body::Ost(ost) => ost.register_params(params, &place),
    }
}
