//! What one charge asks for.

use std::num::NonZeroU64;

/// All or nothing, or as much as there is up to a maximum.
///
/// ```
/// use tollgate_core::Cost;
///
/// let cost = Cost::new(3)?;
/// assert_eq!((cost.min(), cost.max()), (3, 3));
/// assert!(Cost::new(0).is_err());
/// assert!(Cost::range(5, 2).is_err());
/// # Ok::<(), tollgate_core::CostError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cost {
    min: NonZeroU64,
    max: NonZeroU64,
}

impl Cost {
    /// One.
    pub const ONE: Self = Self {
        min: NonZeroU64::MIN,
        max: NonZeroU64::MIN,
    };

    /// Exactly `cost`.
    ///
    /// # Errors
    /// When it is 0: what costs nothing is not charged; ask with a peek.
    pub const fn new(cost: u64) -> Result<Self, CostError> {
        Self::range(cost, cost)
    }

    /// As much as is available, at most `max`, if at least `min` is.
    ///
    /// # Errors
    /// When `min` is 0 or above `max`.
    pub const fn range(min: u64, max: u64) -> Result<Self, CostError> {
        match (NonZeroU64::new(min), NonZeroU64::new(max)) {
            (Some(least), Some(most)) if min <= max => Ok(Self {
                min: least,
                max: most,
            }),
            (None, _) => Err(CostError::Zero),
            _ => Err(CostError::MaxBelowCost { cost: min, max }),
        }
    }

    /// The least that is worth anything to the caller.
    #[must_use]
    pub const fn min(self) -> u64 {
        self.min.get()
    }

    /// The most it takes.
    #[must_use]
    pub const fn max(self) -> u64 {
        self.max.get()
    }
}

impl Default for Cost {
    fn default() -> Self {
        Self::ONE
    }
}

/// A cost that cannot be charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CostError {
    /// 0 charges nothing.
    #[error("cost: 0 charges nothing; use 1 or more, or peek to ask without charging")]
    Zero,
    /// The maximum is below the cost.
    #[error("max: {max} is below the cost {cost}; use {cost} or more")]
    MaxBelowCost {
        /// The least that was asked for.
        cost: u64,
        /// The most that was asked for.
        max: u64,
    },
    /// More than the policy can ever grant.
    #[error(
        "cost: {cost} is above the capacity {capacity} of the policy, so no wait is long enough; use at most {capacity}"
    )]
    ExceedsCapacity {
        /// What was asked for.
        cost: u64,
        /// The most that can be granted.
        capacity: u64,
    },
}
