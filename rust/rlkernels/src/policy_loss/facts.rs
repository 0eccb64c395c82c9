//! What algorithms are besides their surrogates.

/// What a token of a row weighs in the loss of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Aggregation {
    /// 1 / (B nᵢ): the mean over rows of the mean over a row.
    RowMean,
    /// 1 / B: the mean over rows of the sum over a row.
    RowSum,
    /// 1 / (B `max_length`).
    Constant,
    /// By `dapo_denominator`.
    Tokens,
    /// 1 / (M tokens of the row's micro-batch).
    MicroBatches,
}

/// What an algorithm is besides its surrogate.
#[derive(Clone, Copy)]
pub(super) struct Facts {
    /// Every row has one advantage and one weight: its ratio is one of the whole row.
    pub(super) by_row: bool,
    /// Which bounds it reads: `epsilon_low`, `epsilon_high`, `delta`.
    pub(super) bounds: [bool; 3],
    /// The upper bound acts whatever the advantage.
    pub(super) is_truncated: bool,
    pub(super) aggregation: Aggregation,
    /// A KL may stand in the loss.
    pub(super) has_kl: bool,
}

/// The clipped ratio of a token; the facts of others are changes of these.
pub(super) const TOKEN: Facts = Facts {
    by_row: false,
    bounds: [true, true, true],
    is_truncated: false,
    aggregation: Aggregation::RowMean,
    has_kl: true,
};
/// The clipped ratio of a row.
pub(super) const ROW: Facts = Facts {
    by_row: true,
    ..TOKEN
};

impl Facts {
    /// With another aggregation.
    pub(super) const fn weighed(self, aggregation: Aggregation) -> Self {
        Self {
            aggregation,
            ..self
        }
    }

    /// With other bounds: `epsilon_low`, `epsilon_high`, `delta`.
    pub(super) const fn bounded(self, bounds: [bool; 3]) -> Self {
        Self { bounds, ..self }
    }

    /// With an upper bound only, which acts whatever the advantage.
    pub(super) const fn truncated(self) -> Self {
        Self {
            is_truncated: true,
            bounds: [false, true, false],
            ..self
        }
    }

    /// With its KL in the reward.
    pub(super) const fn without_kl(self) -> Self {
        Self {
            has_kl: false,
            ..self
        }
    }
}
