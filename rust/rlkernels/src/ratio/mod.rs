//! importance ratios
