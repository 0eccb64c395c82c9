//! Where a result goes: a new array, or the one that the caller gave.

use std::ptr::NonNull;

use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::element::Element;
use super::message::described;
use super::raw::{self, Untyped};
use super::shape::shown;
use super::span::{Reads, Span};

/// The array that a kernel writes; of a new one every element must be written before [`Output::finish`].
pub(crate) struct Output<'py, T> {
    array: Untyped<'py>,
    data: NonNull<T>,
    len: usize,
    scalar: bool,
}

impl<'py, T: Element> Output<'py, T> {
    /// The caller's `out`, checked, or a new array of this shape; a new one of shape `()` becomes a NumPy scalar.
    ///
    /// `reads` names everything that the kernel reads: `out` must not overlap it.
    pub(crate) fn new_or(
        py: Python<'py>,
        out: Option<&Bound<'py, PyAny>>,
        shape: &[usize],
        reads: &[&dyn Reads],
    ) -> PyResult<Self> {
        match out {
            None => Self::new(py, shape),
            Some(out) => Self::given(out, shape, reads),
        }
    }

    /// A new array of this shape.
    pub(crate) fn new(py: Python<'py>, shape: &[usize]) -> PyResult<Self> {
        let (array, data) = raw::uninitialised(py, shape, T::KIND)?;
        Ok(Self {
            array,
            data: data.cast(),
            len: shape.iter().product(),
            scalar: shape.is_empty(),
        })
    }

    #[cold]
    fn given(out: &Bound<'py, PyAny>, shape: &[usize], reads: &[&dyn Reads]) -> PyResult<Self> {
        let refuse = |found: String, wanted: &str| {
            PyValueError::new_err(format!("`out` {found}, must {wanted}"))
        };
        let Ok(array) = out.cast_exact::<PyUntypedArray>() else {
            return Err(wrong_type::<T>(out, shape));
        };
        let facts = raw::facts("out", array)?;
        if facts.kind != T::KIND {
            return Err(wrong_type::<T>(out, shape));
        }
        if *facts.shape != *shape {
            return Err(refuse(
                format!("has shape {}", shown(&facts.shape)),
                &format!("be {} like the result", shown(shape)),
            ));
        }
        if !facts.writeable {
            return Err(refuse("is read-only".into(), "be writeable"));
        }
        if !facts.in_place {
            let found = if array.is_c_contiguous() {
                "is misaligned or of foreign byte order"
            } else {
                "is not C-contiguous"
            };
            return Err(refuse(
                found.into(),
                "be C-contiguous, aligned and of native byte order",
            ));
        }
        let data = NonNull::new(facts.data.cast())
            .filter(|_| facts.len > 0)
            .unwrap_or(NonNull::dangling());
        let span = Span::of(data, facts.len);
        if reads.iter().any(|input| input.span().overlaps(span)) {
            return Err(refuse(
                "shares memory with an input".into(),
                "have memory of its own",
            ));
        }
        Ok(Self {
            array: array.clone(),
            data,
            len: facts.len,
            scalar: false,
        })
    }

    /// The elements to be written, in C order.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: `data` points to `len` aligned elements, kept alive by `array`. Those of a new array belong to this
        // value alone; they come uninitialised from an allocator across the language border, any bytes are a `T`, and
        // kernels write all of them before anybody reads (an error drops the array). Those of a given array overlap no
        // input; other writers are kept away by the caller, as with NumPy's `out`.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }

    /// The array; a NumPy scalar in place of a new one without dimensions.
    pub(crate) fn finish(self) -> PyResult<Bound<'py, PyAny>> {
        if self.scalar {
            return self.array.get_item(());
        }
        Ok(self.array.into_any())
    }

    /// The array, also of one without dimensions.
    pub(super) fn into_array(self) -> Untyped<'py> {
        self.array
    }
}

/// Whether this is a NumPy array of `T`, so that [`Output::new_or`] would not refuse its type.
pub(crate) fn is_array_of<T: Element>(out: &Bound<'_, PyAny>) -> bool {
    out.cast_exact::<PyUntypedArray>()
        .is_ok_and(|array| raw::facts("out", array).is_ok_and(|facts| facts.kind == T::KIND))
}

fn wrong_type<T: Element>(out: &Bound<'_, PyAny>, shape: &[usize]) -> PyErr {
    PyTypeError::new_err(format!(
        "`out` is {}, must be a NumPy array of {} like the result; make it with numpy.empty({}, numpy.{})",
        described(out),
        T::NAME,
        shown(shape),
        T::NAME
    ))
}
