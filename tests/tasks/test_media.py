"""Images, audio and video are columns: filters, ledgers, writers and deduplication treat them as they treat text."""

from __future__ import annotations

import json
import shutil
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tamis import LocalExecutor, Pipeline
from tamis.errors import ColumnError, DataError, MissingExtraError, TypeMismatchError
from tamis.stages.base import ProcessingStage
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.flow import Dropped, Route
from tamis.stages.io import FilePartitioningStage, JsonlWriter, ParquetReader, ParquetWriter
from tamis.stages.mixing import GlobalShuffle, Sample
from tamis.stages.text.columns import AddId, SelectColumns
from tamis.stages.text.filters import Filter, Score, ScoreFilter, WordCountFilter
from tamis.stages.text.modifiers import Modify
from tamis.stages.text.segments import DocumentSplitter
from tamis.tasks import (
    AudioBatch,
    AudioTask,
    DocumentBatch,
    FileGroup,
    ImageBatch,
    ImageObject,
    RowNames,
    TableTask,
    Video,
    VideoTask,
)
from tamis.tasks.storage import read_task, write_task

MEDIA = Path(__file__).parent / "data"


@dataclass
class ReadImages(ProcessingStage[FileGroup, ImageBatch]):
    """One row for each file: its bytes, its path, and a caption."""

    def process(self, task: FileGroup) -> ImageBatch:
        objects = [
            ImageObject(path, Path(path).stem, {"caption": f"{Path(path).stem} in a picture"}) for path in task.data
        ]
        names = RowNames(tuple(task.data), np.zeros(len(objects), np.int64), np.arange(len(objects)))
        return ImageBatch(objects).named(names).with_payloads().with_metadata()


@dataclass
class WideEnough(ProcessingStage[ImageBatch, ImageBatch]):
    min_width: int

    def process(self, images: ImageBatch) -> ImageBatch:
        assert type(images) is ImageBatch
        return images.keep(pc.greater_equal(images["width"], self.min_width), reason="narrow", score=images["width"])


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A picture, a copy of it, a small one and one in grey."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    shutil.copy(MEDIA / "face.jpg", folder / "a face.jpg")
    shutil.copy(MEDIA / "face.jpg", folder / "b copy.jpg")
    with Image.open(MEDIA / "face.jpg") as image:
        image.resize((64, 44)).save(folder / "c small.png")
        image.convert("L").save(folder / "d grey.jpg")
    return folder


@pytest.mark.parametrize("substrate", ["threads", "processes"])
def test_images_through_a_whole_run(pictures: Path, tmp_path: Path, substrate: Any) -> None:
    out = tmp_path / "out"
    pipeline = Pipeline(
        "images",
        stages=[
            FilePartitioningStage(str(pictures), file_extensions=[".jpg", ".png"], files_per_partition=3),
            ReadImages(),
            WideEnough(100),
            ScoreFilter(WordCountFilter(min_words=4), text_field="caption", score_field="words"),
            Modify(str.upper, input_fields="caption"),
            ExactDeduplication(text_field="image_bytes"),
            ParquetWriter(str(out)),
        ],
    )
    executor = LocalExecutor(substrate=substrate, workers=2)
    result = pipeline.run(executor, progress="off", run_dir=str(tmp_path / "run"))
    kept = pa.concat_tables([pq.read_table(path) for path in sorted(out.glob("*.parquet"))])
    assert kept["caption"].to_pylist() == ["A FACE IN A PICTURE", "D GREY IN A PICTURE"]
    assert kept["image_bytes"][0].as_py() == (MEDIA / "face.jpg").read_bytes()
    drops = {Path(d["source"]).name: (d["reason"], d["score"]) for d in result.drops().to_pylist()}
    assert drops == {"c small.png": ("narrow", 64.0), "b copy.jpg": ("exact duplicate", None)}
    # What was written is read as documents; a stage that takes images is given a view of them.
    again = Pipeline("again", stages=[ParquetReader(str(out)), WideEnough(1000)])
    assert again.run(progress="off", run_dir=str(tmp_path / "2")).stage("WideEnough").dropped == {"narrow": 2}


