//! The element types of arrays.

use std::ffi::c_int;

use numpy::npyffi::NPY_TYPES;

/// A Rust type whose slices NumPy arrays of one type are.
///
/// # Safety
/// Any bytes of an array of NumPy's type [`Element::KIND`] must be valid values of `Self`, and their size the same.
pub(crate) unsafe trait Element: Copy + Send + Sync + 'static {
    /// NumPy's number of the type.
    const KIND: c_int;
    /// NumPy's name of the type.
    const NAME: &'static str;
}

macro_rules! elements {
    ($($type:ty => $kind:ident $name:literal),* $(,)?) => {
        $(
            // SAFETY: every bit pattern is a value of a number, and NumPy's type has this size.
            unsafe impl Element for $type {
                const KIND: c_int = NPY_TYPES::$kind as c_int;
                const NAME: &'static str = $name;
            }
        )*
    };
}

elements! {
    f32 => NPY_FLOAT "float32",
    f64 => NPY_DOUBLE "float64",
    u8 => NPY_BOOL "bool", // a foreign boolean may hold any byte, a Rust `bool` not
    u32 => NPY_UINT "uint32",
}
// SAFETY: as above; of C's two 64-bit integers NumPy names the first that is wide enough.
unsafe impl Element for i64 {
    const KIND: c_int = I64;
    const NAME: &'static str = "int64";
}
// SAFETY: as above.
unsafe impl Element for u64 {
    const KIND: c_int = I64 + 1;
    const NAME: &'static str = "uint64";
}
// SAFETY: as above; the bits of a float16, or of a bfloat16, whose NumPy type has no fixed number.
unsafe impl Element for u16 {
    const KIND: c_int = NPY_TYPES::NPY_HALF as c_int;
    const NAME: &'static str = "float16";
}

const I64: c_int = if size_of::<std::ffi::c_long>() == 8 {
    NPY_TYPES::NPY_LONG as c_int
} else {
    NPY_TYPES::NPY_LONGLONG as c_int
};

const FIRST_INTEGER: c_int = NPY_TYPES::NPY_BYTE as c_int; // signed and unsigned by turns
pub(super) const LAST_INTEGER: c_int = NPY_TYPES::NPY_ULONGLONG as c_int;

/// Whether NumPy's type of this number is one of integers; booleans are none.
pub(super) fn is_integer(kind: c_int) -> bool {
    (FIRST_INTEGER..=LAST_INTEGER).contains(&kind)
}
