//! What an error says: the argument, what was expected, what was found, and what to do.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::raw;

/// "an array of int64", "of type list", "a torch.Tensor of torch.int64".
pub(super) fn described(value: &Bound<'_, PyAny>) -> String {
    let kind = value.get_type();
    let name = kind
        .name()
        .map_or_else(|_| "object".into(), |name| name.to_string());
    if raw::is_plain(value) {
        return match value.getattr("dtype") {
            Ok(dtype) => format!("an array of {dtype}"),
            Err(_) => "an array".into(),
        };
    }
    if is_foreign(value) {
        let module = kind
            .module()
            .map_or_else(|_| String::new(), |module| module.to_string());
        return match value.getattr("dtype") {
            Ok(dtype) => format!("a {module}.{name} of {dtype}"),
            Err(_) => format!("a {module}.{name}"),
        };
    }
    format!("of type {name}")
}

/// True where the attribute exists; an attribute that raises counts as missing.
pub(super) fn has(value: &Bound<'_, PyAny>, attribute: &str) -> bool {
    value.hasattr(attribute).unwrap_or(false)
}

/// What an argument must be.
pub(super) struct Wanted {
    /// "float32 or float64"
    pub(super) types: &'static str,
    /// The NumPy type to convert to.
    pub(super) remedy: &'static str,
    /// What a list may hold.
    pub(super) elements: Elements,
    /// Whether integers and booleans are taken as the floats that they are.
    pub(super) takes_integers: bool,
    /// Whether float16 and bfloat16 are taken as the float32 numbers that they are.
    pub(super) takes_halves: bool,
}

/// Elements of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Elements {
    Truths,
    Integers,
    Floats,
}

/// Floats of the kernels' two types.
pub(super) const FLOATS: Wanted = Wanted {
    types: "float32 or float64",
    remedy: "numpy.float64",
    elements: Elements::Floats,
    takes_integers: false,
    takes_halves: true,
};

/// Numbers whose meaning does not depend on their type: rewards and weights.
pub(super) const NUMBERS: Wanted = Wanted {
    types: "float32, float64, integers or booleans",
    takes_integers: true,
    takes_halves: false,
    ..FLOATS
};

/// The argument is not what it must be.
#[cold]
pub(super) fn wrong(name: &str, value: &Bound<'_, PyAny>, wanted: &Wanted) -> PyErr {
    let remedy = if raw::is_masked(value) {
        masked_remedy(name)
    } else if is_foreign(value) {
        "convert it in its own library".into()
    } else {
        format!(
            "convert it with numpy.asarray({name}, dtype={})",
            wanted.remedy
        )
    };
    PyTypeError::new_err(format!(
        "`{name}` is {}, must be a NumPy array of {} or one that offers DLPack; {remedy}",
        described(value),
        wanted.types,
    ))
}

/// How to pass a masked array without losing its mask.
fn masked_remedy(name: &str) -> String {
    if name == "rewards" {
        "pass rewards.filled(numpy.nan), where NaN means \"not scored\"".into()
    } else {
        format!(
            "pass {name}.data, and its mask as mask=~numpy.ma.getmaskarray({name}) where the function has `mask`"
        )
    }
}

/// An array of another library.
fn is_foreign(value: &Bound<'_, PyAny>) -> bool {
    !raw::is_array(value) && has(value, "__dlpack__")
}