def test_branches_and_references_of_images(pictures: Path, tmp_path: Path) -> None:
    batch = ImageBatch([ImageObject(str(path), path.stem) for path in sorted(pictures.iterdir())])
    kinds = batch.with_metadata()
    stages = [
        Dropped(WideEnough(100), [JsonlWriter(str(tmp_path / "refused"))]),
        Route("image_id", {"d grey": [JsonlWriter(str(tmp_path / "grey"))]}),
    ]
    result = Pipeline("p", stages=stages).run(initial_tasks=[kinds], progress="off", run_dir=str(tmp_path / "run"))
    images = [task for task in result if not isinstance(task, FileGroup)]
    assert [type(task) for task in images] == [ImageBatch]
    assert [item.image_id for task in images for item in task.objects()] == ["a face", "b copy"]
    assert len(next((tmp_path / "grey").glob("*.jsonl")).read_text().splitlines()) == 1
    (line,) = next((tmp_path / "refused").glob("*.jsonl")).read_text().splitlines()
    assert (json.loads(line)["image_id"], json.loads(line)["dropped_because"]) == ("c small", "narrow")


def test_objects_go_into_columns_and_come_back() -> None:
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    objects = [
        ImageObject("a", "1", {"caption": "x"}, pixels, np.array([0.5, 1.5], np.float32), 0.9),
        ImageObject("b", "2", {"n": 3}),
    ]
    first, second = ImageBatch(objects, dataset_name="d").objects()
    assert np.array_equal(first.image_data, pixels)
    assert (first.metadata, first.aesthetic_score, first.embedding.tolist()) == ({"caption": "x"}, 0.9, [0.5, 1.5])
    assert (second.image_path, second.metadata, second.image_data, second.embedding) == ("b", {"n": 3}, None, None)
    assert ImageBatch([]).num_items == 0
    assert ImageBatch(pa.table({"image_path": ["a"]})).objects()[0].image_path == "a"
    with pytest.raises(TypeError, match="uint8, not float64"):
        ImageBatch([ImageObject(image_data=pixels / 255)])
    with pytest.raises(ValueError, match="set the field instead"):
        ImageBatch([ImageObject(metadata={"image_id": "1"})])


def test_pixels_are_decoded_at_the_size_that_is_asked_for(pictures: Path) -> None:
    paths = [str(path) for path in sorted(pictures.iterdir())]
    batch = ImageBatch({"image_path": paths})
    assert [p.shape for p in batch.pixels()] == [(355, 512, 3), (355, 512, 3), (44, 64, 3), (355, 512, 3)]
    assert [max(p.shape) for p in batch.select([0, 2]).pixels(max_side=100)] == [100, 64]
    decoded = ImageBatch([ImageObject(image_data=next(batch.pixels()))])
    assert next(decoded.pixels(max_side=100)).shape == (69, 100, 3)


def test_a_part_of_a_file_is_a_medium(tmp_path: Path) -> None:
    face = (MEDIA / "face.jpg").read_bytes()
    (tmp_path / "all.tar").write_bytes(b"x" * 100 + face + b"y" * 7)
    parts = {"image_path": [str(tmp_path / "all.tar")], "byte_offset": [100], "byte_size": [len(face)]}
    assert ImageBatch(parts).with_metadata()["width"].to_pylist() == [512]
    with pytest.raises(DataError, match="it ends at byte"):
        ImageBatch({**parts, "byte_size": [10**6]}).with_payloads()


