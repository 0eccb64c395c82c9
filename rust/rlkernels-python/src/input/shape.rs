//! Shapes of arrays.

use std::ops::Deref;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Most dimensions of an array; shapes stand on the stack. Log-probabilities and logits have 1 to 3.
pub(super) const MOST_DIMENSIONS: usize = 8;

/// A shape on the stack.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    dimensions: usize,
    sizes: [usize; MOST_DIMENSIONS],
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.sizes[..self.dimensions]
    }
}

impl Shape {
    /// No dimension, one element.
    pub(crate) const SCALAR: Self = Self {
        dimensions: 0,
        sizes: [0; MOST_DIMENSIONS],
    };

    /// One dimension.
    pub(crate) fn line(size: usize) -> Self {
        let mut shape = Self::SCALAR;
        shape.dimensions = 1;
        shape.sizes[0] = size;
        shape
    }

    /// The shape without its last dimension, and the size of that; none for a scalar.
    pub(crate) fn split_last(&self) -> Option<(Self, usize)> {
        let last = *self.last()?;
        let mut shape = *self;
        shape.dimensions -= 1;
        Some((shape, last))
    }

    /// The shape of NumPy's sizes.
    pub(super) fn of(name: &str, sizes: &[usize]) -> PyResult<Self> {
        if sizes.len() > MOST_DIMENSIONS {
            return Err(PyValueError::new_err(format!(
                "`{name}` has {} dimensions, must have at most {MOST_DIMENSIONS}; reshape it",
                sizes.len()
            )));
        }
        let mut shape = Self {
            dimensions: sizes.len(),
            sizes: [0; MOST_DIMENSIONS],
        };
        shape.sizes[..sizes.len()].copy_from_slice(sizes);
        Ok(shape)
    }
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

pub(super) fn too_large(name: &str, shape: &[usize]) -> PyErr {
    PyValueError::new_err(format!(
        "`{name}` has shape {}, must have a number of elements that fits into 64 bits",
        shown(shape)
    ))
}
