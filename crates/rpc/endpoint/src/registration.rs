//! Whether the MGS still knows a target that registered. If an administrator has removed the
//! target, it stays away until it starts again. The MGS also loses targets when it starts without
//! its records or with an older copy of them. Then they register again.

use wire::config::{FsConfig, Register, TargetInfo};

/// A registration that the MGS has answered, and what became of it.
#[derive(Clone, Debug)]
pub struct Registration {
    register: Register,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is in the configuration of this version.
    Known(FsVersion),
    /// The MGS has lost it.
    Lost,
    /// It was forgotten, or another server has the target.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FsVersion(u64);

impl FsVersion {
    /// Whether `config` has all changes that this version has.
    fn is_part_of(self, config: &FsConfig) -> bool {
        let own = FsConfig { version: self.0, ..FsConfig::default() };
        own.generation() == config.generation() && config.version >= self.0
    }
}

impl Registration {
    /// One that the MGS answered with a configuration of `version`.
    #[must_use]
    pub fn new(register: Register, version: u64) -> Registration {
        Registration { register, state: State::Known(FsVersion(version)) }
    }

    /// What to say to the MGS again where it [`is_lost`](Registration::is_lost).
    #[must_use]
    pub fn register(&self) -> &Register {
        &self.register
    }

    /// Whether the target is to register again.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.state == State::Lost
    }

    /// Takes in a configuration that was asked for after the registration; none where the MGS does
    /// not know the file system.
    pub fn hear(&mut self, config: Option<&FsConfig>) {
        let State::Known(version) = self.state else { return };
        let Some(config) = config else { return self.state = State::Lost };
        self.state = match self.listed(config) {
            Some(listed) if *listed == self.register.target => {
                State::Known(FsVersion(config.version))
            }
            // the instance of a target that moves never goes back
            Some(listed) if listed.instance < self.register.target.instance => State::Lost,
            _ if version.is_part_of(config) => State::Over,
            _ => State::Lost,
        };
    }

    /// The MGS has answered it once more.
    pub fn repeated(&mut self, version: u64) {
        self.state = State::Known(FsVersion(version));
    }

    /// The MGS does not take it any more.
    pub fn give_up(&mut self) {
        self.state = State::Over;
    }

    /// The target in a configuration, if it has it on this storage.
    fn listed<'a>(&self, config: &'a FsConfig) -> Option<&'a TargetInfo> {
        let id = self.register.target.id;
        let uuid = config.uuid_of(id);
        let is_ours = uuid == 0 || uuid == self.register.uuid;
        config.targets.iter().find(|info| info.id == id && is_ours)
    }
}

#[cfg(test)]
mod tests {
    use types::TargetId;
    use wire::config::first_version;

    use super::*;

    fn info(instance: u64) -> TargetInfo {
        TargetInfo { id: TargetId::ost(1).to_u32(), nid: 7, port: 988, instance }
    }

    fn config(version: u64, targets: &[TargetInfo]) -> FsConfig {
        let uuids = targets.iter().map(|_| 11).collect();
        FsConfig { version, targets: targets.to_vec(), uuids, ..FsConfig::default() }
    }

    /// Registered with instance 4 at version 5, and then this.
    fn after(heard: Option<&FsConfig>) -> Registration {
        let register = Register { fsname: "testfs".to_owned(), target: info(4), uuid: 11 };
        let mut registration = Registration::new(register, 5);
        registration.hear(heard);
        registration
    }

    #[test]
    fn a_target_that_the_mgs_has_lost_registers_again() {
        assert!(!after(Some(&config(6, &[info(4)]))).is_lost());
        assert!(after(None).is_lost(), "the file system is unknown");
        assert!(after(Some(&config(4, &[]))).is_lost(), "an older copy");
        assert!(after(Some(&config(first_version(9) + 7, &[]))).is_lost(), "begun anew");
        assert!(after(Some(&config(5, &[info(3)]))).is_lost(), "an older copy that went on");
        let mut registration = after(None);
        registration.hear(Some(&config(first_version(9) + 1, &[])));
        assert!(registration.is_lost(), "until it is said again");
        registration.repeated(first_version(9) + 2);
        registration.hear(Some(&config(first_version(9) + 2, &[info(4)])));
        assert!(!registration.is_lost());
    }

    #[test]
    fn a_target_that_was_forgotten_stays_away_also_when_the_mgs_begins_anew() {
        let elsewhere = TargetInfo { nid: 8, ..info(5) };
        let replaced = FsConfig { uuids: vec![12], ..config(7, &[info(1)]) };
        for left in [config(6, &[]), config(6, &[elsewhere]), replaced] {
            let mut registration = after(Some(&left));
            assert!(!registration.is_lost());
            registration.hear(None);
            registration.hear(Some(&config(first_version(9) + 1, &[])));
            assert!(!registration.is_lost());
        }
    }

    #[test]
    fn what_the_mgs_refuses_is_not_said_again() {
        let mut registration = after(None);
        registration.give_up();
        registration.hear(None);
        assert!(!registration.is_lost());
    }
}
