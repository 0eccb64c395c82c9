//! NumPy's broadcasting, for functions of several arrays that are read element by element.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::input::shown;

/// Elements of a result: what the rest of the boundary copies at most.
const MOST: usize = 1 << 31;

/// The shape to which all of these shapes broadcast; `ValueError` names the first that does not fit.
pub(crate) fn common_shape(arguments: &[(&str, &[usize])]) -> PyResult<Vec<usize>> {
    let mut common: Vec<usize> = Vec::new();
    for &(name, shape) in arguments {
        let refuse = |wanted: &str| {
            let found = shown(shape);
            PyValueError::new_err(format!("`{name}` has shape {found}, must {wanted}"))
        };
        let missing = shape.len().saturating_sub(common.len());
        common.splice(..0, std::iter::repeat_n(1, missing));
        let before = common.clone();
        let start = common.len() - shape.len();
        for (size, &other) in common[start..].iter_mut().zip(shape) {
            if *size == 1 {
                *size = other;
            } else if other != 1 && other != *size {
                return Err(refuse(&format!(
                    "broadcast with {} of the other arguments",
                    shown(&before)
                )));
            }
        }
        let elements = common
            .iter()
            .try_fold(1, |n: usize, &size| n.checked_mul(size));
        if elements.is_none_or(|elements| elements > MOST) {
            return Err(refuse(
                "give at most 2**31 elements with the other arguments",
            ));
        }
    }
    Ok(common)
}

/// For every element of the result, in C order, the index of its element in an array of this shape.
pub(crate) fn indices<'a>(shape: &'a [usize], common: &'a [usize]) -> impl Iterator<Item = usize> {
    let same = shape == common;
    (0..common.iter().product()).map(move |index| {
        if same {
            return index;
        }
        let (mut rest, mut stride, mut source) = (index, 1, 0);
        for (axis, &size) in common.iter().enumerate().rev() {
            let place = rest % size;
            rest /= size;
            let own = (axis + shape.len())
                .checked_sub(common.len())
                .map_or(1, |own| shape[own]);
            if own != 1 {
                source += place * stride;
                stride *= own;
            }
        }
        source
    })
}
