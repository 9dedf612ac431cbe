//! `lctl set_param -P` on the node of the MGS: which values are stored and which are refused.

use mgt::Mgt;
use types::{Errno, FsName};
use wire::config::FsConfig;

use super::fit::Known;
use super::{fit, rules};

/// Why a permanent parameter is not kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) errno: Errno,
    pub(crate) why: String,
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Refused {
        Refused { errno, why: errno.text().to_owned() }
    }
}

fn refused(errno: Errno, why: &str) -> Refused {
    Refused { errno, why: format!("{}: {why}", errno.text()) }
}

/// What a node without a file system of its own takes over: the parameters of all.
pub(crate) async fn of_all(mgt: &Mgt) -> Result<Vec<(String, String)>, Errno> {
    let mut all = Vec::new();
    for (_, config) in mgt.configs().await? {
        for param in config.params {
            if !all.contains(&param) {
                all.push(param);
            }
        }
    }
    Ok(all)
}

/// Keeps a value, or without one deletes what is kept, for one file system or for all. Says for
/// which.
pub(crate) async fn keep(
    mgt: &Mgt,
    fsname: Option<FsName>,
    name: &str,
    value: Option<&str>,
) -> Result<Vec<FsName>, Refused> {
    let mut configs = mgt.configs().await?;
    configs.retain(|(known, _)| fsname.is_none_or(|wanted| wanted == *known));
    if configs.is_empty() {
        return Err(Errno::ENOENT.into());
    }
    let changes = plan(&configs, name, value)?;
    for (fsname, name, value) in &changes {
        mgt.set_param(Some(*fsname), name, value.as_deref()).await?;
    }
    let mut names: Vec<FsName> = changes.into_iter().map(|(fsname, ..)| fsname).collect();
    names.dedup();
    Ok(names)
}

type Change = (FsName, String, Option<String>);

/// The records that change; none without an error where they are as they should be.
fn plan(
    configs: &[(FsName, FsConfig)],
    name: &str,
    value: Option<&str>,
) -> Result<Vec<Change>, Refused> {
    let Some(value) = value else { return deletions(configs, name) };
    let mut changes = Vec::new();
    let mut known = Known::Nothing;
    for (fsname, config) in configs {
        let kept: Vec<String> =
            rules::of(&config.params, name).map(|(_, command)| command.clone()).collect();
        let clash = || fit::clashes(name, value, &config.params);
        if let Some(why) = fit::hinders(name, value, &kept).or_else(clash) {
            return Err(refused(Errno::EINVAL, why));
        }
        let here = fit::known(name, *fsname, config)
            .map_err(|error| refused(Errno::EINVAL, &error.to_string()))?;
        known = known.max(here);
        if !rules::is_rule(name) {
            changes.push((*fsname, name.to_owned(), Some(value.to_owned())));
            continue;
        }
        nrs::parse_tbf_rule(value).map_err(|refusal| refused(refusal.errno, &refusal.text))?;
        let change = rules::change(&config.params, name, value)
            .map_err(|errno| refused(errno, "no such rule is permanent, or no such command is"))?;
        let kept = change.kept_as.map(|name| (*fsname, name, Some(value.to_owned())));
        changes.extend(kept);
        changes.extend(change.deleted.into_iter().map(|name| (*fsname, name, None)));
    }
    match known {
        Known::CanBeSet => Ok(changes),
        Known::ReadOnly => Err(refused(
            Errno::EACCES,
            "it is read-only; lctl list_param -F marks with = those that can be set",
        )),
        Known::Nothing => Err(refused(
            Errno::ENOENT,
            "no daemon has a parameter of that name; lctl list_param -R '*' lists all",
        )),
    }
}

fn deletions(configs: &[(FsName, FsConfig)], name: &str) -> Result<Vec<Change>, Refused> {
    let mut all = Vec::new();
    for (fsname, config) in configs {
        let kept = config.params.iter().map(|(kept, _)| kept);
        let mine = kept.filter(|kept| *kept == name || rules::base(kept) == Some(name));
        all.extend(mine.map(|kept| (*fsname, kept.clone(), None)));
    }
    match all.is_empty() {
        false => Ok(all),
        true => Err(refused(Errno::ENOENT, "nothing of that name is permanent")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: &str = "ost.OSS.ost_io.nrs_tbf_rule";

    /// Does it to what is kept of two file systems; the error's number.
    fn check(kept: &mut [(FsName, FsConfig)], name: &str, value: Option<&str>) -> Option<Errno> {
        let changes = match plan(kept, name, value) {
            Ok(changes) => changes,
            Err(refused) => return Some(refused.errno),
        };
        for (fsname, name, value) in changes {
            let (_, config) = kept.iter_mut().find(|(one, _)| *one == fsname).expect("known");
            config.params.retain(|(known, _)| *known != name);
            config.params.extend(value.map(|value| (name, value)));
            config.params.sort();
        }
        None
    }

    #[test]
    fn rules_are_kept_and_deleted_and_what_does_not_exist_is_refused() {
        let name = |name: &str| name.parse::<FsName>().expect("a name");
        let mut kept = ["one", "two"].map(|fs| (name(fs), FsConfig::default()));
        let mut set = |name: &str, value: Option<&str>| check(&mut kept, name, value);
        assert_eq!(set("bogus.name", Some("1")), Some(Errno::ENOENT));
        assert_eq!(set("one-OST0009.osc.active", Some("0")), Some(Errno::ENOENT));
        assert_eq!(set("at_max", None), Some(Errno::ENOENT), "nothing to delete");
        assert_eq!(set("obdfilter.*.kbytesfree", Some("1")), Some(Errno::EACCES), "it only shows");
        assert_eq!(set("mds.MDS.mdt.nrs_policies", Some("delay")), Some(Errno::EINVAL));
        assert_eq!(set("mdt.*.device", Some("flash,sync_us=9000000")), Some(Errno::EINVAL));
        assert_eq!(set("at_max", Some("500")), None);
        assert_eq!(set(RULE, Some("start a nid={*@tcp} rate=9")), None);
        assert_eq!(set(RULE, Some("hp start b jobid={b} rate=9")), None);
        assert_eq!(set(RULE, Some("change a total=1")), Some(Errno::EINVAL), "9 a second for all");
        for wrong in ["start c jobid={b rate=5", "start c rate=5", "start c[d uid={5}", "change a"]
        {
            assert_eq!(set(RULE, Some(wrong)), Some(Errno::EINVAL), "{wrong}");
        }
        assert_eq!(set(RULE, Some("stop c")), Some(Errno::ENOENT));
        assert_eq!(kept.each_ref().map(|(_, config)| config.params.len()), [3, 3]);
        assert_eq!(check(&mut kept, RULE, None), None);
        assert_eq!(check(&mut kept, "at_max", None), None);
        assert!(kept.iter().all(|(_, config)| config.params.is_empty()));
    }
}
