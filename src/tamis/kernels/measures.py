"""What the kernel of the heuristic filters counts in a text. Every score is one of these numbers, or one per another.

Lines are those that hold more than white space; paragraphs are what ``text.split("\\n\\n")`` gives; words are what
``text.split()`` gives. The definitions in plain Python are the filters' own ``score_document``.
"""

from __future__ import annotations

from typing import Final

# The characters of the text. Found in the first pass over it.
CHARACTERS: Final = 0
NOT_PLAIN: Final = 1  # neither ASCII letters, digits nor one of "\n?!,."
DIGITS: Final = 2  # str.isdecimal()
WHITE_SPACE: Final = 3  # tab, newline, carriage return, backspace, space
PARENTHESES: Final = 4
LETTERS: Final = 5  # Unicode's Alphabetic
NEWLINES: Final = 6
NOT_NEWLINES: Final = 7

# Its words.
WORDS: Final = 8
WORD_CHARACTERS: Final = 9
LONGEST_WORD: Final = 10
SYMBOL_WORDS: Final = 11  # an ellipsis, or more runs of "#" than half of its characters
COMMON_WORDS: Final = 12  # the, be, to, of, and, that, have, with
LETTER_WORDS: Final = 13  # with a letter in it

# Its lines.
LINES: Final = 14
LINE_CHARACTERS: Final = 15
UNIQUE_LINES: Final = 16
UNIQUE_LINE_CHARACTERS: Final = 17
REPEATED_LINE_CHARACTERS: Final = 18
BULLET_LINES: Final = 19
ELLIPSIS_LINES: Final = 20
UNMARKED_LINES: Final = 21  # that end in none of . ? ! " '
ENDED_LINES: Final = 22  # that end in a punctuation mark that ends a sentence, of any script
SHORT_LINES: Final = 23  # of at most SHORT_LINE_CHARACTERS

# Its paragraphs.
PARAGRAPHS: Final = 24
PARAGRAPH_CHARACTERS: Final = 25
UNIQUE_PARAGRAPHS: Final = 26
UNIQUE_PARAGRAPH_CHARACTERS: Final = 27

# Phrases in it.
POLICY_PARAGRAPHS: Final = 28  # with a phrase of small print; all of them if one has "lorem ipsum"

# Its URLs.
URL_CHARACTERS: Final = 29
PORNOGRAPHIC_URLS: Final = 30  # 1 if "porn" is in one of them

# Its n-grams: for an n of 1 to MOST_WORDS, at these numbers plus n.
TOP_NGRAM_CHARACTERS: Final = 31  # that go when the most frequent n-gram is removed; all if there is none
REPEATED_NGRAM_CHARACTERS: Final = 48  # in n-grams that were there before; all if there is none

MOST_WORDS: Final = 16
"""The longest n-gram that the kernel knows."""

SHORT_LINE_CHARACTERS: Final = 30

MEASURES: Final = REPEATED_NGRAM_CHARACTERS + MOST_WORDS + 1
"""How many there are."""

# What the table of characters says of each.
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
