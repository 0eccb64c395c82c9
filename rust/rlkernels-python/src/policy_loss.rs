//! `policy_loss` for Python.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use rlkernels::policy_loss::{self as core, Convention, Metrics, Signal, Step};
use rlkernels::{Error, Float};

use crate::detach::detach_if_large;
use crate::errors::value_error;
use crate::input::{
    Array, Element, Floats, Layout, Output, Shape, arguments, by_float, integers, shown,
};

/// What `policy_loss` returns: `loss`, `gradient`, `metrics`.
#[pyclass(frozen, module = "rlkernels")]
pub(crate) struct PolicyLoss {
    /// To be minimised.
    #[pyo3(get)]
    loss: f64,
    /// d loss / d policy.
    #[pyo3(get)]
    gradient: Py<PyAny>,
    metrics: Logged,
}

/// The numbers for the log: as computed, which costs no call a dictionary, or as they came back from a pickle.
enum Logged {
    Computed(Metrics),
    Restored(Py<PyDict>),
}

#[pymethods]
impl PolicyLoss {
    #[new]
    fn new(loss: f64, gradient: Py<PyAny>, metrics: Py<PyDict>) -> Self {
        Self {
            loss,
            gradient,
            metrics: Logged::Restored(metrics),
        }
    }

    /// Numbers for the log, by name.
    #[getter]
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match &self.metrics {
            Logged::Restored(named) => named.bind(py).copy(),
            Logged::Computed(metrics) => {
                let named = PyDict::new(py);
                for (name, value) in metrics.named() {
                    named.set_item(name, value)?;
                }
                Ok(named)
            }
        }
    }

    /// For `pickle` and `copy`: the class and what makes it again.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyType>, Made<'py>)> {
        let made = (self.loss, self.gradient.bind(py).clone(), self.metrics(py)?);
        Ok((py.get_type::<Self>(), made))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let tokens = match &self.metrics {
            Logged::Computed(metrics) => metrics.tokens.to_string(),
            Logged::Restored(named) => match named.bind(py).get_item("tokens")? {
                Some(tokens) => format!("{:.0}", tokens.extract::<f64>()?),
                None => "unknown".to_owned(),
            },
        };
        Ok(format!("PolicyLoss(loss={:?}, tokens={tokens})", self.loss))
    }
}

/// The arguments of `PolicyLoss`.
type Made<'py> = (f64, Bound<'py, PyAny>, Bound<'py, PyDict>);

arguments! { text algorithm, maybe_number epsilon_low, maybe_number epsilon_high, maybe_number delta, number beta, text kl_estimator, text kl_ratio, maybe_whole max_length, maybe_text dapo_denominator, maybe_whole group_size, maybe_number tokens_in_step, maybe_text cispo_bound, maybe_number sapo_temperature_positive, maybe_number sapo_temperature_negative }

#[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/policy_loss"))]
#[pyfunction]
#[pyo3(signature = (
    policy, *, old=None, reference=None, advantages, mask=None, lengths=None, row_mask=None, algorithm, epsilon_low=None,
    epsilon_high=None, delta=None, beta=0.0, kl_estimator="k3", kl_ratio="none", max_length=None, micro_batches=None,
    dapo_denominator=None, group_size=None, tokens_in_step=None, weights=None, cispo_bound=None,
    sapo_temperature_positive=None, sapo_temperature_negative=None, out=None
))]
#[allow(clippy::too_many_arguments)] // Python's keywords, one each
pub(crate) fn policy_loss<'py>(
    policy: &Bound<'py, PyAny>,
    old: Option<&Bound<'py, PyAny>>,
    reference: Option<&Bound<'py, PyAny>>,
    advantages: &Bound<'py, PyAny>,
    mask: Option<&Bound<'py, PyAny>>,
    lengths: Option<&Bound<'py, PyAny>>,
    row_mask: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = algorithm)] algorithm: &str,
    #[pyo3(from_py_with = epsilon_low)] epsilon_low: Option<f64>,
    #[pyo3(from_py_with = epsilon_high)] epsilon_high: Option<f64>,
    #[pyo3(from_py_with = delta)] delta: Option<f64>,
    #[pyo3(from_py_with = beta)] beta: f64,
    #[pyo3(from_py_with = kl_estimator)] kl_estimator: &str,
    #[pyo3(from_py_with = kl_ratio)] kl_ratio: &str,
    #[pyo3(from_py_with = max_length)] max_length: Option<i64>,
    micro_batches: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = dapo_denominator)] dapo_denominator: Option<&str>,
    #[pyo3(from_py_with = group_size)] group_size: Option<i64>,
    #[pyo3(from_py_with = tokens_in_step)] tokens_in_step: Option<f64>,
    weights: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = cispo_bound)] cispo_bound: Option<&str>,
    #[pyo3(from_py_with = sapo_temperature_positive)] sapo_temperature_positive: Option<f64>,
    #[pyo3(from_py_with = sapo_temperature_negative)] sapo_temperature_negative: Option<f64>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<PolicyLoss> {
    let micro_batches = micro_batches
        .map(|sizes| integers("micro_batches", sizes)?.one_dimensional())
        .transpose()?;
    let convention = Convention {
        algorithm: algorithm.parse().map_err(value_error)?,
        epsilon_low,
        epsilon_high,
        delta,
        beta,
        kl_estimator: kl_estimator
            .parse()
            .map_err(|error| named(error, "kl_estimator"))?,
        kl_ratio: kl_ratio.parse().map_err(value_error)?,
        max_length,
        micro_batches: micro_batches.as_ref().map(Array::as_slice),
        dapo_denominator: parsed(dapo_denominator)?,
        group_size,
        tokens_in_step,
        cispo_bound: parsed(cispo_bound)?,
        sapo_temperature_positive,
        sapo_temperature_negative,
    };
    let arrays = Arrays {
        old,
        reference,
        advantages,
        weights,
    };
    by_float!(Floats::extract("policy", policy)?, |policy| {
        let layout = Layout::extract(&policy, mask, lengths)?.without_rows(row_mask)?;
        computed(&policy, &arrays, &layout, &convention, out)
    })
}

