//! One figure of a group: a count, a sum, a least or a greatest value, or the sum and count of a mean.

use serde::{Deserialize, Serialize};

use crate::decimal::Decimal;
use crate::question::Value;
use crate::scalar::Scalar;

/// The state of a figure. Two of them merge in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figure {
    /// The number of values that are in it.
    pub count: u64,
    /// Their sum, for a sum and a mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<Decimal>,
    /// The least of them. `None` for other figures, and without a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Scalar>,
    /// The greatest of them. `None` for other figures, and without a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Scalar>,
}

/// A sum or a count is larger than this crate can represent. It is reported, and never wrapped around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a sum is larger than 10^29, which is more than an exact sum can hold here")]
pub struct SumOverflow;

impl Figure {
    /// The figure of a group without objects.
    pub(crate) fn empty(value: &Value) -> Self {
        let sum = match value {
            Value::Sum(_) | Value::Avg(_) => Some(Decimal::default()),
            Value::Count(_) | Value::Min(_) | Value::Max(_) => None,
        };
        Self { sum, ..Self::default() }
    }

    /// The mean of the values, rounded towards zero to a billionth. `None` without a sum or a value.
    #[must_use]
    pub fn mean(&self) -> Option<Decimal> {
        self.sum?.divided_by(self.count)
    }

    pub(crate) fn merge(&mut self, other: &Self) -> Result<(), SumOverflow> {
        self.count = self.count.checked_add(other.count).ok_or(SumOverflow)?;
        self.sum = match (self.sum, other.sum) {
            (Some(own), Some(others)) => Some(own.checked_add(others).ok_or(SumOverflow)?),
            (own, others) => own.or(others),
        };
        self.min = match (self.min, other.min) {
            (Some(own), Some(others)) => Some(own.min(others)),
            (own, others) => own.or(others),
        };
        // `None` is less than every value.
        self.max = self.max.max(other.max);
        Ok(())
    }

    /// Returns true if these are the parts of a figure of this kind.
    pub(crate) fn is_of(&self, value: &Value) -> bool {
        let (has_sum, has_min, has_max) = (self.sum.is_some(), self.min.is_some(), self.max.is_some());
        let has_values = self.count > 0;
        match value {
            Value::Count(_) => !has_sum && !has_min && !has_max,
            Value::Sum(_) | Value::Avg(_) => has_sum && !has_min && !has_max,
            Value::Min(_) => !has_sum && has_min == has_values && !has_max,
            Value::Max(_) => !has_sum && !has_min && has_max == has_values,
        }
    }
}