def test_what_cannot_be_decoded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.jpg").write_bytes((MEDIA / "face.jpg").read_bytes()[:60000])
    broken = ImageBatch({"image_path": [str(tmp_path / "broken.jpg")]})
    assert broken.with_metadata()["width"].to_pylist() == [512]
    with pytest.raises(DataError, match=r"broken\.jpg cannot be decoded"):
        next(broken.pixels())
    with pytest.raises(DataError, match=r"the image x:0 cannot be decoded: it is not an image"):
        next(ImageBatch({"image_bytes": [b"no image"]}).named("x").pixels())
    with pytest.raises(DataError, match="No such file"):
        next(ImageBatch({"image_path": ["none.jpg"]}).pixels())
    with pytest.raises(ColumnError, match="needs the column 'image_bytes'"):
        next(ImageBatch({"text": ["a"]}).pixels())
    for package, batch in (("PIL", broken), ("av", VideoTask({"video_path": [str(MEDIA / "asl_yes.mkv")]}))):
        monkeypatch.setitem(__import__("sys").modules, package, None)
        with pytest.raises(MissingExtraError, match=r"pip install -e '\.\[(image|video)\]'"):
            batch.with_metadata()


def test_audio_is_decoded_at_the_rate_that_is_asked_for(tmp_path: Path) -> None:
    paths = [str(MEDIA / f"0_george_{n}.wav") for n in (0, 1)]
    batch = AudioBatch([{"audio_filepath": path} for path in paths]).with_metadata()
    assert batch["duration"].to_pylist() == [0.298, 0.590875]
    with wave.open(paths[0]) as file:
        frames = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    first, second = batch.samples()
    assert np.array_equal(first, (frames / 2**15).astype(np.float32))
    assert [len(samples) for samples in batch.samples(16000)] == [2 * len(first), 2 * len(second)]
    part = batch.with_columns({"offset_s": [0.1, None], "duration_s": [0.05, None]})
    assert [len(samples) for samples in part.samples()] == [400, len(second)]
    assert np.array_equal(next(part.samples()), first[800:1200])
    kept = batch.keep(pc.less(batch["duration"], 0.5), reason="long", score=batch["duration"])
    assert (kept.num_items, kept.dropped[0].scores.to_pylist()) == (1, [0.590875])


def test_resampling_keeps_what_fits_and_removes_the_rest(tmp_path: Path) -> None:
    def tone(hertz: int, rate: int) -> np.ndarray[Any, Any]:
        return np.sin(2 * np.pi * hertz * np.arange(rate) / rate)

    def resampled(hertz: int, rate: int, wanted: int) -> np.ndarray[Any, Any]:
        with wave.open(str(tmp_path / "tone.wav"), "wb") as file:
            file.setnchannels(2)
            file.setsampwidth(2)
            file.setframerate(rate)
            both = np.repeat((tone(hertz, rate) * 32767).astype("<i2"), 2)
            file.writeframes(both.tobytes())
        return next(AudioBatch({"audio_filepath": [str(tmp_path / "tone.wav")]}).samples(wanted))[200:-200]

    assert np.abs(resampled(440, 8000, 16000) - tone(440, 16000)[200:-200]).max() < 1e-3
    assert np.abs(resampled(440, 16000, 8000) - tone(440, 8000)[200:-200]).max() < 1e-3
    assert np.abs(resampled(7000, 16000, 8000)).max() < 1e-3


def test_other_formats_of_audio_need_a_package_and_work_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import soundfile

    samples = next(AudioBatch({"audio_filepath": [str(MEDIA / "0_george_0.wav")]}).samples())
    soundfile.write(tmp_path / "a.flac", samples, 8000)
    batch = AudioTask({"audio_bytes": (tmp_path / "a.flac").read_bytes()})
    assert np.array_equal(next(batch.samples()), samples)
    assert batch.with_metadata().entry["sample_rate"] == 8000
    with pytest.raises(DataError, match="the recording 0 cannot be decoded"):
        next(AudioTask({"audio_bytes": b"no sound"}).samples())
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(MissingExtraError, match="not a PCM WAV file"):
        next(batch.samples())


