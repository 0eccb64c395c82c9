//! The conventions of the field, by name.

use crate::choice::{choice, setters};

choice! {
    /// What the centred rewards are divided by.
    pub enum Scale: "scale" {
        /// The standard deviation of the group.
        Group = "group",
        /// The standard deviation of all scored rewards of the batch.
        Batch = "batch",
        /// 1.
        None = "none",
    }
}

choice! {
    /// How `eps` enters the divisor.
    pub enum EpsMode: "eps_mode" {
        /// std + eps
        Add = "add",
        /// sqrt(var + eps)
        Inside = "inside",
        /// std, and advantages of 0 where std < eps
        Threshold = "threshold",
    }
}

choice! {
    /// What is subtracted from a reward.
    pub enum Baseline: "baseline" {
        /// The mean of the scored rewards of the group.
        Mean = "mean",
        /// The mean of the other scored rewards of the group.
        LeaveOneOut = "leave-one-out",
    }
}

/// The convention by which advantages are computed. `eps` is rounded once to the data's type.
///
/// The default is TRL's: (R − mean) / (std + 1e-4) with `ddof` 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Convention {
    /// What the centred rewards are divided by.
    pub scale: Scale,
    /// 0: the variance divides by n; 1: by n − 1. n counts the scored rewards.
    pub ddof: i64,
    /// Finite and at least 0, in the unit of the rewards (`Inside`: its square).
    pub eps: f64,
    /// How `eps` enters the divisor.
    pub eps_mode: EpsMode,
    /// What is subtracted.
    pub baseline: Baseline,
}

impl Default for Convention {
    fn default() -> Self {
        Self {
            scale: Scale::Group,
            ddof: 1,
            eps: 1e-4,
            eps_mode: EpsMode::Add,
            baseline: Baseline::Mean,
        }
    }
}

setters! {
    Convention {
        with_scale: scale = Scale,
        with_ddof: ddof = i64,
        with_eps: eps = f64,
        with_eps_mode: eps_mode = EpsMode,
        with_baseline: baseline = Baseline,
    }
}
