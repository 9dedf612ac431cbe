//! Which head a worker takes from: HP first, but not for ever. One slot is kept free for HP.
//!
//! With R slots, A active requests, Ah active HP requests and h HP requests taken since the last
//! regular one:
//!
//! ```text
//! may take HP   : A < R-1 and (Ah == 0 or no regular pending or h < ratio)
//! may take REG  : A < R-2 or (A == R-2 and (Ah > 0 or the service has no HP head))
//! ```
//! Invariants
//! - If there is an HP head, regular requests leave one slot that only HP requests may take.
//! - While regular requests wait, at most `ratio` HP requests are taken in a row once one is
//!   active.

/// `high_priority_ratio` of Lustre.
const RATIO_DEFAULT: u32 = 10;

/// What a partition has at hand.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub slots: u32,
    /// Requests that occupy one.
    pub active: u32,
    /// Those of them that came through the HP head.
    pub active_hp: u32,
    /// Whether the HP head has a request.
    pub pending_hp: bool,
    /// Whether the regular head has one.
    pub pending_reg: bool,
    /// Whether the service has an HP head at all.
    pub has_hp: bool,
}

/// Which head to take from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Hp,
    Reg,
}

#[derive(Clone, Debug)]
pub struct Pick {
    ratio: u32,
    streak: u32,
}

impl Default for Pick {
    fn default() -> Pick {
        Pick { ratio: RATIO_DEFAULT, streak: 0 }
    }
}

impl Pick {
    /// `high_priority_ratio`.
    #[must_use]
    pub fn ratio(&self) -> u32 {
        self.ratio
    }

    /// Sets `high_priority_ratio`.
    pub fn set_ratio(&mut self, ratio: u32) {
        self.ratio = ratio;
    }

    /// The head to take from now; the answer is meant to be followed. If that head then holds its
    /// requests back, ask again with its `pending` false.
    pub fn next(&mut self, load: &Load) -> Option<Turn> {
        if load.pending_hp && self.may_take_hp(load) {
            self.streak += 1;
            Some(Turn::Hp)
        } else if load.pending_reg && may_take_reg(load) {
            self.streak = 0;
            Some(Turn::Reg)
        } else {
            None
        }
    }

    fn may_take_hp(&self, load: &Load) -> bool {
        load.active + 1 < load.slots
            && (load.active_hp == 0 || !load.pending_reg || self.streak < self.ratio)
    }
}

fn may_take_reg(load: &Load) -> bool {
    load.active + 2 < load.slots
        || (load.active + 2 == load.slots && (load.active_hp > 0 || !load.has_hp))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Load = Load {
        slots: 8,
        active: 0,
        active_hp: 0,
        pending_hp: true,
        pending_reg: true,
        has_hp: true,
    };

    #[test]
    fn high_priority_goes_first() {
        assert_eq!(Pick::default().next(&BUSY), Some(Turn::Hp));
    }

    #[test]
    fn one_slot_is_kept_for_high_priority() {
        let regular = Load { pending_hp: false, ..BUSY };
        assert_eq!(Pick::default().next(&Load { active: 5, ..regular }), Some(Turn::Reg));
        assert_eq!(Pick::default().next(&Load { active: 6, ..regular }), None);
        assert_eq!(
            Pick::default().next(&Load { active: 6, active_hp: 1, ..regular }),
            Some(Turn::Reg)
        );
        assert_eq!(
            Pick::default().next(&Load { active: 6, has_hp: false, ..regular }),
            Some(Turn::Reg)
        );
        assert_eq!(Pick::default().next(&Load { active: 6, ..BUSY }), Some(Turn::Hp));
        assert_eq!(Pick::default().next(&Load { active: 7, ..BUSY }), None);
    }

    #[test]
    fn high_priority_yields_after_the_ratio() {
        let mut pick = Pick::default();
        let load = Load { active: 1, active_hp: 1, ..BUSY };
        let turns: Vec<_> = (0..12).map(|_| pick.next(&load)).collect();
        assert!(turns[..10].iter().all(|turn| *turn == Some(Turn::Hp)));
        assert_eq!(turns[10..], [Some(Turn::Reg), Some(Turn::Hp)]);
    }
}
