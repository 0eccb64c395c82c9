//! From Python objects to slices: read in place where possible, copied once where needed, refused with a remedy otherwise.
//!
//! What is accepted: NumPy arrays, and arrays of other libraries that live in the CPU's memory and offer DLPack (torch,
//! MLX; an MLX array that is still lazy is evaluated by its own `__dlpack__`). An array is read in place where it is
//! C-contiguous, aligned and of native byte order, whatever its size.
//!
//! A binding reads like this:
//! ```ignore
//! by_float!(Floats::extract("policy", policy)?, |policy| {
//!     let reference = policy.like("reference", reference)?; // the same dtype and shape
//!     let layout = Layout::extract(&policy, mask, lengths)?;
//!     let mut out = Output::new_or(py, out, policy.shape(), &[&policy, &reference, &layout])?;
//!     let (rows, to) = (layout.rows(), out.as_mut_slice());
//!     let (policy, reference) = (policy.as_slice(), reference.as_slice());
//!     detach_if_large(py, policy.len(), || kl::token_kl(policy, reference, estimator, &rows, to)).map_err(value_error)?;
//!     out.finish()
//! })
//! ```

mod array;
mod dlpack;
mod element;
mod exchange;
mod floats;
mod integers;
mod layout;
mod message;
mod output;
mod raw;
pub(crate) mod scalars;
mod shape;
mod source;
mod span;
mod tensor;

pub(crate) use array::Array;
pub(crate) use element::Element;
pub(crate) use floats::{Floats, Logits};
pub(crate) use integers::{integers, unsigned};
pub(crate) use layout::Layout;
pub(crate) use output::{Output, is_array_of};
pub(crate) use scalars::arguments;
pub(crate) use shape::{Shape, shown};
pub(crate) use span::Reads;

/// Runs the body with the array in the type that was found: `by_float!(floats, |policy| computed(&policy))`.
macro_rules! by_float {
    ($floats:expr, |$array:ident| $body:expr) => {
        match $floats {
            $crate::input::Floats::F32($array) => $body,
            $crate::input::Floats::F64($array) => $body,
        }
    };
}
pub(crate) use by_float;
