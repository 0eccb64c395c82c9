//! What an argument is before its element type is settled.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyTuple};

use super::dlpack;
use super::element::is_integer;
use super::message::{Elements, Wanted, described, wrong};
use super::raw::{self, Facts};
use super::shape::MOST_DIMENSIONS;

/// A NumPy array, the argument itself or a view of another library's memory.
pub(super) struct Source<'py> {
    pub(super) array: Bound<'py, PyAny>,
    pub(super) facts: Facts,
    /// The elements are the bits of bfloat16, whatever NumPy calls them.
    pub(super) bfloat: bool,
    /// A list, or integers where floats are wanted: the elements take the type of the other arguments.
    pub(super) untyped: bool,
}

impl<'py> Source<'py> {
    #[inline]
    pub(super) fn of(name: &str, value: &Bound<'py, PyAny>, wanted: &Wanted) -> PyResult<Self> {
        if !raw::is_plain(value) {
            return Self::unusual(name, value, wanted);
        }
        // SAFETY: a plain array.
        let facts = unsafe { raw::facts(name, value) }?;
        Ok(Self {
            array: value.clone(),
            untyped: wanted.takes_integers && is_integer(facts.kind),
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
        } else if raw::is_array(value) {
            (value.clone(), false)
        } else {
            dlpack::viewed(name, value, wanted)?
        };
        // SAFETY: an array of a subclass, or a view or an array that was made as one.
        let facts = unsafe { raw::facts(name, &array) }?;
        let is_integer = wanted.takes_integers && !bfloat && is_integer(facts.kind);
        Ok(Self {
            array,
            untyped: is_list || is_integer,
            facts,
            bfloat,
        })
    }
}

fn is_list(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>()
}

/// The array of a list of numbers, or of lists of them.
fn listed<'py>(
    name: &str,
    value: &Bound<'py, PyAny>,
    wanted: &Wanted,
) -> PyResult<Bound<'py, PyAny>> {
    let numpy = value.py().import("numpy")?;
    check_elements(name, value, wanted, &numpy.getattr("number")?, 0)?;
    let dtype = match wanted.elements {
        Elements::Truths => None,
        Elements::Integers => Some("int64"),
        Elements::Floats => Some("float64"),
    };
    let made = numpy.call_method1("asarray", (value, dtype));
    made.map_err(|error| {
        PyValueError::new_err(format!(
            "`{name}` is {}, must be one that numpy.asarray makes an array of {}: {}",
            described(value),
            wanted.types,
            error.value(value.py())
        ))
    })
}

/// Refuses what is no number: a foreign sequence may claim any length, and an array may have a mask.
fn check_elements(
    name: &str,
    list: &Bound<'_, PyAny>,
    wanted: &Wanted,
    numpy_number: &Bound<'_, PyAny>,
    depth: usize,
) -> PyResult<()> {
    for element in list.try_iter()? {
        let element = element?;
        if is_list(&element) && depth < MOST_DIMENSIONS {
            check_elements(name, &element, wanted, numpy_number, depth + 1)?;
            continue;
        }
        let is_number = element.is_instance_of::<PyFloat>()
            || element.is_instance_of::<PyInt>()
            || element.is_instance(numpy_number)?;
        let is_bool = element.is_instance_of::<PyBool>();
        let fits = match wanted.elements {
            Elements::Truths => is_number,
            Elements::Floats => is_number && !is_bool,
            Elements::Integers => is_number && !is_bool && element.hasattr("__index__")?,
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
