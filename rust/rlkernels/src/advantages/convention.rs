//! The conventions of the field, by name.

use std::str::FromStr;

use crate::{Error, Result};

/// What the centred rewards are divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// The standard deviation of the group.
    Group,
    /// The standard deviation of all scored rewards of the batch.
    Batch,
    /// 1.
    None,
}

/// How `eps` enters the divisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpsMode {
    /// std + eps
    Add,
    /// sqrt(var + eps)
    Inside,
    /// std, and advantages of 0 where std < eps
    Threshold,
}

/// What is subtracted from a reward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Baseline {
    /// The mean of the scored rewards of the group.
    Mean,
    /// The mean of the other scored rewards of the group.
    LeaveOneOut,
}

impl FromStr for Scale {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "group" => Ok(Self::Group),
            "batch" => Ok(Self::Batch),
            "none" => Ok(Self::None),
            _ => Err(Error::UnknownChoice {
                argument: "scale",
                found: name.into(),
                legal: "\"group\", \"batch\", \"none\"",
            }),
        }
    }
}

impl FromStr for EpsMode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "add" => Ok(Self::Add),
            "inside" => Ok(Self::Inside),
            "threshold" => Ok(Self::Threshold),
            _ => Err(Error::UnknownChoice {
                argument: "eps_mode",
                found: name.into(),
                legal: "\"add\", \"inside\", \"threshold\"",
            }),
        }
    }
}

impl FromStr for Baseline {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "mean" => Ok(Self::Mean),
            "leave-one-out" => Ok(Self::LeaveOneOut),
            _ => Err(Error::UnknownChoice {
                argument: "baseline",
                found: name.into(),
                legal: "\"mean\", \"leave-one-out\"",
            }),
        }
    }
}

/// The convention by which advantages are computed. `eps` is rounded once to the data's type.
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
