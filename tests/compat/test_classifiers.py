"""Scripts for NeMo Curator make classifiers with the parameters that they have there."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

SAME = {"cache_dir": None, "text_field": "text", "autocast": True}
FILTERING = {**SAME, "filter_by": None, "keep_tokens": False, "use_existing_tokens": False, "sort_by_length": True}
EDU = {**FILTERING, "max_chars": None}

# Parameters and defaults of release 1.4; model_inference_batch_size is a limit here, and there is none by default.
PARAMETERS: dict[str, dict[str, Any]] = {
    "stages.text.classifiers.base:DistributedDataClassifier": {
        **FILTERING,
        "model_identifier": "organisation/name",
        "label_field": "preds",
        "score_field": None,
        "max_chars": None,
        "max_seq_length": None,
        "padding_side": "right",
    },
    "stages.text.classifiers.quality:QualityClassifier": {
        **FILTERING,
        "label_field": "quality_pred",
        "score_field": None,
        "max_chars": 6000,
    },
    "stages.text.classifiers.domain:DomainClassifier": {
        **FILTERING,
        "label_field": "domain_pred",
        "score_field": None,
        "max_chars": 2000,
    },
    "stages.text.classifiers.domain:MultilingualDomainClassifier": {
        **FILTERING,
        "label_field": "multilingual_domain_pred",
        "score_field": None,
        "max_chars": 2000,
    },
    "stages.text.classifiers.content_type:ContentTypeClassifier": {
        **FILTERING,
        "label_field": "content_pred",
        "score_field": None,
        "max_chars": 6000,
    },
    **{
        f"stages.text.classifiers.fineweb_edu:FineWeb{name}EduClassifier": {
            **EDU,
            "label_field": f"fineweb{prefix}-edu-score-label",
            "float_score_field": f"fineweb{prefix}-edu-score-float",
            "int_score_field": f"fineweb{prefix}-edu-score-int",
        }
        for name, prefix in (("", ""), ("Mixtral", "-mixtral"), ("Nemotron", "-nemotron"))
    },
    "stages.text.classifiers.prompt_task_complexity:PromptTaskComplexityClassifier": EDU,
    "stages.text.classifiers.aegis:AegisClassifier": {
        **FILTERING,
        "aegis_variant": "nvidia/Aegis-AI-Content-Safety-LlamaGuard-Defensive-1.0",
        "hf_token": None,
        "label_field": "aegis_pred",
        "raw_output_field": "_aegis_raw_pred",
        "keep_raw_output": False,
        "max_chars": 6000,
        "aegis_prompt_field": None,
        "keep_aegis_prompt_field": False,
    },
    "stages.text.classifiers.aegis:InstructionDataGuardClassifier": {
        **EDU,
        "hf_token": None,
        "label_field": "is_poisoned",
        "score_field": "instruction_data_guard_poisoning_score",
    },
    "stages.math.classifiers.finemath:FineMathClassifier": {
        **SAME,
        "float_score_column": "finemath_scores",
        "int_score_column": "finemath_int_scores",
        "max_chars": None,
        "max_seq_length": 512,
        "sort_by_length": False,
        "center_crop_chars": 10_000,
    },
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_and_defaults(name: str) -> None:
    module, _, kind = name.partition(":")
    cls = getattr(importlib.import_module(f"tamis.{module}"), kind)
    given = PARAMETERS[name]
    stage = cls(**given, model_inference_batch_size=64)
    assert stage.parameters()["model_inference_batch_size"] == 64
    needed = {"model_identifier": given["model_identifier"]} if kind == "DistributedDataClassifier" else {}
    made = cls(**needed).parameters()
    assert {parameter: made[parameter] for parameter in given} == given
