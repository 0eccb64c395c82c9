"""The oracle: public functions by family, formulas in `definitions`, and how far an honest answer may differ in `errors`."""
