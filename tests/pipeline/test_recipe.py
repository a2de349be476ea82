"""Recipes as users write them: what is understood, what is refused and with which words."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from property_tests import examples

from tamis.errors import MissingExtraError, RecipeError
from tamis.pipeline import Pipeline
from tamis.pipeline.catalogue import catalogue
from tamis.pipeline.parameters import REQUIRED, parameters_of
from tamis.pipeline.recipe import RunSettings, dump_recipe, load_recipe
from tamis.pipeline.recipe_nodes import parse_yaml, to_yaml
from tamis.stages.base import ProcessingStage
from tamis.stages.flow import Dropped, Route, Tee
from tamis.stages.resources import Resources
from tamis.stages.text.filters import (
    DocumentFilter,
    Filter,
    NonAlphaNumericFilter,
    Score,
    ScoreFilter,
    UrlsFilter,
    WordCountFilter,
)
from tamis.stages.text.modifiers import Modify

OWN_STAGES = """
import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Optional
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.function_decorators import processing_stage
from tamis.pipeline.catalogue import catalogue
from tamis.pipeline.parameters import REQUIRED, parameters_of
from tamis.stages.resources import Resources
from tamis.tasks import DocumentBatch

class Side(enum.Enum):
    LEFT = "left"
    RIGHT = "right"

@dataclass(frozen=True)
class Corner:
    x: int
    y: int = 0

@dataclass
class Typed(ProcessingStage[DocumentBatch, DocumentBatch]):
    ratio: float = 0.5
    pair: tuple[int, str] = (1, "a")
    names: frozenset[str] = frozenset()
    mode: Literal["fast", "slow"] = "fast"
    side: Side = Side.LEFT
    corner: Optional[Corner] = None
    folder: Path = Path("x")
    weights: dict[str, float] = field(default_factory=dict)
    gpu: Resources = Resources()
    count: int | None = None
    flag: bool = False
    share: float = 1

    def process(self, task):
        return task

class Plain(ProcessingStage[DocumentBatch, DocumentBatch]):
    def __init__(self, low, high=9):
        self.low, self._high = low, high

    def process(self, task):
        return task

class Forgetful(ProcessingStage[DocumentBatch, DocumentBatch]):
    def __init__(self, low=1):
        self.limit = low * 2

    def process(self, task):
        return task

class Pair(CompositeStage[DocumentBatch, DocumentBatch]):
    def decompose(self):
        return [Plain(1).with_(name="first"), Plain(2).with_(name="second")]

class Broken(ProcessingStage[DocumentBatch, DocumentBatch]):
    def __init__(self):
        raise ValueError("not today")

class Counted:
    made = 0

    def __init__(self, **anything):
        Counted.made += 1

@processing_stage(name="shout")
def shout(task: DocumentBatch) -> DocumentBatch:
    return task

def is_long(text: str) -> bool:
    return len(text) > 10

def plain_function(task):
    return task
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module of the user's, importable as ``ownstages``."""
    (tmp_path / "ownstages.py").write_text(OWN_STAGES)
    monkeypatch.syspath_prepend(tmp_path)
    import ownstages

    yield ownstages
    del sys.modules["ownstages"]


def stages_of(text: str) -> list[ProcessingStage[Any, Any]]:
    return load_recipe(textwrap.dedent(text)).to_pipeline().stages


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(RecipeError) as refused:
        action()
    return str(refused.value)


def refusal_of(*stage_lines: str) -> str:
    text = "stages:\n" + "".join(f"  {line}\n" for line in stage_lines)
    return refusal(lambda: load_recipe(text).to_pipeline())


# --- what is understood ---------------------------------------------------------------------------------------------


