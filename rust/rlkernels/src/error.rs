//! The error type of all kernels; a message says what was expected, what was found, and where.

/// The result of every kernel.
pub type Result<T> = std::result::Result<T, Error>;

/// A wrong input. Every message names the argument, the value that was found and the values that are legal.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A named choice that does not exist.
    #[error("`{argument}` is \"{found}\", must be one of {legal}")]
    UnknownChoice {
        /// The argument's name.
        argument: &'static str,
        /// What the caller wrote.
        found: String,
        /// The legal names, quoted and separated by commas.
        legal: &'static str,
    },
    /// A whole number below its least legal value.
    #[error("`{argument}` is {found}, must be at least {least}")]
    TooSmall {
        /// The argument's name.
        argument: &'static str,
        /// The value that was found.
        found: i64,
        /// The least legal value.
        least: i64,
    },
    /// More elements than a kernel can number.
    #[error("`{argument}` has {found} elements, must have at most {most}")]
    TooMany {
        /// The argument's name.
        argument: &'static str,
        /// Its number of elements.
        found: usize,
        /// The greatest legal number.
        most: usize,
    },
    /// A `ddof` that is neither 0 nor 1.
    #[error("`{argument}` is {found}, must be 0 (divide by n) or 1 (divide by n - 1)")]
    Ddof {
        /// The argument's name.
        argument: &'static str,
        /// The value that was found.
        found: i64,
    },
    /// An `eps` that is negative, infinite or not a number in the data's type.
    #[error("`{argument}` is {found} in {dtype}, must be finite and at least 0")]
    Eps {
        /// The argument's name.
        argument: &'static str,
        /// The value after rounding to the data's type.
        found: f64,
        /// The data's type.
        dtype: &'static str,
    },
    /// An array without elements where at least one is needed.
    #[error("`{argument}` is empty, must hold at least one element")]
    Empty {
        /// The argument's name.
        argument: &'static str,
    },
    /// The number of rewards is no multiple of the group size.
    #[error("`rewards` has {length} elements, must be a multiple of `group_size` {group_size}")]
    NotDivisible {
        /// The number of rewards.
        length: usize,
        /// The group size.
        group_size: usize,
    },
    /// An infinite reward.
    #[error("`rewards[{index}]` is {found}, must be finite (or NaN for \"not scored\")")]
    InfiniteReward {
        /// Where it stands.
        index: usize,
        /// The value that was found.
        found: f64,
    },
    /// An infinite reward of one of several functions.
    #[error("`rewards[{row}, {column}]` is {found}, must be finite (or NaN for \"not scored\")")]
    InfiniteRewardOf {
        /// The row.
        row: usize,
        /// The reward function.
        column: usize,
        /// The value that was found.
        found: f64,
    },
    /// A weight of a reward function that is infinite or NaN.
    #[error("`weights[{index}]` is {found}, must be finite")]
    Weight {
        /// Where it stands.
        index: usize,
        /// The value that was found.
        found: f64,
    },
    /// Rewards of several functions whose weighted sum overflows.
    #[error(
        "the weighted sum of the scores of `rewards[{row}]` is {found}, must be finite; make `weights` smaller"
    )]
    WeightedSum {
        /// The row.
        row: usize,
        /// The value that was found.
        found: f64,
    },
    /// A leave-one-out baseline in groups of one.
    #[error(
        "`group_size` is {group_size}, must be at least 2 with baseline \"leave-one-out\": there is no other to take the mean of"
    )]
    NoOthers {
        /// The group size.
        group_size: usize,
    },
    /// Two arrays that belong together have different lengths.
    #[error("`{argument}` has {found} elements, must have {expected} like {like}")]
    LengthMismatch {
        /// The argument's name.
        argument: &'static str,
        /// Its number of elements.
        found: usize,
        /// The wanted number of elements.
        expected: usize,
        /// What sets the number, in Markdown.
        like: &'static str,
    },
    /// A length that is negative or longer than its limit.
    #[error("`lengths[{index}]` is {found}, must be between 0 and {most} ({limit})")]
    Length {
        /// Where it stands.
        index: usize,
        /// The value that was found.
        found: i64,
        /// The greatest legal value.
        most: i64,
        /// What sets that value.
        limit: &'static str,
    },
    /// A negative number in an array where none may be.
    #[error("`{argument}[{index}]` is {found}, must be at least 0")]
    Negative {
        /// The argument's name.
        argument: &'static str,
        /// Where it stands.
        index: usize,
        /// The value that was found.
        found: i64,
    },
    /// A parameter outside its range.
    #[error("`{argument}` is {found}, must be {legal}")]
    Parameter {
        /// The argument's name.
        argument: &'static str,
        /// The value that was found.
        found: f64,
        /// Which values are legal.
        legal: &'static str,
    },
    /// A wrong element of an array.
    #[error("`{argument}[{place}]` is {found}, must be {legal}")]
    Element {
        /// The argument's name.
        argument: &'static str,
        /// Its index, or its indices separated by commas.
        place: String,
        /// The value that was found.
        found: String,
        /// Which values are legal.
        legal: &'static str,
    },
    /// A row of logits that a bias or a penalty spoils.
    #[error(
        "`{argument}` makes row {row} of `logits` {found}, must leave numbers that are finite or -inf, and a token that can be drawn"
    )]
    Spoilt {
        /// The argument's name.
        argument: &'static str,
        /// The row.
        row: usize,
        /// What becomes of it.
        found: String,
    },
    /// An argument that another one makes necessary.
    #[error("`{argument}` is missing, must be given where {because}")]
    Missing {
        /// The argument's name.
        argument: &'static str,
        /// What makes it necessary.
        because: &'static str,
    },
    /// The lengths of ragged sequences do not add up to the number of tokens.
    #[error(
        "the sum of `lengths` is {found}, must be {expected}, the number of elements of `policy`"
    )]
    LengthSum {
        /// The sum that was found.
        found: i128,
        /// The number of tokens.
        expected: usize,
    },
    /// A parameter that the algorithm needs is not given.
    #[error("`{argument}` is not given, must be for algorithm \"{algorithm}\" as it is set")]
    MissingFor {
        /// The argument's name.
        argument: &'static str,
        /// The algorithm's name.
        algorithm: &'static str,
    },
    /// A parameter that nothing reads.
    #[error(
        "`{argument}` is {found}, must be None: algorithm \"{algorithm}\" as it is set does not read it"
    )]
    Unread {
        /// The argument's name.
        argument: &'static str,
        /// The value that was found.
        found: String,
        /// The algorithm's name.
        algorithm: &'static str,
    },
    /// A number outside its range.
    #[error("`{argument}` is {found}, must be {wanted}")]
    OutOfRange {
        /// The argument's name.
        argument: &'static str,
        /// The value, rounded to the data's type.
        found: f64,
        /// What it must be.
        wanted: &'static str,
    },
    /// A two-sided bound below the clip's.
    #[error("`delta` is {found}, must be finite and above 1 + `epsilon_high` = {high}")]
    Delta {
        /// The value, rounded to the data's type.
        found: f64,
        /// The clip's upper bound.
        high: f64,
    },
    /// A weight of the KL term for an algorithm without one.
    #[error(
        "`beta` is {found}, must be 0 for algorithm \"{algorithm}\", whose KL is in the reward"
    )]
    NoKl {
        /// The value, rounded to the data's type.
        found: f64,
        /// The algorithm's name.
        algorithm: &'static str,
    },
    /// A weight of the KL term without the reference's log-probabilities.
    #[error("`reference` is not given, must be where `beta` is {beta}")]
    NoReference {
        /// The weight.
        beta: f64,
    },
    /// Micro-batches whose sizes do not add up to the rows.
    #[error(
        "`micro_batches` is {found:?}, must be numbers of at least 1 that add up to {rows}, the rows of `policy`"
    )]
    Blocks {
        /// The numbers that were found.
        found: Vec<i64>,
        /// The number of rows.
        rows: usize,
    },
    /// The number of rows is no multiple of the group size.
    #[error("`group_size` is {found}, must divide {rows}, the rows of `policy`")]
    GroupSize {
        /// The value that was found.
        found: i64,
        /// The number of rows.
        rows: usize,
    },
    /// Values of tokens where only values of rows are possible.
    #[error(
        "`{argument}` has a value for every slot, must have one for every row with algorithm \"{algorithm}\""
    )]
    ByRow {
        /// The argument's name.
        argument: &'static str,
        /// The algorithm's name.
        algorithm: &'static str,
    },
    /// A value that is not finite on a token.
    #[error("`{argument}` is {found} in row {row}, slot {slot}, must be finite on tokens")]
    NotFinite {
        /// The argument's name.
        argument: &'static str,
        /// The value that was found.
        found: f64,
        /// The row.
        row: usize,
        /// The slot of the row.
        slot: usize,
    },
    /// No token where at least one is needed.
    #[error("no slot of `policy` is a token, must be at least one")]
    NoToken,
    /// Bounds that are out of order.
    #[error("`c_min` is {found}, must be finite, at least 0 and at most `c_max` = {most}")]
    Bounds {
        /// The lower bound, rounded to the data's type.
        found: f64,
        /// The upper bound.
        most: f64,
    },
    /// A number that must be above 0.
    #[error("`{argument}` is {found} in {dtype}, must be finite and above 0")]
    NotPositive {
        /// The argument's name.
        argument: &'static str,
        /// The value after rounding to the data's type.
        found: f64,
        /// The data's type.
        dtype: &'static str,
    },
    /// Rows of logits without a single token.
    #[error("`logits` has rows of 0 tokens, must have a vocabulary of at least 1")]
    NoVocabulary,
    /// A token that the vocabulary does not have.
    #[error(
        "`ids[{index}]` is {found}, must be between 0 and {most} (the vocabulary; rows are counted in C order) or `ignore_index`"
    )]
    OutsideVocabulary {
        /// Where it stands, rows counted one after the other.
        index: usize,
        /// The token that was found.
        found: i64,
        /// The last token of the vocabulary.
        most: i64,
    },
    /// An instruction set that this machine lacks.
    #[error("`isa` is \"{found}\", must be one that this machine has: {available}")]
    IsaUnavailable {
        /// The name that was asked for.
        found: &'static str,
        /// The names that are there, separated by commas.
        available: String,
    },
    /// A number of threads outside its range.
    #[error("`threads` is {found}, must be between 1 and {most}")]
    Threads {
        /// The number that was asked for.
        found: usize,
        /// The greatest legal number.
        most: usize,
    },
}

