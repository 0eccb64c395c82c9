#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rlkernels::packing::{OverLong, Strategy, pack_sequences};

#[derive(Arbitrary, Debug)]
struct Input {
    lengths: Vec<u16>,
    shift: u8,
    offset: i8,
    max_length: u16,
    best: bool,
    truncate: bool,
}

fuzz_target!(|input: Input| {
    let shift = u32::from(input.shift % 48);
    let length = |n: u16| (i64::from(n) << shift) + i64::from(input.offset);
    let lengths: Vec<i64> = input.lengths.iter().map(|&n| length(n)).collect();
    let max_length = length(input.max_length);
    let strategy = if input.best {
        Strategy::BestFitDecreasing
    } else {
        Strategy::FirstFitDecreasing
    };
    let over_long = if input.truncate {
        OverLong::Truncate
    } else {
        OverLong::Error
    };
    if max_length >= 1 && lengths.iter().all(|&n| (0..1 << 20).contains(&(n / max_length))) {
        for strategy in Strategy::ALL {
            let Ok(pieces) = pack_sequences(&lengths, max_length, strategy, OverLong::Split) else {
                continue;
            };
            let mut tokens = vec![0; lengths.len()];
            for (&index, &size) in pieces.indices.iter().zip(&pieces.sizes) {
                tokens[index as usize] += size;
            }
            assert_eq!(tokens, lengths);
        }
    }
    let Ok(packing) = pack_sequences(&lengths, max_length, strategy, over_long) else {
        return;
    };
    let mut seen = vec![false; lengths.len()];
    let mut kept = 0i128;
    for bin in packing.offsets.windows(2) {
        let content = &packing.indices[bin[0] as usize..bin[1] as usize];
        assert!(!content.is_empty());
        let mut fill = 0i128;
        for &index in content {
            assert!(!std::mem::replace(&mut seen[index as usize], true));
            fill += i128::from(lengths[index as usize].min(max_length));
        }
        assert!(fill <= i128::from(max_length));
        kept += fill;
    }
    assert!(seen.iter().all(|&seen| seen));
    let bins = packing.offsets.len() as i128 - 1;
    assert!(bins <= 2 * (kept / i128::from(max_length)) + 2);
    assert!((0.0..=1.0).contains(&packing.efficiency));
});