def test_a_recipe_becomes_a_pipeline(tmp_path: Path) -> None:
    path = tmp_path / "clean.yaml"
    path.write_text(
        textwrap.dedent("""
        name: my-run
        description: Keeps long texts.
        stages:
          - ScoreFilter: {filter_obj: {WordCountFilter: {min_words: 50}}, score_field: words}
          - Route:
              by: lang
              branches:
                en: [{Score: {score_fn: UrlsFilter, score_field: urls}}]
                no: []
              otherwise: []
        run: {workers: 4, execution_mode: batch, memory_budget: 1GiB}
        """)
    )
    recipe = load_recipe(path)
    pipeline = recipe.to_pipeline()
    score, route = pipeline.stages
    assert (pipeline.name, pipeline.description) == ("my-run", "Keeps long texts.")
    assert isinstance(score, ScoreFilter)
    assert score.filter_obj == WordCountFilter(min_words=50)
    assert isinstance(route, Route)
    assert [type(s) for s in route.branches["en"]] == [Score]
    assert list(route.branches) == ["en", "no"]  # the language code, not "false"
    assert recipe.run == RunSettings(workers=4, execution_mode="batch", memory_budget="1GiB")
    assert recipe.run.make_executor().describe() == "local, 4 workers, batch mode"


def test_the_file_names_a_recipe_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "clean-web.yaml"
    path.write_text("stages: [{Route: {by: lang, branches: {}}}]")
    assert load_recipe(str(path)).name == "clean-web"


def test_settings_stand_under_with() -> None:
    (stage,) = stages_of("""
        stages:
          - ScoreFilter:
              filter_obj: {UrlsFilter: {}}
              with: {name: links, resources: {gpus: 0.5}, batch_size: 8, num_workers: 2}
    """)
    assert (stage.name, stage.resources, stage.batch_size, stage.num_workers()) == ("links", Resources(gpus=0.5), 8, 2)


def test_settings_of_the_stages_inside_a_composite(own: Any) -> None:
    (stage,) = stages_of("""
        stages:
          - ownstages:Pair: {with: {batch_size: 4, stages: {second: {batch_size: 8}}}}
    """)
    assert [inner.batch_size for inner in stage.unfold()] == [4, 8]  # type: ignore[attr-defined]  # of that class alone


def test_values_take_the_type_of_their_parameter(own: Any) -> None:
    (stage,) = stages_of("""
        stages:
          - ownstages:Typed:
              ratio: 1
              pair: [2, b]
              names: [x, y, x]
              mode: slow
              side: right
              corner: {x: 1}
              folder: out
              weights: {a: 1, b: 1e-3}
              gpu: {Resources: {gpus: 1}}
    """)
    assert stage == own.Typed(
        1.0, (2, "b"), frozenset("xy"), "slow", own.Side.RIGHT, own.Corner(1), Path("out"), {"a": 1.0, "b": 0.001},
        Resources(gpus=1),
    )  # fmt: skip
    assert isinstance(stage.ratio, float)  # type: ignore[attr-defined]  # of that class alone


def test_functions_and_decorated_functions_are_named_by_module(own: Any) -> None:
    shout, keep = stages_of("""
        stages:
          - ownstages:shout: {with: {batch_size: 3}}
          - ScoreFilter: {filter_obj: {function: ownstages:is_long}}
    """)
    assert (shout.name, shout.batch_size, own.shout.batch_size) == ("shout", 3, 1)
    assert keep.filter_obj is own.is_long  # type: ignore[attr-defined]  # of that class alone


def test_a_list_of_filters() -> None:
    (stage,) = stages_of("""
        stages:
          - ScoreFilter:
              filter_obj: [{WordCountFilter: {min_words: 3}}, UrlsFilter]
              score_field: [words, null]
    """)
    assert stage.filter_obj == [WordCountFilter(min_words=3), UrlsFilter()]  # type: ignore[attr-defined]  # of that class alone
    assert stage.score_field == ["words", None]  # type: ignore[attr-defined]  # of that class alone


# --- what is refused ------------------------------------------------------------------------------------------------


def test_unknown_stage_says_line_and_the_likely_name() -> None:
    message = refusal_of("- Route: {by: lang, branches: {}}", "- ScoreFiter: {}")
    assert message.startswith("recipe, line 3: unknown stage 'ScoreFiter'. Did you mean 'ScoreFilter'?")


def test_unknown_parameter_lists_the_known_ones() -> None:
    message = refusal_of("- ScoreFilter:", "    filter_obj:", "      WordCountFilter:", "        min_word: 5")
    assert message == (
        "recipe, line 5: WordCountFilter has no parameter 'min_word'. Did you mean 'min_words'?\n"
        "  It takes: min_words, max_words, lang"
    )


