//! NumPy arrays as the `numpy` crate's untyped ones: their fields, copies, new arrays, and views of other memory.
//!
//! The crate's typed arrays and borrows are not used, for every call would pay (one thread of a Zen 4, k3 of 1 × 128 is
//! 0.37 µs in all): two arrays read by `PyReadonlyArray` and a new one cost 0.30 µs, read by their fields 0.12 µs. Nor can
//! a borrow see writers in other languages. As in NumPy itself, keeping writers away while the GIL is released is the
//! caller's business; the type stub says so. Copies by `numpy.array` in place of `PyArray_FromArray` made a call with two
//! slices take 3.2 µs, not 1.25.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};

use numpy::PY_ARRAY_API as API;
use numpy::npyffi::{self, NpyTypes, PyArrayObject, npy_intp};
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::shape::{MOST_DIMENSIONS, Shape, too_large};

/// Elements from which an array that cannot be read in place is refused: its copy would take 8 GiB in float32.
pub(super) const COPY_LIMIT: usize = 1 << 31;

/// The first number of types that packages add to NumPy (`NPY_USERDEF`).
pub(super) const FIRST_USER_KIND: c_int = 256;

/// A NumPy array of any type.
pub(super) type Untyped<'py> = Bound<'py, PyUntypedArray>;

/// What a NumPy array says about itself.
pub(super) struct Facts {
    pub(super) data: *mut c_char,
    pub(super) shape: Shape,
    pub(super) len: usize,
    /// NumPy's number of the element type (`NPY_TYPES`), whatever the byte order.
    pub(super) kind: c_int,
    /// C-contiguous, aligned and of native byte order.
    pub(super) in_place: bool,
    pub(super) writeable: bool,
}

/// The byte order that is not this machine's.
const SWAPPED: c_char = if cfg!(target_endian = "little") {
    b'>' as c_char
} else {
    b'<' as c_char
};

/// True for `numpy.ndarray` itself, not for its subclasses.
pub(super) fn is_plain(value: &Bound<'_, PyAny>) -> bool {
    value.is_exact_instance_of::<PyUntypedArray>()
}

/// True for arrays of any subclass.
pub(super) fn is_array(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyUntypedArray>()
}

/// True for `numpy.ma.MaskedArray` and whatever else has a mask: reading past it would be a silent mistake.
pub(super) fn is_masked(value: &Bound<'_, PyAny>) -> bool {
    is_array(value) && !is_plain(value) && value.hasattr("mask").unwrap_or(true)
}

/// The fields of an array.
#[inline]
pub(super) fn facts(name: &str, array: &Untyped<'_>) -> PyResult<Facts> {
    let shape = Shape::of(name, array.shape())?;
    let len = shape
        .iter()
        .try_fold(1usize, |n, &size| n.checked_mul(size));
    // SAFETY: an array, whose fields are public ABI and are read while the GIL is held. (The crate's `dtype()` takes a
    // reference, which costs a call 0.01 µs for each array.)
    let (data, flags, descr) = unsafe {
        let fields = &(*array.as_array_ptr()).fields;
        (fields.data, fields.flags, &(*fields.descr).fields)
    };
    let wanted = npyffi::flags::NPY_ARRAY_C_CONTIGUOUS | npyffi::flags::NPY_ARRAY_ALIGNED;
    Ok(Facts {
        data,
        len: len.ok_or_else(|| too_large(name, &shape))?,
        shape,
        kind: descr.type_num,
        in_place: descr.byteorder != SWAPPED && flags & wanted == wanted,
        writeable: flags & npyffi::flags::NPY_ARRAY_WRITEABLE != 0,
    })
}

/// `ValueError` for an array that is too large to be copied.
pub(super) fn check_copy(name: &str, facts: &Facts) -> PyResult<()> {
    if facts.len < COPY_LIMIT {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "`{name}` has {} elements and cannot be read in place, must have fewer than 2**31 to be copied; make it C-contiguous, aligned and of native byte order with numpy.ascontiguousarray",
        facts.len
    )))
}

