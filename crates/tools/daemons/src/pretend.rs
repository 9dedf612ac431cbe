//! Simulated devices under targets (`--device`).

use std::str::FromStr;

use anyhow::{Context, Result};
use device::{BadModel, Model};

/// Which targets pretend to be on which device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pretend {
    /// A shell pattern of names, with the file system's or without.
    targets: String,
    /// `None`: no device.
    model: Option<Model>,
}

impl Pretend {
    /// What the last of `all` that concerns a target says of it.
    pub(crate) fn find(all: &[Pretend], name: &str) -> Option<Model> {
        let short = name.split_once('-').map_or(name, |(_, short)| short);
        let concerns = |one: &&Pretend| {
            let matches =
                |name: &str| params::glob::matches(one.targets.as_bytes(), name.as_bytes());
            matches(name) || matches(short)
        };
        all.iter().rev().find(concerns).and_then(|one| one.model.clone())
    }
}

impl FromStr for Pretend {
    type Err = anyhow::Error;

    /// `[TARGETS:]flash|disk|off|FILE`, or what such a file says, with commas.
    fn from_str(text: &str) -> Result<Pretend> {
        let (targets, told) = match text.split_once(':') {
            Some((targets, told)) if !targets.contains(['/', '=']) => (targets, told),
            _ => ("*", text),
        };
        let model = match Model::parse(told) {
            Ok(model) => model,
            Err(BadModel::Unknown(_)) if std::path::Path::new(told).is_file() => {
                let described = std::fs::read_to_string(told).with_context(|| told.to_owned())?;
                Model::parse(&described).with_context(|| told.to_owned())?
            }
            Err(BadModel::Unknown(what)) if what == told.trim() => {
                anyhow::bail!("{}, or a file of such lines", BadModel::Unknown(what))
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Pretend { targets: targets.to_owned(), model })
    }
}

impl std::fmt::Display for Pretend {
    /// As it is read, without files.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let model = self.model.as_ref().map_or("off".to_owned(), ToString::to_string);
        write!(f, "{}:{model}", self.targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_that_concerns_a_target_holds() {
        let all: Vec<Pretend> = ["disk", "OST000[01]:flash,read_mibps=90", "testfs-OST0001:off"]
            .map(|text| text.parse().expect("well written"))
            .into();
        let of = |name| Pretend::find(&all, name);
        assert_eq!(of("testfs-MDT0000"), Some(Model::disk()));
        assert_eq!(of("testfs-OST0000").map(|model| model.read_mibps), Some(90));
        assert_eq!(of("testfs-OST0001"), None);
        assert_eq!(of("other-OST0001").map(|model| model.read_mibps), Some(90));
        let told: Vec<Pretend> =
            all.iter().map(|one| one.to_string().parse().expect("as it prints")).collect();
        assert_eq!(told, all);
    }

    #[test]
    fn a_file_may_say_it_and_a_wrong_word_is_refused() {
        let path = std::env::temp_dir().join(format!("nacre-device-{}", std::process::id()));
        std::fs::write(&path, "disk\nread_mibps = 70  # an old one\n").expect("a file");
        let read: Result<Pretend> = format!("OST*:{}", path.display()).parse();
        std::fs::remove_file(&path).expect("it was there");
        assert_eq!(read.expect("well written").model.expect("one").read_mibps, 70);
        let error = "OST*:tape".parse::<Pretend>().expect_err("no device").to_string();
        assert!(error.starts_with("'tape' is not a device") && error.contains("a file"), "{error}");
    }
}