def test_a_file_that_is_not_there_is_said_with_the_line() -> None:
    message = refusal_of("- ScoreFilter: {filter_obj: {TokenizerFertilityFilter: {path_to_tokenizer: no.model}}}")
    assert message.startswith("recipe, line 2: TokenizerFertilityFilter")
    assert message.endswith("there is no such file")


def test_missing_parameters_are_named() -> None:
    assert refusal_of("- Route") == "recipe, line 2: Route needs by and branches"


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("min_words: fifty", "WordCountFilter.min_words: expected a whole number, not 'fifty'"),
        ("min_words: true", "WordCountFilter.min_words: expected a whole number, not True"),
        ("min_words: 1.5", "WordCountFilter.min_words: expected a whole number, not 1.5"),
        ("lang: 5", "WordCountFilter.lang: expected text, not 5"),
        ("lang: [en]", "WordCountFilter.lang: expected text, not a list"),
        ("lang: null", "WordCountFilter.lang: expected text, not null"),
    ],
)
def test_wrong_types(value: str, complaint: str) -> None:
    assert complaint in refusal_of(f"- ScoreFilter: {{filter_obj: {{WordCountFilter: {{{value}}}}}}}")


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("mode: fats", "expected one of 'fast', 'slow', not 'fats'. Did you mean 'fast'?"),
        ("pair: [1]", "expected 2 values, not 1"),
        ("corner: {z: 1}", "ownstages:Typed.corner has no parameter 'z'"),
        ("corner: {UrlsFilter: {}}", "expected a Corner, not a UrlsFilter"),
        ("weights: {a: x}", "ownstages:Typed.weights.a: expected a number, not 'x'"),
        ("with: {batchsize: 2}", "ownstages:Typed.with has no setting 'batchsize'. Did you mean 'batch_size'?"),
        ("with: {batch_size: 0}", "batch_size=0: must be at least 1"),
        ("with: {resources: {gpus: -1}}", "must not be negative"),
    ],
)
def test_wrong_values(own: Any, value: str, complaint: str) -> None:
    message = refusal_of(f"- ownstages:Typed: {{{value}}}")
    assert message.startswith("recipe, line 2: ")
    assert complaint in message


def test_settings_of_a_stage_that_is_not_inside_say_where(own: Any) -> None:
    message = refusal_of("- ownstages:Pair:\n      with:\n        stages:\n          frist: {batch_size: 2}")
    assert message.startswith("recipe, line 5: ownstages:Pair has no stage 'frist' inside. Did you mean 'first'?")


def test_errors_of_constructors_say_where(own: Any) -> None:
    assert refusal_of("- ownstages:Broken") == "recipe, line 2: ownstages:Broken: not today"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("nowhere:Stage", "there is no module 'nowhere'"),
        ("ownstages:Typo", "ownstages has no 'Typo'"),
        ("ownstages:plain_function", "is not a stage; decorate the function with @processing_stage"),
        ("WordCountFilter", "is not a stage; write ScoreFilter: {filter_obj: {WordCountFilter: ...}}"),
        ("UrlRemover", "is not a stage; write Modify: {modifier_fn: {UrlRemover: ...}}"),
        ("function: nowhere:f", "there is no module 'nowhere'"),
        ("function: ownstages:plain_function", "ownstages:plain_function is not a stage; decorate"),
        ("ScoreFilter: {filter_obj: {function: nowhere:f}}", "there is no module 'nowhere'"),
        ("ScoreFilter: {filter_obj: {function: ownstages:nothing}}", "ownstages has no 'nothing'"),
        ("ScoreFilter: {filter_obj: {function: f}}", "a function is written {function: package.module:name}, not 'f'"),
        ("'1:2'", "'1:2' does not have the form package.module:Class"),
    ],
)
def test_names_of_something_other_than_a_stage(own: Any, name: str, complaint: str) -> None:
    assert complaint in refusal_of(f"- {name}")


