//! Values that the MGS may store as permanent parameters. The name must exist, and the value must
//! not prevent the mount of a file system after a restart.

use device::Model;
use params::{Pattern, PatternError};
use service::spec::SERVICES;
use types::{FsName, Span, TargetId};
use wire::config::FsConfig;

use super::rules;

/// All parameters of servers and mounts, with their instances taken out; those that can be set end
/// in [`CAN_BE_SET`]. A mounted test holds this list against a running file system.
const NAMES: &str = include_str!("../../../../../tests/mounted/parameters.txt");

/// As `lctl list_param -F` marks them.
const CAN_BE_SET: char = '=';

/// Between two requests of a permanent rule. A mount takes a few of them within 60 s.
const INTERVAL_MAX: Span = Span::secs(1);

/// The same for a rule whose clients share it: some hundreds of mounts begin within 60 s.
const SHARED_INTERVAL_MAX: Span = Span::millis(100);

/// Of a page on an idle permanent device. An attempt to connect ends after 10 s. Before that it
/// waits for the commit that is under way and for its own, of both targets on one storage.
const DEVICE_MAX: Span = Span::secs(1);

/// What a pattern stands for in a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Known {
    Nothing,
    /// Parameters that only show something.
    ReadOnly,
    /// At least one parameter that can be set.
    CanBeSet,
}

/// What of a file system has a name that fits `pattern`, or will have it with its first targets and
/// mounts.
pub(crate) fn known(
    pattern: &str,
    fsname: FsName,
    config: &FsConfig,
) -> Result<Known, PatternError> {
    let matcher = Pattern::new(pattern)?;
    let targets = targets(config);
    let of_old = |id: &TargetId| format!("{}.osc.active", id.name(fsname));
    let mut olds = targets.iter().filter(|id| id.is_ost()).map(of_old);
    let fits =
        |name: &str| matcher.matches(&name.split('.').map(str::to_owned).collect::<Vec<_>>());
    let mut known = Known::Nothing;
    for line in NAMES.lines() {
        let name = line.trim_end_matches(CAN_BE_SET);
        let of_it = if name == line { Known::ReadOnly } else { Known::CanBeSet };
        if known < of_it && instances(name, fsname, &targets).iter().any(|name| fits(name)) {
            known = of_it;
        }
    }
    Ok(if olds.any(|name| fits(&name)) { Known::CanBeSet } else { known })
}

/// The registered targets, and of each kind one that may come.
fn targets(config: &FsConfig) -> Vec<TargetId> {
    let ids = config.targets.iter().filter_map(|info| TargetId::from_u32(info.id));
    let may_come = [TargetId::mdt(0), TargetId::dom(0), TargetId::ost(0)];
    let mut all: Vec<TargetId> = ids.chain(may_come).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The names that a listed one stands for.
fn instances(name: &str, fsname: FsName, targets: &[TargetId]) -> Vec<String> {
    if let Some(leaf) = name.strip_prefix("SERVICE.") {
        return SERVICES.iter().map(|spec| format!("{}.{leaf}", spec.path)).collect();
    }
    let general = |part: &&str| {
        ["MDT", "DOM", "OST", "MOUNT"].iter().any(|kind| part.split('-').next() == Some(*kind))
    };
    let Some(part) = name.split('.').find(general) else { return vec![name.to_owned()] };
    let (kind, more) = part.split_once('-').unwrap_or((part, ""));
    let with = |instance: String| name.replacen(part, &instance, 1);
    if kind == "MOUNT" {
        return vec![with(format!("{fsname}-1"))];
    }
    let mine = targets.iter().filter(|id| id.to_string().starts_with(kind));
    mine.map(|id| {
        with(match more {
            "" => id.name(fsname),
            "mdtlov" => format!("{}-{more}", id.name(fsname)),
            connector => format!("{}-{connector}-1", id.name(fsname)),
        })
    })
    .collect()
}

/// Why a value is never permanent: with it a file system could not be mounted after a restart. A
/// command of a rule is taken together with those that are `kept` before it.
pub(crate) fn hinders(name: &str, value: &str, kept: &[String]) -> Option<&'static str> {
    match name.rsplit('.').next()? {
        "nrs_policies" if value.split_whitespace().next() == Some("delay") => {
            Some("delay is for tests: mounts would wait for it")
        }
        "nrs_tbf_rule" => {
            let speed = speed(value, kept)?;
            match (speed.interval?, speed.is_shared()) {
                (interval, true) if interval > SHARED_INTERVAL_MAX => Some(SHARED_IS_SLOW),
                (interval, _) if interval > INTERVAL_MAX => {
                    Some("mounts would wait: the least is a request, or 4 KiB, a second")
                }
                _ => None,
            }
        }
        "tbf_rate" => {
            // of rules that name no rate, shared ones among them
            let is_slow = |rate: u64| rate < 1_000 / SHARED_INTERVAL_MAX.as_millis();
            value.trim().parse().is_ok_and(is_slow).then_some(SHARED_IS_SLOW)
        }
        "device" => {
            let model = Model::parse(value).ok().flatten()?;
            (model.slowest() > DEVICE_MAX).then_some(
                "mounts would wait: a page takes at most a second, to read, or to write and sync",
            )
        }
        _ => None,
    }
}

