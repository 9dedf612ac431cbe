//! Shortens a failing sequence, so that its reader sees the bug and not the noise.

/// Removes runs of operations, then single ones, as long as what is left still `fails`. At most
/// `tries` runs.
pub fn shrink<T: Clone>(ops: &[T], tries: usize, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut best = ops.to_vec();
    let mut tries_left = tries;
    let mut chunk = best.len().div_ceil(2);
    while chunk > 0 {
        let mut start = 0;
        let mut removed = false;
        while start < best.len() {
            if tries_left == 0 {
                return best;
            }
            tries_left -= 1;
            let end = (start + chunk).min(best.len());
            let shorter: Vec<T> = best[..start].iter().chain(&best[end..]).cloned().collect();
            if fails(&shorter) {
                best = shorter;
                removed = true;
            } else {
                start = end;
            }
        }
        if chunk == 1 && !removed {
            break;
        }
        chunk = if chunk == 1 { 1 } else { chunk / 2 };
    }
    best
}

#[cfg(test)]
mod tests {
    use super::shrink;

    #[test]
    fn what_does_not_matter_goes() {
        let ops: Vec<u32> = (0..1_000).collect();
        let fails = |ops: &[u32]| [17, 400, 999].iter().all(|needed| ops.contains(needed));
        assert_eq!(shrink(&ops, 10_000, fails), [17, 400, 999]);
    }

    #[test]
    fn the_number_of_tries_is_bounded() {
        let mut tries = 0;
        let kept = shrink(&[1; 500], 20, |_| {
            tries += 1;
            false
        });
        assert_eq!((kept.len(), tries), (500, 20));
    }
}