def test_an_error_inside_a_users_module_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "halfdone.py").write_text("import a_package_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there"):
        load_recipe("stages:\n  - halfdone:Stage\n").to_pipeline()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("stges: []\n", "recipe, line 1: unknown key 'stges'. Did you mean 'stages'?"),
        ("name: x\n", "a recipe needs stages"),
        ("stages: []\n", "a recipe needs stages"),
        ("stages: {Route: {}}\n", "recipe, line 1: stages must be a list"),
        ("- Route\n", "a recipe is a mapping"),
        ("\n", "a recipe is a mapping"),
        ("stages: [a\n", "line 2: this is not YAML"),
        ("stages: [Route]\nname: x\nname: y\n", "recipe, line 3: 'name' is given twice"),
        ("stages: [Route]\nname: !!python/object:os.system x\n", "line 2: the tag"),
        ("stages: &a [*a]\n", "the alias *a has no anchor before it"),
        ("stages: [Route]\nrun: {worker: 2}\n", "recipe, line 2: run has no parameter 'worker'"),
        ("stages: [Route]\nrun: {memory_budget: much}\n", "recipe, line 2: run: 'much' is not a valid size"),
        ("stages: [Route]\nrun: {executor: locl}\n", "recipe, line 2: run: unknown executor 'locl'."),
        ("stages: [Route]\nrun: {execution_mode: stream}\n", "Did you mean 'streaming'?"),
        ("stages: [Route]\nrun:\n  workers: -1\n", "recipe, line 3: run: workers: must not be negative"),
        ("stages: [Route]\nrun:\n  retries: -1\n", "recipe, line 3: run: retries: must not be negative"),
        ("stages: [Route]\nrun:\n  workers: 1\n  memory_budget: -5\n", "recipe, line 4: run: -5 is not a valid size"),
        ("stages: [Route]\nname: 5\n", "recipe, line 2: name: expected text, not 5"),
    ],
)
def test_the_outer_shape(text: str, complaint: str) -> None:
    assert complaint in refusal(lambda: load_recipe(text))


@pytest.mark.parametrize(
    ("stage", "complaint"),
    [
        ("- {Route: {}, Tee: {}}", "expected one stage, Name: {parameters}, not the 2 keys Route, Tee"),
        ("- 5", "expected a stage, Name or Name: {parameters}, not 5"),
        ("- Route: [lang]", "the parameters of Route must be a mapping of names to values, not a list"),
    ],
)
def test_values_that_are_not_a_stage(stage: str, complaint: str) -> None:
    assert complaint in refusal_of(stage)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    assert "missing.yaml: cannot read the recipe: No such file" in refusal(
        lambda: load_recipe(tmp_path / "missing.yaml")
    )
    assert "it is not UTF-8 (byte 9)" in refusal(lambda: load_recipe(tmp_path / "latin.yaml"))


