//! Parameters of a server node, under Lustre's names.

use std::rc::{Rc, Weak};

use env::ParamTree;

use super::{Body, Running, Server};

/// Registers those of the node and of each target.
pub(super) fn register(params: &ParamTree, server: &Rc<Server>) {
    params.register("version", || env!("CARGO_PKG_VERSION").to_owned());
    let weak = Rc::downgrade(server);
    params.register("health_check", move || health(&weak));
    for (index, target) in server.targets.iter().enumerate() {
        register_target(params, &Rc::downgrade(server), index, target);
    }
}

fn health(server: &Weak<Server>) -> String {
    let failed = server.upgrade().and_then(|server| server.failed.borrow().clone());
    failed.map_or_else(|| "healthy".into(), |reason| format!("NOT HEALTHY\n{reason}"))
}

fn register_target(params: &ParamTree, server: &Weak<Server>, index: usize, target: &Running) {
    let kind = match target.body {
        Body::Mgt(_) => "mgs",
        Body::Mdt(_) => "mdt",
        Body::Ost(_) => "obdfilter",
    };
    let base = format!("{kind}.{}", target.name);
    let of = |read: fn(&Running) -> String| {
        let server = server.clone();
        move || server.upgrade().map_or_else(String::new, |server| read(&server.targets[index]))
    };
    params.register(format!("{base}.recovery_status"), of(|target| target.body.exports().recovery_status()));
    params.register(format!("{base}.num_exports"), of(|target| target.body.exports().sessions().len().to_string()));
    params.register(format!("{base}.instance"), of(|target| (target.body.exports().last_assigned().0 >> 32).to_string()));
}
