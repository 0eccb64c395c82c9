"""A model whose files are torn is refused: it is no mistake of the code that loads it."""

import shutil
from pathlib import Path

import pytest
from command_line import here
from tokenizers import Tokenizer, processors

from gates.cli.setup import model
from gates.model import ConfigurationError
from gates_reference import tiny


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a whole model."""
    return Path(shutil.copytree(tiny.build({"seed": 11, "bits": 32, "vocab": 272}), tmp_path / "model"))


def test_a_whole_model_is_taken(folder: Path) -> None:
    assert model(str(folder)) == str(folder.resolve())


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_torn_file_is_refused(folder: Path, name: str) -> None:
    """The message names the option, the folder and the file."""
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigurationError, match=rf"^--model .*: {name} is torn or no .*; fetch the model again$"):
        model(str(folder))


@pytest.mark.slow
def test_a_tokenizer_that_puts_a_bos_token_first_is_no_mistake(folder: Path) -> None:
    """The decoded text then begins with the token, as with transformers."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    first = processors.TemplateProcessing(single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), first])
    tokenizer.save(str(folder / "tokenizer.json"))
    checked = here("check", "tokenizer.round-trip", "--subject", "reference", "--model", str(folder), cwd=folder.parent)
    assert checked.returncode == 0, checked.stdout
