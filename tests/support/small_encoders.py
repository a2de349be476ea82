"""Small transformers with weights by chance and a tokenizer trained on a few sentences, saved as the hub has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

TEXTS = [
    "A sieve keeps what is coarse and lets the fine parts through.",
    "The quick brown fox jumps over the lazy dog, again and again, until both of them are tired of it.",
    "Short.",
    "Zwei Sätze auf Deutsch. Sie sind nicht lang, aber sie haben Umlaute: äöüß.",
    "",
    "A text that is " + "much " * 60 + "longer than all of the others.",
    "Two words",
    "42 numbers, 7 signs; and (some) punctuation! Is it?",
    "Two words",
]
"""Texts of many lengths, one of them empty, two of them equal."""

_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 80,
}


def save_tokenizer(folder: Path, style: str = "wordpiece") -> int:
    """Train a tokenizer on :data:`TEXTS` and save it; returns the size of its vocabulary.

    Args:
        folder: Where to.
        style: ``"wordpiece"`` with ``[CLS]`` and ``[SEP]``, ``"roberta"`` (byte-level, ``<s>`` and ``</s>``) or
            ``"causal"`` (byte-level, ``<end>`` after each text).
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    if style == "wordpiece":
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        inner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        inner.normalizer = normalizers.BertNormalizer(lowercase=True)
        inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer: Any = trainers.WordPieceTrainer(vocab_size=400, special_tokens=special)
        ends, names = ("[CLS] $A [SEP]", ("[CLS]", "[SEP]")), {"cls_token": "[CLS]", "sep_token": "[SEP]"}
        names |= {"pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
    else:
        special = ["<s>", "<pad>", "</s>", "<unk>", "<end>"]
        inner = Tokenizer(models.BPE())
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
        roberta = ("<s> $A </s>", ("<s>", "</s>"))
        ends, names = roberta if style == "roberta" else ("$A <end>", ("<end>",)), {"pad_token": "<pad>"}
    inner.train_from_iterator(TEXTS, trainer)
    tokens = [(token, inner.token_to_id(token)) for token in ends[1]]
    inner.post_processor = processors.TemplateProcessing(single=ends[0], special_tokens=tokens)
    saved = PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=64, **names)
    saved.save_pretrained(folder)
    return int(inner.get_vocab_size())


def save_model(folder: Path, kind: str = "bert", **more: Any) -> Path:
    """Save a small model and its tokenizer; returns the folder.

    Args:
        folder: Where to.
        kind: One of :data:`KINDS` or :data:`CHANGED_BY_PADDING`.
        more: More settings of its config.
    """
    import torch
    from transformers import AutoModel

    style, make = {**KINDS, **CHANGED_BY_PADDING}[kind]
    words = save_tokenizer(folder, style)
    torch.manual_seed(len(kind))
    network = AutoModel.from_config(
        make({**_SIZES, "vocab_size": words, "pad_token_id": 0 if style == "wordpiece" else 1, **more})
    )
    for weights in network.parameters():  # at the start most weights do little
        weights.data += 0.2 * torch.randn_like(weights)
    network.save_pretrained(folder)
    return folder


def _config(name: str, **more: Any) -> Callable[[dict[str, Any]], Any]:
    def make(sizes: dict[str, Any]) -> Any:
        import transformers

        return getattr(transformers, name)(**{**sizes, **more})

    return make


def _distilbert(sizes: dict[str, Any]) -> Any:
    from transformers import DistilBertConfig

    return DistilBertConfig(
        vocab_size=sizes["vocab_size"],
        max_position_embeddings=sizes["max_position_embeddings"],
        dim=sizes["hidden_size"],
        n_layers=sizes["num_hidden_layers"],
        n_heads=sizes["num_attention_heads"],
        hidden_dim=sizes["intermediate_size"],
    )


_RELATIVE = {
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": ["p2c", "c2p"],
    "position_buckets": 16,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
}

KINDS: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "bert": ("wordpiece", _config("BertConfig")),
    "distilbert": ("wordpiece", _distilbert),
    "mpnet": ("wordpiece", _config("MPNetConfig", pad_token_id=1)),
    "deberta": ("wordpiece", _config("DebertaV2Config", **_RELATIVE)),
    "modernbert": ("wordpiece", _config("ModernBertConfig", local_attention=16)),
    "roberta": ("roberta", _config("RobertaConfig")),
    "xlm-roberta": ("roberta", _config("XLMRobertaConfig")),
    "qwen3": ("causal", _config("Qwen3Config", num_key_value_heads=2, head_dim=8)),
}
"""Kinds of models: the style of their tokenizer, and how to make their config of some sizes."""

CHANGED_BY_PADDING: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "fnet": ("wordpiece", _config("FNetConfig")),
    "convbert": ("wordpiece", _config("ConvBertConfig", embedding_size=32)),
    "mobilebert": ("wordpiece", _config("MobileBertConfig", embedding_size=16, intra_bottleneck_size=16)),
}
"""Kinds of models whose states of a row change if it is filled up, in transformers as well."""