def test_clips_are_rows_that_lead_back_to_their_video() -> None:
    videos = VideoTask(Video(MEDIA / "asl_yes.mkv")).named("list").with_metadata()
    (about,) = videos.videos()
    assert (about.metadata.width, about.metadata.framerate, about.metadata.num_frames) == (640, 30.0, 66)
    clips = videos.cut([[(0.0, 0.5), (1.0, 2.0)]])
    assert clips.names is not None
    assert clips.names.to_texts() == ["list:0/0", "list:0/1"]
    first, second = clips.frames(every_s=0.1, max_side=160)
    assert (first.shape, second.shape) == ((5, 120, 160, 3), (10, 120, 160, 3))
    every = next(videos.frames(every_s=0, max_side=160))
    assert np.array_equal(second[0], every[29])  # at 1.0 s: the first frame is at 0.033 s
    (video,) = clips.videos()
    assert [clip.span for clip in video.clips] == [(0.0, 0.5), (1.0, 2.0)]
    assert VideoTask(video)["end_s"].to_pylist() == [0.5, 2.0]
    with pytest.raises(DataError, match=r"face\.jpg|no video|cannot be read"):
        VideoTask({"video_path": [str(MEDIA / "0_george_0.wav")]}).with_metadata()


def test_the_class_and_the_memory_of_a_batch_survive_a_file(tmp_path: Path) -> None:
    batch = ImageBatch({"image_path": [str(MEDIA / "face.jpg")]}).named("x").with_payloads()
    assert batch.nbytes > (MEDIA / "face.jpg").stat().st_size
    write_task(batch, str(tmp_path / "task"))
    read = read_task(str(tmp_path / "task"))
    assert type(read) is ImageBatch
    assert read.names.to_texts() == ["x:0"]
    assert next(read.payloads()) == (MEDIA / "face.jpg").read_bytes()
    assert type(TableTask.concat([read, read])) is ImageBatch


class HearsImages(ProcessingStage[AudioBatch, AudioBatch]):
    def process(self, task: AudioBatch) -> AudioBatch:
        return task


def test_images_are_not_audio(tmp_path: Path) -> None:
    images = [ImageBatch({"image_path": ["a"]})]
    with pytest.raises(TypeMismatchError, match="takes AudioBatch, but the start of the pipeline gives ImageBatch"):
        Pipeline("p", stages=[HearsImages()]).run(initial_tasks=images)
    documents = [DocumentBatch({"audio_filepath": ["a"]})]
    (task,) = Pipeline("p", stages=[HearsImages()]).run(
        initial_tasks=documents, progress="off", run_dir=str(tmp_path / "run")
    )
    assert type(task) is AudioBatch


def test_bytes_do_not_go_into_json_lines(tmp_path: Path) -> None:
    batch = ImageBatch({"image_path": [str(MEDIA / "face.jpg")]}).with_payloads()
    with pytest.raises(DataError, match="image_bytes"):
        Pipeline("p", stages=[JsonlWriter(str(tmp_path / "out"))]).run(
            initial_tasks=[batch], progress="off", run_dir=str(tmp_path / "run")
        )


@pytest.mark.parametrize(
    "stage",
    [
        AddId(id_field="id"),
        Filter(lambda path: True, filter_field="image_path"),
        Score(len, score_field="length", text_field="image_path"),
        SelectColumns(["image_path"]),
        Sample(0.999),
        DocumentSplitter(separator="/", text_field="image_path"),
        GlobalShuffle(partitions=2),
    ],
    ids=lambda stage: stage.name,
)
def test_images_stay_images(tmp_path: Path, stage: Any) -> None:
    images = [ImageBatch({"image_path": ["a", "b"]}), ImageBatch({"image_path": ["c"]})]
    result = Pipeline("p", stages=[stage]).run(initial_tasks=images, progress="off", run_dir=str(tmp_path / "run"))
    assert {type(task) for task in result} == {ImageBatch}
    assert sum(task.num_items for task in result) == 3
