//! Arrays of other libraries through DLPack (<https://dmlc.github.io/dlpack/latest/>), read where they lie.
//!
//! Not by `numpy.from_dlpack`: for a tensor of torch 2.15 it takes 2.5 µs, this 0.8 (k3 of two of 1 × 128: about 6 µs, now
//! 2.0), and it knows no bfloat16. Of an array of MLX it takes 0.6 µs, this 2.3.

use std::ffi::c_int;

use numpy::npyffi::{NPY_TYPES, npy_intp};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyDict};
use pyo3::{ffi, intern};

use super::element::Element;
use super::exchange;
use super::message::{Wanted, described, has, wrong};
use super::raw::{self, Untyped};
use super::tensor::{DataType, MAJOR, Tensor, UNVERSIONED, VERSIONED, Versioned};

/// Memory that the CPU reads: its own, and pinned memory of CUDA and of `ROCm`.
const READABLE: [i32; 3] = [1, 3, 11];

/// A NumPy view of the argument's memory, and whether its elements are bfloat16 (then seen as float16).
pub(super) fn viewed<'py>(
    name: &str,
    value: &Bound<'py, PyAny>,
    wanted: &Wanted,
) -> PyResult<(Untyped<'py>, bool)> {
    let py = value.py();
    if !has(value, "__dlpack__") || !has(value, "__dlpack_device__") {
        return Err(wrong(name, value, wanted));
    }
    let failed = |error: PyErr| unreadable(name, value, error);
    refuse_views(name, value)?;
    let capsule = if let Some(capsule) = exchange::exported(value).map_err(failed)? {
        capsule
    } else {
        let device = value.call_method0(intern!(py, "__dlpack_device__"));
        let (device, _): (i32, i32) = device.and_then(|pair| pair.extract()).map_err(failed)?;
        if !READABLE.contains(&device) && !offers_buffer(value) {
            return Err(elsewhere(name, value, device));
        }
        exported(value).map_err(failed)?
    };
    let tensor = tensor_of(&capsule).map_err(failed)?;
    if !READABLE.contains(&tensor.device.kind) {
        return Err(elsewhere(name, value, tensor.device.kind));
    }
    let (kind, size, bfloat) =
        numpy_kind(tensor.dtype).ok_or_else(|| wrong(name, value, wanted))?;
    let dimensions = usize::try_from(tensor.dimensions).unwrap_or(0);
    // SAFETY: DLPack promises `dimensions` integers behind both pointers; the capsule is alive.
    let (mut sizes, strides) = unsafe {
        (
            integers(tensor.shape, dimensions),
            (!tensor.strides.is_null()).then(|| integers(tensor.strides, dimensions)),
        )
    };
    let mut strides = strides.unwrap_or_else(|| contiguous(&sizes));
    for stride in &mut strides {
        *stride = stride.wrapping_mul(size); // from elements to bytes
    }
    // SAFETY: DLPack promises that `data + byte_offset` with this shape and these strides is readable until the capsule
    // is destroyed; the view owns the capsule, which nobody else has seen.
    let view = unsafe {
        let data = if tensor.data.is_null() {
            tensor.data // an empty tensor: NumPy makes an empty array of its own
        } else {
            tensor.data.byte_add(tensor.byte_offset as usize)
        };
        raw::viewed(
            capsule.clone().into_any(),
            data,
            &mut sizes,
            &mut strides,
            kind,
        )
    };
    Ok((view.map_err(failed)?, bfloat))
}

/// What torch keeps beside the memory, and DLPack does not carry over: the graph, and a sign that is still to be applied.
fn refuse_views(name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = value.py();
    let is =
        |flag: PyResult<Bound<'_, PyAny>>| flag.and_then(|flag| flag.is_truthy()).unwrap_or(false);
    let refused = |what: &str, remedy: &str| {
        Err(PyValueError::new_err(format!(
            "`{name}` is {} that {what}; pass {name}.{remedy}()",
            described(value)
        )))
    };
    if is(value.getattr(intern!(py, "requires_grad"))) {
        return refused("requires grad, must be detached", "detach");
    }
    if is(value.call_method0(intern!(py, "is_neg"))) {
        return refused("is a negated view, must be resolved", "resolve_neg");
    }
    Ok(())
}

/// MLX on a GPU of Apple names Metal as its device, but its memory is the CPU's too: it offers the buffer protocol.
fn offers_buffer(value: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a valid object.
    unsafe { ffi::PyObject_CheckBuffer(value.as_ptr()) != 0 }
}

