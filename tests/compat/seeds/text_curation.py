# From NeMo Curator's guide "Migration Guide: Dask to Ray", steps "Define Operations" and "Create and Run Pipeline".
# Filled in: the imports; a reader of three rows for TinyStoriesDownloadExtractStage, which is part of a tutorial and
# fetches a data set; the directory; and `executor = None` for `executor = XennaExecutor()`.
import json

from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.text.filters import IncompleteStoryFilter, ScoreFilter, WordCountFilter
from nemo_curator.stages.text.io.reader import JsonlReader
from nemo_curator.stages.text.io.writer import JsonlWriter
from nemo_curator.stages.text.modifiers import Modify, QuotationUnifier, UnicodeReformatter

curated_dir = "curated"
story = "Once upon a time a \u201csmall\u201d cat sat on a mat. " * 10
with open("stories.jsonl", "w", encoding="utf-8") as file:  # noqa: PTH123 - a script of a user's
    for text in (story, "A short story.", story + "And then"):
        file.write(json.dumps({"text": text.strip()}) + "\n")

# New: Define stages
stages = [
    JsonlReader("stories.jsonl"),
    Modify(modifier_fn=QuotationUnifier()),
    Modify(modifier_fn=UnicodeReformatter()),
    ScoreFilter(filter_obj=WordCountFilter(min_words=80)),
    ScoreFilter(filter_obj=IncompleteStoryFilter()),
    JsonlWriter(curated_dir),
]

# New: Create pipeline with stages
pipeline = Pipeline(
    name="tinystories",
    description="Download and curation pipeline for the TinyStories dataset.",
    stages=stages,
)

# Create executor
executor = None

# Execute pipeline
pipeline.run(executor)
