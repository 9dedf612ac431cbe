//! Parameters of a mount, under Lustre's names for its parts: `llite` (the mount), `mdc` and `osc` (its connectors).

use client::{Client, TargetState};
use env::ParamTree;
use types::TargetKind;

/// Registers those of `client`. Connectors come and go with the configuration: theirs are looked up when asked for.
pub(super) fn register(params: &ParamTree, client: &Client, instance: &str) {
    let fsname = client.fsname();
    let llite = format!("llite.{fsname}-{instance}");
    params.register("version", || env!("CARGO_PKG_VERSION").to_owned());
    let of = client.clone();
    params.register("health_check", move || health(&of));
    params.register(format!("{llite}.fstype"), || "nacre".to_owned());
    params.register(format!("{llite}.client_type"), || "local client".to_owned());
    let of = client.clone();
    params.register(format!("{llite}.waiting_on"), move || of.waiting_on().join("\n"));
    for target in client.mdts().into_iter().chain(client.osts()) {
        connector(params, client, instance, &target);
    }
}

fn health(client: &Client) -> String {
    let waiting = client.waiting_on();
    if waiting.is_empty() { "healthy".into() } else { format!("NOT HEALTHY\n{}", waiting.join("\n")) }
}

fn connector(params: &ParamTree, client: &Client, instance: &str, target: &TargetState) {
    let kind = if target.id.kind == TargetKind::Mdt { "mdc" } else { "osc" };
    let base = format!("{kind}.{}-{kind}-{instance}", target.name);
    let (of, id, name) = (client.clone(), target.id, format!("{}-{kind}-{instance}", target.name));
    params.register(format!("{base}.import"), move || now(&of, id).map_or_else(String::new, |state| import(&name, &state)));
    let (of, id) = (client.clone(), target.id);
    params.register(format!("{base}.active"), move || {
        now(&of, id).map_or("0", |state| if state.active { "1" } else { "0" }).into()
    });
    let (of, id) = (client.clone(), target.id);
    params.register(format!("{base}.state"), move || now(&of, id).map_or_else(String::new, |state| state.state));
}

fn now(client: &Client, id: types::TargetId) -> Option<TargetState> {
    client.mdts().into_iter().chain(client.osts()).find(|state| state.id == id)
}

/// As Lustre's `import`: YAML.
fn import(name: &str, state: &TargetState) -> String {
    format!(
        "import:\n    name: {name}\n    target: {}_UUID\n    state: {}\n    connection:\n        current_connection: {}\n",
        state.name, state.state, state.nid
    )
}