/// Why a policy or a command of a rule is never permanent beside what is `kept`: with the policy's
/// argument clients share the rule, and it is too slow for that.
pub(crate) fn clashes(name: &str, value: &str, kept: &[(String, String)]) -> Option<&'static str> {
    let is_slow = |rule: &str, command: &str| {
        let all: Vec<String> = rules::of(kept, rule).map(|(_, command)| command.clone()).collect();
        let interval = speed(command, &all).and_then(|speed| speed.interval);
        interval.is_some_and(|interval| interval > SHARED_INTERVAL_MAX)
    };
    let clashes = match name.rsplit('.').next()? {
        "nrs_policies" => kept.iter().any(|(key, command)| {
            let clash = |rule| meet((name, value), (rule, command)) && is_slow(rule, command);
            rules::base(key).is_some_and(clash)
        }),
        "nrs_tbf_rule" => {
            let meets = |(key, kept): &(String, String)| meet((key, kept), (name, value));
            kept.iter().any(meets) && is_slow(name, value)
        }
        _ => false,
    };
    clashes.then_some(MIXED_IS_SLOW)
}

/// Whether a service takes both a policy whose argument mixes clients and the command of a rule.
fn meet((policy, value): (&str, &str), (rule, command): (&str, &str)) -> bool {
    let heads = (head(value.split_whitespace().nth(1)), head(command.split_whitespace().next()));
    let has_same_head = heads.0.is_none() || heads.1.is_none() || heads.0 == heads.1;
    let takes = |pattern: &str, path: &str, leaf: &str| {
        let name: Vec<String> = path.split('.').chain([leaf]).map(str::to_owned).collect();
        Pattern::new(pattern).is_ok_and(|pattern| pattern.matches(&name))
    };
    let takes_both =
        |path: &str| takes(policy, path, "nrs_policies") && takes(rule, path, "nrs_tbf_rule");
    nrs::tbf_mixes_clients(value)
        && has_same_head
        && SERVICES.iter().any(|spec| takes_both(spec.path))
}

/// The head that a command names.
fn head(word: Option<&str>) -> Option<&str> {
    word.filter(|word| ["reg", "hp"].contains(word))
}

/// What a command says about the speed of its rule, together with those of `kept` before it. A
/// value that is not understood is refused wherever it comes to be set.
fn speed(value: &str, kept: &[String]) -> Option<nrs::TbfSpeed> {
    let commands = rules::before(value, kept).chain([value]);
    let said = commands.filter_map(|command| nrs::parse_tbf_rule(command).ok());
    said.reduce(nrs::TbfSpeed::then)
}