/// The arrays beside `policy`.
struct Arrays<'a, 'py> {
    old: Option<&'a Bound<'py, PyAny>>,
    reference: Option<&'a Bound<'py, PyAny>>,
    advantages: &'a Bound<'py, PyAny>,
    weights: Option<&'a Bound<'py, PyAny>>,
}

fn computed<'py, T: Element + Float>(
    policy: &Array<'py, T>,
    arrays: &Arrays<'_, 'py>,
    layout: &Layout<'py>,
    convention: &Convention<'_>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<PolicyLoss> {
    let py = policy.py();
    let old = policy.maybe_like("old", arrays.old)?;
    let reference = policy.maybe_like("reference", arrays.reference)?;
    let advantages = constants(policy, "advantages", arrays.advantages, layout)?;
    let weights = arrays
        .weights
        .map(|weights| constants(policy, "weights", weights, layout))
        .transpose()?;
    let reads: [&dyn crate::input::Reads; 6] =
        [policy, &old, &reference, &advantages, &weights, layout];
    let mut out = Output::<T>::new_or(py, out, policy.shape(), &reads)?;
    let gradient = out.as_mut_slice();
    let step = Step {
        policy: policy.as_slice(),
        old: old.as_ref().map(Array::as_slice),
        reference: reference.as_ref().map(Array::as_slice),
        advantages: signal(&advantages, policy, layout),
        weights: weights
            .as_ref()
            .map(|weights| signal(weights, policy, layout)),
        rows: layout.rows(),
    };
    let slots = step.policy.len();
    let loss = detach_if_large(py, slots, || core::policy_loss(&step, convention, gradient))
        .map_err(value_error)?;
    Ok(PolicyLoss {
        loss: loss.value,
        gradient: out.finish()?.unbind(),
        metrics: Logged::Computed(loss.metrics),
    })
}

/// Numbers for every row, or for every slot.
fn constants<'py, T: Element>(
    policy: &Array<'py, T>,
    name: &'static str,
    value: &Bound<'py, PyAny>,
    layout: &Layout<'py>,
) -> PyResult<Array<'py, T>> {
    let array = policy.of_type(name, value)?;
    let rows = Shape::line(layout.rows().count());
    let column = [rows[0], 1];
    if [&rows[..], &policy.shape()[..], &column].contains(&&array.shape()[..]) {
        return Ok(array);
    }
    Err(pyo3::exceptions::PyValueError::new_err(format!(
        "`{name}` has shape {}, must be {}, one for every row, or {} like `policy`",
        shown(array.shape()),
        shown(&rows),
        shown(policy.shape())
    )))
}

/// Which of both it is; rows where it could be either, a column of them included.
fn signal<'a, T: Element>(
    array: &'a Array<'_, T>,
    policy: &Array<'_, T>,
    layout: &Layout<'_>,
) -> Signal<'a, T> {
    let of_rows = **array.shape() == *Shape::line(layout.rows().count());
    if **array.shape() == **policy.shape() && !of_rows {
        Signal::Slots(array.as_slice())
    } else {
        Signal::Rows(array.as_slice())
    }
}

fn parsed<T: std::str::FromStr<Err = Error>>(name: Option<&str>) -> PyResult<Option<T>> {
    name.map(|name| name.parse().map_err(value_error))
        .transpose()
}

/// The estimator's error under the name that the argument has here.
fn named(error: Error, argument: &'static str) -> PyErr {
    value_error(match error {
        Error::UnknownChoice { found, legal, .. } => Error::UnknownChoice {
            argument,
            found,
            legal,
        },
        other => other,
    })
}
