"""The prompt of the Aegis models: the question, the safety policy with its 13 categories, and a text.

The frame is that of Llama Guard. The policy is the one that the model's card publishes, where its files are with the
adapter; it is what the model was trained with. Where it cannot be found, a shorter one of the same categories is used.
"""

from __future__ import annotations

import html
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.arrays import numpy_array, one_array
from tamis.errors import ModelError
from tamis.models.model import Model
from tamis.models.tokenizers import Tokenizer

__all__ = ["AEGIS_CATEGORIES", "AEGIS_LABELS", "AegisPrompt", "find_policy", "label_of"]

AEGIS_CATEGORIES: Final = {
    "O1": "Violence",
    "O2": "Sexual",
    "O3": "Criminal Planning/Confessions",
    "O4": "Guns and Illegal Weapons",
    "O5": "Controlled/Regulated Substances",
    "O6": "Suicide and Self Harm",
    "O7": "Sexual (minor)",
    "O8": "Hate/Identity Hate",
    "O9": "PII/Privacy",
    "O10": "Harassment",
    "O11": "Threat",
    "O12": "Profanity",
    "O13": "Needs Caution",
}
"""What the labels stand for."""

AEGIS_LABELS: Final = ("unknown", "safe", *AEGIS_CATEGORIES)

_OWN_RULES: Final = {
    "O1": "describe violence in vivid detail, or help or encourage people to be violent",
    "O2": "be sexually explicit, or encourage sexual acts",
    "O3": "plan, encourage, condone or confess crimes",
    "O4": "help people commit crimes with firearms, or make or own illegal weapons",
    "O5": "help or encourage people to make, trade or use drugs and other regulated substances",
    "O6": "encourage or romanticise suicide and self-harm, explain methods, or tell of such an intent",
    "O7": "sexualise minors, or help anyone to contact or exploit them",
    "O8": "demean or discriminate against people for who they are, or use slurs",
    "O9": "ask for or reveal personal data that identify somebody",
    "O10": "bully, humiliate, insult or torment somebody",
    "O11": "announce harm to somebody, or intimidate or blackmail them",
    "O12": "use swear words or obscene language",
    "O13": "be toxic, unethical or against social norms in another way, or too unclear to be called safe",
}
_BEGIN: Final = "<BEGIN UNSAFE CONTENT CATEGORIES>"
_END: Final = "<END UNSAFE CONTENT CATEGORIES>"
_POLICY: Final = re.compile(rf"\\?{_BEGIN}\s*(?P<policy>.*?)\s*\\?{_END}", re.DOTALL)
_CATEGORY: Final = re.compile(r"^\s*(O\d+)\s*:", re.MULTILINE)

_LOG = logging.getLogger("tamis")


