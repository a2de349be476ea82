"""Write the sample of ``examples/tinystories.py``: short stories for small children, made up from parts.

    python tools/stories.py examples/data

The stories are original, made for this example, and not from the TinyStories data set; only the form of the file is the
same. Some are flawed on purpose: too short, broken off, with curly quotation marks, or decoded wrongly.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

END_OF_STORY = "<|endoftext|>"
SPLITS = {"train": 120, "valid": 40}

HEROES = [
    *[("Mira", "girl", "she", "her"), ("Tom", "boy", "he", "his"), ("Lena", "girl", "she", "her")],
    *[("Otto", "hedgehog", "he", "his"), ("Pip", "sparrow", "he", "his"), ("Nuri", "kitten", "she", "her")],
    *[("Bo", "bear cub", "he", "his"), ("Ada", "girl", "she", "her"), ("Juno", "duckling", "she", "her")],
    *[("Emil", "boy", "he", "his"), ("Fenn", "fox", "he", "his"), ("Rosa", "mouse", "she", "her")],
]
FRIENDS = [
    *["an old tortoise", "a baker with flour on his nose", "a tall heron", "a sleepy owl", "a postwoman on a bicycle"],
    *["a gardener in green boots", "a very small ant", "a goat with one horn", "a grandmother with a cane"],
]
PLACES = [
    *["a house at the edge of the wood", "a village by the river", "a boat that never sailed", "a hollow tree"],
    *["a street with eleven cats", "a farm on a windy hill", "a mill that had lost its wheel", "a tent near the sea"],
]
THINGS = [
    *["red kite", "tin drum", "glass marble", "wooden spoon", "blue umbrella", "paper lantern", "brass bell"],
    *["woollen hat", "jar of honey", "yellow boot", "silver whistle", "toy boat"],
]
SPOTS = [
    *[
        "in the top of a birch",
        "at the bottom of the well",
        "under the bridge",
        "behind the oven",
        "on the church roof",
    ],
    *["in the middle of the pond", "inside a thorn bush", "on the far side of the fence"],
]
WEATHER = ["sunny", "foggy", "windy", "cold and bright", "rainy", "very quiet", "warm"]

OPENINGS = [
    "Once upon a time there was a {kind} called {name} who lived in {place}.",
    "In {place} there lived a {kind}, and {he} was called {name}.",
    "{name} was a small {kind} from {place}.",
    "One {weather} morning a {kind} named {name} looked out of {place} and smiled.",
]
LOVES = [
    "Of all the things in the world {he} loved {his} {thing} the most. {He} took it to bed, to the table and even to"
    " the bath.",
    "{He} had one treasure, a {thing}, which had been a present. Every evening {he} polished it until it shone.",
    "For {his} birthday {he} had been given a {thing}. {He} had never owned anything so fine, and {he} showed it to"
    " everyone who passed.",
]
LOSSES = [
    "But one {weather} day a gust of wind came and carried the {thing} away, and when {name} found it again it was"
    " {spot}, where {he} could not reach it.",
    "Then something sad happened. {name} was not looking for one moment, and the {thing} rolled and bounced and rolled,"
    " and ended up {spot}.",
    "One {weather} afternoon {he} came home and the {thing} was gone. {He} searched for an hour. At last {he} saw it:"
    " it was {spot}, far too far away for such a small {kind}.",
]
TRIES = [
    "{He} jumped as high as {he} could. It did not help. {He} fetched a stick, but the stick was too short.",
    "{He} pulled and pushed and even shouted at it, but the {thing} stayed where it was. {name} sat down and cried a"
    " little.",
    "First {he} tried to climb, and slid down again. Then {he} tried to throw a rope, and the rope came back and landed"
    " on {his} own head.",
]
MEETINGS = [
    'Just then {friend} came by. "What is the matter?" asked the stranger. "My {thing} is {spot}," said {name}, "and I'
    ' cannot get it." "Then we must think," said the stranger, "because thinking is longer than any stick."',
    '{Friend} had watched all this. "Why do you not ask for help?" "I did not want to bother anyone," said {name} in a'
    ' small voice. "It is no bother," came the answer. "Hold my hand and hold it tight."',
    'Along came {friend}. "I see that you are sad," said a kind voice. {name} nodded. "It\'s my {thing}. I\'ll never'
    ' get it back." "Never is a long time. Let us try once before we say never."',
]
ENDS = [
    "They worked together, one holding and one reaching, and after a while the {thing} was safe. {name} was so glad"
    " that {he} danced in a circle.",
    "It took them until the sun went down, but in the end {name} held the {thing} in both arms again. It was wet and"
    " dusty and quite perfect.",
    "They made a plan, and the plan was good. A little patience, a little courage, one big pull, and there it was.",
]
LESSONS = [
    'From that day on {name} was never too proud to say: "Please, can you help me?"',
    "That evening they shared a pot of soup, and {name} knew that a friend is worth more than a {thing}.",
    "And when {he} fell asleep, the {thing} was beside {him}, and the moon looked in through the window.",
    '"Thank you," said {name}. "Next time I will help you." And so {he} did.',
]


def story(chance: random.Random) -> str:
    """One story, whole and clean."""
    name, kind, he, his = chance.choice(HEROES)
    friend = chance.choice(FRIENDS)
    words = {
        "name": name,
        "kind": kind,
        "he": he,
        "He": he.capitalize(),
        "his": his,
        "him": "him" if he == "he" else "her",
        "friend": friend,
        "Friend": friend[0].upper() + friend[1:],
        "place": chance.choice(PLACES),
        "thing": chance.choice(THINGS),
        "spot": chance.choice(SPOTS),
    }
    parts = [chance.choice(options) for options in (OPENINGS, LOVES, LOSSES, TRIES, MEETINGS, ENDS, LESSONS)]
    told = [part.format(**words, weather=chance.choice(WEATHER)) for part in parts]
    return f"{' '.join(told[:2])}\n{' '.join(told[2:4])}\n{told[4]}\n{' '.join(told[5:])}"


def curly(text: str) -> str:
    """The same with curly quotation marks."""
    for mark in ("\u201c", "\u201d") * text.count('"'):
        text = text.replace('"', mark, 1)
    return text.replace("'", "\u2019")


def broken_off(text: str, chance: random.Random) -> str:
    """A story that stops in the middle of a word or a sentence."""
    return text[: int(len(text) * chance.uniform(0.7, 0.95))].rstrip(" .,!?\"'\u201c\u201d\u2019:")


def too_short(text: str) -> str:
    """Only the first line of a story."""
    return text.partition("\n")[0]


def decoded_wrongly(text: str) -> str:
    """Text whose bytes somebody took for Windows's."""
    return text.replace("\u201d", '"').encode().decode("cp1252")


def flawed(text: str, number: int, chance: random.Random) -> str:
    """Every story has its flaw, or none: it follows from its number."""
    if number % 5 in (1, 3):
        text = curly(text)
    if number % 20 == 6:
        text = decoded_wrongly(curly(text))
    if number % 8 == 2:
        return too_short(text)
    return broken_off(text, chance) if number % 8 == 5 else text


def main(folder: str) -> None:
    """Write one file for each split."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for split, count in SPLITS.items():
        chance = random.Random(split)
        told = [flawed(story(chance), number, chance) for number in range(count)]
        text = f"\n{END_OF_STORY}\n".join(told) + f"\n{END_OF_STORY}\n"
        Path(folder, f"stories-{split}.txt").write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
