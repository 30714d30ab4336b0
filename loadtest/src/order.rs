//! In which order the ways take their turns.

/// Draws orders from a seed.
#[derive(Debug)]
pub struct Order(u64);

impl Order {
    /// The same seed draws the same orders.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The numbers below `count`, in an order drawn anew.
    pub fn draw(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            let other = self.next() % (last as u64 + 1);
            order.swap(last, other as usize);
        }
        order
    }

    /// SplitMix64, <https://prng.di.unimi.it/splitmix64.c>.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_has_one_turn_in_each_order_and_orders_differ() {
        let mut order = Order::new(1);
        let drawn: Vec<Vec<usize>> = (0..20).map(|_| order.draw(5)).collect();
        for one in &drawn {
            let mut sorted = one.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4]);
        }
        for first in 0..5 {
            assert!(drawn.iter().any(|one| one[0] == first), "{first} is never the first");
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_orders() {
        let three = |seed| -> Vec<Vec<usize>> {
            let mut order = Order::new(seed);
            (0..3).map(|_| order.draw(5)).collect()
        };
        assert_eq!(three(7), three(7));
        assert_ne!(three(7), three(8));
    }
}
