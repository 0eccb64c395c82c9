//! Philox 4x32-10: random numbers as a function of a key and a counter, so that they do not depend on the batch.
//!
//! The counter is (token, sample, prompt, round) and the key is the seed: each token has its own uniform and its own coin,
//! whatever else is sampled and in which order.

use crate::error::same_length;
use crate::{Error, Result};

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57]; // Random123, philox.h
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85]; // the golden ratio and √3 − 1
const ROUNDS: usize = 10;

/// Philox 4x32-10: a bijection of four words, chosen by a key of two (Salmon et al., "Parallel random numbers: as easy
/// as 1, 2, 3", 2011, section 3.3).
#[must_use]
#[inline]
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..ROUNDS {
        let first = u64::from(MULTIPLIERS[0]) * u64::from(c0);
        let second = u64::from(MULTIPLIERS[1]) * u64::from(c2);
        (c0, c1, c2, c3) = (
            (second >> 32) as u32 ^ c1 ^ k0,
            second as u32,
            (first >> 32) as u32 ^ c3 ^ k1,
            first as u32,
        );
        k0 = k0.wrapping_add(WEYL[0]);
        k1 = k1.wrapping_add(WEYL[1]);
    }
    [c0, c1, c2, c3]
}

/// The counter of Philox, word by word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    /// The token's index within its completion.
    pub token: u32,
    /// The completion's index within its prompt.
    pub sample: u32,
    /// The prompt's stable index in the data.
    pub prompt: u32,
    /// Increases with every rollout, resamples included.
    pub round: u32,
}

impl Draw {
    /// The uniform of the token and its coin for XTC, both multiples of 2⁻⁵³ in [0, 1).
    ///
    /// Of the words w0 … w3, u = ⌊(w0 · 2³² + w1) / 2¹¹⌋ / 2⁵³, and the coin the same of w2 and w3.
    #[must_use]
    #[inline]
    pub fn numbers(self, seed: u64) -> (f64, f64) {
        let counter = [self.token, self.sample, self.prompt, self.round];
        let [w0, w1, w2, w3] = philox4x32_10(counter, [seed as u32, (seed >> 32) as u32]);
        (unit(w0, w1), unit(w2, w3))
    }
}

fn unit(high: u32, low: u32) -> f64 {
    let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
    bits as f64 * (1.0 / (1u64 << 53) as f64)
}

/// The counters of many draws; each word has one element for all of them or one for each.
#[derive(Debug, Clone, Copy)]
pub struct Draws<'a> {
    /// As [`Draw::round`].
    pub round: &'a [i64],
    /// As [`Draw::prompt`].
    pub prompt: &'a [i64],
    /// As [`Draw::sample`].
    pub sample: &'a [i64],
    /// As [`Draw::token`].
    pub token: &'a [i64],
}

/// The uniforms of many draws.
///
/// # Errors
/// A word outside [0, 2³²), or one with neither one element nor one per element of `out`.
pub fn uniforms(seed: u64, draws: &Draws<'_>, out: &mut [f64]) -> Result<()> {
    fill(draws, out, |draw| draw.numbers(seed).0)
}

/// The coins for XTC of many draws.
///
/// # Errors
/// As [`uniforms`].
pub fn xtc_coins(seed: u64, draws: &Draws<'_>, out: &mut [f64]) -> Result<()> {
    fill(draws, out, |draw| draw.numbers(seed).1)
}

fn fill(draws: &Draws<'_>, out: &mut [f64], number: impl Fn(Draw) -> f64) -> Result<()> {
    let count = out.len();
    let round = Words::new("round_", draws.round, count)?;
    let prompt = Words::new("prompt", draws.prompt, count)?;
    let sample = Words::new("sample", draws.sample, count)?;
    let token = Words::new("token", draws.token, count)?;
    for (index, slot) in out.iter_mut().enumerate() {
        *slot = number(Draw {
            token: token.at(index),
            sample: sample.at(index),
            prompt: prompt.at(index),
            round: round.at(index),
        });
    }
    Ok(())
}