const MIXED_IS_SLOW: &str = "mounts would wait: with a policy's argument without nid, \
     the least of a rule is 10 requests, or 40 KiB, a second";

const SHARED_IS_SLOW: &str =
    "mounts would wait: the least for all clients together is 10 requests, or 40 KiB, a second";

#[cfg(test)]
mod tests {
    use wire::config::TargetInfo;

    use super::*;

    fn known(pattern: &str) -> Known {
        let info = |id: TargetId| TargetInfo { id: id.to_u32(), nid: 1, port: 1, instance: 1 };
        let targets = vec![info(TargetId::mdt(0)), info(TargetId::ost(3))];
        let config = FsConfig { targets, ..FsConfig::default() };
        super::known(pattern, "testfs".parse().expect("a name"), &config).expect("a pattern")
    }

    #[test]
    fn names_and_targets_that_do_not_exist_are_unknown() {
        for name in [
            "at_max",
            "ost.OSS.ost_io.nrs_policies",
            "*.*.*.nrs_policies",
            "lod.*.stripecount",
            "lod.testfs-MDT*-mdtlov.stripecount",
            "obdfilter.testfs-OST0003.commit_interval_ms",
            "testfs-OST0003.osc.active",
            "mdt_data.testfs-DOM0000.commit_interval_ms",
            "llite.*.unmount_wait",
        ] {
            assert_eq!(known(name), Known::CanBeSet, "{name}");
        }
        for name in [
            "version",
            "*.*.instance",
            "osc.testfs-OST0003-osc-*.active",
            "obdfilter.*.uuid",
            "ost.OSS.*.nrs_stats",
            "obdfilter.testfs-OST0003.kbytes*",
        ] {
            assert_eq!(known(name), Known::ReadOnly, "{name}");
        }
        for name in [
            "bogus.name",
            "at_maximum",
            "ost.OSS.ost_out.nrs_policies",
            "ost.OSS.ost_io",
            "obdfilter.testfs-OST0009.commit_interval_ms",
            "lod.other-MDT*-mdtlov.stripecount",
            "testfs-OST0009.osc.active",
            "testfs-DOM0000.osc.active",
            "obdfilter.testfs-DOM0000.commit_interval_ms",
        ] {
            assert_eq!(known(name), Known::Nothing, "{name}");
        }
    }

    #[test]
    fn what_would_keep_mounts_waiting_is_not_permanent() {
        for (name, value, is_fit) in [
            ("mds.MDS.mdt.nrs_policies", "delay", false),
            ("*.*.*.nrs_policies", "delay hp", false),
            ("mds.MDS.mdt.nrs_policies", "tbf nid", true),
            ("mds.MDS.mdt.nrs_tbf_rule", "change default rate=0.01", false),
            ("mds.MDS.mdt.nrs_tbf_rule", "start one nid={*@tcp} rate=1", true),
            ("mds.MDS.mdt.nrs_tbf_rule", "start one nid={*@tcp} bps=1MB/s", true),
            ("mds.MDS.mdt.nrs_tbf_rule", "start one nid={*@tcp} bps=1KB/s", false),
            ("mds.MDS.mdt.nrs_tbf_rule", "start one nid={*@tcp} bps=5", true),
            ("mds.MDS.mdt.nrs_tbf_rule", "start one nid={*@tcp} bps=4KiB", true),
            ("mds.MDS.mdt.nrs_tbf_rule", "start one nid={*@tcp}rate=0.01", false),
            ("mds.MDS.mdt.nrs_tbf_rule", "hp start one nid={ *@tcp }bps=1KB", false),
        ] {
            assert_eq!(hinders(name, value, &[]).is_none(), is_fit, "{name}={value}");
        }
    }