# --- recipes that could do harm --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "subprocess:Popen",
        "os:system",
        "builtins:exec",
        "builtins:eval",
        "this:d",  # prints when it is imported
        "ownstages:enum.Enum",
        "ownstages:Path",
    ],
)
@pytest.mark.parametrize(
    "stage",
    [
        "{name}",
        "{name}: {{args: [touch, made]}}",
        "ScoreFilter: {{filter_obj: {{{name}: {{args: [touch, made]}}}}}}",
        "ScoreFilter: {{filter_obj: {{function: {name}}}}}",
        "Tee: {{stages: [{{{name}: {{}}}}]}}",
        "ownstages:Plain: {{low: {{{name}: {{}}}}}}",
    ],
)
def test_the_standard_library_is_neither_imported_nor_called(
    own: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, stage: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "a recipe cannot use modules of Python's standard library" in refusal_of("- " + stage.format(name=name))
    assert "this" not in sys.modules
    assert not Path("made").exists()


@pytest.mark.parametrize(
    ("stage", "complaint"),
    [
        ("ownstages:Counted", "ownstages:Counted is not a stage"),
        ("ScoreFilter: {filter_obj: {ownstages:Counted: {}}}", "expected a DocumentFilter, not a Counted"),
        ("ScoreFilter: {filter_obj: {function: ownstages:Counted}}", "ownstages:Counted is not a function"),
        ("Tee: {stages: [ownstages:Counted]}", "expected a ProcessingStage, not a Counted"),
        ("ownstages:Plain: {low: {ownstages:Counted: {}}}", "ownstages:Counted is not a stage, a filter or a modifier"),
        ("ownstages:Typed: {corner: {ownstages:Counted: {}}}", "expected a Corner, not a Counted"),
    ],
)
def test_other_classes_are_not_called(own: Any, stage: str, complaint: str) -> None:
    assert complaint in refusal_of(f"- {stage}")
    assert own.Counted.made == 0


def test_harmless_functions_of_python_itself_may_be_named() -> None:
    written = dump_recipe(Pipeline("p", stages=[Modify(str.upper), ScoreFilter(len)]))
    assert [stage.name for stage in load_recipe(written).to_pipeline().stages] == ["upper", "len"]


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (BOMB, "recipe, line 6: more than 100,000 values, with aliases expanded"),
        ("stages: " + "[" * 5000 + "\n", "nested more than 40 levels deep"),
        ("stages: " + "{a: " * 5000 + "\n", "nested more than 40 levels deep"),
        (
            f"a: &a {'[' * 15}{']' * 15}\nb: &b {'[' * 9}*a{']' * 9}\nc: {'[' * 17}*b{']' * 17}\n",
            "line 3: nested",
        ),
        (
            "stages: [Route]\nname: " + "9" * 5000 + "\n",
            "line 2: a number of 5,000 digits. If it is text, put it in quotes",
        ),
        ("stages: [Route]\nrun: {workers: 0x" + "f" * 5000 + "}\n", "a number of 5,002 digits"),
        ("stages: [Route]\nrun: {memory_budget: " + "9" * 60 + "GiB}\n", "is not a valid size"),
        ("# " + "x" * 5_000_000 + "\n", "recipe: longer than 4,194,304 characters"),
        ("stages: [Route]\n---\nstages: [Route]\n", "a recipe is one YAML document"),
    ],
    ids=lambda text: text[:20],
)
def test_recipes_that_are_too_large(text: str, complaint: str) -> None:
    assert complaint in refusal(lambda: load_recipe(text))


def test_an_endless_file_is_refused() -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("this system has no /dev/zero")
    assert "longer than" in refusal(lambda: load_recipe("/dev/zero"))


def test_aliases_are_understood() -> None:
    words, urls = stages_of("""
        stages:
          - ScoreFilter: &shared {filter_obj: {WordCountFilter: {min_words: 3}}, text_field: body}
          - ScoreFilter: *shared
    """)
    assert repr(words) == repr(urls)


# --- --set ----------------------------------------------------------------------------------------------------------

CHANGEABLE = """
name: p
stages:
  - ScoreFilter: {filter_obj: {WordCountFilter: {min_words: 50}}, with: {name: words}}
  - ScoreFilter: {filter_obj: {UrlsFilter: {}}}
  - Route: {by: lang, branches: {en: [{Score: {score_fn: {UrlsFilter: {}}, score_field: urls}}]}}
"""


def changed(*assignments: str) -> list[Any]:
    return load_recipe(CHANGEABLE).with_settings(assignments).to_pipeline().stages


def test_set_by_number_name_class_and_the_name_a_stage_gives_itself() -> None:
    assert changed("1.score_field=n")[0].score_field == "n"
    assert changed("words.score_field=n")[0].score_field == "n"
    assert changed("Route.by=script")[2].by == "script"
    name = load_recipe(CHANGEABLE).to_pipeline().stages[1].name
    assert changed(f"{name}.score_field=n")[1].score_field == "n"


def test_set_goes_into_objects_mappings_and_lists() -> None:
    assert changed("words.filter_obj.min_words=7")[0].filter_obj.min_words == 7
    assert changed("Route.branches.en.1.score_field=other")[2].branches["en"][0].score_field == "other"
    assert changed("words.with.batch_size=3")[0].batch_size == 3
    assert changed("words.filter_obj={UrlsFilter: {max_url_to_text_ratio: 0.5}}")[0].filter_obj == UrlsFilter(0.5)
    assert changed("Route.branches.de=[]")[2].branches["de"] == []


