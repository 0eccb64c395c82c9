//! The fields of a NumPy array and the making of new ones, without a borrow table.
//!
//! `numpy`'s safe borrows cost a hash table's entry per array and call (measured: 0.05 µs each), and cannot see writers
//! in other languages anyway. Here, as in NumPy itself, keeping writers away while the GIL is released is the caller's
//! business; the type stub says so.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};

use numpy::PY_ARRAY_API as API;
use numpy::npyffi::{self, NpyTypes, PyArrayObject, npy_intp};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::shape::{MOST_DIMENSIONS, Shape, too_large};

/// Elements from which an array that cannot be read in place is refused: its copy would take 8 GiB in float32.
pub(super) const COPY_LIMIT: usize = 1 << 31;

/// The first number of types that packages add to NumPy (`NPY_USERDEF`).
pub(crate) const FIRST_USER_KIND: c_int = 256;

/// What a NumPy array says about itself.
pub(crate) struct Facts {
    pub(crate) data: *mut c_char,
    pub(crate) shape: Shape,
    pub(crate) len: usize,
    /// NumPy's number of the element type (`NPY_TYPES`), whatever the byte order.
    pub(crate) kind: c_int,
    native_order: bool,
    flags: c_int,
}

/// The byte order that is not this machine's.
const SWAPPED: c_char = if cfg!(target_endian = "little") {
    b'>' as c_char
} else {
    b'<' as c_char
};

impl Facts {
    /// C-contiguous, aligned and of native byte order.
    pub(crate) fn in_place(&self) -> bool {
        let wanted = npyffi::flags::NPY_ARRAY_C_CONTIGUOUS | npyffi::flags::NPY_ARRAY_ALIGNED;
        self.native_order && self.flags & wanted == wanted
    }

    pub(crate) fn contiguous(&self) -> bool {
        self.flags & npyffi::flags::NPY_ARRAY_C_CONTIGUOUS != 0
    }

    pub(crate) fn writeable(&self) -> bool {
        self.flags & npyffi::flags::NPY_ARRAY_WRITEABLE != 0
    }
}

/// True for `numpy.ndarray` itself, not for its subclasses.
#[inline]
pub(crate) fn is_plain(value: &Bound<'_, PyAny>) -> bool {
    // SAFETY: both are valid objects; only their addresses are compared.
    unsafe { npyffi::array::PyArray_CheckExact(value.py(), value.as_ptr()) != 0 }
}

/// True for arrays of any subclass.
pub(crate) fn is_array(value: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a valid object and a valid type.
    unsafe { npyffi::array::PyArray_Check(value.py(), value.as_ptr()) != 0 }
}

/// True for `numpy.ma.MaskedArray` and whatever else has a mask: reading past it would be a silent mistake.
pub(crate) fn is_masked(value: &Bound<'_, PyAny>) -> bool {
    is_array(value) && !is_plain(value) && value.hasattr("mask").unwrap_or(true)
}

/// The fields of an array.
///
/// # Safety
/// `array` must have passed [`is_plain`] or [`is_array`].
#[inline]
pub(crate) unsafe fn facts(name: &str, array: &Bound<'_, PyAny>) -> PyResult<Facts> {
    // SAFETY: the object is an ndarray, whose fields are public ABI. They are read while the GIL is held, and
    // `dimensions` points to `nd` integers.
    let (fields, descr, sizes) = unsafe {
        let object: *const PyArrayObject = array.as_ptr().cast();
        let fields = &(*object).fields;
        let sizes: &[npy_intp] = match usize::try_from(fields.nd) {
            Ok(0) | Err(_) => &[],
            Ok(dimensions) => std::slice::from_raw_parts(fields.dimensions, dimensions),
        };
        (fields, &(*fields.descr).fields, sizes)
    };
    let shape = Shape::of(name, sizes)?;
    let len = shape
        .iter()
        .try_fold(1usize, |n, &size| n.checked_mul(size));
    Ok(Facts {
        data: fields.data,
        len: len.ok_or_else(|| too_large(name, &shape))?,
        shape,
        kind: descr.type_num,
        native_order: descr.byteorder != SWAPPED,
        flags: fields.flags,
    })
}

/// `ValueError` for an array that is too large to be copied.
pub(crate) fn check_copy(name: &str, facts: &Facts) -> PyResult<()> {
    if facts.len < COPY_LIMIT {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "`{name}` has {} elements and cannot be read in place, must have fewer than 2**31 to be copied; make it C-contiguous, aligned and of native byte order with numpy.ascontiguousarray",
        facts.len
    )))
}

/// A copy that can be read in place, its elements of `kind`.
pub(crate) fn copied<'py>(
    name: &str,
    array: &Bound<'py, PyAny>,
    facts: &Facts,
    kind: c_int,
) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    check_copy(name, facts)?;
    let flags = npyffi::flags::NPY_ARRAY_CARRAY_RO
        | npyffi::flags::NPY_ARRAY_ENSUREARRAY
        | npyffi::flags::NPY_ARRAY_FORCECAST;
    // SAFETY: `array` is an ndarray (it has `Facts`); the descriptor's reference is stolen by `PyArray_FromArray`, whose
    // result is a new reference or null with an exception set.
    unsafe {
        let descr = match kind {
            FIRST_USER_KIND.. => null_mut(), // keeps the type, which knows one byte order only
            _ => API.PyArray_DescrFromType(py, kind), // of native byte order
        };
        let copy = API.PyArray_FromArray(py, array.as_ptr().cast(), descr, flags);
        Bound::from_owned_ptr_or_err(py, copy)
    }
}

/// A new C-contiguous array whose elements nobody has written yet.
pub(crate) fn uninitialised<'py>(
    py: Python<'py>,
    shape: &[usize],
    kind: c_int,
) -> PyResult<(Bound<'py, PyAny>, NonNull<c_void>)> {
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
        Ok((array, data.unwrap_or(NonNull::dangling())))
    }
}

/// A read-only array over somebody else's memory, which `owner` keeps alive.
///
/// # Safety
/// `data` with `sizes` and `strides` (in bytes, as many as sizes) must be readable as elements of `kind` for as long as
/// `owner` lives.
pub(crate) unsafe fn viewed<'py>(
    owner: Bound<'py, PyAny>,
    data: *mut c_void,
    sizes: &mut [npy_intp],
    strides: &mut [npy_intp],
    kind: c_int,
) -> PyResult<Bound<'py, PyAny>> {
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
        Ok(array)
    }
}
