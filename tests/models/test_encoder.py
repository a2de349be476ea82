"""Encoders compute what transformers computes, with padding and without, on linear layers that are packed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file  # noqa: E402
from small_encoders import CHANGED_BY_PADDING, KINDS, save_model  # noqa: E402

from tamis.errors import ModelError  # noqa: E402
from tamis.models.encoder import Encoder  # noqa: E402
from tamis.models.lengths import most_tokens  # noqa: E402
from tamis.models.model import Model  # noqa: E402
from tamis.models.token_batches import TokenBatch, TokenRows  # noqa: E402

LENGTHS = np.array([5, 5, 40, 17, 17, 17, 1, 60])
ROWS = TokenRows(
    np.random.default_rng(1).integers(5, 100, LENGTHS.sum()).astype(np.int32),
    np.concatenate([[0], np.cumsum(LENGTHS)]),
)


def one_by_one(folder: Path, given: TokenRows = ROWS) -> Any:
    """The hidden states as transformers computes them, one row at a time."""
    from transformers import AutoModel

    network = AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        rows = [torch.from_numpy(given.take(np.array([n])).ids).long()[None] for n in range(len(given))]
        return torch.cat([network(input_ids=row).last_hidden_state[0] for row in rows])


@pytest.mark.parametrize("kind", KINDS)
def test_hidden_states_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    encoder = Encoder(Model(str(save_model(tmp_path, kind))), "cpu")
    assert encoder.is_padded == (kind in ("mpnet", "deberta"))
    assert torch.allclose(encoder(TokenBatch.of(ROWS, "cpu")), one_by_one(tmp_path), atol=1e-4)


@pytest.mark.parametrize("kind", CHANGED_BY_PADDING)
def test_rows_that_padding_would_change_are_computed_by_length(tmp_path: Path, kind: str) -> None:
    encoder = Encoder(Model(str(save_model(tmp_path, kind))), "cpu")
    assert encoder.has_equal_lengths
    assert torch.allclose(encoder(TokenBatch.of(ROWS, "cpu")), one_by_one(tmp_path), atol=1e-4)


def test_the_padding_token_may_be_written_out_in_a_text(tmp_path: Path) -> None:
    """RoBERTa does not count it as a position."""
    folder = save_model(tmp_path, "roberta")
    encoder = Encoder(Model(str(folder)), "cpu")
    ids = ROWS.ids.copy()
    ids[[5, 11, 12, 30, -1]] = encoder.pad
    rows = TokenRows(ids, ROWS.offsets)
    assert not encoder.is_padded
    assert torch.allclose(encoder(TokenBatch.of(rows, "cpu")), one_by_one(folder, rows), atol=1e-4)


def test_a_sliding_window_is_kept_without_padding(tmp_path: Path) -> None:
    more = {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 0}
    encoder = Encoder(Model(str(save_model(tmp_path, "qwen3", **more))), "cpu")
    assert not encoder.is_padded
    assert torch.allclose(encoder(TokenBatch.of(ROWS, "cpu")), one_by_one(tmp_path), atol=1e-4)


def test_threads_share_the_weights_on_a_cpu(tmp_path: Path) -> None:
    model = Model(str(save_model(tmp_path)))
    assert Encoder(model, "cpu").network is not Encoder(model, "cpu", "bfloat16").network
    first = Encoder(model, "cpu")
    assert Encoder(model, "cpu").network is first.network


def test_positions_end_where_the_model_has_none(tmp_path: Path) -> None:
    assert Encoder(Model(str(save_model(tmp_path / "a", "bert"))), "cpu").most_tokens == 80
    assert Encoder(Model(str(save_model(tmp_path / "b", "roberta"))), "cpu").most_tokens == 78
    assert Encoder(Model(str(save_model(tmp_path / "c", "qwen3"))), "cpu").most_tokens is None


def test_a_dtype_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dtype='int8'"):
        Encoder(Model(str(save_model(tmp_path))), "cpu", "int8")


def test_damaged_weights_are_an_error_that_names_the_model(tmp_path: Path) -> None:
    folder = save_model(tmp_path)
    (folder / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match=f"the model {folder} cannot be loaded"):
        Encoder(Model(str(folder)), "cpu")


def test_gpt_2_names_its_positions_in_another_way(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_positions": 77}')
    assert most_tokens(str(tmp_path)) == 77
    (tmp_path / "config.json").write_text('{"model_type": "t5", "n_positions": 77}')  # which has no meaning there
    assert most_tokens(str(tmp_path)) is None


@pytest.mark.parametrize(("gone", "is_refused"), [("layer.1.", True), ("pooler", False)])
def test_weights_that_are_missing_are_not_made_up(tmp_path: Path, gone: str, is_refused: bool) -> None:
    """Nothing is computed by a pooler, and many files have none."""
    folder = save_model(tmp_path)
    weights = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if gone not in name}
    assert len(kept) < len(weights)
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    if is_refused:
        with pytest.raises(ModelError, match="its files lack 16 weights"):
            Encoder(Model(str(folder)), "cpu")
    else:
        assert Encoder(Model(str(folder)), "cpu").most_tokens == 80
