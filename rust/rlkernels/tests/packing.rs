//! Packing against a quadratic implementation, and its errors.

mod naive;

use proptest::prelude::*;
use rlkernels::packing::pack_sequences;

proptest! {
    #[test]
    fn bins_are_those_of_the_quadratic_search(
        lengths in prop::collection::vec(0i64..=20, 0..60), extra in 0i64..10
    ) {
        let max_length = 20 + extra;
        let packing = pack_sequences(&lengths, max_length).unwrap();
        let bins: Vec<Vec<i64>> = packing
            .offsets
            .windows(2)
            .map(|w| packing.indices[w[0] as usize..w[1] as usize].to_vec())
            .collect();
        prop_assert_eq!(bins, naive::first_fit_decreasing(&lengths, max_length));
        prop_assert_eq!(packing.offsets[0], 0);
        prop_assert_eq!(*packing.offsets.last().unwrap(), lengths.len() as i64);
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
        let error = pack_sequences(lengths, max_length).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}
