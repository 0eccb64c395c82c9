//! float16 and bfloat16 from and to `f32`. Integer arithmetic on their bits: the same on every machine, and vectorised.

/// The value of a bfloat16, exactly.
#[inline(always)]
pub(crate) fn from_bfloat(word: u16) -> f32 {
    f32::from_bits(u32::from(word) << 16)
}

/// The nearest bfloat16, ties to even; every NaN becomes the positive quiet one.
#[inline(always)]
pub(crate) fn to_bfloat(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    (if bits & 0x7fff_ffff > 0x7f80_0000 {
        0x7fc0
    } else {
        rounded
    }) as u16
}

/// The value of a float16, exactly.
#[inline(always)]
pub(crate) fn from_half(word: u16) -> f32 {
    let word = u32::from(word);
    let sign = (word & 0x8000) << 16;
    let shifted = (word & 0x7fff) << 13; // exponent and mantissa in place, the exponent 112 too small
    let normal = shifted + (112 << 23);
    let special = shifted + (224 << 23); // exponent 31 becomes 255
    // A subnormal is m · 2^-24: with the exponent of 2^-14 above it, it is a number from which 2^-14 is taken off.
    let subnormal = (f32::from_bits(normal + (1 << 23)) - f32::from_bits(113 << 23)).to_bits();
    let magnitude = if shifted >= 31 << 23 {
        special
    } else if shifted < 1 << 23 {
        subnormal
    } else {
        normal
    };
    f32::from_bits(sign | magnitude)
}

/// As [`from_half`], of several words.
#[inline(always)]
pub(crate) fn from_halves<const N: usize>(words: &[u16; N]) -> [f32; N] {
    let mut values = [0.0; N];
    for i in 0..N {
        values[i] = from_half(words[i]);
    }
    values
}

/// The nearest float16, ties to even, +-inf from 65520; every NaN becomes the positive quiet one.
#[inline(always)]
pub(crate) fn to_half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = bits >> 16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let odd = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    // Below 2^-14 the sum with 1/2 has its last bit at 2^-24, the step of float16's subnormals: the addition rounds.
    let small = magnitude.min(113 << 23);
    let subnormal = (f32::from_bits(small) + 0.5).to_bits() - 0.5f32.to_bits();
    let rounded = if magnitude < 113 << 23 {
        subnormal
    } else {
        normal.min(0x7c00)
    };
    (if magnitude > 0x7f80_0000 {
        0x7e00
    } else {
        sign | rounded
    }) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a float16 from its definition (IEEE 754-2019, 3.4).
    fn definition(word: u16) -> f64 {
        let (exponent, mantissa) = (i32::from(word >> 10 & 31), f64::from(word & 1023));
        let magnitude = match exponent {
            0 => mantissa * 2f64.powi(-24),
            31 if mantissa == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1024.0 + mantissa) * 2f64.powi(exponent - 25),
        };
        if word >> 15 == 1 {
            -magnitude
        } else {
            magnitude
        }
    }

    #[test]
    fn every_float16_has_its_value_and_comes_back() {
        for word in 0..=u16::MAX {
            let (value, want) = (from_half(word), definition(word));
            if want.is_nan() {
                assert!(value.is_nan());
                assert_eq!(to_half(value), 0x7e00);
            } else {
                assert_eq!(f64::from(value), want, "{word:#x}");
                assert_eq!(to_half(value), word);
            }
        }
    }

    /// The nearest of the two neighbours, the even one in the middle, by exact arithmetic in f64.
    #[test]
    fn float16_rounds_to_nearest_even() {
        for word in 0..0x7c00u16 {
            let (low, high) = (definition(word), definition(word + 1).min(65536.0));
            let middle = low.midpoint(high);
            let even = if word % 2 == 0 { word } else { word + 1 };
            assert_eq!(to_half(middle as f32), even, "middle above {word:#x}");
            assert_eq!(to_half((middle as f32).next_down()), word);
            assert_eq!(to_half((middle as f32).next_up()), word + 1);
            assert_eq!(to_half(-(middle as f32)), even | 0x8000);
        }
    }

    #[test]
    fn bfloat16_rounds_to_nearest_even() {
        assert_eq!(from_bfloat(0xc040), -3.0);
        for word in 0..0x7f80u16 {
            assert_eq!(to_bfloat(from_bfloat(word)), word);
            let middle = f32::from_bits((u32::from(word) << 16) + 0x8000);
            let even = if word % 2 == 0 { word } else { word + 1 };
            assert_eq!(to_bfloat(middle), even);
            assert_eq!(to_bfloat(middle.next_down()), word);
            assert_eq!(to_bfloat(middle.next_up()), word + 1);
            assert_eq!(to_bfloat(-middle), even | 0x8000);
        }
        assert_eq!(to_bfloat(-f32::NAN), 0x7fc0);
        assert_eq!(to_bfloat(f32::INFINITY), 0x7f80);
    }
}
