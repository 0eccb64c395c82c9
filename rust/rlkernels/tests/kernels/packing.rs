//! Packing against a quadratic implementation, its efficiency and its errors.

use proptest::prelude::*;
use rlkernels::packing::{OverLong, Packing, Strategy as Fit, pack_sequences};

use crate::naive;

const FIRST: Fit = Fit::FirstFitDecreasing;
const BEST: Fit = Fit::BestFitDecreasing;

fn bins(packing: &Packing) -> Vec<Vec<i64>> {
    packing
        .offsets
        .windows(2)
        .map(|w| packing.indices[w[0] as usize..w[1] as usize].to_vec())
        .collect()
}

fn agree(lengths: &[i64], max_length: i64) -> Result<(), TestCaseError> {
    for (fit, want) in [
        (FIRST, naive::first_fit_decreasing(lengths, max_length)),
        (BEST, naive::best_fit_decreasing(lengths, max_length)),
    ] {
        let packing = pack_sequences(lengths, max_length, fit, OverLong::Error).unwrap();
        prop_assert_eq!(packing.offsets[0], 0);
        prop_assert_eq!(*packing.offsets.last().unwrap(), lengths.len() as i64);
        prop_assert_eq!(bins(&packing), want);
    }
    Ok(())
}

/// Where the implementation changes its structures: counting or comparing, 32 or 64 bits, slots or a map. (It also does
/// above 32 sequences; the lengths below are as often fewer as more.)
fn scales() -> impl Strategy<Value = i64> {
    prop::sample::select(vec![1, 1 << 10, 1 << 21, 1 << 25, 1 << 40, 1 << 53])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn bins_are_those_of_the_quadratic_search(
        lengths in prop::collection::vec(0i64..=20, 0..100), extra in 0i64..10, scale in scales(),
    ) {
        let lengths: Vec<i64> = lengths.iter().map(|n| n * scale).collect();
        agree(&lengths, (20 + extra) * scale)?;
    }

    #[test]
    fn hundreds_of_bins_too(
        lengths in prop::collection::vec((1i64..=1000).prop_map(|n| n * n / 1000), 500..800), scale in scales(),
    ) {
        let lengths: Vec<i64> = lengths.iter().map(|n| n * scale).collect();
        agree(&lengths, 1000 * scale)?;
    }

    #[test]
    fn truncation_packs_what_is_kept(lengths in prop::collection::vec(0i64..40, 0..60)) {
        let cut: Vec<i64> = lengths.iter().map(|&n| n.min(20)).collect();
        for fit in [FIRST, BEST] {
            let got = pack_sequences(&lengths, 20, fit, OverLong::Truncate).unwrap();
            prop_assert_eq!(&got, &pack_sequences(&cut, 20, fit, OverLong::Error).unwrap());
            let bins = (got.offsets.len() - 1) as f64;
            let kept: i64 = cut.iter().sum();
            prop_assert_eq!(got.efficiency, if bins == 0.0 { 1.0 } else { kept as f64 / (20.0 * bins) });
        }
    }

    #[test]
    fn split_keeps_every_token_once(lengths in prop::collection::vec(0i64..90, 0..40), most in 1i64..25) {
        for fit in Fit::ALL {
            let got = pack_sequences(&lengths, most, fit, OverLong::Split).unwrap();
            let mut seen: Vec<Vec<i64>> = lengths.iter().map(|_| Vec::new()).collect();
            for ((&index, &start), &size) in got.indices.iter().zip(&got.starts).zip(&got.sizes) {
                prop_assert!(size >= 1);
                seen[index as usize].extend(start..start + size);
            }
            for (tokens, &length) in seen.iter_mut().zip(&lengths) {
                tokens.sort_unstable();
                prop_assert!(tokens.iter().copied().eq(0..length));
            }
            let fills: Vec<i64> = got.offsets.windows(2).map(|w| got.sizes[w[0] as usize..w[1] as usize].iter().sum()).collect();
            prop_assert!(fills.iter().all(|&fill| 1 <= fill && fill <= most));
            let wrapped = fit == Fit::Wrapped;
            prop_assert!(!wrapped || fills.iter().rev().skip(1).all(|&fill| fill == most));
        }
    }
}

#[test]
fn wrapped_is_asked_for_with_split_alone() {
    for over_long in [OverLong::Error, OverLong::Truncate] {
        let error = pack_sequences(&[1], 8, Fit::Wrapped, over_long).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("\"split\": strategy \"wrapped\""),
            "{error}"
        );
    }
}

#[test]
fn the_strategies_differ() {
    // Bins of 7: 5, then 3 and 3 together. The 1 fits to the 5 (2 left), which is first, and to the 3s (1 left), fuller.
    let lengths = [5, 3, 3, 1];
    for (fit, want) in [
        (FIRST, vec![vec![0, 3], vec![1, 2]]),
        (BEST, vec![vec![0], vec![1, 2, 3]]),
    ] {
        let packing = pack_sequences(&lengths, 7, fit, OverLong::Error).unwrap();
        assert_eq!(bins(&packing), want);
        assert_eq!(packing.efficiency, 12.0 / 14.0);
    }
}

#[test]
fn wrong_lengths_are_named_with_index_and_value() {
    let cases: [(&[i64], i64, &str); 3] = [
        (&[1], 0, "`max_length` is 0, must be at least 1"),
        (
            &[1, 9],
            8,
            "`lengths[1]` is 9, must be between 0 and 8 (`max_length`)",
        ),
        (
            &[-1],
            8,
            "`lengths[0]` is -1, must be between 0 and 8 (`max_length`)",
        ),
    ];
    for (lengths, max_length, message) in cases {
        let error = pack_sequences(lengths, max_length, FIRST, OverLong::Error).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let negative = pack_sequences(&[9, -1], 8, FIRST, OverLong::Truncate).unwrap_err();
    assert_eq!(
        negative.to_string(),
        "`lengths[1]` is -1, must be at least 0"
    );
}
