//! The random order in which routes take their turns.

use linksim::rng::SeededRng;

/// Draws random orders from a seed.
#[derive(Debug)]
pub struct Order(SeededRng);

impl Order {
    /// Begins with this seed. The same seed draws the same orders.
    pub fn new(seed: u64) -> Self {
        Self(SeededRng::new(seed))
    }

    /// The numbers below `count`, in a new random order.
    pub fn draw(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            let other = self.0.below(last as u64 + 1);
            order.swap(last, other as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_has_one_turn_in_each_order_and_orders_differ() {
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
