"""Blend two sources, leave out what is in a benchmark, shuffle everything, and write tokens to train on.

It needs ``pip install -e '.[tokenize]'``.
"""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tamis import Pipeline
from tamis.stages.flow import Tee
from tamis.stages.io import JsonlReader
from tamis.stages.io.megatron import MegatronPair, merge_file_prefixes
from tamis.stages.mixing import Blend, GlobalShuffle, ReadSources
from tamis.stages.text.decontamination import Benchmark, Decontaminate
from tamis.stages.text.io.writer.megatron_tokenizer import MegatronTokenizerWriter
from tamis.stages.text.sequence_packing import PackedParquetWriter
from tamis.stages.text.tokenization import TokenCount


def write_jsonl(path: str, texts: list[str]) -> None:
    """One row for each text."""
    Path(path).write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


QUESTION = "A baker sifts three cups of flour and then two more; how many cups of flour did the baker sift in all?"
BOOKS = [f"Chapter {n}. The miller ground the corn, and the sieve held back the bran." for n in range(40)]
WEB = [f"Post {n}: ten ways to sift flour." for n in range(400)]
write_jsonl("books.jsonl", BOOKS)
write_jsonl("web.jsonl", [*WEB, f"Can you solve this? {QUESTION}"])
write_jsonl("quiz.jsonl", [QUESTION])

# Any tokenizer.json will do, or a name on the Hugging Face hub. This one is trained here, to need no network.
vocabulary = Tokenizer(models.BPE())
vocabulary.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
vocabulary.decoder = decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
vocabulary.train_from_iterator(
    BOOKS + WEB,
    trainers.BpeTrainer(vocab_size=400, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False),
)
vocabulary.save("tokenizer.json")

pipeline = Pipeline(
    name="tokens",
    stages=[
        ReadSources({"books": JsonlReader("books.jsonl"), "web": JsonlReader("web.jsonl")}),
        Decontaminate({"quiz": Benchmark("quiz.jsonl")}),
        TokenCount("tokenizer.json"),
        # Half of the tokens from each: the books are read more than once, of the web posts some are left out.
        Blend({"books": 0.5, "web": 0.5}, target=4000, measure="num_tokens", max_epochs=4),
        GlobalShuffle(seed=1, partitions=2),
        Tee([PackedParquetWriter("packed", "tokenizer.json", sequence_length=128, eos_token="<end>")]),
        MegatronTokenizerWriter("megatron", "tokenizer.json", append_eod=True, eos_token="<end>"),
    ],
)
result = pipeline.run(progress="off")

for stage in result.stages:
    for reason, rows in stage.dropped.items():
        print(f"{stage.name}: {rows} rows {reason}")
    if stage.name == "Blend":
        print(f"tokens of books: {stage.custom['books: num_tokens']}, of web: {stage.custom['web: num_tokens']}")

prefixes = sorted(str(path.with_suffix("")) for path in Path("megatron").glob("*.idx"))
merged: MegatronPair = merge_file_prefixes(prefixes, "all")
print(f"{len(merged)} documents, the first: {vocabulary.decode(merged[0].tolist())!r}")
