"""Read JSON lines, keep the texts that are long enough, write them, and see what was dropped and why."""

import json
from pathlib import Path

from tamis import Pipeline
from tamis.runs.report import summary_table
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.text.filters import ScoreFilter, UrlsFilter, WordCountFilter

ROWS = [
    {"text": "A sieve lets the fine grains through and holds back the coarse ones.", "url": "example.org/sieve"},
    {"text": "Too short.", "url": "example.org/short"},
    {
        "text": "Look: https://example.org/a and https://example.org/b and https://example.org/c",
        "url": "example.org/links",
    },
    {"text": "Flour that was sifted twice makes a cake that is twice as light, they say.", "url": "example.org/cake"},
]
Path("input").mkdir()
Path("input/rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")

pipeline = Pipeline(
    name="first",
    stages=[
        JsonlReader(file_paths="input"),
        ScoreFilter(WordCountFilter(min_words=5), score_field="words"),
        ScoreFilter(UrlsFilter(max_url_to_text_ratio=0.2)),
        JsonlWriter(path="output"),
    ],
)
result = pipeline.run()

print(summary_table(result.summary))
for path in result.outputs:
    print(Path(path).read_text(encoding="utf-8"))
