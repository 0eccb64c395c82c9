//! DLPack's table of C functions (DLPack 1.3): a tensor of torch costs 1 µs through it, 13 µs through Python methods.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{NonNull, null_mut};

use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};
use pyo3::{ffi, intern};

use super::tensor::{MAJOR, VERSIONED, Versioned};

/// `DLPackExchangeAPI` as far as it is used here.
#[repr(C)]
struct Table {
    major: u32,
    minor: u32,
    previous: *const c_void,
    allocator: *const c_void,
    from_object: Option<unsafe extern "C" fn(*mut c_void, *mut *mut Versioned) -> c_int>,
}

const NAME: &CStr = c"dlpack_exchange_api";

/// The argument's tensor in a capsule like that of `__dlpack__`; none where its type has no such table
/// or the table's function refuses.
pub(super) fn exported<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyCapsule>>> {
    let py = value.py();
    let attribute = value
        .get_type()
        .getattr(intern!(py, "__dlpack_c_exchange_api__"));
    let Some(table) = attribute
        .ok()
        .and_then(|table| table.cast_into::<PyCapsule>().ok())
    else {
        return Ok(None);
    };
    if !table.is_valid_checked(Some(NAME)) {
        return Ok(None);
    }
    let pointer = table.pointer_checked(Some(NAME))?.cast::<Table>();
    // SAFETY: a capsule of this name holds this table, whose version comes first in every version.
    let table = unsafe { pointer.as_ref() };
    let (MAJOR, Some(from_object)) = (table.major, table.from_object) else {
        return Ok(None);
    };
    let mut managed = null_mut();
    // SAFETY: the object is of the type whose table this is; the GIL is held.
    let code = unsafe { from_object(value.as_ptr().cast(), &raw mut managed) };
    let (0, Some(managed)) = (code, NonNull::new(managed)) else {
        drop(PyErr::take(py)); // the Python method refuses in fewer words
        return Ok(None);
    };
    // SAFETY: the tensor is ours now, and `release` gives it back once; where no capsule can be made, at once.
    unsafe {
        let capsule =
            ffi::PyCapsule_New(managed.as_ptr().cast(), VERSIONED.as_ptr(), Some(release));
        if capsule.is_null() {
            delete(managed);
        }
        let capsule = Bound::from_owned_ptr_or_err(py, capsule)?;
        Ok(Some(capsule.cast_into_unchecked()))
    }
}

/// The capsule's destructor.
unsafe extern "C" fn release(capsule: *mut ffi::PyObject) {
    // SAFETY: called once, by CPython, with a capsule of `exported`, whose name nobody changes.
    unsafe {
        if let Some(managed) = NonNull::new(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()))
        {
            delete(managed.cast());
        }
    }
}

/// Gives a tensor back to its library.
///
/// # Safety
/// Nobody may use the tensor any more.
unsafe fn delete(managed: NonNull<Versioned>) {
    // SAFETY: DLPack's way of giving it back, promised to happen once.
    unsafe {
        if let Some(deleter) = managed.as_ref().deleter {
            deleter(managed.as_ptr());
        }
    }
}
