//! What an argument is before its element type is settled.

use std::ffi::c_int;

use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyRange, PyTuple, PyType};

use super::dlpack;
use super::element::{Element, is_integer};
use super::message::{Elements, Wanted, described, has, wrong};
use super::raw::{self, Facts, Untyped};
use super::shape::MOST_DIMENSIONS;

/// A NumPy array, the argument itself or a view of another library's memory.
pub(super) struct Source<'py> {
    pub(super) array: Untyped<'py>,
    pub(super) facts: Facts,
    /// The elements are the bits of bfloat16, whatever NumPy calls them.
    pub(super) bfloat: bool,
    /// A list, or integers where floats are wanted: the elements take the type of the other arguments.
    pub(super) untyped: bool,
}

/// A type of two bytes for floats.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    Float16,
    Bfloat16,
}

impl Half {
    /// NumPy's name, or that of the package `ml_dtypes`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
        }
    }
}

impl<'py> Source<'py> {
    /// The half type of the elements.
    #[inline]
    pub(super) fn half(&self) -> Option<Half> {
        match self.facts.kind {
            _ if self.bfloat => Some(Half::Bfloat16),
            u16::KIND => Some(Half::Float16),
            raw::FIRST_USER_KIND.. if self.is_ml_bfloat16() => Some(Half::Bfloat16),
            _ => None,
        }
    }

    /// Whether the type is that of the package `ml_dtypes`, which has no fixed number in NumPy but a name.
    #[cold]
    fn is_ml_bfloat16(&self) -> bool {
        self.array
            .dtype()
            .getattr("name")
            .is_ok_and(|name| name.eq("bfloat16").unwrap_or(false))
    }

    #[inline]
    pub(super) fn of(name: &str, value: &Bound<'py, PyAny>, wanted: &Wanted) -> PyResult<Self> {
        let Ok(array) = value.cast_exact::<PyUntypedArray>() else {
            return Self::unusual(name, value, wanted);
        };
        let facts = raw::facts(name, array)?;
        Ok(Self {
            array: array.clone(),
            untyped: wanted.takes_integers && is_whole(facts.kind),
            facts,
            bfloat: false,
        })
    }

    #[cold]
    fn unusual(name: &str, value: &Bound<'py, PyAny>, wanted: &Wanted) -> PyResult<Self> {
        let is_list = is_list(value);
        let (array, bfloat) = if is_list {
            (listed(name, value, wanted)?, false)
        } else if raw::is_masked(value) {
            return Err(wrong(name, value, wanted));
        } else if let Ok(array) = value.cast::<PyUntypedArray>() {
            (array.clone(), false)
        } else if is_convertible(value)? {
            (converted(name, value, wanted)?, false)
        } else {
            dlpack::viewed(name, value, wanted)?
        };
        let facts = raw::facts(name, &array)?;
        let is_whole = wanted.takes_integers && !bfloat && is_whole(facts.kind);
        Ok(Self {
            array,
            untyped: is_list || is_whole,
            facts,
            bfloat,
        })
    }
}

/// Integers and booleans.
fn is_whole(kind: c_int) -> bool {
    is_integer(kind) || kind == u8::KIND
}

fn is_list(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyList>()
        || value.is_instance_of::<PyTuple>()
        || value.is_instance_of::<PyRange>()
}

/// Whether `numpy.asarray` reads it by `__array__` alone, as a pandas Series. NumPy's own scalars are no arrays.
fn is_convertible(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if has(value, "__dlpack__") || !has(value, "__array__") || value.is_instance_of::<PyType>() {
        return Ok(false);
    }
    let scalar = value.py().import("numpy")?.getattr("generic")?;
    Ok(!value.is_instance(&scalar)?)
}

/// What `__array__` gives, if it is an array of numbers.
fn converted<'py>(
    name: &str,
    value: &Bound<'py, PyAny>,
    wanted: &Wanted,
) -> PyResult<Untyped<'py>> {
    let made = value
        .py()
        .import("numpy")?
        .call_method1("asarray", (value,));
    match made {
        Ok(array) if !raw::is_masked(&array) => {
            (array.cast_into()).map_err(|_| wrong(name, value, wanted))
        }
        Ok(_) => Err(wrong(name, value, wanted)),
        Err(error) => Err(not_made(name, value, wanted, &error)),
    }
}

/// `numpy.asarray` refused the argument.
fn not_made(name: &str, value: &Bound<'_, PyAny>, wanted: &Wanted, error: &PyErr) -> PyErr {
    PyValueError::new_err(format!(
        "`{name}` is {}, must be one that numpy.asarray makes an array of {}: {}",
        described(value),
        wanted.types,
        error.value(value.py())
    ))
}

/// The array of a list of numbers, or of lists of them.
fn listed<'py>(name: &str, value: &Bound<'py, PyAny>, wanted: &Wanted) -> PyResult<Untyped<'py>> {
    let numpy = value.py().import("numpy")?;
    if !value.is_instance_of::<PyRange>() {
        let scalars = (numpy.getattr("number")?, numpy.getattr("bool_")?);
        check_elements(name, value, wanted, &scalars, 0)?;
    } else if !value.len().is_ok_and(|len| len < raw::COPY_LIMIT) {
        return Err(wrong(name, value, wanted));
    }
    let dtype = match wanted.elements {
        Elements::Truths => None,
        Elements::Integers => Some("int64"),
        Elements::Floats => Some("float64"),
    };
    let made = numpy.call_method1("asarray", (value, dtype));
    let array = made.map_err(|error| not_made(name, value, wanted, &error))?;
    Ok(array.cast_into()?)
}

/// Refuses what is no number: a foreign sequence may claim any length, and an array may have a mask.
fn check_elements(
    name: &str,
    list: &Bound<'_, PyAny>,
    wanted: &Wanted,
    scalars: &(Bound<'_, PyAny>, Bound<'_, PyAny>),
    depth: usize,
) -> PyResult<()> {
    for element in list.try_iter()? {
        let element = element?;
        if is_list(&element) && depth < MOST_DIMENSIONS {
            check_elements(name, &element, wanted, scalars, depth + 1)?;
            continue;
        }
        let is_bool = element.is_instance_of::<PyBool>() || element.is_instance(&scalars.1)?;
        let is_number = !is_bool
            && (element.is_instance_of::<PyFloat>()
                || element.is_instance_of::<PyInt>()
                || element.is_instance(&scalars.0)?);
        let fits = match wanted.elements {
            Elements::Truths => is_number || is_bool,
            Elements::Floats => is_number || (is_bool && wanted.takes_integers),
            Elements::Integers => is_number && element.hasattr("__index__")?,
        };
        if !fits {
            return Err(PyTypeError::new_err(format!(
                "`{name}` holds an element {}, must hold {}, as numbers in a list or in an array",
                described(&element),
                wanted.types
            )));
        }
    }
    Ok(())
}
