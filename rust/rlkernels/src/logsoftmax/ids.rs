//! Which tokens of a row of logits are asked for.

/// The tokens whose log-probabilities are wanted. A slice of one token for every row of logits converts into it.
#[derive(Debug, Clone, Copy)]
pub struct Ids<'a> {
    /// `per_row` tokens of every row, row after row.
    pub tokens: &'a [i64],
    /// Tokens of a row, at least 1.
    pub per_row: usize,
    /// A number that stands where no token is, as the −100 of PyTorch's `cross_entropy`: its log-probability is +0 and
    /// sends no gradient back. A row of nothing else is not read; its entropy is +0 too.
    pub ignore_index: Option<i64>,
}

impl<'a, T: AsRef<[i64]> + ?Sized> From<&'a T> for Ids<'a> {
    fn from(tokens: &'a T) -> Self {
        Self {
            tokens: tokens.as_ref(),
            per_row: 1,
            ignore_index: None,
        }
    }
}

impl Ids<'_> {
    pub(super) fn is_ignored(&self, id: i64) -> bool {
        self.ignore_index == Some(id)
    }

    pub(super) fn all_ignored(&self) -> bool {
        self.tokens.iter().all(|&id| self.is_ignored(id))
    }

    /// Number of rows.
    pub(super) fn rows(&self) -> usize {
        self.tokens.len() / self.per_row
    }

    /// Those of one row.
    pub(super) fn row(&self, row: usize) -> Self {
        let tokens = &self.tokens[row * self.per_row..(row + 1) * self.per_row];
        Self { tokens, ..*self }
    }

    /// Those of `rows` rows at a time.
    pub(super) fn chunks(self, rows: usize) -> impl Iterator<Item = Self> {
        let chunks = self.tokens.chunks(rows * self.per_row);
        chunks.map(move |tokens| Self { tokens, ..self })
    }
}
