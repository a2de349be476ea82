"""Language models with adapters: the adapter's effect, answers, and the network that judges states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from small_models import TEXTS, batch_of, save_adapter, save_judge, save_language_model, tokens_of

from tamis.errors import ModelError
from tamis.models.adapters import merge_adapter
from tamis.models.guard import load_answerer, load_state_judge
from tamis.models.model import Model


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("models") / "base"
    return folder, save_language_model(folder)


def with_factors(network: Any, factors: dict[str, Any], scale: float) -> list[Any]:
    """Let an adapter work beside the weights of a network, as peft does without merging."""

    def beside(down: torch.Tensor, up: torch.Tensor) -> Any:
        return lambda module, given, made: made + scale * (given[0] @ down.T @ up.T)

    return [network.get_submodule(path).register_forward_hook(beside(down, up)) for path, (down, up) in factors.items()]


@pytest.mark.parametrize(
    ("settings", "scale"),
    [({}, 2 / 4), ({"use_rslora": True}, 2 / 4**0.5), ({"alpha_pattern": {"q_proj": 6, "v_proj": 6}}, 6 / 4)],
)
def test_a_merged_adapter_computes_what_it_does_beside_the_weights(
    base: tuple[Path, Any], tmp_path: Path, settings: dict[str, Any], scale: float
) -> None:
    folder, network = base
    factors = save_adapter(tmp_path / "adapter", **settings)
    merged = Model(str(folder)).load("AutoModelForCausalLM")
    ids = torch.tensor([[1, 20, 30, 40]])
    with torch.no_grad():
        before = network(ids).logits
        merge_adapter(merged, Model(str(tmp_path / "adapter")))
        hooks = with_factors(network, factors, scale)
        expected = network(ids).logits
        for hook in hooks:
            hook.remove()
        torch.testing.assert_close(merged(ids).logits, expected, atol=1e-4, rtol=1e-4)
    assert (expected - before).abs().max() > 0.01


def test_whole_tensors_of_an_adapter_take_the_place_of_the_models(base: tuple[Path, Any], tmp_path: Path) -> None:
    save_adapter(tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    from safetensors.torch import load_file

    head = torch.full((320, 32), 0.5)
    merged = Model(str(base[0])).load("AutoModelForCausalLM")
    head = torch.full_like(merged.lm_head.weight, 0.5)
    save_file({**load_file(path), "base_model.model.lm_head.weight": head}, str(path))
    merge_adapter(merged, Model(str(tmp_path / "adapter")))
    assert torch.equal(merged.lm_head.weight, head)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"peft_type": "IA3"}, r"not known here \(IA3\)"),
        ({"use_dora": True}, r"not known here \(use_dora\)"),
        ({"bias": "all"}, r"bias='all'"),
    ],
)
def test_adapters_of_other_kinds_are_refused(
    base: tuple[Path, Any], tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    save_adapter(tmp_path / "adapter", **settings)
    with pytest.raises(ModelError, match=message):
        merge_adapter(base[1], Model(str(tmp_path / "adapter")))


def test_an_adapter_of_another_model_is_refused(base: tuple[Path, Any], tmp_path: Path) -> None:
    save_adapter(tmp_path / "adapter", modules=("qkv",))
    with pytest.raises(ModelError, match=r"changes model\.layers\.0\.self_attn\.qkv, which the model does not have"):
        merge_adapter(base[1], Model(str(tmp_path / "adapter")))
    (tmp_path / "adapter" / "adapter_config.json").unlink()
    with pytest.raises(ModelError, match="is not an adapter"):
        merge_adapter(base[1], Model(str(tmp_path / "adapter")))


def test_answers_are_those_of_generate_for_each_prompt_by_itself(base: tuple[Path, Any], tmp_path: Path) -> None:
    folder, network = base
    factors = save_adapter(tmp_path / "adapter")
    answerer = load_answerer(Model(str(folder)), Model(str(tmp_path / "adapter")), "cpu")
    answerer.max_new_tokens = 12
    start = tokens_of(folder)[4][:40]  # the prompts have a beginning in common
    hooks = with_factors(network, factors, 2 / 4)
    for rows in (
        [start + row for row in tokens_of(folder)],
        tokens_of(folder)[:1],
        [row[1:] for row in tokens_of(folder)[:3]],
    ):
        rows = [row or [5] for row in rows]
        expected = []
        for row in rows:
            with torch.no_grad():
                made = network.generate(
                    torch.tensor([row]), max_new_tokens=12, do_sample=False, pad_token_id=0, num_beams=1
                )
            expected.append(answerer.tokenizer.decode(made[0][len(row) :], skip_special_tokens=True))
        assert answerer(batch_of(rows)) == expected
    for hook in hooks:
        hook.remove()


def test_the_judge_sees_the_state_after_the_last_token(base: tuple[Path, Any], tmp_path: Path) -> None:
    folder, network = base
    factors = save_adapter(tmp_path / "adapter")
    layers = save_judge(tmp_path / "judge")
    paths = [Model(str(path)) for path in (folder, tmp_path / "adapter", tmp_path / "judge")]
    rows = tokens_of(folder)
    made = load_state_judge(*paths, "cpu")(batch_of(rows))
    hooks = with_factors(network, factors, 2 / 4)
    expected = []
    for row in rows:
        with torch.no_grad():
            response = network.generate(
                torch.tensor([row]),
                max_new_tokens=1,
                pad_token_id=0,
                do_sample=False,
                output_hidden_states=True,
                return_dict_in_generate=True,
            )
            state = torch.nn.functional.normalize(response.hidden_states[0][-1][:, -1, :], dim=-1)
            for layer in layers[:-1]:
                state = torch.relu(layer(state))
            expected.append(float(torch.sigmoid(layers[-1](state))))
    for hook in hooks:
        hook.remove()
    np.testing.assert_allclose(made[:, 0].numpy(), expected, atol=1e-4)
    assert made.shape == (len(TEXTS), 1)


def test_a_judge_for_another_model_is_refused(base: tuple[Path, Any], tmp_path: Path) -> None:
    save_adapter(tmp_path / "adapter")
    (tmp_path / "judge").mkdir()
    sizes = {"input_layer": (8, 8), "hidden_layer_0": (8, 4), "hidden_layer_1": (4, 2), "hidden_layer_2": (2, 1)}
    tensors = {}
    for name, (given, made) in sizes.items():
        tensors |= {f"{name}.weight": torch.zeros(made, given), f"{name}.bias": torch.zeros(made)}
    save_file(tensors, str(tmp_path / "judge" / "model.safetensors"))
    (tmp_path / "judge" / "config.json").write_text(json.dumps({"input_dim": 8}))
    with pytest.raises(ModelError, match=r"judges states of 8 numbers, those of .* have 32"):
        load_state_judge(*[Model(str(path)) for path in (base[0], tmp_path / "adapter", tmp_path / "judge")], "cpu")