def test_set_reaches_the_name_and_the_run() -> None:
    recipe = load_recipe(CHANGEABLE).with_settings(["name=q", "run.workers=2"])
    assert (recipe.name, recipe.run.workers) == ("q", 2)


def test_set_leaves_the_recipe_itself_alone() -> None:
    recipe = load_recipe(CHANGEABLE)
    recipe.with_settings(["words.filter_obj.min_words=7"])
    assert recipe.to_pipeline().stages[0].filter_obj.min_words == 50  # type: ignore[attr-defined]  # of that class alone


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ("wrods.x=1", "no stage 'wrods'. Did you mean 'words'? It has:\n  1 ScoreFilter (words)\n  2 ScoreFilter\n"),
        ("ScoreFilter.x=1", "2 stages are called 'ScoreFilter'; give the number"),
        ("9.x=1", "no stage '9'"),
        ("words", "write stage.parameter=value"),
        ("nmae=zz", "--set nmae=zz: the recipe has no 'nmae'. Did you mean 'name'?"),
        ("run.workers=-1", "--set run.workers=-1: run: workers: must not be negative"),
        ("words=3", "the parameter is missing. Write words.parameter=value"),
        ("words.score_feild=n", "--set words.score_feild=n: ScoreFilter has no parameter 'score_feild'"),
        ("words.min_words=9", "ScoreFilter has no parameter 'min_words'. Did you mean 'filter_obj.min_words'?"),
        (
            "words.filter_obj.min_words=x",
            "--set words.filter_obj.min_words=x: WordCountFilter.min_words: expected a whole",
        ),
        ("Route.branches.en.2.x=1", "the list has the numbers 1 to 1"),
        ("Route.by.x.y=1", "'lang' has no 'x' inside"),
        ("Route.by=[1", "--set Route.by=[1: this is not YAML"),
    ],
)
def test_set_refuses(assignment: str, complaint: str) -> None:
    assert complaint in refusal(lambda: changed(assignment))


# --- writing recipes ------------------------------------------------------------------------------------------------


def test_only_what_differs_from_the_defaults_is_written(own: Any) -> None:
    pipeline = Pipeline(
        "p",
        "What it does.",
        [
            ScoreFilter(WordCountFilter(min_words=80), score_field="words"),
            ScoreFilter(UrlsFilter()).with_(name="links", resources=Resources(cpus=2), batch_size=4, num_workers=3),
            Route("lang", {"no": [Tee([own.Plain(3)])]}),
            own.shout,
            own.Pair().with_({"first": {"batch_size": 2}}, num_workers=2),
        ],
    )
    assert dump_recipe(pipeline) == textwrap.dedent("""\
        name: p
        description: What it does.
        stages:
          - ScoreFilter:
              filter_obj:
                WordCountFilter: {min_words: 80}
              score_field: words
          - ScoreFilter:
              filter_obj:
                UrlsFilter: {}
              with:
                name: links
                resources: {cpus: 2.0}
                batch_size: 4
                num_workers: 3
          - Route:
              by: lang
              branches:
                'no':
                  - Tee:
                      stages:
                        - ownstages:Plain: {low: 3}
          - ownstages:shout
          - ownstages:Pair:
              with:
                num_workers: 2
                stages:
                  first: {batch_size: 2}
        """)


def test_a_whole_number_for_a_float_is_written_as_it_is_read(own: Any) -> None:
    stages = [own.Typed(ratio=2, weights={"a": 1}).with_(resources=Resources(cpus=2)), own.Typed(gpu=Resources(cpus=1))]
    once = dump_recipe(Pipeline("p", stages=stages))
    assert dump_recipe(load_recipe(once).to_pipeline()) == once
    assert "share" not in once


class InThisFile(DocumentFilter):
    def score_document(self, text: str) -> float:
        return 0.0