/// A copy that can be read in place, its elements of `kind`.
pub(super) fn copied<'py>(
    name: &str,
    array: &Untyped<'py>,
    facts: &Facts,
    kind: c_int,
) -> PyResult<Untyped<'py>> {
    let py = array.py();
    check_copy(name, facts)?;
    let flags = npyffi::flags::NPY_ARRAY_CARRAY_RO
        | npyffi::flags::NPY_ARRAY_ENSUREARRAY
        | npyffi::flags::NPY_ARRAY_FORCECAST;
    // SAFETY: an array; the descriptor's reference is stolen by `PyArray_FromArray`, whose result is a new reference to
    // an array, or null with an exception set.
    unsafe {
        let descr = match kind {
            FIRST_USER_KIND.. => null_mut(), // keeps the type, which knows one byte order only
            _ => API.PyArray_DescrFromType(py, kind), // of native byte order
        };
        let copy = API.PyArray_FromArray(py, array.as_ptr().cast(), descr, flags);
        Ok(Bound::from_owned_ptr_or_err(py, copy)?.cast_into_unchecked())
    }
}

/// A new C-contiguous array whose elements nobody has written yet.
pub(super) fn uninitialised<'py>(
    py: Python<'py>,
    shape: &[usize],
    kind: c_int,
) -> PyResult<(Untyped<'py>, NonNull<c_void>)> {
    let mut sizes: [npy_intp; MOST_DIMENSIONS] = [0; MOST_DIMENSIONS];
    for (to, &from) in sizes.iter_mut().zip(shape) {
        *to = npy_intp::try_from(from).unwrap_or(npy_intp::MAX); // NumPy refuses what is too large
    }
    let dimensions = shape.len().min(MOST_DIMENSIONS) as c_int;
    // SAFETY: `sizes` holds `dimensions` sizes; the descriptor's reference is stolen; the result is a new reference or
    // null with an exception set. The data of a new array is never null, not even of an empty one.
    unsafe {
        let array = API.PyArray_NewFromDescr(
            py,
            npyffi::get_type_object(py, NpyTypes::PyArray_Type),
            API.PyArray_DescrFromType(py, kind),
            dimensions,
            sizes.as_mut_ptr(),
            null_mut(),
            null_mut(),
            0,
            null_mut(),
        );
        let array = Bound::from_owned_ptr_or_err(py, array)?;
        let object: *const PyArrayObject = array.as_ptr().cast();
        let data = NonNull::new((*object).fields.data.cast());
        Ok((
            array.cast_into_unchecked(),
            data.unwrap_or(NonNull::dangling()),
        ))
    }
}

/// A read-only array over somebody else's memory, which `owner` keeps alive.
///
/// # Safety
/// `data` with `sizes` and `strides` (in bytes, as many as sizes) must be readable as elements of `kind` for as long as
/// `owner` lives.
pub(super) unsafe fn viewed<'py>(
    owner: Bound<'py, PyAny>,
    data: *mut c_void,
    sizes: &mut [npy_intp],
    strides: &mut [npy_intp],
    kind: c_int,
) -> PyResult<Untyped<'py>> {
    let py = owner.py();
    debug_assert_eq!(sizes.len(), strides.len());
    // SAFETY: as promised by the caller; the descriptor's and the owner's references are stolen by the calls that take
    // them, also where they fail.
    unsafe {
        let array = API.PyArray_NewFromDescr(
            py,
            npyffi::get_type_object(py, NpyTypes::PyArray_Type),
            API.PyArray_DescrFromType(py, kind),
            sizes.len() as c_int,
            sizes.as_mut_ptr(),
            strides.as_mut_ptr(),
            data,
            0,
            null_mut(),
        );
        let array = Bound::from_owned_ptr_or_err(py, array)?;
        if API.PyArray_SetBaseObject(py, array.as_ptr().cast(), owner.into_ptr()) < 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(array.cast_into_unchecked())
    }
}
