"""Keys of tokens, which the recorder shares with scripts' processes."""

import importlib.util
from pathlib import Path

RECORDER = Path(__file__).parents[3] / "gates" / "xray" / "recorder" / "gates_xray.py"
spec = importlib.util.spec_from_file_location("gates_xray_recorder", RECORDER)
assert spec is not None
assert spec.loader is not None
recorder = importlib.util.module_from_spec(spec)
spec.loader.exec_module(recorder)


def test_a_pass_without_attention_mask_is_found_by_its_padding() -> None:
    """A row that is padded in front has other keys there; one that is not has none."""
    padded = {"ids": [0, 0, 5, 6, 7], "attended": [0, 0, 1, 1, 1], "columns": [-1, -1, -1, 0, 1]}
    whole = {"ids": [5, 6, 8, 9, 0], "attended": [1, 1, 1, 1, 0], "columns": [-1, 0, 2, 3, -1]}
    unmasked = recorder.keys(padded["ids"], [1] * 5)
    assert recorder.padded_keys([padded, whole], 4) == [unmasked[3], unmasked[4], "", ""]
    assert unmasked[3] != recorder.keys(padded["ids"], padded["attended"])[3]
