"""Models of two layers, saved in the layouts in which the real ones are published."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from tamis.models.token_batches import TokenBatch, TokenRows

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "A package manager installs, upgrades and removes programs.",
    "x",
    "",
    "Integrals and derivatives: the derivative of x squared is two x. " * 8,
    "naïve café 日本語 текст",
]
"""Texts of very different lengths; one is empty."""

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}


def tokens_of(folder: Path) -> list[list[int]]:
    """The tokens of the texts, as the tokenizer of a folder makes them."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return [tokenizer(text, truncation=True, max_length=64)["input_ids"] for text in TEXTS]


def batch_of(rows: list[list[int]], device: str = "cpu") -> TokenBatch:
    """Rows of tokens as models are given them."""
    ids = np.array([token for row in rows for token in row], np.int32)
    return TokenBatch.of(TokenRows(ids, np.cumsum([0, *map(len, rows)])), device)


def save_tokenizer(folder: Path, max_length: int = 64) -> int:
    """A WordPiece tokenizer that puts [CLS] and [SEP] around a text; returns the size of its vocabulary."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = sorted({word for text in TEXTS for word in re.findall(r"\w+|[^\w\s]", text.lower())})
    letters = sorted({letter for word in words for letter in word})
    pieces = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters), *words[::2]])
    vocabulary = {
        piece: number for number, piece in enumerate(pieces)
    }  # not trained: that gives other numbers each time
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.save(str(folder / "tokenizer.json"))
    _save_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": max_length,
            "pad_token": "[PAD]",
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "unk_token": "[UNK]",
        },
    )
    return made.get_vocab_size()


def save_bytes_tokenizer(folder: Path) -> int:
    """Byte-level BPE with <s> before a text and </s> as the end, as language models have it."""
    letters = ["<unk>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    made = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    made.add_special_tokens(letters[:3])
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 1)])
    made.save(str(folder / "tokenizer.json"))
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    _save_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **named})
    return made.get_vocab_size()


def deberta(vocab_size: int) -> Any:
    """A DeBERTa-v3 with weights by chance, and its configuration."""
    torch.manual_seed(0)
    config = transformers.DebertaV2Config(
        vocab_size=vocab_size,
        **SMALL,
        max_position_embeddings=64,
        position_buckets=16,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        share_att_key=True,
        norm_rel_ebd="layer_norm",
        position_biased_input=False,
        type_vocab_size=0,
        pad_token_id=0,
        layer_norm_eps=1e-7,
    )
    return _spread(transformers.AutoModel.from_config(config))


def save_labelled(
    folder: Path, labels: Sequence[str], base: Any = None, config: Mapping[str, Any] | None = None
) -> Any:
    """A classifier in the layout of ``nvidia/quality-classifier-deberta``; returns backbone and head."""
    folder.mkdir(parents=True)
    backbone = base or deberta(save_tokenizer(folder))
    torch.manual_seed(1)
    head = torch.nn.Linear(SMALL["hidden_size"], len(labels))
    torch.nn.init.normal_(head.weight, std=0.5)
    if base is None:
        rows = tokens_of(folder)
        _spread_outputs(head, lambda row: head(backbone.eval()(input_ids=row).last_hidden_state[:, 0]), rows)
    _save_published(folder, backbone, {"model": backbone, "fc": head})
    numbered = {str(n): label for n, label in enumerate(labels)}
    _save_json(
        folder / "config.json",
        {"base_model": "backbone", "fc_dropout": 0.2, "id2label": numbered, **(config or {})},
    )
    return backbone.eval(), head.eval()


PROMPT = {
    "target_sizes": {
        "task_type": 12,
        "creativity_scope": 5,
        "reasoning": 2,
        "contextual_knowledge": 2,
        "number_of_few_shots": 6,
        "domain_knowledge": 4,
        "no_label_reason": 3,
        "constraint_ct": 2,
    },
    "task_type_map": {str(n): f"Type {n}" for n in range(12)},
    "weights_map": {
        "creativity_scope": [2, 1, 0, 1, 0],
        "reasoning": [0, 1],
        "contextual_knowledge": [0, 1],
        "number_of_few_shots": [0, 1, 2, 3, 4, 5],
        "domain_knowledge": [3, 1, 2, 0],
        "no_label_reason": [0, 1, 2],
        "constraint_ct": [1, 0],
    },
    "divisor_map": {
        "creativity_scope": 2,
        "reasoning": 1,
        "contextual_knowledge": 1,
        "number_of_few_shots": 1,
        "domain_knowledge": 3,
        "no_label_reason": 1,
        "constraint_ct": 1,
    },
}


def save_prompt_classifier(folder: Path) -> Any:
    """In the layout of ``nvidia/prompt-task-and-complexity-classifier``; returns backbone and heads."""
    folder.mkdir(parents=True)
    backbone = deberta(save_tokenizer(folder))
    torch.manual_seed(2)
    heads = [torch.nn.Linear(SMALL["hidden_size"], size) for size in PROMPT["target_sizes"].values()]
    for head in heads:
        torch.nn.init.normal_(head.weight, std=0.5)
    _save_published(folder, backbone, {"backbone": backbone, **{f"head_{n}.fc": head for n, head in enumerate(heads)}})
    _save_json(folder / "config.json", {"base_model": "backbone", **PROMPT})
    return backbone.eval(), [head.eval() for head in heads]


def save_sequence_classifier(folder: Path, kind: str = "Bert", outputs: int = 1) -> Any:
    """A model of ``AutoModelForSequenceClassification`` with its tokenizer, as the FineWeb-Edu classifier is."""
    folder.mkdir(parents=True)
    torch.manual_seed(3)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=save_tokenizer(folder), **SMALL, max_position_embeddings=80, num_labels=outputs, pad_token_id=0
    )
    network = _spread(getattr(transformers, f"{kind}ForSequenceClassification")(config))
    last = [module for module in network.modules() if isinstance(module, torch.nn.Linear)][-1]
    if last.bias is not None:
        _spread_outputs(last, lambda row: network.eval()(input_ids=row).logits, tokens_of(folder))
    network.save_pretrained(folder)
    return network.eval()


def save_language_model(folder: Path) -> Any:
    """A Llama of two layers with its tokenizer."""
    folder.mkdir(parents=True)
    torch.manual_seed(4)
    config = transformers.LlamaConfig(
        vocab_size=save_bytes_tokenizer(folder),
        **SMALL,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    network = _spread(transformers.LlamaForCausalLM(config))
    network.save_pretrained(folder)
    return network.eval()


def save_adapter(folder: Path, modules: Sequence[str] = ("q_proj", "v_proj"), **settings: Any) -> dict[str, Any]:
    """A low-rank adapter for the language model, as ``peft`` saves it; returns the factors (A, B) by module."""
    folder.mkdir(parents=True)
    torch.manual_seed(5)
    rank, width = 4, SMALL["hidden_size"]
    factors = {
        f"model.layers.{layer}.self_attn.{module}": (torch.randn(rank, width), torch.randn(width, rank))
        for layer in range(SMALL["num_hidden_layers"])
        for module in modules
    }
    tensors = {}
    for path, (down, up) in factors.items():
        tensors[f"base_model.model.{path}.lora_A.weight"] = down
        tensors[f"base_model.model.{path}.lora_B.weight"] = up
    save_file(tensors, str(folder / "adapter_model.safetensors"))
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2, "target_modules": list(modules), "bias": "none"}
    _save_json(folder / "adapter_config.json", {**config, **settings})
    return factors


def save_judge(folder: Path, shift: float = 0.0) -> list[Any]:
    """In the layout of ``nvidia/instruction-data-guard``, with smaller layers; returns them."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(6)
    width = SMALL["hidden_size"]
    sizes = {"input_layer": (width, width), "hidden_layer_0": (width, 20), "hidden_layer_1": (20, 10)}
    layers = {name: torch.nn.Linear(*size) for name, size in {**sizes, "hidden_layer_2": (10, 1)}.items()}
    for layer in layers.values():
        torch.nn.init.normal_(layer.weight, std=1.0)
        torch.nn.init.normal_(layer.bias, std=0.3)
    with torch.no_grad():
        layers["hidden_layer_2"].bias.add_(shift)
    tensors = {f"{name}.{part}": value for name, layer in layers.items() for part, value in layer.state_dict().items()}
    save_file(tensors, str(folder / "model.safetensors"))
    _save_json(folder / "config.json", {"input_dim": width, "dropout": 0.7})
    return list(layers.values())


def _save_published(folder: Path, backbone: Any, parts: Mapping[str, Any]) -> None:
    tensors = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}
    save_file({name: value.contiguous() for name, value in tensors.items()}, str(folder / "model.safetensors"))
    backbone.config.save_pretrained(folder / "backbone")


def _spread(network: Any) -> Any:
    """Larger weights than those a training starts with: then texts get scores that differ."""
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.2 if "embed" in name else 0.3)
    return network


def _spread_outputs(last: Any, compute: Any, rows: list[list[int]]) -> None:
    """Change a last layer so that the outputs for the rows go from -2 to about 7: below, between and above limits."""
    with torch.no_grad():
        made = torch.cat([compute(torch.tensor([row])) for row in rows])
        largest = 7.0 - 0.5 * torch.arange(made.shape[1])  # none is as large as another
        scale = (largest + 2.0) / (made.amax(dim=0) - made.amin(dim=0))
        last.bias.copy_((last.bias - made.amin(dim=0)) * scale - 2.0)
        last.weight.mul_(scale[:, None])


def _save_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
