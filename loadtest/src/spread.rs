//! The median and the range of a figure over several rounds.

use serde::Serialize;

/// The median of some figures, with the lowest and the highest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The median of the figures.
    pub median: f64,
    /// The lowest of the figures.
    pub min: f64,
    /// The highest of the figures.
    pub max: f64,
}

impl Spread {
    /// Computes the spread; `None` without any figure.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let middle = figures.len() / 2;
        let median = if figures.len().is_multiple_of(2) {
            f64::midpoint(figures[middle - 1], figures[middle])
        } else {
            figures[middle]
        };
        Some(Self { median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_moves_the_maximum_and_not_the_median() {
        let spread = Spread::of([3.0, 1.0, 900.0]).expect("three figures");
        assert_eq!(spread, Spread { median: 3.0, min: 1.0, max: 900.0 });
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 8.0]).map(|spread| spread.median), Some(3.0));
        assert_eq!(Spread::of([]), None);
    }
}
