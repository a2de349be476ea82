"""What the kernel of the heuristic filters counts in a text. Every score is one of these numbers or a ratio of two.

Lines are those that hold more than white space; paragraphs are what ``text.split("\\n\\n")`` returns; words are what
``text.split()`` returns. The definitions in plain Python are in ``score_document`` of the filters.
"""

from __future__ import annotations

from typing import Final

# The characters of the text. Found in the first pass over it.
CHARACTERS: Final = 0
NOT_PLAIN: Final = 1  # neither ASCII letters, digits nor one of "\n?!,."
WHITE_SPACE: Final = 2  # tab, newline, carriage return, backspace, space
NEWLINES: Final = 3
NOT_NEWLINES: Final = 4
ALL_LINES: Final = 5  # newlines, and one more
ASCII_DIGITS: Final = 6
HASH_SIGNS: Final = 7

# Characters of any script. Beyond ASCII, each is looked up in a table.
DIGITS: Final = 8  # str.isdecimal()
PARENTHESES: Final = 9
LETTERS: Final = 10  # Unicode's Alphabetic

# Its words.
WORDS: Final = 11
WORD_CHARACTERS: Final = 12
LONGEST_WORD: Final = 13
SYMBOL_WORDS: Final = 14  # an ellipsis, or more runs of "#" than half of its characters
COMMON_WORDS: Final = 15  # the, be, to, of, and, that, have, with
DIFFERENT_COMMON_WORDS: Final = 16
LETTER_WORDS: Final = 17  # with a letter in it

# Its lines.
LINES: Final = 18
LINE_CHARACTERS: Final = 19
UNIQUE_LINES: Final = 20
UNIQUE_LINE_CHARACTERS: Final = 21
REPEATED_LINE_CHARACTERS: Final = 22
BULLET_LINES: Final = 23
ELLIPSIS_LINES: Final = 24
UNMARKED_LINES: Final = 25  # that end in none of . ? ! " '
ENDED_LINES: Final = 26  # that end in a punctuation mark that ends a sentence, of any script
SHORT_LINES: Final = 27  # of at most SHORT_LINE_CHARACTERS

# Its paragraphs.
PARAGRAPHS: Final = 28
PARAGRAPH_CHARACTERS: Final = 29
UNIQUE_PARAGRAPHS: Final = 30
UNIQUE_PARAGRAPH_CHARACTERS: Final = 31

# Phrases in it.
POLICY_PARAGRAPHS: Final = 32  # with a phrase of small print; all of them if one has "lorem ipsum"

# Its URLs.
URL_CHARACTERS: Final = 33
PORNOGRAPHIC_URLS: Final = 34  # 1 if "porn" is in one of them

ELLIPSES: Final = 35  # "..." and "…"

MEASURES: Final = 36
"""The number of measures, without n-grams."""

SHORT_LINE_CHARACTERS: Final = 30

# The bits of each character in the table of characters.
IS_SPACE: Final = 1
IS_LETTER: Final = 2
IS_DIGIT: Final = 4
IS_BULLET: Final = 8
IS_PARENTHESIS: Final = 16
ENDS_SENTENCE: Final = 32

COMMON: Final = 1
"""In the vocabulary: a common word."""

SYMBOL: Final = 2
"""In the vocabulary: an ellipsis."""

FIRST_COMMON: Final = 4
"""In the vocabulary: the first of the common words. Each has a number of its own, twice that of the one before."""


def top_ngram_characters(n: int) -> int:
    """The measure: characters that are lost if the most frequent n-gram is removed; all if there is no n-gram.

    >>> ngram_of(top_ngram_characters(5))
    (5, True)
    """
    return MEASURES + 2 * n


def repeated_ngram_characters(n: int) -> int:
    """The measure: characters in n-grams that occurred before; all if there is no n-gram.

    >>> ngram_of(repeated_ngram_characters(5))
    (5, False)
    """
    return MEASURES + 2 * n + 1


def ngram_of(measure: int) -> tuple[int, bool] | None:
    """The n of a measure of n-grams, and whether the most frequent one counts; ``None`` for any other measure."""
    n, is_repeated = divmod(measure - MEASURES, 2)
    return (n, not is_repeated) if measure >= MEASURES else None
