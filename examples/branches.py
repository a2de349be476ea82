"""A copy of everything, one branch per language, and what a filter leaves out, in one run."""

import json
from pathlib import Path

from tamis import Pipeline
from tamis.stages.flow import Dropped, Route, Tee
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.text.filters import ScoreFilter, WordCountFilter

ROWS = [
    {"text": "one two three four", "lang": "en"},
    {"text": "eins zwei drei vier", "lang": "de"},
    {"text": "un", "lang": "fr"},
    {"text": "uno dos tres cuatro", "lang": "es"},
]
Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")

pipeline = Pipeline(
    name="branches",
    stages=[
        JsonlReader(file_paths="rows.jsonl"),
        Tee([JsonlWriter(path="all")]),
        Dropped(ScoreFilter(WordCountFilter(min_words=3)), to=[JsonlWriter(path="dropped")]),
        Route("lang", {"en": [JsonlWriter(path="english")], "de": [JsonlWriter(path="german")]}),
        JsonlWriter(path="others"),
    ],
)
print(pipeline.plan())
pipeline.run()

for folder in ("all", "dropped", "english", "german", "others"):
    rows = [json.loads(line) for file in Path(folder).glob("*.jsonl") for line in file.open(encoding="utf-8")]
    print(f"{folder}: {len(rows)} rows", *rows, sep="\n  ")