    #[test]
    fn a_rule_that_clients_share_is_faster_than_one_of_each_client() {
        let rule = "mds.MDS.mdt.nrs_tbf_rule";
        for (value, is_fit) in [
            ("start one nid={*@tcp} rate=10 total=1", true),
            ("start one nid={*@tcp} rate=9.999 total=1", false),
            ("start one nid={*@tcp} bps=40KiB total=1", true),
            ("start one nid={*@tcp} bps=39KiB total=1", false),
            ("start one uid={0} rate=1 class=uid", false),
            ("start one uid={0} rate=1 class=nid+uid", true),
            ("start one uid={0} rate=1 total=0", true),
            ("start one nid={*@tcp} total=1", true),
        ] {
            assert_eq!(hinders(rule, value, &[]).is_none(), is_fit, "{value}");
        }
        let kept = |commands: &[&str]| -> Vec<String> {
            commands.iter().map(|command| (*command).to_owned()).collect()
        };
        let all = kept(&["start one nid={*@tcp} rate=50 total=1", "start two uid={0} rate=1"]);
        for (value, is_fit) in [
            ("change one rate=1", false),
            ("change one rate=1 total=0", true),
            ("change one rate=10", true),
            ("change two total=1", false),
            ("change two total=1 rate=10", true),
            ("start one nid={*@tcp} rate=1", true),
        ] {
            assert_eq!(hinders(rule, value, &all).is_none(), is_fit, "{value}");
        }
        assert!(hinders(rule, "change one total=1", &kept(&["start one uid={0}"])).is_none());
        assert!(
            hinders("tbf_rate", "9", &[]).is_some() && hinders("tbf_rate", "10", &[]).is_none()
        );
    }

    #[test]
    fn an_argument_without_nid_goes_with_fast_rules_only() {
        let rule = "ost.OSS.ost_io.nrs_tbf_rule";
        let kept = |name: &str, value: &str| [(name.to_owned(), value.to_owned())];
        for (policy, value, is_fit) in [
            ("ost.OSS.*.nrs_policies", "tbf uid", false),
            ("*.*.*.nrs_policies", "tbf jobid+opcode", false),
            ("ost.OSS.ost_io.nrs_policies", "tbf hp uid", false),
            ("ost.OSS.ost_io.nrs_policies", "tbf uid+nid", true),
            ("ost.OSS.ost_io.nrs_policies", "tbf", true),
            ("mds.MDS.*.nrs_policies", "tbf uid", true),
        ] {
            let slow = "start one uid={0} rate=9";
            let refused = clashes(rule, slow, &kept(policy, value));
            assert_eq!(refused.is_none(), is_fit, "a rule after {policy}={value}");
            let refused = clashes(policy, value, &kept(&format!("{rule}[0001:one]"), slow));
            assert_eq!(refused.is_none(), is_fit, "a rule before {policy}={value}");
        }
        let policy = kept("ost.OSS.ost_io.nrs_policies", "tbf hp uid");
        for (command, is_fit) in [
            ("start one uid={0} rate=10", true),
            ("start one uid={0}", true),
            ("reg start one uid={0} rate=1", true),
            ("hp start one uid={0} rate=1", false),
            ("stop one", true),
        ] {
            assert_eq!(clashes(rule, command, &policy).is_none(), is_fit, "{command}");
        }
    }

    #[test]
    fn a_permanent_device_is_one_that_connects_can_wait_for() {
        for (value, is_fit) in [
            ("off", true),
            ("disk", true),
            ("flash,write_iops=2", true),
            ("flash,sync_us=999000", true),
            ("flash,sync_us=1000000", false),
            ("flash,sync_us=10000000,write_us=10000000,depth=1", false),
            ("read_us=1000000", true),
            ("read_us=1000001", false),
            ("flash,write_iops=1", false),
            ("disk,seek_max_us=2000000", false),
            ("disk,seek_min_us=2000000", false),
            ("disk,turn_us=4000000", false),
            ("read_mibps=1,write_mibps=1", true),
            ("tape", true), // refused where it is set
        ] {
            for name in ["mdt.*.device", "obdfilter.testfs-OST0000.device"] {
                assert_eq!(hinders(name, value, &[]).is_none(), is_fit, "{name}={value}");
            }
        }
    }
}
