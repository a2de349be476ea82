"""Classifiers on a CPU against the loop that users of transformers write: same weights, same texts, same labels.

The models have the shapes of the published ones, but fewer layers, and weights by chance; the time of a layer does not
depend on its weights. Three ways to run each over the same texts, text in, labels out, CPU time of one core:

- transformers, batches of 32 texts in the order of the data, padded to the longest of the batch,
- the same, sorted by length first (what NeMo Curator does within a batch of documents),
- the stage of tamis.

    python benchmarks/classifiers.py --text CORPUS.parquet
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tamis.models.guard import load_answerer
from tamis.models.model import Model
from tamis.stages.text.classifiers import AegisClassifier, DomainClassifier, FineWebEduClassifier
from tamis.stages.text.classifiers.aegis_prompt import AEGIS_CATEGORIES, AegisPrompt
from tamis.tasks import DocumentBatch

TOKENS = 512

POLICY = "\n".join(
    f"{key}: {name}.\nShould not\n- {name}. {'Rules of the policy. ' * 12}" for key, name in AEGIS_CATEGORIES.items()
)
"""As long as that of the Aegis models."""

KEPT: list[Any] = []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="a Parquet file with a column text")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["DeBERTa", "BERT", "Llama"], help="one of the models")
    given = parser.parse_args()
    torch.set_num_threads(1)
    texts = sample_of(given.text, given.rows)
    with tempfile.TemporaryDirectory() as folder:
        print(f"{len(texts)} texts, {sum(map(len, texts)):,} characters, {given.layers} layers, seconds of one core")
        print("| model | transformers, in order | sorted | tamis | against sorted | labels that differ |")
        print("|---|---:|---:|---:|---:|---:|")
        for name, make in WAYS:
            if given.only and not name.startswith(given.only):
                continue
            stage, column, plain = make(Path(folder) / name.partition(",")[0], texts, given.layers)
            compare(name, stage, column, plain, texts, given.rounds)


def sample_of(path: str, rows: int) -> list[str]:
    """Texts from all over a file, cut as the domain classifier cuts them."""
    column = pq.read_table(path, columns=["text"])["text"]
    step = max(1, len(column) // rows)
    return [text[:2000] for text in column.take(pa.array(range(0, len(column), step))).to_pylist() if text][:rows]


def compare(
    name: str, stage: Any, column: str, plain: Callable[[list[str]], list[str]], texts: list[str], rounds: int
) -> None:
    batch = DocumentBatch({"text": texts})
    stage.setup()
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))

    def in_order() -> list[str]:
        return plain(texts)

    def by_length() -> list[str]:
        found = dict(zip(order, plain([texts[row] for row in order]), strict=True))
        return [found[row] for row in range(len(texts))]

    def ours() -> list[str]:
        labels: list[str] = stage.process(batch)[column].to_pylist()
        return labels

    ways = (in_order, by_length, ours)
    for way in ways:
        way()  # once, so that nothing is measured that happens once
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(rounds):
        for number, way in enumerate(ways):
            start = time.process_time()
            labels = way()
            times[number].append(time.process_time() - start)
    best = [min(each) for each in times]
    differ = sum(a != b for a, b in zip(labels, by_length(), strict=True))
    print(
        f"| {name} | {best[0]:.2f} | {best[1]:.2f} | {best[2]:.2f} | {best[1] / best[2]:.2f} x | {differ} |", flush=True
    )


def safety(folder: Path, texts: list[str], layers: int) -> tuple[Any, str, Callable[[list[str]], list[str]]]:
    """A Llama with an adapter that does nothing, asked about each text; answers of 8 tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=4000,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([*texts, AegisPrompt(POLICY).around("")], trainer)
    made.decoder = decoders.ByteLevel()
    folder.mkdir(parents=True)
    made.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "pad_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=made.get_vocab_size(),
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=layers,
        num_attention_heads=8,
        max_position_embeddings=4096,
        pad_token_id=0,
    )
    network = transformers.LlamaForCausalLM(config).eval()
    network.save_pretrained(folder)
    adapter = folder / "adapter"
    adapter.mkdir()
    path = "base_model.model.model.layers.0.self_attn.q_proj"
    zeros = {f"{path}.lora_A.weight": torch.zeros(4, 512), f"{path}.lora_B.weight": torch.zeros(512, 4)}
    save_file(zeros, str(adapter / "adapter_model.safetensors"))
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 4}))
    (adapter / "README.md").write_text(
        f"<BEGIN UNSAFE CONTENT CATEGORIES>\n{POLICY}\n<END UNSAFE CONTENT CATEGORIES>\n"
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")

    def answers(texts: list[str]) -> list[str]:
        made: list[str] = []
        with torch.inference_mode():
            for start in range(0, len(texts), 8):
                prompts = [AegisPrompt(POLICY).around(text) for text in texts[start : start + 8]]
                given = tokenizer(prompts, padding="longest", return_tensors="pt", return_token_type_ids=False)
                found = network.generate(**given, max_new_tokens=8, do_sample=False, pad_token_id=0)
                made += tokenizer.batch_decode(found[:, given["input_ids"].shape[1] :], skip_special_tokens=True)
        return made

    base = Model(str(folder))
    answerer = load_answerer(base, Model(str(adapter)), "cpu", "auto")
    answerer.max_new_tokens = 8
    KEPT.append(answerer)  # so that the stage uses the same
    stage = AegisClassifier(
        str(adapter), base_model_identifier=str(folder), keep_raw_output=True, model_inference_batch_size=8
    )
    return stage, "_aegis_raw_pred", answers


def domain(folder: Path, texts: list[str], layers: int) -> tuple[Any, str, Callable[[list[str]], list[str]]]:
    """In the layout of nvidia/domain-classifier."""
    words = save_tokenizer(folder, texts)
    torch.manual_seed(0)
    config = transformers.DebertaV2Config(
        vocab_size=words,
        hidden_size=768,
        num_hidden_layers=layers,
        num_attention_heads=12,
        intermediate_size=3072,
        relative_attention=True,
        position_buckets=256,
        pos_att_type=["p2c", "c2p"],
        share_att_key=True,
        norm_rel_ebd="layer_norm",
        position_biased_input=False,
        type_vocab_size=0,
    )
    backbone = transformers.AutoModel.from_config(config).eval()
    head = torch.nn.Linear(768, 26)
    torch.nn.init.normal_(head.weight)
    config.save_pretrained(folder / "backbone")
    tensors = {f"model.{name}": tensor for name, tensor in backbone.state_dict().items()}
    tensors |= {f"fc.{name}": tensor for name, tensor in head.state_dict().items()}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, str(folder / "model.safetensors"))
    labels = {str(number): f"domain {number}" for number in range(26)}
    (folder / "config.json").write_text(json.dumps({"base_model": "backbone", "id2label": labels}))

    def best(ids: torch.Tensor, mask: torch.Tensor) -> list[str]:
        outputs = head(backbone(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0])
        return [labels[str(number)] for number in outputs.argmax(dim=1).tolist()]

    stage = DomainClassifier(model_identifier=str(folder), max_seq_length=TOKENS)
    return stage, "domain_pred", batched(folder, best)


