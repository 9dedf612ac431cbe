//! Keeps the serving thread on the processor of the only caller.
//!
//! A queue belongs to a processor, so a request shows where its caller runs. A caller that waits
//! for each answer never runs at the same time as the answering thread. A wakeup on the same
//! processor costs a tenth of one that has to wake another processor. With two callers, or requests
//! that overlap, the thread may run anywhere.

/// Single requests from one processor, in a row, before the thread moves there.
const STEADY: u32 = 16;

/// Decides where to run.
#[derive(Default)]
pub(crate) struct Follow {
    /// Processor of the last requests, and how many single ones came from it in a row.
    seen: (u16, u32),
    bound: Option<u16>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Move {
    Stay,
    /// Run on this processor alone.
    Bind(u16),
    /// Run anywhere again.
    Release,
}

impl Follow {
    /// What one turn brought: the queues of its requests, and whether others are still being worked
    /// on.
    pub(crate) fn turn(&mut self, queues: impl Iterator<Item = u16>, busy: bool) -> Move {
        let mut queues = queues.peekable();
        let Some(queue) = queues.next() else { return Move::Stay };
        if busy || queues.peek().is_some() || queue != self.seen.0 {
            self.seen = (queue, 0);
        } else {
            self.seen.1 = (self.seen.1 + 1).min(STEADY);
        }
        match self.bound {
            None if self.seen.1 == STEADY => {
                self.bound = Some(queue);
                Move::Bind(queue)
            }
            Some(bound) if self.seen.1 == 0 || bound != queue => {
                self.bound = None;
                Move::Release
            }
            _ => Move::Stay,
        }
    }
}

/// The processors that this thread may use.
pub(crate) struct Affinity {
    whole: libc::cpu_set_t,
}

impl Affinity {
    /// What is allowed now; `None` where it cannot be told.
    pub(crate) fn current() -> Option<Affinity> {
        // SAFETY: an all-zero set is a valid empty one, and the kernel fills it up to the size
        // given.
        unsafe {
            let mut whole: libc::cpu_set_t = std::mem::zeroed();
            (libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut whole) == 0)
                .then_some(Affinity { whole })
        }
    }

    /// Carries a move out. One that is refused is only slower.
    pub(crate) fn apply(&self, to: &Move) {
        let set = match to {
            Move::Stay => return,
            Move::Release => self.whole,
            Move::Bind(cpu) => {
                let cpu = usize::from(*cpu);
                // SAFETY: the index is inside the set, which is checked first.
                unsafe {
                    if cpu >= 8 * size_of::<libc::cpu_set_t>() || !libc::CPU_ISSET(cpu, &self.whole)
                    {
                        return;
                    }
                    let mut one: libc::cpu_set_t = std::mem::zeroed();
                    libc::CPU_SET(cpu, &mut one);
                    one
                }
            }
        };
        // SAFETY: the kernel reads a set of the size given.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(follow: &mut Follow, count: u32, queue: u16) -> Vec<Move> {
        (0..count)
            .map(|_| follow.turn([queue].into_iter(), false))
            .filter(|to| *to != Move::Stay)
            .collect()
    }

    #[test]
    fn a_lone_caller_is_followed_after_a_while_and_only_once() {
        let mut follow = Follow::default();
        assert_eq!(turns(&mut follow, 100, 1), [Move::Bind(1)]);
    }

    #[test]
    fn a_caller_that_moves_is_let_go_and_followed_anew() {
        let mut follow = Follow::default();
        turns(&mut follow, 100, 1);
        assert_eq!(turns(&mut follow, 100, 0), [Move::Release, Move::Bind(0)]);
    }

    #[test]
    fn requests_that_overlap_let_the_thread_run_anywhere() {
        let mut follow = Follow::default();
        turns(&mut follow, 100, 1);
        assert_eq!(follow.turn([1, 1].into_iter(), false), Move::Release);
        turns(&mut follow, 100, 1);
        assert_eq!(follow.turn([1].into_iter(), true), Move::Release);
        assert_eq!(follow.turn([].into_iter(), true), Move::Stay);
    }

    #[test]
    fn two_callers_in_turns_are_not_followed() {
        let mut follow = Follow::default();
        for _ in 0..100 {
            assert_eq!(turns(&mut follow, 1, 0), []);
            assert_eq!(turns(&mut follow, 1, 1), []);
        }
    }
}
