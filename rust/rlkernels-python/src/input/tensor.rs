//! The C structures of DLPack, version 1 (<https://dmlc.github.io/dlpack/latest/>).

use std::ffi::{CStr, c_void};

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Device {
    pub(super) kind: i32,
    number: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct DataType {
    pub(super) code: u8,
    pub(super) bits: u8,
    pub(super) lanes: u16,
}

#[repr(C)]
pub(super) struct Tensor {
    pub(super) data: *mut c_void,
    pub(super) device: Device,
    pub(super) dimensions: i32,
    pub(super) dtype: DataType,
    pub(super) shape: *const i64,
    pub(super) strides: *const i64, // in elements; null where C-contiguous
    pub(super) byte_offset: u64,
}

/// `DLManagedTensorVersioned`; the unversioned `DLManagedTensor` begins with its tensor.
#[repr(C)]
pub(super) struct Versioned {
    pub(super) major: u32,
    minor: u32,
    manager: *mut c_void,
    pub(super) deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    pub(super) tensor: Tensor,
}

pub(super) const UNVERSIONED: &CStr = c"dltensor";
pub(super) const VERSIONED: &CStr = c"dltensor_versioned";

/// The version of the structures above.
pub(super) const MAJOR: u32 = 1;
