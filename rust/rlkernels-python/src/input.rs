//! From Python objects to slices: read in place where possible, copied where needed, refused with a remedy otherwise.

use numpy::{
    Element, PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArray,
    PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;

/// A floating-point array, C-contiguous, aligned and of native byte order.
pub(crate) enum FloatArray<'py> {
    F32(PyReadonlyArrayDyn<'py, f32>),
    F64(PyReadonlyArrayDyn<'py, f64>),
}

impl FloatArray<'_> {
    pub(crate) fn dtype(&self) -> &'static str {
        match self {
            Self::F32(_) => "float32",
            Self::F64(_) => "float64",
        }
    }
}

/// A float32 or float64 array, or a `TypeError` with the remedy.
pub(crate) fn float_array<'py>(name: &str, value: &Bound<'py, PyAny>) -> PyResult<FloatArray<'py>> {
    let wrong = |found: String| {
        PyTypeError::new_err(format!(
            "`{name}` is {found}, must be a NumPy array of float32 or float64; convert it with numpy.asarray({name}, dtype=numpy.float64)"
        ))
    };
    let array = untyped(value).ok_or_else(|| wrong(described(value)))?;
    let dtype = array.dtype();
    match (dtype.kind(), dtype.itemsize()) {
        (b'f', 4) => native(name, value).map(FloatArray::F32),
        (b'f', 8) => native(name, value).map(FloatArray::F64),
        _ => Err(wrong(described(value))),
    }
}

/// One-dimensional integers of any width as int64, or a `TypeError` with the remedy.
pub(crate) fn integer_array<'py>(
    name: &str,
    value: &Bound<'py, PyAny>,
) -> PyResult<PyReadonlyArrayDyn<'py, i64>> {
    let wrong = || {
        PyTypeError::new_err(format!(
            "`{name}` is {}, must be a NumPy array of integers; convert it with numpy.asarray({name}, dtype=numpy.int64)",
            described(value)
        ))
    };
    let array = untyped(value).ok_or_else(wrong)?;
    match array.dtype().kind() {
        b'i' => {}
        b'u' => unsigned_fits(name, array)?,
        _ => return Err(wrong()),
    }
    one_dimensional(name, array.shape())?;
    native(name, value)
}

/// A boolean array as bytes that are not 0 where it is true: a foreign boolean may hold any byte, a Rust `bool` not.
pub(crate) fn mask_array<'py>(
    name: &str,
    value: &Bound<'py, PyAny>,
    shape: &[usize],
) -> PyResult<PyReadonlyArrayDyn<'py, u8>> {
    let wrong = || {
        PyTypeError::new_err(format!(
            "`{name}` is {}, must be a NumPy array of bool; convert it with {name}.astype(bool)",
            described(value)
        ))
    };
    let array = untyped(value).ok_or_else(wrong)?;
    if array.dtype().kind() != b'b' {
        return Err(wrong());
    }
    if array.shape() != shape {
        return Err(PyValueError::new_err(format!(
            "`{name}` has shape {}, must be {} like `policy`",
            shown(array.shape()),
            shown(shape)
        )));
    }
    native(name, &value.call_method1("view", ("uint8",))?)
}

/// A whole number; one beyond 64 bits is a wrong value like any other, not an overflow.
pub(crate) fn whole(name: &str, value: &Bound<'_, PyAny>) -> PyResult<i64> {
    value.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(value.py()) {
            PyValueError::new_err(format!("`{name}` is {value}, must fit into 64 bits"))
        } else {
            PyTypeError::new_err(format!(
                "`{name}` is {}, must be an integer",
                described(value)
            ))
        }
    })
}

/// `ValueError` unless the shape has one dimension.
pub(crate) fn one_dimensional(name: &str, shape: &[usize]) -> PyResult<()> {
    if shape.len() == 1 {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "`{name}` has shape {}, must have one dimension",
        shown(shape)
    )))
}

/// A shape as Python writes it.
pub(crate) fn shown(shape: &[usize]) -> String {
    match shape {
        [one] => format!("({one},)"),
        _ => format!(
            "({})",
            shape
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        ),
    }
}

/// The array's elements; [`native`] made sure that they are one slice.
pub(crate) fn elements<'a, T: Element>(array: &'a PyReadonlyArrayDyn<'_, T>) -> PyResult<&'a [T]> {
    array
        .as_slice()
        .map_err(|error| PyValueError::new_err(error.to_string()))
}

/// An array, but not a masked one: reading past its mask would be a silent mistake.
fn untyped<'a, 'py>(value: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, PyUntypedArray>> {
    let array = value.cast::<PyUntypedArray>().ok()?;
    let plain = value.get_type().is(value.py().get_type::<PyUntypedArray>());
    let masked = !plain && value.hasattr("mask").unwrap_or(true);
    (!masked).then_some(array)
}

/// In place where the array is C-contiguous, aligned and of this type and byte order; through NumPy's copy otherwise.
fn native<'py, T: Element>(
    name: &str,
    value: &Bound<'py, PyAny>,
) -> PyResult<PyReadonlyArrayDyn<'py, T>> {
    let busy = |error: numpy::BorrowError| {
        PyValueError::new_err(format!("`{name}` cannot be read: {error}"))
    };
    if let Ok(array) = value.cast::<PyArrayDyn<T>>()
        && array.is_c_contiguous()
        && array.is_aligned()
    {
        return array.try_readonly().map_err(busy);
    }
    let dtype = numpy::dtype::<T>(value.py());
    let copy = value.call_method1("astype", (dtype, "C"))?;
    copy.cast::<PyArrayDyn<T>>()?.try_readonly().map_err(busy)
}

/// `ValueError` where an unsigned 64-bit integer is beyond int64: a cast would make it negative.
fn unsigned_fits(name: &str, array: &Bound<'_, PyUntypedArray>) -> PyResult<()> {
    if array.dtype().itemsize() < 8 || array.len() == 0 {
        return Ok(());
    }
    let greatest: u64 = array.call_method0("max")?.extract()?;
    i64::try_from(greatest).map(|_| ()).map_err(|_| {
        PyValueError::new_err(format!("`{name}` holds {greatest}, must be below 2**63"))
    })
}

/// "a list", "an array of int64".
fn described(value: &Bound<'_, PyAny>) -> String {
    if let Some(array) = untyped(value) {
        return format!("an array of {}", array.dtype());
    }
    value
        .get_type()
        .name()
        .map_or_else(|_| "no array".into(), |name| format!("of type {name}"))
}
