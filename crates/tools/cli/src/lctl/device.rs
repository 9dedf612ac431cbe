//! `lctl dl` and `lctl list_nids`.

use ctl::{Ask, Device, Reply, everywhere};

use crate::Failed;
use crate::failure::First;
use crate::form::Form;

/// Arguments of `lctl dl`.
#[derive(Debug, clap::Args)]
pub(super) struct Dl {
    /// With the NID to which each connector connects.
    #[arg(short = 't')]
    nids: bool,
    #[command(flatten)]
    form: Form,
}

pub(super) fn dl(args: &Dl) -> Result<(), Failed> {
    let (replies, first) = ask_all(&Ask::Devices, "lctl dl");
    let of = |reply| if let Reply::Devices(devices) = reply { devices } else { Vec::new() };
    let devices: Vec<Device> = replies.into_iter().flat_map(of).collect();
    args.form.print(&devices, || render(&devices, args.nids));
    first.end()
}

fn render(devices: &[Device], with_nids: bool) -> String {
    let line = |(number, device): (usize, &Device)| {
        let Device { status, kind, name, uuid, refs, nid } = device;
        let at = if with_nids && !nid.is_empty() { format!(" {nid}") } else { String::new() };
        format!("{number:>3} {status} {kind} {name} {uuid} {refs}{at}\n")
    };
    devices.iter().enumerate().map(line).collect()
}

/// Arguments of `lctl list_nids`.
#[derive(Debug, clap::Args)]
pub(super) struct ListNids {
    #[command(flatten)]
    form: Form,
}

pub(super) fn list_nids(args: &ListNids) -> Result<(), Failed> {
    let (replies, first) = ask_all(&Ask::Nids, "lctl list_nids");
    let of = |reply| if let Reply::Lines(lines) = reply { lines } else { Vec::new() };
    let mut nids: Vec<String> = replies.into_iter().flat_map(of).collect();
    let mut seen = std::collections::BTreeSet::new();
    nids.retain(|nid| seen.insert(nid.clone()));
    args.form.print(&nids, || nids.iter().map(|nid| format!("{nid}\n")).collect());
    first.end()
}

/// One answer of each daemon; those that do not answer are told and skipped.
pub(super) fn ask_all(question: &Ask, command: &str) -> (Vec<Reply>, First) {
    let mut first = First::default();
    let mut replies = Vec::new();
    for (daemon, answer) in everywhere::ask_all(question) {
        match answer {
            Ok(reply) => replies.push(reply),
            Err(error) => first
                .note(&Failed::new(error.errno(), format!("error: {command}: {daemon}: {error}"))),
        }
    }
    (replies, first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_numbered_over_all_daemons() {
        let device = |kind: &str, name: &str, nid: &str| Device {
            status: "UP".into(),
            kind: kind.into(),
            name: name.into(),
            uuid: format!("{name}_UUID"),
            refs: 4,
            nid: nid.into(),
        };
        let osc = device("osc", "testfs-OST0000-osc-ffff9a80", "127.0.0.4@tcp");
        let devices = [device("mgs", "MGS", ""), osc];
        let lines = "  0 UP mgs MGS MGS_UUID 4\n  1 UP osc testfs-OST0000-osc-ffff9a80 testfs-OST0000-osc-ffff9a80_UUID 4";
        assert_eq!(render(&devices, false), format!("{lines}\n"));
        assert_eq!(render(&devices, true), format!("{lines} 127.0.0.4@tcp\n"));
    }
}
