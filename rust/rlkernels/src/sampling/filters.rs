//! The parameters of the filters, their ranges and their order.

use crate::choice::choice;
use crate::{Error, Result};

choice! {
    /// In which order the filters act; the two keep different tokens.
    pub enum Order: "order" {
        /// Bias and penalties, temperature, top-k, top-p, min-p, XTC.
        Hf = "hf",
        /// Bias and penalties, then on the untempered distribution top-p, min-p, XTC, top-k, and the temperature last.
        MlxLm = "mlx-lm",
    }
}

choice! {
    /// Which tokens stay of those as likely as the last one that top-k or top-p needs.
    pub enum Ties: "ties" {
        /// What the library of the [`Order`] keeps. transformers: all for top-k (it removes what is below the k-th); the
        /// higher ids for top-p (it keeps the end of an ascending sort, which is stable on CUDA above 4,096 tokens and
        /// promises nothing elsewhere). mlx-lm: the lower ids for top-k (a partition), all for top-p (a threshold).
        Library = "library",
        /// All of them: no token that any implementation keeps is removed.
        All = "all",
        /// The lower ids, until the filter has enough.
        LowerId = "lower-id",
    }
}

/// What one filter does with tokens as likely as the last one that it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tied {
    All,
    Lower,
    Higher,
}

/// The parameters of all filters. [`Filters::off`] leaves the distribution as it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Filters {
    /// The order in which they act.
    pub order: Order,
    /// What top-k and top-p do with equally likely tokens.
    pub ties: Ties,
    /// At least 0. 0 puts all mass on the lowest id of the maximum of the penalised logits; no other filter acts then.
    pub temperature: f64,
    /// Tokens that top-k, top-p and min-p each leave at least (transformers), or min-p alone (mlx-lm); at least 1.
    pub min_tokens_to_keep: usize,
    /// Keeps the k likeliest; 0 disables.
    pub top_k: usize,
    /// Keeps the smallest set of likeliest tokens whose mass reaches it, at least one token; in [0, 1], 1 disables
    /// (Holtzman et al., arXiv 1904.09751).
    pub top_p: f64,
    /// Removes tokens below this share of the largest probability; in [0, 1], 0 disables (Nguyen et al., arXiv
    /// 2407.01082).
    pub min_p: f64,
    /// How often XTC acts: it does where a row's coin is below; in [0, 1], 0 disables.
    pub xtc_probability: f64,
    /// XTC removes every token whose probability is above, except the least likely of them; in [0, 1].
    pub xtc_threshold: f64,
    /// Divides the logit of a token of the history if positive, else multiplies it; above 0, 1 disables (Keskar et al.,
    /// arXiv 1909.05858, section 4.1).
    pub repetition_penalty: f64,
    /// Subtracted once from the logit of each token that is among those generated; 0 disables (OpenAI's API).
    pub presence_penalty: f64,
    /// Subtracted from the logit of a token as often as it is among those generated; 0 disables (OpenAI's API).
    pub frequency_penalty: f64,
}

impl Filters {
    /// No filter, temperature 1, ties as in the library of the order.
    #[must_use]
    pub const fn off(order: Order) -> Self {
        Self {
            order,
            ties: Ties::Library,
            temperature: 1.0,
            min_tokens_to_keep: 1,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
        }
    }

    /// Whether the repetition penalty acts.
    pub(super) fn penalises(&self) -> bool {
        self.repetition_penalty != 1.0
    }

    /// Whether a penalty acts that counts the generated tokens.
    pub(super) fn counts(&self) -> bool {
        self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    pub(super) fn tied_of_top_k(&self) -> Tied {
        match (self.ties, self.order) {
            (Ties::All, _) | (Ties::Library, Order::Hf) => Tied::All,
            (Ties::LowerId, _) | (Ties::Library, Order::MlxLm) => Tied::Lower,
        }
    }

    /// Of the tokens that min-p must leave: transformers takes a top-k's ids, mlx-lm the end of an ascending partition.
    pub(super) fn tied_of_min_p(&self) -> Tied {
        match (self.ties, self.order) {
            (Ties::All, _) => Tied::All,
            (Ties::LowerId, _) | (Ties::Library, Order::Hf) => Tied::Lower,
            (Ties::Library, Order::MlxLm) => Tied::Higher,
        }
    }

    pub(super) fn tied_of_top_p(&self) -> Tied {
        match (self.ties, self.order) {
            (Ties::All, _) | (Ties::Library, Order::MlxLm) => Tied::All,
            (Ties::LowerId, _) => Tied::Lower,
            (Ties::Library, Order::Hf) => Tied::Higher,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let number = |argument, found: f64, least: f64, most: f64, legal| {
            if found >= least && found <= most {
                Ok(())
            } else {
                Err(Error::Parameter {
                    argument,
                    found,
                    legal,
                })
            }
        };
        let share = |argument, found| number(argument, found, 0.0, 1.0, "within [0, 1]");
        number(
            "temperature",
            self.temperature,
            0.0,
            f64::MAX,
            "finite and at least 0",
        )?;
        if self.min_tokens_to_keep == 0 {
            return Err(Error::TooSmall {
                argument: "min_tokens_to_keep",
                found: 0,
                least: 1,
            });
        }
        share("top_p", self.top_p)?;
        share("min_p", self.min_p)?;
        share("xtc_probability", self.xtc_probability)?;
        share("xtc_threshold", self.xtc_threshold)?;
        let any = |argument, found| number(argument, found, f64::MIN, f64::MAX, "finite");
        any("presence_penalty", self.presence_penalty)?;
        any("frequency_penalty", self.frequency_penalty)?;
        number(
            "repetition_penalty",
            self.repetition_penalty,
            f64::from_bits(1), // the least number above 0
            f64::MAX,
            "finite and above 0",
        )
    }
}