def test_what_has_no_name_cannot_be_written(own: Any) -> None:
    class Local(InThisFile):
        pass

    def refused(stage: ProcessingStage[Any, Any]) -> str:
        return refusal(lambda: dump_recipe(Pipeline("p", stages=[stage])))

    assert "stage 1: ScoreFilter.filter_obj: a lambda" in refused(ScoreFilter(lambda text: True))
    assert "is defined inside a function" in refused(ScoreFilter(Local()))
    assert "does not keep its parameter 'low'" in refused(own.Forgetful())
    in_main = type("Made", (InThisFile,), {"__module__": "__main__", "__qualname__": "Made"})
    assert "is defined in __main__ (a script or a notebook)" in refused(ScoreFilter(in_main()))
    unnamed = type("Gone", (InThisFile,), {"__module__": "ownstages", "__qualname__": "Gone"})
    assert "ownstages has no 'Gone'" in refused(ScoreFilter(unnamed()))
    assert "bytes cannot be written in a recipe" in refused(Route("lang", {}, otherwise=[own.Plain(b"x")]))


TEXTS = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12) | st.sampled_from(
    [
        "no",
        "1e-3",
        "0x1F",
        "007",
        "2024-01-01",
        "null",
        "~",
        "",
        " ",
        "true",
        "a: b",
        "- x",
        "#",
        "{",
        "line\nline\n",
        "*a",
    ]
)
FILTERS = st.one_of(
    st.builds(WordCountFilter, min_words=st.integers(0, 10**6), max_words=st.integers(min_value=10**6)),
    st.builds(UrlsFilter, st.floats(0, 1)),
    st.builds(NonAlphaNumericFilter),
)
LEAVES = st.one_of(
    st.builds(ScoreFilter, FILTERS, text_field=TEXTS, score_field=st.none() | TEXTS, invert=st.booleans()),
    st.builds(
        lambda fs, invert: ScoreFilter(fs, invert=invert), st.lists(FILTERS, min_size=1, max_size=3), st.booleans()
    ),
    st.builds(lambda f, column: Filter(f, column), FILTERS, TEXTS),
)
STAGES = st.recursive(
    LEAVES | st.builds(lambda s, n, b: s.with_(name=n, batch_size=b), LEAVES, TEXTS.filter(bool), st.integers(1, 99)),
    lambda inner: st.one_of(
        st.builds(
            lambda by, branches: Route(by, branches),
            st.sampled_from(["lang", "no"]),
            st.dictionaries(TEXTS.filter(lambda t: t != "otherwise"), st.lists(inner, max_size=2), max_size=2),
        ),
        st.builds(lambda s: Tee([s]), inner),
        st.builds(lambda s, to: Dropped(s, to), LEAVES, st.lists(inner, max_size=2)),
    ),
    max_leaves=6,
)


@examples(60, suppress_health_check=[HealthCheck.too_slow])
@given(st.builds(Pipeline, TEXTS, TEXTS, st.lists(STAGES, min_size=1, max_size=3)))
def test_round_trip(pipeline: Pipeline) -> None:
    text = dump_recipe(pipeline)
    again = load_recipe(text).to_pipeline()
    assert dump_recipe(again) == text
    assert (again.name, again.description) == (pipeline.name, pipeline.description)
    assert [repr(stage) for stage in again.stages] == [repr(stage) for stage in pipeline.stages]
    assert [stage.name for stage in again.stages] == [stage.name for stage in pipeline.stages]


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@examples(150)
@given(PLAIN)
def test_yaml_gives_back_what_was_written(value: Any) -> None:
    assert repr(parse_yaml(to_yaml(value), "x").plain()) == repr(value)


def test_the_recipes_of_the_documentation_can_be_made() -> None:
    page = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        assert load_recipe(block).to_pipeline().stages


def test_everything_that_needs_no_parameters_can_be_written_and_read() -> None:
    """Filters, modifiers and stages alike; with what each is made of spelt out in full."""
    made = 0
    for entry in catalogue().values():
        if any(parameter.default is REQUIRED for parameter in parameters_of(entry.cls)):
            continue
        try:
            thing = entry.cls()
        except (MissingExtraError, ValueError):  # a ValueError: it needs one of several parameters
            continue
        stage = {"filter": ScoreFilter, "modifier": Modify}.get(entry.kind, lambda same: same)(thing)
        if isinstance(stage, ProcessingStage):
            text = dump_recipe(Pipeline("p", stages=[stage]))
            assert dump_recipe(load_recipe(text).to_pipeline()) == text
            made += 1
    assert made > 20