/// Checks that `argument` has as many elements as `like` demands.
pub(crate) fn same_length(
    argument: &'static str,
    found: usize,
    expected: usize,
    like: &'static str,
) -> Result<()> {
    if found == expected {
        Ok(())
    } else {
        Err(Error::LengthMismatch {
            argument,
            found,
            expected,
            like,
        })
    }
}

/// Checks that `argument` is at least `least`.
pub(crate) fn at_least(argument: &'static str, found: i64, least: i64) -> Result<()> {
    if found >= least {
        return Ok(());
    }
    Err(Error::TooSmall {
        argument,
        found,
        least,
    })
}

/// Checks that `argument` has at most `most` elements.
pub(crate) fn at_most(argument: &'static str, found: usize, most: usize) -> Result<()> {
    if found <= most {
        return Ok(());
    }
    Err(Error::TooMany {
        argument,
        found,
        most,
    })
}

/// Checks that all `lengths` are between 0 and `most`, which `limit` sets; `i64::MAX` is no limit.
pub(crate) fn lengths_within(lengths: &[i64], most: i64, limit: &'static str) -> Result<()> {
    let is_wrong = |n: &i64| !(0..=most).contains(n);
    // Without a branch per element; the wrong one is searched only where there is one.
    if !lengths.iter().fold(false, |any, n| any | is_wrong(n)) {
        return Ok(());
    }
    let index = lengths.iter().position(is_wrong).unwrap_or_default();
    let found = lengths[index];
    Err(match most {
        i64::MAX => Error::Negative {
            argument: "lengths",
            index,
            found,
        },
        _ => Error::Length {
            index,
            found,
            most,
            limit,
        },
    })
}
