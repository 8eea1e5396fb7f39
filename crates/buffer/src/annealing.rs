//! Simulated annealing of the four chances of [migration](crate::migration), round by round.
//!
//! As Spitfire tunes them (Zhou et al., SIGMOD 2021): for a round one chance is another one. If that cost less, it stays so;
//! if it cost more, it may stay so all the same, the less likely the more it cost and the longer this has been going on.
//!
//! Two things are different here. Between two such rounds there is one without a change, so what is compared are rounds one
//! after the other, and there is nothing to forget when others come to use other pages; if a round without a change costs
//! twice as much or half as much as the one before, the annealing begins again. And the greatest excess that is
//! put up with is drawn evenly instead of by an exponential function, which is not the same on all machines.

use crate::migration::{CHANCES, mixed};

/// The chances that are tried, in thousandths.
const LADDER: [u16; 6] = [0, 10, 50, 200, 500, 1000];
/// In the beginning so many thousandths more may cost as much as less does.
const FIRST_TEMPERATURE: u64 = 200;

/// See the [module documentation](self).
#[derive(Debug)]
pub(crate) struct Annealing {
    /// Places on the ladder.
    kept: [usize; CHANCES],
    /// Of the last round with these.
    cost: u64,
    /// The places in this round, if it is one with a change.
    tried: Option<[usize; CHANCES]>,
    temperature: u64,
    rounds: u64,
}

impl Annealing {
    /// From these chances on, or those on the ladder above them.
    pub(crate) fn new(thousandths: [u16; CHANCES]) -> Self {
        let place = |of: u16| LADDER.partition_point(|&step| step < of).min(LADDER.len() - 1);
        let kept = thousandths.map(place);
        Self { kept, cost: 0, tried: None, temperature: FIRST_TEMPERATURE, rounds: 0 }
    }

    /// A round ends, which has cost so much. Returns the chances of the next.
    pub(crate) fn next(&mut self, cost: u64) -> [u16; CHANCES] {
        self.rounds += 1;
        let drawn = mixed(self.rounds.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        if let Some(tried) = self.tried.take() {
            let excess = self.cost * (drawn % 1000) / 1000 * self.temperature / 1000;
            if cost < self.cost + excess {
                self.kept = tried;
            }
            self.temperature = self.temperature * 19 / 20;
        } else {
            if cost > self.cost * 2 || cost * 2 < self.cost {
                self.temperature = FIRST_TEMPERATURE;
            }
            self.cost = cost;
            self.tried = Some(beside(self.kept, drawn));
        }
        self.tried.unwrap_or(self.kept).map(|place| LADDER[place])
    }
}

/// One place up or down; the other way where the ladder ends.
fn beside(mut places: [usize; CHANCES], drawn: u64) -> [usize; CHANCES] {
    let place = &mut places[drawn as usize % CHANCES];
    let up = drawn >> 32 & 1 == 1;
    *place = match *place {
        0 => 1,
        last if last == LADDER.len() - 1 => last - 1,
        place if up => place + 1,
        place => place - 1,
    };
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chances that are kept after so many rounds, if all cost the more the farther they are from the best, and each
    /// round up to so many thousandths more or less than that.
    fn tuned(annealing: &mut Annealing, best: [u16; CHANCES], noise: u64) -> [u16; CHANCES] {
        let place = |of: u16| LADDER.iter().position(|&step| step == of).unwrap();
        let mut now = annealing.kept.map(|place| LADDER[place]);
        for round in 0..600 {
            let far = |(&now, &best): (&u16, &u16)| place(now).abs_diff(place(best)) as u64;
            let cost: u64 = 10_000 + now.iter().zip(&best).map(far).sum::<u64>() * 1500;
            now = annealing.next(cost * (1000 + mixed(round) % (2 * noise + 1) - noise) / 1000);
        }
        annealing.kept.map(|place| LADDER[place])
    }

    #[test]
    fn what_costs_least_is_found_and_followed_when_that_changes_the_same_again() {
        let run = || {
            let mut annealing = Annealing::new([500; CHANCES]);
            let first = tuned(&mut annealing, [0, 1000, 50, 500], 0);
            (first, tuned(&mut annealing, [1000, 0, 200, 0], 0))
        };
        assert_eq!(run(), ([0, 1000, 50, 500], [1000, 0, 200, 0]));
        assert_eq!(run(), run());
    }

    #[test]
    fn it_is_found_though_rounds_differ_by_themselves() {
        let found = tuned(&mut Annealing::new([500; CHANCES]), [0, 1000, 50, 500], 20);
        assert_eq!(found, [0, 1000, 50, 500]);
    }

    #[test]
    fn chances_that_cost_nothing_stay() {
        let mut annealing = Annealing::new([200, 1000, 200, 500]);
        (0..200).for_each(|_| _ = annealing.next(0));
        assert_eq!(annealing.kept.map(|place| LADDER[place]), [200, 1000, 200, 500]);
    }

    #[test]
    fn what_costs_more_is_put_up_with_in_the_beginning_and_when_others_use_other_pages() {
        let mut annealing = Annealing::new([500; CHANCES]);
        let mut put_up_with = |rounds: u64, cost: u64| {
            let before = annealing.kept;
            (0..rounds).for_each(|round| _ = annealing.next(cost + round % 2 * cost / 20));
            annealing.kept != before
        };
        assert!(put_up_with(40, 10_000));
        put_up_with(200, 10_000);
        assert!(!put_up_with(200, 10_000));
        assert!(put_up_with(40, 30_000));
    }
}