/// The capsule, versioned where the library knows how.
fn exported<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
    let py = value.py();
    let method = value.getattr(intern!(py, "__dlpack__"))?;
    let options = PyDict::new(py);
    options.set_item(intern!(py, "max_version"), (MAJOR, 0))?;
    let capsule = match method.call((), Some(&options)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => method.call0()?, // older than DLPack 1.0
        other => other?,
    };
    Ok(capsule.cast_into::<PyCapsule>()?)
}

/// The tensor in the capsule. It stays unconsumed: its own destructor frees the memory.
fn tensor_of<'a>(capsule: &'a Bound<'_, PyCapsule>) -> PyResult<&'a Tensor> {
    let refused = |why: &str| Err(PyValueError::new_err(why.to_owned()));
    if capsule.is_valid_checked(Some(VERSIONED)) {
        let managed = capsule
            .pointer_checked(Some(VERSIONED))?
            .cast::<Versioned>();
        // SAFETY: a capsule of this name holds this structure, whose first two fields are the same in every version.
        let managed = unsafe { managed.as_ref() };
        if managed.major != MAJOR {
            return refused("its version of DLPack is unknown");
        }
        return Ok(&managed.tensor);
    }
    if capsule.is_valid_checked(Some(UNVERSIONED)) {
        let tensor = capsule.pointer_checked(Some(UNVERSIONED))?.cast::<Tensor>();
        // SAFETY: a capsule of this name holds a `DLManagedTensor`, which begins with its tensor.
        return Ok(unsafe { tensor.as_ref() });
    }
    refused("its capsule is not one of DLPack, or was used before")
}

/// `count` integers of DLPack.
///
/// # Safety
/// `from` must point to `count` integers where `count` is not 0.
unsafe fn integers(from: *const i64, count: usize) -> Vec<npy_intp> {
    // SAFETY: promised by the caller.
    let read = |i| unsafe { from.add(i).read() } as npy_intp;
    (0..count).map(read).collect()
}

/// The strides of a C-contiguous array, in elements.
fn contiguous(sizes: &[npy_intp]) -> Vec<npy_intp> {
    let mut strides = vec![1; sizes.len()];
    for i in (1..sizes.len()).rev() {
        strides[i - 1] = sizes[i].wrapping_mul(strides[i]);
    }
    strides
}

/// NumPy's number of the type, its size in bytes, and whether it stands for bfloat16.
fn numpy_kind(dtype: DataType) -> Option<(c_int, npy_intp, bool)> {
    if dtype.lanes != 1 {
        return None;
    }
    let kind = match (dtype.code, dtype.bits) {
        (0, 8) => NPY_TYPES::NPY_BYTE as c_int,
        (0, 16) => NPY_TYPES::NPY_SHORT as c_int,
        (0, 32) => NPY_TYPES::NPY_INT as c_int,
        (0, 64) => i64::KIND,
        (1, 8) => NPY_TYPES::NPY_UBYTE as c_int,
        (1, 16) => NPY_TYPES::NPY_USHORT as c_int,
        (1, 32) => u32::KIND,
        (1, 64) => u64::KIND,
        (2 | 4, 16) => u16::KIND,
        (2, 32) => f32::KIND,
        (2, 64) => f64::KIND,
        (6, 8) => u8::KIND,
        _ => return None,
    };
    Some((kind, npy_intp::from(dtype.bits / 8), dtype.code == 4))
}

fn elsewhere(name: &str, value: &Bound<'_, PyAny>, device: i32) -> PyErr {
    let device = match device {
        2 | 13 => "a CUDA device".into(),
        8 => "a Metal device".into(),
        10 => "a ROCm device".into(),
        other => format!("a device of DLPack's kind {other}"),
    };
    PyValueError::new_err(format!(
        "`{name}` is {} on {device}, must be in the CPU's memory; pass {name}.cpu()",
        described(value)
    ))
}

/// The library's own refusal, with the argument's name in front; of a long one the first line.
fn unreadable(name: &str, value: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = value.py();
    let reason = error.value(py).to_string();
    let refusal = PyValueError::new_err(format!(
        "`{name}` is {}, must be readable through DLPack ({}); convert it with numpy.asarray({name})",
        described(value),
        reason.lines().next().unwrap_or_default()
    ));
    refusal.set_cause(py, Some(error));
    refusal
}