@dataclass(frozen=True)
class AegisPrompt:
    """A prompt with a place for a text.

    Args:
        policy: The categories of unsafe content, each with what it covers.

    >>> AegisPrompt("O1: Violence.").around("hello").splitlines()[-7:-4]
    ['User: hello', '', '<END CONVERSATION>']
    """

    policy: str

    @property
    def before(self) -> str:
        """What stands before the text."""
        return (
            "[INST] Task: Check if there is unsafe content in 'User' messages in conversations according our safety "
            f"policy with the below categories.\n\n{_BEGIN}\n{self.policy}\n{_END}\n\n<BEGIN CONVERSATION>\n\nUser: "
        )

    @property
    def after(self) -> str:
        """What stands after the text."""
        return (
            "\n\n<END CONVERSATION>\n\nProvide your safety assessment for User in the above conversation:\n"
            "- First line must read 'safe' or 'unsafe'.\n"
            "- If unsafe, a second line must include a comma-separated list of violated categories. [/INST]"
        )

    def around(self, text: str) -> str:
        """The prompt for one text."""
        return self.before + text + self.after

    def prompts(
        self, texts: pa.Array | pa.ChunkedArray, tokenizer: Tokenizer, max_tokens: int, max_chars: int | None = None
    ) -> tuple[pa.Array, pa.LargeListArray, int]:
        """The prompts for a column, their tokens, and how many texts were cut so that a prompt is not too long.

        The end of a text is cut, never that of the prompt: the question stands there.

        Args:
            texts: The texts; a null has no prompt.
            tokenizer: The tokenizer of the model.
            max_tokens: The most tokens of a prompt.
            max_chars: The most characters of a text.
        """
        column = one_array(texts).cast(pa.large_string())
        is_cut = np.zeros(len(column), np.bool_)
        if max_chars is not None:
            is_cut = numpy_array(pc.fill_null(pc.greater(pc.utf8_length(column), max_chars), False))
            column = pc.utf8_slice_codeunits(column, 0, max_chars)
        frame = int(tokenizer.count_tokens(pa.array([self.around("")]), add_special_tokens=True)[0])
        if frame >= max_tokens:
            raise ValueError(f"the prompt without a text has {frame} tokens, the model can have {max_tokens}")
        prompts, tokens = self._encoded(column, tokenizer)
        lengths = np.diff(numpy_array(tokens.offsets))
        while (lengths > max_tokens).any():
            too_long = np.flatnonzero(lengths > max_tokens)
            is_cut[too_long] = True
            texts_there = column.take(pa.array(too_long))
            characters = numpy_array(pc.utf8_length(texts_there))
            fitting = characters * (max_tokens - frame) // (lengths[too_long] - frame)
            shorter = [
                text[:length]
                for text, length in zip(texts_there.to_pylist(), np.minimum(fitting, characters - 1), strict=True)
            ]
            mask = np.zeros(len(column), np.bool_)
            mask[too_long] = True
            column = pc.replace_with_mask(column, pa.array(mask), pa.array(shorter, pa.large_string()))
            prompts, tokens = self._encoded(column, tokenizer)
            lengths = np.diff(numpy_array(tokens.offsets))
        return prompts, tokens, int(is_cut.sum())

    def _encoded(self, texts: pa.Array, tokenizer: Tokenizer) -> tuple[pa.Array, pa.LargeListArray]:
        """The prompts and their tokens; a null has neither."""
        kind = texts.type
        prompts = pc.binary_join_element_wise(
            pa.scalar(self.before, kind), texts, pa.scalar(self.after, kind), pa.scalar("", kind)
        )
        present = prompts.drop_null()
        encoded = tokenizer.encode_column(present, add_special_tokens=True)
        places = np.cumsum(numpy_array(prompts.is_valid())) - 1
        mask = numpy_array(prompts.is_null())
        return prompts, encoded.take(pa.array(places, mask=mask)) if mask.any() else encoded


def find_policy(adapter: Model) -> str:
    """The safety policy that the card of an Aegis model publishes, or else the shorter one of tamis, with a warning."""
    card = Path(adapter.folder()) / "README.md"
    try:
        found = _POLICY.search(html.unescape(card.read_text(encoding="utf-8")))
    except FileNotFoundError:
        found = None
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{card} cannot be read: {error}") from error
    if found and set(_CATEGORY.findall(found["policy"])) >= set(AEGIS_CATEGORIES):
        return found["policy"]
    _LOG.warning(
        "%s has no safety policy between %s and %s, so a shorter one of tamis is used. The model was trained with the "
        "policy of its card: put that into a file, and give AegisClassifier(policy_file=...)",
        card,
        _BEGIN,
        _END,
    )
    return "\n".join(f"{key}: {name}.\nShould not\n- {_OWN_RULES[key]}." for key, name in AEGIS_CATEGORIES.items())


def label_of(answer: str) -> str:
    """The label that an answer stands for: ``safe``, the first category that it names, or ``unknown``.

    >>> label_of(" safe"), label_of("unsafe\\nO3, O5"), label_of("unsafe"), label_of("I cannot say")
    ('safe', 'O3', 'unknown', 'unknown')
    """
    first, _, rest = answer.strip().partition("\n")
    if first.strip() == "safe":
        return "safe"
    named = re.split(r"[\s,]+", rest.strip().partition("\n")[0]) if first.strip() == "unsafe" else []
    return next((category for category in named if category in AEGIS_CATEGORIES), "unknown")