def educational(folder: Path, texts: list[str], layers: int) -> tuple[Any, str, Callable[[list[str]], list[str]]]:
    """In the layout of HuggingFaceFW/fineweb-edu-classifier."""
    config = transformers.BertConfig(vocab_size=save_tokenizer(folder, texts), num_hidden_layers=layers, num_labels=1)
    torch.manual_seed(0)
    network = transformers.BertForSequenceClassification(config).eval()
    torch.nn.init.constant_(network.classifier.bias, 2.5)
    network.save_pretrained(folder)

    def best(ids: torch.Tensor, mask: torch.Tensor) -> list[str]:
        outputs = network(input_ids=ids, attention_mask=mask).logits[:, 0]
        return ["high_quality" if output >= 2.5 else "low_quality" for output in outputs.tolist()]

    return FineWebEduClassifier(model_identifier=str(folder)), "fineweb-edu-score-label", batched(folder, best)


def batched(
    folder: Path, best: Callable[[torch.Tensor, torch.Tensor], list[str]], size: int = 32
) -> Callable[[list[str]], list[str]]:
    """The loop of a user of transformers."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def labels(texts: list[str]) -> list[str]:
        made: list[str] = []
        with torch.inference_mode():
            for start in range(0, len(texts), size):
                given = tokenizer(
                    texts[start : start + size],
                    padding="longest",
                    truncation=True,
                    max_length=TOKENS,
                    return_tensors="pt",
                )
                made += best(given["input_ids"], given["attention_mask"])
        return made

    return labels


def save_tokenizer(folder: Path, texts: list[str]) -> int:
    folder.mkdir(parents=True)
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # type: ignore[call-arg]
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    made.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=8000, special_tokens=special, show_progress=False)
    )
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.save(str(folder / "tokenizer.json"))
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": TOKENS, **named}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return made.get_vocab_size()


WAYS = (("DeBERTa-v3-base, domain", domain), ("BERT-base, FineWeb-Edu", educational), ("Llama, safety", safety))


if __name__ == "__main__":
    main()