/// Checked words: one for all draws or one for each.
struct Words<'a> {
    values: &'a [i64],
    each: bool,
}

impl<'a> Words<'a> {
    fn new(argument: &'static str, values: &'a [i64], count: usize) -> Result<Self> {
        words(argument, values)?;
        let each = values.len() != 1;
        if each {
            same_length(argument, values.len(), count, "the draws")?;
        }
        Ok(Self { values, each })
    }

    #[inline]
    fn at(&self, index: usize) -> u32 {
        self.values[if self.each { index } else { 0 }] as u32
    }
}

/// Checks that every number is a word of 32 bits.
///
/// # Errors
/// One that is not, with its index.
pub fn words(argument: &'static str, values: &[i64]) -> Result<()> {
    let wrong = values.iter().fold(0, |bits, &value| bits | value) >> 32 != 0; // a negative one sets high bits too
    let culprit = wrong.then(|| values.iter().position(|&value| value >> 32 != 0));
    culprit.flatten().map_or(Ok(()), |index| {
        Err(Error::Element {
            argument,
            place: index.to_string(),
            found: values[index].to_string(),
            legal: "in [0, 2**32)",
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // Random123, examples/kat_vectors: "philox4x32 10", counter, key, result
        let ones = u32::MAX;
        for (counter, key, want) in [
            (
                [0; 4],
                [0; 2],
                [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
            ),
            (
                [ones; 4],
                [ones; 2],
                [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
            ),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ] {
            assert_eq!(philox4x32_10(counter, key), want);
        }
    }

    #[test]
    fn words_become_numbers_high_word_first() {
        // The third known answer is that of token 0x243f6a88, sample 0x85a308d3, … under seed 0x299f31d0a4093822.
        let draw = Draw {
            token: 0x243f_6a88,
            sample: 0x85a3_08d3,
            prompt: 0x1319_8a2e,
            round: 0x0370_7344,
        };
        let scale = (1u64 << 53) as f64;
        let want = (
            (0xd16c_fe09_94fd_cceb_u64 >> 11) as f64 / scale,
            (0x5001_e420_2412_6ea1_u64 >> 11) as f64 / scale,
        );
        assert_eq!(draw.numbers(0x299f_31d0_a409_3822), want);
    }

    #[test]
    fn one_word_serves_all_draws_and_the_order_changes_nothing() {
        let tokens: Vec<i64> = (0..100).collect();
        let reversed: Vec<i64> = tokens.iter().rev().copied().collect();
        let draws = |token| Draws {
            round: &[3],
            prompt: &[4],
            sample: &[5],
            token,
        };
        let (mut forth, mut back) = ([0.0; 100], [0.0; 100]);
        uniforms(9, &draws(&tokens), &mut forth).unwrap();
        uniforms(9, &draws(&reversed), &mut back).unwrap();
        back.reverse();
        assert_eq!(forth, back);
        assert!(forth.iter().all(|u| (0.0..1.0).contains(u)));
        let mut coins = [0.0; 100];
        xtc_coins(9, &draws(&tokens), &mut coins).unwrap();
        assert!(coins.iter().zip(&forth).all(|(coin, u)| coin != u));
    }

    #[test]
    fn a_word_outside_32_bits_is_named() {
        for (found, message) in [
            (-1, "`token[1]` is -1, must be in [0, 2**32)"),
            (1 << 32, "`token[1]` is 4294967296, must be in [0, 2**32)"),
        ] {
            let error = words("token", &[0, found]).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        let draws = Draws {
            round: &[0],
            prompt: &[0],
            sample: &[0],
            token: &[1, 2],
        };
        let error = uniforms(0, &draws, &mut [0.0; 3]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`token` has 2 elements, must have 3 like the draws"
        );
    }
}
